"""Part files: how they are named, written, made visible, and found again after a failure.

A part file is written under a hidden name and gets its own by a rename once a checkpoint that lists it is durable.
A file that is still being written at a checkpoint is listed with its length: should the job go on from there, its
first bytes up to that length become a part file, and the rest is written again.

Names hold the sink's namespace, the owner (the subtask), the attempt and a number, so no two writers ever write the
same file, and a writer knows which hidden files an earlier attempt of its own has left behind.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from connectors.api import Committable, Encoder
from connectors.arrow import Array, list_offsets, pc
from connectors.errors import ConnectorError, ErrorDomain

IN_PROGRESS = ".inprogress"
_NEWLINE = pa.scalar(b"\n", pa.binary())
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")

log = logging.getLogger(__name__)


class PartFile(msgspec.Struct, frozen=True):
    """A part file as a checkpoint lists it: its directory, its name once it is visible, and its bytes so far."""

    directory: str
    name: str
    byte_size: int

    @property
    def hidden_path(self) -> Path:
        return Path(self.directory, f".{self.name}{IN_PROGRESS}")

    @property
    def path(self) -> Path:
        return Path(self.directory, self.name)


class Epoch(msgspec.Struct, frozen=True):
    """What a checkpoint stores (`Committable.data`): files that are complete, and the one still being written."""

    complete: tuple[PartFile, ...]
    open: PartFile | None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def epoch_of(committable: Committable) -> Epoch:
    return msgspec.json.decode(committable.data, type=Epoch)


def name_prefix(namespace: str, owner: int) -> str:
    """What the names of all files of one owner begin with."""
    return f"part-{_safe(namespace)}-{owner}-"


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)


class RowFile(Protocol):
    """A part file being written. Every method may raise OSError."""

    @property
    def byte_size(self) -> int:
        """Bytes written so far, at least about."""

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None: ...

    def sync(self) -> int:
        """What was written is durable; its bytes. Only for files that can be cut at any row."""

    def finish(self) -> int:
        """The file is complete, durable and closed; its bytes."""

    def abandon(self) -> None:
        """Close it as it is."""


class LineFile:
    """Rows in a format of messages, one per line."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        self._file: BinaryIO = open(path, "xb", buffering=1 << 20)  # noqa: SIM115 - held until finish()
        self._encoder = encoder
        self._byte_size = 0

    @property
    def byte_size(self) -> int:
        return self._byte_size

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        encoded: Array = self._encoder.encode(batch, row_kinds)
        whole: Array = pa.ListArray.from_arrays(list_offsets(np.array([len(encoded)])), pc.fill_null(encoded, b""))
        data = pc.binary_join(whole, _NEWLINE)[0].as_buffer()
        self._file.write(data)
        self._file.write(b"\n")
        self._byte_size += data.size + 1

    def sync(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._byte_size

    def finish(self) -> int:
        byte_size = self.sync()
        self._file.close()
        return byte_size

    def abandon(self) -> None:
        self._file.close()


def publish(file: PartFile, *, may_be_taken: bool = False) -> None:
    """Make a complete file visible. Again is as good as once. `may_be_taken`: it may have been visible before, and been
    taken away by its reader since. Raises ConnectorError."""
    try:
        os.rename(file.hidden_path, file.path)
    except FileNotFoundError as problem:
        if not (may_be_taken or file.path.exists()):
            raise _missing(file) from problem
    except OSError as problem:
        raise failed(file.path, problem) from problem


def publish_up_to(file: PartFile, attempt: str, *, may_be_taken: bool = False) -> None:
    """Make the first `byte_size` bytes of a file visible that was being written at the restored checkpoint. They are
    copied: an attempt that is cut off but not dead may still write to the old file. Raises ConnectorError."""
    if not file.hidden_path.exists():
        if file.path.exists() and file.path.stat().st_size > file.byte_size:
            log.warning("%s holds rows behind the restored checkpoint: they will be written again", file.path)
        elif not (may_be_taken or file.path.exists()):
            raise _missing(file)
        return
    copy = Path(file.directory, f".{file.name}.{_safe(attempt)}{IN_PROGRESS}")
    try:
        if file.byte_size:
            _copy(file, copy)
            # First in place of the old file: then one rename decides whether it is visible.
            os.rename(copy, file.hidden_path)
            os.rename(file.hidden_path, file.path)
        else:
            file.hidden_path.unlink()
    except OSError as problem:
        raise failed(file.path, problem) from problem


class CommitNote:
    """A hidden file that says up to which checkpoint an owner has begun to make files visible. It is written first, so
    a file of such a checkpoint that is not there any more was visible, and its reader has taken it away."""

    def __init__(self, directory: Path, prefix: str, attempt: str) -> None:
        self._path = directory / f".{prefix}commit"
        self._fresh = directory / f".{prefix}commit.{_safe(attempt)}{IN_PROGRESS}"

    def read(self) -> int:
        """0 when there is none. Raises ConnectorError."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except OSError as problem:
            raise failed(self._path, problem) from problem

    def write(self, checkpoint_id: int) -> None:
        """Durable when it returns. Raises ConnectorError."""
        try:
            with open(self._fresh, "w", encoding="ascii") as file:
                file.write(str(checkpoint_id))
                file.flush()
                os.fsync(file.fileno())
            os.rename(self._fresh, self._path)
        except OSError as problem:
            raise failed(self._path, problem) from problem
        sync_directory(self._path.parent)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _copy(file: PartFile, copy: Path) -> None:
    with open(file.hidden_path, "rb") as old, open(copy, "wb") as new:
        if os.fstat(old.fileno()).st_size < file.byte_size:
            raise _missing(file)
        shutil.copyfileobj(old, new)
        new.truncate(file.byte_size)
        new.flush()
        os.fsync(new.fileno())


def sync_directory(directory: Path) -> None:
    """What was made, renamed or removed there is durable. Raises ConnectorError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise failed(directory, problem) from problem


def remove_hidden(directory: Path, prefix: str) -> None:
    """Remove the hidden files of an owner: what the restored checkpoint lists of them is visible by now."""
    try:
        with os.scandir(directory) as entries:
            names = [e.name for e in entries if e.name.startswith(f".{prefix}") and e.name.endswith(IN_PROGRESS)]
        for name in names:
            directory.joinpath(name).unlink(missing_ok=True)
    except OSError as problem:
        raise failed(directory, problem) from problem


def failed(path: Path, problem: OSError) -> ConnectorError:
    reason = problem.strerror or str(problem)
    return ConnectorError(f"cannot write {path}: {reason}", domain=ErrorDomain.EXTERNAL, retry=True)


def _missing(file: PartFile) -> ConnectorError:
    return ConnectorError(
        f"the checkpoint lists {file.byte_size} bytes of {file.hidden_path}, which are not there any more",
        domain=ErrorDomain.EXTERNAL,
        retry=False,
        hint="Rows would be lost. Put the file back, or start the job without this state.",
    )
