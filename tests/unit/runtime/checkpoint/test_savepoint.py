"""Savepoints on disk: whole, movable, never changed; damage and wrong paths are named."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
import pytest

from connectors.api import Committable
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import JobId

OLD, NEW = JobId("a" * 32), JobId("b" * 32)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "checkpoints"))


def manifest(store: CheckpointStore) -> CheckpointManifest:
    """A job directory with one state file, one named write-ahead file, and one of each that nothing names."""
    directory = Path(store.uri(OLD))
    (directory / "state").mkdir(parents=True)
    (directory / "epochs").mkdir()
    for name in ("state/a", "state/orphan", "epochs/e-1.arrow", "epochs/orphan.arrow"):
        (directory / name).write_bytes(name.encode())
    segment = SegmentHandle("state/a", "s", 0, 127, 1, 7, hashlib.sha256(b"state/a").hexdigest())
    epoch = Committable(0, 3, "i", b"", 1, 10, "epochs/e-1.arrow")
    operator = OperatorSnapshot("op", segments=(segment,), committables=(epoch,))
    snapshot = SubtaskSnapshot(0, "v", 0, 1, (operator,))
    return CheckpointManifest(OLD, 2, 3, "i", 0, 0, "", 0, (), (snapshot,), is_savepoint=True)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_savepoint_is_whole_and_can_be_moved(store: CheckpointStore, tmp_path: Path) -> None:
    written = manifest(store)
    location = savepoints.write(store, written, str(tmp_path / "savepoints"))
    assert Path(location).parent == tmp_path / "savepoints"
    assert Path(location).name.startswith("savepoint-aaaaaa-")
    assert files(Path(location)) == {"manifest", "state/a", "epochs/e-1.arrow"}
    shutil.rmtree(Path(store.uri(OLD)))
    moved = tmp_path / "moved"
    shutil.move(location, moved)
    found = savepoints.read(f"file://{moved}")
    assert (found.manifest, found.is_committed) == (written, False)
    savepoints.mark_committed(str(moved))
    assert savepoints.read(str(moved / "manifest")).is_committed

    before = files(moved)
    pointer = savepoints.adopt_files(store, found, found.manifest, NEW)
    # A crash after the files and before the pointer's move: done again.
    assert savepoints.adopt_files(store, found, found.manifest, NEW) == pointer
    own = store.read(NEW, pointer)
    store.verify(NEW, own.segments)
    assert (own.job_id, own.generation, own.checkpoint_id, own.is_savepoint) == (NEW, 0, 3, False)
    assert files(Path(store.uri(NEW))) == {"g0/chk-3/manifest", "state/a", "epochs/e-1.arrow"}
    assert store.sweep(NEW, [(pointer, own)], 1) == 0
    assert files(moved) == before


def test_nothing_is_left_of_a_savepoint_that_cannot_be_completed(store: CheckpointStore, tmp_path: Path) -> None:
    written = manifest(store)
    target = tmp_path / "savepoints"
    epoch = Path(store.uri(OLD)) / "epochs/e-1.arrow"
    epoch.rename(epoch.with_name("gone"))
    with pytest.raises(DamagedCheckpointError, match=r"e-1.arrow: No such file"):
        savepoints.write(store, written, str(target))
    epoch.with_name("gone").rename(epoch)
    (Path(store.uri(OLD)) / "state/a").write_bytes(b"STATE/a")
    with pytest.raises(DamagedCheckpointError, match="state/a: checksum mismatch"):
        savepoints.write(store, written, str(target))
    assert list(target.iterdir()) == []


def test_what_is_no_savepoint_is_refused_with_a_reason(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefusedError, match="there is no savepoint at /nowhere: No such file"):
        savepoints.read("/nowhere")
    with pytest.raises(RestoreRefusedError, match="not an absolute path"):
        savepoints.read("savepoints/1")
    with pytest.raises(RestoreRefusedError, match="are kept in directories and at s3"):
        savepoints.read("hdfs://host/savepoint")
    checkpoint = msgspec.structs.replace(manifest(store), is_savepoint=False)
    directory = Path(store.uri(OLD)) / store.write(checkpoint).path
    with pytest.raises(RestoreRefusedError, match="is a checkpoint that belongs to job"):
        savepoints.read(str(directory))
    location = savepoints.write(store, msgspec.structs.replace(checkpoint, is_savepoint=True), str(tmp_path / "s"))
    Path(location, "state/a").unlink()
    with pytest.raises(RestoreRefusedError, match=r"the savepoint is damaged: .*state/a"):
        savepoints.adopt_files(store, savepoints.read(location), checkpoint, NEW)
    Path(location, "manifest").write_bytes(b"HRCHKPT1 torn")
    with pytest.raises(RestoreRefusedError, match="cannot be read"):
        savepoints.read(location)
