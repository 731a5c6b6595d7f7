"""SQL to JobGraphs over `memory` tables, for jobs that run in one thread (`tests.support.local_cluster`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from connectors import registry
from planner.catalog import ObjectPath, TableCapabilities, TableEntry
from planner.ir.job_graph import JobGraph
from server.catalog.validate import capabilities
from tests.support.memory_tables.connector import TABLES, MemoryTable
from tests.unit.planner.catalog import MemoryCatalog, Script


class LocalCatalog(MemoryCatalog):
    """Asks the connectors themselves what they can do."""

    def capabilities(self, path: ObjectPath, entry: TableEntry, options: Mapping[str, str]) -> TableCapabilities:
        return capabilities(path, entry, options)


class LocalSession(Script):
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.catalog = LocalCatalog()
        self.settings = dict(settings or {})

    def graph(self, sql: str) -> JobGraph:
        """The JobGraph of the script's last statement."""
        return self.job(sql).job_graph


@contextmanager
def memory_tables(**tables: MemoryTable) -> Iterator[None]:
    """Makes the connector known, and these tables to it."""
    known = dict(registry._CONNECTORS)
    registry._CONNECTORS["memory"] = "tests.support.memory_tables"
    TABLES.update(tables)
    try:
        yield
    finally:
        registry._CONNECTORS.clear()
        registry._CONNECTORS.update(known)
        for name in tables:
            TABLES.pop(name, None)
