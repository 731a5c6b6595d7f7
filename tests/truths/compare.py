"""Evaluates every recorded question with our planner and kernels, and lists the answers that differ from Flink's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from planner.errors import SqlError
from planner.ir.expressions import Expression
from planner.ir.types import DataType, TypeRoot
from runtime.operators.expressions.calc import Calc, compile_calc
from runtime.operators.expressions.context import EvaluationContext, UnsupportedExpression
from runtime.operators.expressions.errors import ExpressionError
from tests.truths.reader import Table, to_column, to_python

APPROXIMATE = 1e-15
"""Relative difference allowed to POWER and SQRT: Java's and C's libraries differ in the last bit."""


@dataclass(frozen=True)
class Mismatch:
    """One row (or, with `row` None, one whole question) that Flink answers otherwise."""

    table: str
    sql: str
    row: int | None
    inputs: list[Any]
    flink: Any
    ours: Any


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and "error" in value


def mismatches(table: Table) -> Iterator[Mismatch]:
    """All differences of one table."""
    batch = table.batch()
    context = EvaluationContext(table.time_zone, lambda: 1_700_000_000_000)
    for case in table.cases:
        if "values" in case:
            yield from _of_case(table, case, batch, context)
    for condition in table.filters:
        ours = _passed(table, condition["where"], batch, context)
        flink = condition.get("rows", "error")
        if ours != flink:
            yield Mismatch(table.name, f"WHERE {condition['where']}", None, [], flink, ours)


def _passed(table: Table, where: str, batch: pa.RecordBatch, context: EvaluationContext) -> list[int] | str:
    calc = compile_calc(table.bind(where), [table.bind(table.columns[0][0])], context)
    try:
        mask = calc.filtered(batch)[1]
    except ExpressionError:
        return "error"
    return [index for index in range(batch.num_rows) if mask is None or mask[index].as_py()]


def _of_case(
    table: Table, case: dict[str, Any], batch: pa.RecordBatch, context: EvaluationContext
) -> Iterator[Mismatch]:
    sql, flink = case["sql"], case["values"]
    always_fails = all(is_error(value) or value is None for value in flink) and any(map(is_error, flink))
    try:
        expression = table.bind(sql)
        calc = compile_calc(None, [expression], context)
    except (SqlError, UnsupportedExpression) as refusal:
        # Refusing at once what fails on every row is better than Flink.
        if not always_fails:
            yield Mismatch(table.name, sql, None, [], "answers", f"refused: {refusal}")
        return
    for index, ours in enumerate(_answers(calc, batch)):
        value = flink[index]
        if not _agrees(value, ours, expression):
            yield Mismatch(table.name, sql, index, table.rows[index], value, ours)


def _answers(calc: Calc, batch: pa.RecordBatch) -> list[Any]:
    """One-row arrays, or the ExpressionError of the row."""
    try:
        column = calc(batch).column(0)
        return [column.slice(index, 1) for index in range(batch.num_rows)]
    except ExpressionError:
        answers: list[Any] = []
        for index in range(batch.num_rows):
            try:
                answers.append(calc(batch.slice(index, 1)).column(0))
            except ExpressionError as error:
                answers.append(error)
        return answers


def _agrees(flink: Any, ours: Any, expression: Expression) -> bool:
    if is_error(flink) or isinstance(ours, ExpressionError):
        return is_error(flink) and isinstance(ours, ExpressionError)
    if expression.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _same_float(to_python(flink, expression.type), ours.to_pylist()[0])
    if _has_map(expression.type):
        return bool(_sorted(ours.to_pylist()) == _sorted([to_python(flink, expression.type)]))
    return bool(ours.equals(to_column([flink], expression.type)))


def _has_map(t: DataType) -> bool:
    return t.root is TypeRoot.MAP


def _sorted(values: list[Any]) -> list[Any]:
    return [None if value is None else sorted(value) for value in values]


def _same_float(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return math.copysign(1, a) == math.copysign(1, b)
    return math.isclose(a, b, rel_tol=APPROXIMATE, abs_tol=0)
