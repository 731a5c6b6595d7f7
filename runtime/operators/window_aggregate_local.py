"""Local phase of a window aggregate: pre-aggregates each batch before the exchange and holds nothing across batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import AggregateCall, LocalWindowAggregate
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.elements import MIN_WATERMARK_MS, Batch
from runtime.operators.accumulators import Accumulator, ones
from runtime.operators.grouping import Reduction, SumOverflowError, reduce_groups
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from runtime.operators.stateless import StatelessOperator
from runtime.operators.window_changes import ChangeAggregator
from runtime.operators.window_clock import WindowClock

Array = Any


class RowAggregator:
    """Raw rows to partials. The columns of partials: keys, slice end (BIGINT), row count (BIGINT), accumulators."""

    def __init__(self, keys: Sequence[int], aggregates: Sequence[AggregateCall], clock: WindowClock) -> None:
        self._keys = tuple(keys)
        self.end_column = len(self._keys)
        """Position of the slice end among the columns of partials."""
        self._clock = clock
        self._accumulators = [Accumulator(call) for call in aggregates]
        sums = (Reduction.SUM,)
        self._reductions = sums + tuple(r for a in self._accumulators for r in a.reductions)

    def single_rows(self, batch: Batch, now_ms: int = 0) -> list[Array]:
        """One partial per row; `now_ms` is the time of rows of processing time. Raises NullRowtimeError."""
        rows = batch.data
        count = ones(rows.num_rows)
        columns: list[Array] = [rows.column(i) for i in self._keys]
        columns.append(pa.array(self._clock.slice_ends(rows, now_ms)))
        columns.append(count)
        for accumulator in self._accumulators:
            columns += accumulator.from_rows(rows, count)
        return columns

    def reduce(self, partials: list[Array]) -> list[Array]:
        """Partials with one row per key and slice. Where a sum of decimals does not fit its
        column the partials come back as they are: only the global phase has room to add them."""
        row_count = len(partials[self.end_column])
        if row_count <= 1:
            return partials
        ends = partials[self.end_column].to_numpy()
        one_slice = len(self._keys) > 0 and ends.min() == ends.max()
        # Most batches fall into one slice: then the end need not be compared.
        keys = partials[: self.end_column + (not one_slice)]
        values = partials[self.end_column + 1 :]
        try:
            reduced_keys, reduced = reduce_groups(keys, list(zip(values, self._reductions, strict=True)))
        except SumOverflowError:
            return partials
        if one_slice:
            reduced_keys.append(partials[self.end_column].slice(0, len(reduced[0])))
        return reduced_keys + reduced


class LocalWindowAggregateOperator(StatelessOperator):
    """A row whose last window has fired by the watermark this producer last sent passes as a partial of its own, so
    that the global phase counts, and may keep, each late row. Rows of one slice share their last window: where only
    earlier windows of a slice have fired, its rows are aggregated as ever."""

    def __init__(self, node: LocalWindowAggregate) -> None:
        super().__init__(node.uid)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._clock = WindowClock(node.window, node.name)
        is_retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
        aggregator = ChangeAggregator if is_retracting else RowAggregator
        self._aggregator = aggregator(node.keys, node.aggregates, self._clock)
        self._watermark_ms = MIN_WATERMARK_MS

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises NullRowtimeError."""
        if batch.row_count == 0:
            return
        partials = self._aggregator.single_rows(batch)
        ends = partials[self._aggregator.end_column].to_numpy()
        late = self._late(ends)
        if late is None:
            yield from self._emit(self._aggregator.reduce(partials))
            return
        on_time = pa.array(~late)
        yield from self._emit(self._aggregator.reduce([column.filter(on_time) for column in partials]))
        yield from self._emit([column.filter(pa.array(late)) for column in partials])

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        self._watermark_ms = watermark_ms
        yield from ()

    def _late(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Rows whose last window has fired; None when there are none."""
        if self._watermark_ms < self._clock.fire_instant(self._clock.last_end(int(ends.min()))):
            return None
        late: npt.NDArray[np.bool_] = self._clock.fire_instants(self._clock.last_ends(ends)) <= self._watermark_ms
        return late

    def _emit(self, columns: list[Array]) -> Iterator[Batch]:
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for first in range(0, rows.num_rows, OUTPUT_ROWS_MAX):
            yield Batch(rows.slice(first, OUTPUT_ROWS_MAX))
