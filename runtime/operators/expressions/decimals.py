"""DECIMAL arithmetic exactly as Flink's: 38 digits, HALF_UP, overflow is NULL.

Arrow truncates where Flink rounds, raises where Flink gives NULL and refuses 38-digit operands by type, so decimals are
computed as unscaled integers: int64 in numpy while everything surely fits, Python integers in object arrays otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.operators.expressions.arrow import ArrowType, pa
from runtime.operators.expressions.context import Vector
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import Mask, Values, as_array, both_valid, from_raw, raw, validity

PRECISION_MAX = 38
_INT64_SAFE = 2**62
_INT64_MIN = -(2**63)
_LOW_WORD = 2**64 - 1


def unscaled(vector: Vector) -> tuple[Values, Mask | None]:
    """Unscaled integers of a DECIMAL or integer vector, 0 where NULL; int64 if all fit, else an object array."""
    valid = validity(vector)
    array = as_array(vector)
    if not pa.types.is_decimal(array.type):
        values = raw(array).astype(np.int64)
        values = values if valid is None else np.where(valid, values, 0)
        # The smallest int64 has no magnitude in 64 bits.
        return (widen(values) if len(values) and values.min() == _INT64_MIN else values), valid
    if len(array) == 0:
        return np.empty(0, np.int64), valid
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * (array.offset + len(array)))[2 * array.offset :]
    low, high = words[0::2], words[1::2]
    if valid is not None:
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if np.array_equal(high, low >> 63) and low.min() != _INT64_MIN:
        return low.copy(), valid
    wide = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return wide, valid


def scale_of(t: ArrowType) -> int:
    """Digits behind the point; integers have none."""
    return t.scale if pa.types.is_decimal(t) else 0


def largest(values: Values) -> int:
    """The largest magnitude in the array, as a Python integer."""
    if len(values) == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min())))


def widen(values: Values) -> Values:
    """As Python integers, which do not overflow."""
    return values if values.dtype == object else values.astype(object)


def times_power_of_ten(values: Values, digits: int) -> Values:
    """values · 10^digits, digits ≥ 0."""
    if digits == 0:
        return values
    if values.dtype != object and digits <= 18 and largest(values) * 10**digits < _INT64_SAFE:
        return values * np.int64(10**digits)
    return np.asarray(widen(values) * 10**digits)


def divide_truncated(values: Values, divisor: Values | int) -> Values:
    """Quotients rounded toward zero. Divisors are not zero."""
    if values.dtype != object and (isinstance(divisor, int) or divisor.dtype != object):
        if isinstance(divisor, int) and divisor >= _INT64_SAFE:
            return np.zeros_like(values)
        quotient = np.abs(values) // np.abs(divisor)
        return np.where((values < 0) != (np.asarray(divisor) < 0), -quotient, quotient)
    wide = widen(values)
    other: Any = divisor if isinstance(divisor, int) else widen(divisor)
    quotient = np.asarray(abs(wide) // abs(other))
    negative = np.asarray(wide < 0, np.bool_) != np.asarray(other < 0, np.bool_)
    return np.where(negative, -quotient, quotient)


def rescale(values: Values, scale: int, target: int) -> Values:
    """From one scale to another, HALF_UP."""
    if target >= scale:
        return times_power_of_ten(values, target - scale)
    power: int = 10 ** (scale - target)
    magnitude = abs(values)
    if values.dtype != object and largest(values) + power < _INT64_SAFE:
        rounded = (magnitude + power // 2) // np.int64(power)
    else:
        rounded = (widen(magnitude) + power // 2) // power
    return np.where(np.asarray(values < 0, np.bool_), -rounded, rounded)


def to_decimal(values: Values, valid: Mask | None, t: ArrowType, length: int) -> Any:
    """A DECIMAL array of unscaled values; what has more digits than the type's precision becomes NULL."""
    limit = 10**t.precision
    if largest(values) >= limit:
        fits = np.asarray(abs(values) < limit, np.bool_)
        valid = both_valid(valid, fits)
        values = np.where(fits, values, 0)
    words = np.empty((length, 2), np.int64)
    if values.dtype == object:
        words[:, 0] = (values & _LOW_WORD).astype(np.uint64).view(np.int64)
        words[:, 1] = (values >> 64).astype(np.int64)
    else:
        words[:, 0] = values
        words[:, 1] = values >> 63
    return _decimal_array(words, valid, t, length)


def _decimal_array(words: Values, valid: Mask | None, t: ArrowType, length: int) -> Any:
    from runtime.operators.expressions.vectors import bitmap

    return pa.Array.from_buffers(t, length, [bitmap(valid, length), pa.py_buffer(words)])


