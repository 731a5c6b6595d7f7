"""Arithmetic operators on numbers and intervals: Java's wrap-around, IEEE floats, Flink's decimals."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions import decimals
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import both_valid, from_raw, length_of, raw, validity

_FLOATING = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_ARROW = {"PLUS": pc.add, "MINUS": pc.subtract, "TIMES": pc.multiply}


def is_floating(t: DataType) -> bool:
    return t.root in _FLOATING


def to_number(vector: Vector, t: ArrowType) -> Vector:
    """A numeric vector in a wider or floating type, as Java's implicit conversions do; nothing is checked."""
    if vector.type == t:
        return vector
    if pa.types.is_decimal(vector.type):
        values, valid = decimals.to_float(vector)
        return from_raw(values, valid, t, length_of(vector))
    return pc.cast(vector, t, safe=False)


def _plain(call: Call, context: EvaluationContext) -> Kernel:
    """+, - and * of integers and floats in the result type."""
    t = to_arrow(call.type)
    if any(argument.type.root is TypeRoot.DECIMAL for argument in call.args) and not is_floating(call.type):
        return _decimal(call, t)
    operation = _ARROW[call.function]
    if all(to_arrow(argument.type) == t for argument in call.args):
        return operation
    return lambda left, right: operation(to_number(left, t), to_number(right, t))


def _decimal(call: Call, t: ArrowType) -> Kernel:
    match call.function:
        case "PLUS":
            return lambda left, right: decimals.add(left, right, t, length_of(left, right))
        case "MINUS":
            return lambda left, right: decimals.add(left, right, t, length_of(left, right), sign=-1)
        case _:
            return lambda left, right: decimals.multiply(left, right, t, length_of(left, right))


def _common_integer(call: Call) -> ArrowType:
    """The widest of the operands' and the result's integer types."""
    types = [to_arrow(argument.type) for argument in call.args] + [to_arrow(call.type)]
    return max(types, key=lambda t: t.bit_width)


def _literal_divisor(expression: Expression) -> int | None:
    """A divisor known at compilation that needs no care: not NULL, 0 or -1."""
    if isinstance(expression, Literal) and isinstance(expression.value, int) and expression.value not in (0, -1):
        return expression.value
    return None


def _divide(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)
    if is_floating(call.type):
        return lambda left, right: pc.divide(to_number(left, t), to_number(right, t))
    if call.type.root is TypeRoot.DECIMAL:
        return lambda left, right: decimals.divide(left, right, t, length_of(left, right))
    wide = _common_integer(call)
    if _literal_divisor(call.args[1]) is not None:
        return lambda left, right: _narrow(pc.divide(to_number(left, wide), to_number(right, wide)), t)

    def kernel(left: Vector, right: Vector) -> Vector:
        a, b, valid, length = _integers(left, right, wide)
        with np.errstate(over="ignore"):
            quotient = np.where(b == -1, -a, a // b + ((a % b != 0) & ((a < 0) != (b < 0))))
        return from_raw(quotient, valid, t, length)

    return kernel


def _narrow(vector: Vector, t: ArrowType) -> Vector:
    return vector if vector.type == t else pc.cast(vector, t, safe=False)


def _integers(left: Vector, right: Vector, wide: ArrowType) -> tuple[Any, Any, Any, int]:
    """Operands of an integer division in one type; a zero divisor in a row without NULL raises."""
    a, b = raw(to_number(left, wide)), raw(to_number(right, wide))
    valid = both_valid(validity(left), validity(right))
    length = length_of(left, right)
    zero = b == 0
    if zero.any():
        if np.any(zero if valid is None else np.broadcast_to(zero, length) & valid):
            raise EvaluationFailure("division by zero")
        b = np.where(zero, 1, b)
    return a, b, valid, length


def _modulo(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)
    if is_floating(call.type):
        return lambda left, right: _float_remainder(left, right, t)
    if any(argument.type.root is TypeRoot.DECIMAL for argument in call.args):
        return lambda left, right: decimals.remainder(left, right, t, length_of(left, right))
    wide = _common_integer(call)
    if _literal_divisor(call.args[1]) is not None:
        return lambda left, right: _narrow(pc.remainder(to_number(left, wide), to_number(right, wide)), t)

    def kernel(left: Vector, right: Vector) -> Vector:
        a, b, valid, length = _integers(left, right, wide)
        return from_raw(np.fmod(a, np.where(b == -1, 1, b)), valid, t, length)

    return kernel


def _float_remainder(left: Vector, right: Vector, t: ArrowType) -> Vector:
    valid = both_valid(validity(left), validity(right))
    with np.errstate(invalid="ignore"):
        values = np.fmod(raw(to_number(left, t)), raw(to_number(right, t)))
    return from_raw(values, valid, t, length_of(left, right))


def _negate(call: Call, context: EvaluationContext) -> Kernel:
    if call.type.root is TypeRoot.DECIMAL:
        t: ArrowType = to_arrow(call.type)

        def kernel(vector: Vector) -> Vector:
            values, valid = decimals.unscaled(vector)
            return decimals.from_unscaled(-values, t.scale, valid, t, length_of(vector))

        return kernel
    return pc.negate


def _interval_times(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)

    def kernel(interval: Vector, number: Vector) -> Vector:
        if pa.types.is_decimal(number.type):
            return decimals.multiply(interval, number, t, length_of(interval, number))
        if pa.types.is_floating(number.type):
            return pc.cast(pc.multiply(to_number(interval, pa.float64()), number), t, safe=False)
        return pc.multiply(interval, to_number(number, t))

    return kernel


KERNELS: dict[str, Builder] = {
    "PLUS": _plain,
    "MINUS": _plain,
    "TIMES": _plain,
    "DIVIDE": _divide,
    "MODULO": _modulo,
    "MOD": _modulo,
    "NEGATE": _negate,
    "NEGATE_INTERVAL": lambda call, context: pc.negate,
    "ADD_INTERVALS": lambda call, context: pc.add,
    "SUBTRACT_INTERVALS": lambda call, context: pc.subtract,
    "INTERVAL_TIMES": _interval_times,
}
