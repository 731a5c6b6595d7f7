"""What operators that go by time have in common: a clock per key group, the count of late rows, and their snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import MIN_WATERMARK_MS, Batch
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedStateBackend

Array = Any

LATE_RECORDS = "numLateRecordsDropped"


class ClockedOperator:
    """All of `Operator` but `open`, `process` and `advance`. Each key group has a clock: the highest watermark it has
    seen (processing time: the latest time). Clocks and count are state, so that a restore at another parallelism, whose
    first watermark may be behind, takes nothing back that has been decided: what has fired neither fires again nor
    takes rows."""

    keeps_unsent = True
    """Between two pieces of a firing the state holds exactly what has not been put out."""

    def __init__(self, uid: str, context: OperatorContext) -> None:
        self.uid = uid
        self._context = context
        self._backend: KeyedStateBackend = open_backend(uid, context)
        self._groups_owned = slice(context.key_groups.first, context.key_groups.last + 1)
        self._clocks: npt.NDArray[np.int64] = np.full(context.max_parallelism, MIN_WATERMARK_MS, dtype=np.int64)
        self._late_rows = 0
        if context.restore is not None:
            self._late_rows = context.restore.counters.get(LATE_RECORDS, 0)
            for group, clock_ms in context.restore.clocks.items():
                self._clocks[group] = clock_ms

    def end(self, drain: bool) -> Iterator[Batch]:
        """Nothing that waits for processing time is put out, as in Flink."""
        yield from ()

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        write_segments = self._backend.capture(checkpoint_id)
        owned = range(self._groups_owned.start, self._groups_owned.stop)
        clocks = {group: int(self._clocks[group]) for group in owned if self._clocks[group] != MIN_WATERMARK_MS}
        counters = {LATE_RECORDS: self._late_rows}

        def finish() -> OperatorSnapshot:
            return OperatorSnapshot(self.uid, segments=write_segments(), clocks=clocks, counters=counters)

        return finish

    def counters(self) -> dict[str, float]:
        return {LATE_RECORDS: self._late_rows, "stateBytes": self._backend.byte_size}

    def close(self) -> None:
        self._backend.close()

    def _pass_time(self, time_ms: int) -> None:
        """Clocks never go back."""
        np.maximum(self._clocks, time_ms, out=self._clocks)

    def _key_groups(self, keys: Sequence[Array], row_count: int) -> KeyGroups:
        if not keys:
            # Without keys all rows go to the first subtask, which owns key group 0 at every parallelism.
            return np.zeros(row_count, dtype=np.int16)
        return key_group(hash_columns(keys), self._context.max_parallelism)
