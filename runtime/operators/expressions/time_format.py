"""DATE_FORMAT, TO_TIMESTAMP, TO_DATE, TO_TIMESTAMP_LTZ, FROM_UNIXTIME and UNIX_TIMESTAMP of a text."""

from __future__ import annotations

import re
from datetime import date, timedelta

import numpy as np

from planner.ir.expressions import Call
from planner.ir.types import TypeRoot, to_arrow
from runtime.operators.expressions.arithmetic import to_number
from runtime.operators.expressions.arrow import pa
from runtime.operators.expressions.calendar import to_wall_clock, units_of
from runtime.operators.expressions.civil import Int64s, from_days
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.digits import Part, fixed_width_text
from runtime.operators.expressions.time_patterns import (
    BadPattern,
    Item,
    moment_of,
    parse_pattern,
    read_text,
    read_time,
    write,
)
from runtime.operators.expressions.time_text import date_of_text, days_of, timestamp_of_text
from runtime.operators.expressions.vectors import (
    Mask,
    as_array,
    both_valid,
    constant,
    from_raw,
    length_of,
    raw,
    validity,
)
from runtime.operators.expressions.zones import Zone, zone_of

DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"
UNPARSED = -(2**63)
"""What UNIX_TIMESTAMP gives for a text that does not parse."""
_FIXED = {"yyyy", "MM", "dd", "HH", "mm", "ss", "S", "SS", "SSS", "SSSSSS"}


