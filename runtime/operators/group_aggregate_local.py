"""Local phase of an unbounded aggregate: pre-aggregates each batch before the exchange and holds nothing after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall, AggregateFunction, LocalGroupAggregate, accumulator_types
from planner.ir.types import ChangelogMode, TypeRoot, arrow_schema, to_arrow
from runtime.elements import Batch
from runtime.operators.accumulators import VARIANCES, Accumulator
from runtime.operators.accumulators_running import Changes, Selection, plain_doubles, special_doubles
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER
from runtime.operators.group_aggregate_scan import Ints, Scan, running_doubles
from runtime.operators.grouping import Reduction, SumOverflowError, group_ids, reduce_groups
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from runtime.operators.stateless import StatelessOperator

pc: Any = pyarrow.compute
Array = Any

_APPROXIMATE = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_COUNTS = (AggregateFunction.COUNT, AggregateFunction.COUNT_STAR)


REDUCED_SHARE_MAX = 0.8
"""Where more partials than that are left of the rows of a batch, reducing is work for nothing: keys hardly repeat."""
JUDGED_ROWS_MIN = 256
BATCHES_UNREDUCED = 32
"""So many batches then pass as they are, a partial per row, before one is reduced again to see."""


class LocalGroupAggregateOperator(StatelessOperator):
    """Over inserts partials are reduced by Arrow's hash aggregation. Over retractions every column is a sum of signed
    values; sums of doubles are compensated and leave out, and count, what is not finite. Where a sum of decimals does
    not fit its column each row is a partial of its own: only the global phase has room to add them."""

    def __init__(self, node: LocalGroupAggregate) -> None:
        super().__init__(node.uid)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
        self._accumulators = [] if self._retracting else [Accumulator(call) for call in node.aggregates]
        self._batches_unreduced = 0

    def process(self, batch: Batch) -> Iterator[Batch]:
        if batch.row_count == 0:
            return
        if self._retracting:
            try:
                columns = self._signed(batch, self._group_ids(batch.data))
            except SumOverflowError:
                columns = self._signed(batch, np.arange(batch.row_count))
        else:
            columns = self._inserted(batch.data)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for first in range(0, rows.num_rows, OUTPUT_ROWS_MAX):
            yield Batch(rows.slice(first, OUTPUT_ROWS_MAX))

    def _inserted(self, rows: pa.RecordBatch) -> list[Array]:
        count: Array = pa.array(np.ones(rows.num_rows, dtype=np.int64))
        keys: list[Array] = [rows.column(i) for i in self._node.keys]
        values = [(count, Reduction.SUM)]
        for accumulator in self._accumulators:
            values += zip(accumulator.from_rows(rows, count), accumulator.reductions, strict=True)
        single = keys + [column for column, _ in values]
        if self._batches_unreduced:
            self._batches_unreduced -= 1
            return single
        by = keys or [pa.array(np.zeros(rows.num_rows, dtype=np.int8))]
        try:
            reduced_keys, reduced = reduce_groups(by, values)
        except SumOverflowError:
            return single
        if len(reduced[0]) > REDUCED_SHARE_MAX * rows.num_rows and rows.num_rows >= JUDGED_ROWS_MIN:
            self._batches_unreduced = BATCHES_UNREDUCED
        return (reduced_keys if keys else []) + reduced

    def _group_ids(self, rows: pa.RecordBatch) -> Ints:
        keys: list[Array] = [rows.column(i) for i in self._node.keys]
        return group_ids(keys) if keys else np.zeros(rows.num_rows, dtype=np.int64)

    def _signed(self, batch: Batch, ids: Ints) -> list[Array]:
        rows = batch.data
        keys: list[Array] = [rows.column(i) for i in self._node.keys]
        count = rows.num_rows
        signs = np.ones(count, dtype=np.int64)
        if batch.row_kinds is not None:
            kinds = batch.row_kinds.to_numpy()
            signs[(kinds != INSERT) & (kinds != UPDATE_AFTER)] = -1
        # Counts in this batch alone may go below zero: what a row takes back may have come with an earlier batch.
        scan = Scan(ids, None, np.zeros(int(ids.max()) + 1, dtype=np.int64), every=False)
        scan.weights = signs[scan.order]
        changes = Changes(rows, keys, np.zeros(count, dtype=np.int16), scan)
        first: Any = pa.array(scan.order[scan.group_starts])
        columns = [key.take(first) for key in keys]
        columns.append(pa.array(np.add.reduceat(scan.weights, scan.starts)))
        for call in self._node.aggregates:
            columns += _signed_partials(call, changes)
        order: Any = pa.array(np.argsort(first.to_numpy()))
        return [column.take(order) for column in columns]


def _signed_partials(call: AggregateCall, changes: Changes) -> list[Array]:
    """The columns of `accumulator_types` over a retracting input, a row per group in the order of the scan."""
    starts = changes.scan.starts
    selection = Selection(call.argument, call.filter)
    counts = pa.array(np.add.reduceat(changes.weights(selection), starts))
    if call.function in _COUNTS:
        return [counts]
    argument, kind = call.argument, call.argument_type
    assert argument is not None
    assert kind is not None
    if call.function in VARIANCES:
        (sums, rests), (squares, more) = (_doubles(changes, selection, squared=s) for s in (False, True))
        return [sums, squares, counts, rests, more, *_specials(changes, selection)]
    if kind.root in _APPROXIMATE:
        sums, rests = _doubles(changes, selection, squared=False)
        return [sums, counts, rests, *_specials(changes, selection)]
    wire: Any = to_arrow(accumulator_types(call, retracting=True)[0])
    if kind.root is TypeRoot.DECIMAL:
        return [_decimals(changes, selection, argument, wire), counts]
    totals = np.add.reduceat(changes.integers(argument) * changes.weights(selection), starts)
    return [pa.array(totals.astype(wire.to_pandas_dtype())), counts]


def _doubles(changes: Changes, selection: Selection, *, squared: bool) -> tuple[Array, Array]:
    """Sums of what is finite, and what rounding left out of them."""
    scan = changes.scan
    values, _ = plain_doubles(selection, squared=squared, finite=True)(changes)
    nothing = np.zeros(len(scan.starts))
    sums, rests = running_doubles(scan.starts, scan.lengths, values, nothing, nothing)
    last = scan.group_ends - 1
    return pa.array(sums[last]), pa.array(rests[last])


def _specials(changes: Changes, selection: Selection) -> list[Array]:
    """Counts of NaN, infinity and -infinity."""
    starts: Ints = changes.scan.starts
    tests = (np.isnan, np.isposinf, np.isneginf)
    return [pa.array(np.add.reduceat(special_doubles(selection, test)(changes), starts)) for test in tests]


def _decimals(changes: Changes, selection: Selection, argument: int, wire: Any) -> Array:
    """Signed sums; NULL where there is nothing to add. Raises SumOverflowError: more than 38 digits in one batch."""
    scan = changes.scan
    weights = changes.weights(selection)
    column: Array = changes.rows.column(argument)
    values = column.take(pa.array(scan.order)).cast(pa.decimal128(38, wire.scale))
    signed = pc.if_else(pa.array(weights < 0), pc.negate(values), values)
    signed = pc.if_else(pa.array(weights != 0), signed, pa.scalar(None, signed.type))
    (groups,), (totals,) = reduce_groups([pa.array(scan.positions_of_groups)], [(signed, Reduction.SUM)])
    return totals.take(pa.array(np.argsort(groups.to_numpy())))
