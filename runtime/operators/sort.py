"""ORDER BY: by time as event time passes, or everything at the end of input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from planner.ir.ranks import Sort
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.clocked import ClockedOperator
from runtime.operators.order_keys import OrderKeys
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.time_ordered import TimeOrderedRows
from runtime.operators.window_clock import rowtimes
from runtime.state.protocol import KEY_GROUP_FIELD, WindowState
from runtime.state.window_blocks import concat_blocks

Array = Any

WAITING = "waiting"
SORTED = "sorted"
"""Names of the states: rows that wait, and rows in order that are not all put out."""
_LEADING = 3
"""Columns of the state before the row's own: key group, time, arrival number."""


class SortOperator(ClockedOperator):
    """All rows are in key group 0, as the operator runs in one subtask. With `time` the clock is the last watermark; a
    row that is not after it is late. The rows of one moment are sorted when it has passed, so what is put out is in
    order as a whole."""

    def __init__(self, node: Sort, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._order = OrderKeys(node.order, self._schema.types)
        self._waiting: TimeOrderedRows
        self._sorted: WindowState
        self._sorted_schema: pa.Schema
        self._next_seq = 0

    def open(self) -> None:
        """Restore the rows. Raises SegmentError."""
        columns = pa.schema([field.with_name(f"c{i}") for i, field in enumerate(self._schema)])
        self._waiting = TimeOrderedRows(self._backend, WAITING, columns, self._clocks)
        schema = self._sorted_schema = pa.schema([KEY_GROUP_FIELD, *columns])
        self._sorted = self._backend.window_state(SORTED, schema, lambda blocks: concat_blocks(blocks, schema))
        self._next_seq = self._waiting.next_seq()

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        rows = batch.data
        if rows.num_rows:
            times = np.zeros(rows.num_rows, dtype=np.int64)
            if self._node.time is not None:
                times = rowtimes(rows.column(self._node.time), self._node.name)
                on_time = np.flatnonzero(times > self._clocks[0])
                if len(on_time) < len(times):
                    self._late_rows += len(times) - len(on_time)
                    rows, times = rows.take(on_time), times[on_time]
            numbers = np.arange(self._next_seq, self._next_seq + rows.num_rows)
            self._next_seq += rows.num_rows
            self._waiting.append(np.zeros(rows.num_rows, dtype=np.int16), times, numbers, rows.columns)
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Rows up to the watermark, in order."""
        if self._node.time is not None:
            yield from self._fire(watermark_ms)
            self._pass_time(watermark_ms)

    def end(self, drain: bool) -> Iterator[Batch]:
        """Everything, without a time."""
        if drain and self._node.time is None:
            yield from self._fire(0)

    def _fire(self, time_ms: int) -> Iterator[Batch]:
        """The rest of an earlier firing, then what has become due, moment by moment."""
        for name in self._sorted.ends():
            yield from self._put_out(name, self._sorted.merge(name), is_kept=True)
        while (due := self._waiting.take(time_ms, OUTPUT_ROWS_MAX)) is not None:
            columns = due.rows.columns[_LEADING:]
            codes = self._order.codes(columns, due.rows.num_rows)
            numbers = cast(Any, due.rows.column(_LEADING - 1)).to_numpy()
            ordered = self._block(due.rows.take(np.lexsort((numbers, codes))).columns)
            # From here on these rows are the firing's, not those that wait.
            self._pass_time(due.reached_ms)
            self._waiting.settle(due.reached_ms)
            is_kept = ordered.num_rows > OUTPUT_ROWS_MAX
            if is_kept:
                self._sorted.append(due.reached_ms, ordered)
            yield from self._put_out(due.reached_ms, ordered, is_kept=is_kept)

    def _block(self, columns: Sequence[Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([columns[0], *columns[_LEADING:]], schema=self._sorted_schema)

    def _put_out(self, name: int, ordered: pa.RecordBatch, *, is_kept: bool) -> Iterator[Batch]:
        """Rows in pieces; is_kept: they are in the state, where what is left of them stays."""
        for first in range(0, ordered.num_rows, OUTPUT_ROWS_MAX):
            piece = ordered.slice(first, OUTPUT_ROWS_MAX)
            next_row = first + OUTPUT_ROWS_MAX
            if is_kept:
                self._sorted.keep_rest(name, ordered.slice(next_row) if next_row < ordered.num_rows else None)
            yield Batch(pa.RecordBatch.from_arrays(piece.columns[1:], schema=self._schema))
