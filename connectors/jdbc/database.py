"""One connection to PostgreSQL. The only module of connectors that knows the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import psycopg

from connectors.errors import ConnectorError, ErrorDomain
from connectors.jdbc.options import JdbcOptions
from connectors.jdbc.types import check_column
from planner.ir.types import Field

Row = tuple[Any, ...]
_SETTINGS = "-c timezone=UTC -c default_transaction_read_only=on -c datestyle=ISO"
_CANCEL_TIMEOUT_S = 2.0
_COLUMNS = """
SELECT a.attname,
       CASE WHEN b.typtype = 'e' THEN 'enum' ELSE format_type(b.oid, NULL) END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""


class Database:
    """Connected at the first use, and anew after the connection was lost. Queries are one thread's at a time."""

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Row] | None = None
        self._closed = False

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """`%` in the query is written twice. Raises ConnectorError, with `retry` where the database did not answer."""
        with self._asked() as connection:
            # Queries are made of quoted identifiers; values are bound.
            return connection.execute(cast(Any, query), parameters, prepare=True).fetchall()

    def read(self, query: str, size: int, take: Callable[[list[Row]], None]) -> None:
        """All rows of a query without parameters, as of one moment, `size` at a time: they need not fit into memory as
        rows, and other threads have their turn. The connection is given back. Raises ConnectorError as `rows`."""
        with self._asked() as connection:
            with connection.transaction(), connection.cursor("pieces") as cursor:
                cursor.execute(cast(Any, query))
                while rows := cursor.fetchmany(size):
                    take(rows)
                    if self._closed:
                        raise psycopg.InterfaceError("the connection is closed")
            self._disconnect()

    @contextmanager
    def _asked(self) -> Iterator[psycopg.Connection[Row]]:
        with self._lock:
            try:
                yield self._connected()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self._disconnect()
                raise self._failure(error, ErrorDomain.EXTERNAL, retry=True) from error
            except psycopg.Error as error:
                self._disconnect()
                raise self._failure(error, ErrorDomain.USER, retry=False) from error
            finally:
                if self._closed:
                    self._disconnect()

    def column_types(self, columns: Sequence[Field]) -> dict[str, str]:
        """The types of the table's columns in the database, all of `columns` checked. Raises ConnectorError."""
        table = self._options.table_name
        found = {str(name): str(kind) for name, kind in self.rows(_COLUMNS, (self._options.quoted_table,))}
        if not found:
            raise ConnectorError(
                f"there is no table '{table}' in {self._options.place}",
                domain=ErrorDomain.USER,
                retry=False,
                hint="'table-name' is schema.table; names are case-sensitive.",
            )
        for column in columns:
            if column.name not in found:
                raise ConnectorError(
                    f"the table '{table}' has no column `{column.name}`", domain=ErrorDomain.USER, retry=False
                )
            check_column(column.name, column.type, found[column.name], f"'{table}'")
        return found

    def _connected(self) -> psycopg.Connection[Row]:
        if self._closed:
            raise psycopg.InterfaceError("the connection is closed")
        if self._connection is None or self._connection.closed:
            parameters: dict[str, Any] = dict(self._options.connection)
            self._connection = psycopg.connect(
                autocommit=True, options=_SETTINGS, keepalives_idle=10, keepalives_interval=5, keepalives_count=3,
                **parameters,
            )  # fmt: skip
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failure(self, error: psycopg.Error, domain: ErrorDomain, *, retry: bool) -> ConnectorError:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        return ConnectorError(f"{self._options.place}: {reason}", domain=domain, retry=retry)

    def close(self) -> None:
        """From any thread; what runs is cancelled."""
        self._closed = True
        connection = self._connection
        if self._lock.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._lock.release()
        elif connection is not None:
            try:
                connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
            except psycopg.Error:
                # The query has ended, or the server is gone.
                return
