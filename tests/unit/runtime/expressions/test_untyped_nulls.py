"""NULL without a type, on every side of an operator: the answer is NULL or a truth value, never a failure."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.ir.types import to_arrow
from runtime.operators.expressions.calc import compile_expression
from runtime.operators.expressions.context import EvaluationContext
from tests.truths.reader import Table

ONE_ROW = pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], names=["c0"])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("NULL = NULL", None),
        ("NULL < NULL", None),
        ("NULL <> 1", None),
        ("NULL IS DISTINCT FROM NULL", False),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("NULL IN (NULL)", None),
        ("NULL IN (NULL, 1)", None),
        ("3 IN (1, NULL)", None),
        ("NULL BETWEEN NULL AND NULL", None),
        ("NULL + NULL", None),
        ("- NULL", None),
        ("NULL || NULL", None),
        ("NULL AND TRUE", None),
        ("NOT NULL", None),
        ("NULL LIKE NULL", None),
        ("NULL IS NULL", True),
        ("CASE WHEN NULL THEN 1 END", None),
        ("COALESCE(NULL, 1)", 1),
        ("NULLIF(1, NULL)", 1),
        ("CAST(NULL AS INT)", None),
    ],
)
def test_untyped_null(sql: str, expected: object) -> None:
    bound = Table("none", "none", "UTC", (), [], [], []).bind(sql)
    column = compile_expression(bound, EvaluationContext("UTC", lambda: 0))(ONE_ROW)
    assert column.type == to_arrow(bound.type)
    assert column.to_pylist() == [expected]
