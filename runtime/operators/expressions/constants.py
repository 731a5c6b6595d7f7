"""Constant expressions: folded at compilation, and the rows of VALUES."""

from __future__ import annotations

import pyarrow as pa

from planner.ir.expressions import Call, Expression
from planner.ir.types import DataType, arrow_schema, to_arrow
from runtime.operators.expressions.context import EvaluationContext
from runtime.operators.expressions.errors import ExpressionError, RaisedInCall
from runtime.operators.expressions.vectors import literal_of


def evaluate_constant(call: Call, context: EvaluationContext) -> Expression:
    """The literal that `call` (of literals alone) gives, or the call itself if it raises or has no literal form."""
    from runtime.operators.expressions.calc import compile_expression

    if to_arrow(call.type) == pa.null():
        return call
    try:
        column = compile_expression(call, context, folding=False)(_ONE_ROW)
    except (ExpressionError, RaisedInCall):
        return call
    literal = literal_of(column[0], call.type)
    return call if literal is None else literal


def evaluate_values(
    rows: tuple[tuple[Expression, ...], ...], types: tuple[DataType, ...], context: EvaluationContext
) -> pa.RecordBatch:
    """The rows of a VALUES source as one batch. Raises ExpressionError where an expression fails."""
    from runtime.operators.expressions.calc import compile_expression

    schema = arrow_schema(types)
    columns = []
    for index, field in enumerate(schema):
        pieces = []
        for row in rows:
            expression = row[index]
            if to_arrow(expression.type) != field.type:
                expression = Call("CAST", (expression,), types[index])
            pieces.append(compile_expression(expression, context)(_ONE_ROW))
        columns.append(pa.concat_arrays(pieces) if pieces else pa.array([], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], ["c0"])
