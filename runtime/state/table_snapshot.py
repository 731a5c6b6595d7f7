"""A snapshot of a keyed table that is taken while the table is used.

Opening it costs the same at any size. From then on each row is copied out exactly once: by the task's thread just
before the row is changed or removed (`preserve`), or piece by piece by the thread that writes the snapshot, whichever
comes first. Both mark a row as captured under the table's lock *before* it may change, so what is copied is always the
row as it was when the snapshot was opened; rows made later are marked from the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import RLock
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.state.protocol import Slots
from runtime.state.row_store import RowStore
from runtime.state.segments import SegmentWriter

CAPTURED_ROWS = 16_384
"""Rows copied at once: the task's thread may have to wait for so many."""
SEGMENT_ROWS = 262_144
SEGMENT_BYTES = 16 << 20
"""A segment is written when so much has been collected: what a snapshot needs in memory."""


PRESERVED_ROWS_MAX = 262_144
"""Rows copied by the task's thread that may wait for the writing one; above it the task writes them itself."""

WritePieces = Callable[[list[pa.RecordBatch]], None]


class Capture(Protocol):
    """State as it was when the capture was made, for the thread that writes it."""

    def write_early(self, write: WritePieces) -> None:
        """What to call, in the task's thread, with rows that have piled up. Raises OSError."""

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Every row once, the key group first."""

    def close(self) -> None:
        """It has been written, or never will be."""


class TableCapture:
    """The rows that `store` holds now. `lock` guards the store; while it is in `open_captures` the table tells it what
    is about to change."""

    def __init__(self, store: RowStore, lock: RLock, open_captures: list[TableCapture]) -> None:
        self._store = store
        self._lock = lock
        self._slot_count = store.slot_count
        # Fresh pages: nothing is written until a row is captured.
        self._captured: npt.NDArray[np.bool_] = np.zeros(self._slot_count, dtype=np.bool_)
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
        """These rows are about to change. The caller holds the lock."""
        slots = slots[slots < self._slot_count]
        slots = np.unique(slots[~self._captured[slots]])
        if len(slots):
            self._captured[slots] = True
            self._preserved.append(self._store.rows(slots))
            self._preserved_rows += len(slots)
            if self._preserved_rows > PRESERVED_ROWS_MAX and self._write_early is not None and self._failure is None:
                self._hand_over()

    def exclude(self, slots: Slots) -> None:
        """These slots get new rows, which are not part of the snapshot. The caller holds the lock."""
        self._captured[slots[slots < self._slot_count]] = True

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Every row of the snapshot once, in no order; for the writing thread."""
        while True:
            with self._lock:
                piece = self._take()
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        with self._lock:
            if self in self._open:
                self._open.remove(self)

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
        if self._failure is not None:
            raise self._failure
        if self._preserved:
            piece = self._preserved.popleft()
            self._preserved_rows -= piece.num_rows
            return piece
        while self._next < self._slot_count:
            first, self._next = self._next, min(self._next + CAPTURED_ROWS, self._slot_count)
            slots = self._store.live_among(first, self._next)
            slots = slots[~self._captured[slots]]
            if len(slots):
                self._captured[slots] = True
                return self._store.rows(slots)
        return None


def write_pieces(
    pieces: Iterable[pa.RecordBatch], writer: SegmentWriter, state: str, checkpoint_id: int
) -> Iterator[SegmentHandle]:
    """Write rows as segments of bounded size, each sorted by key group (rows of one keep their order)."""
    collected: list[pa.RecordBatch] = []
    row_count = byte_size = 0
    for piece in pieces:
        collected.append(piece)
        row_count += piece.num_rows
        byte_size += piece.nbytes
        if row_count >= SEGMENT_ROWS or byte_size >= SEGMENT_BYTES:
            yield _write_segment(collected, writer, state, checkpoint_id)
            collected = []
            row_count = byte_size = 0
    if row_count:
        yield _write_segment(collected, writer, state, checkpoint_id)


def _write_segment(
    pieces: list[pa.RecordBatch], writer: SegmentWriter, state: str, checkpoint_id: int
) -> SegmentHandle:
    rows = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
    pieces.clear()
    rows = rows.take(np.argsort(rows.column(0).to_numpy(), kind="stable"))
    return writer.write(writer.reserve_name(state, checkpoint_id), state, rows)
