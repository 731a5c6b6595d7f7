"""Aggregate functions over rows that may be taken back, as columns: each row counts with its sign, 1 or -1.

The columns of a call are those of `accumulator_types` over a retracting input. All are sums, so a retraction is an
addition of the opposite sign. Sums of doubles leave out what is not finite, which is counted apart, and carry along
what rounding left out of them: a sum out of which a value was taken is what it would be without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall, AggregateFunction, accumulator_types
from planner.ir.types import TypeRoot, to_arrow
from runtime.operators import accumulators_results as results
from runtime.operators import decimal_sums
from runtime.operators.accumulators import VARIANCES, Accumulator, variance
from runtime.operators.group_aggregate_scan import Bools, Doubles, Ints, running_doubles
from runtime.operators.grouping import Reduction, group_ids, reduce_groups

pc: Any = pyarrow.compute
Array = Any

_APPROXIMATE = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_COUNTS = (AggregateFunction.COUNT, AggregateFunction.COUNT_STAR)
_SPECIALS: tuple[Callable[[Doubles], Bools], ...] = (np.isnan, np.isposinf, np.isneginf)


class CompensatedSum(msgspec.Struct, frozen=True):
    """Positions of a column of doubles and of what rounding left out of it."""

    sums: int
    rests: int


class SignedAccumulator:
    """One mergeable call over an input that takes rows back."""

    def __init__(self, call: AggregateCall) -> None:
        self._call = call
        self._result_type: Any = to_arrow(call.type)
        kind = call.argument_type
        self._is_variance = call.function in VARIANCES
        self._is_approximate = self._is_variance or (kind is not None and kind.root in _APPROXIMATE)
        self.wire_types: tuple[Any, ...] = tuple(to_arrow(t) for t in accumulator_types(call, retracting=True))
        wide = call.function not in _COUNTS and not self._is_approximate and pa.types.is_decimal(self.wire_types[0])
        first = decimal_sums.wide_type(self.wire_types[0].scale) if wide else self.wire_types[0]
        self.state_types: tuple[Any, ...] = (first, *self.wire_types[1:])
        """Arrow types of the columns in state: sums of decimals have room there."""
        compensated: tuple[CompensatedSum, ...] = ()
        if self._is_variance:
            compensated = (CompensatedSum(0, 3), CompensatedSum(1, 4))
        elif self._is_approximate and call.function not in _COUNTS:
            compensated = (CompensatedSum(0, 2),)
        self.compensated = compensated

    def from_rows(self, rows: pa.RecordBatch, signs: Ints) -> list[Array]:
        """One partial per row."""
        call = self._call
        weights = signs
        if call.filter is not None:
            weights = weights * pc.fill_null(rows.column(call.filter), False).to_numpy(zero_copy_only=False)
        if call.argument is None:
            return [pa.array(weights)]
        values: Any = rows.column(call.argument)
        if values.null_count:
            weights = weights * values.is_valid().to_numpy(zero_copy_only=False)
        counts = pa.array(weights)
        if call.function in _COUNTS:
            return [counts]
        if self._is_approximate:
            return self._doubles(values, weights)
        wire = self.wire_types[0]
        if pa.types.is_decimal(wire):
            exact = values.cast(wire)
            signed = pc.if_else(pa.array(weights < 0), pc.negate(exact), exact)
            return [pc.if_else(pa.array(weights != 0), signed, pa.scalar(None, wire)), counts]
        integers = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False).astype(np.int64)
        return [pa.array((integers * weights).astype(wire.to_pandas_dtype())), counts]

    def to_state(self, partials: Sequence[Array]) -> list[Array]:
        """Partials as received, in the types of the state."""
        return [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(partials, self.state_types, strict=True)
        ]

    def result(self, partials: Sequence[Array]) -> Array:
        """The aggregate's value per group, from partials in the types of the state."""
        call = self._call
        if call.function in _COUNTS:
            return partials[0]
        if self._is_variance:
            specials = _numbers(partials[5:])
            sums, squares = (_total(partials[i], partials[i + 3], specials, squared=i == 1) for i in (0, 1))
            return variance(call, sums, squares, _number(partials[2]))
        counts = _number(partials[1])
        nulls = np.zeros(len(counts), dtype=np.bool_) if call.function is AggregateFunction.SUM0 else counts <= 0
        is_average = call.function is AggregateFunction.AVG
        if self._is_approximate:
            total = _total(partials[0], partials[2], _numbers(partials[3:]), squared=False)
            if is_average:
                return results.double_average(total, counts, self._result_type)
            return results.double_sum(total, nulls, self._result_type)
        if pa.types.is_decimal(partials[0].type):
            plain = Accumulator(call)
            column = pc.if_else(pa.array(counts <= 0), pa.scalar(None, partials[0].type), partials[0])
            return plain.result([column, pa.array(np.maximum(counts, 0))] if is_average else [column])
        if is_average:
            return results.integer_average(_number(partials[0]), counts, self._result_type)
        return results.integer_sum(_number(partials[0]), nulls, self._result_type)

    def _doubles(self, values: Array, weights: Ints) -> list[Array]:
        doubles: Doubles = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        specials = [pa.array(test(doubles) * weights) for test in _SPECIALS]
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(doubles), doubles, 0.0)
            signed = pa.array(np.where(weights == 0, 0.0, finite * weights))
            squares = pa.array(np.where(weights == 0, 0.0, finite * finite * weights))
        counts, nothing = pa.array(weights), pa.array(np.zeros(len(weights)))
        if self._is_variance:
            return [signed, squares, counts, nothing, nothing, *specials]
        return [signed, counts, nothing, *specials]


