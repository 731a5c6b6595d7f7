"""Values as Flink's `print` spells them: those of Java's toString, rows as `+I[a, b]`."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.arrow import Array, pc
from planner.ir.types import DataType, Field, TypeRoot, second_fraction_unit

ROW_KINDS = ("+I", "-U", "+U", "-D")
_ROW_KINDS: Array = pa.array(ROW_KINDS, pa.string())
_EPOCH = datetime.datetime(1970, 1, 1)


def lines(batch: pa.RecordBatch, columns: tuple[Field, ...], row_kinds: Array | None, prefix: str) -> list[str]:
    """One line per row, e.g. `+I[1, abc, null]`, behind the prefix."""
    kinds = _ROW_KINDS.take(row_kinds) if row_kinds is not None else None
    members = [_texts(array, column.type) for array, column in zip(batch.columns, columns, strict=True)]
    parts: list[Any] = [pa.scalar(prefix, pa.string()), kinds if kinds is not None else pa.scalar("+I", pa.string())]
    before = "["
    for member in members:
        parts += [pa.scalar(before, pa.string()), member]
        before = ", "
    parts.append(pa.scalar("]" if members else "[]", pa.string()))
    joined = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")
    if isinstance(joined, pa.Scalar):
        return [str(joined)] * batch.num_rows
    found: list[str] = joined.to_pylist()
    return found


def _texts(array: Array, t: DataType) -> Array:
    """The texts of a column; NULL stays NULL. Plain types by native casts, the others value by value."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if t.is_integer or t.is_character or t.root in (TypeRoot.BOOLEAN, TypeRoot.DATE, TypeRoot.DECIMAL):
        return array.cast(pa.string())
    units = array.cast(pa.int64()).to_pylist() if t.is_timestamp else array.to_pylist()
    return pa.array([None if value is None else spell(value, t) for value in units], pa.string())


def spell(value: Any, t: DataType) -> str:
    """One value that is not NULL. Timestamps come as whole units since 1970."""
    match t.root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return spell_real(value, t.root is TypeRoot.FLOAT)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
        case TypeRoot.TIME:
            return _time_text(value.hour, value.minute, value.second, value.microsecond * 1000)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp_text(value, t)
        case TypeRoot.ARRAY:
            assert t.element is not None
            return "[" + ", ".join(_member(element, t.element) for element in value) + "]"
        case TypeRoot.MAP | TypeRoot.MULTISET:
            key, item = (t.key, t.element) if t.root is TypeRoot.MAP else (t.element, DataType(TypeRoot.INTEGER))
            assert key is not None
            assert item is not None
            return "{" + ", ".join(f"{_member(k, key)}={_member(v, item)}" for k, v in value) + "}"
        case TypeRoot.ROW:
            return "+I[" + ", ".join(_member(value[field.name], field.type) for field in t.fields) + "]"
        case TypeRoot.INTERVAL_DAY_TIME:
            return _duration_text(value)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return _period_text(value)
        case _:
            return str(value)


def _member(value: Any, t: DataType) -> str:
    if value is None:
        return "null"
    if t.is_timestamp:
        microseconds = (value.replace(tzinfo=None) - _EPOCH) // datetime.timedelta(microseconds=1)
        value = microseconds * _units_per_second(t) // 1_000_000
    return spell(value, t)


def spell_real(value: float, single: bool) -> str:
    """java.lang.Double.toString, or Float.toString."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if single else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="0").split("e")
    return f"{mantissa}E{int(exponent)}"


def _time_text(hour: int, minute: int, second: int, nanosecond: int) -> str:
    """java.time.LocalTime.toString: seconds only when there are some, the fraction in threes of digits."""
    text = f"{hour:02}:{minute:02}"
    if second or nanosecond:
        text += f":{second:02}"
    if nanosecond:
        digits = f"{nanosecond:09}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += "." + digits
    return text


def _units_per_second(t: DataType) -> int:
    precision = t.precision if t.precision is not None else 6
    return {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[second_fraction_unit(precision)]


def _timestamp_text(units: int, t: DataType) -> str:
    """LocalDateTime.toString, and Instant.toString (always with seconds, in UTC) for TIMESTAMP_LTZ."""
    per_second = _units_per_second(t)
    seconds, fraction = divmod(units, per_second)
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    nanosecond = fraction * (1_000_000_000 // per_second)
    text = _time_text(moment.hour, moment.minute, moment.second, nanosecond)
    if t.root is TypeRoot.TIMESTAMP_LTZ:
        text = (text if len(text) > len("HH:mm") else text + ":00") + "Z"
    return f"{moment.date().isoformat()}T{text}"


def _duration_text(milliseconds: int) -> str:
    """java.time.Duration.toString."""
    if milliseconds == 0:
        return "PT0S"
    sign = "-" if milliseconds < 0 else ""
    seconds, rest = divmod(abs(milliseconds), 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    text = "PT"
    text += f"{sign}{hours}H" if hours else ""
    text += f"{sign}{minute}M" if minute else ""
    if second or rest:
        fraction = f".{rest:03}".rstrip("0") if rest else ""
        text += f"{sign}{second}{fraction}S"
    return text


def _period_text(months: int) -> str:
    """java.time.Period.toString."""
    sign = -1 if months < 0 else 1
    years, rest = divmod(abs(months), 12)
    text = (f"{sign * years}Y" if years else "") + (f"{sign * rest}M" if rest else "")
    return "P" + (text or "0D")
