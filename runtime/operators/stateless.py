"""What the operators that keep nothing from one batch to the next have in common."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.operators.protocol import FinishSnapshot


class StatelessOperator:
    """All of `Operator` but `process`: nothing to restore, to fire or to keep."""

    def __init__(self, uid: str) -> None:
        self.uid = uid

    def open(self) -> None:
        """Nothing to restore."""

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        return iter(())

    def end(self, drain: bool) -> Iterator[Batch]:
        return iter(())

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        return lambda: OperatorSnapshot(self.uid)

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Holds nothing."""