def _number(column: Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def _numbers(columns: Sequence[Array]) -> tuple[Ints, Ints, Ints]:
    nans, infinities, negative = (_number(column) for column in columns)
    return nans, infinities, negative


def _total(sums: Array, rests: Array, specials: tuple[Ints, Ints, Ints], *, squared: bool) -> Doubles:
    """The sum with what is not finite in it; squares are never -infinity."""
    nans, infinities, negative = specials
    if squared:
        infinities, negative = infinities + negative, np.zeros_like(negative)
    with np.errstate(all="ignore"):
        return results.double_total(_number(sums) + _number(rests), (nans, infinities, negative))


def reduce_signed(
    keys: Sequence[Array], columns: Sequence[Array], compensated: Sequence[CompensatedSum]
) -> tuple[list[Array], list[Array]]:
    """One row per distinct key: keys, and the sum of each column; `compensated` are positions among `columns`. `keys`
    has at least one column. Raises SumOverflowError."""
    if not compensated or len(keys[0]) <= 1:
        return reduce_groups(keys, [(column, Reduction.SUM) for column in columns])
    ids = group_ids(keys)
    apart = {position for pair in compensated for position in (pair.sums, pair.rests)}
    plain = [i for i in range(len(columns)) if i not in apart]
    (found,), sums = reduce_groups([pa.array(ids)], [(columns[i], Reduction.SUM) for i in plain])
    by_group = pa.array(np.argsort(found.to_numpy()))
    reduced: list[Array] = list(columns)
    for i, column in zip(plain, sums, strict=True):
        reduced[i] = column.take(by_group)
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(ids)))
    for pair in compensated:
        nothing = np.zeros(len(starts))
        running, left = running_doubles(starts, lengths, _number(columns[pair.sums])[order], nothing, nothing)
        last = starts + lengths - 1
        more = np.add.reduceat(_number(columns[pair.rests])[order], starts)
        reduced[pair.sums], reduced[pair.rests] = pa.array(running[last]), pa.array(left[last] + more)
    first = pa.array(order[starts])
    return [key.take(first) for key in keys], reduced
