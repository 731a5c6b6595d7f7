"""Global phase of a window aggregate (or its only phase): merges partials by key and window, fires complete windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import GlobalWindowAggregate, WindowProperty
from planner.ir.types import arrow_schema, to_arrow
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import MIN_WATERMARK_MS, Batch
from runtime.key_groups import hash_columns, key_group
from runtime.operators.accumulators import Accumulator
from runtime.operators.grouping import Reduction, reduce_groups
from runtime.operators.protocol import OUTPUT_ROWS_MAX, FinishSnapshot, OperatorContext
from runtime.operators.window_aggregate_local import RowAggregator
from runtime.operators.window_clock import WindowClock
from runtime.state.memory import MemoryStateBackend, concat_blocks
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedStateBackend, WindowState

Array = Any

STATE_NAME = "window-partials"
LATE_RECORDS = "numLateRecordsDropped"


class GlobalWindowAggregateOperator:
    """Each key group has an event-time clock: the highest watermark it has seen. A partial is late when its window has
    fired by that clock; then it is dropped and its rows are counted. Clocks and count are state, so a window that fired
    before a restore neither fires again nor takes rows."""

    def __init__(self, node: GlobalWindowAggregate, context: OperatorContext) -> None:
        self._node = node
        self._context = context
        self._clock = WindowClock(node.window, node.name)
        self._accumulators = [Accumulator(call) for call in node.aggregates]
        self._rows = None
        if not node.from_partials:
            self._rows = RowAggregator(node.keys, node.aggregates, node.window, self._clock)
        self._key_count = len(node.key_types)
        self._output = arrow_schema(node.output.types)
        self._state_schema = self._make_state_schema()
        self._backend: KeyedStateBackend = MemoryStateBackend(node.uid, context)
        self._state: WindowState
        self._clocks = np.full(context.max_parallelism, MIN_WATERMARK_MS, dtype=np.int64)
        self._late_rows = 0

    @property
    def uid(self) -> str:
        return self._node.uid

    def open(self) -> None:
        """Restore owned key groups, their clocks and the count of late rows. Raises SegmentError."""
        self._state = self._backend.window_state(STATE_NAME, self._state_schema, self._reduce)
        restore = self._context.restore
        if restore is not None:
            self._late_rows = restore.counters.get(LATE_RECORDS, 0)
            for group, clock_ms in restore.clocks.items():
                self._clocks[group] = clock_ms

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        if batch.row_count:
            partials: list[Array] = list(batch.data.columns)
            if self._rows is not None:
                partials = self._rows.reduce(self._rows.single_rows(batch.data))
            self._accept(partials)
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Fires what is due, windows in order of their end, key group by key group, in pieces of at most
        OUTPUT_ROWS_MAX rows. Between two pieces the state holds exactly what has not been emitted."""
        np.maximum(self._clocks, watermark_ms, out=self._clocks)
        for end in self._state.ends():
            if self._clock.fire_instant(end) <= watermark_ms:
                yield from self._fire(end)

    def end(self, drain: bool) -> Iterator[Batch]:
        yield from ()

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        write_segments = self._backend.capture(checkpoint_id)
        owned = range(self._context.key_groups.first, self._context.key_groups.last + 1)
        clocks = {group: int(self._clocks[group]) for group in owned if self._clocks[group] != MIN_WATERMARK_MS}
        counters = {LATE_RECORDS: self._late_rows}

        def finish() -> OperatorSnapshot:
            return OperatorSnapshot(self.uid, segments=write_segments(), clocks=clocks, counters=counters)

        return finish

    def counters(self) -> dict[str, float]:
        return {LATE_RECORDS: self._late_rows, "stateBytes": self._backend.byte_size}

    def close(self) -> None:
        self._backend.close()

    def _make_state_schema(self) -> pa.Schema:
        """Blocks of state: key group, keys, accumulators in their state types."""
        kinds: list[Any] = [to_arrow(t) for t in self._node.key_types]
        kinds += [kind for accumulator in self._accumulators for kind in accumulator.state_types]
        return pa.schema([KEY_GROUP_FIELD, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])

    def _accept(self, partials: list[Array]) -> None:
        """Drop late partials, append the rest to their windows."""
        keys = partials[: self._key_count]
        ends: npt.NDArray[np.int64] = partials[self._key_count].to_numpy()
        groups = self._key_groups(keys, len(ends))
        kept: npt.NDArray[np.intp] | None = None
        if self._clock.fire_instant(int(ends.min())) <= int(self._clocks.max()):
            late = self._clock.fire_instants(ends) <= self._clocks[groups]
            if late.any():
                self._late_rows += int(partials[self._key_count + 1].to_numpy()[late].sum())
                kept = np.flatnonzero(~late)
                if not len(kept):
                    return
        block = self._block(groups, keys, partials[self._key_count + 2 :])
        for end, rows in _rows_by_end(ends, kept):
            # `take` copies: the state never holds on to the memory of an input batch.
            self._state.append(end, block.take(rows))

    def _key_groups(self, keys: Sequence[Array], row_count: int) -> npt.NDArray[np.int16]:
        if not keys:
            # Without keys all rows go to the first subtask, which owns key group 0 at every parallelism.
            return np.zeros(row_count, dtype=np.int16)
        return key_group(hash_columns(keys), self._context.max_parallelism)

    def _block(
        self, groups: npt.NDArray[np.int16], keys: Sequence[Array], accumulator_columns: Sequence[Array]
    ) -> pa.RecordBatch:
        columns: list[Array] = [pa.array(groups), *keys]
        position = 0
        for accumulator in self._accumulators:
            width = len(accumulator.state_types)
            columns += accumulator.to_state(accumulator_columns[position : position + width])
            position += width
        return pa.RecordBatch.from_arrays(columns, schema=self._state_schema)

    def _reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Blocks of one window as one, a row per key."""
        rows = concat_blocks(blocks, self._state_schema)
        groups, keys = rows.column(0), rows.columns[1 : 1 + self._key_count]
        reductions = [r for accumulator in self._accumulators for r in accumulator.reductions]
        values = list(zip(rows.columns[1 + self._key_count :], reductions, strict=True))
        if keys:
            # The key group follows from the key: its minimum is its value.
            merged_keys, merged = reduce_groups(keys, [(groups, Reduction.MIN), *values])
            columns = [merged[0], *merged_keys, *merged[1:]]
        else:
            merged_keys, merged = reduce_groups([groups], values)
            columns = [*merged_keys, *merged]
        return pa.RecordBatch.from_arrays(columns, schema=self._state_schema)

    def _fire(self, end: int) -> Iterator[Batch]:
        merged = self._state.merge(end)
        for first in range(0, merged.num_rows, OUTPUT_ROWS_MAX):
            piece = self._result(end, merged.slice(first, OUTPUT_ROWS_MAX))
            next_row = first + OUTPUT_ROWS_MAX
            self._state.keep_rest(end, merged.slice(next_row) if next_row < merged.num_rows else None)
            yield Batch(piece)
        self._clock.forget(end)

    def _result(self, end: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Output rows: keys, aggregates, window properties."""
        columns: list[Array] = list(rows.columns[1 : 1 + self._key_count])
        position = 1 + self._key_count
        for accumulator in self._accumulators:
            width = len(accumulator.state_types)
            columns.append(accumulator.result(rows.columns[position : position + width]))
            position += width
        for name in self._node.properties:
            kind = self._output.field(len(columns)).type
            value = pa.scalar(self._property_ms(name, end), pa.int64()).cast(pa.timestamp("ms")).cast(kind)
            columns.append(pa.repeat(cast(Any, value), rows.num_rows))
        if not columns:
            return pa.RecordBatch.from_struct_array(cast(Any, pa.array([{}] * rows.num_rows, pa.struct([]))))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)

    def _property_ms(self, name: WindowProperty, end: int) -> int:
        match name:
            case WindowProperty.START:
                return self._clock.start(end)
            case WindowProperty.END:
                return end
            case WindowProperty.TIME:
                return self._clock.window_time(end)


def _rows_by_end(
    ends: npt.NDArray[np.int64], kept: npt.NDArray[np.intp] | None
) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Per distinct window end, ascending: the (kept) rows that belong to it, in order of arrival."""
    rows = np.arange(len(ends)) if kept is None else kept
    own = ends if kept is None else ends[kept]
    first, last = int(own.min()), int(own.max())
    if first == last:
        yield first, rows
        return
    order = np.argsort(own, kind="stable")
    sorted_ends = own[order]
    borders = np.flatnonzero(np.concatenate(([True], sorted_ends[1:] != sorted_ends[:-1], [True])))
    for start, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        yield int(sorted_ends[start]), rows[order[start:stop]]
