"""Aggregate functions as columns: raw rows to partials, partials to partials, partials to results.

A partial of a call is one to three columns. On the wire they have the types of `accumulator_types`; in state sums of
decimals are wider, so that only a result can overflow. Rules are those of Flink's aggregate functions: NULLs do not
count, integer sums wrap in their own type, DECIMAL sums that do not fit give NULL, AVG of integers truncates toward
zero, NaN is the largest float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall, AggregateFunction, accumulator_types
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators import decimal_sums
from runtime.operators.grouping import Reduction

pc: Any = pyarrow.compute
Array = Any
Doubles = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_ZERO = pa.scalar(0, pa.int64())
_REDUCTION = {AggregateFunction.MIN: Reduction.MIN, AggregateFunction.MAX: Reduction.MAX}
_SUMS = (AggregateFunction.SUM, AggregateFunction.SUM0)
VARIANCES = frozenset(
    {
        AggregateFunction.STDDEV_POP,
        AggregateFunction.STDDEV_SAMP,
        AggregateFunction.VAR_POP,
        AggregateFunction.VAR_SAMP,
    }
)


class Accumulator:
    """One aggregate call. Columns of partials always come in the order of `accumulator_types`."""

    def __init__(self, call: AggregateCall) -> None:
        self._call = call
        self._argument_type: Any = None if call.argument_type is None else to_arrow(call.argument_type)
        self._result_type: Any = to_arrow(call.type)
        self.wire_types: tuple[Any, ...] = tuple(to_arrow(t) for t in accumulator_types(call))
        self.state_types: tuple[Any, ...] = tuple(self._state_type(t) for t in self.wire_types)
        """Arrow types of the columns in state."""
        self.reductions: tuple[Reduction, ...] = tuple(
            _REDUCTION.get(call.function, Reduction.SUM) for _ in self.wire_types
        )

    def from_rows(self, rows: pa.RecordBatch, ones: Array) -> list[Array]:
        """One partial per raw row. `ones` is a BIGINT column of ones, returned as is where every row counts."""
        call = self._call
        mask = None if call.filter is None else pc.fill_null(rows.column(call.filter), False)
        if call.argument is None:
            return [ones if mask is None else mask.cast(pa.int64())]
        values: Any = rows.column(call.argument)
        if call.function is AggregateFunction.COUNT:
            return [self._count(values, mask, ones)]
        # Unsafe: a BIGINT may be rounded to the DOUBLE it is nearest to.
        values = values.cast(self.wire_types[0], safe=False) if values.type != self.wire_types[0] else values
        if mask is not None:
            values = pc.if_else(mask, values, pa.scalar(None, values.type))
        if call.function is AggregateFunction.AVG:
            return [values, self._count(values, None, ones)]
        if call.function in VARIANCES:
            return [values, pc.multiply(values, values), self._count(values, None, ones)]
        return [values]

    def to_state(self, partials: Sequence[Array]) -> list[Array]:
        """Partials as received, in the types of the state."""
        return [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(partials, self.state_types, strict=True)
        ]

    def result(self, partials: Sequence[Array]) -> Array:
        """The aggregate's value per group, from partials in the types of the state."""
        call = self._call
        if call.function is AggregateFunction.AVG:
            return self._average(partials[0], partials[1])
        if call.function in VARIANCES:
            sums, squares, counts = (column.fill_null(0).to_numpy() for column in partials)
            return variance(call, sums, squares, counts)
        (column,) = partials
        if call.function is AggregateFunction.SUM0:
            column = pc.fill_null(column, pa.scalar(0, column.type))
        if call.function in _SUMS and call.type.root is TypeRoot.DECIMAL:
            return decimal_sums.narrow(column, self._result_type.scale).cast(self._result_type)
        return column if column.type == self._result_type else column.cast(self._result_type)

    def _state_type(self, wire: Any) -> Any:
        is_sum = self._call.function in (*_SUMS, AggregateFunction.AVG)
        return decimal_sums.wide_type(wire.scale) if is_sum and pa.types.is_decimal(wire) else wire

    @staticmethod
    def _count(values: Array, mask: Array | None, ones: Array) -> Array:
        if values.null_count == 0:
            return ones if mask is None else mask.cast(pa.int64())
        counted = values.is_valid()
        return (counted if mask is None else pc.and_(counted, mask)).cast(pa.int64())

    def _average(self, sums: Array, counts: Array) -> Array:
        if pa.types.is_decimal(sums.type):
            return decimal_sums.average(sums, counts, self._result_type)
        divisors = pc.if_else(pc.equal(counts, _ZERO), pa.scalar(None, pa.int64()), counts)
        if pa.types.is_integer(sums.type):
            return pc.divide(sums, divisors).cast(self._result_type, safe=False)
        return pc.divide(sums, divisors.cast(pa.float64())).cast(self._result_type, safe=False)


