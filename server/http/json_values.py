"""Columns to the values of the JSON row format, recursively and a whole column at a time.

Values as Flink's gateway writes them: DECIMAL as an exact number with its scale, NaN and infinities as text, BYTES
as base64, times in ISO-8601, intervals as months or milliseconds, MAP and ROW as objects. What JSON cannot hold (a
MULTISET, a map whose key is no text) raises `UnmappableValueError`; the other row format can show it.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import orjson
import pyarrow as pa

from planner.ir.types import DataType, TypeRoot
from server.http.arrow_text import (
    decimal_texts,
    list_offsets,
    map_children,
    texts,
    time_texts,
    timestamp_texts,
    without_trailing_zeros,
)


class UnmappableValueError(Exception):
    """The JSON row format has no form for the type."""


def json_values(array: pa.Array[Any], t: DataType, zone: str) -> list[Any]:
    """One value per row, ready for orjson; `zone` is the time zone TIMESTAMP_LTZ is shown in."""
    match t.root:
        case TypeRoot.DECIMAL:
            return [None if v is None else orjson.Fragment(v) for v in decimal_texts(array)]
        case TypeRoot.FLOAT:
            # Through the shortest text of the 32-bit value: 1.1, not 1.10000002384.
            return [None if v is None else _finite(float(v)) for v in texts(array)]
        case TypeRoot.DOUBLE:
            return [None if v is None else _finite(v) for v in array.to_pylist()]
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
        case TypeRoot.DATE:
            return list(texts(array))
        case TypeRoot.TIME:
            return list(without_trailing_zeros(time_texts(array, t)))
        case TypeRoot.TIMESTAMP:
            return [None if v is None else v.replace(" ", "T", 1) for v in _shortest(array, t, zone)]
        case TypeRoot.TIMESTAMP_LTZ:
            # Flink shifts to the session's zone and still writes Z; its JDBC driver undoes nothing.
            return [None if v is None else v.replace(" ", "T", 1) + "Z" for v in _shortest(array, t, zone)]
        case TypeRoot.ARRAY:
            return _arrays(array, t, zone)
        case TypeRoot.MAP:
            return _maps(array, t, zone)
        case TypeRoot.ROW:
            return _rows(array, t, zone)
        case TypeRoot.MULTISET:
            raise UnmappableValueError(t.summary())
        case _:
            return array.to_pylist()


def _shortest(array: pa.Array[Any], t: DataType, zone: str) -> list[str | None]:
    return without_trailing_zeros(timestamp_texts(array, t, zone))


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _arrays(array: pa.Array[Any], t: DataType, zone: str) -> list[Any]:
    assert t.element is not None
    offsets, child = list_offsets(array)
    values = json_values(child, t.element, zone)
    valid = array.is_valid().to_pylist()
    return [values[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(array))]


def _maps(array: pa.Array[Any], t: DataType, zone: str) -> list[Any]:
    assert t.key is not None
    assert t.element is not None
    if not t.key.is_character:
        raise UnmappableValueError(t.summary())
    offsets, key_array, item_array = map_children(array)
    keys = json_values(key_array, t.key, zone)
    items = json_values(item_array, t.element, zone)
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(keys[offsets[i] : offsets[i + 1]], items[offsets[i] : offsets[i + 1]], strict=True))
        if valid[i]
        else None
        for i in range(len(array))
    ]


def _rows(array: pa.Array[Any], t: DataType, zone: str) -> list[Any]:
    assert isinstance(array, pa.StructArray)
    names = [f.name for f in t.fields]
    members = [json_values(array.field(i), f.type, zone) for i, f in enumerate(t.fields)]
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, values, strict=True)) if is_valid else None
        for is_valid, values in zip(valid, zip(*members, strict=True), strict=True)
    ]
