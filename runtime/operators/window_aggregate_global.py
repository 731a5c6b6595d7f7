"""Global phase of a window aggregate (or its only phase): merges partials by key and slice, fires complete windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import GlobalWindowAggregate, WindowProperty
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.clocked import ClockedOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.window_aggregate_local import RowAggregator
from runtime.operators.window_aggregation import WindowAggregation
from runtime.operators.window_changes import ChangeAggregator
from runtime.operators.window_clock import WindowClock
from runtime.operators.window_rows import append_by_end
from runtime.state.protocol import Reduce, WindowState
from runtime.state.window_blocks import concat_blocks

Array = Any
Fired = tuple[int, pa.RecordBatch]
"""A window end, and the results of its keys."""

PARTIALS = "window-partials"
VALUES = "window-values"
FIRED = "window-results"
"""Names of the states: partials by slice, values by slice, results of a fired window that are not all put out."""


class GlobalWindowAggregateOperator(ClockedOperator):
    """A partial is late when the last window of its slice has fired by the clock of its key group (in processing time
    the last time of firing); then it is dropped and its rows are counted. Before that it counts in the windows that
    have not fired."""

    def __init__(self, node: GlobalWindowAggregate, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._clock = WindowClock(node.window, node.name)
        self._aggregation = WindowAggregation(node)
        mergeable = self._aggregation.mergeable
        aggregator = ChangeAggregator if self._aggregation.is_retracting else RowAggregator
        self._rows = None if node.from_partials else aggregator(node.keys, mergeable, self._clock)
        self._key_count = len(node.key_types)
        self._output = arrow_schema(node.output.types)
        self._partials: WindowState
        self._values: list[WindowState]
        self._fired: WindowState
        self._next_seq = 0

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError."""
        aggregation = self._aggregation
        self._partials = self._backend.window_state(PARTIALS, aggregation.schema, aggregation.reduce)
        self._values = [
            self._backend.window_state(f"{VALUES}-{i}", values.schema, values.reduce)
            for i, values in enumerate(aggregation.values)
        ]
        schema = aggregation.result_schema
        self._fired = self._backend.window_state(FIRED, schema, lambda blocks: concat_blocks(blocks, schema))
        for values, state in zip(aggregation.values, self._values, strict=True):
            for end in state.ends() if values.is_ordered else ():
                self._next_seq = max(self._next_seq, values.seq_after(state.merge(end)))

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        if batch.row_count == 0:
            return
        if self._rows is None:
            self._accept(batch.data.columns)
        else:
            partials = self._rows.single_rows(batch, self._now_ms())
            self._accept_values(batch, partials[self._key_count])
            self._accept(self._rows.reduce(partials))
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Fires what is due, windows in order of their end, key group by key group, in pieces of at most
        OUTPUT_ROWS_MAX rows. Between two pieces the state holds exactly what has not been emitted."""
        if not self._clock.is_processing_time:
            yield from self._fire_due(watermark_ms)

    def timer_ms(self) -> int | None:
        """A window of processing time fires when its last millisecond is over."""
        if not self._clock.is_processing_time:
            return None
        due = self._fired.ends()[:1] or self._partials.ends()[:1]
        if not due:
            return None
        if self._clock.shares_slices and not self._fired.ends():
            due = [self._clock.first_unfired(due[0], int(self._clocks[self._groups_owned].min()))]
        return self._clock.fire_instant(due[0]) + 1

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        yield from self._fire_due(now_ms - 1)

    def _now_ms(self) -> int:
        """The time of rows of processing time: the wall clock, but never back into what has fired."""
        if not self._clock.is_processing_time:
            return 0
        return max(self._context.wall_clock_ms(), int(self._clocks[self._groups_owned].max()) + 1)

    def _accept(self, partials: Sequence[Array]) -> None:
        """Drop late partials, append the rest to their slices."""
        keys = partials[: self._key_count]
        ends: npt.NDArray[np.int64] = partials[self._key_count].to_numpy()
        groups = self._key_groups(keys, len(ends))
        late = self._late(ends, groups)
        kept: npt.NDArray[np.intp] | None = None
        if late is not None:
            self._late_rows += int(partials[self._aggregation.late_column].to_numpy()[late].sum())
            kept = np.flatnonzero(~late)
        block = self._aggregation.block(groups, partials)
        append_by_end(self._partials, block, ends, kept)

    def _accept_values(self, batch: Batch, ends: Array) -> None:
        """The values of rows that are not late, to their slices."""
        for values, state in zip(self._aggregation.values, self._values, strict=True):
            columns = values.columns(batch, ends, self._next_seq)
            own_ends: npt.NDArray[np.int64] = columns.pop(self._key_count).to_numpy()
            if len(own_ends):
                groups = self._key_groups(columns[: self._key_count], len(own_ends))
                late = self._late(own_ends, groups)
                block = pa.RecordBatch.from_arrays([pa.array(groups), *columns], schema=values.schema)
                append_by_end(state, block, own_ends, None if late is None else np.flatnonzero(~late))
        self._next_seq += batch.row_count

    def _late(self, ends: npt.NDArray[np.int64], groups: npt.NDArray[np.int16]) -> npt.NDArray[np.bool_] | None:
        """Rows whose last window has fired; None when there are none. In processing time no row is late."""
        clock = self._clock
        earliest = clock.fire_instant(clock.last_end(int(ends.min())))
        if clock.is_processing_time or earliest > int(self._clocks.max()):
            return None
        late: npt.NDArray[np.bool_] = clock.fire_instants(clock.last_ends(ends)) <= self._clocks[groups]
        return late if late.any() else None

    def _fire_due(self, instant_ms: int) -> Iterator[Batch]:
        """Every window whose fire instant is reached, the rest of an earlier firing first."""
        for end in self._fired.ends():
            yield from self._put_out(end, self._fired.merge(end), is_kept=True)
        if self._clock.shares_slices:
            windows = self._fire_shared(instant_ms)
        else:
            self._pass_time(instant_ms)
            windows = self._fire_single(instant_ms)
        for end, results in windows:
            is_kept = results.num_rows > OUTPUT_ROWS_MAX
            if is_kept:
                self._fired.append(end, results)
            yield from self._put_out(end, results, is_kept=is_kept)
        self._pass_time(instant_ms)

    def _fire_single(self, instant_ms: int) -> Iterator[Fired]:
        """Windows of one slice, which goes with them."""
        for end in self._partials.ends():
            if self._clock.fire_instant(end) <= instant_ms:
                partials = self._partials.merge(end)
                values = [state.merge(end) if end in state.ends() else None for state in self._values]
                for state in (self._partials, *self._values):
                    state.keep_rest(end, None)
                yield end, self._aggregation.results(partials, values)

    def _fire_shared(self, instant_ms: int) -> Iterator[Fired]:
        """Windows made of slices, which stay until the last window they belong to. After a restore at another
        parallelism a window may have fired for some key groups and not for others."""
        clocks, clock = self._clocks[self._groups_owned], self._clock
        ends = self._partials.ends()
        end = clock.first_unfired(ends[0], int(clocks.min())) if ends else 0
        moment: list[Fired] = []
        while ends and clock.fire_instant(end) <= instant_ms:
            if ends[0] > end:
                end = ends[0]
                continue
            fire_instant = clock.fire_instant(end)
            partials = self._merged(self._partials, self._aggregation.reduce, end)
            values = [
                self._merged(state, values.reduce, end)
                for state, values in zip(self._values, self._aggregation.values, strict=True)
            ]
            self._drop_slices(end)
            if partials is not None:
                results = self._aggregation.results(partials, values)
                if int(clocks.max()) >= fire_instant:
                    due = self._clocks[results.column(0).to_numpy()] < fire_instant
                    results = results.filter(pa.array(due))
                if results.num_rows:
                    moment.append((end, results))
            end += clock.slice_ms
            ends = self._partials.ends()
            # Where local time jumps forward, several windows fire at one moment: the clock passes it behind the last.
            if moment and not (ends and clock.fire_instant(max(end, ends[0])) == fire_instant):
                self._pass_time(fire_instant)
                yield from self._held(moment)
                moment = []

    def _held(self, windows: list[Fired]) -> Iterator[Fired]:
        """Windows of one moment; those that wait for their turn are state."""
        for end, results in windows[1:]:
            self._fired.append(end, results)
        for position, (end, results) in enumerate(windows):
            if position:
                self._fired.keep_rest(end, None)
            yield end, results

    def _merged(self, state: WindowState, reduce: Reduce, end: int) -> pa.RecordBatch | None:
        """The rows of all slices of a window, one per key; None when there are none. Where every window holds the one
        before it, they become one slice."""
        start = self._clock.start(end)
        slices = [slice_end for slice_end in state.ends() if start < slice_end <= end]
        if not slices:
            return None
        merged = [state.merge(slice_end) for slice_end in slices]
        if len(merged) == 1:
            return merged[0]
        # As each slice is: by key group.
        rows = reduce(merged)
        rows = rows.take(np.argsort(rows.column(0).to_numpy(), kind="stable"))
        if self._clock.keeps_merged and end < self._clock.last_end(end):
            for slice_end in slices:
                state.keep_rest(slice_end, None)
            state.append(end, rows)
        return rows

    def _drop_slices(self, end: int) -> None:
        """The slices that no window after the one that ends at `end` needs."""
        for state in (self._partials, *self._values):
            for slice_end in state.ends():
                if self._clock.last_end(slice_end) > end:
                    break
                state.keep_rest(slice_end, None)

    def _put_out(self, end: int, results: pa.RecordBatch, *, is_kept: bool) -> Iterator[Batch]:
        """Results in pieces; is_kept: they are in the state, where what is left of them stays."""
        for first in range(0, results.num_rows, OUTPUT_ROWS_MAX):
            piece = self._finished(end, results.slice(first, OUTPUT_ROWS_MAX))
            next_row = first + OUTPUT_ROWS_MAX
            if is_kept:
                self._fired.keep_rest(end, results.slice(next_row) if next_row < results.num_rows else None)
            yield Batch(piece)

    def _finished(self, end: int, results: pa.RecordBatch) -> pa.RecordBatch:
        """Output rows: keys, aggregates, window properties."""
        columns: list[Array] = list(results.columns[1:])
        for name in self._node.properties:
            kind = self._output.field(len(columns)).type
            value = pa.scalar(self._property_ms(name, end), pa.int64()).cast(pa.timestamp("ms")).cast(kind)
            columns.append(pa.repeat(cast(Any, value), results.num_rows))
        if not columns:
            return pa.RecordBatch.from_struct_array(cast(Any, pa.array([{}] * results.num_rows, pa.struct([]))))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)

    def _property_ms(self, name: WindowProperty, end: int) -> int:
        match name:
            case WindowProperty.START:
                return self._clock.start(end)
            case WindowProperty.END:
                return end
            case WindowProperty.TIME:
                return self._clock.window_time(end)
