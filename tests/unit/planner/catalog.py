"""A catalog in memory, and running a script against it, for the planner's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner import api
from planner.catalog import CatalogEntry, MetadataKey, ObjectPath, TableCapabilities, TableEntry
from planner.errors import SqlError, SqlState
from planner.ir import types as t
from planner.ir.types import ChangelogMode
from planner.sql import statements as st

_SOURCES = ("kafka", "upsert-kafka", "filesystem", "datagen", "nexmark", "jdbc")
_SINKS = ("kafka", "upsert-kafka", "filesystem", "print", "blackhole")
_METADATA = {
    "timestamp": MetadataKey(t.timestamp_ltz(3).with_nullable(False), is_writable=True),
    "offset": MetadataKey(t.BIGINT.with_nullable(False)),
    "partition": MetadataKey(t.INT.with_nullable(False)),
    "topic": MetadataKey(t.STRING.with_nullable(False)),
}


class MemoryCatalog:
    """`default_catalog.default_database` with the definitions a script makes; connectors are only named."""

    def __init__(self) -> None:
        self.current_catalog = "default_catalog"
        self.current_database = "default_database"
        self.entries: dict[ObjectPath, CatalogEntry] = {}

    def lookup(self, path: ObjectPath) -> CatalogEntry | None:
        return self.entries.get(path)

    def names(self, catalog: str, database: str) -> Sequence[str]:
        return [p.name for p in self.entries if (p.catalog, p.database) == (catalog, database)]

    def databases(self, catalog: str) -> Sequence[str]:
        return ["default_database"] if catalog == "default_catalog" else []

    def catalogs(self) -> Sequence[str]:
        return ["default_catalog"]

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        connector = options["connector"]
        if connector not in (*_SOURCES, *_SINKS):
            raise SqlError(SqlState.INVALID_PARAMETER, f"no connector '{connector}'")
        if "no-such-option" in options:
            raise SqlError(SqlState.INVALID_PARAMETER, "the connector has no option 'no-such-option'")
        return TableCapabilities(
            is_source=connector in _SOURCES,
            is_sink=connector in _SINKS,
            is_bounded=connector in ("filesystem", "jdbc") or "scan.bounded.mode" in options,
            metadata=_METADATA if connector in ("kafka", "upsert-kafka") else {},
            source_changelog=_source_changelog(connector, options),
            sink_changelog=_sink_changelog(connector, options),
            is_lookup=connector == "jdbc",
        )


def _source_changelog(connector: str, options: Mapping[str, str]) -> ChangelogMode:
    if connector == "upsert-kafka":
        return ChangelogMode.UPSERT
    return ChangelogMode.RETRACT if options.get("format") == "debezium-json" else ChangelogMode.INSERT_ONLY


def _sink_changelog(connector: str, options: Mapping[str, str]) -> ChangelogMode:
    if connector == "upsert-kafka":
        return ChangelogMode.UPSERT
    takes_all = connector in ("print", "blackhole") or options.get("format") == "debezium-json"
    return ChangelogMode.RETRACT if takes_all else ChangelogMode.INSERT_ONLY


class Script:
    """A session: settings, catalog, and what the last statement came to."""

    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        self.settings: dict[str, str] = {}

    def run(self, sql: str) -> api.CompiledJob | str | None:
        """Executes all statements; the last one's job or text."""
        result: api.CompiledJob | str | None = None
        for statement in api.parse(sql):
            result = self.execute(statement)
        return result

    def job(self, sql: str) -> api.CompiledJob:
        result = self.run(sql)
        assert isinstance(result, api.CompiledJob)
        return result

    def execute(self, statement: st.Statement) -> api.CompiledJob | str | None:
        match statement:
            case st.CreateTable():
                path = api.resolve(statement.name, self.catalog)
                self.catalog.entries[path] = api.bind_table(statement, self.catalog, self.settings)
            case st.CreateView():
                path = api.resolve(statement.name, self.catalog)
                self.catalog.entries[path] = api.bind_view(statement, self.catalog, self.settings)
            case st.DropTable() | st.DropView():
                self.catalog.entries.pop(api.resolve(statement.name, self.catalog), None)
            case st.Insert() | st.Select() | st.StatementSet():
                return api.compile_job(statement, self.catalog, self.settings)
            case st.Explain():
                return api.explain(statement, self.catalog, self.settings)
            case st.Set(key=str(key), value=str(value)):
                self.settings[key] = value
            case _:
                return type(statement).__name__
        return None


def error_of(sql: str) -> SqlError:
    """The error a script ends in."""
    try:
        Script().run(sql)
    except SqlError as e:
        return e
    raise AssertionError("the script was accepted")
