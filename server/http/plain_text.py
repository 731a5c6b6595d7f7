"""Columns to the texts of the PLAIN_TEXT row format: what CAST(… AS STRING) gives, with NULL as null."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from planner.ir.types import DataType, TypeRoot
from server.http.arrow_text import (
    Texts,
    decimal_texts,
    list_offsets,
    map_children,
    texts,
    time_texts,
    timestamp_texts,
)

MS_PER_DAY = 86_400_000


def plain_texts(array: pa.Array[Any], t: DataType, zone: str) -> Texts:
    """One text per row; `zone` is the time zone TIMESTAMP_LTZ is shown in."""
    match t.root:
        case TypeRoot.BOOLEAN:
            return [None if v is None else ("TRUE" if v else "FALSE") for v in array.to_pylist()]
        case TypeRoot.DECIMAL:
            return decimal_texts(array)
        case TypeRoot.FLOAT:
            return [None if v is None else java_double(float(v), shortest=v) for v in texts(array)]
        case TypeRoot.DOUBLE:
            return [None if v is None else java_double(v) for v in array.to_pylist()]
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return [None if v is None else f"x'{v.hex()}'" for v in array.to_pylist()]
        case TypeRoot.TIME:
            return time_texts(array, t)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return timestamp_texts(array, t, zone)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return [None if v is None else _months(v) for v in array.to_pylist()]
        case TypeRoot.INTERVAL_DAY_TIME:
            return [None if v is None else _milliseconds(v) for v in array.to_pylist()]
        case TypeRoot.ARRAY:
            return _arrays(array, t, zone)
        case TypeRoot.MAP | TypeRoot.MULTISET:
            return _maps(array, t, zone)
        case TypeRoot.ROW:
            return _rows(array, t, zone)
        case TypeRoot.NULL:
            return [None] * len(array)
        case _:
            return texts(array)


def java_double(value: float, *, shortest: str | None = None) -> str:
    """A floating-point number as Java prints it: `1.0E20`, `1.5`, `NaN`. `shortest` overrides Python's digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(shortest or repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent
    prefix = "-" if sign else ""
    if -3 < point <= 7:
        if point <= 0:
            return f"{prefix}0.{'0' * -point}{text}"
        return f"{prefix}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{prefix}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _months(months: int) -> str:
    sign = "-" if months < 0 else "+"
    return f"{sign}{abs(months) // 12}-{abs(months) % 12:02d}"


def _milliseconds(value_ms: int) -> str:
    sign = "-" if value_ms < 0 else "+"
    days, rest_ms = divmod(abs(value_ms), MS_PER_DAY)
    seconds, ms = divmod(rest_ms, 1000)
    return f"{sign}{days} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}"


def _nested(values: Texts) -> list[str]:
    return ["NULL" if v is None else v for v in values]


def _arrays(array: pa.Array[Any], t: DataType, zone: str) -> Texts:
    assert t.element is not None
    offsets, child = list_offsets(array)
    values = _nested(plain_texts(child, t.element, zone))
    valid = array.is_valid().to_pylist()
    return [f"[{', '.join(values[offsets[i] : offsets[i + 1]])}]" if valid[i] else None for i in range(len(array))]


def _maps(array: pa.Array[Any], t: DataType, zone: str) -> Texts:
    """Maps, and multisets as maps of element to count."""
    key_type = t.element if t.root is TypeRoot.MULTISET else t.key
    item_type = DataType(TypeRoot.INTEGER) if t.root is TypeRoot.MULTISET else t.element
    assert key_type is not None
    assert item_type is not None
    offsets, key_array, item_array = map_children(array)
    keys = _nested(plain_texts(key_array, key_type, zone))
    items = _nested(plain_texts(item_array, item_type, zone))
    entries = [f"{k}={v}" for k, v in zip(keys, items, strict=True)]
    valid = array.is_valid().to_pylist()
    return [f"{{{', '.join(entries[offsets[i] : offsets[i + 1]])}}}" if valid[i] else None for i in range(len(array))]


def _rows(array: pa.Array[Any], t: DataType, zone: str) -> Texts:
    assert isinstance(array, pa.StructArray)
    members = [_nested(plain_texts(array.field(i), f.type, zone)) for i, f in enumerate(t.fields)]
    valid = array.is_valid().to_pylist()
    return [
        f"({', '.join(values)})" if is_valid else None
        for is_valid, values in zip(valid, zip(*members, strict=True), strict=True)
    ]
