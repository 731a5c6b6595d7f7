"""Casts among DATE, TIME, TIMESTAMP and TIMESTAMP_LTZ. Fractions beyond the target's precision are cut off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions.calendar import from_wall_clock, to_wall_clock, units_of
from runtime.operators.expressions.civil import Int64s
from runtime.operators.expressions.context import EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import Mask, both_valid, from_raw, length_of, validity


def time_cast(source: DataType, target: DataType, context: EvaluationContext, *, strict: bool) -> Kernel:
    """The kernel between two date/time types; LTZ meets the others in the session's zone. A year that the target's
    resolution cannot hold is refused if `strict`, else NULL."""
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
        valid = validity(vector)
        values, fits = rescale_time(read(vector), from_units, to_units)
        if fits is not None:
            if strict and not np.all(fits if valid is None else fits | ~valid):
                raise EvaluationFailure("the year does not fit a timestamp of nanoseconds (1678 to 2261)")
            valid = both_valid(valid, fits)
        return from_raw(write(finish(values)), valid, t, length_of(vector))

    return kernel


def rescale_time(values: Int64s, from_units: int, to_units: int) -> tuple[Int64s, Mask | None]:
    """From one resolution to another, cutting off; the mask is False where the finer one cannot hold the year (a day
    is kept clear of its ends, for the zone)."""
    if to_units <= from_units:
        return values // (from_units // to_units), None
    factor = to_units // from_units
    limit = (2**63 - 1) // factor - 86_400 * from_units
    fits = (values <= limit) & (values >= -limit)
    return np.where(fits, values, 0) * factor, None if fits.all() else fits


def rounding_down(target: DataType) -> Callable[[Int64s], Int64s]:
    """Cuts values in the target's Arrow unit to its precision."""
    if target.root is TypeRoot.DATE:
        return lambda values: values
    precision = target.precision if target.precision is not None else (0 if target.root is TypeRoot.TIME else 6)
    step = max(units_of(target) // 10**precision, 1)
    return (lambda values: values) if step == 1 else (lambda values: values // step * step)


def _without_zone(t: DataType) -> DataType:
    return DataType(TypeRoot.TIMESTAMP, t.nullable, precision=t.precision) if t.root is TypeRoot.TIMESTAMP_LTZ else t
