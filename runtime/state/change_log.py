"""What happened to rows that a snapshot no longer finds in a table: removals and, of a table whose rows move to disk,
rows as they were when they left memory. Oldest first, by epoch; kept until a committed checkpoint holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa


class LoggedPiece(Protocol):
    """Logged rows, in memory or on disk."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def row_count(self) -> int: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Oldest first; may be read in another thread."""


class MemoryPiece:
    """Rows in memory."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self.memory_bytes = rows.nbytes
        self.row_count = rows.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield self._rows


class ChangeLog:
    """Used by its table's thread."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, LoggedPiece]] = []
        self.memory_bytes = 0
        self.row_count = 0

    def append(self, epoch: int, rows: pa.RecordBatch) -> None:
        self._add(epoch, MemoryPiece(rows))

    def after(self, cut: int) -> list[LoggedPiece]:
        """What belongs to later epochs than `cut`."""
        return [piece for epoch, piece in self._pieces if epoch > cut]

    def drop(self, cut: int) -> None:
        """Epochs up to `cut` are held by a committed checkpoint."""
        kept = [(epoch, piece) for epoch, piece in self._pieces if epoch > cut]
        self._pieces = []
        self.memory_bytes = self.row_count = 0
        for epoch, piece in kept:
            self._add(epoch, piece)

    def _add(self, epoch: int, piece: LoggedPiece) -> None:
        self._pieces.append((epoch, piece))
        self.memory_bytes += piece.memory_bytes
        self.row_count += piece.row_count