def _fixed_width(items: tuple[Item, ...], values: Int64s, units: int) -> list[Part] | None:
    """The parts of a pattern of fixed-width numbers alone; None for other patterns and for years outside 0..9999."""
    if not all(not item.letter or item.letter * item.width in _FIXED for item in items):
        return None
    date_parts = from_days(values // (86_400 * units))
    if len(values) and (int(date_parts.year.min()) < 1 or int(date_parts.year.max()) > 9999):
        return None
    seconds = values // units
    parts: list[Part] = []
    for item in items:
        match item.letter:
            case "":
                parts.append(item.text.encode())
            case "y":
                parts.append((date_parts.year, 4))
            case "M":
                parts.append((date_parts.month, 2))
            case "d":
                parts.append((date_parts.day, 2))
            case "H":
                parts.append((seconds // 3600 % 24, 2))
            case "m":
                parts.append((seconds // 60 % 60, 2))
            case "s":
                parts.append((seconds % 60, 2))
            case _:
                parts.append((values % units * 10**item.width // units, item.width))
    return parts


def _formatted(values: Int64s, units: int, valid: Mask | None, pattern: str, length: int, *, legacy: bool) -> Vector:
    """Wall-clock integers as text."""
    items = parse_pattern(pattern, legacy=legacy)
    values = np.broadcast_to(values if valid is None else np.where(valid, values, 0), length)
    parts = _fixed_width(items, values, units)
    if parts is not None:
        return fixed_width_text(parts, valid, length)
    factor = 1_000_000_000 // units
    write_one = per_distinct(lambda value: write(items, moment_of(value * factor), legacy=legacy), pa.string())
    return write_one(from_raw(values, valid, pa.int64(), length))


def _needs_offset(pattern: str) -> bool:
    return any(item.letter in ("Z", "X") for item in parse_pattern(pattern, legacy=True))


def _date_format(call: Call, context: EvaluationContext) -> Kernel:
    source = call.args[0].type
    read, units = to_wall_clock(source, context), units_of(source)
    pattern = constant(call.args[1])
    if isinstance(pattern, str):
        known = pattern
        _checked(known, legacy=False)

        def kernel(time: Vector, format_: Vector) -> Vector:
            length = length_of(time, format_)
            return _formatted(read(time), units, validity(time), known, length, legacy=False)

        return kernel
    factor = 1_000_000_000 // units
    by_value = per_distinct(
        lambda value, format_: write(parse_pattern(format_, legacy=False), moment_of(value * factor), legacy=False),
        pa.string(),
    )

    def varying(time: Vector, format_: Vector) -> Vector:
        length = length_of(time, format_)
        return by_value(from_raw(read(time), validity(time), pa.int64(), length), format_)

    return varying


def _checked(pattern: str, *, legacy: bool) -> None:
    try:
        parse_pattern(pattern, legacy=legacy)
    except BadPattern as error:
        raise UnsupportedExpression(str(error)) from error


def _date_format_text(call: Call, context: EvaluationContext) -> Kernel:
    """The text is read as a timestamp first; what does not parse is NULL."""

    def convert(text: str, pattern: str) -> str | None:
        value = timestamp_of_text(text)
        if value is None or not _has_time(text):
            return None
        return write(parse_pattern(pattern, legacy=False), moment_of(value), legacy=False)

    return per_distinct(convert, pa.string())


def _has_time(text: str) -> bool:
    return " " in text


_SQL_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?", re.ASCII)
_SQL_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)


def _lenient_timestamp(text: str) -> int | None:
    """What `java.sql.Timestamp.valueOf` and `java.sql.Date.valueOf` accept: days and clock may overflow."""
    trimmed = text.strip()
    match = _SQL_TIMESTAMP.fullmatch(trimmed) if " " in trimmed else _SQL_DATE.fullmatch(trimmed)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in (*match.groups(), 0, 0, 0)[:6])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    fraction = int((match.group(7) or "").ljust(9, "0")) if match.re is _SQL_TIMESTAMP else 0
    seconds = days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    return seconds * 1_000_000_000 + fraction


def _read_timestamp(text: str, pattern: str | None = None) -> int | None:
    """Nanoseconds by the pattern, else in the form of a SQL timestamp or date; a malformed pattern reads nothing."""
    if pattern is None:
        return timestamp_of_text(text)
    try:
        value = read_time(text, pattern)
    except BadPattern:
        return None
    return _lenient_timestamp(text) if value is None else value


def _to_timestamp(call: Call, context: EvaluationContext) -> Kernel:
    """TIMESTAMP(3): digits beyond milliseconds are cut off."""

    def convert(text: str, pattern: str | None = None) -> int | None:
        value = _read_timestamp(text, pattern)
        return None if value is None else value // 1_000_000

    return per_distinct(convert, to_arrow(call.type))


def _to_timestamp_ltz_text(call: Call, context: EvaluationContext) -> Kernel:
    """The text is local time in the zone given, UTC without one. NULL where it does not parse."""

    def convert(text: str, pattern: str | None = None, zone: str = "UTC") -> int | None:
        value = _read_timestamp(text, pattern)
        if value is None:
            return None
        return int(zone_of(zone).to_instant(np.array([value // 1_000_000]), 1000)[0])

    return per_distinct(convert, to_arrow(call.type))


_MS_MIN, _MS_MAX = days_of(1, 1, 1) * 86_400_000, days_of(10_000, 1, 1) * 86_400_000 - 1


def _to_timestamp_ltz(call: Call, context: EvaluationContext) -> Kernel:
    """From seconds (precision 0) or milliseconds (3); instants outside the years 1..9999 are NULL."""
    precision = constant(call.args[1]) if len(call.args) > 1 else 3
    if precision not in (0, 3):
        raise UnsupportedExpression("the precision of TO_TIMESTAMP_LTZ must be 0 (seconds) or 3 (milliseconds)")
    factor, t, root = 1000 if precision == 0 else 1, to_arrow(call.type), call.args[0].type.root

    def kernel(number: Vector, *rest: Vector) -> Vector:
        length, valid = length_of(number, *rest), validity(number)
        if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL):
            floats = raw(to_number(number, pa.float64()))
            with np.errstate(invalid="ignore"):
                scaled = floats * factor if factor > 1 else np.nan_to_num(floats, nan=0.0)
                inside = (scaled >= _MS_MIN) & (scaled <= _MS_MAX)
                milliseconds = np.trunc(np.where(inside, scaled, 0)).astype(np.int64)
        else:
            values = raw(number).astype(np.int64)
            inside = (values >= -(-_MS_MIN // factor)) & (values <= _MS_MAX // factor)
            milliseconds = np.where(inside, values, 0) * factor
        return from_raw(milliseconds, both_valid(valid, inside), t, length)

    return kernel


def _to_date(call: Call, context: EvaluationContext) -> Kernel:
    """NULL where the text does not parse; with a format, leniently by it."""

    def convert(text: str, pattern: str | None = None) -> date | None:
        if pattern is None:
            return None if text.startswith(" ") else date_of_text(text)  # Unlike CAST, it takes off no blanks.
        try:
            milliseconds = read_text(text, pattern)
        except BadPattern:
            return None
        if milliseconds is None or not _MS_MIN <= milliseconds <= _MS_MAX:
            return None
        return date(1970, 1, 1) + timedelta(days=milliseconds // 86_400_000)

    return per_distinct(convert, to_arrow(call.type))


def _from_unixtime(call: Call, context: EvaluationContext) -> Kernel:
    """Seconds since the epoch as text in the session's zone."""
    zone = zone_of(context.local_time_zone)
    pattern = constant(call.args[1]) if len(call.args) > 1 else DEFAULT_FORMAT
    if not isinstance(pattern, str):
        return per_distinct(lambda second, format_: _unixtime_text(second, format_, zone), pa.string())
    known = pattern
    _checked(known, legacy=True)
    if _needs_offset(known):
        by_value = per_distinct(lambda second, *_: _unixtime_text(second, known, zone), pa.string())
        return lambda number, *rest: by_value(_seconds(number, length_of(number, *rest)))

    def kernel(number: Vector, *rest: Vector) -> Vector:
        length = length_of(number, *rest)
        seconds = _seconds(number, length)
        local = zone.to_local(raw(seconds), 1)
        return _formatted(local, 1, validity(seconds), known, length, legacy=True)

    return kernel


def _seconds(number: Vector, length: int) -> Vector:
    """As BIGINT; milliseconds must fit a long, as in Java, or they wrap."""
    array = as_array(number, length)
    whole = array if pa.types.is_int64(array.type) else to_number(array, pa.int64())
    with np.errstate(over="ignore"):
        return from_raw(raw(whole) * np.int64(1000) // 1000, validity(whole), pa.int64(), length)


def _unixtime_text(second: int, pattern: str, zone: Zone) -> str:
    local = int(zone.to_local(np.array([second]), 1)[0])
    return write(parse_pattern(pattern, legacy=True), moment_of(local * 1_000_000_000, local - second), legacy=True)


def _unix_timestamp(call: Call, context: EvaluationContext) -> Kernel:
    """Local time in the session's zone (the later of two in an overlap) as seconds; the smallest BIGINT if it does not
    parse."""
    zone = zone_of(context.local_time_zone)

    def convert(text: str, pattern: str = DEFAULT_FORMAT) -> int:
        try:
            local = read_text(text, pattern)
        except BadPattern:
            return UNPARSED
        if local is None:
            return UNPARSED
        return int(zone.to_instant(np.array([local // 1000]), 1, later=True)[0])

    return per_distinct(convert, to_arrow(call.type))


KERNELS: dict[str, Builder] = {
    "DATE_FORMAT": _date_format,
    "DATE_FORMAT_TEXT": _date_format_text,
    "TO_TIMESTAMP": _to_timestamp,
    "TO_DATE": _to_date,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "TO_TIMESTAMP_LTZ_TEXT": _to_timestamp_ltz_text,
    "FROM_UNIXTIME": _from_unixtime,
    "UNIX_TIMESTAMP_TEXT": _unix_timestamp,
}
