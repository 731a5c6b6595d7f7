"""Which ranks a condition lets through."""

from __future__ import annotations

import pytest

from planner.analysis.coercion import cast_to
from planner.analysis.operators import between, comparison, logical, membership, negation
from planner.errors import Span
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.logical.nodes import Column
from planner.logical.rank_bounds import RANK_TYPE, RankRange, rank_range
from planner.plan_text import expression_text

SPAN = Span(0, 0)
RANK = InputRef(2, RANK_TYPE)
OTHER = InputRef(1, t.INT)


def number(value: int | str, type_: t.DataType = t.INT) -> Literal:
    return Literal(value, type_.with_nullable(False))


def is_(operator: str, value: Expression | int) -> Expression:
    """`rank operator value`, as the binder has it."""
    return comparison(operator, RANK, number(value) if isinstance(value, int) else value, SPAN)


def shown(value: object) -> str:
    """A short name of a test's parameter."""
    if isinstance(value, RankRange):
        return f"{value.first}..{value.last}"
    columns = tuple(Column(f"c{i}", t.INT) for i in range(3))
    return expression_text(value, columns) if isinstance(value, InputRef | Literal | Call) else str(value)


TENTHS = t.decimal(3, 1)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (is_("<=", 3), RankRange(1, 3)),
        (is_("<", 3), RankRange(1, 2)),
        (is_("=", 3), RankRange(3, 3)),
        (is_(">", 3), RankRange(4, None)),
        (is_(">=", 3), RankRange(3, None)),
        (is_(">=", -3), RankRange(1, None)),
        (is_("<=", 0), RankRange(1, 0)),
        (is_("=", 0), RankRange(1, 0)),
        (comparison(">=", number(3), RANK, SPAN), RankRange(1, 3)),
        (comparison(">", number(3), RANK, SPAN), RankRange(1, 2)),
        (comparison("<", number(3), RANK, SPAN), RankRange(4, None)),
        (is_("<=", number("2.5", TENTHS)), RankRange(1, 2)),
        (is_("<", number("2.5", TENTHS)), RankRange(1, 2)),
        (is_(">", number("2.5", TENTHS)), RankRange(3, None)),
        (is_("=", number("2.5", TENTHS)), RankRange(1, 0)),
        (is_("<", number(2**40, t.BIGINT)), RankRange(1, 2**40 - 1)),
        (between(RANK, number(2), number(5), False, SPAN), RankRange(2, 5)),
        (between(RANK, number(5), number(2), True, SPAN), RankRange(2, 5)),
        (membership(RANK, (number(2), number(1), number(3)), SPAN), RankRange(1, 3)),
        (membership(RANK, (number(1), number(3)), SPAN), RankRange(1, 3, is_exact=False)),
        (logical("OR", (is_("=", 1), is_("=", 2))), RankRange(1, 2)),
        (logical("OR", (is_("=", 1), is_("=", 4))), RankRange(1, 4, is_exact=False)),
        (logical("OR", (is_("<=", 2), is_(">", 1))), RankRange(1, None)),
        (logical("AND", (is_("<=", 9), is_("<>", 2))), RankRange(1, 9, is_exact=False)),
        (negation(is_(">", 3)), RankRange(1, 3)),
        (negation(comparison("<", number(3), RANK, SPAN)), RankRange(1, 3)),
        (negation(negation(is_("<", 3))), RankRange(1, 2)),
        (negation(is_("<>", 1)), RankRange(1, 1)),
        (negation(logical("OR", (is_(">", 5), is_("<", 2)))), RankRange(2, 5)),
        (negation(logical("AND", (is_(">=", 3), is_("<>", 4)))), RankRange(1, 4, is_exact=False)),
    ],
    ids=shown,
)
def test_ranges(condition: Expression, expected: RankRange) -> None:
    assert rank_range(condition, 2) == expected


@pytest.mark.parametrize(
    "condition",
    [
        is_("<>", 3),
        is_("<=", Literal(None, t.INT)),
        is_("<=", OTHER),
        comparison("<=", OTHER, number(3), SPAN),
        comparison("<=", cast_to(RANK, t.INT), number(3), SPAN),
        negation(is_("=", 3)),
        logical("OR", (is_("<=", 3), comparison("=", OTHER, number(1), SPAN))),
        membership(RANK, (number(1), Literal(None, t.INT)), SPAN),
    ],
    ids=shown,
)
def test_conditions_that_are_no_range(condition: Expression) -> None:
    assert rank_range(condition, 2) is None
