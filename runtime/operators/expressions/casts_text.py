"""Text to values and values to text, as Java and Flink read and write them.

Parsers never raise: what is malformed is NULL. Plain forms (decided by a regular expression) go through Arrow's own
parsers, which cannot fail on them; everything else takes one Python call per distinct text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from planner.ir.types import INTEGER_BITS, DataType, TypeRoot, to_arrow
from runtime.operators.expressions import decimals
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.calendar import to_wall_clock, units_of
from runtime.operators.expressions.casts_time import rescale_time, rounding_down
from runtime.operators.expressions.civil import from_days
from runtime.operators.expressions.context import EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.digits import Part, fixed_width_text
from runtime.operators.expressions.time_text import date_of_text, time_of_text, timestamp_of_text
from runtime.operators.expressions.vectors import as_array, from_raw, length_of, null_of, raw, validity
from runtime.operators.expressions.zones import zone_of

_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` takes off: all characters up to the blank."""
_INTEGER = re.compile(r"[+-]?(?:([0-9]+)(?:\.[0-9]*)?|\.[0-9]*)")
_FLOAT = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*"
    r"[pP][+-]?[0-9]+[fFdD]?)"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WIDE = Context(prec=700)
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_PLAIN_DATE = r"^(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
_PLAIN_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"


def parser(target: DataType, context: EvaluationContext) -> Kernel | None:
    """The kernel text → `target`, None if there is none."""
    t = to_arrow(target)
    if target.root in INTEGER_BITS:
        return _integers(t)
    match target.root:
        case TypeRoot.BOOLEAN:
            return per_distinct(lambda text: _BOOLEANS.get(text.lower()), t)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _with_fast_path(r"^-?\d{1,15}(\.\d{1,15})?$", t, _float_of_text, t)
        case TypeRoot.DECIMAL:
            return per_distinct(_decimal_parser(t), t)
        case TypeRoot.DATE:
            return _with_fast_path(_PLAIN_DATE + "$", t, date_of_text, t)
        case TypeRoot.TIME:
            return per_distinct(time_of_text, t)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamps(target, context)
        case _:
            return None


def _with_fast_path(plain: str, fast: ArrowType, slow: Callable[[str], Any], result: ArrowType) -> Kernel:
    """Texts of the plain form by Arrow's cast, the others by `slow`."""
    by_value = per_distinct(slow, result)

    def kernel(vector: Vector) -> Vector:
        array = as_array(vector, length_of(vector))
        is_plain = pc.match_substring_regex(array, plain)
        count = is_plain.true_count
        if count == len(array) - array.null_count:
            return pc.cast(array, fast)
        others = by_value(pc.if_else(is_plain, null_of(pa.string()), array))
        if count == 0:
            return others
        return pc.coalesce(pc.cast(pc.if_else(is_plain, array, null_of(pa.string())), fast), others)

    return kernel


def _integers(t: ArrowType) -> Kernel:
    low, high = -(2 ** (t.bit_width - 1)), 2 ** (t.bit_width - 1) - 1
    lowest, highest = pa.scalar(low, pa.int64()), pa.scalar(high, pa.int64())

    def slow(text: str) -> int | None:
        match = _INTEGER.fullmatch(text.strip(_BLANKS))
        if match is None:
            return None
        value = int(match.group(1) or "0")
        value = -value if match.group(0).startswith("-") else value
        return value if low <= value <= high else None

    if t.bit_width == 64:
        return _with_fast_path(r"^-?\d{1,18}$", t, slow, t)
    wide = _with_fast_path(r"^-?\d{1,18}$", pa.int64(), slow, pa.int64())

    def kernel(vector: Vector) -> Vector:
        values = wide(vector)
        fits = pc.and_(pc.greater_equal(values, lowest), pc.less_equal(values, highest))
        return pc.cast(pc.if_else(fits, values, null_of(pa.int64())), t)

    return kernel


def _float_of_text(text: str) -> float | None:
    trimmed = text.strip(_BLANKS)
    if not _FLOAT.fullmatch(trimmed):
        return None
    bare = trimmed.lstrip("+-")
    if bare[:2] in ("0x", "0X"):
        return float.fromhex(trimmed.rstrip("fFdD"))
    return float(trimmed if bare in ("NaN", "Infinity") else trimmed.rstrip("fFdD"))


def _decimal_parser(t: ArrowType) -> Callable[[str], Decimal | None]:
    limit, quantum = 10**t.precision, Decimal(1).scaleb(-t.scale)

    def parse(text: str) -> Decimal | None:
        trimmed = text.strip(_BLANKS)
        if not _DECIMAL.fullmatch(trimmed):
            return None
        number = Decimal(trimmed)
        if number.adjusted() > 2 * decimals.PRECISION_MAX:
            return None
        rounded = number.quantize(quantum, ROUND_HALF_UP, _WIDE)
        return rounded if rounded.scaleb(t.scale, _WIDE).copy_abs() < limit else None

    return parse


def _timestamps(target: DataType, context: EvaluationContext) -> Kernel:
    """`yyyy-MM-dd[ HH:mm:ss[.fffffffff]]`, read in the session's zone for LTZ."""
    t, units, finish = to_arrow(target), units_of(target), rounding_down(target)
    zone = zone_of(context.local_time_zone) if target.root is TypeRoot.TIMESTAMP_LTZ else None
    microseconds = _with_fast_path(
        _PLAIN_DATE + " " + _PLAIN_TIME + "$", pa.timestamp("us"), _microseconds_of_text, pa.timestamp("us")
    )
    nanoseconds = per_distinct(_nanoseconds_of_text, pa.int64())

    def kernel(vector: Vector) -> Vector:
        if units == 1_000_000_000:
            parsed = nanoseconds(vector)
            values = raw(parsed)
        else:
            parsed = microseconds(vector)
            values = rescale_time(raw(parsed), 1_000_000, units)[0]
        values = finish(values)
        values = zone.to_instant(values, units) if zone is not None else values
        return from_raw(values, validity(parsed), t, len(parsed))

    return kernel


