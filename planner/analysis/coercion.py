"""Building CAST calls, and bringing several expressions to their common type."""

from __future__ import annotations

from collections.abc import Sequence

from planner.analysis import type_rules
from planner.analysis.literals import cast_literal
from planner.errors import Span, SqlError, SqlState
from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import DataType, TypeRoot


def cast_to(expression: Expression, target: DataType, text: str = "") -> Expression:
    """`expression` as `target`; its own nullability is kept, and nothing is added where the type is the same.

    The caller has made sure that the cast exists.
    """
    nullable = expression.type.nullable
    wanted = type_rules.plain(target).with_nullable(nullable)
    if type_rules.same_but_nullability(expression.type, wanted):
        return expression
    if isinstance(expression, Literal):
        folded = cast_literal(expression, wanted)
        if folded is not None:
            return folded
    if wanted.root is TypeRoot.DECIMAL and expression.type.is_numeric:
        # A number that does not fit becomes NULL.
        wanted = wanted.with_nullable(nullable or not _always_fits(expression.type, wanted))
    return Call("CAST", (expression,), wanted, text)


def _always_fits(source: DataType, target: DataType) -> bool:
    if not (source.is_integer or source.root is TypeRoot.DECIMAL):
        return False
    exact = type_rules.as_decimal(source)
    integral = (exact.precision or 0) - (exact.scale or 0)
    return integral <= (target.precision or 0) - (target.scale or 0)


def to_common_type(expressions: Sequence[Expression], span: Span, what: str) -> tuple[Expression, ...]:
    """All expressions cast to their common type; `what` names the construct in the error."""
    common = type_rules.common_type([e.type for e in expressions])
    if common is None:
        listed = ", ".join(type_rules.plain(e.type).with_nullable(True).sql() for e in expressions)
        raise SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"{what} mixes types without a common one: {listed}",
            span=span,
            hint="Bring them to one type with CAST.",
        )
    return tuple(cast_to(e, common) for e in expressions)
