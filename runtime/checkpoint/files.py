"""Where the files of a job's checkpoints are kept: a directory, or a prefix of an object store.

A URI (`/absolute/path`, `file:///absolute/path`, `s3://bucket/prefix`, …) becomes `JobFiles` here and nowhere else. A
file is seen once it is whole: in a directory it is written under a hidden name, synced, linked to its own name (which
fails if that is taken) and its directory synced. Every file's SHA-256 is computed while it is written.
Blocking: call it from a task's writing thread or a helper thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import io
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import pyarrow as pa

from connectors.api import CheckpointFiles, StoredFile

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3p": "s3", "gs": "gs", "az": "az"}
"""Schemes of URIs, and the one each of them means."""
_FILE_SCHEME = "file:"
_PIECE_BYTES = 1 << 20
_HIDDEN = "."
_OPEN_TRIES = 10


class LocationError(ValueError):
    """The text names no place that files can be kept at."""

    domain = "user"
    retry = False


class JobFiles(CheckpointFiles, Protocol):
    """What the owner of the place can do besides."""

    @property
    def uri(self) -> str:
        """Opens the same place again."""

    def byte_size(self, path: str) -> int:
        """Raises FileNotFoundError, OSError."""

    def unsealed(self) -> list[str]:
        """Paths of files whose writers have not sealed them, living or dead, as far as the place can tell. Raises
        OSError."""

    def discard_unsealed(self, path: str) -> None:
        """What such a writer has left; its `seal` fails from then on. Raises OSError."""

    def clear(self) -> None:
        """Delete everything. Raises OSError."""


def normalized(uri: str) -> str:
    """The one text of a place: an absolute path for a directory, `scheme://bucket[/prefix]` for an object store.
    Raises LocationError."""
    text = uri.strip()
    if text.startswith(_FILE_SCHEME):
        text = "/" + text.removeprefix(_FILE_SCHEME).lstrip("/")
    elif "://" in text:
        scheme, _, rest = text.partition("://")
        bucket, _, path = rest.partition("/")
        if scheme not in OBJECT_STORES:
            raise LocationError(
                f"'{uri}': files are kept in directories and at {', '.join(f'{s}://' for s in OBJECT_STORES)}"
            )
        if not bucket or "@" in bucket:
            raise LocationError(f"'{uri}' does not begin with the name of a bucket")
        return "/".join((f"{OBJECT_STORES[scheme]}://{bucket}", *filter(None, path.split("/"))))
    if not text.startswith("/"):
        raise LocationError(f"'{uri}' is not an absolute path")
    return str(Path(text))


def absolute(uri: str) -> str:
    """A relative directory is one of the process's working directory; whatever else is left as it is."""
    return uri if ":" in uri else str(Path(uri).absolute())


def below(uri: str, *parts: str) -> str:
    """The URI of a place inside another."""
    return "/".join((uri.rstrip("/"), *parts))


def open_files(uri: str) -> JobFiles:
    """Connects to nothing yet. Raises LocationError."""
    place = normalized(uri)
    if not is_object_store(place):
        return LocalFiles(place)
    # Megabytes that whoever keeps files in a directory does not load.
    object_store = importlib.import_module("runtime.checkpoint.object_store")
    files: JobFiles = object_store.ObjectStoreFiles(place)
    return files


def is_object_store(uri: str) -> bool:
    """Of a normalized URI."""
    return "://" in uri


def checked_path(path: str) -> str:
    """Raises ValueError unless the path stays inside the place and no part of it is hidden."""
    parts = path.split("/")
    if not all(parts) or any(part.startswith(_HIDDEN) for part in parts):
        raise ValueError(f"'{path}' is no path of a checkpoint file")
    return path


def read_bytes(files: CheckpointFiles, path: str) -> bytes:
    """A small file as a whole. Raises FileNotFoundError, OSError."""
    with files.open(path) as file:
        return bytes(file.read())


def checksum(files: CheckpointFiles, path: str) -> str:
    """Hex SHA-256 of a file as it is. Raises FileNotFoundError, OSError."""
    digest = hashlib.sha256()
    with files.open(path) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def write_bytes(files: CheckpointFiles, path: str, data: bytes) -> StoredFile:
    """A small file; durable when it returns. Raises FileExistsError, OSError."""
    writer = files.create(path)
    try:
        writer.write(data)
        return writer.seal()
    except BaseException:
        writer.discard()
        raise


def copy(source: CheckpointFiles, target: CheckpointFiles, path: str) -> StoredFile:
    """One file under the same path in another place. Raises FileNotFoundError, FileExistsError, OSError."""
    with source.open(path) as reader:
        writer = target.create(path)
        try:
            while piece := reader.read(_PIECE_BYTES):
                writer.write(piece)
            return writer.seal()
        except BaseException:
            writer.discard()
            raise


