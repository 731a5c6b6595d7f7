"""Checkpoint files of all jobs below one place: a directory or a prefix of an object store.

    <root>/<job>/g<generation>/chk-<n>/manifest    created once, never changed
    <root>/<job>/epochs/…                          write-ahead files of sinks
    <root>/<job>/state/…                           state files
    <root>/<job>/…                                 whatever else tasks write; each name holds its attempt's

A manifest counts only when the metadata store points to it. Nobody counts references: what no retained manifest names
is not needed. What no manifest names may still be written by an attempt of the live generation, or of one that a newer
leader has started meanwhile, so `sweep` leaves alone whatever is not older than its caller's generation.
Blocking: call it from a helper thread.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from runtime.checkpoint.fenced_files import FencedFiles
from runtime.checkpoint.files import (
    JobFiles,
    below,
    checksum,
    is_object_store,
    normalized,
    open_files,
    read_bytes,
    write_bytes,
)
from runtime.checkpoint.manifest import (
    CheckpointManifest,
    CheckpointPointer,
    ManifestError,
    decode_manifest,
    encode_manifest,
)
from runtime.checkpoint.snapshot import InFlightHandle, SegmentHandle, SubtaskSnapshot
from runtime.ids import JobId

MANIFEST = "manifest"
_REQUESTS_AT_ONCE = 16
_MANIFEST_PATH = re.compile(r"g(\d+)/chk-\d+/")


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is missing or not what was written. The message names it; `damaged_file` is its path
    among the job's files. A place that does not answer is no damage: that stays an OSError."""

    domain = "external"
    retry = True

    def __init__(self, message: str, damaged_file: str = "", *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.damaged_file = damaged_file
        self.is_missing = is_missing


class CheckpointStore:
    """Owns the place; one JobManager writes to it at a time. `check_leader` is called before anything is changed, and
    raises when another leads. Raises LocationError when the URI names no place."""

    def __init__(self, root: str, check_leader: Callable[[], None] = lambda: None) -> None:
        self._root = normalized(root)
        self._check_leader = check_leader

    def uri(self, job_id: JobId) -> str:
        """The job's own place."""
        return below(self._root, job_id)

    def files(self, job_id: JobId) -> JobFiles:
        return self.open(self.uri(job_id))

    def open(self, uri: str) -> JobFiles:
        """Any place, as this JobManager may change it."""
        return FencedFiles(open_files(uri), self._check_leader)

    def location(self, job_id: JobId, pointer: CheckpointPointer) -> str:
        """The checkpoint's own folder, as users are told of it."""
        return below(self.uri(job_id), pointer.path.removesuffix(f"/{MANIFEST}"))

    def write(self, manifest: CheckpointManifest) -> CheckpointPointer:
        """Durable when it returns. Raises FileExistsError when that checkpoint of that generation exists already."""
        path = _manifest_path(manifest.generation, manifest.checkpoint_id)
        sealed = write_bytes(self.files(manifest.job_id), path, encode_manifest(manifest))
        return CheckpointPointer(manifest.generation, manifest.checkpoint_id, path, sealed.checksum)

    def write_again(self, manifest: CheckpointManifest) -> CheckpointPointer:
        """The same, or nothing when it has been written before. Raises FileExistsError when another has been."""
        try:
            return self.write(manifest)
        except FileExistsError:
            path = _manifest_path(manifest.generation, manifest.checkpoint_id)
            written = read_bytes(self.files(manifest.job_id), path)
            if written != encode_manifest(manifest):
                raise
        digest = hashlib.sha256(written).hexdigest()
        return CheckpointPointer(manifest.generation, manifest.checkpoint_id, path, digest)

    def read(self, job_id: JobId, pointer: CheckpointPointer) -> CheckpointManifest:
        """The manifest a pointer names. Raises DamagedCheckpointError, OSError."""
        files = self.files(job_id)
        path = files.locate(pointer.path)
        try:
            data = read_bytes(files, pointer.path)
        except FileNotFoundError as error:
            raise _missing(files, pointer.path, error) from error
        if hashlib.sha256(data).hexdigest() != pointer.checksum:
            raise DamagedCheckpointError(f"{path}: checksum mismatch", pointer.path)
        try:
            return decode_manifest(data)
        except ManifestError as error:
            raise DamagedCheckpointError(f"{path}: {error}", pointer.path) from error

    def check(self, job_id: JobId, handles: Iterable[SegmentHandle | InFlightHandle]) -> None:
        """Each file is there and as long as it was when it was sealed. Raises DamagedCheckpointError naming the first
        that is not, OSError."""
        files = self.files(job_id)
        if is_object_store(files.uri):
            # One request each: their times add up.
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
                for checked in [pool.submit(_check, files, handle) for handle in handles]:
                    checked.result()
        else:
            for handle in handles:
                _check(files, handle)

    def verify(self, job_id: JobId, handles: Iterable[SegmentHandle | InFlightHandle]) -> None:
        """`check`, and the checksum of every byte. Raises DamagedCheckpointError naming the first bad file, OSError."""
        files = self.files(job_id)
        for handle in handles:
            _check(files, handle)
            try:
                found = checksum(files, handle.path)
            except FileNotFoundError as error:
                raise _missing(files, handle.path, error) from error
            if found != handle.checksum:
                raise DamagedCheckpointError(f"{files.locate(handle.path)}: checksum mismatch", handle.path)

    def remove(self, dropped: CheckpointManifest, retained: Iterable[CheckpointManifest]) -> None:
        """Delete a checkpoint that is no longer retained and the files that it alone named. Write-ahead files stay:
        their writer removes them when it is sure of their commit. Raises OSError."""
        kept: set[str] = set().union(*(manifest.paths for manifest in retained))
        files = self.files(dropped.job_id)
        # The manifest first: one that is there names files that are there.
        files.delete(_manifest_path(dropped.generation, dropped.checkpoint_id))
        for path in sorted(dropped.paths - kept - set(dropped.epoch_files)):
            files.delete(path)

    def discard(
        self,
        job_id: JobId,
        generation: int,
        checkpoint_id: int | None,
        snapshots: Iterable[SubtaskSnapshot],
        kept: Collection[str],
    ) -> None:
        """Delete what was written for a checkpoint that will not be committed: files of its snapshots, but for those
        in `kept` and for write-ahead files, and with `checkpoint_id` its manifest. Raises OSError."""
        files = self.files(job_id)
        if checkpoint_id is not None:
            files.delete(_manifest_path(generation, checkpoint_id))
        written = {h.path for s in snapshots for o in s.operators for h in o.segments}
        written |= {handle.path for snapshot in snapshots for handle in snapshot.in_flight}
        for path in sorted(written.difference(kept)):
            files.delete(path)

    def sweep(
        self, job_id: JobId, retained: Iterable[tuple[CheckpointPointer, CheckpointManifest]], generation: int
    ) -> int:
        """Delete every file of the job that no retained checkpoint names and that was written before `generation`,
        the caller's own; returns how many. Raises OSError."""
        kept: set[str] = set()
        for pointer, manifest in retained:
            kept |= {pointer.path} | manifest.paths
        files = self.files(job_id)
        removed = 0
        for stored in files.list(""):
            if stored.path not in kept and _written_in(stored.path, job_id) < generation:
                files.delete(stored.path)
                removed += 1
        for path in files.unsealed():
            if _written_in(path, job_id) < generation:
                files.discard_unsealed(path)
                removed += 1
        return removed

    def drop_job(self, job_id: JobId) -> None:
        """Delete everything of a job that has ended. Raises OSError."""
        self.files(job_id).clear()


def _check(files: JobFiles, handle: SegmentHandle | InFlightHandle) -> None:
    try:
        size = files.byte_size(handle.path)
    except FileNotFoundError as error:
        raise _missing(files, handle.path, error) from error
    if size != handle.byte_size:
        message = f"{files.locate(handle.path)}: {size} bytes instead of {handle.byte_size}"
        raise DamagedCheckpointError(message, handle.path)


def _manifest_path(generation: int, checkpoint_id: int) -> str:
    return f"g{generation}/chk-{checkpoint_id}/{MANIFEST}"


def _missing(files: JobFiles, path: str, error: OSError) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{files.locate(path)}: {reason(error)}", path, is_missing=True)


def reason(error: OSError) -> str:
    """Why a file could not be read, without its name."""
    return error.strerror or str(error)


def _written_in(path: str, job_id: JobId) -> int:
    """The generation that wrote a file; 0 for what was copied from a savepoint."""
    found = _MANIFEST_PATH.match(path) or re.search(rf"{job_id[:8]}-g(\d+)-v\d+-s\d+-a\d+", path)
    return int(found[1]) if found else 0