def from_unscaled(values: Values, scale: int, valid: Mask | None, t: ArrowType, length: int) -> Any:
    """Unscaled values of `scale` as a vector of type `t`: DECIMAL (HALF_UP, overflow NULL) or integer (wraps)."""
    values = np.broadcast_to(values, length)
    if pa.types.is_decimal(t):
        return to_decimal(rescale(values, scale, t.scale), valid, t, length)
    whole = divide_truncated(values, 10**scale) if scale else values
    return from_raw(wrap(whole, t.bit_width), valid, t, length)


def wrap(values: Values, bits: int) -> Values:
    """The low bits of integers as a signed integer, as Java narrows."""
    if values.dtype == object:
        values = ((values + 2**63) % 2**64 - 2**63).astype(np.int64)
    return values.astype({8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits])


def add(left: Vector, right: Vector, t: ArrowType, length: int, sign: int = 1) -> Any:
    """left ± right in type `t`."""
    (a, a_valid), (b, b_valid) = unscaled(left), unscaled(right)
    scale = max(scale_of(left.type), scale_of(right.type))
    a = times_power_of_ten(a, scale - scale_of(left.type))
    b = times_power_of_ten(b, scale - scale_of(right.type))
    if a.dtype == object or b.dtype == object or largest(a) + largest(b) >= 2**63:
        a, b = widen(a), widen(b)
    return from_unscaled(a + b if sign > 0 else a - b, scale, both_valid(a_valid, b_valid), t, length)


def multiply(left: Vector, right: Vector, t: ArrowType, length: int) -> Any:
    """left · right in type `t`."""
    (a, a_valid), (b, b_valid) = unscaled(left), unscaled(right)
    if a.dtype == object or b.dtype == object or largest(a) * largest(b) >= _INT64_SAFE:
        a, b = widen(a), widen(b)
    scale = scale_of(left.type) + scale_of(right.type)
    return from_unscaled(a * b, scale, both_valid(a_valid, b_valid), t, length)


def _divisors(b: Values, valid: Mask | None, length: int) -> Values:
    """The divisors with 1 in rows that are NULL anyway; a zero in any other row raises."""
    zero = np.broadcast_to(np.asarray(b == 0, np.bool_), length)
    if zero.any():
        if (zero if valid is None else zero & valid).any():
            raise EvaluationFailure("division by zero")
        b = np.where(zero, 1, np.broadcast_to(b, length))
    return b


def divide(left: Vector, right: Vector, t: ArrowType, length: int) -> Any:
    """left / right in DECIMAL type `t`; raises on a zero divisor."""
    (a, a_valid), (b, b_valid) = unscaled(left), unscaled(right)
    valid = both_valid(a_valid, b_valid)
    b = _divisors(b, valid, length)
    # One digit more than wanted decides HALF_UP exactly.
    digits = t.scale + 1 - scale_of(left.type) + scale_of(right.type)
    if digits >= 0:
        quotient = divide_truncated(times_power_of_ten(a, digits), b)
    else:
        quotient = divide_truncated(a, times_power_of_ten(b, -digits))
    return from_unscaled(quotient, t.scale + 1, valid, t, length)


def remainder(left: Vector, right: Vector, t: ArrowType, length: int) -> Any:
    """left % right with the sign of left, in type `t` (DECIMAL or integer); raises on a zero divisor."""
    (a, a_valid), (b, b_valid) = unscaled(left), unscaled(right)
    valid = both_valid(a_valid, b_valid)
    b = _divisors(b, valid, length)
    scale = max(scale_of(left.type), scale_of(right.type))
    a = times_power_of_ten(a, scale - scale_of(left.type))
    b = times_power_of_ten(b, scale - scale_of(right.type))
    if a.dtype == object or b.dtype == object:
        a, b = widen(a), widen(b)
    rest = abs(a) % abs(b)
    return from_unscaled(np.where(np.asarray(a < 0, np.bool_), -rest, rest), scale, valid, t, length)


def to_float(vector: Vector) -> tuple[Values, Mask | None]:
    """The DOUBLE nearest to each decimal."""
    values, valid = unscaled(vector)
    scale = scale_of(vector.type)
    if values.dtype != object and scale <= 22 and largest(values) < 2**53:
        return values / np.float64(10**scale), valid
    power: int = 10**scale
    # Division of Python integers is correctly rounded.
    return np.array([int(value) / power for value in values], np.float64), valid


def compare_keys(left: Vector, right: Vector) -> tuple[Values, Values]:
    """Integers that compare as the two vectors (DECIMAL or integer) do."""
    a, b = unscaled(left)[0], unscaled(right)[0]
    scale = max(scale_of(left.type), scale_of(right.type))
    a = times_power_of_ten(a, scale - scale_of(left.type))
    b = times_power_of_ten(b, scale - scale_of(right.type))
    return (widen(a), widen(b)) if a.dtype == object or b.dtype == object else (a, b)
