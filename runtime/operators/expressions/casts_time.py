"""Casts among DATE, TIME, TIMESTAMP and TIMESTAMP_LTZ. Fractions beyond the target's precision are cut off."""

from __future__ import annotations

import numpy as np

from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions.calendar import from_wall_clock, to_wall_clock, units_of
from runtime.operators.expressions.civil import Int64s
from runtime.operators.expressions.context import EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import from_raw, length_of, validity


def time_cast(source: DataType, target: DataType, context: EvaluationContext) -> Kernel:
    """The kernel between two date/time types; LTZ meets the others in the session's zone."""
    if {source.root, target.root} == {TypeRoot.DATE, TypeRoot.TIME}:
        raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")
    s, t = to_arrow(source), to_arrow(target)
    if s == t and (target.precision or 0) >= (source.precision or 0):
        return lambda vector: vector
    same_kind = source.root is target.root
    plain_source = _without_zone(source) if same_kind else source
    plain_target = _without_zone(target) if same_kind else target
    read, write = to_wall_clock(plain_source, context), from_wall_clock(plain_target, context)
    from_units, to_units, finish = units_of(source), units_of(target), rounding_down(target)

    def kernel(vector: Vector) -> Vector:
        values = rescale_time(read(vector), from_units, to_units, validity(vector))
        return from_raw(write(finish(values)), validity(vector), t, length_of(vector))

    return kernel


def rescale_time(values: Int64s, from_units: int, to_units: int, valid: object = None) -> Int64s:
    """From one resolution to another, cutting off; a year the finer resolution cannot hold is refused, not wrapped."""
    if to_units <= from_units:
        return values // (from_units // to_units)
    factor = to_units // from_units
    limit = (2**63 - 1) // factor
    outside = (values > limit) | (values < -limit)
    if outside.any() and (valid is None or (outside & valid).any()):
        raise EvaluationFailure("the year does not fit a timestamp of nanoseconds (1677 to 2262)")
    return np.where(outside, 0, values) * factor


def rounding_down(target: DataType) -> "Floor":
    """Cuts values in the target's Arrow unit to its precision."""
    if target.root is TypeRoot.DATE:
        return Floor(1)
    precision = target.precision if target.precision is not None else (0 if target.root is TypeRoot.TIME else 6)
    return Floor(max(units_of(target) // 10**precision, 1))


class Floor:
    """Rounds down to multiples of `step`."""

    def __init__(self, step: int) -> None:
        self._step = step

    def __call__(self, values: Int64s) -> Int64s:
        return values if self._step == 1 else values // self._step * self._step


def _without_zone(t: DataType) -> DataType:
    return DataType(TypeRoot.TIMESTAMP, t.nullable, precision=t.precision) if t.root is TypeRoot.TIMESTAMP_LTZ else t
