"""EXTRACT, FLOOR and CEIL of time, TIMESTAMPADD and TIMESTAMPDIFF, datetime ± interval, tumbling window bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.ir.expressions import Call, Literal
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions.arrow import ArrowType
from runtime.operators.expressions.civil import (
    UNITS_PER_SECOND,
    Int64s,
    add_months,
    from_days,
    iso_week,
    iso_weekday,
    to_days,
)
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.vectors import both_valid, from_raw, length_of, raw, validity
from runtime.operators.expressions.zones import zone_of

_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200, "MILLENNIUM": 12_000}
_FRACTIONS = {"MILLISECOND": 1000, "MICROSECOND": 1_000_000, "NANOSECOND": 1_000_000_000}


def units_of(t: DataType) -> int:
    """Integers per second in the type's Arrow form (DATE is handled in seconds)."""
    if t.root is TypeRoot.DATE:
        return 1
    arrow: ArrowType = to_arrow(t)
    return UNITS_PER_SECOND[arrow.unit]


def to_wall_clock(t: DataType, context: EvaluationContext) -> Callable[[Vector], Int64s]:
    """A vector of a date or time type → wall-clock integers, `units_of(t)` per second; DATE is its midnight."""
    if t.root is TypeRoot.DATE:
        return lambda vector: raw(vector).astype(np.int64) * 86_400
    if t.root is TypeRoot.TIMESTAMP_LTZ:
        zone, units = zone_of(context.local_time_zone), units_of(t)
        return lambda vector: zone.to_local(raw(vector), units)
    return lambda vector: raw(vector).astype(np.int64)


def from_wall_clock(t: DataType, context: EvaluationContext) -> Callable[[Int64s], Int64s]:
    """The way back, to the integers of the type's Arrow form."""
    if t.root is TypeRoot.DATE:
        return lambda values: values // 86_400
    if t.root is TypeRoot.TIME:
        return lambda values: values % 86_400_000
    if t.root is TypeRoot.TIMESTAMP_LTZ:
        zone, units = zone_of(context.local_time_zone), units_of(t)
        return lambda values: zone.to_instant(values, units)
    return lambda values: values


