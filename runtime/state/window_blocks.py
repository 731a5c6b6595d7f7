"""Windows as lists of immutable blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from runtime.state.errors import SegmentError
from runtime.state.protocol import Reduce
from runtime.state.table_snapshot import Capture, WritePieces

BLOCKS_MAX = 64
"""Blocks a window may pile up before the youngest of them are merged."""

_WINDOW_END_FIELD = pa.field("window_end", pa.int64(), nullable=False)

Blocks = tuple[pa.RecordBatch, ...]


class MemoryWindowState:
    """Windows as lists of blocks in order of arrival. A window's list is replaced, never changed in place, so a
    captured snapshot stays what it was."""

    def __init__(self, schema: pa.Schema, reduce: Reduce, check_size: Callable[[], None]) -> None:
        self._schema = schema
        self._reduce = reduce
        self._check_size = check_size
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
        self._check_size()

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

    def capture(self) -> Capture:
        """The windows as of now: references to immutable blocks."""
        return WindowsCapture(self, dict(self._windows))

    def snapshot_rows(self, window_end: int, blocks: Blocks) -> pa.RecordBatch:
        """A captured window, merged, as a segment has it. Touches no state: may run in another thread, where merging
        costs less than writing every block would."""
        return _with_end(self.snapshot_schema, blocks[0] if len(blocks) == 1 else self._reduce(blocks), window_end)

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


class WindowsCapture:
    """Windows as they were, in order of their end."""

    def __init__(self, state: MemoryWindowState, windows: dict[int, Blocks]) -> None:
        self._state = state
        self._windows = windows

    def write_early(self, write: WritePieces) -> None:
        """Nothing piles up: blocks are immutable."""

    def pieces(self) -> Iterator[pa.RecordBatch]:
        for end in sorted(self._windows):
            yield self._state.snapshot_rows(end, self._windows[end])

    def close(self) -> None:
        self._windows = {}


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
