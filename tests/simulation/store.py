"""What survives every crash: the metadata store with its leader token, and the files of checkpoints.

Files keep the contract of `connectors.api.CheckpointFiles`: a name is created once, a sealed file is whole and durable;
what its writer had not sealed when it died is missing or cut. Records are written at one instant, or refused.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from connectors.api import StoredFile
from runtime.api import StaleLeaderError
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.store import CheckpointStore
from runtime.ids import JobId
from tests.simulation.kernel import Kernel, Process

_POINTERS = "pointers"


class Metadata:
    """The records of the metadata store. `on_pointer` hears of every move of the checkpoint pointer."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], bytes] = {}
        self.leader_token = 0
        self.on_pointer: Callable[[int, str, bytes], None] = lambda token, job_id, pointer: None

    def pointer(self, job_id: str) -> CheckpointPointer | None:
        value = self.records.get((_POINTERS, job_id))
        return msgspec.msgpack.decode(value, type=CheckpointPointer) if value is not None else None


class LeaderView:
    """The MetadataStore of one JobManager: writes need the newest token."""

    def __init__(self, metadata: Metadata, token: int) -> None:
        self._metadata = metadata
        self._token = token

    def check_leader(self) -> None:
        if self._token != self._metadata.leader_token:
            raise StaleLeaderError("another JobManager leads")

    def get(self, collection: str, key: str) -> bytes | None:
        return self._metadata.records.get((collection, key))

    def put(self, collection: str, key: str, value: bytes) -> None:
        self.check_leader()
        self._write(collection, key, value)

    def compare_and_set(self, collection: str, key: str, expected: bytes | None, value: bytes) -> bool:
        self.check_leader()
        if self._metadata.records.get((collection, key)) != expected:
            return False
        self._write(collection, key, value)
        return True

    def delete(self, collection: str, key: str) -> None:
        self.check_leader()
        self._metadata.records.pop((collection, key), None)

    def items(self, collection: str) -> list[tuple[str, bytes]]:
        return sorted((key, value) for (name, key), value in self._metadata.records.items() if name == collection)

    def _write(self, collection: str, key: str, value: bytes) -> None:
        self._metadata.records[collection, key] = value
        if collection == _POINTERS:
            self._metadata.on_pointer(self._token, key, value)


class File(msgspec.Struct, eq=False):
    """`content` is what was written (None: cut short). `writer` names the attempt or generation."""

    path: str
    writer: Process
    content: Any = None
    sealed: bool = False

    @property
    def byte_size(self) -> int:
        """One for content that is no bytes."""
        if self.content is None:
            return 0
        return len(self.content) if isinstance(self.content, bytes) else 1


class Files:
    """`on_delete` hears of every deletion, before it happens."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._files: dict[str, File] = {}
        self.on_delete: Callable[[str], None] = lambda path: None

    def create(self, path: str, writer: Process) -> File:
        """Nobody sees the file until it is sealed."""
        if path in self._files:
            raise FileExistsError(path)
        self._files[path] = file = File(path, writer)
        return file

    def seal(self, file: File, content: Any) -> None:
        file.content, file.sealed = content, True

    def write(self, path: str, writer: Process, content: Any) -> File:
        file = self.create(path, writer)
        self.seal(file, content)
        return file

    def discard(self, file: File) -> None:
        if not file.sealed and self._files.get(file.path) is file:
            del self._files[file.path]

    def find(self, path: str) -> File | None:
        """A file that readers can see."""
        file = self._files.get(path)
        return file if file is not None and file.sealed else None

    def read(self, path: str) -> Any:
        file = self.find(path)
        if file is None:
            raise FileNotFoundError(path)
        if file.content is None:
            raise OSError(f"{path} is damaged")
        return file.content

    def delete(self, path: str) -> None:
        if path in self._files:
            self.on_delete(path)
            self._kernel.log(None, f"files: {path} is deleted")
            del self._files[path]

    def list(self, prefix: str) -> Sequence[str]:
        return [path for path, file in self._files.items() if file.sealed and path.startswith(prefix)]

    def lose_unsealed(self, writer: Process) -> None:
        """The writer died: what it had not sealed is missing, or there and cut."""
        for path, file in list(self._files.items()):
            if file.writer is writer and not file.sealed:
                if self._kernel.chance(0.5):
                    del self._files[path]
                else:
                    file.content, file.sealed = None, True


class _Writer:
    """A FileWriter over the model."""

    def __init__(self, files: Files, file: File) -> None:
        self._files, self._file = files, file
        self._data = b""

    def write(self, data: bytes | memoryview) -> int:
        self._data += bytes(data)
        return len(data)

    def seal(self) -> StoredFile:
        self._files.seal(self._file, self._data)
        return StoredFile(self._file.path, len(self._data), hashlib.sha256(self._data).hexdigest())

    def discard(self) -> None:
        self._files.discard(self._file)


class JobFiles:
    """A job's place, as the real CheckpointStore of one JobManager sees it. What it deletes is only noted: `deletions`
    happen one by one afterwards, each in a step of its own."""

    def __init__(self, files: Files, directory: str, owner: Process) -> None:
        self.uri = directory
        self._files = files
        self._owner = owner
        self.deletions: deque[str] = deque()

    def create(self, path: str) -> _Writer:
        return _Writer(self._files, self._files.create(self.uri + path, self._owner))

    def open(self, path: str) -> Any:
        content = self._files.read(self.uri + path)
        return pa.BufferReader(content if isinstance(content, bytes) else path.encode())

    def delete(self, path: str) -> None:
        self.deletions.append(path)

    def unsealed(self) -> list[str]:
        return []

    def list(self, prefix: str) -> Sequence[StoredFile]:
        start = len(self.uri)
        return [StoredFile(path[start:], 1, "") for path in self._files.list(self.uri + prefix)]

    def locate(self, path: str) -> str:
        return self.uri + path

    def byte_size(self, path: str) -> int:
        file = self._files.find(self.uri + path)
        if file is None:
            raise FileNotFoundError(path)
        return file.byte_size

    def discard_unsealed(self, path: str) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        self.deletions.extend(stored.path for stored in self.list(""))


class Store(CheckpointStore):
    """The real store over the model's files."""

    def __init__(self, files: Files, owner: Process) -> None:
        super().__init__("/checkpoints")
        self._model = files
        self._owner = owner
        self._places: dict[str, JobFiles] = {}

    def files(self, job_id: JobId) -> Any:
        if job_id not in self._places:
            self._places[job_id] = JobFiles(self._model, f"{job_id}/", self._owner)
        return self._places[job_id]

    def deletions(self, job_id: JobId) -> Sequence[str]:
        """Taken: the caller performs them."""
        place = self.files(job_id)
        place.deletions, noted = deque(), place.deletions
        return [place.uri + path for path in noted]


def named_files(pointer: CheckpointPointer, manifest: CheckpointManifest, directory: str) -> set[str]:
    """Every file of a checkpoint: looked up here from the data itself, not by the manifest's own properties."""
    paths = {pointer.path}
    for snapshot in manifest.snapshots:
        paths |= {handle.path for handle in snapshot.in_flight}
        for operator in snapshot.operators:
            paths |= {segment.path for segment in operator.segments}
            paths |= {epoch.file for epoch in operator.committables if epoch.file}
    return {directory + path for path in paths}
