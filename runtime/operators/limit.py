"""LIMIT and OFFSET: counts rows, then asks for the end of the job's sources."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from planner.ir.operators import Limit
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.exchange.partitioner import slice_batch
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.protocol.messages import LimitReached


class LimitOperator:
    """The number of rows seen so far is its state."""

    def __init__(self, node: Limit, context: OperatorContext, environment: TaskEnvironment) -> None:
        self._node = node
        self._context = context
        self._environment = environment
        restored = context.restore.data if context.restore is not None else b""
        self._seen = msgspec.msgpack.decode(restored, type=int) if restored else 0
        self._reported = False

    @property
    def uid(self) -> str:
        return self._node.uid

    def open(self) -> None:
        # Restored when it was satisfied already: no row may come to say so again.
        self._report_if_satisfied()

    def process(self, batch: Batch) -> Iterator[Batch]:
        first = max(0, self._node.offset - self._seen)
        last = min(batch.row_count, self._node.offset + self._node.count - self._seen)
        # No more than needed is counted: the state of a satisfied LIMIT stays the same.
        self._seen = min(self._seen + batch.row_count, self._node.offset + self._node.count)
        if last > first:
            yield slice_batch(batch, first, last - first)
        self._report_if_satisfied()

    def _report_if_satisfied(self) -> None:
        if self._seen >= self._node.offset + self._node.count and not self._reported:
            self._reported = True
            self._environment.send(LimitReached(self._context.attempt))

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        return iter(())

    def end(self, drain: bool) -> Iterator[Batch]:
        return iter(())

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        snapshot = OperatorSnapshot(self.uid, data=msgspec.msgpack.encode(self._seen))
        return lambda: snapshot

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass
