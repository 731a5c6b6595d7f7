"""Text of Arrow columns that both row formats share, a whole column at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.ir.types import DataType, TypeRoot

Texts = list[str | None]


def texts(array: pa.Array[Any]) -> Texts:
    """Arrow's own text of each value, NULL as None."""
    values: Texts = pc.cast(array, pa.string()).to_pylist()
    return values


def timestamp_texts(array: pa.Array[Any], t: DataType, zone: str) -> Texts:
    """`yyyy-MM-dd HH:mm:ss[.f…]` with exactly the type's precision; TIMESTAMP_LTZ as local time of `zone`."""
    if t.root is TypeRoot.TIMESTAMP_LTZ:
        unit = array.type.unit
        zoned = array.cast(pa.timestamp(unit, tz=zone))
        array = pc.call_function("local_timestamp", [zoned])
    return _with_precision(texts(array), t.precision if t.precision is not None else 6, len("2024-02-29 12:34:56"))


def time_texts(array: pa.Array[Any], t: DataType) -> Texts:
    """`HH:mm:ss[.f…]` with exactly the type's precision."""
    return _with_precision(texts(array), t.precision or 0, len("12:34:56"))


def _with_precision(values: Texts, precision: int, seconds_end: int) -> Texts:
    end = seconds_end + 1 + precision if precision else seconds_end
    return [None if v is None else v[:end] for v in values]


def without_trailing_zeros(values: Texts) -> Texts:
    """The fraction as ISO-8601 formatters of Java write it: no more digits than needed, none if it is zero."""
    return [v.rstrip("0").rstrip(".") if v is not None and "." in v else v for v in values]


def decimal_texts(array: pa.Array[Any]) -> Texts:
    """Plain decimal text with the type's scale, never with an exponent."""
    return [None if v is None else format(v, "f") for v in array.to_pylist()]


def list_offsets(array: pa.Array[Any]) -> tuple[list[int], pa.Array[Any]]:
    """Offsets and the child values they index, for a list or map array that may be a slice of a larger one."""
    offsets = array.offsets.to_pylist()  # type: ignore[attr-defined]
    base, end = offsets[0], offsets[-1]
    if isinstance(array, pa.MapArray):
        raise TypeError("a map has two children: use map_children")
    child = array.values.slice(base, end - base)  # type: ignore[attr-defined]
    return [o - base for o in offsets], child


def map_children(array: pa.Array[Any]) -> tuple[list[int], pa.Array[Any], pa.Array[Any]]:
    """Offsets, keys and items of a map array that may be a slice."""
    offsets = array.offsets.to_pylist()  # type: ignore[attr-defined]
    base, end = offsets[0], offsets[-1]
    keys = array.keys.slice(base, end - base)  # type: ignore[attr-defined]
    items = array.items.slice(base, end - base)  # type: ignore[attr-defined]
    return [o - base for o in offsets], keys, items
