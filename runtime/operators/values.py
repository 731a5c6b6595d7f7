"""The rows of VALUES: a source of constants."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.api import SplitState
from planner.ir.operators import Values
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch, Watermark, WatermarkStatus
from runtime.operators.calc import evaluation_context
from runtime.operators.expressions.constants import evaluate_values
from runtime.operators.protocol import FinishSnapshot, OperatorContext

_GIVEN = b"given"


class ValuesOperator:
    """Gives its rows once; that it did is its state."""

    def __init__(self, node: Values, context: OperatorContext) -> None:
        self._node = node
        self._context = context
        self._given = context.restore is not None and context.restore.data == _GIVEN

    @property
    def uid(self) -> str:
        return self._node.uid

    @property
    def ended(self) -> bool:
        return self._given

    @property
    def readable(self) -> bool:
        return not self._given

    def open(self) -> None:
        """Rows are evaluated when they are given: current time is that of the run."""

    def add_splits(self, splits: tuple[SplitState, ...], all_assigned: bool) -> None:
        assert not splits, "constant rows have no splits"

    def stop(self) -> None:
        self._given = True

    def poll(self, timeout_ms: int) -> Iterator[Batch | Watermark | WatermarkStatus]:
        if not self._given:
            self._given = True
            rows = evaluate_values(self._node.rows, self._node.output.types, evaluation_context(self._context))
            yield Batch(rows)

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        snapshot = OperatorSnapshot(self.uid, data=_GIVEN if self._given else b"")
        return lambda: snapshot

    def checkpoint_committed(self, checkpoint_id: int) -> None:
        pass

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass
