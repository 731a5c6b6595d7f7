"""Windows as lists of immutable blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from runtime.operators.protocol import KeyGroupRange
from runtime.state.errors import SegmentError
from runtime.state.protocol import Reduce
from runtime.state.segment_chain import SnapshotPlan, WindowChain
from runtime.state.table_snapshot import Capture, WritePieces

BLOCKS_MAX = 64
"""Blocks a window may pile up before the youngest of them are merged."""

WINDOW_END_FIELD = pa.field("window_end", pa.int64(), nullable=False)


class Block(NamedTuple):
    """Rows that arrived in one epoch (see `segment_chain`), or in several that committed checkpoints hold."""

    epoch: int
    rows: pa.RecordBatch


Blocks = tuple[Block, ...]


class MemoryWindowState:
    """Windows as lists of blocks in order of arrival. A window's list is replaced, never changed in place, so a
    captured snapshot stays what it was. A snapshot of changes is the blocks of new epochs, and the names of windows
    whose earlier blocks no longer count: dropped ones, and those whose rows were replaced."""

    def __init__(self, schema: pa.Schema, reduce: Reduce, check_size: Callable[[], None], chain: WindowChain) -> None:
        self.chain = chain
        self._schema = schema
        self._reduce = reduce
        self._check_size = check_size
        self._windows: dict[int, Blocks] = {}
        self._bytes_by_window: dict[int, int] = {}
        self._merged: set[int] = set()
        """Windows whose one block is merged and sorted: a slice of a HOP is asked for by each of its windows."""
        self._replaced: dict[int, int] = {}
        """Windows whose earlier blocks do not count any more, with the epoch since when."""

    @property
    def byte_size(self) -> int:
        return sum(self._bytes_by_window.values())

    @property
    def row_count(self) -> int:
        """Rows of all blocks."""
        return sum(block.rows.num_rows for blocks in self._windows.values() for block in blocks)

    @property
    def snapshot_schema(self) -> pa.Schema:
        """Columns of a segment: key group, window end, then the block's other columns."""
        return pa.schema([self._schema.field(0), WINDOW_END_FIELD, *list(self._schema)[1:]])

    def append(self, window_end: int, block: pa.RecordBatch) -> None:
        blocks = (*self._windows.get(window_end, ()), Block(self.chain.epoch, block))
        if len(blocks) >= BLOCKS_MAX:
            self._store(window_end, self._merge_youngest(window_end, blocks))
        else:
            self._windows[window_end] = blocks
            self._bytes_by_window[window_end] = self._bytes_by_window.get(window_end, 0) + block.nbytes
            self._merged.discard(window_end)
        self._check_size()

    def ends(self) -> list[int]:
        return sorted(self._windows)

    def merge(self, window_end: int) -> pa.RecordBatch:
        if window_end in self._merged:
            return self._windows[window_end][0].rows
        blocks = self._windows[window_end]
        merged = self._reduce([block.rows for block in blocks])
        merged = merged.take(np.argsort(merged.column(0).to_numpy(), kind="stable"))
        epoch = self.epoch_of(window_end, {block.epoch for block in blocks}, merged.num_rows)
        self._store(window_end, (Block(epoch, merged),))
        self._merged.add(window_end)
        return merged

    def keep_rest(self, window_end: int, rest: pa.RecordBatch | None) -> None:
        if self.chain.is_tracked:
            self._replaced[window_end] = self.chain.epoch
        if rest is None:
            self._windows.pop(window_end, None)
            self._bytes_by_window.pop(window_end, None)
            self._merged.discard(window_end)
        else:
            self._store(window_end, (Block(self.chain.epoch, rest),))

    def capture(self, plan: SnapshotPlan) -> Capture:
        """The windows as of now, those of the plan: references to immutable blocks."""
        self.note_replaced(plan)
        return WindowsCapture(self, dict(self._windows), plan)

    def note_replaced(self, plan: SnapshotPlan) -> None:
        """Let the plan know which windows' earlier blocks do not count."""
        self._replaced = {end: epoch for end, epoch in self._replaced.items() if epoch > self.chain.floor}
        self._replaced.update(dict.fromkeys(plan.renewed.intersection(self.ends()), plan.epoch))
        if plan.is_delta:
            plan.replaced = {end: epoch for end, epoch in self._replaced.items() if epoch > plan.cut}

    def snapshot_rows(self, window_end: int, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Captured blocks of a window, merged, as a segment has them. Touches no state: may run in another thread,
        where merging costs less than writing every block would."""
        return _with_end(self.snapshot_schema, blocks[0] if len(blocks) == 1 else self._reduce(blocks), window_end)

    def restore(self, rows: pa.RecordBatch, source: str) -> None:
        """Take over rows of a segment."""
        if not rows.schema.equals(self.snapshot_schema):
            raise SegmentError(f"state file {source} has columns {rows.schema}, expected {self.snapshot_schema}")
        ends = rows.column(1).to_numpy()
        blocks = rows.remove_column(1)
        for end in np.unique(ends).tolist():
            self.append(end, blocks.take(np.flatnonzero(ends == end)))

    def note_removed(self, window_ends: Iterable[int]) -> None:
        """A file that is restored says that what files before it hold of these windows does not count."""
        self._replaced.update(dict.fromkeys(window_ends, self.chain.epoch))

    def compact(self) -> None:
        """Merge every window that has several blocks."""
        for end, blocks in list(self._windows.items()):
            if len(blocks) > 1:
                self._store(end, self.merged_runs(blocks))

    def merged_runs(self, blocks: Blocks) -> Blocks:
        """One block for those of each epoch, or of all epochs between two cuts that committed checkpoints hold."""
        runs: list[list[Block]] = []
        for block in blocks:
            if runs and self._level(runs[-1][-1]) == self._level(block):
                runs[-1].append(block)
            else:
                runs.append([block])
        return tuple(self._merge_run(run) for run in runs)

    def _level(self, block: Block) -> int:
        """Blocks of one level may be merged: a snapshot takes all of them, or none."""
        return self.chain.level(block.epoch)

    def epoch_of(self, window_end: int, epochs: set[int], row_count: int) -> int:
        """Epoch of all blocks of a window, which are of these epochs, merged into one of so many rows."""
        epoch = self.chain.joined(epochs, row_count)
        if epoch is None:
            epoch = self._replaced[window_end] = self.chain.epoch
        return epoch

    def _merge_run(self, run: Sequence[Block]) -> Block:
        if len(run) == 1:
            return run[0]
        return Block(self._level(run[-1]), self._reduce([block.rows for block in run]))

    def _store(self, window_end: int, blocks: Blocks) -> None:
        self._windows[window_end] = blocks
        self._bytes_by_window[window_end] = sum(block.rows.nbytes for block in blocks)
        self._merged.discard(window_end)

    def _merge_youngest(self, window_end: int, blocks: Blocks) -> Blocks:
        """Merge the youngest blocks, and older ones while they are at most twice as large as what is merged: each row
        is merged a logarithmic number of times, and a block stands for a stretch of arrivals, in order."""
        first = len(blocks) - 1
        level = self._level(blocks[first])
        row_count = blocks[first].rows.num_rows
        while first > 0 and self._level(blocks[first - 1]) == level:
            older = blocks[first - 1].rows.num_rows
            if older > 2 * row_count and len(blocks) - first >= BLOCKS_MAX // 2:
                break
            first -= 1
            row_count += older
        blocks = (*blocks[:first], self._merge_run(blocks[first:]))
        if len(blocks) > BLOCKS_MAX // 2 + 1:
            blocks = self.merged_runs(blocks)
        if len(blocks) > BLOCKS_MAX // 2 + 1:
            # So many snapshots without a committed checkpoint, or files of so many old subtasks.
            rows = self._reduce([block.rows for block in blocks])
            blocks = (Block(self.epoch_of(window_end, {block.epoch for block in blocks}, rows.num_rows), rows),)
        return blocks


class WindowsCapture:
    """Windows as they were, in order of their end."""

    def __init__(self, state: MemoryWindowState, windows: dict[int, Blocks], plan: SnapshotPlan) -> None:
        self._state = state
        self._windows = windows
        self._plan = plan

    def write_early(self, write: WritePieces) -> None:
        """Nothing piles up: blocks are immutable."""

    def logged(self) -> Iterator[pa.RecordBatch]:
        yield from ()

    def pieces(self) -> Iterator[pa.RecordBatch]:
        for end in sorted(self._windows):
            cut = since(self._plan, end)
            blocks = [block.rows for block in self._windows[end] if block.epoch > cut]
            if blocks:
                yield self._state.snapshot_rows(end, blocks)

    def close(self) -> None:
        self._windows = {}


def since(plan: SnapshotPlan, window_end: int) -> int:
    """Blocks of a window that belong to later epochs are in the plan's snapshot."""
    return -1 if window_end in plan.replaced or not plan.is_delta else plan.cut


def removal_rows(ends: Sequence[int], owned: KeyGroupRange) -> pa.RecordBatch:
    """Names windows whose earlier rows are gone: one row per window and key group."""
    groups = np.arange(owned.first, owned.last + 1, dtype=np.int16)
    columns = [pa.array(np.repeat(groups, len(ends))), pa.array(np.tile(np.array(ends, np.int64), len(groups)))]
    return pa.RecordBatch.from_arrays(columns, names=["key_group", WINDOW_END_FIELD.name])


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
