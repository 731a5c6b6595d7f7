"""What operators that keep rows by key have in common: their state's backend, what they count, and their snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedStateBackend, KeyedTable

RETRACTIONS_WITHOUT_STATE = "numRetractionsWithoutState"


class KeyedOperator:
    """All of `Operator` but `process` and `open`, which makes `_table` (who has others says how many rows they hold).
    Rows are answered when they come: time brings nothing."""

    def __init__(self, uid: str, context: OperatorContext) -> None:
        self.uid = uid
        self._context = context
        self._backend: KeyedStateBackend = open_backend(uid, context)
        self._table: KeyedTable

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        yield from ()

    def end(self, drain: bool) -> Iterator[Batch]:
        yield from ()

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        write_segments = self._backend.capture(checkpoint_id)
        counters = self._kept_counters()
        return lambda: OperatorSnapshot(self.uid, segments=write_segments(), counters=counters)

    def counters(self) -> dict[str, float]:
        return {
            **self._kept_counters(),
            "stateBytes": self._backend.byte_size,
            "numRowsStored": self._rows_stored(),
        }

    def close(self) -> None:
        self._backend.close()

    def _kept_counters(self) -> dict[str, int]:
        """Those that are state."""
        return {}

    def _rows_stored(self) -> int:
        return self._table.row_count


class RetractingOperator(KeyedOperator):
    """Its input takes rows back; `_ignored` counts those that are not there."""

    def __init__(self, uid: str, context: OperatorContext) -> None:
        super().__init__(uid, context)
        self._ignored = 0
        if context.restore is not None:
            self._ignored = context.restore.counters.get(RETRACTIONS_WITHOUT_STATE, 0)

    def _kept_counters(self) -> dict[str, int]:
        return {RETRACTIONS_WITHOUT_STATE: self._ignored}
