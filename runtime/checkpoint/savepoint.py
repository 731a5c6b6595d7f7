"""Savepoints on disk: full, self-contained copies of a checkpoint in a directory of the user's.

    <directory>/savepoint-<job>-<random>/manifest      written last: without it the rest is no savepoint
    <directory>/savepoint-<job>-<random>/state/…       state files
    <directory>/savepoint-<job>-<random>/epochs/…      rows of exactly-once sinks that may not be in Kafka yet
    <directory>/savepoint-<job>-<random>/committed     only there once they are known to be

Every path in the manifest is relative, so the directory can be moved and copied as a whole. Nothing in it is ever
changed, shared or deleted by us: a job that starts from it copies it into its own directory first. Blocking.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from pathlib import Path

import msgspec

from runtime.checkpoint.manifest import (
    CheckpointCounts,
    CheckpointManifest,
    CheckpointPointer,
    ManifestError,
    decode_manifest,
    encode_manifest,
)
from runtime.checkpoint.recovery import RestoreRefusedError
from runtime.checkpoint.store import EPOCHS, MANIFEST, CheckpointStore, DamagedCheckpointError, sync_directory
from runtime.ids import JobId

COMMITTED = "committed"
_FILE_SCHEME = "file:"
_PIECE_BYTES = 1 << 20
IMPORTED_GENERATION = 0
"""The generation of the checkpoint that a job started from a savepoint begins with."""


class SavepointDirectoryError(ValueError):
    """The directory's name cannot be used."""


def local_path(text: str) -> Path:
    """The directory that a user named, as a plain absolute path or a `file:` URL. Raises SavepointDirectoryError."""
    path = text.strip()
    if path.startswith(_FILE_SCHEME):
        path = "/" + path.removeprefix(_FILE_SCHEME).lstrip("/")
    elif "://" in path:
        raise SavepointDirectoryError(f"'{text}': savepoints are kept in directories, not in other stores")
    if not path.startswith("/"):
        raise SavepointDirectoryError(f"'{text}' is not an absolute path")
    return Path(path)


def write(store: CheckpointStore, manifest: CheckpointManifest, directory: str) -> str:
    """Copy everything that the manifest names, then the manifest; durable when it returns. Returns the savepoint's own
    directory. Raises OSError, SavepointDirectoryError or DamagedCheckpointError; nothing is left behind then."""
    target = local_path(directory) / f"savepoint-{manifest.job_id[:6]}-{uuid.uuid4().hex[:12]}"
    target.mkdir(parents=True)
    try:
        _copy_files(store.job_directory(manifest.job_id), target, manifest)
        _write_durably(target / MANIFEST, encode_manifest(manifest))
        sync_directory(target.parent)
    except BaseException:
        discard(str(target))
        raise
    return str(target)


def mark_committed(savepoint: str) -> None:
    """Every sink has committed what the savepoint holds. Raises OSError."""
    _write_durably(Path(savepoint) / COMMITTED, b"")


def discard(savepoint: str) -> None:
    """Remove a savepoint that nobody has been told of."""
    shutil.rmtree(savepoint, ignore_errors=True)


class Savepoint(msgspec.Struct, frozen=True):
    """A savepoint found on disk. `is_committed`: see `mark_committed`."""

    directory: str
    manifest: CheckpointManifest
    is_committed: bool


def read(path: str) -> Savepoint:
    """`path` is the savepoint's directory or the manifest in it. Raises RestoreRefusedError."""
    try:
        found = local_path(path)
    except SavepointDirectoryError as error:
        raise RestoreRefusedError(str(error)) from error
    directory = found.parent if found.name == MANIFEST else found
    try:
        manifest = decode_manifest((directory / MANIFEST).read_bytes())
    except OSError as error:
        raise RestoreRefusedError(
            f"there is no savepoint at {directory}: {error.strerror}",
            hint="Name the directory that STOP JOB … WITH SAVEPOINT answered; the JobManager must be able to read it.",
        ) from error
    except ManifestError as error:
        raise RestoreRefusedError(f"the savepoint at {directory} cannot be read: {error}") from error
    if not manifest.is_savepoint:
        raise RestoreRefusedError(
            f"{directory} is a checkpoint that belongs to job {manifest.job_id}, not a savepoint",
            hint="Jobs recover from their own checkpoints by themselves; take a savepoint to start another job.",
        )
    return Savepoint(str(directory), manifest, (directory / COMMITTED).exists())


def adopt_files(
    store: CheckpointStore, savepoint: Savepoint, manifest: CheckpointManifest, job_id: JobId
) -> CheckpointPointer:
    """Copy what `manifest` (what is left of the savepoint's own) names into the job's directory as its first
    checkpoint; returns the pointer to it. Doing it again after a crash does no harm. Raises OSError or
    RestoreRefusedError."""
    directory = store.create_job_directory(job_id)
    try:
        _copy_files(Path(savepoint.directory), directory, manifest)
    except DamagedCheckpointError as error:
        raise RestoreRefusedError(f"the savepoint is damaged: {error}") from error
    own = msgspec.structs.replace(
        manifest,
        job_id=job_id,
        generation=IMPORTED_GENERATION,
        counts=CheckpointCounts(),
        is_savepoint=False,
        drained=False,
    )
    shutil.rmtree(directory / f"g{IMPORTED_GENERATION}", ignore_errors=True)
    return store.write(own)


def _copy_files(source: Path, target: Path, manifest: CheckpointManifest) -> None:
    folders = {target}
    for segment in manifest.segments:
        destination = target / segment.path
        destination.parent.mkdir(parents=True, exist_ok=True)
        folders.add(destination.parent)
        if _copy(source / segment.path, destination) != segment.checksum:
            raise DamagedCheckpointError(f"{source / segment.path}: checksum mismatch")
    epochs = target / EPOCHS
    epochs.mkdir(exist_ok=True)
    folders.add(epochs)
    for name in _epoch_files(source / EPOCHS, manifest):
        _copy(source / EPOCHS / name, epochs / name)
    for folder in folders:
        sync_directory(folder)


def _epoch_files(directory: Path, manifest: CheckpointManifest) -> set[str]:
    """Write-ahead files that the pending epochs name; each must be there."""
    present = {path.name for path in directory.iterdir() if path.is_file()} if directory.is_dir() else set()
    pending = [c for s in manifest.snapshots for o in s.operators for c in o.committables]
    for committable in pending:
        if committable.file and committable.file not in present:
            raise DamagedCheckpointError(f"{directory / committable.file}: No such file or directory")
    return {name for name in present if manifest.names_epoch_file(name)}


def _copy(source: Path, target: Path) -> str:
    """Hex SHA-256 of what was copied. Raises DamagedCheckpointError when there is nothing to copy."""
    digest = hashlib.sha256()
    try:
        reader = source.open("rb")
    except OSError as error:
        raise DamagedCheckpointError(f"{source}: {error.strerror}") from error
    with reader, target.open("wb") as writer:
        while piece := reader.read(_PIECE_BYTES):
            digest.update(piece)
            writer.write(piece)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)
