"""A row-wise evaluator of a subset of expressions, as plain as it can be: the yardstick for compiled calcs."""

from __future__ import annotations

import math
import re
from typing import Any

from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.types import TypeRoot


class RowFailure(Exception):
    """The row has no answer: a zero divisor or a text that is no number."""


def evaluate(expression: Expression, row: list[Any]) -> Any:
    """The value of the expression for one row; SQL's NULL is None. Raises RowFailure."""
    match expression:
        case InputRef(index=index):
            return row[index]
        case Literal(value=value):
            return value
        case Call(function="CASE" | "IF", args=args):
            return _case(args, row)
        case Call(function="AND" | "OR", args=args):
            return _logical(expression.function, args, row)
        case Call(function="COALESCE", args=args):
            for argument in args:
                value = evaluate(argument, row)
                if value is not None:
                    return value
            return None
        case Call(args=args):
            return _strict(expression, [evaluate(argument, row) for argument in args])


def _case(args: tuple[Expression, ...], row: list[Any]) -> Any:
    position = 0
    while position + 1 < len(args):
        if evaluate(args[position], row) is True:
            return evaluate(args[position + 1], row)
        position += 2
    return evaluate(args[-1], row) if position < len(args) else None


def _logical(function: str, args: tuple[Expression, ...], row: list[Any]) -> Any:
    decided = function == "OR"
    seen_null = False
    for argument in args:
        value = evaluate(argument, row)
        if value is decided:
            return decided
        seen_null |= value is None
    return None if seen_null else not decided


def _strict(call: Call, values: list[Any]) -> Any:
    function = call.function
    if function == "IS_NULL":
        return values[0] is None
    if function == "NULLIF":
        a, b = values
        return None if a is not None and a == b else a
    if any(value is None for value in values):
        return None
    match function:
        case "NOT":
            return not values[0]
        case "CAST" | "TRY_CAST":
            return _cast(call, values[0])
        case "EQ" | "NEQ" | "LT" | "GTE":
            a, b = values
            return {"EQ": a == b, "NEQ": a != b, "LT": a < b, "GTE": a >= b}[function]
        case _:
            return _arithmetic(call, *values)


def _cast(call: Call, value: Any) -> Any:
    source, target = call.args[0].type.root, call.type.root
    if source is TypeRoot.VARCHAR:
        text = value.strip()
        if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d*)", text, re.ASCII):
            whole = int(re.match(r"[+-]?\d*", text).group().lstrip("+").replace("-", "-0") or "0")  # type: ignore[union-attr]
            if -(2**31) <= whole < 2**31:
                return whole
        if call.function == "CAST":
            raise RowFailure
        return None
    if target is TypeRoot.DOUBLE:
        return float(value)
    if math.isnan(value):
        return 0
    return int(max(-(2**31), min(2**31 - 1, value)))


def _arithmetic(call: Call, a: Any, b: Any) -> Any:
    if call.type.root is TypeRoot.DOUBLE:
        return _float_arithmetic(call.function, a, b)
    match call.function:
        case "PLUS":
            result = a + b
        case "MINUS":
            result = a - b
        case "TIMES":
            result = a * b
        case _:
            if b == 0:
                raise RowFailure
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            result = quotient if call.function == "DIVIDE" else a - quotient * b
    return (result + 2**31) % 2**32 - 2**31


def _float_arithmetic(function: str, a: float, b: float) -> float:
    if function != "DIVIDE":
        return {"PLUS": a + b, "MINUS": a - b, "TIMES": a * b}[function]
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)
