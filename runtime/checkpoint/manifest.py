"""The manifest: everything a later start needs of one checkpoint, in one immutable, checksummed file.

Layout: 8 bytes magic, 32 bytes SHA-256 of the body, the body (msgpack of `CheckpointManifest`).
"""

from __future__ import annotations

import hashlib

import msgspec

from planner.ir.job_graph import Fingerprint
from runtime.checkpoint.identity import OperatorRecord
from runtime.checkpoint.snapshot import InFlightHandle, SegmentHandle, SubtaskSnapshot
from runtime.ids import JobId

MANIFEST_VERSION = 1
_MAGIC = b"HRCHKPT1"
_DIGEST_BYTES = 32


class ManifestError(ValueError):
    """The bytes are no manifest, are damaged, or are of a version that cannot be read."""


class VertexRecord(msgspec.Struct, frozen=True):
    """The shape of a vertex when the checkpoint was taken."""

    vertex_id: int
    uid: str
    parallelism: int
    max_parallelism: int
    operator_uids: tuple[str, ...]


class SinkRecord(msgspec.Struct, frozen=True):
    """A sink's identity. `owner_count`: owners 0 … owner_count - 1 have written a marker. `floors`: owner → highest
    epoch whose commit was acknowledged (absent = none)."""

    uid: str
    namespace: str
    owner_count: int
    floors: dict[int, int] = {}


class CheckpointCounts(msgspec.Struct, frozen=True):
    """Checkpoints of a job since its first start, the one that holds this record counted as completed."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0


class CheckpointManifest(msgspec.Struct, frozen=True):
    """`parent_id` and `restored_id` are the checkpoint before this one and the one its generation started from (0 =
    none). `incarnation` names the generation that triggered it. Times are epoch ms."""

    job_id: JobId
    generation: int
    checkpoint_id: int
    incarnation: str
    parent_id: int
    restored_id: int
    graph_digest: str
    triggered_at_ms: int
    vertices: tuple[VertexRecord, ...]
    snapshots: tuple[SubtaskSnapshot, ...]
    sinks: tuple[SinkRecord, ...] = ()
    fingerprints: tuple[Fingerprint, ...] = ()
    counts: CheckpointCounts = CheckpointCounts()
    operators: tuple[OperatorRecord, ...] = ()
    is_savepoint: bool = False
    drained: bool = False
    """A savepoint taken after every source had ended for it and all that was due had fired."""
    version: int = MANIFEST_VERSION

    @property
    def segments(self) -> tuple[SegmentHandle, ...]:
        """Every state file named, once."""
        found = {
            segment.path: segment
            for snapshot in self.snapshots
            for operator in snapshot.operators
            for segment in operator.segments
        }
        return tuple(found.values())

    @property
    def state_bytes(self) -> int:
        """Size of all state files and write-ahead epochs."""
        epochs = sum(c.byte_size for s in self.snapshots for o in s.operators for c in o.committables)
        return epochs + sum(segment.byte_size for segment in self.segments)

    @property
    def epoch_files(self) -> tuple[str, ...]:
        """Paths of the pending epochs' write-ahead files."""
        return tuple(c.file for s in self.snapshots for o in s.operators for c in o.committables if c.file)

    @property
    def files(self) -> tuple[SegmentHandle | InFlightHandle, ...]:
        """Every file whose size and checksum are known, once."""
        in_flight = (handle for snapshot in self.snapshots for handle in snapshot.in_flight)
        return (*self.segments, *in_flight)

    @property
    def checksums(self) -> dict[str, str]:
        """Path → hex SHA-256 of `files`."""
        return {handle.path: handle.checksum for handle in self.files}

    @property
    def paths(self) -> set[str]:
        """Every file that a restore needs."""
        return {handle.path for handle in self.files} | set(self.epoch_files)


class CheckpointPointer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata store's record of the latest committed checkpoint. `path` is relative to the job's directory.
    `stopped_with`: the savepoint (its directory) that is this checkpoint and has ended the job. `earlier`: the retained
    checkpoints before it, oldest first; those that have been removed since are not there any more."""

    generation: int
    checkpoint_id: int
    path: str
    checksum: str
    """Hex SHA-256 of the whole manifest file."""
    stopped_with: str = ""
    earlier: tuple[CheckpointPointer, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointManifest)


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    body = _encoder.encode(manifest)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode_manifest(data: bytes) -> CheckpointManifest:
    """Raises ManifestError."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ManifestError("not a checkpoint manifest")
    digest, body = data[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
    if hashlib.sha256(body).digest() != digest:
        raise ManifestError("checksum mismatch: the manifest is damaged")
    try:
        manifest = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"not a checkpoint manifest: {error}") from error
    if manifest.version != MANIFEST_VERSION:
        raise ManifestError(f"manifest version {manifest.version} is not {MANIFEST_VERSION}")
    return manifest
