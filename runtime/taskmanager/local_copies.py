"""Copies, on this machine, of what its tasks write for checkpoints: a task that comes back reads them instead of the
checkpoint storage.

A copy is never needed. One that cannot be written, is missing, or is not what was written (its SHA-256 lies beside it
and is checked before the first use) is given up without a word, and the storage is read; how often is counted. Copies
of a checkpoint go when a newer one is committed; a task that is deployed removes what its predecessors have left and it
does not restore.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from connectors.api import CheckpointFiles, FileWriter, StoredFile
from runtime.checkpoint.snapshot import OperatorRestore, SubtaskSnapshot
from runtime.ids import AttemptId
from runtime.protocol.descriptors import TaskDescriptor

_DIGEST = ".sha256"
_PIECE_BYTES = 1 << 20


class LocalCopies:
    """Of one job's tasks in one slot process. `directory` is the TaskManager's for the job. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._named: dict[tuple[int, int], dict[int, frozenset[str]]] = {}
        """Task → checkpoint → files that it names, of the latest committed one and later ones."""
        self._checked: set[str] = set()

    def over(self, files: CheckpointFiles) -> FilesWithCopies:
        """The same files, for one task."""
        return FilesWithCopies(files, self)

    # -------------------------------------------------------------------------------------------- which are kept

    def deployed(self, task: TaskDescriptor) -> None:
        """Removes copies of earlier attempts of the task that it does not restore."""
        attempt = task.attempt
        needed = _restored(task)
        with self._lock:
            self._named[attempt.key] = {task.restored_checkpoint_id: needed}
        mine = re.compile(rf"-v{attempt.vertex_id}-s{attempt.subtask_index}-a\d+")
        left = [path for path in self._stored() if mine.search(path) and path not in needed]
        self.remove(left)

    def acknowledged(self, attempt: AttemptId, checkpoint_id: int, snapshot: SubtaskSnapshot) -> None:
        paths = frozenset(
            [handle.path for handle in snapshot.in_flight]
            + [segment.path for operator in snapshot.operators for segment in operator.segments]
            + [committable.file for operator in snapshot.operators for committable in operator.committables]
        )
        with self._lock:
            self._named.setdefault(attempt.key, {})[checkpoint_id] = paths

    def committed(self, checkpoint_id: int) -> None:
        """What only older checkpoints name is not read any more."""
        dropped: set[str] = set()
        with self._lock:
            for named in self._named.values():
                if checkpoint_id in named:
                    older = [number for number in named if number < checkpoint_id]
                    dropped |= {path for number in older for path in named.pop(number)}
            for named in self._named.values():
                dropped -= frozenset().union(*named.values())
        self.remove(dropped)

    # ------------------------------------------------------------------------------------------------- the files

    def create(self, path: str) -> _CopyWriter | None:
        try:
            return _CopyWriter(self._directory / path)
        except OSError:
            return None

    def find(self, path: str) -> Path | None:
        """A copy that is what was written."""
        file = self._directory / path
        with self._lock:
            checked = path in self._checked
        try:
            if not checked and _digest_of(file) != _digest_path(file).read_text():
                self.remove([path])
                return None
            file.stat()
        except OSError:
            return None
        with self._lock:
            self._checked.add(path)
        return file

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._lock:
                self._checked.discard(path)
            for file in (self._directory / path, _digest_path(self._directory / path)):
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)

    def _stored(self) -> list[str]:
        files = (file for file in self._directory.rglob("*") if file.is_file())
        return [file.relative_to(self._directory).as_posix().removesuffix(_DIGEST) for file in files]


class FilesWithCopies:
    """See CheckpointFiles. `reads`: files opened as copies; `fallbacks`: files of which there was none."""

    def __init__(self, files: CheckpointFiles, copies: LocalCopies) -> None:
        self._files = files
        self._copies = copies
        self.reads = 0
        self.fallbacks = 0

    def locate(self, path: str) -> str:
        return self._files.locate(path)

    def create(self, path: str) -> FileWriter:
        writer = self._files.create(path)
        copy = self._copies.create(path)
        return writer if copy is None else _DoubleWriter(writer, copy)

    def open(self, path: str) -> pa.NativeFile:
        copy = self._copies.find(path)
        if copy is not None:
            with contextlib.suppress(OSError):  # Removed just now.
                opened = pa.OSFile(str(copy), "rb")
                self.reads += 1
                return opened
        self.fallbacks += 1
        return self._files.open(path)

    def delete(self, path: str) -> None:
        self._copies.remove([path])
        self._files.delete(path)

    def list(self, prefix: str) -> list[StoredFile]:
        return self._files.list(prefix)


class _CopyWriter:
    """Raises OSError."""

    def __init__(self, final: Path) -> None:
        self._final = final
        final.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = final.with_name(f".{final.name}.{uuid.uuid4().hex[:12]}")
        self._file: BinaryIO = self._temporary.open("xb")

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    def complete(self, checksum: str) -> None:
        """Seen only when it is whole; not synced: a crash of the machine takes the TaskManager along."""
        self._file.close()
        _digest_path(self._final).write_text(checksum)
        self._temporary.rename(self._final)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
            self._temporary.unlink(missing_ok=True)


class _DoubleWriter(io.RawIOBase):
    """See FileWriter. The copy may fail; then there is none."""

    def __init__(self, writer: FileWriter, copy: _CopyWriter) -> None:
        self._writer = writer
        self._copy: _CopyWriter | None = copy

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        written = self._writer.write(data)
        if self._copy is not None:
            try:
                self._copy.write(data)
            except OSError:
                self._drop_copy()
        return written

    def seal(self) -> StoredFile:
        try:
            sealed = self._writer.seal()
        except BaseException:
            self.discard()
            raise
        if self._copy is not None:
            try:
                self._copy.complete(sealed.checksum)
            except OSError:
                self._drop_copy()
        self._copy = None
        super().close()
        return sealed

    def discard(self) -> None:
        self._drop_copy()
        self._writer.discard()
        super().close()

    def close(self) -> None:
        if not self.closed:
            self.discard()

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.discard()
            self._copy = None


def _restored(task: TaskDescriptor) -> frozenset[str]:
    operators = frozenset(path for restore in task.restore for path in _paths(restore))
    return operators | {restore.handle.path for restore in task.in_flight}


def _paths(restore: OperatorRestore) -> list[str]:
    pending = [committable.file for owner in restore.owners for committable in owner.pending]
    return [segment.path for segment in restore.segments] + pending


def _digest_path(file: Path) -> Path:
    return file.with_name(file.name + _DIGEST)


def _digest_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
