"""Casts of ARRAY, MAP and ROW: element by element, and to text as Flink prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.context import EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.vectors import as_array, length_of, null_where


def nested_cast(source: DataType, target: DataType, context: EvaluationContext, strict: bool) -> Kernel:
    """ARRAY to ARRAY, MAP to MAP, ROW to ROW of as many fields; parts are cast one by one."""
    from runtime.operators.expressions.casts import cast_kernel

    if to_arrow(source) == to_arrow(target):
        return lambda vector: vector
    if source.root is not target.root:
        raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")

    def inner(a: DataType | None, b: DataType | None) -> Kernel:
        assert a is not None
        assert b is not None
        return cast_kernel(a, b, context, strict=strict)

    if source.root is TypeRoot.ARRAY:
        return _array(inner(source.element, target.element))
    if source.root is TypeRoot.MAP:
        return _map(inner(source.key, target.key), inner(source.element, target.element))
    if source.root is TypeRoot.ROW and len(source.fields) == len(target.fields):
        casts = [inner(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True)]
        return _row(casts, to_arrow(target))
    raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")


def _parts(vector: Vector) -> tuple[Any, Any, int, int]:
    """A list or map array, its offsets from 0, and where its children begin and how many it has: a slice's children
    are those of the whole."""
    array = as_array(vector, length_of(vector))
    offsets = np.asarray(array.offsets)
    return array, offsets - offsets[0], int(offsets[0]), int(offsets[-1] - offsets[0])


def _array(cast: Kernel) -> Kernel:
    def kernel(vector: Vector) -> Vector:
        array, offsets, first, count = _parts(vector)
        lists = pa.ListArray.from_arrays(pa.array(offsets), cast(array.values.slice(first, count)))
        return null_where(pc.is_null(array), lists) if array.null_count else lists

    return kernel


def _map(cast_key: Kernel, cast_value: Kernel) -> Kernel:
    def kernel(vector: Vector) -> Vector:
        array, offsets, first, count = _parts(vector)
        keys, values = cast_key(array.keys.slice(first, count)), cast_value(array.items.slice(first, count))
        maps = pa.MapArray.from_arrays(pa.array(offsets), keys, values)
        return null_where(pc.is_null(array), maps) if array.null_count else maps

    return kernel


def _row(casts: list[Kernel], t: ArrowType) -> Kernel:
    def kernel(vector: Vector) -> Vector:
        array = as_array(vector, length_of(vector))
        children = [cast(child) for cast, child in zip(casts, array.flatten(), strict=True)]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(t), mask=mask)

    return kernel


def nested_to_text(source: DataType, text_of: Callable[[DataType], Kernel]) -> Kernel:
    """`[1, NULL]`, `{k=1}`, `(1, x)`; the parts' texts are made by kernels, the joining is row by row (rare)."""
    if source.root is TypeRoot.ROW:
        fields = [text_of(field.type) for field in source.fields]

        def row(vector: Vector) -> Vector:
            array = as_array(vector, length_of(vector))
            columns = [text(child).to_pylist() for text, child in zip(fields, array.flatten(), strict=True)]
            valid = array.is_valid().to_pylist()
            rows = zip(valid, *columns, strict=True)
            return pa.array([f"({_joined(row[1:])})" if row[0] else None for row in rows], pa.string())

        return row
    assert source.element is not None
    if source.root is TypeRoot.ARRAY:
        element = text_of(source.element)

        def array_(vector: Vector) -> Vector:
            array, offsets, first, count = _parts(vector)
            texts, ends = element(array.values.slice(first, count)).to_pylist(), offsets.tolist()
            rows = zip(array.is_valid().to_pylist(), ends, ends[1:], strict=False)
            return pa.array([f"[{_joined(texts[a:b])}]" if valid else None for valid, a, b in rows], pa.string())

        return array_
    assert source.key is not None
    key, value = text_of(source.key), text_of(source.element)

    def map_(vector: Vector) -> Vector:
        array, offsets, first, count = _parts(vector)
        keys = key(array.keys.slice(first, count)).to_pylist()
        values = value(array.items.slice(first, count)).to_pylist()
        pairs = [f"{_shown(k)}={_shown(v)}" for k, v in zip(keys, values, strict=True)]
        ends = offsets.tolist()
        rows = zip(array.is_valid().to_pylist(), ends, ends[1:], strict=False)
        return pa.array([f"{{{', '.join(pairs[a:b])}}}" if valid else None for valid, a, b in rows], pa.string())

    return map_


def _shown(text: str | None) -> str:
    return "NULL" if text is None else text


def _joined(texts: Any) -> str:
    return ", ".join(_shown(text) for text in texts)
