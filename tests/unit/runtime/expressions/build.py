"""Short names for typed expressions, for tests that build them by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.types import DataType, arrow_schema
from runtime.operators.expressions.context import EvaluationContext

NOT_NULL_BOOLEAN = t.BOOLEAN.with_nullable(False)


def context(zone: str = "UTC", clock: Callable[[], int] = lambda: 1_700_000_000_123) -> EvaluationContext:
    return EvaluationContext(zone, clock)


def column(index: int, type_: DataType = t.INT) -> InputRef:
    return InputRef(index, type_)


def lit(value: Any, type_: DataType = t.INT) -> Literal:
    return Literal(value, type_)


def call(function: str, *args: Expression, type: DataType = t.INT, text: str = "") -> Call:
    return Call(function, args, type, text)


def boolean(function: str, *args: Expression) -> Call:
    """A call that gives BOOLEAN."""
    return Call(function, args, t.BOOLEAN)


def batch(*columns: tuple[DataType, list[Any]]) -> pa.RecordBatch:
    schema = arrow_schema(tuple(type_ for type_, _ in columns))
    arrays = [pa.array(values, field.type) for (_, values), field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
