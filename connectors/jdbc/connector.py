"""The `jdbc` connector. The driver is loaded by readers only."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.api import (
    CacheKind,
    LookupContext,
    LookupReader,
    ReaderContext,
    SinkConnector,
    SourceReader,
    Split,
    SplitEnumerator,
    TableDefinition,
)
from connectors.errors import DirectionError
from connectors.jdbc.options import JdbcOptions, parse_options
from connectors.lookup_options import lookup_options
from planner.ir.types import ChangelogMode, DataType


class JdbcSource:
    """All rows of a table as inserts, in one split."""

    bounded = True
    changelog = ChangelogMode.INSERT_ONLY
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self._options = parse_options(table)

    def enumerator(self) -> SplitEnumerator:
        return OneSplit(self._options.table_name)

    def reader(self, context: ReaderContext) -> SourceReader:
        from connectors.jdbc.source import JdbcReader

        return JdbcReader(self._options, self._table.columns, context)


class OneSplit:
    discovery_interval_ms = 0

    def __init__(self, table_name: str) -> None:
        self._table_name = table_name

    def discover(self, known: frozenset[str]) -> list[Split]:
        return [] if known else [Split(self._table_name, b"")]

    def close(self) -> None:
        """Nothing is held."""


class JdbcLookup:
    """Rows of a table by key: one query per request."""

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self._jdbc: JdbcOptions = parse_options(table)
        self.options = lookup_options(table.options, (CacheKind.NONE, CacheKind.PARTIAL, CacheKind.FULL))

    def reader(self, context: LookupContext) -> LookupReader:
        from connectors.jdbc.lookup import JdbcLookupReader

        return JdbcLookupReader(self._jdbc, self._table.columns, context)


class JdbcConnector:
    name = "jdbc"

    def source(self, table: TableDefinition) -> JdbcSource:
        return JdbcSource(table)

    def sink(self, table: TableDefinition) -> SinkConnector:
        parse_options(table)
        raise DirectionError(
            "the jdbc connector reads and looks up, and does not write",
            hint="Write to Kafka, and let a connector of the database take the rows from there.",
        )

    def lookup(self, table: TableDefinition) -> JdbcLookup:
        return JdbcLookup(table)


CONNECTOR = JdbcConnector()
