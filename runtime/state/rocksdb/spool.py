"""A change log that keeps what is old on disk."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from runtime.state.change_log import ChangeLog, LoggedPiece
from runtime.state.row_store import TableShape

MEMORY_BYTES = 1 << 20
"""A log has no more in memory."""
ROWS_MIN = 262_144
"""A longer log with more rows than its table is too large."""


class SpooledPiece:
    """Rows in a local file, which goes with this object."""

    memory_bytes = 0

    def __init__(self, path: Path, pieces: list[LoggedPiece], shape: TableShape) -> None:
        self._path = path
        self.row_count = 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, shape.delta_schema) as writer:
            for piece in pieces:
                for rows in piece.batches():
                    writer.write_batch(shape.as_delta(rows))
                    self.row_count += rows.num_rows
        weakref.finalize(self, _remove, path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self._path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader


class SpooledLog(ChangeLog):
    """Rows evicted from memory would fill it again here."""

    def __init__(self, shape: TableShape, directory: Path) -> None:
        super().__init__()
        self._shape = shape
        self._directory = directory
        self._numbers = itertools.count(1)

    def append(self, epoch: int, rows: pa.RecordBatch) -> None:
        super().append(epoch, rows)
        if self.memory_bytes > MEMORY_BYTES:
            self._spool()

    def is_too_large(self, table_rows: int, table_bytes: int) -> bool:
        return self.row_count > max(ROWS_MIN, table_rows)

    def _spool(self) -> None:
        """Write the pieces that are in memory to one file per epoch."""
        pieces, self._pieces = sorted(self._pieces, key=lambda entry: entry[0]), []
        self.memory_bytes = self.row_count = 0
        for (epoch, is_in_memory), run in itertools.groupby(pieces, key=_epoch_and_place):
            run_pieces = [piece for _, piece in run]
            if is_in_memory:
                path = self._directory / f"changes-{id(self)}-{next(self._numbers)}.arrow"
                self._add(epoch, SpooledPiece(path, run_pieces, self._shape))
            else:
                for piece in run_pieces:
                    self._add(epoch, piece)


def _epoch_and_place(entry: tuple[int, LoggedPiece]) -> tuple[int, bool]:
    return entry[0], entry[1].memory_bytes > 0


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
