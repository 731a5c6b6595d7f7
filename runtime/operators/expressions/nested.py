"""ROW, ARRAY and MAP: construction, access to parts, CARDINALITY."""

from __future__ import annotations

import numpy as np

from planner.ir.expressions import Call, Literal
from planner.ir.types import to_arrow
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.casts import cast_kernel
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import FALSE, as_array, length_of, null_where, raw, validity


def _field(call: Call, context: EvaluationContext) -> Kernel:
    position = call.args[1]
    assert isinstance(position, Literal)
    index = int(position.value or 0)

    def kernel(row: Vector, position_: Vector) -> Vector:
        array = as_array(row, length_of(row, position_))
        child = array.field(index)
        # The child does not know that its row is NULL.
        return null_where(pc.is_null(array), child) if array.null_count else child

    return kernel


def _item_of_array(call: Call, context: EvaluationContext) -> Kernel:
    """Positions count from 1; a position beyond the end is NULL, one below 1 is an error."""
    t = to_arrow(call.type)

    def kernel(array: Vector, position: Vector) -> Vector:
        length = length_of(array, position)
        lists = as_array(array, length)
        wanted = np.broadcast_to(raw(position).astype(np.int64), length)
        valid = validity(lists, as_array(position, length))
        asked = np.ones(length, np.bool_) if valid is None else valid
        if (asked & (wanted < 1)).any():
            raise EvaluationFailure("array positions begin at 1")
        offsets = np.asarray(lists.offsets).astype(np.int64)
        found = asked & (wanted <= np.diff(offsets))
        indices = np.where(found, offsets[:-1] + wanted - 1, 0)
        taken = lists.values.take(pa.array(indices, mask=~found))
        return taken if taken.type == t else pc.cast(taken, t)

    return kernel


def _item_of_map(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)
    key_type = call.args[0].type.key
    assert key_type is not None
    cast_key = cast_kernel(call.args[1].type, key_type, context, strict=False)

    def kernel(map_: Vector, key: Vector) -> Vector:
        length = length_of(map_, key)
        maps = as_array(map_, length)
        keys = cast_key(key)
        if isinstance(keys, pa.Scalar):
            if not keys.is_valid:
                return pa.nulls(length, t)
            return pc.cast(pc.map_lookup(maps, keys, "last"), t)
        # Keys that vary: one look-up per distinct key.
        result = pa.nulls(length, t)
        for distinct in keys.drop_null().unique():
            chosen = pc.fill_null(pc.equal(keys, distinct), FALSE)
            result = pc.if_else(chosen, pc.cast(pc.map_lookup(maps, distinct, "last"), t), result)
        return result

    return kernel


def _cardinality(call: Call, context: EvaluationContext) -> Kernel:
    def kernel(vector: Vector) -> Vector:
        array = as_array(vector, length_of(vector))
        lists = array if pa.types.is_list(array.type) else _as_list(array)
        return pc.cast(pc.list_value_length(lists), pa.int32())

    return kernel


def _as_list(map_array: Vector) -> Vector:
    """A map as the list of its keys; NULL stays NULL."""
    offsets = pa.array(np.asarray(map_array.offsets), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, map_array.keys)
    return null_where(pc.is_null(map_array), lists)


def _row(call: Call, context: EvaluationContext) -> Kernel:
    t: ArrowType = to_arrow(call.type)
    casts = [
        cast_kernel(a.type, f.type, context, strict=False) for a, f in zip(call.args, call.type.fields, strict=True)
    ]

    def kernel(*vectors: Vector) -> Vector:
        length = length_of(*vectors)
        columns = [as_array(cast(v), length) for cast, v in zip(casts, vectors, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(t))

    return kernel


def _interleave(vectors: list[Vector], length: int) -> Vector:
    """Row by row: the first row's values of all vectors, then the second's, …"""
    together = pa.concat_arrays([as_array(vector, length) for vector in vectors])
    order = np.arange(len(vectors) * length).reshape(len(vectors), length).T.reshape(-1)
    return together.take(pa.array(order))


def _array(call: Call, context: EvaluationContext) -> Kernel:
    element = call.type.element
    assert element is not None
    casts = [cast_kernel(argument.type, element, context, strict=False) for argument in call.args]

    def kernel(*vectors: Vector) -> Vector:
        length = length_of(*vectors)
        values = _interleave([cast(v) for cast, v in zip(casts, vectors, strict=True)], length)
        offsets = pa.array(np.arange(length + 1) * len(casts), pa.int32())
        return pa.ListArray.from_arrays(offsets, values)

    return kernel


def _map(call: Call, context: EvaluationContext) -> Kernel:
    key, element, t = call.type.key, call.type.element, to_arrow(call.type)
    assert key is not None
    assert element is not None
    casts = [cast_kernel(a.type, element if i % 2 else key, context, strict=False) for i, a in enumerate(call.args)]

    def kernel(*vectors: Vector) -> Vector:
        length = length_of(*vectors)
        typed = [cast(v) for cast, v in zip(casts, vectors, strict=True)]
        offsets = pa.array(np.arange(length + 1) * (len(casts) // 2), pa.int32())
        keys, items = _interleave(typed[0::2], length), _interleave(typed[1::2], length)
        return pa.MapArray.from_arrays(offsets, keys, items).cast(t)

    return kernel


KERNELS: dict[str, Builder] = {
    "FIELD": _field,
    "ITEM_ARRAY": _item_of_array,
    "ITEM_MAP": _item_of_map,
    "CARDINALITY": _cardinality,
    "ROW": _row,
    "ARRAY": _array,
    "MAP": _map,
}
