"""Checkpoint files as the JobManager may change them: only while it leads.

A JobManager that was paused may go on at any instruction. So the leader token is checked right before a file becomes
visible or is deleted. Between the check and the deed it may be paused again; that is harmless, because what it deletes
was listed, or named by a manifest read, before a check that passed: no file of a newer leader's is among it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from connectors.api import FileWriter, StoredFile
from runtime.checkpoint.files import JobFiles


class FencedFiles:
    """Implements `JobFiles` over another. Whatever changes something raises StaleLeaderError when another leads."""

    def __init__(self, files: JobFiles, check_leader: Callable[[], None]) -> None:
        self._files = files
        self._check_leader = check_leader

    @property
    def uri(self) -> str:
        return self._files.uri

    def locate(self, path: str) -> str:
        return self._files.locate(path)

    def create(self, path: str) -> FileWriter:
        self._check_leader()
        return _FencedWriter(self._files.create(path), self._check_leader)

    def open(self, path: str) -> pa.NativeFile:
        return self._files.open(path)

    def byte_size(self, path: str) -> int:
        return self._files.byte_size(path)

    def delete(self, path: str) -> None:
        self._check_leader()
        self._files.delete(path)

    def unsealed(self) -> list[str]:
        return self._files.unsealed()

    def discard_unsealed(self, path: str) -> None:
        self._check_leader()
        self._files.discard_unsealed(path)

    def clear(self) -> None:
        self._check_leader()
        self._files.clear()

    def list(self, prefix: str) -> list[StoredFile]:
        return self._files.list(prefix)


class _FencedWriter:
    """See FileWriter. Nothing is seen of a file before it is sealed."""

    def __init__(self, writer: FileWriter, check_leader: Callable[[], None]) -> None:
        self._writer = writer
        self._check_leader = check_leader

    @property
    def closed(self) -> bool:
        return self._writer.closed

    def write(self, data: bytes | memoryview) -> int:
        return self._writer.write(data)

    def seal(self) -> StoredFile:
        try:
            self._check_leader()
        except BaseException:
            self._writer.discard()
            raise
        return self._writer.seal()

    def discard(self) -> None:
        self._writer.discard()
