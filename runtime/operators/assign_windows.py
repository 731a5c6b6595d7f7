"""A window table function without aggregation: each row once per window it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import AssignWindows
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.stateless import StatelessOperator
from runtime.operators.window_clock import WindowClock

Milliseconds = npt.NDArray[np.int64]


class AssignWindowsOperator(StatelessOperator):
    """Stateless. The windows of a row follow each other in the order of their starts, then of their ends, with its row
    kind."""

    def __init__(self, node: AssignWindows, context: OperatorContext) -> None:
        super().__init__(node.uid)
        self._node = node
        self._context = context
        self._clock = WindowClock(node.window, node.name)
        self._schema = arrow_schema(node.output.types)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises NullRowtimeError."""
        if batch.row_count == 0:
            return
        now_ms = self._context.wall_clock_ms() if self._clock.is_processing_time else 0
        slice_ends = self._clock.slice_ends(batch.data, now_ms)
        counts = (self._clock.last_ends(slice_ends) - slice_ends) // self._clock.slice_ms + 1
        firsts = np.cumsum(counts) - counts
        for first in range(0, int(firsts[-1] + counts[-1]), OUTPUT_ROWS_MAX):
            numbers = np.arange(first, min(first + OUTPUT_ROWS_MAX, int(firsts[-1] + counts[-1])))
            rows = np.searchsorted(firsts, numbers, side="right") - 1
            ends = slice_ends[rows] + (numbers - firsts[rows]) * self._clock.slice_ms
            yield self._piece(batch, rows, ends)

    def _piece(self, batch: Batch, rows: npt.NDArray[np.intp], ends: Milliseconds) -> Batch:
        times = (self._clock.starts(ends), ends, self._clock.window_times(ends))
        kinds = self._schema.types[-len(times) :]
        columns: list[Any] = [
            pa.array(values).cast(pa.timestamp("ms")).cast(kind) for values, kind in zip(times, kinds, strict=True)
        ]
        chosen = pa.array(rows)
        row_kinds: Any = batch.row_kinds
        return Batch(
            pa.RecordBatch.from_arrays([*batch.data.take(rows).columns, *columns], schema=self._schema),
            None if row_kinds is None else row_kinds.take(chosen),
        )
