"""Savepoints: full, self-contained copies of a checkpoint in a place of the user's, a directory or an object store.

    <place>/savepoint-<job>-<random>/manifest      written last: without it the rest is no savepoint
    <place>/savepoint-<job>-<random>/state/…       state files
    <place>/savepoint-<job>-<random>/epochs/…      rows of exactly-once sinks that may not be in Kafka yet
    <place>/savepoint-<job>-<random>/committed     only there once they are known to be

Every path in the manifest is relative, so the whole can be moved and copied. Nothing in it is ever changed or shared,
and nothing deleted but on the user's word: a job that starts from it copies it into its own place first. Blocking.
"""

from __future__ import annotations

import contextlib
import uuid

import msgspec

from connectors.api import CheckpointFiles
from runtime.api import SavepointEntry
from runtime.checkpoint.files import (
    JobFiles,
    LocationError,
    below,
    checksum,
    copy,
    normalized,
    open_files,
    read_bytes,
    write_bytes,
)
from runtime.checkpoint.manifest import (
    CheckpointCounts,
    CheckpointManifest,
    CheckpointPointer,
    ManifestError,
    decode_manifest,
    encode_manifest,
)
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import MANIFEST, CheckpointStore, DamagedCheckpointError, reason
from runtime.ids import JobId

COMMITTED = "committed"
IMPORTED_GENERATION = 0
"""The generation of the checkpoint that a job started from a savepoint begins with."""


def write(store: CheckpointStore, manifest: CheckpointManifest, directory: str) -> str:
    """Copy everything that the manifest names, then the manifest; durable when it returns. Returns the savepoint's own
    URI. Raises OSError, LocationError or DamagedCheckpointError; nothing is left behind then."""
    location = below(normalized(directory), f"savepoint-{manifest.job_id[:6]}-{uuid.uuid4().hex[:12]}")
    target = open_files(location)
    try:
        _copy_files(store.files(manifest.job_id), target, manifest)
        write_bytes(target, MANIFEST, encode_manifest(manifest))
    except BaseException:
        discard(location)
        raise
    return location


def entry(location: str, manifest: CheckpointManifest, stopped: bool, now_ms: int) -> SavepointEntry:
    """What the job's records keep of it."""
    return SavepointEntry(location, manifest.checkpoint_id, now_ms, manifest.state_bytes, stopped, manifest.drained)


def mark_committed(savepoint: str) -> None:
    """Every sink has committed what the savepoint holds. Raises OSError when it is not there any more."""
    files = open_files(savepoint)
    files.byte_size(MANIFEST)
    with contextlib.suppress(FileExistsError):
        write_bytes(files, COMMITTED, b"")


def delete(files: JobFiles, manifest: CheckpointManifest) -> None:
    """A savepoint for good, the manifest first: what is left of one half deleted is none. What the user has put beside
    it stays. Raises OSError."""
    for path in (MANIFEST, COMMITTED, *sorted(manifest.paths)):
        files.delete(path)
    if not files.list(""):
        files.clear()


def discard(savepoint: str) -> None:
    """Remove a savepoint that nobody has been told of."""
    with contextlib.suppress(OSError):
        open_files(savepoint).clear()


class Savepoint(msgspec.Struct, frozen=True):
    """A savepoint that was found, or a checkpoint that an ended job has left. `root`: the paths in the manifest begin
    there. `is_committed`: see `mark_committed`."""

    directory: str
    manifest: CheckpointManifest
    is_committed: bool
    root: str


def read(path: str) -> Savepoint:
    """`path` is the URI of the savepoint or of the checkpoint itself, or that of the manifest in it. Raises
    RestoreRefusedError."""
    try:
        directory = _directory(path)
    except LocationError as error:
        raise RestoreRefusedError(str(error)) from error
    files = open_files(directory)
    try:
        manifest = decode_manifest(read_bytes(files, MANIFEST))
        is_committed = _exists(files, COMMITTED)
    except OSError as error:
        raise RestoreRefusedError(
            f"there is no savepoint at {directory}: {reason(error)}",
            hint="Name the directory that STOP JOB … WITH SAVEPOINT answered; the JobManager must be able to read it.",
        ) from error
    except ManifestError as error:
        raise RestoreRefusedError(f"the savepoint at {directory} cannot be read: {error}") from error
    if manifest.is_savepoint:
        return Savepoint(directory, manifest, is_committed, directory)
    root, generation, checkpoint = directory.rsplit("/", 2)
    if (generation, checkpoint) != (f"g{manifest.generation}", f"chk-{manifest.checkpoint_id}"):
        raise RestoreRefusedError(
            f"{directory} is a checkpoint of job {manifest.job_id} that has been moved away from its files",
            hint="Unlike a savepoint a checkpoint cannot be moved: name it where its job has left it.",
        )
    return Savepoint(directory, manifest, is_committed, root)


def adopt_files(
    store: CheckpointStore, savepoint: Savepoint, manifest: CheckpointManifest, job_id: JobId
) -> CheckpointPointer:
    """Copy what `manifest` (what is left of the savepoint's own) names into the job's place as its first checkpoint;
    returns the pointer to it. Doing it again after a crash, or while another leader does it, does no harm. Raises
    OSError or RestoreRefusedError."""
    try:
        _copy_files(open_files(savepoint.root), store.files(job_id), manifest)
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
    return store.write_again(own)


def is_same_place(path: str, location: str) -> bool:
    """Both may name the savepoint's folder or the manifest in it."""
    try:
        return bool(path) and _directory(path) == _directory(location)
    except LocationError:
        return False


def _directory(path: str) -> str:
    return normalized(path).removesuffix(f"/{MANIFEST}")


def _copy_files(source: CheckpointFiles, target: CheckpointFiles, manifest: CheckpointManifest) -> None:
    checksums = manifest.checksums
    present = {stored.path for stored in target.list("")}
    for path in sorted(manifest.paths):
        if path in present:
            if path not in checksums or checksum(target, path) == checksums[path]:
                continue  # By an earlier try.
            target.delete(path)
        try:
            copied = copy(source, target, path)
        except FileExistsError:
            continue  # By another leader, just now: what it moves its pointer to it has checked.
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"{source.locate(path)}: {reason(error)}") from error
        if copied.checksum != checksums.get(path, copied.checksum):
            target.delete(path)
            raise DamagedCheckpointError(f"{source.locate(path)}: checksum mismatch")


def _exists(files: CheckpointFiles, path: str) -> bool:
    try:
        with files.open(path):
            return True
    except FileNotFoundError:
        return False
