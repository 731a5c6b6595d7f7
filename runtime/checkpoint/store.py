"""Checkpoint files of all jobs below one directory.

    <root>/<job>/g<generation>/chk-<n>/manifest    created once, never changed
    <root>/<job>/epochs/…                          write-ahead files of sinks
    <root>/<job>/…                                 state files, named by the attempt that wrote them

A manifest counts only when the metadata store points to it; what no retained manifest names is an orphan and may go,
except files that the live generation may still be writing: `sweep` runs before a generation is deployed.
Blocking: call it from a helper thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from runtime.checkpoint.manifest import (
    CheckpointManifest,
    CheckpointPointer,
    ManifestError,
    decode_manifest,
    encode_manifest,
)
from runtime.checkpoint.snapshot import SegmentHandle
from runtime.ids import JobId

EPOCHS = "epochs"
MANIFEST = "manifest"
_READ_BYTES = 1 << 20


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is missing or not what was written. The message names it."""

    domain = "external"
    retry = True


class CheckpointStore:
    """Owns the directory; one JobManager writes to it at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def job_directory(self, job_id: JobId) -> Path:
        return self._root / job_id

    def create_job_directory(self, job_id: JobId) -> Path:
        """The job's directory with the folder for write-ahead files."""
        directory = self.job_directory(job_id)
        (directory / EPOCHS).mkdir(parents=True, exist_ok=True)
        return directory

    def write(self, manifest: CheckpointManifest) -> CheckpointPointer:
        """Durable when it returns. Raises FileExistsError when that checkpoint of that generation exists already."""
        job_directory = self.job_directory(manifest.job_id)
        directory = job_directory / f"g{manifest.generation}" / f"chk-{manifest.checkpoint_id}"
        directory.mkdir(parents=True, exist_ok=True)
        data = encode_manifest(manifest)
        temporary = directory / f".{MANIFEST}.{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, directory / MANIFEST)
        finally:
            temporary.unlink()
        for folder in (directory, directory.parent, job_directory):
            sync_directory(folder)
        path = str((directory / MANIFEST).relative_to(job_directory))
        return CheckpointPointer(manifest.generation, manifest.checkpoint_id, path, hashlib.sha256(data).hexdigest())

    def read(self, job_id: JobId, pointer: CheckpointPointer) -> CheckpointManifest:
        """The manifest a pointer names. Raises DamagedCheckpointError."""
        path = self.job_directory(job_id) / pointer.path
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DamagedCheckpointError(f"{path}: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != pointer.checksum:
            raise DamagedCheckpointError(f"{path}: checksum mismatch")
        try:
            return decode_manifest(data)
        except ManifestError as error:
            raise DamagedCheckpointError(f"{path}: {error}") from error

    def verify(self, job_id: JobId, segments: Iterable[SegmentHandle]) -> None:
        """Size and checksum of each file as it is on disk. Raises DamagedCheckpointError naming the first bad one."""
        for segment in segments:
            path = self.job_directory(job_id) / segment.path
            try:
                size = path.stat().st_size
                checksum = _file_checksum(path) if size == segment.byte_size else ""
            except OSError as error:
                raise DamagedCheckpointError(f"{path}: {error.strerror}") from error
            if size != segment.byte_size:
                raise DamagedCheckpointError(f"{path}: {size} bytes instead of {segment.byte_size}")
            if checksum != segment.checksum:
                raise DamagedCheckpointError(f"{path}: checksum mismatch")

    def remove(self, dropped: CheckpointManifest, retained: Iterable[CheckpointManifest]) -> None:
        """Delete a checkpoint that is no longer retained and the state files that it alone named. Write-ahead files
        stay: their writer removes them when it is sure of their commit."""
        kept = {segment.path for manifest in retained for segment in manifest.segments}
        directory = self.job_directory(dropped.job_id)
        shutil.rmtree(directory / f"g{dropped.generation}" / f"chk-{dropped.checkpoint_id}", ignore_errors=True)
        for segment in dropped.segments:
            if segment.path not in kept:
                (directory / segment.path).unlink(missing_ok=True)

    def sweep(self, job_id: JobId, retained: Iterable[tuple[CheckpointPointer, CheckpointManifest]]) -> int:
        """Delete every file of the job that no retained checkpoint names; returns how many. Only while no attempt of
        the job is deployed."""
        directory = self.job_directory(job_id)
        kept_paths: set[str] = set()
        manifests = []
        for pointer, manifest in retained:
            kept_paths.add(pointer.path)
            kept_paths.update(segment.path for segment in manifest.segments)
            manifests.append(manifest)
        removed = 0
        for path in [p for p in directory.rglob("*") if p.is_file()]:
            relative = str(path.relative_to(directory))
            is_epoch = relative.startswith(EPOCHS + os.sep)
            if relative in kept_paths or (is_epoch and any(m.names_epoch_file(path.name) for m in manifests)):
                continue
            path.unlink(missing_ok=True)
            removed += 1
        _remove_empty_directories(directory)
        return removed

    def drop_job(self, job_id: JobId) -> None:
        """Delete everything of a job that has ended."""
        shutil.rmtree(self.job_directory(job_id), ignore_errors=True)


def _file_checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sync_directory(directory: Path) -> None:
    """Make what was created or renamed in it durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty_directories(directory: Path) -> None:
    for path in sorted((p for p in directory.rglob("*") if p.is_dir()), reverse=True):
        if path.name != EPOCHS and not any(path.iterdir()):
            path.rmdir()
