"""Literals: their types, their values in the IR's encoding, and casts of literals that need no kernel."""

from __future__ import annotations

import calendar
import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

from planner.analysis.type_rules import DECIMAL_PRECISION_MAX, plain
from planner.errors import Span, SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Expression, Literal
from planner.ir.types import DataType, TypeRoot

_INT_RANGE = (-(2**31), 2**31 - 1)
_BIGINT_RANGE = (-(2**63), 2**63 - 1)
_INTEGER_RANGES = {root: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for root, bits in t.INTEGER_BITS.items()}
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?")
_MS_PER = {"WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_MONTHS_PER = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_WIDE = Context(prec=80)


def number_literal(text: str, span: Span) -> Literal:
    """`1` is INT (BIGINT, then DECIMAL, as it grows), `1.5` DECIMAL(2, 1), `1e0` DOUBLE; all NOT NULL."""
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise SqlError(SqlState.NUMERIC_OUT_OF_RANGE, f"{text} is out of the range of DOUBLE", span=span)
        return Literal(number, t.DOUBLE.with_nullable(False))
    if "." not in text:
        return integer_literal(int(text), span)
    whole, _, fraction = text.partition(".")
    # The precision counts every digit as written: 0.001 is DECIMAL(4, 3), .001 is DECIMAL(3, 3).
    digits = len(whole) + len(fraction)
    if digits > DECIMAL_PRECISION_MAX:
        message = f"the number has more than {DECIMAL_PRECISION_MAX} digits"
        raise SqlError(SqlState.NUMERIC_OUT_OF_RANGE, message, span=span)
    value = f"{whole or '0'}.{fraction}" if fraction else whole
    return Literal(value, t.decimal(digits, len(fraction)).with_nullable(False))


def integer_literal(value: int, span: Span) -> Literal:
    if _INT_RANGE[0] <= value <= _INT_RANGE[1]:
        return Literal(value, t.INT.with_nullable(False))
    if _BIGINT_RANGE[0] <= value <= _BIGINT_RANGE[1]:
        return Literal(value, t.BIGINT.with_nullable(False))
    digits = len(str(abs(value)))
    if digits > DECIMAL_PRECISION_MAX:
        message = f"the number has more than {DECIMAL_PRECISION_MAX} digits"
        raise SqlError(SqlState.NUMERIC_OUT_OF_RANGE, message, span=span)
    return Literal(str(value), t.decimal(digits, 0).with_nullable(False))


def text_literal(text: str) -> Literal:
    """CHAR(n) NOT NULL, with n in Java's characters: a code point above U+FFFF counts as two."""
    return Literal(text, t.char(_java_length(text)).with_nullable(False))


def _java_length(text: str) -> int:
    return len(text) + sum(ord(c) > 0xFFFF for c in text)


def null_literal(type_: DataType = t.NULL) -> Literal:
    return Literal(None, plain(type_).with_nullable(True))


def negated(literal: Literal, span: Span) -> Literal | None:
    """`-literal` for numbers and intervals; None for what is no such literal."""
    value = literal.value
    if isinstance(value, bool) or value is None:
        return None
    if literal.type.is_integer and isinstance(value, int):
        return integer_literal(-value, span)
    if literal.type.root is TypeRoot.DECIMAL and isinstance(value, str):
        flipped = value[1:] if value.startswith("-") else f"-{value}"
        if (literal.type.scale or 0) == 0:
            # The sign may bring a number back into an integer's range, as in -9223372036854775808.
            return integer_literal(int(flipped), span)
        return Literal(flipped, literal.type)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Literal(-value, literal.type)
    return None


# -- date, time, interval -----------------------------------------------------------------------------


def temporal_literal(kind: str, text: str, span: Span) -> Literal:
    """`DATE '…'`, `TIME '…'` or `TIMESTAMP '…'`; NOT NULL, precision as many digits as are written."""
    match kind:
        case "DATE":
            match = _TIMESTAMP.fullmatch(text.strip())
            if match is None or match[4] is not None:
                raise _bad_datetime(kind, text, "yyyy-MM-dd", span)
            return Literal(_days(match, kind, text, span), t.DATE.with_nullable(False))
        case "TIME":
            match = _TIME.fullmatch(text.strip())
            if match is None:
                raise _bad_datetime(kind, text, "HH:mm:ss[.fff]", span)
            nanos = _nanos_of_day(match.groups(), kind, text, span)
            precision = min(len(match[4] or ""), 3)
            return Literal(nanos // 1_000_000, t.time(precision).with_nullable(False))
        case _:
            match = _TIMESTAMP.fullmatch(text.strip())
            if match is None:
                raise _bad_datetime(kind, text, "yyyy-MM-dd HH:mm:ss[.fffffffff]", span)
            days = _days(match, kind, text, span)
            nanos = _nanos_of_day(match.groups()[3:], kind, text, span)
            precision = len(match[7] or "")
            return Literal(_in_unit(days, nanos, precision), t.timestamp(precision).with_nullable(False))


def _in_unit(days: int, nanos: int, precision: int) -> int:
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[t.second_fraction_unit(precision)]
    return days * 86_400 * per_second + nanos // (10**9 // per_second)


def _days(match: re.Match[str], kind: str, text: str, span: Span) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not (1 <= month <= 12 and year >= 1 and 1 <= day <= calendar.monthrange(year, month)[1]):
        raise _bad_datetime(kind, text, "a day of the calendar", span)
    return calendar.timegm((year, month, day, 0, 0, 0)) // 86_400


def _nanos_of_day(parts: tuple[str | None, ...], kind: str, text: str, span: Span) -> int:
    hour, minute, second = (int(p or 0) for p in parts[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise _bad_datetime(kind, text, "a time of the day", span)
    fraction = (parts[3] or "").ljust(9, "0")
    return ((hour * 60 + minute) * 60 + second) * 10**9 + int(fraction)


def _bad_datetime(kind: str, text: str, expected: str, span: Span) -> SqlError:
    return SqlError(SqlState.INVALID_DATETIME, f"{kind} '{text}' is not {expected}", span=span)


def interval_literal(text: str, unit: str, to: str | None, negative: bool, span: Span) -> Literal:
    """`INTERVAL '1-2' YEAR TO MONTH`, `INTERVAL '1 02:03:04.5' DAY TO SECOND`, `INTERVAL '5' MINUTE`."""
    body = text.strip()
    sign = -1 if negative else 1
    if body[:1] in ("-", "+"):
        sign = -sign if body[0] == "-" else sign
        body = body[1:]
    is_months = unit in _MONTHS_PER
    if to is None:
        value = _single_interval(body, unit)
    elif is_months:
        value = _year_to_month(body, unit, to)
    else:
        value = _day_to_second(body, unit, to)
    if value is None:
        shape = unit if to is None else f"{unit} TO {to}"
        message = f"INTERVAL '{text}' is not a value of {shape}"
        raise SqlError(SqlState.INVALID_DATETIME, message, span=span)
    type_ = t.INTERVAL_YEAR_MONTH if is_months else t.INTERVAL_DAY_TIME
    return Literal(sign * value, type_.with_nullable(False))


def _single_interval(body: str, unit: str) -> int | None:
    if unit in _MONTHS_PER:
        return int(body) * _MONTHS_PER[unit] if body.isdigit() else None
    pattern = r"(\d+)(?:\.(\d+))?" if unit == "SECOND" else r"(\d+)()"
    match = re.fullmatch(pattern, body)
    if match is None:
        return None
    fraction_ms = int((match[2] or "").ljust(3, "0")[:3]) if match[2] else 0
    return int(match[1]) * _MS_PER[unit] + fraction_ms


def _year_to_month(body: str, unit: str, to: str) -> int | None:
    match = re.fullmatch(r"(\d+)-(\d{1,2})", body)
    if (unit, to) != ("YEAR", "MONTH") or match is None or int(match[2]) > 11:
        return None
    return int(match[1]) * 12 + int(match[2])


_DAY_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_UNIT_PATTERNS = {"DAY": r"(\d+)", "HOUR": r"(\d+)", "MINUTE": r"(\d+)", "SECOND": r"(\d+(?:\.\d+)?)"}


def _day_to_second(body: str, unit: str, to: str) -> int | None:
    if unit not in _DAY_UNITS or to not in _DAY_UNITS or _DAY_UNITS.index(to) <= _DAY_UNITS.index(unit):
        return None
    units = _DAY_UNITS[_DAY_UNITS.index(unit) : _DAY_UNITS.index(to) + 1]
    pattern = ""
    for i, name in enumerate(units):
        separator = "" if i == 0 else (r"\s+" if units[i - 1] == "DAY" else ":")
        pattern += separator + _UNIT_PATTERNS[name]
    match = re.fullmatch(pattern, body)
    if match is None:
        return None
    return sum(int(Decimal(match[i + 1]) * _MS_PER[name]) for i, name in enumerate(units))


# -- casts of literals --------------------------------------------------------------------------------


def cast_literal(literal: Literal, target: DataType) -> Expression | None:
    """`literal` as a literal of `target`, where that is exact and cannot fail; None otherwise."""
    target = plain(target).with_nullable(literal.type.nullable)
    value = literal.value
    if value is None:
        return Literal(None, target.with_nullable(True))
    if literal.type.is_integer or literal.type.root is TypeRoot.DECIMAL:
        return _cast_number(value, target)
    if literal.type.is_character and isinstance(value, str):
        if target.root is TypeRoot.VARCHAR and _java_length(value) <= (target.length or 0):
            return Literal(value, target)
        if target.root is TypeRoot.CHAR and _java_length(value) == target.length:
            return Literal(value, target)
    return None


def _cast_number(value: bool | int | float | str | bytes, target: DataType) -> Literal | None:
    number = Decimal(str(value))
    if target.root in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[target.root]
        if number == number.to_integral_value() and low <= number <= high:
            return Literal(int(number), target)
        return None
    if target.root is TypeRoot.DOUBLE:
        return Literal(float(number), target)
    if target.root is TypeRoot.DECIMAL:
        scale, precision = target.scale or 0, target.precision or 0
        if abs(number) >= Decimal(10) ** (precision - scale):
            return None
        rounded = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_WIDE)
        return Literal(f"{rounded:f}", target) if rounded == number else None
    return None
