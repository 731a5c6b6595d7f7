"""The WITH options of a table in a database."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from connectors.api import CacheKind, TableDefinition
from connectors.durations import duration_ms
from connectors.errors import OptionError
from connectors.jdbc.types import check_type
from connectors.lookup_options import LOOKUP_OPTIONS, lookup_options
from connectors.options import SOURCE_OPTIONS, Options

_SCHEME = "jdbc:postgresql:"
_DRIVER = "org.postgresql.Driver"
_TIMEOUT = "connection.max-retry-timeout"
OPTION_NAMES = frozenset(
    {
        "url",
        "table-name",
        "username",
        "password",
        "driver",
        _TIMEOUT,
        "scan.fetch-size",
        "scan.auto-commit",
    }
)
_PARAMETERS = {
    "user": "user",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name",
    "currentSchema": "currentSchema",
}
"""Of the driver's URL, and what libpq calls them."""


class JdbcOptions(msgspec.Struct, frozen=True):
    """`connection` are libpq's parameters. `schema` is empty where the search path decides. `fetch_size`: rows of one
    query of a scan, 0 = as many as a batch has."""

    connection: dict[str, str]
    schema: str
    table: str
    fetch_size: int = 0

    @property
    def table_name(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def quoted_table(self) -> str:
        return ".".join(quoted(part) for part in (self.schema, self.table) if part)

    @property
    def place(self) -> str:
        """For messages."""
        c = self.connection
        return f"PostgreSQL at {c['host']}:{c['port']}/{c['dbname']}"


def quoted(name: str) -> str:
    """The name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def parse_options(table: TableDefinition) -> JdbcOptions:
    """Raises OptionError, also for columns of types that the database has not."""
    options = Options(table)
    options.refuse_unknown(SOURCE_OPTIONS | OPTION_NAMES | LOOKUP_OPTIONS)
    connection = _connection(options.required("url"))
    for name, parameter in (("username", "user"), ("password", "password")):
        if name in table.options:
            connection[parameter] = table.options[name]
    if options.text("driver", _DRIVER) != _DRIVER:
        raise options.bad("driver", f"'{_DRIVER}'")
    try:
        timeout_ms = duration_ms(options.text(_TIMEOUT, "60 s"))
    except ValueError as problem:
        raise OptionError(f"'{_TIMEOUT}': {problem}", option=_TIMEOUT) from problem
    if timeout_ms < 1000:
        raise options.bad(_TIMEOUT, "at least 1 s")
    connection.setdefault("connect_timeout", str(max(2, timeout_ms // 1000)))
    options.boolean("scan.auto-commit", True)
    lookup_options(table.options, tuple(CacheKind))
    for column in table.columns:
        check_type(column.name, column.type)
    schema, _, name = options.required("table-name").rpartition(".")
    if "currentSchema" in connection:
        schema = schema or connection["currentSchema"]
        del connection["currentSchema"]
    return JdbcOptions(connection, schema, name, options.integer("scan.fetch-size", 0, 0))


def _connection(url: str) -> dict[str, str]:
    if not url.startswith(_SCHEME):
        raise OptionError(
            "'url' must be one of PostgreSQL",
            option="url",
            hint="Write 'jdbc:postgresql://host:5432/database'. Other databases are not supported.",
        )
    try:
        parts = urlsplit(url.removeprefix("jdbc:"))
        port = parts.port or 5432
    except ValueError as problem:
        raise OptionError(f"'url': {problem}", option="url") from problem
    database = unquote(parts.path.strip("/"))
    if not parts.hostname or not database:
        raise OptionError("'url' must be like 'jdbc:postgresql://host:5432/database'", option="url")
    found = {"host": parts.hostname, "port": str(port), "dbname": database}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise OptionError(
                f"'url' has the parameter '{name}', which is not supported",
                option="url",
                hint="Use the option 'password', which is hidden wherever the table is shown."
                if name == "password"
                else f"Known: {', '.join(sorted(_PARAMETERS))}.",
            )
        found[_PARAMETERS[name]] = value
    return found
