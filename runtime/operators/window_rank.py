"""Top-N of each window: rows wait in their window until it is complete, as few as may still rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.ranks import WindowRank
from planner.ir.types import arrow_schema
from planner.ir.windows import AttachedWindow
from runtime.elements import Batch
from runtime.operators.clocked import ClockedOperator
from runtime.operators.grouping import group_ids
from runtime.operators.order_keys import OrderKeys
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.rank_entries import ranks_of
from runtime.operators.rank_rows import PartitionKeys
from runtime.operators.window_clock import WindowClock
from runtime.operators.window_rows import append_by_end
from runtime.state.protocol import KEY_GROUP_FIELD, WindowState
from runtime.state.window_blocks import concat_blocks

Array = Any

ROWS = "window-rows"
FIRED = "window-ranked"
"""Names of the states: rows by window, and the ranked rows of a fired window that are not all put out."""


class WindowRankOperator(ClockedOperator):
    """A block of rows holds, of each partition, those that rank up to `last` among themselves, so merging blocks drops
    what other blocks have pushed out. Clocks of key groups and late rows as in the window aggregate."""

    def __init__(self, node: WindowRank, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._row_schema = pa.schema(list(self._schema)[: len(self._schema) - node.puts_out_rank])
        self._keys = PartitionKeys(self._row_schema, node.keys, context.max_parallelism)
        self._order = OrderKeys(node.order, self._row_schema.types)
        self._clock = WindowClock(AttachedWindow(node.end, node.window), node.name)
        seq = pa.field("seq", pa.int64(), nullable=False)
        columns = [field.with_name(f"c{i}") for i, field in enumerate(self._row_schema)]
        self._block_schema = pa.schema([KEY_GROUP_FIELD, seq, *columns])
        self._fired_schema = pa.schema([KEY_GROUP_FIELD, pa.field("rank", pa.int64(), nullable=False), *columns])
        self._rows: WindowState
        self._fired: WindowState
        self._next_seq = 0

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError."""
        self._rows = self._backend.window_state(ROWS, self._block_schema, self._reduce)
        schema = self._fired_schema
        self._fired = self._backend.window_state(FIRED, schema, lambda blocks: concat_blocks(blocks, schema))
        for end in self._rows.ends():
            numbers = cast(Any, self._rows.merge(end).column(1)).to_numpy()
            self._next_seq = max(self._next_seq, int(numbers.max(initial=-1)) + 1)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        rows = batch.data
        if rows.num_rows and self._node.first <= self._node.last:
            ends = self._clock.slice_ends(rows, 0)
            groups = self._keys.key_groups(self._keys.of(rows))
            kept = self._on_time(ends, groups)
            numbers = np.arange(self._next_seq, self._next_seq + rows.num_rows)
            self._next_seq += rows.num_rows
            columns: list[Array] = [pa.array(groups), pa.array(numbers), *rows.columns]
            block = pa.RecordBatch.from_arrays(columns, schema=self._block_schema)
            chosen = self._reaching(block, ends, kept)
            append_by_end(self._rows, block, ends, chosen)
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Fires what is due, windows in order of their end, in pieces."""
        if not self._clock.is_processing_time:
            yield from self._fire_due(watermark_ms)

    def timer_ms(self) -> int | None:
        """A window of processing time fires when its last millisecond is over."""
        if not self._clock.is_processing_time:
            return None
        due = self._fired.ends()[:1] or self._rows.ends()[:1]
        return self._clock.fire_instant(due[0]) + 1 if due else None

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        yield from self._fire_due(now_ms - 1)

    def _on_time(self, ends: npt.NDArray[np.int64], groups: npt.NDArray[np.int16]) -> npt.NDArray[np.intp] | None:
        """The rows whose window has not fired; None = all. What its key group's clock has passed is late and counted,
        in processing time, too: there a row carries the window of the moment at which it was made."""
        if self._clock.fire_instant(int(ends.min())) > int(self._clocks.max()):
            return None
        late = self._clock.fire_instants(ends) <= self._clocks[groups]
        self._late_rows += int(np.count_nonzero(late))
        return np.flatnonzero(~late)

    def _reaching(
        self, block: pa.RecordBatch, ends: npt.NDArray[np.int64], kept: npt.NDArray[np.intp] | None
    ) -> npt.NDArray[np.intp]:
        """The rows that rank up to `last` within the block, in order of arrival."""
        rows = np.arange(block.num_rows) if kept is None else kept
        part = block if kept is None else block.take(kept)
        if not len(rows):
            return rows
        order, ranks = self._ranking(part, ends[rows])
        return np.sort(rows[order[ranks <= self._node.last]])

    def _reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Of blocks of one window; also in other threads."""
        rows = concat_blocks(blocks, self._block_schema)
        order, ranks = self._ranking(rows, None)
        return rows.take(order[ranks <= self._node.last])

    def _ranking(
        self, block: pa.RecordBatch, ends: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Rows in order of partition (with `ends`: of each window), sort keys and arrival; and the ranks of those."""
        columns: list[Array] = list(block.columns[2:])
        numbers = cast(Any, block.column(1)).to_numpy()
        keys = [columns[i] for i in self._node.keys]
        if ends is not None:
            keys.append(pa.array(ends))
        partitions = group_ids(keys) if keys else np.zeros(block.num_rows, dtype=np.int64)
        codes = self._order.codes(columns, block.num_rows)
        order = np.lexsort((-numbers if self._node.latest_of_ties else numbers, codes, partitions))
        return order, ranks_of(partitions[order], codes[order], self._node.function)

    def _fire_due(self, instant_ms: int) -> Iterator[Batch]:
        """Every window whose fire instant is reached, the rest of an earlier firing first."""
        for end in self._fired.ends():
            yield from self._put_out(end, self._fired.merge(end), is_kept=True)
        self._pass_time(instant_ms)
        for end in self._rows.ends():
            if self._clock.fire_instant(end) <= instant_ms:
                rows = self._rows.merge(end)
                self._rows.keep_rest(end, None)
                ranked = self._ranked(rows)
                is_kept = ranked.num_rows > OUTPUT_ROWS_MAX
                if is_kept:
                    self._fired.append(end, ranked)
                yield from self._put_out(end, ranked, is_kept=is_kept)

    def _ranked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to be shown, with their rank: key group by key group, so that a part of a restored firing stays
        what it was."""
        order, ranks = self._ranking(rows, None)
        shown = (ranks >= self._node.first) & (ranks <= self._node.last)
        order, ranks = order[shown], ranks[shown]
        groups = cast(Any, rows.column(0)).to_numpy()[order]
        by_group = np.argsort(groups, kind="stable")
        taken = rows.take(order[by_group])
        columns: list[Array] = [taken.column(0), pa.array(ranks[by_group]), *taken.columns[2:]]
        return pa.RecordBatch.from_arrays(columns, schema=self._fired_schema)

    def _put_out(self, end: int, ranked: pa.RecordBatch, *, is_kept: bool) -> Iterator[Batch]:
        """Ranked rows in pieces; is_kept: they are in the state, where what is left of them stays."""
        for first in range(0, ranked.num_rows, OUTPUT_ROWS_MAX):
            piece = ranked.slice(first, OUTPUT_ROWS_MAX)
            next_row = first + OUTPUT_ROWS_MAX
            if is_kept:
                self._fired.keep_rest(end, ranked.slice(next_row) if next_row < ranked.num_rows else None)
            columns: list[Array] = list(piece.columns[2:])
            if self._node.puts_out_rank:
                columns.append(piece.column(1))
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
