"""What interval, temporal and window joins have in common: clocks, and two inputs."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.elements import Batch
from runtime.operators.clocked import ClockedOperator
from runtime.operators.protocol import OperatorContext


class TimedJoinOperator(ClockedOperator):
    """`name` is what messages call the operator."""

    def __init__(self, uid: str, name: str, context: OperatorContext) -> None:
        super().__init__(uid, context)
        self._name = name

    def process(self, batch: Batch) -> Iterator[Batch]:
        raise AssertionError(f"{self.uid}: a join takes rows of one of its inputs")