class BufferedFileWriter(io.RawIOBase, ABC):
    """Collects small writes into pieces and computes the checksum. A piece is `piece_bytes` long or longer, the last
    may be shorter."""

    def __init__(self, path: str, piece_bytes: int) -> None:
        self._path = path
        self._piece_bytes = piece_bytes
        self._held = bytearray()
        self._digest = hashlib.sha256()
        self._byte_size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise ValueError(f"'{self._path}' is closed")
        view = memoryview(data).cast("B")
        if not self._held and len(view) >= self._piece_bytes:
            self._pass_on(view)
        else:
            self._held += view
            if len(self._held) >= self._piece_bytes:
                self._flush_held()
        return len(view)

    def seal(self) -> StoredFile:
        if self.closed:
            raise ValueError(f"'{self._path}' is closed")
        try:
            self._flush_held()
        except BaseException:
            self.discard()
            raise
        super().close()
        self._complete()
        return StoredFile(self._path, self._byte_size, self._digest.hexdigest())

    def discard(self) -> None:
        """Idempotent; does nothing to a sealed file."""
        if not self.closed:
            self._held.clear()
            super().close()
            self._abandon()

    def close(self) -> None:
        """A file that is neither sealed nor discarded is discarded when nobody knows it any more."""
        self.discard()

    def _flush_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            self._pass_on(memoryview(held))

    def _pass_on(self, piece: memoryview) -> None:
        self._digest.update(piece)
        self._byte_size += len(piece)
        self._append(piece)

    @abstractmethod
    def _append(self, piece: memoryview) -> None:
        """Must not keep a reference to the piece."""

    @abstractmethod
    def _complete(self) -> None:
        """Durable and visible afterwards. When it fails nothing is left behind."""

    @abstractmethod
    def _abandon(self) -> None: ...


class LocalFiles:
    """A directory, made when the first file is."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory)

    @property
    def uri(self) -> str:
        return str(self._root)

    def locate(self, path: str) -> str:
        return str(self._root / path)

    def create(self, path: str) -> LocalFileWriter:
        final = self._root / checked_path(path)
        if final.exists():  # Early; sealing makes sure.
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
        # Whose it is can be told from the hidden name, too: the file's own is part of it.
        temporary = final.with_name(f"{_HIDDEN}{final.name}.{uuid.uuid4().hex[:12]}")
        return LocalFileWriter(self._root, path, temporary, _open_new(temporary))

    def open(self, path: str) -> pa.NativeFile:
        # Not mapped: a file cut short by somebody else must give an error, not a signal that ends the process.
        file = str(self._root / checked_path(path))
        try:
            return pa.OSFile(file, "rb")
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file) from None

    def byte_size(self, path: str) -> int:
        return (self._root / checked_path(path)).stat().st_size

    def delete(self, path: str) -> None:
        file = self._root / checked_path(path)
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # Not empty, or somebody else was faster.
            for folder in PurePosixPath(path).parents:
                if folder.name:
                    (self._root / folder).rmdir()

    def unsealed(self) -> list[str]:
        hidden = (path for path in self._files("") if path.name.startswith(_HIDDEN))
        return [path.relative_to(self._root).as_posix() for path in hidden]

    def discard_unsealed(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def clear(self) -> None:
        if self._root.exists():
            shutil.rmtree(self._root)

    def _files(self, prefix: str) -> Iterator[Path]:
        folder = self._root / checked_path(prefix) if prefix else self._root
        for parent, _, names in os.walk(folder, onerror=_raise_unless_missing):
            yield from (Path(parent, name) for name in names)

    def list(self, prefix: str) -> list[StoredFile]:
        found = []
        for path in self._files(prefix):
            if not path.name.startswith(_HIDDEN):
                with contextlib.suppress(FileNotFoundError):  # Deleted meanwhile.
                    found.append(StoredFile(path.relative_to(self._root).as_posix(), path.stat().st_size, ""))
        return found


class LocalFileWriter(BufferedFileWriter):
    """See FileWriter."""

    def __init__(self, root: Path, path: str, temporary: Path, descriptor: int) -> None:
        super().__init__(path, _PIECE_BYTES)
        self._root = root
        self._final = root / path
        self._temporary = temporary
        self._descriptor = descriptor

    def _append(self, piece: memoryview) -> None:
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]

    def _complete(self) -> None:
        try:
            os.fsync(self._descriptor)
            os.link(self._temporary, self._final)
        finally:
            self._abandon()
        folder = self._final.parent
        while folder != self._root:
            _sync_directory(folder)
            folder = folder.parent
        _sync_directory(self._root)
        _sync_directory(self._root.parent)

    def _abandon(self) -> None:
        os.close(self._descriptor)
        self._temporary.unlink(missing_ok=True)


def _open_new(path: Path) -> int:
    """Folders are made as needed; one that has become empty may be removed by somebody else just then."""
    for attempt in range(_OPEN_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if attempt == _OPEN_TRIES - 1:
                raise
    raise AssertionError


def _sync_directory(directory: Path) -> None:
    """Make what was created in it durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
