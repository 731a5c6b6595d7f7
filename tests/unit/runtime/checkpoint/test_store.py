"""Manifests on disk, verification, retention and the sweep."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from connectors.api import Committable
from runtime.checkpoint.files import write_bytes
from runtime.checkpoint.manifest import CheckpointManifest, ManifestError, SinkRecord, decode_manifest, encode_manifest
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import AttemptId, JobId

JOB = JobId("a" * 32)


def segment(store: CheckpointStore, name: str, content: bytes = b"rows") -> SegmentHandle:
    path = Path(store.uri(JOB), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return SegmentHandle(name, "s", 0, 127, 1, len(content), hashlib.sha256(content).hexdigest())


def manifest(
    checkpoint_id: int, *segments: SegmentHandle, generation: int = 1, epochs: tuple[str, ...] = ()
) -> CheckpointManifest:
    committables = tuple(Committable(0, checkpoint_id, "i", b"", 1, 10, f"epochs/{name}") for name in epochs)
    operator = OperatorSnapshot("op", segments=segments, clocks={3: 17}, committables=committables)
    sinks = (SinkRecord("sink", "ns", 2, {0: 7}),)
    snapshot = SubtaskSnapshot(0, "v", 0, 1, (operator,))
    return CheckpointManifest(JOB, generation, checkpoint_id, "i", 0, 0, "", 0, (), (snapshot,), sinks)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path))


def test_a_manifest_is_written_once_and_read_back(store: CheckpointStore) -> None:
    written = manifest(3, segment(store, "state/a"), generation=2)
    pointer = store.write(written)
    assert pointer.path == "g2/chk-3/manifest"
    assert store.read(JOB, pointer) == written
    with pytest.raises(FileExistsError):
        store.write(msgspec.structs.replace(written, parent_id=2))
    assert store.read(JOB, pointer) == written
    assert [p.name for p in (Path(store.uri(JOB)) / "g2/chk-3").iterdir()] == ["manifest"]


def test_damage_to_a_manifest_is_seen(store: CheckpointStore) -> None:
    pointer = store.write(manifest(1))
    path = Path(store.uri(JOB)) / pointer.path
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedCheckpointError, match="chk-1/manifest"):
        store.read(JOB, pointer)
    path.unlink()
    with pytest.raises(DamagedCheckpointError, match="No such file"):
        store.read(JOB, pointer)


def test_foreign_and_damaged_bytes_are_no_manifest() -> None:
    data = encode_manifest(manifest(1))
    assert decode_manifest(data).checkpoint_id == 1
    for broken in (b"", b"something else", data[:-1], data + b"x", data[:20] + b"\0" + data[21:]):
        with pytest.raises(ManifestError):
            decode_manifest(broken)
    with pytest.raises(ManifestError, match="version 7"):
        decode_manifest(encode_manifest(msgspec.structs.replace(manifest(1), version=7)))


def test_files_are_verified_by_size_and_checksum(store: CheckpointStore) -> None:
    good = segment(store, "state/a")
    store.check(JOB, [good])
    store.verify(JOB, [good])
    path = Path(store.uri(JOB)) / "state/a"
    path.write_bytes(b"rowz")
    store.check(JOB, [good])
    with pytest.raises(DamagedCheckpointError, match="checksum"):
        store.verify(JOB, [good])
    path.write_bytes(b"row")
    with pytest.raises(DamagedCheckpointError, match="3 bytes instead of 4"):
        store.check(JOB, [good])
    path.unlink()
    with pytest.raises(DamagedCheckpointError, match="state/a: No such file"):
        store.check(JOB, [good])


def test_removal_keeps_files_that_a_retained_checkpoint_shares(store: CheckpointStore) -> None:
    shared, old, new = (segment(store, f"state/{name}") for name in ("shared", "old", "new"))
    first, second = manifest(1, shared, old), manifest(2, shared, new)
    store.write(first)
    pointer = store.write(second)
    store.remove(first, [second])
    directory = Path(store.uri(JOB))
    assert sorted(p.name for p in (directory / "state").iterdir()) == ["new", "shared"]
    assert not (directory / "g1/chk-1").exists()
    store.verify(JOB, store.read(JOB, pointer).segments)


def test_what_an_unfinished_checkpoint_has_written_goes(store: CheckpointStore) -> None:
    """But not what earlier checkpoints share with it, and no epoch: its writer removes that."""
    shared, fresh = segment(store, "state/shared"), segment(store, "state/fresh")
    epoch = write_bytes(store.files(JOB), "epochs/e", b"rows")
    unfinished = manifest(2, shared, fresh)
    store.write(unfinished)
    store.discard(JOB, unfinished.generation, 2, unfinished.snapshots, {"state/shared"})
    store.discard(JOB, unfinished.generation, 2, unfinished.snapshots, {"state/shared"})
    assert left(store) == [epoch.path, "state/shared"]


def left(store: CheckpointStore) -> list[str]:
    directory = Path(store.uri(JOB))
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_the_sweep_keeps_only_what_a_retained_checkpoint_names(store: CheckpointStore) -> None:
    kept = manifest(5, segment(store, "state/x/kept"), generation=2, epochs=("ns-0-a-1.arrow",))
    pointer = store.write(kept)
    store.write(manifest(4, generation=1))
    segment(store, "state/y/orphan")
    for name in ("ns-0-a-1.arrow", "ns-0-a-2.arrow"):
        segment(store, f"epochs/{name}")
    assert store.sweep(JOB, [(pointer, kept)], 3) == 3
    assert left(store) == ["epochs/ns-0-a-1.arrow", "g2/chk-5/manifest", "state/x/kept"]
    assert not Path(store.uri(JOB), "state/y").exists()
    assert store.sweep(JOB, [], 3) == 3
    assert list(Path(store.uri(JOB)).iterdir()) == []


def test_the_sweep_leaves_alone_what_its_own_or_a_newer_generation_may_be_writing(store: CheckpointStore) -> None:
    """A leader that was paused in the middle of its sweep goes on while another one's generation runs."""
    writers = []
    for generation in (1, 2, 3):
        attempt = AttemptId(JOB, generation, 4, 0, 1)
        segment(store, f"state/{attempt}-op-s-c1-1.arrow")
        segment(store, f"epochs/ns-0-{attempt}-1.arrow")
        writers.append(store.files(JOB).create(f"state/{attempt}-op-s-c2-2.arrow"))  # Has died or is at it.
        store.write(manifest(7, generation=generation))
    assert store.sweep(JOB, [], 2) == 4
    assert not [path for path in left(store) if "g1" in path]
    assert len(left(store)) == 8


def test_a_file_of_another_job_that_a_savepoint_brought_is_swept_when_nobody_names_it(store: CheckpointStore) -> None:
    segment(store, f"state/{AttemptId(JobId('b' * 32), 9, 4, 0, 1)}-op-s-c1-1.arrow")
    assert store.sweep(JOB, [], 1) == 1


def test_the_very_same_manifest_may_be_written_again_and_no_other(store: CheckpointStore) -> None:
    first = store.write_again(manifest(3, generation=0))
    assert store.write_again(manifest(3, generation=0)) == first
    with pytest.raises(FileExistsError):
        store.write_again(manifest(3, segment(store, "state/a"), generation=0))
    assert store.read(JOB, first) == manifest(3, generation=0)


def test_a_dropped_job_leaves_nothing(store: CheckpointStore) -> None:
    store.write(manifest(1, segment(store, "state/a")))
    store.drop_job(JOB)
    assert not Path(store.uri(JOB)).exists()
    store.drop_job(JOB)
