"""The `filesystem` connector: files, read and written in any format of messages or as Parquet."""

from __future__ import annotations

from connectors.api import TableDefinition
from connectors.filesystem.lookup import FilesystemLookup
from connectors.filesystem.sink import FilesystemSink
from connectors.filesystem.source import FilesystemSource


class FilesystemConnector:
    name = "filesystem"

    def source(self, table: TableDefinition) -> FilesystemSource:
        return FilesystemSource(table)

    def sink(self, table: TableDefinition) -> FilesystemSink:
        return FilesystemSink(table)

    def lookup(self, table: TableDefinition) -> FilesystemLookup:
        return FilesystemLookup(table)


CONNECTOR = FilesystemConnector()
