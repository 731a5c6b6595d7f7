"""Sums of DECIMALs, vectorised: Arrow's own sum overflows silently, Flink's answer there is NULL.

A decimal is cut into 32-bit limbs held in int64 columns; sums of limbs cannot overflow within 2^31 rows, and carries
are propagated afterwards. Partial sums in state are 256 bits wide, so only a final result can be out of range.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.int64]
Array = Any

_LIMB_MASK = np.int64(0xFFFFFFFF)
_LARGEST_38 = 10**38 - 1
_AVERAGE_CONTEXT = Context(prec=38, rounding=ROUND_HALF_UP)
_WIDE_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)


def wide_type(scale: int) -> pa.DataType:
    """The type that carries a sum of decimals of this scale without overflow."""
    return pa.decimal256(76, scale)


def limbs(array: Array) -> list[Array]:
    """The limbs of a decimal128 or decimal256 column, lowest first, as int64 columns (the highest is signed). NULLs
    stay NULL."""
    width = array.type.byte_width // 4
    if len(array) == 0:
        return [pa.array([], pa.int64())] * width
    raw = np.frombuffer(array.buffers()[1], np.int32, len(array) * width, array.offset * width * 4)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    columns = [raw[i::width].astype(np.int64) for i in range(width)]
    for column in columns[:-1]:
        column &= _LIMB_MASK
    return [pa.array(column, mask=mask) for column in columns]


def from_limb_sums(sums: list[Array], kind: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Decimals of type `kind` (decimal128 or 256, as many limbs as `sums`) from sums of limbs, and the rows whose value
    has more digits than 38 (or than the width holds): those are NULL in the result."""
    valid = sums[0].is_valid().to_numpy(zero_copy_only=False)
    columns = [column.fill_null(0).to_numpy().copy() for column in sums]
    for low, high in pairwise(columns):
        high += low >> 32
        low &= _LIMB_MASK
    top = columns[-1]
    overflow = (top < -(1 << 31)) | (top >= 1 << 31)
    if len(sums) == 4:
        overflow |= _beyond_38_digits(columns)
    overflow &= valid
    raw = np.empty((len(top), len(sums)), dtype=np.uint32)
    for i, column in enumerate(columns):
        raw[:, i] = (column & _LIMB_MASK).astype(np.uint32)
    return _decimals(raw, valid & ~overflow, kind), overflow


def narrow(array: Array, scale: int) -> Array:
    """DECIMAL(38, scale) from a 256-bit sum of the same scale; NULL where it does not fit in 38 digits."""
    if len(array) == 0:
        return pa.array([], pa.decimal128(38, scale))
    columns = [column.fill_null(0).to_numpy().copy() for column in limbs(array)]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    sign = np.where(columns[3] >= 1 << 31, _LIMB_MASK, 0)
    fits = valid & (columns[4] == sign) & (columns[5] == sign) & (columns[6] == sign)
    fits &= columns[7] & _LIMB_MASK == sign
    columns[3] = np.where(sign != 0, columns[3] - (1 << 32), columns[3])
    fits &= ~_beyond_38_digits(columns[:4])
    raw = np.empty((len(array), 4), dtype=np.uint32)
    for i, column in enumerate(columns[:4]):
        raw[:, i] = (column & _LIMB_MASK).astype(np.uint32)
    return _decimals(raw, fits, pa.decimal128(38, scale))


def average(sums: Array, counts: Array, kind: Any) -> Array:
    """AVG of decimals: sum / count, first to 38 significant digits, then to the scale of `kind`, both HALF_UP (Flink
    divides so); NULL where the sum or the average has more digits than 38. One Python division per group: a result of
    an aggregate, not a row of the input."""
    # Contexts are explicit throughout: Python's default one rounds to 28 digits, even in abs().
    quantum = Decimal(1).scaleb(-kind.scale)
    results: list[Decimal | None] = []
    for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True):
        if total is None or count == 0 or total.scaleb(sums.type.scale, _WIDE_CONTEXT).copy_abs() > _LARGEST_38:
            results.append(None)
            continue
        value = _AVERAGE_CONTEXT.divide(total, Decimal(count)).quantize(quantum, context=_WIDE_CONTEXT)
        fits = value.scaleb(kind.scale, _WIDE_CONTEXT).copy_abs() < 10**kind.precision
        results.append(value if fits else None)
    return pa.array(results, kind)


def _beyond_38_digits(columns: list[Words]) -> npt.NDArray[np.bool_]:
    """Whether a 128-bit value, given as four limbs (the highest signed), is beyond ±(10^38 - 1)."""
    low = (columns[1].astype(np.uint64) << np.uint64(32)) | columns[0].astype(np.uint64)
    high = (columns[3] << 32) | columns[2]
    most, least = _LARGEST_38, -_LARGEST_38
    most_high, most_low = most >> 64, np.uint64(most & (2**64 - 1))
    least_high, least_low = least >> 64, np.uint64(least & (2**64 - 1))
    above = (high > most_high) | ((high == most_high) & (low > most_low))
    below = (high < least_high) | ((high == least_high) & (low < least_low))
    beyond: npt.NDArray[np.bool_] = above | below
    return beyond


def _decimals(raw: npt.NDArray[np.uint32], valid: npt.NDArray[np.bool_], kind: Any) -> Array:
    data = pa.py_buffer(np.ascontiguousarray(raw).tobytes())
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(valid), [validity, data])
