"""From texts to values of the declared types, as Flink's CSV format reads them.

Texts in the usual spelling go through Arrow's casts; each distinct other one is read by the rules of the Java
method that Flink calls (Integer.parseInt, Double.parseDouble, BigDecimal, Date.valueOf, LocalTime.parse, …).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.arrow import Array, list_offsets, pc
from planner.ir.types import INTEGER_BITS, DataType, TypeRoot, second_fraction_unit, to_arrow

Mask = npt.NDArray[np.bool_]
Parse = Callable[[str], Any]
_DAY = "[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"  # but no 02-29
_NEVER = "^$ $"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?)")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_LOCAL_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?")
_TIMESTAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9:]{8})(?:\.([0-9]{1,9}))?")
_WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
_EPOCH = dt.date(1970, 1, 1)


def converted(texts: Array, t: DataType, element_delimiter: str) -> tuple[Array, Mask]:
    """Values of the declared type, and which texts are none (their value is NULL)."""
    match t.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return texts, np.zeros(len(texts), np.bool_)
        case TypeRoot.BOOLEAN:
            # Boolean.parseBoolean: what is not "true" is false.
            return pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), "true"), np.zeros(len(texts), np.bool_)
        case TypeRoot.ARRAY:
            return _arrays(texts, t, element_delimiter)
        case TypeRoot.ROW:
            return _rows(texts, t, element_delimiter)
        case _:
            return _scalars(texts, t)


def _scalars(texts: Array, t: DataType) -> tuple[Array, Mask]:
    usual, cast, parse = _road(t)
    kind = to_arrow(t)
    bad = np.zeros(len(texts), np.bool_)
    is_usual = pc.match_substring_regex(texts, usual).fill_null(True)
    if pc.all(is_usual, min_count=0).as_py():
        return cast(texts), bad
    values = cast(pc.if_else(is_usual, texts, pa.scalar(None, pa.string())))
    others = pc.invert(is_usual)
    spelled = texts.filter(others).dictionary_encode()
    found, wrong = [], []
    for text in spelled.dictionary.to_pylist():
        try:
            found.append(parse(text))
            wrong.append(False)
        except (ValueError, OverflowError, ArithmeticError):
            found.append(None)
            wrong.append(True)
    codes = spelled.indices
    values = pc.replace_with_mask(values, others, pa.array(found, _parsed_type(kind)).cast(kind).take(codes))
    bad[others.to_numpy(zero_copy_only=False)] = np.array(wrong, np.bool_)[codes.to_numpy()]
    return values, bad


def _parsed_type(kind: Any) -> Any:
    """What parsed values are handed to Arrow as: times are counts of their unit."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return kind


def _road(t: DataType) -> tuple[str, Callable[[Array], Array], Parse]:
    """Of a scalar type: the usual spelling, the cast for it, and how one text of any spelling is read."""
    kind: Any = to_arrow(t)
    match t.root:
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$", lambda texts: texts.cast(kind), _double
        case TypeRoot.DECIMAL:
            assert t.precision is not None
            scale = t.scale or 0
            whole = t.precision - scale
            usual = rf"^-?[0-9]{{1,{whole}}}(\.[0-9]{{1,{scale}}})?$" if whole and scale else r"^-?[0-9]$"
            if whole == 0:
                usual = _NEVER
            return usual, lambda texts: texts.cast(kind), lambda text: _decimal(text, t.precision or 0, scale)
        case TypeRoot.DATE:
            return f"^{_DAY}$", lambda texts: texts.cast(kind), _date
        case TypeRoot.TIME:
            return f"^{_TIME}$", lambda texts: _times(texts, kind), lambda text: _time(text, kind, t.precision or 0)
        case TypeRoot.TIMESTAMP:
            usual = _usual_timestamp(t, "")
            return usual, lambda texts: texts.cast(kind), lambda text: _timestamp(text, t)
        case TypeRoot.TIMESTAMP_LTZ:
            usual = _usual_timestamp(t, "Z")
            return usual, lambda texts: _instants(texts, kind), lambda text: _instant(text, t)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return "^$", lambda texts: texts.cast(pa.binary()), _bytes
        case _:
            bits = INTEGER_BITS[t.root]
            digits = {8: 2, 16: 4, 32: 9, 64: 18}[bits]
            return f"^-?[0-9]{{1,{digits}}}$", lambda texts: texts.cast(kind), lambda text: _integer(text, bits)


def _usual_timestamp(t: DataType, suffix: str) -> str:
    precision = 6 if t.precision is None else t.precision
    if precision > 6:
        return _NEVER  # Nanoseconds end in the year 2262.
    fraction = rf"(\.[0-9]{{1,{precision}}})?" if precision else ""
    return f"^{_DAY} {_TIME}{fraction}{suffix}$"


