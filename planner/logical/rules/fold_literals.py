"""Constant parts that need no kernel: boolean constants, whole numbers, intervals, exact casts.

    WHERE TRUE AND a > 2 + 3   →   WHERE a > 5

Everything else that is constant is folded at deployment by the kernels themselves, so that there is one
implementation of each function. The order of operands stays, and with it which of them are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from planner.analysis.literals import cast_literal
from planner.analysis.operators import logical
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import TypeRoot
from planner.logical.nodes import (
    Calc,
    IntervalJoin,
    Join,
    LookupJoin,
    Plan,
    TemporalJoin,
    Unnest,
    Values,
    WindowJoin,
)
from planner.logical.rewrite import bottom_up

_INTEGER_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "PLUS": lambda a, b: a + b,
    "MINUS": lambda a, b: a - b,
    "TIMES": lambda a, b: a * b,
    "ADD_INTERVALS": lambda a, b: a + b,
    "SUBTRACT_INTERVALS": lambda a, b: a - b,
    "INTERVAL_TIMES": lambda a, b: a * b,
}
_RANGES = {
    **{root: 2 ** (bits - 1) for root, bits in t.INTEGER_BITS.items()},
    TypeRoot.INTERVAL_YEAR_MONTH: 2**31,
    TypeRoot.INTERVAL_DAY_TIME: 2**63,
}


def fold_literals(plan: Plan) -> Plan:
    return bottom_up(plan, _fold_node)


def _fold_node(node: Plan) -> Plan:
    match node:
        case Calc():
            condition = fold(node.condition) if node.condition is not None else None
            if isinstance(condition, Literal) and condition.value is True:
                condition = None
            projections = tuple(fold(p) for p in node.projections)
            return msgspec.structs.replace(node, condition=condition, projections=projections)
        case Values():
            return msgspec.structs.replace(node, rows=tuple(tuple(fold(e) for e in row) for row in node.rows))
        case Join() | IntervalJoin() | TemporalJoin() | WindowJoin() | LookupJoin() | Unnest():
            if node.condition is None:
                return node
            condition = fold(node.condition)
            is_true = isinstance(condition, Literal) and condition.value is True
            return msgspec.structs.replace(node, condition=None if is_true else condition)
        case _:
            return node


def fold(expression: Expression) -> Expression:
    """`expression` with its constant parts computed."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(fold(a) for a in expression.args)
    if arguments != expression.args:
        expression = msgspec.structs.replace(expression, args=arguments)
    if expression.function in ("AND", "OR"):
        return _fold_logical(expression)
    if expression.function == "NOT":
        operand = arguments[0]
        if isinstance(operand, Literal) and isinstance(operand.value, bool):
            return Literal(not operand.value, expression.type)
        return expression
    if expression.function == "CAST" and isinstance(arguments[0], Literal):
        return cast_literal(arguments[0], expression.type) or expression
    return _fold_integers(expression)


def _fold_logical(call: Call) -> Expression:
    neutral = call.function == "AND"
    kept: list[Expression] = []
    for operand in call.args:
        if isinstance(operand, Literal) and operand.value is neutral:
            continue
        kept.append(operand)
        if isinstance(operand, Literal) and operand.value is (not neutral):
            break  # Nothing to the right of a FALSE in AND, or of a TRUE in OR, is evaluated.
    if not kept:
        return Literal(neutral, t.BOOLEAN.with_nullable(False))
    if len(kept) == 1:
        return kept[0]
    return logical(call.function, tuple(kept))


def _fold_integers(call: Call) -> Expression:
    function = _INTEGER_FUNCTIONS.get(call.function)
    bound = _RANGES.get(call.type.root)
    if function is None or bound is None or len(call.args) != 2:
        return call
    values: list[int] = []
    for argument in call.args:
        if not isinstance(argument, Literal) or type(argument.value) is not int:
            return call
        values.append(argument.value)
    result = function(values[0], values[1])
    if not -bound <= result < bound:
        return call  # Left to the kernel, which wraps as Flink does.
    return Literal(result, call.type)
