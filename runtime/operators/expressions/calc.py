"""A calc: filter, then projection, compiled to one function over a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from planner.ir.expressions import Expression, input_indexes
from planner.ir.types import to_arrow
from runtime.operators.expressions.compiler import Program, fold
from runtime.operators.expressions.context import EvaluationContext
from runtime.operators.expressions.errors import ExpressionError, RaisedInCall
from runtime.operators.expressions.vectors import as_array

Filtered = tuple[pa.RecordBatch, pa.BooleanArray | None]
"""Rows that passed, and the mask of all rows (None: every row passed) for columns that travel beside the batch."""


class Calc:
    """A compiled filter and projection. Used by one thread; `source` is the generated text, for tests and eyes."""

    def __init__(
        self,
        run: Callable[[pa.RecordBatch], Filtered],
        source: str,
        schema: pa.Schema,
    ) -> None:
        self._run = run
        self.source = source
        self.schema = schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The projected rows that pass the filter, as columns c0, c1, …; raises ExpressionError."""
        return self.filtered(batch)[0]

    def filtered(self, batch: pa.RecordBatch) -> Filtered:
        """As calling it, with the mask of rows that passed beside the result."""
        try:
            return self._run(batch)
        except RaisedInCall:
            raise first_failure(self._run, batch) from None


def first_failure(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> ExpressionError:
    """The error of the first row that fails, found by halves: log2(rows) evaluations of ever smaller batches."""
    start, stop = 0, batch.num_rows
    while stop - start > 1:
        middle = (start + stop) // 2
        if _raised(run, batch.slice(start, middle - start)) is not None:
            stop = middle
        else:
            start = middle
    raised = _raised(run, batch.slice(start, 1))
    if raised is None:
        raise AssertionError("an expression failed on a batch but on none of its rows")
    values = tuple(as_array(argument)[0].as_py() for argument in raised.arguments)
    return ExpressionError(raised.expression, values, start, str(raised.cause))


def _raised(run: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> RaisedInCall | None:
    try:
        run(batch)
    except RaisedInCall as raised:
        return raised
    return None


def compile_calc(
    condition: Expression | None, projections: Sequence[Expression], context: EvaluationContext, *, folding: bool = True
) -> Calc:
    """Compile once at deployment. Rows whose condition is FALSE or NULL are dropped before any projection runs."""
    if folding:
        condition = None if condition is None else fold(condition, context)
        projections = [fold(projection, context) for projection in projections]
    program = Program(context)
    used = sorted({index for projection in projections for index in input_indexes(projection)})
    if condition is not None:
        program.lines += [f"c{index} = batch.column({index})" for index in sorted(input_indexes(condition))]
        program.hoist_duckdb([condition])
        program.lines += [f"mask = is_true(as_array({program.compile(condition)}, n))", "kept = mask.true_count"]
        program.lines.append("if kept == 0: return empty, mask")
        program.lines.append(f"columns = [batch.column(i) for i in {used}] if kept == n else keep(batch, {used}, mask)")
        program.lines.append("mask, n = (None if kept == n else mask), kept")
        program.lines += [f"c{index} = columns[{position}]" for position, index in enumerate(used)]
        program.next_stage()
    else:
        program.lines += ["mask = None", *(f"c{index} = batch.column({index})" for index in used)]
    program.hoist_duckdb(projections)
    outputs = [f"as_array({program.compile(projection)}, n)" for projection in projections]
    schema = pa.schema([pa.field(f"c{i}", to_arrow(p.type)) for i, p in enumerate(projections)])
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    program.namespace |= {"RecordBatch": pa.RecordBatch.from_arrays, "schema": schema, "empty": empty, "keep": keep}
    lines = ["n = batch.num_rows", "if n == 0: return empty, None"]
    if program.uses_clock:
        program.namespace["clock"] = context.clock
        lines.append("now = clock()")
    lines += [*program.lines, f"return RecordBatch([{', '.join(outputs)}], schema=schema), mask"]
    source = "def run(batch):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, "<calc>", "exec"), program.namespace)
    return Calc(program.namespace["run"], source, schema)


def compile_expression(
    expression: Expression, context: EvaluationContext, *, folding: bool = True
) -> Callable[[pa.RecordBatch], Any]:
    """One expression as a function from a batch to an array of its type; raises ExpressionError when called."""
    calc = compile_calc(None, (expression,), context, folding=folding)
    return lambda batch: calc(batch).column(0)


def keep(batch: pa.RecordBatch, columns: list[int], mask: pa.BooleanArray) -> list[Any]:
    """The given columns of the rows where the mask is TRUE."""
    return batch.select(columns).filter(mask).columns