def _integer(text: str, bits: int) -> int:
    text = text.strip()
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _double(text: str) -> float:
    text = text.strip()
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    if text[-1] in "fFdD" and not text.endswith("Infinity"):
        text = text[:-1]
    return float(text)


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """NULL where the value has too many digits, as everywhere."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    value = Decimal(text)
    if value and value.adjusted() > precision:
        return None
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return rounded if len(rounded.as_tuple().digits) <= precision or not rounded else None


def _date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError(text)
    year, month, day = (int(part) for part in found.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(text)
    # java.sql.Date.valueOf goes on into the next month.
    return (dt.date(year, month, 1) - _EPOCH).days + day - 1


def _time(text: str, kind: Any, precision: int) -> int:
    found = _LOCAL_TIME.fullmatch(text)
    if not found:
        raise ValueError(text)
    hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole if kind.unit == "s" else whole * 1000 + int((fraction or "")[: min(precision, 3)].ljust(3, "0"))


def _timestamp(text: str, t: DataType) -> int:
    """A count of the type's unit; digits beyond the precision are cut off."""
    found = _TIMESTAMP.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    year, month, day, time, fraction = found.groups()
    clock = _LOCAL_TIME.fullmatch(time)
    if not clock:
        raise ValueError(text)
    precision = t.precision if t.precision is not None else 6
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[second_fraction_unit(precision)]
    days = (dt.date(int(year), int(month), int(day)) - _EPOCH).days
    seconds = days * 86_400 + (int(clock[1]) * 60 + int(clock[2])) * 60 + int(clock[3] or 0)
    part = (fraction or "")[:precision].ljust(digits, "0")[:digits]
    count = seconds * int(10**digits) + int(part or 0)
    if not -(1 << 63) <= count < 1 << 63:
        raise OverflowError(text)
    return count


def _instant(text: str, t: DataType) -> int:
    text = text.strip()
    if not text.endswith("Z"):
        raise ValueError(text)
    return _timestamp(text[:-1], t)


def _times(texts: Array, kind: Any) -> Array:
    # Arrow reads no times of day, but instants.
    first_day = pa.scalar("1970-01-01", pa.string())
    moments = pc.binary_join_element_wise(first_day, texts, pa.scalar(" ", pa.string()))
    return moments.cast(pa.timestamp("s")).cast(pa.time32("s")).cast(kind)


def _instants(texts: Array, kind: Any) -> Array:
    plain = pc.utf8_slice_codeunits(texts, 0, -1)
    return plain.cast(pa.timestamp(kind.unit)).view(kind)


def _bytes(text: str) -> bytes:
    if len(text) % 4:
        raise binascii.Error(text)
    return base64.b64decode(text, validate=True)


def _arrays(texts: Array, t: DataType, delimiter: str) -> tuple[Array, Mask]:
    """Elements between delimiters; an empty text is an array without any."""
    assert t.element is not None
    parts, counts = _parts(texts, delimiter)
    elements, wrong = converted(parts, t.element, delimiter)
    owners = np.repeat(np.arange(len(texts)), counts)
    bad = np.zeros(len(texts), np.bool_)
    bad[owners[wrong]] = True
    kind: Any = to_arrow(t)
    values = pa.ListArray.from_arrays(list_offsets(counts), elements, type=kind, mask=texts.is_null())
    return values, bad


def _rows(texts: Array, t: DataType, delimiter: str) -> tuple[Array, Mask]:
    """Fields between delimiters; an empty text is NULL, a field that is not there too, and the text then none."""
    parts, counts = _parts(texts, delimiter)
    firsts = np.cumsum(counts) - counts
    bad: Mask = (counts != len(t.fields)) & texts.is_valid().to_numpy(zero_copy_only=False)
    members = []
    for number, field in enumerate(t.fields):
        has = counts > number
        places = pa.array(np.where(has, firsts + number, 0), mask=~has)
        values, wrong = converted(parts.take(places), field.type, delimiter)
        members.append(values)
        bad |= wrong
    kind: Any = to_arrow(t)
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=pa.array(counts == 0)), bad


def _parts(texts: Array, delimiter: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """The parts of all texts, and how many each has."""
    lists = pc.split_pattern(texts, delimiter)
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.equal(texts, "").fill_null(False).to_numpy(zero_copy_only=False)
    parts = lists.flatten()
    if empty.any():
        kept = np.repeat(~empty, counts)
        parts, counts = parts.filter(pa.array(kept)), np.where(empty, 0, counts)
    return parts, counts
