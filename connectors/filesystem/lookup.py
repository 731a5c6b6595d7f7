"""A table of files that is looked up: all rows are read when the job starts, and anew when the interval is over."""

from __future__ import annotations

import pyarrow as pa

from connectors.api import CacheKind, Found, LookupContext, LookupReader, TableDefinition
from connectors.errors import ConnectorError, DirectionError, ErrorDomain
from connectors.filesystem.options import MONITOR_INTERVAL
from connectors.filesystem.source import FilesystemSource
from connectors.lookup_options import lookup_options
from connectors.whole_table import WholeTable
from planner.ir.types import ChangelogMode


class FilesystemLookup:
    """The files at a path as they are when they are read. Raises OptionError."""

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self._source = FilesystemSource(table)
        self.options = lookup_options(table.options, (CacheKind.FULL,))
        if not self._source.bounded:
            raise DirectionError(
                f"files that are watched ('{MONITOR_INTERVAL}') cannot be looked up",
                option=MONITOR_INTERVAL,
                hint="Leave it out, and say 'lookup.full-cache.periodic-reload.interval'.",
            )
        if self._source.changelog is not ChangelogMode.INSERT_ONLY:
            raise DirectionError("files of changes cannot be looked up", option="format")

    def reader(self, context: LookupContext) -> LookupReader:
        return FilesReader(WholeTable(self._table, self._source, context))


class FilesReader:
    """Reads whole tables only."""

    def __init__(self, table: WholeTable) -> None:
        self._table = table

    def lookup(self, keys: pa.RecordBatch) -> Found:
        raise AssertionError("files are cached whole")

    def load(self) -> pa.RecordBatch:
        try:
            return self._table.load()
        except OSError as problem:
            # A folder that is taken away or put in place while its files are being found.
            raise ConnectorError(
                f"the files of a table cannot be read: {problem}", domain=ErrorDomain.EXTERNAL, retry=True
            ) from problem

    def close(self) -> None:
        self._table.close()
