"""All rows of a bounded table, read through its own source: what a FULL cache of it holds."""

from __future__ import annotations

import threading

import pyarrow as pa

from connectors.api import LookupContext, ReaderContext, SourceConnector, SourceReader, SplitState, TableDefinition
from connectors.arrow import concat_batches
from connectors.errors import ConnectorError, ErrorDomain
from planner.ir.types import arrow_schema

_POLL_MS = 100


class WholeTable:
    """Reads a bounded source of appended rows anew at each `load`."""

    def __init__(self, table: TableDefinition, source: SourceConnector, context: LookupContext) -> None:
        wanted = (*context.columns, *context.keys)
        self._schema = arrow_schema(tuple(table.columns[i].type for i in wanted))
        self._columns = tuple(sorted(set(wanted)))
        self._order = [self._columns.index(i) for i in wanted]
        self._source = source
        self._context = context
        self._closed = threading.Event()

    def load(self) -> pa.RecordBatch:
        """Raises ConnectorError."""
        enumerator = self._source.enumerator()
        try:
            splits = enumerator.discover(frozenset())
        finally:
            enumerator.close()
        reader = self._source.reader(
            ReaderContext(
                subtask_index=0,
                parallelism=1,
                scan_columns=self._columns,
                metadata_columns=(),
                local_time_zone=self._context.local_time_zone,
            )
        )
        try:
            reader.add_splits([SplitState(split) for split in splits])
            batches = self._read(reader, len(splits))
        finally:
            reader.close()
        if not batches:
            return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in self._schema.types], schema=self._schema)
        whole = concat_batches(batches, batches[0].schema)
        return pa.RecordBatch.from_arrays([whole.column(i) for i in self._order], schema=self._schema)

    def _read(self, reader: SourceReader, split_count: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        while split_count:
            if self._closed.is_set():
                raise ConnectorError("the table was closed", domain=ErrorDomain.INTERNAL, retry=True)
            for read in reader.poll(_POLL_MS):
                split_count -= read.done
                batches.append(read.batch)
        return batches

    def close(self) -> None:
        self._closed.set()