def _microseconds_of_text(text: str) -> int | None:
    nanoseconds = timestamp_of_text(text)
    return None if nanoseconds is None else nanoseconds // 1000


def _nanoseconds_of_text(text: str) -> int | None:
    """NULL for a year that nanoseconds in 64 bits cannot hold (with a day to spare for the zone)."""
    value = timestamp_of_text(text)
    return value if value is not None and abs(value) < 2**63 - 86_400_000_000_000 else None


def to_text(source: DataType, context: EvaluationContext) -> Kernel:
    """The kernel value → text."""
    t: ArrowType = to_arrow(source)
    if source.root in INTEGER_BITS:
        return lambda vector: pc.cast(vector, pa.string())
    match source.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return lambda vector: vector
        case TypeRoot.BOOLEAN:
            true, false = pa.scalar("TRUE"), pa.scalar("FALSE")
            return lambda vector: pc.if_else(vector, true, false)
        case TypeRoot.FLOAT:
            return per_distinct(lambda value: java_text(np.float32(value)), pa.string())
        case TypeRoot.DOUBLE:
            return per_distinct(lambda value: java_text(np.float64(value)), pa.string())
        case TypeRoot.DECIMAL:
            if t.scale <= 6:
                return lambda vector: pc.cast(vector, pa.string())
            return per_distinct(lambda value: format(value, "f"), pa.string())
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return per_distinct(lambda value: value.decode("utf-8", "replace"), pa.string())
        case TypeRoot.DATE | TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _time_text(source, context)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return per_distinct(_months_text, pa.string())
        case TypeRoot.INTERVAL_DAY_TIME:
            return per_distinct(_milliseconds_text, pa.string())
        case _:
            raise UnsupportedExpression(f"CAST from {source.sql()} to STRING is not supported")


def java_text(value: np.float32 | np.float64) -> str:
    """Java's `Double.toString` and `Float.toString`: the shortest digits that give the number back (of two digits at
    least), plain from 1e-3 to 1e7, else `d.dddE±n`."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    shortest = Decimal(str(value))
    if len(shortest.as_tuple().digits) == 1:
        closest = f"{float(value):.1e}"
        shortest = Decimal(closest) if type(value)(closest) == value else shortest
    sign, digit_tuple, exponent = shortest.as_tuple()
    digits = "".join(map(str, digit_tuple))
    assert isinstance(exponent, int)
    prefix = "-" if sign else ""
    if digits.strip("0") == "":
        return prefix + "0.0"
    point = len(digits) + exponent
    digits = digits.rstrip("0")
    if -3 < point <= 7:
        if point <= 0:
            return f"{prefix}0.{'0' * -point}{digits}"
        return f"{prefix}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{prefix}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _months_text(months: int) -> str:
    return f"{'-' if months < 0 else '+'}{abs(months) // 12}-{abs(months) % 12:02d}"


def _milliseconds_text(milliseconds: int) -> str:
    days, rest = divmod(abs(milliseconds), 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    sign = "-" if milliseconds < 0 else "+"
    return f"{sign}{days} {hours:02d}:{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def _time_text(source: DataType, context: EvaluationContext) -> Kernel:
    """`yyyy-MM-dd`, `HH:mm:ss`, `yyyy-MM-dd HH:mm:ss[.f…]` with as many digits as the type's precision."""
    read, units = to_wall_clock(source, context), units_of(source)
    precision = source.precision if source.precision is not None else (0 if source.root is TypeRoot.TIME else 6)
    with_date, with_time = source.root is not TypeRoot.TIME, source.root is not TypeRoot.DATE

    def kernel(vector: Vector) -> Vector:
        values, valid, length = read(vector), validity(vector), length_of(vector)
        if valid is not None:
            values = np.where(valid, values, 0)
        parts: list[Part] = []
        if with_date:
            date = from_days(values // (86_400 * units))
            year_digits = max(4, len(str(int(date.year.max())))) if length else 4
            if length and (int(date.year.min()) < 0 or year_digits > 4):
                return _wide_years(values, units, valid, precision if with_time else None)
            parts += [(date.year, 4), b"-", (date.month, 2), b"-", (date.day, 2)]
        if with_time:
            seconds = values // units
            parts += [b" "] if with_date else []
            parts += [(seconds // 3600 % 24, 2), b":", (seconds // 60 % 60, 2), b":", (seconds % 60, 2)]
            if precision:
                parts += [b".", (values % units * 10**precision // units, precision)]
        return fixed_width_text(parts, valid, length)

    return kernel


def _wide_years(values: Any, units: int, valid: Any, precision: int | None) -> Vector:
    """Rows with years outside 0..9999, one by one."""
    texts: list[str | None] = []
    dates = from_days(values // (86_400 * units))
    known = np.ones(len(values), np.bool_) if valid is None else np.broadcast_to(valid, len(values))
    for is_known, value, year, month, day in zip(known, values.tolist(), *(x.tolist() for x in dates), strict=True):
        if not is_known:
            texts.append(None)
            continue
        text = f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"
        if precision is not None:
            seconds = value // units
            text += f" {seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            if precision:
                text += f".{value % units * 10**precision // units:0{precision}d}"
        texts.append(text)
    return pa.array(texts, pa.string())
