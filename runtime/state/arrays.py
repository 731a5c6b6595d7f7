"""Between Arrow arrays and numpy: fixed-width values with their NULLs apart."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = Any
NumpyArray = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_SIGN_BITS = {np.dtype(np.float32): np.uint32(1 << 31), np.dtype(np.float64): np.uint64(1 << 63)}


def numpy_layout(kind: pa.DataType) -> tuple[np.dtype[Any], int]:
    """numpy type and number of words of a fixed-width Arrow type."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_), 1
    if pa.types.is_decimal(kind) and kind.byte_width == 16:
        return np.dtype(np.int64), 2
    if pa.types.is_floating(kind) and kind.bit_width >= 32:
        return np.dtype(f"f{kind.bit_width // 8}"), 1
    if pa.types.is_primitive(kind) and not pa.types.is_floating(kind):
        return np.dtype(f"i{kind.bit_width // 8}"), 1
    raise TypeError(f"state cannot hold values of Arrow type {kind}")


def from_arrow(array: Array, dtype: np.dtype[Any], words: int) -> tuple[NumpyArray, Mask | None]:
    """Values (0 where NULL; may be a view of the array's memory) and which are NULL (None: none)."""
    count = len(array)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if count == 0:
        return np.empty((0,) if words == 1 else (0, words), dtype=dtype), None
    values: NumpyArray
    if dtype == np.bool_:
        values = array.fill_null(False).to_numpy(zero_copy_only=False)
        return values, nulls
    values = np.frombuffer(array.buffers()[1], dtype, count * words, array.offset * dtype.itemsize * words)
    if words > 1:
        values = values.reshape(count, words)
    if nulls is not None:
        values = values.copy()
        values[nulls] = 0
    return values, nulls


def buffer_of(values: NumpyArray) -> pa.Buffer:
    """The memory of a contiguous array, which the buffer keeps alive."""
    return pa.py_buffer(cast(Any, values))


def to_arrow(kind: pa.DataType, values: NumpyArray, nulls: Mask | None) -> Array:
    """The inverse of `from_arrow`; takes over the memory of `values`."""
    if values.dtype == np.bool_:
        return pa.array(values, mask=nulls)
    validity = None if nulls is None else buffer_of(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, buffer_of(values)])


def canonical_values(values: NumpyArray) -> NumpyArray:
    """Values that are equal exactly when their keys are: floats by bits, -0.0 as 0.0 and every NaN as one."""
    sign: Any = _SIGN_BITS.get(values.dtype)
    if sign is None:
        return values
    canon: NumpyArray = np.where(np.isnan(values), np.array(np.nan, values.dtype), values).view(sign.dtype)
    canon[canon == sign] = 0
    return canon


def equal_values(left: NumpyArray, right: NumpyArray) -> Mask:
    """Whether values (of one or two words) are equal, pair by pair."""
    equal: Mask = left == right
    if equal.ndim == 2:
        return np.logical_and(equal[:, 0], equal[:, 1])
    return equal
