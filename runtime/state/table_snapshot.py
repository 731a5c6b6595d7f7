"""A snapshot of a keyed table that is taken while the table is used.

Opening it costs the same at any size. From then on each row of the snapshot is copied out exactly once: by the task's
thread just before the row is changed or removed (`preserve`), or piece by piece by the thread that writes the snapshot,
whichever comes first. Both mark a row as captured under the table's lock *before* it may change, so what is copied is
always the row as it was when the snapshot was opened; rows made later are marked from the start.

A snapshot of changes holds the rows changed since the plan's cut and those of the key groups that are renewed; before
them, in order, what the table's log has of the time since the cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.state.change_log import LoggedPiece
from runtime.state.key_index import Mask
from runtime.state.protocol import Slots
from runtime.state.row_store import RowStore
from runtime.state.segment_chain import SnapshotPlan

CAPTURED_ROWS = 16_384
"""Rows copied at once: the task's thread may have to wait for so many."""
SCANNED_SLOTS = 65_536
"""Slots looked at under the lock at once."""
PRESERVED_ROWS_MAX = 262_144
"""Rows copied by the task's thread that may wait for the writing one; above it the task writes them itself."""

WritePieces = Callable[[list[pa.RecordBatch]], None]


class Capture(Protocol):
    """State as it was when the capture was made, for the thread that writes it."""

    def write_early(self, write: WritePieces) -> None:
        """What to call, in the task's thread, with rows that have piled up. Raises OSError."""

    def logged(self) -> Iterator[pa.RecordBatch]:
        """What must be read before everything else, in order."""

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Every row once, the key group first."""

    def close(self) -> None:
        """It has been written, or never will be."""


class TableCapture:
    """The rows that `store` holds now. `lock` guards the store; while it is in `open_captures` the table tells it what
    is about to change."""

    def __init__(
        self,
        store: RowStore,
        plan: SnapshotPlan,
        log: Sequence[LoggedPiece],
        lock: RLock,
        open_captures: list[TableCapture],
    ) -> None:
        self._store = store
        self._plan = plan
        self._log = log
        self._lock = lock
        self._slot_count = store.slot_count
        # Fresh pages: nothing is written until a row is captured.
        self._captured: npt.NDArray[np.bool_] = np.zeros(self._slot_count, dtype=np.bool_)
        self._renewed: Mask | None = None
        if plan.renewed:
            # One more than the last: what any other key group is looked up as.
            self._renewed = np.zeros(max(plan.renewed) + 2, dtype=np.bool_)
            self._renewed[list(plan.renewed)] = True
        self._preserved: deque[pa.RecordBatch] = deque()
        self._preserved_rows = 0
        self._write_early: WritePieces | None = None
        self._failure: OSError | None = None
        self._next = 0
        self._open = open_captures
        open_captures.append(self)

    def write_early(self, write: WritePieces) -> None:
        self._write_early = write

    def preserve(self, slots: Slots) -> None:
        """These rows are about to change; their last change is as it was. The caller holds the lock."""
        slots = slots[slots < self._slot_count]
        slots = slots[~self._captured[slots]]
        if not len(slots):
            return
        self._captured[slots] = True
        slots = np.unique(slots[self._is_wanted(slots)])
        if len(slots):
            self._preserved.append(self._rows(slots))
            self._preserved_rows += len(slots)
            if self._preserved_rows > PRESERVED_ROWS_MAX and self._write_early is not None and self._failure is None:
                self._hand_over()

    def exclude(self, slots: Slots) -> None:
        """These slots get new rows, which are not part of the snapshot. The caller holds the lock."""
        self._captured[slots[slots < self._slot_count]] = True

    def logged(self) -> Iterator[pa.RecordBatch]:
        for piece in self._log:
            for rows in piece.batches():
                yield self._store.shape.as_delta(rows)

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Every row of the snapshot once, in no order; for the writing thread."""
        while True:
            with self._lock:
                piece = self._take()
            if piece is not None:
                yield piece
            elif self._next >= self._slot_count:
                # Behind the last slot nothing can be preserved any more.
                return

    def close(self) -> None:
        with self._lock:
            if self in self._open:
                self._open.remove(self)
        self._log = ()

    def _is_wanted(self, slots: Slots) -> Mask:
        if not self._plan.is_delta:
            return np.ones(len(slots), dtype=np.bool_)
        wanted: Mask = self._store.changed[slots] > self._plan.cut
        if self._renewed is not None:
            wanted |= self._renewed[np.minimum(self._store.groups[slots], len(self._renewed) - 1)]
        return wanted

    def _rows(self, slots: Slots) -> pa.RecordBatch:
        rows = self._store.rows(slots)
        return self._store.shape.as_delta(rows) if self._plan.is_delta else rows

    def _hand_over(self) -> None:
        """The writing thread does not keep up."""
        assert self._write_early is not None
        pieces = list(self._preserved)
        self._preserved.clear()
        self._preserved_rows = 0
        try:
            self._write_early(pieces)
        except OSError as error:  # Fails the snapshot, in the thread that writes it, not the task.
            self._failure = error

    def _take(self) -> pa.RecordBatch | None:
        """The next rows; None: nothing was found among the slots looked at."""
        if self._failure is not None:
            raise self._failure
        if self._preserved:
            piece = self._preserved.popleft()
            self._preserved_rows -= piece.num_rows
            return piece
        first = self._next
        end = min(first + SCANNED_SLOTS, self._slot_count)
        slots = self._store.live_among(first, end)
        slots = slots[~self._captured[slots]]
        slots = slots[self._is_wanted(slots)]
        if len(slots) > CAPTURED_ROWS:
            slots = slots[:CAPTURED_ROWS]
            end = int(slots[-1]) + 1
        self._next = end
        if not len(slots):
            return None
        self._captured[slots] = True
        return self._rows(slots)
