"""Whether every expression of a job has a kernel, asked before the job starts."""

from __future__ import annotations

from planner.ir.expressions import Expression
from planner.ir.job_graph import JobGraph
from planner.ir.operators import Calc, Operator, Source, Values
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.expressions.context import EvaluationContext


def check_expressions(graph: JobGraph, local_time_zone: str) -> None:
    """Compiles what the slots will compile and throws it away. Raises UnsupportedExpression, whose `text` is the SQL
    of the call: a regular expression or a format that only Java understands, for instance."""
    context = EvaluationContext(local_time_zone, lambda: 0)
    for vertex in graph.vertices:
        for operator in vertex.operators:
            for condition, projections in _calcs(operator):
                compile_calc(condition, projections, context)


def _calcs(operator: Operator) -> list[tuple[Expression | None, tuple[Expression, ...]]]:
    match operator:
        case Source(projections=projections, watermark=watermark):
            return [(None, projections), *([] if watermark is None else [(None, (watermark.expression,))])]
        case Calc(condition=condition, projections=projections):
            return [(condition, projections)]
        case Values(rows=rows):
            return [(None, row) for row in rows]
        case _:
            return []
