"""Filter and projection: compiled expressions over a batch."""

from __future__ import annotations

from collections.abc import Iterator

from planner.ir.operators import Calc
from runtime.elements import Batch
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.expressions.context import EvaluationContext
from runtime.operators.protocol import OperatorContext
from runtime.operators.stateless import StatelessOperator

LOCAL_TIME_ZONE = "table.local-time-zone"


def evaluation_context(context: OperatorContext) -> EvaluationContext:
    """The session's time zone and the task's wall clock, as expressions need them."""
    return EvaluationContext(context.settings.get(LOCAL_TIME_ZONE, "UTC"), context.wall_clock_ms)


class CalcOperator(StatelessOperator):
    """Stateless. Row kinds of a changelog pass as they are, without those of rows the filter drops."""

    def __init__(self, node: Calc, context: OperatorContext) -> None:
        super().__init__(node.uid)
        self._node = node
        self._context = context
        self._records_dropped = 0

    def open(self) -> None:
        self._calc = compile_calc(self._node.condition, self._node.projections, evaluation_context(self._context))

    def process(self, batch: Batch) -> Iterator[Batch]:
        rows, mask = self._calc.filtered(batch.data)
        self._records_dropped += batch.row_count - rows.num_rows
        if rows.num_rows:
            kinds = batch.row_kinds
            yield Batch(rows, kinds if kinds is None or mask is None else kinds.filter(mask))

    def counters(self) -> dict[str, float]:
        return {"numRecordsFiltered": self._records_dropped}