def ones(count: int) -> Array:
    """A BIGINT column of ones: the hidden row count of raw rows."""
    return pa.array(np.ones(count, dtype=np.int64))


def variance(call: AggregateCall, sums: Doubles, squares: Doubles, counts: npt.NDArray[np.int64]) -> Array:
    """STDDEV_* and VAR_* from the sum, the sum of squares and the count of values; NULL over nothing, and for the
    SAMP functions over one value. As in Flink, where the function is rewritten to such sums in the result's type:
    integers wrap and their divisions truncate, each division of decimals rounds to the result's scale."""
    function = call.function
    is_sample = function in (AggregateFunction.STDDEV_SAMP, AggregateFunction.VAR_SAMP)
    divisors = counts - 1 if is_sample else counts
    undefined = divisors <= 0
    is_deviation = function in (AggregateFunction.STDDEV_POP, AggregateFunction.STDDEV_SAMP)
    if call.type.is_integer:
        kind: Any = to_arrow(call.type)
        whole = _integer_variance(kind, sums, squares, np.maximum(counts, 1), np.maximum(divisors, 1))
        if is_deviation:
            whole = np.sqrt(np.maximum(whole, 0)).astype(np.int64)
        return pa.array(whole.astype(kind.to_pandas_dtype()), mask=undefined)
    with np.errstate(all="ignore"):
        means = sums * sums / np.where(undefined, 1, counts)
        spread = squares - _stepwise(means, call.type)
        # Rounding may leave a variance just below zero.
        values = _stepwise(np.maximum(spread, 0.0) / np.where(undefined, 1, divisors), call.type)
        if is_deviation:
            values = np.sqrt(values)
    return from_doubles(values, undefined, to_arrow(call.type))


def _integer_variance(kind: Any, sums: Doubles, squares: Doubles, counts: Counts, divisors: Counts) -> Counts:
    """The sums, and the square of the sum, wrap in the argument's type; all else is BIGINT."""

    def wrapped(values: Counts) -> Counts:
        return values.astype(kind.to_pandas_dtype()).astype(np.int64)

    with np.errstate(all="ignore"):
        total, of_squares = wrapped(sums.astype(np.int64)), wrapped(squares.astype(np.int64))
    return _truncated(of_squares - _truncated(wrapped(total * total), counts), divisors)


def _truncated(dividends: Counts, divisors: Counts) -> Counts:
    """Quotients truncated toward zero; divisors are positive."""
    quotients: Counts = np.sign(dividends) * (np.abs(dividends) // divisors)
    return quotients


def _stepwise(quotients: Doubles, kind: DataType) -> Doubles:
    """A quotient as Flink's division in the type `kind` leaves it."""
    if kind.root is TypeRoot.DECIMAL:
        scale = 10.0 ** (kind.scale or 0)
        # A half that a double shows as slightly less is still a half.
        return np.floor(np.round(quotients * scale, 4) + 0.5) / scale
    return quotients


def from_doubles(values: Doubles, nulls: npt.NDArray[np.bool_], kind: Any) -> Array:
    """Doubles as a column of the numeric type `kind`: integers truncated, decimals rounded HALF_UP and NULL where they
    have too many digits, NaN or are infinite."""
    mask = nulls if nulls.any() else None
    if pa.types.is_integer(kind):
        return pa.array(np.nan_to_num(values), mask=mask).cast(kind, safe=False)
    if not pa.types.is_decimal(kind):
        return pa.array(values, mask=mask).cast(kind)
    limit = 10.0 ** (kind.precision - kind.scale)
    fits = np.isfinite(values) & (np.abs(values) < limit)
    return pa.array(np.where(fits, values, 0.0), mask=nulls | ~fits).cast(kind)
