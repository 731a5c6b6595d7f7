"""Random expressions over random batches, compared with the row-wise evaluator: zero divisors, bad strings, NaN and
NULLs below CASE, COALESCE, AND, OR, IF and WHERE."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, canonical
from planner.ir.types import DataType
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.expressions.errors import ExpressionError
from tests.unit.runtime.expressions.build import batch, context
from tests.unit.runtime.expressions.reference import RowFailure, evaluate

INTEGERS = st.one_of(st.none(), st.sampled_from([0, 0, 1, -1, 2, 7, 2**31 - 1, -(2**31)]))
DOUBLES = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.0, 1e300, math.nan, math.inf, -math.inf]))
TEXTS = st.one_of(st.none(), st.sampled_from(["1", " 12 ", "x", "", "-7", "1.9", "3000000000", "+5", "1e3"]))
BOOLEANS = st.sampled_from([True, False, None])
COLUMNS: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (t.INT, INTEGERS), (t.INT, INTEGERS), (t.DOUBLE, DOUBLES), (t.STRING, TEXTS), (t.BOOLEAN, BOOLEANS),
]  # fmt: skip
ROWS = st.lists(st.tuples(*(values for _, values in COLUMNS)).map(list), min_size=1, max_size=12)


def _leaf(type_: DataType) -> st.SearchStrategy[Expression]:
    columns = [InputRef(index, type_) for index, (declared, _) in enumerate(COLUMNS) if declared == type_]
    values = {t.INT: INTEGERS, t.DOUBLE: DOUBLES, t.STRING: TEXTS, t.BOOLEAN: BOOLEANS}[type_]
    # NaN has no literal and constants no negative zero in Flink.
    literals = values.filter(lambda v: not (isinstance(v, float) and (math.isnan(v) or v == 0)))
    return st.one_of(st.sampled_from(columns), literals.map(lambda value: Literal(value, type_)))


_I, _D, _S, _B = t.INT, t.DOUBLE, t.STRING, t.BOOLEAN
SIGNATURES: dict[DataType, list[tuple[str, tuple[DataType, ...]]]] = {
    _I: [
        *((name, (_I, _I)) for name in ("PLUS", "MINUS", "TIMES", "DIVIDE", "DIVIDE", "MODULO", "NULLIF")),
        ("CAST", (_S,)), ("TRY_CAST", (_S,)), ("CAST", (_D,)),
    ],
    _D: [*((name, (_D, _D)) for name in ("PLUS", "MINUS", "TIMES", "DIVIDE")), ("CAST", (_I,))],
    _B: [
        *((name, (x, x)) for name in ("EQ", "NEQ", "LT", "GTE") for x in (_I, _D)),
        ("AND", (_B, _B)), ("OR", (_B, _B)), ("AND", (_B, _B, _B)), ("NOT", (_B,)), ("IS_NULL", (_I,)),
    ],
}  # fmt: skip
for _type, _signatures in SIGNATURES.items():
    _signatures += [
        ("CASE", (_B, _type, _type)), ("CASE", (_B, _type, _B, _type, _type)), ("CASE", (_B, _type)),
        ("COALESCE", (_type, _type)), ("COALESCE", (_type, _type, _type)), ("IF", (_B, _type, _type)),
    ]  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, type_: DataType, depth: int) -> Expression:
    """Typed expressions of at most the given depth."""
    if depth == 0 or type_ == _S or draw(st.integers(0, 5)) == 0:
        return draw(_leaf(type_))
    function, arguments = draw(st.sampled_from(SIGNATURES[type_]))
    return Call(function, tuple(draw(expressions(argument, depth - 1)) for argument in arguments), type_)


def _compares_with_itself(expression: Expression) -> bool:
    """`x = x` is decided without comparing, which for NaN differs from the yardstick."""
    if not isinstance(expression, Call):
        return False
    same = len(expression.args) == 2 and canonical(expression.args[0]) == canonical(expression.args[1])
    return same or any(map(_compares_with_itself, expression.args))


def _table(rows: list[list[Any]]) -> pa.RecordBatch:
    return batch(*((type_, [row[i] for row in rows]) for i, (type_, _) in enumerate(COLUMNS)))


def _row_by_row(
    condition: Expression | None, projections: list[Expression], rows: list[list[Any]]
) -> tuple[list[list[Any]], int | None]:
    """Rows that pass, projected, and the index of the first row that fails."""
    result = []
    for index, row in enumerate(rows):
        try:
            if condition is None or evaluate(condition, row) is True:
                result.append([evaluate(projection, row) for projection in projections])
        except RowFailure:
            return [], index
    return result, None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b
    return bool(a == b) and type(a) is type(b)


def _check(condition: Expression | None, projections: list[Expression], rows: list[list[Any]]) -> None:
    expected, failing = _row_by_row(condition, projections, rows)
    calc = compile_calc(condition, projections, context())
    if failing is not None:
        with pytest.raises(ExpressionError) as raised:
            calc(_table(rows))
        assert raised.value.row_index == failing
        return
    result = calc(_table(rows))
    actual = [list(row.values()) for row in result.to_pylist()]
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert all(map(_equal, ours, theirs)), (ours, theirs)


@given(expression=st.one_of(*(expressions(x, 4) for x in (t.INT, t.BOOLEAN, t.DOUBLE))), rows=ROWS)
def test_one_expression(expression: Expression, rows: list[list[Any]]) -> None:
    if not _compares_with_itself(expression):
        _check(None, [expression], rows)


@given(condition=expressions(t.BOOLEAN, 3), first=expressions(t.INT, 3), second=expressions(t.INT, 2), rows=ROWS)
def test_where_and_two_projections(
    condition: Expression, first: Expression, second: Expression, rows: list[list[Any]]
) -> None:
    if not any(map(_compares_with_itself, (condition, first, second))):
        # The second projection shares the first as a sub-expression.
        _check(condition, [first, Call("PLUS", (first, second), t.INT)], rows)
