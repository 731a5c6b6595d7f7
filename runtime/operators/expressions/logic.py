"""NOT and the IS … tests. AND, OR, CASE, COALESCE and IF are lazy: the compiler makes them."""

from __future__ import annotations

from planner.ir.expressions import Call
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.vectors import FALSE


def _is(wanted: bool, negate: bool) -> Builder:
    """IS [NOT] TRUE / FALSE: never NULL."""

    def build(call: Call, context: EvaluationContext) -> Kernel:
        def kernel(condition: Vector) -> Vector:
            known = condition if wanted else pc.invert(condition)
            answer = pc.fill_null(known, FALSE)
            return pc.invert(answer) if negate else answer

        return kernel

    return build


def _is_null(call: Call, context: EvaluationContext) -> Kernel:
    return pc.is_null


def _is_not_null(call: Call, context: EvaluationContext) -> Kernel:
    return pc.is_valid


def _not(call: Call, context: EvaluationContext) -> Kernel:
    def kernel(condition: Vector) -> Vector:
        return pc.invert(condition.cast(pa.bool_()) if pa.types.is_null(condition.type) else condition)

    return kernel


KERNELS: dict[str, Builder] = {
    "NOT": _not,
    "IS_NULL": _is_null,
    "IS_NOT_NULL": _is_not_null,
    "IS_TRUE": _is(True, negate=False),
    "IS_NOT_TRUE": _is(True, negate=True),
    "IS_FALSE": _is(False, negate=False),
    "IS_NOT_FALSE": _is(False, negate=True),
}