def convert_units(values: Int64s, from_units: int, to_units: int) -> Int64s:
    """From one resolution to another, rounding down."""
    if to_units >= from_units:
        return values * (to_units // from_units)
    return values // (from_units // to_units)


def literal_unit(call: Call) -> str:
    """The unit argument, which is always a literal."""
    unit = call.args[0]
    assert isinstance(unit, Literal)
    return str(unit.value).upper()


def _extract(call: Call, context: EvaluationContext) -> Kernel:
    source = call.args[1].type
    _refuse_unit(literal_unit(call), source)
    read, units, part = to_wall_clock(source, context), units_of(source), extractor(literal_unit(call))
    t = to_arrow(call.type)
    return lambda unit, vector: from_raw(part(read(vector), units), validity(vector), t, length_of(unit, vector))


def _refuse_unit(unit: str, source: DataType) -> None:
    """TIME has no date; DATE and TIME have nothing below milliseconds."""
    no_date = source.root is TypeRoot.TIME and unit not in ("SECOND", "MINUTE", "HOUR", "MILLISECOND")
    if no_date or (source.root is TypeRoot.DATE and unit in ("MICROSECOND", "NANOSECOND")):
        raise UnsupportedExpression(f"the unit {unit} cannot be applied to {source.sql()}")


def extractor(unit: str) -> Callable[[Int64s, int], Int64s]:
    """(wall-clock integers, units per second) → the part."""
    if unit in _FRACTIONS:
        wanted = _FRACTIONS[unit]
        return lambda values, units: values % units * wanted // units
    if unit == "EPOCH":
        return lambda values, units: values // units
    if unit in ("SECOND", "MINUTE", "HOUR"):
        size, many = _SECONDS[unit], {"SECOND": 60, "MINUTE": 60, "HOUR": 24}[unit]
        return lambda values, units: values // (units * size) % many
    part = _DATE_PARTS[unit]
    return lambda values, units: part(values // (units * 86_400))


def _rounded_up(year: Int64s, years: int) -> Int64s:
    return (year + years - 1) // years


_DATE_PARTS: dict[str, Callable[[Int64s], Int64s]] = {
    "DAY": lambda days: from_days(days).day,
    "WEEK": lambda days: iso_week(days)[1],
    "MONTH": lambda days: from_days(days).month,
    "QUARTER": lambda days: (from_days(days).month + 2) // 3,
    "YEAR": lambda days: from_days(days).year,
    "DECADE": lambda days: from_days(days).year // 10,
    "CENTURY": lambda days: _rounded_up(from_days(days).year, 100),
    "MILLENNIUM": lambda days: _rounded_up(from_days(days).year, 1000),
    "DOW": lambda days: iso_weekday(days) % 7 + 1,
    "ISODOW": iso_weekday,
    "DOY": lambda days: days - to_days(from_days(days).year, 1, 1) + 1,
    "ISOYEAR": lambda days: iso_week(days)[0],
}


_INTERVAL_PARTS = {
    TypeRoot.INTERVAL_YEAR_MONTH: {"YEAR": (12, 0), "MONTH": (1, 12), "QUARTER": (3, 4)},
    TypeRoot.INTERVAL_DAY_TIME: {
        "DAY": (86_400_000, 0), "HOUR": (3_600_000, 24), "MINUTE": (60_000, 60), "SECOND": (1000, 60),
        "MILLISECOND": (1, 1000),
    },
}  # fmt: skip
"""Per unit: its size in the interval's integers, and how many make up the next larger one (0: no bound)."""


def _extract_interval(call: Call, context: EvaluationContext) -> Kernel:
    """Parts of an interval, truncated toward zero: months for YEAR TO MONTH, milliseconds for DAY TO SECOND."""
    unit, t, source = literal_unit(call), to_arrow(call.type), call.args[1].type
    if unit not in _INTERVAL_PARTS[source.root]:
        raise UnsupportedExpression(f"the unit {unit} cannot be applied to {source.sql()}")
    size, many = _INTERVAL_PARTS[source.root][unit]

    def kernel(unit_: Vector, vector: Vector) -> Vector:
        values = raw(vector).astype(np.int64)
        parts = np.abs(values) // size
        parts = np.sign(values) * (parts % many if many else parts)
        # Quarters count from 1, as for dates.
        parts = parts + 1 if unit == "QUARTER" else parts
        return from_raw(parts, validity(vector), t, length_of(unit_, vector))

    return kernel


def floor_to(values: Int64s, unit: str, units: int) -> Int64s:
    """Wall-clock integers rounded down to the unit; weeks begin on Sunday."""
    if unit in _FRACTIONS:
        size = max(units // _FRACTIONS[unit], 1)
        return values // size * size
    if unit in ("SECOND", "MINUTE", "HOUR", "DAY"):
        size = _SECONDS[unit] * units
        return values // size * size
    day = 86_400 * units
    days = values // day
    if unit == "WEEK":
        return (days - iso_weekday(days) % 7) * day
    date = from_days(days)
    if unit in ("MONTH", "QUARTER"):
        months = _MONTHS[unit]
        return to_days(date.year, (date.month - 1) // months * months + 1, 1) * day
    years = _MONTHS[unit] // 12
    # Centuries and millennia begin in a year 1, decades in a year 0.
    first = (date.year - 1) // years * years + 1 if years >= 100 else date.year // years * years
    return to_days(first, 1, 1) * day


def ceil_to(values: Int64s, unit: str, units: int) -> Int64s:
    """Rounded up to the unit. As in Flink, weeks and longer units look at the date alone, and DECADE, CENTURY and
    MILLENNIUM go to the next one even from a start."""
    if unit == "WEEK" or unit in _MONTHS:
        values = values // (86_400 * units) * (86_400 * units)
    lower = floor_to(values, unit, units)
    if unit in ("DECADE", "CENTURY", "MILLENNIUM"):
        return _shift(lower, _MONTHS[unit], units)
    if unit in _MONTHS:
        upper = _shift(lower, _MONTHS[unit], units)
    elif unit in _FRACTIONS:
        upper = lower + max(units // _FRACTIONS[unit], 1)
    else:
        upper = lower + _SECONDS[unit] * units
    return np.where(lower == values, lower, upper)


def _shift(values: Int64s, months: Int64s | int, units: int) -> Int64s:
    """Wall-clock integers moved by months, the time of day kept."""
    day = 86_400 * units
    days = values // day
    return add_months(days, np.asarray(months, np.int64)) * day + (values - days * day)


def _round_time(call: Call, context: EvaluationContext) -> Kernel:
    source, unit = call.args[1].type, literal_unit(call)
    _refuse_unit(unit, source)
    plain = _without_zone(source)
    read, write, units = to_wall_clock(plain, context), from_wall_clock(plain, context), units_of(source)
    rounding = floor_to if call.function == "FLOOR_TIME" else ceil_to
    zone = zone_of(context.local_time_zone) if source.root is TypeRoot.TIMESTAMP_LTZ else None
    t = to_arrow(call.type)

    def kernel(unit_: Vector, vector: Vector) -> Vector:
        values = read(vector)
        # An instant is rounded on the clock of its own offset, and keeps that offset (as in Flink).
        offsets = zone.to_local(values, units) - values if zone is not None else 0
        rounded = write(rounding(values + offsets, unit, units) - offsets)
        return from_raw(rounded, validity(vector), t, length_of(unit_, vector))

    return kernel


def _add(
    source: DataType, result: DataType, context: EvaluationContext, months: bool
) -> Callable[[Vector, Int64s, Vector], Vector]:
    """datetime + amount (months or ms) in the result's type. Months of an instant are counted in UTC (as in Flink)."""
    units, t = units_of(result), to_arrow(result)
    source_units = units_of(source)
    read = to_wall_clock(_without_zone(source), context)
    write = from_wall_clock(_without_zone(result), context)

    def kernel(vector: Vector, amounts: Int64s, other: Vector) -> Vector:
        values = read(vector)
        if months:
            moved = _shift(convert_units(values, source_units, units), amounts, units)
        elif units >= 1000:
            moved = values * (units // source_units) + amounts * (units // 1000)
        else:
            moved = (values * 1000 + amounts) // 1000
        valid = both_valid(validity(vector), validity(other))
        return from_raw(write(moved), valid, t, length_of(vector, other))

    return kernel


def _without_zone(t: DataType) -> DataType:
    """TIMESTAMP in place of TIMESTAMP_LTZ: the instant as a date-time in UTC."""
    return DataType(TypeRoot.TIMESTAMP, t.nullable, precision=t.precision) if t.root is TypeRoot.TIMESTAMP_LTZ else t


def _timestampadd(call: Call, context: EvaluationContext) -> Kernel:
    unit = literal_unit(call)
    add = _add(call.args[2].type, call.type, context, unit in _MONTHS)
    size = _MONTHS[unit] if unit in _MONTHS else _SECONDS[unit] * 1000 if unit in _SECONDS else 1
    return lambda unit_, amount, vector: add(vector, raw(amount).astype(np.int64) * size, amount)


def _interval(call: Call, context: EvaluationContext) -> Kernel:
    position = 0 if call.function == "INTERVAL_PLUS" else 1
    interval, source = call.args[position].type, call.args[1 - position].type
    sign = -1 if call.function == "MINUS_INTERVAL" else 1
    add = _add(source, call.type, context, interval.root is TypeRoot.INTERVAL_YEAR_MONTH)

    def kernel(left: Vector, right: Vector) -> Vector:
        vector, amount = (right, left) if position == 0 else (left, right)
        return add(vector, sign * raw(amount).astype(np.int64), amount)

    return kernel


def _timestampdiff(call: Call, context: EvaluationContext) -> Kernel:
    """Whole units from the second to the third argument, truncated toward zero; of instants, in UTC (as in Flink)."""
    unit, (first, second), t = literal_unit(call), (a.type for a in call.args[1:]), to_arrow(call.type)
    if (first.root is TypeRoot.TIMESTAMP_LTZ) != (second.root is TypeRoot.TIMESTAMP_LTZ):
        raise UnsupportedExpression("TIMESTAMPDIFF of a TIMESTAMP_LTZ needs another TIMESTAMP_LTZ")
    first_read, second_read = (to_wall_clock(_without_zone(x), context) for x in (first, second))

    def kernel(unit_: Vector, start: Vector, end: Vector) -> Vector:
        a = convert_units(first_read(start), units_of(first), 1000)
        b = convert_units(second_read(end), units_of(second), 1000)
        if unit in _SECONDS:
            difference = b - a
            size = _SECONDS[unit] * 1000
            result = np.sign(difference) * (np.abs(difference) // size)
        else:
            months = _months_between(a, b)
            result = np.sign(months) * (np.abs(months) // _MONTHS[unit])
        valid = both_valid(validity(start), validity(end))
        return from_raw(result.astype(np.int64).astype(np.int32), valid, t, length_of(start, end))

    return kernel


def _months_between(start: Int64s, end: Int64s) -> Int64s:
    """Whole months between wall-clock milliseconds. As in Flink, dates count first (a month is full when its day, or
    the month's last, is reached); then one is taken off where the dates meet and the end's time of day is earlier."""
    first, second = start // 86_400_000, end // 86_400_000
    early, late = np.minimum(first, second), np.maximum(first, second)
    from_, to = from_days(early), from_days(late)
    months = (to.year - from_.year) * 12 + to.month - from_.month
    months = np.where(add_months(early, months) > late, months - 1, months)
    months = np.where(second < first, -months, months)
    earlier_clock = end - second * 86_400_000 < start - first * 86_400_000
    return np.where((add_months(first, months) == second) & earlier_clock, months - 1, months)


def _tumble(call: Call, context: EvaluationContext) -> Kernel:
    """Bounds of the tumbling window [start, start + size) in wall-clock time; the time attribute is its last ms."""
    source, function = call.args[0].type, call.function
    read, units, t = to_wall_clock(source, context), units_of(source), to_arrow(call.type)
    write = from_wall_clock(call.type, context)
    result_units = units_of(call.type)

    def kernel(vector: Vector, size: Vector, offset: Vector) -> Vector:
        local = convert_units(read(vector), units, 1000)
        width, shift = raw(size).astype(np.int64), raw(offset).astype(np.int64)
        start = local - (local - shift) % width
        bound = start if function == "TUMBLE_START" else start + width
        if function == "TUMBLE_TIME":
            bound = bound - 1
        return from_raw(write(convert_units(bound, 1000, result_units)), validity(vector), t, length_of(vector))

    return kernel


KERNELS: dict[str, Builder] = {
    "EXTRACT": _extract,
    "EXTRACT_INTERVAL": _extract_interval,
    "FLOOR_TIME": _round_time,
    "CEIL_TIME": _round_time,
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampdiff,
    "PLUS_INTERVAL": _interval,
    "INTERVAL_PLUS": _interval,
    "MINUS_INTERVAL": _interval,
    "TUMBLE_START": _tumble,
    "TUMBLE_END": _tumble,
    "TUMBLE_TIME": _tumble,
}
