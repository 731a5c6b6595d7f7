"""Functions of numbers: ABS, CEIL, FLOOR, ROUND, POWER, SQRT."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from planner.ir.expressions import Call, Literal
from planner.ir.types import TypeRoot, to_arrow
from runtime.operators.expressions import decimals
from runtime.operators.expressions.arithmetic import is_floating, to_number
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.vectors import both_valid, from_raw, length_of, raw, validity

_EXACT_DIGITS_MAX = 15
_CERTAIN = 2.0**50
"""Below this, a scaled double that is not close to a tie rounds the same way as its shortest decimal text."""


def _abs(call: Call, context: EvaluationContext) -> Kernel:
    if call.type.root is TypeRoot.DECIMAL:
        return _on_unscaled(call, lambda values, scale: (abs(values), scale))
    return pc.abs


def _on_unscaled(call: Call, function: Any) -> Kernel:
    """A DECIMAL function from (unscaled values, scale) to (unscaled values, scale)."""
    source, t = to_arrow(call.args[0].type), to_arrow(call.type)

    def kernel(vector: Vector, *_: Vector) -> Vector:
        values, valid = decimals.unscaled(vector)
        values, scale = function(values, decimals.scale_of(source))
        return decimals.from_unscaled(values, scale, valid, t, length_of(vector))

    return kernel


def _whole(call: Call, context: EvaluationContext) -> Kernel:
    """CEIL and FLOOR; integers are whole already."""
    upward = call.function == "CEIL"
    if call.args[0].type.root is TypeRoot.DECIMAL:

        def function(values: Any, scale: int) -> tuple[Any, int]:
            power: int = 10**scale
            if values.dtype != object and power >= 2**62:
                values = decimals.widen(values)
            return (-((-values) // power) if upward else values // power), 0

        return _on_unscaled(call, function)
    if is_floating(call.type):
        return pc.ceil if upward else pc.floor
    return lambda vector: vector


def _round(call: Call, context: EvaluationContext) -> Kernel:
    if len(call.args) == 1:
        digits: int | None = 0
    else:
        literal = call.args[1]
        digits = int(literal.value) if isinstance(literal, Literal) and literal.value is not None else None
    if digits is None:
        return _round_by_row(call)
    if call.args[0].type.root is TypeRoot.DECIMAL:
        places = digits

        def function(values: Any, scale: int) -> tuple[Any, int]:
            if places >= scale:
                return values, scale
            rounded = decimals.rescale(values, scale, places)
            return (rounded, places) if places >= 0 else (decimals.times_power_of_ten(rounded, -places), 0)

        return _on_unscaled(call, function)
    if is_floating(call.type):
        return _round_float(call, digits)
    return _round_integer(call, digits)


def _round_integer(call: Call, digits: int) -> Kernel:
    t = to_arrow(call.type)
    if digits >= 0:
        return lambda vector, *_: vector

    def kernel(vector: Vector, *_: Vector) -> Vector:
        values = raw(vector).astype(object) if t.bit_width == 64 else raw(vector).astype(np.int64)
        rounded = decimals.rescale(values, 0, digits) * 10 ** min(-digits, 20)
        return from_raw(decimals.wrap(rounded, t.bit_width), validity(vector), t, length_of(vector))

    return kernel


def _round_float(call: Call, digits: int) -> Kernel:
    """Java rounds the shortest decimal text of the number, HALF_UP: certain for numbers away from a tie, otherwise
    done on that text. NaN and infinities stay (Flink fails on them)."""
    t = to_arrow(call.type)

    def kernel(vector: Vector, *_: Vector) -> Vector:
        values = raw(vector)
        wide = values.astype(np.float64)
        with np.errstate(all="ignore"):
            scaled = np.abs(wide) * 10.0**digits if digits >= 0 else np.abs(wide) / 10.0**-digits
            fraction = scaled - np.floor(scaled)
            whole = np.floor(scaled + 0.5)
            result = np.copysign(whole / 10.0**digits if digits >= 0 else whole * 10.0**-digits, wide) + 0.0
            tolerance = 1e-6 if values.dtype == np.float64 else 1e-2
            certain = (scaled < _CERTAIN) & (np.abs(fraction - 0.5) > tolerance) & (abs(digits) <= _EXACT_DIGITS_MAX)
            certain &= (values.dtype == np.float64) | (scaled < 2.0**18)
        doubtful = ~certain & np.isfinite(wide)
        valid = validity(vector)
        if valid is not None:
            doubtful &= valid
        for index in np.flatnonzero(doubtful):
            result[index] = _round_text(str(values[index]), digits)
        result = np.where(np.isfinite(wide), result, wide)
        return from_raw(result.astype(values.dtype), valid, t, length_of(vector))

    return kernel


_WIDE = Context(prec=1100)


def _round_text(text: str, digits: int) -> float:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -exponent <= digits:
        return float(number) + 0.0
    return float(number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)) + 0.0


def _round_by_row(call: Call) -> Kernel:
    """ROUND with a number of digits that varies: each distinct number of digits on its own."""
    t = to_arrow(call.type)

    def kernel(vector: Vector, digits: Vector) -> Vector:
        length = length_of(vector, digits)
        column = vector if not isinstance(vector, pa.Scalar) else pa.repeat(vector, length)
        wanted = np.broadcast_to(raw(digits), length)
        valid = both_valid(validity(vector), validity(digits))
        result = pa.nulls(length, t)
        for places in np.unique(wanted).tolist():
            literal = Literal(int(places), call.args[1].type)
            rounded = _round(Call("ROUND", (call.args[0], literal), call.type), _NO_CONTEXT)(column, digits)
            chosen = wanted == places if valid is None else (wanted == places) & valid
            result = pc.if_else(pa.array(chosen), rounded, result)
        return result

    return kernel


_NO_CONTEXT = EvaluationContext("UTC", lambda: 0)


def _power(call: Call, context: EvaluationContext) -> Kernel:
    def kernel(base: Vector, exponent: Vector) -> Vector:
        a, b = raw(to_number(base, pa.float64())), raw(to_number(exponent, pa.float64()))
        with np.errstate(all="ignore"):
            result = np.power(a, b)
            # numpy takes the square root for 0.5, which keeps −0.0 and refuses −∞; pow does neither.
            result = np.where(b == 0.5, np.where(np.isneginf(a), np.inf, result + 0.0), result)
            # Java: 1 to NaN is NaN, ±1 to an infinity is NaN.
            result = np.where((np.abs(a) == 1) & ~np.isfinite(b), np.nan, result)
        return from_raw(result, both_valid(validity(base), validity(exponent)), pa.float64(), length_of(base, exponent))

    return kernel


def _sqrt(call: Call, context: EvaluationContext) -> Kernel:
    """SQRT is POWER(x, 0.5): of −0.0 it is 0.0, of −∞ it is ∞."""

    def kernel(vector: Vector) -> Vector:
        values = raw(to_number(vector, pa.float64()))
        with np.errstate(all="ignore"):
            result = np.where(np.isneginf(values), np.inf, np.sqrt(values) + 0.0)
        return from_raw(result, validity(vector), pa.float64(), length_of(vector))

    return kernel


KERNELS: dict[str, Builder] = {
    "ABS": _abs,
    "CEIL": _whole,
    "FLOOR": _whole,
    "ROUND": _round,
    "POWER": _power,
    "SQRT": _sqrt,
}
