"""Results of aggregates from the states of their accumulators, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from runtime.operators import decimal_sums
from runtime.operators.accumulators import from_doubles
from runtime.operators.group_aggregate_scan import Bools, Doubles, Ints

pc: Any = pyarrow.compute
Array = Any

_LIMB = np.int64(0xFFFFFFFF)
_LIMB_BITS = np.int64(32)


def integer_sum(sums: Ints, nulls: Bools, kind: Any) -> Array:
    """A sum wraps in its own type, as Java's does."""
    mask = nulls if nulls.any() else None
    if kind == pa.int64():
        return pa.array(sums, mask=mask)
    return pa.array(sums.astype(kind.to_pandas_dtype()), mask=mask)


def integer_average(sums: Ints, counts: Ints, kind: Any) -> Array:
    """Truncated toward zero; NULL over nothing."""
    nulls = counts <= 0
    quotients = pc.divide(pa.array(sums), pa.array(np.where(nulls, 1, counts)))
    if nulls.any():
        quotients = pc.if_else(pa.array(nulls), pa.scalar(None, quotients.type), quotients)
    return quotients if quotients.type == kind else quotients.cast(kind, safe=False)


def double_total(sums: Doubles, specials: tuple[Ints, Ints, Ints] | None) -> Doubles:
    """A sum of doubles from its finite part and the counts of NaN, infinity and -infinity in it."""
    if specials is None:
        return sums
    nans, infinities, negative = specials
    if not (nans.any() or infinities.any() or negative.any()):
        return sums
    total = np.where(infinities > 0, np.inf, np.where(negative > 0, -np.inf, sums))
    total[(nans > 0) | ((infinities > 0) & (negative > 0))] = np.nan
    return total


def double_sum(sums: Doubles, nulls: Bools, kind: Any) -> Array:
    with np.errstate(all="ignore"):
        return from_doubles(sums, nulls, kind)


def double_average(sums: Doubles, counts: Ints, kind: Any) -> Array:
    nulls = counts <= 0
    with np.errstate(all="ignore"):
        return from_doubles(sums / np.where(nulls, 1, counts), nulls, kind)


def decimal_sum(limbs: list[Ints], nulls: Bools, kind: Any) -> Array:
    """A sum of decimals from its limbs; NULL where it has more than 38 digits."""
    total, _ = decimal_sums.from_limb_sums(_four_limbs(limbs, nulls), kind)
    return total


def decimal_average(limbs: list[Ints], counts: Ints, scale: int, kind: Any) -> Array:
    """AVG of decimals of `scale`, HALF_UP; NULL over nothing or where a sum or an average has more than 38 digits.
    What fits in 64 bits is divided as integers, all at once."""
    nulls = counts <= 0
    four = _four_limbs(limbs, nulls)
    sums, overflow = decimal_sums.from_limb_sums(four, pa.decimal128(38, scale))
    factor = 10 ** (kind.scale - scale)
    words = np.frombuffer(sums.buffers()[1], np.int64, 2 * len(counts))
    low, high = words[::2], words[1::2]
    limit = (2**62) // factor
    small = ((high == low >> np.int64(63)) & (low < limit) & (low > -limit)) | nulls | overflow
    divisors = np.where(nulls, 1, counts)
    scaled = np.abs(np.where(small & ~nulls & ~overflow, low, 0)) * np.int64(factor)
    quotients, rest = np.divmod(scaled, divisors)
    quotients += rest >= divisors - rest
    quotients = np.where(low < 0, -quotients, quotients)
    result = _decimals(quotients, nulls | overflow | ~small, kind)
    if small.all():
        return result
    rows = np.flatnonzero(~small)
    wide = sums.take(pa.array(rows)).cast(decimal_sums.wide_type(scale))
    exact = decimal_sums.average(wide, pa.array(counts[rows]), kind)
    return pc.replace_with_mask(result, pa.array(~small), exact)


def _four_limbs(limbs: list[Ints], nulls: Bools) -> list[Array]:
    mask = nulls if nulls.any() else None
    if len(limbs) == 2:
        low, rest = limbs
        rest = rest + (low >> _LIMB_BITS)
        limbs = [low & _LIMB, rest & _LIMB, (rest >> _LIMB_BITS) & _LIMB, rest >> np.int64(63)]
    return [pa.array(limb, mask=mask) for limb in limbs]


def _decimals(unscaled: Ints, nulls: Bools, kind: Any) -> Array:
    """Decimals from unscaled values of 64 bits."""
    words = np.empty((len(unscaled), 2), dtype=np.int64)
    words[:, 0], words[:, 1] = unscaled, unscaled >> np.int64(63)
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
    return pa.Array.from_buffers(kind, len(unscaled), [validity, pa.py_buffer(words.tobytes())])
