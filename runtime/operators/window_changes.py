"""Windows over an input that takes rows back: partials with signs, and values with counts.

A row is counted in the window of its own time column, so what takes it back finds it there, until that window has
fired: then both are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall
from runtime.elements import Batch
from runtime.operators.accumulators_signed import CompensatedSum, SignedAccumulator, reduce_signed
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.grouping import Reduction, SumOverflowError, group_ids, reduce_groups
from runtime.operators.window_clock import WindowClock
from runtime.operators.window_values import Keeping, ValuesKey, WindowValues
from runtime.state.window_blocks import concat_blocks

pc: Any = pyarrow.compute
Array = Any

COUNTS = 2
"""The columns of counts in partials: rows by sign, and changes, which are what is counted when they are late."""


def signs_of(batch: Batch) -> Ints:
    """1 for each row that is added, -1 for each that is taken back."""
    signs = np.ones(batch.row_count, dtype=np.int64)
    if batch.row_kinds is not None:
        kinds = batch.row_kinds.to_numpy()
        signs[(kinds != INSERT) & (kinds != UPDATE_AFTER)] = -1
    return signs


class ChangeAggregator:
    """Changes to partials. The columns of partials: keys, slice end (BIGINT), row count (BIGINT, signed), count of
    changes (BIGINT), accumulators."""

    def __init__(self, keys: Sequence[int], aggregates: Sequence[AggregateCall], clock: WindowClock) -> None:
        self._keys = tuple(keys)
        self._clock = clock
        self._accumulators = [SignedAccumulator(call) for call in aggregates]
        self._compensated = compensated_sums(self._accumulators, COUNTS)

    @property
    def end_column(self) -> int:
        """Position of the slice end among the columns of partials."""
        return len(self._keys)

    def single_rows(self, batch: Batch, now_ms: int = 0) -> list[Array]:
        """One partial per change. Raises NullRowtimeError."""
        rows, signs = batch.data, signs_of(batch)
        columns: list[Array] = [rows.column(i) for i in self._keys]
        columns.append(pa.array(self._clock.slice_ends(rows, now_ms)))
        columns += [pa.array(signs), pa.array(np.ones(len(signs), dtype=np.int64))]
        for accumulator in self._accumulators:
            columns += accumulator.from_rows(rows, signs)
        return columns

    def reduce(self, partials: list[Array]) -> list[Array]:
        """Partials with one row per key and slice; as they are where a sum of decimals does not fit its column: only
        the global phase has room to add them."""
        first = self.end_column + 1
        try:
            keys, sums = reduce_signed(partials[:first], partials[first:], self._compensated)
        except SumOverflowError:
            return partials
        return keys + sums


def compensated_sums(accumulators: Sequence[SignedAccumulator], first: int) -> list[CompensatedSum]:
    """Positions of all compensated sums, when the accumulators' columns begin at `first`."""
    found: list[CompensatedSum] = []
    for accumulator in accumulators:
        found += [CompensatedSum(first + pair.sums, first + pair.rests) for pair in accumulator.compensated]
        first += len(accumulator.wire_types)
    return found


class ChangedValues(WindowValues):
    """The values of one argument and filter over changes, as blocks of (key group, keys, value, count[, seq]).

    Where no function depends on the order, the counts of equal values become one. Otherwise every change is kept, in
    order of arrival: a retraction takes the oldest row with an equal value, which is known only when all are there."""

    def __init__(
        self, key: ValuesKey, keys: Sequence[int], key_types: Sequence[pa.DataType], calls: Sequence[AggregateCall]
    ) -> None:
        super().__init__(key, keys, key_types, calls)
        value = 1 + len(self._keys)
        fields = list(self.schema)
        self.schema = pa.schema([*fields[: value + 1], pa.field("count", pa.int64()), *fields[value + 1 :]])

    def columns(self, batch: Batch, ends: Array, first_seq: int) -> list[Array]:
        """Columns to keep of a batch: keys, slice end, value, count[, seq]."""
        rows = batch.data
        chosen: Array = pa.array(np.flatnonzero(self._taken(rows)))
        columns: list[Array] = [rows.column(i).take(chosen) for i in self._keys]
        columns += [ends.take(chosen), rows.column(self._key.argument).take(chosen)]
        columns.append(pa.array(signs_of(batch)).take(chosen))
        if self.is_ordered:
            columns.append(pa.array(chosen.to_numpy() + first_seq))
        return columns

    def reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Blocks as one; by order of arrival where it matters."""
        rows = concat_blocks(blocks, self.schema)
        if self.is_ordered:
            return self._in_order(rows)
        if rows.num_rows <= 1:
            return rows
        last = rows.num_columns - 1
        counts = (rows.column(last), Reduction.SUM)
        merged, (groups, totals) = reduce_groups(rows.columns[1:last], [(rows.column(0), Reduction.MIN), counts])
        reduced = pa.RecordBatch.from_arrays([groups, *merged, totals], schema=self.schema)
        return reduced.filter(pc.not_equal(totals, 0))

    def present(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of reduced rows those that are there now, one per value of DISTINCT, MIN and MAX."""
        if rows.num_rows == 0:
            return rows
        count = 2 + len(self._keys)
        if not self.is_ordered:
            return rows.filter(pc.greater(rows.column(count), 0))
        ids = group_ids(rows.columns[1:count] if self._keys else [rows.column(1)])
        counts: Ints = rows.column(count).to_numpy()
        order = np.argsort(ids, kind="stable")
        kept = order[_there(ids[order], counts[order], is_distinct=self._key.keeping is Keeping.DISTINCT)]
        return rows.take(np.sort(kept))


def _there(ids: Ints, counts: Ints, *, is_distinct: bool) -> Bools:
    """Which changes, ordered by value and arrival, stand for a value that is there: of DISTINCT the one with which it
    last appeared, otherwise all but the oldest, which the retractions took."""
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    lengths = np.diff(np.append(starts, len(ids)))

    def running(values: Ints) -> Ints:
        totals = np.cumsum(values)
        return totals - np.repeat(totals[starts] - values[starts], lengths)

    if not is_distinct:
        taken = np.repeat(np.add.reduceat(np.maximum(-counts, 0), starts), lengths)
        there: Bools = (counts > 0) & (running(np.maximum(counts, 0)) > taken)
        return there
    totals = running(counts)
    appears = (totals > 0) & (totals - counts <= 0)
    positions = np.where(appears, np.arange(len(ids)), -1)
    last = np.maximum.reduceat(positions, starts)
    found = np.zeros(len(ids), dtype=np.bool_)
    found[last[totals[starts + lengths - 1] > 0]] = True
    return found
