"""The `hashmap` backend: state in this process's memory, as immutable blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.errors import SegmentError, StateTooLargeError
from runtime.state.keyed_table import MemoryKeyedTable
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedTable, Reduce, WindowState, WriteSegments
from runtime.state.row_store import TableShape
from runtime.state.segments import SegmentWriter, read_owned
from runtime.state.table_snapshot import write_pieces

BLOCKS_MAX = 64
"""Blocks a window may pile up before the youngest of them are merged."""

_WINDOW_END_FIELD = pa.field("window_end", pa.int64(), nullable=False)

Blocks = tuple[pa.RecordBatch, ...]


class MemoryStateBackend:
    """States of one operator. `managed_bytes` 0 = no limit."""

    def __init__(self, operator: str, context: OperatorContext) -> None:
        self._operator = operator
        self._managed_bytes = context.managed_bytes
        self._checkpoint_directory = context.checkpoint_directory
        self._owned: KeyGroupRange = context.key_groups
        self._restored: tuple[SegmentHandle, ...] = context.restore.segments if context.restore else ()
        self._writer = SegmentWriter(
            context.checkpoint_directory, context.state_directory, operator, str(context.attempt)
        )
        self._wall_clock_ms = context.wall_clock_ms
        self._states: dict[str, MemoryWindowState] = {}
        self._tables: dict[str, MemoryKeyedTable] = {}

    @property
    def byte_size(self) -> int:
        sizes = [state.byte_size for state in self._states.values()]
        return sum(sizes) + sum(table.byte_size for table in self._tables.values())

    def window_state(self, name: str, schema: pa.Schema, reduce: Reduce) -> WindowState:
        """See KeyedStateBackend. `schema` starts with the key group. Raises SegmentError, StateTooLargeError."""
        assert schema.field(0).equals(KEY_GROUP_FIELD)
        state = MemoryWindowState(self, schema, reduce)
        self._states[name] = state
        for handle in self._restored:
            if handle.state == name:
                for rows in read_owned(self._checkpoint_directory, handle, self._owned):
                    state.restore(rows, handle.path)
        return state

    def keyed_table(
        self, name: str, keys: pa.Schema, values: pa.Schema, *, prefix_length: int = 0, ttl_ms: int = 0
    ) -> KeyedTable:
        """See KeyedStateBackend."""
        shape = TableShape(name, keys, values, prefix_length, ttl_ms)
        table = MemoryKeyedTable(shape, self._wall_clock_ms, self.check_size)
        self._tables[name] = table
        for handle in self._restored:
            if handle.state == name:
                for rows in read_owned(self._checkpoint_directory, handle, self._owned):
                    table.restore(rows, handle.path)
        table.finish_restore()
        return table

    def capture(self, checkpoint_id: int) -> WriteSegments:
        windows = [(name, state, state.capture()) for name, state in self._states.items()]
        tables = [(name, table, table.capture()) for name, table in self._tables.items()]

        def write() -> tuple[SegmentHandle, ...]:
            handles = []
            try:
                for name, state, blocks in windows:
                    rows = state.snapshot_rows(blocks)
                    if rows.num_rows:
                        handles.append(self._writer.write(self._writer.reserve_name(name, checkpoint_id), name, rows))
                for name, _, capture in tables:
                    handles += write_pieces(capture.pieces(), self._writer, name, checkpoint_id)
            finally:
                for _, table, capture in tables:
                    table.release(capture)
            return tuple(handles)

        return write

    def close(self) -> None:
        self._states.clear()
        self._tables.clear()

    def check_size(self) -> None:
        """Compact, then fail, when the states are above their share of managed memory."""
        if not self._managed_bytes or self.byte_size <= self._managed_bytes:
            return
        for state in self._states.values():
            state.compact()
        for table in self._tables.values():
            with table.lock:
                table.store.compact(urgent=True)
        if self.byte_size > self._managed_bytes:
            raise StateTooLargeError(self._operator, self.byte_size, self._managed_bytes)


class MemoryWindowState:
    """Windows as lists of blocks in order of arrival. A window's list is replaced, never changed in place, so a
    captured snapshot stays what it was."""

    def __init__(self, backend: MemoryStateBackend, schema: pa.Schema, reduce: Reduce) -> None:
        self._backend = backend
        self._schema = schema
        self._reduce = reduce
        self._windows: dict[int, Blocks] = {}
        self._bytes_by_window: dict[int, int] = {}
        self._merged: set[int] = set()
        """Windows whose one block is merged and sorted: a slice of a HOP is asked for by each of its windows."""

    @property
    def byte_size(self) -> int:
        return sum(self._bytes_by_window.values())

    @property
    def snapshot_schema(self) -> pa.Schema:
        """Columns of a segment: key group, window end, then the block's other columns."""
        return pa.schema([self._schema.field(0), _WINDOW_END_FIELD, *list(self._schema)[1:]])

    def append(self, window_end: int, block: pa.RecordBatch) -> None:
        blocks = (*self._windows.get(window_end, ()), block)
        if len(blocks) >= BLOCKS_MAX:
            blocks = self._merge_youngest(blocks)
            self._store(window_end, blocks)
        else:
            self._windows[window_end] = blocks
            self._bytes_by_window[window_end] = self._bytes_by_window.get(window_end, 0) + block.nbytes
            self._merged.discard(window_end)
        self._backend.check_size()

    def ends(self) -> list[int]:
        return sorted(self._windows)

    def merge(self, window_end: int) -> pa.RecordBatch:
        if window_end in self._merged:
            return self._windows[window_end][0]
        merged = self._reduce(self._windows[window_end])
        order = np.argsort(merged.column(0).to_numpy(), kind="stable")
        merged = merged.take(order)
        self._store(window_end, (merged,))
        self._merged.add(window_end)
        return merged

    def keep_rest(self, window_end: int, rest: pa.RecordBatch | None) -> None:
        if rest is None:
            self._windows.pop(window_end, None)
            self._bytes_by_window.pop(window_end, None)
            self._merged.discard(window_end)
        else:
            self._store(window_end, (rest,))

    def capture(self) -> dict[int, Blocks]:
        """The windows as of now: references to immutable blocks."""
        return dict(self._windows)

    def snapshot_rows(self, windows: dict[int, Blocks]) -> pa.RecordBatch:
        """Captured windows, each merged, sorted by key group and then by window end. Touches no state: may run in
        another thread, where merging costs less than writing every block would."""
        schema = self.snapshot_schema
        batches: list[pa.RecordBatch] = []
        for end in sorted(windows):
            blocks = windows[end]
            batches.append(_with_end(schema, blocks[0] if len(blocks) == 1 else self._reduce(blocks), end))
        rows = concat_blocks(batches, schema)
        return rows.take(np.argsort(rows.column(0).to_numpy(), kind="stable"))

    def restore(self, rows: pa.RecordBatch, source: str) -> None:
        """Take over rows of a segment."""
        if not rows.schema.equals(self.snapshot_schema):
            raise SegmentError(f"state file {source} has columns {rows.schema}, expected {self.snapshot_schema}")
        ends = rows.column(1).to_numpy()
        blocks = rows.remove_column(1)
        for end in np.unique(ends).tolist():
            self.append(end, blocks.take(np.flatnonzero(ends == end)))

    def compact(self) -> None:
        """Merge every window that has several blocks."""
        for end, blocks in list(self._windows.items()):
            if len(blocks) > 1:
                self._store(end, (self._reduce(blocks),))

    def _store(self, window_end: int, blocks: Blocks) -> None:
        self._windows[window_end] = blocks
        self._bytes_by_window[window_end] = sum(block.nbytes for block in blocks)
        self._merged.discard(window_end)

    def _merge_youngest(self, blocks: Blocks) -> Blocks:
        """Merge the youngest blocks, and older ones while they are at most twice as large as what is merged: each row
        is merged a logarithmic number of times, and a block stands for a stretch
        of arrivals, in order."""
        first = len(blocks) - 1
        row_count = blocks[first].num_rows
        while first > 0 and (blocks[first - 1].num_rows <= 2 * row_count or len(blocks) - first < BLOCKS_MAX // 2):
            first -= 1
            row_count += blocks[first].num_rows
        return (*blocks[:first], self._reduce(blocks[first:]))


def _with_end(schema: pa.Schema, block: pa.RecordBatch, end: int) -> pa.RecordBatch:
    ends = pa.array(np.full(block.num_rows, end, dtype=np.int64))
    return pa.RecordBatch.from_arrays([block.column(0), ends, *block.columns[1:]], schema=schema)


def concat_blocks(blocks: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all rows (an empty one of `schema` when there are none)."""
    if len(blocks) == 1:
        return blocks[0]
    combined = pa.Table.from_batches(blocks, schema).combine_chunks().to_batches()
    if combined:
        return combined[0]
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
