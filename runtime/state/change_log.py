"""What happened to rows that a snapshot no longer finds in a table: removals and, of a table whose rows move to disk,
rows as they were when they left memory. By the epoch of the change; what concerns one row stands in order. Kept as long
as a snapshot may have to write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

BYTES_MIN = 4 << 20
TABLE_SHARE = 8
"""A log of more bytes than both (these, one part in so many of its table) is too large to be kept until a checkpoint
succeeds."""


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

    def is_too_large(self, table_rows: int, table_bytes: int) -> bool:
        return self.memory_bytes > max(BYTES_MIN, table_bytes // TABLE_SHARE)

    def append(self, epoch: int, rows: pa.RecordBatch) -> None:
        self._add(epoch, MemoryPiece(rows))

    def after(self, cut: int) -> list[LoggedPiece]:
        """What belongs to later epochs than `cut`."""
        return [piece for epoch, piece in self._pieces if epoch > cut]

    def drop(self, cut: int) -> None:
        """No snapshot of changes goes back to before `cut`."""
        kept = [(epoch, piece) for epoch, piece in self._pieces if epoch > cut]
        self._pieces = []
        self.memory_bytes = self.row_count = 0
        for epoch, piece in kept:
            self._add(epoch, piece)

    def _add(self, epoch: int, piece: LoggedPiece) -> None:
        self._pieces.append((epoch, piece))
        self.memory_bytes += piece.memory_bytes
        self.row_count += piece.row_count
