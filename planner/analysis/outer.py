"""Names of the query around a sub-query, and what stands in an expression for what is no scalar expression.

Both are calls of functions that no registry has, and none of them is left when the query's tree is complete: a
reference to a column of a query around (`planner.logical.decorrelate` takes it away), and a part, which is a
sub-query's value or a rank (`planner.logical.build_parts` puts it below the expression).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from sqlglot import exp

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, walk
from planner.ir.types import DataType

OUTER = "$OUTER"
PART = "$PART"

_NUMBER = t.INT.with_nullable(False)


class NameBinder(Protocol):
    def bind(self, node: exp.Expr) -> Expression: ...


class OuterNames(msgspec.Struct, frozen=True):
    """The names that a sub-query sees of the query around it, which is the `level`-th query of the nest, from 1."""

    binder: NameBinder
    level: int

    def bind(self, node: exp.Expr) -> Expression:
        """The name as a reference to the query around; its own references further out stay as they are."""
        return as_outer(self.binder.bind(node), self.level)


FIRST_PART = 1 << 30
"""A reference to part n of a query around counts as one to column `FIRST_PART` + n."""


def as_outer(expression: Expression, level: int) -> Expression:
    """An expression over the columns and parts of the query of `level`, for use within its sub-queries."""

    def outer(e: Expression) -> Expression | None:
        match e:
            case InputRef(index=index):
                return _outer_call(index, level, e.type)
            case Call(function=function, args=(Literal(value=int(number)),)) if function == PART:
                return _outer_call(FIRST_PART + number, level, e.type)
            case _:
                return None

    return _replaced(expression, outer)


def _outer_call(index: int, level: int, type_: DataType) -> Expression:
    return Call(OUTER, (Literal(level, _NUMBER), Literal(index, _NUMBER)), type_)


def outer_references(expression: Expression, level: int) -> frozenset[InputRef]:
    """What is read of the query of `level`, as columns there."""
    found = (_outer_column(e, level) for e in walk(expression))
    return frozenset(column for column in found if column is not None)


def replace_outer(expression: Expression, level: int, new: Callable[[InputRef], Expression]) -> Expression:
    """`expression` with each reference to the query of `level` replaced."""

    def replaced(e: Expression) -> Expression | None:
        column = _outer_column(e, level)
        return new(column) if column is not None else None

    return _replaced(expression, replaced)


def _outer_column(expression: Expression, level: int) -> InputRef | None:
    match expression:
        case Call(function=function, args=(Literal(value=of), Literal(value=int(index)))) if function == OUTER:
            return InputRef(index, expression.type) if of == level else None
        case _:
            return None


def is_outer(expression: Expression) -> bool:
    """Whether the expression is a reference to any query around, or a field of one."""
    reads = [e for e in walk(expression) if isinstance(e, InputRef) or (isinstance(e, Call) and e.function == OUTER)]
    return bool(reads) and not any(isinstance(e, InputRef) for e in reads)


def part(number: int, type_: DataType) -> Expression:
    """What stands for the `number`-th part of a query block."""
    return Call(PART, (Literal(number, _NUMBER),), type_)


def replace_parts(expression: Expression, values: dict[int, Expression]) -> Expression:
    """`expression` with the parts as what they have become."""

    def replaced(e: Expression) -> Expression | None:
        match e:
            case Call(function=function, args=(Literal(value=int(number)),)) if function == PART:
                return values[number]
            case _:
                return None

    return _replaced(expression, replaced)


def _replaced(expression: Expression, replacement: Callable[[Expression], Expression | None]) -> Expression:
    new = replacement(expression)
    if new is not None:
        return new
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(_replaced(a, replacement) for a in expression.args)
    return expression if arguments == expression.args else msgspec.structs.replace(expression, args=arguments)
