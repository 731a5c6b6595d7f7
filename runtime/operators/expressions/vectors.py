"""Small bridges between Arrow vectors and numpy: values and validity of buffers without copies."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.ir.expressions import Expression, Literal
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.context import Vector

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_NUMPY_OF_WIDTH = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


TRUE, FALSE = pa.scalar(True), pa.scalar(False)
"""Ready-made: pyarrow takes long to make a scalar of a Python value."""


@lru_cache(maxsize=4096)
def null_of(t: ArrowType) -> Any:
    """The NULL of an Arrow type."""
    return pa.scalar(None, t)


def numpy_type(t: ArrowType) -> type[Any]:
    """The numpy type of a fixed-width Arrow type's buffer; dates, times and timestamps are plain integers."""
    if pa.types.is_float32(t):
        return np.float32
    if pa.types.is_float64(t):
        return np.float64
    return _NUMPY_OF_WIDTH[t.bit_width]


def as_array(vector: Vector, length: int = 1) -> Any:
    """The vector as an array; a scalar is repeated `length` times."""
    if isinstance(vector, pa.Scalar):
        return pa.repeat(vector, length)
    return vector


def length_of(*vectors: Vector) -> int:
    """Rows of the first array among the vectors (1 if all are scalars)."""
    for vector in vectors:
        if not isinstance(vector, pa.Scalar):
            return len(vector)
    return 1


def raw(vector: Vector) -> Values:
    """Values of a fixed-width vector (not BOOLEAN, not DECIMAL); slots of NULLs hold anything. Scalars: shape (1,)."""
    array = as_array(vector)
    if len(array) == 0:
        return np.empty(0, numpy_type(array.type))
    data = array.buffers()[1]
    return np.frombuffer(data, numpy_type(array.type), array.offset + len(array))[array.offset :]


def validity(*vectors: Vector) -> Mask | None:
    """True where no vector is NULL; None if there is no NULL at all. Shapes broadcast."""
    result: Mask | None = None
    for vector in vectors:
        if isinstance(vector, pa.Scalar):
            mask = None if vector.is_valid else np.zeros(1, np.bool_)
        else:
            mask = None if vector.null_count == 0 else booleans(vector.is_valid())
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def booleans(vector: Vector) -> Mask:
    """A BOOLEAN vector as numpy; NULL slots hold anything."""
    array = as_array(vector)
    if len(array) == 0:
        return np.empty(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    unpacked = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return unpacked[array.offset :].astype(np.bool_)


def bitmap(mask: Mask | None, length: int) -> Any | None:
    """Arrow's validity bitmap of a mask."""
    if mask is None:
        return None
    return pa.py_buffer(np.packbits(np.broadcast_to(mask, length), bitorder="little").tobytes())


def from_raw(values: Values, valid: Mask | None, t: ArrowType, length: int) -> Any:
    """An array of fixed-width type `t` from numpy values and a validity mask; both broadcast to `length`."""
    wanted = numpy_type(t)
    data = values if values.dtype == wanted else values.astype(wanted)
    if data.shape != (length,):
        data = np.broadcast_to(data, length)
    buffer = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(t, length, [bitmap(valid, length), buffer])


def from_booleans(values: Mask, valid: Mask | None, length: int) -> Any:
    """A BOOLEAN array from numpy."""
    return pa.Array.from_buffers(pa.bool_(), length, [bitmap(valid, length), bitmap(values, length)])


def both_valid(left: Mask | None, right: Mask | None) -> Mask | None:
    """The conjunction of two validity masks."""
    if left is None:
        return right
    return left if right is None else left & right


def is_true(condition: Vector) -> Vector:
    """The condition with NULL as FALSE."""
    if isinstance(condition, pa.Scalar):
        return condition if condition.is_valid else FALSE
    if pa.types.is_null(condition.type):
        return pa.repeat(FALSE, len(condition))
    return condition if condition.null_count == 0 else pc.fill_null(condition, FALSE)


def choose(condition: Vector, if_true: Vector, if_false: Vector) -> Vector:
    """`if_true` where the condition is TRUE, otherwise (FALSE or NULL) `if_false`."""
    return pc.if_else(is_true(condition), if_true, if_false)


def null_where(mask: Vector, vector: Vector) -> Vector:
    """The vector with NULL where the mask is TRUE."""
    return pc.if_else(mask, null_of(vector.type), vector)


def scalar_of(literal: Literal) -> Any:
    """The Arrow scalar of a literal (see `Literal` for the encodings)."""
    from decimal import Decimal

    t = to_arrow(literal.type)
    value = literal.value
    if value is None:
        return pa.scalar(None, t)
    match literal.type.root:
        case TypeRoot.DECIMAL:
            return pa.scalar(Decimal(str(value)), t)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return pa.scalar(bytes.fromhex(str(value)), t)
        case TypeRoot.DATE | TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return from_raw(np.array([value], np.int64), None, t, 1)[0]
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return pa.scalar(float(value) + 0.0, t)  # A constant has no negative zero in Flink.
        case _:
            return pa.scalar(value, t)


def literal_of(scalar: Any, type_: DataType) -> Literal | None:
    """The literal of an Arrow scalar, None for types that have no literal (ROW, ARRAY, MAP)."""
    if not scalar.is_valid:
        return Literal(None, type_)
    match type_.root:
        case TypeRoot.ARRAY | TypeRoot.MAP | TypeRoot.ROW | TypeRoot.MULTISET:
            return None
        case TypeRoot.DECIMAL:
            return Literal(format(scalar.as_py(), "f"), type_)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return Literal(scalar.as_py().hex(), type_)
        case TypeRoot.DATE | TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return Literal(int(raw(scalar)[0]), type_)
        case _:
            return Literal(scalar.as_py(), type_)


def constant(expression: Expression) -> Any:
    """The value of a literal argument, `NOT_CONSTANT` for anything else."""
    return expression.value if isinstance(expression, Literal) else NOT_CONSTANT


NOT_CONSTANT = object()
"""Tells a non-literal argument from the literal NULL."""
