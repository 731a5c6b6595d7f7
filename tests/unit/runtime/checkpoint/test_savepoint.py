"""Savepoints on disk: whole, movable, never changed; damage and wrong paths are named."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
import pytest

from connectors.api import Committable
from runtime.api import JobState, SavepointRefusedError
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import JobId
from runtime.jobmanager.savepoints import dispose_savepoint
from runtime.metadata.jobs import JobRecord, JobRecords, SavepointOrigin
from runtime.metadata.store import SqliteMetadataStore

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
    directory = Path(store.uri(OLD)) / Path(store.write(checkpoint).path).parent
    moved = shutil.copytree(directory, tmp_path / "chk-3")
    with pytest.raises(RestoreRefusedError, match="has been moved away from its files"):
        savepoints.read(str(moved))
    location = savepoints.write(store, msgspec.structs.replace(checkpoint, is_savepoint=True), str(tmp_path / "s"))
    Path(location, "state/a").unlink()
    with pytest.raises(RestoreRefusedError, match=r"the savepoint is damaged: .*state/a"):
        savepoints.adopt_files(store, savepoints.read(location), checkpoint, NEW)
    Path(location, "manifest").write_bytes(b"HRCHKPT1 torn")
    with pytest.raises(RestoreRefusedError, match="cannot be read"):
        savepoints.read(location)


def test_a_checkpoint_that_a_job_has_left_is_taken_over_like_a_savepoint(store: CheckpointStore) -> None:
    left = msgspec.structs.replace(manifest(store), is_savepoint=False)
    pointer = store.write(left)
    for path in (store.location(OLD, pointer), f"{store.uri(OLD)}/{pointer.path}"):
        found = savepoints.read(path)
        assert (found.manifest, found.is_committed, found.root) == (left, False, store.uri(OLD))
    own = savepoints.adopt_files(store, found, found.manifest, NEW)
    assert files(Path(store.uri(NEW))) == {"g0/chk-3/manifest", "state/a", "epochs/e-1.arrow"}
    assert store.read(NEW, own).job_id == NEW


def test_a_savepoint_is_deleted_and_nothing_else(store: CheckpointStore, tmp_path: Path) -> None:
    records = JobRecords(SqliteMetadataStore(tmp_path / "metadata.db"))
    written = manifest(store)
    locations = [savepoints.write(store, written, str(tmp_path / "sp")) for _ in range(3)]
    for location in locations:
        records.add_savepoint(OLD, savepoints.entry(location, written, False, 17))
    assert [entry.location for entry in records.savepoints(OLD)] == sorted(locations)
    assert records.savepoints(NEW) == []
    savepoints.mark_committed(locations[0])
    Path(locations[1], "notes.txt").write_text("mine")
    dispose_savepoint(records, store, f"file://{locations[0]}/manifest")
    dispose_savepoint(records, store, locations[1])
    assert not Path(locations[0]).exists()
    assert files(Path(locations[1])) == {"notes.txt"}
    assert [entry.location for entry in records.savepoints(OLD)] == [locations[2]]

    def starts(state: JobState) -> None:
        origin = SavepointOrigin(locations[2], OLD, 3)
        records.update(JobRecord(NEW, "new", state, False, 0, origin=origin))

    starts(JobState.INITIALIZING)
    with pytest.raises(SavepointRefusedError, match="starts from it"):
        dispose_savepoint(records, store, locations[2])
    starts(JobState.FAILED)
    records.update(JobRecord(OLD, "old", JobState.RUNNING, False, 0))
    records.move_pointer(OLD, None, CheckpointPointer(2, 3, "g2/chk-3/manifest", "", locations[2]))
    with pytest.raises(SavepointRefusedError, match="is being stopped with it"):
        dispose_savepoint(records, store, locations[2])
    records.update(JobRecord(OLD, "old", JobState.FINISHED, False, 0))
    dispose_savepoint(records, store, locations[2])
    with pytest.raises(SavepointRefusedError, match="there is no savepoint at"):
        dispose_savepoint(records, store, locations[2])
    pointer = store.write(msgspec.structs.replace(written, is_savepoint=False))
    with pytest.raises(SavepointRefusedError, match="is a checkpoint of job"):
        dispose_savepoint(records, store, store.location(OLD, pointer))
    assert "g2/chk-3/manifest" in files(Path(store.uri(OLD)))
