"""State files as a restore reads them: one after the other, each from the storage once, though several handles in a
row may name parts of it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from connectors.api import CheckpointFiles


class SegmentFiles(Protocol):
    """Where segments are read from: CheckpointFiles, or what stands before it."""

    def locate(self, path: str) -> str: ...

    def open(self, path: str) -> pa.NativeFile: ...


class ReadOnce:
    """Keeps the file that was opened last, whole: a segment is never large."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._path = ""
        self._data: pa.Buffer | None = None

    def locate(self, path: str) -> str:
        return self._files.locate(path)

    def open(self, path: str) -> pa.NativeFile:
        """Raises FileNotFoundError, OSError."""
        if self._data is None or path != self._path:
            self._data = None
            with self._files.open(path) as source:
                self._data = source.read_buffer()
            self._path = path
        return pa.BufferReader(self._data)
