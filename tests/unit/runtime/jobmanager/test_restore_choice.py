"""Which checkpoint a start restores when files of the latest one are not what was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from connectors.api import Committable
from planner.ir.job_graph import JobGraph
from runtime.api import JobState
from runtime.checkpoint.files import write_bytes
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import JobId
from runtime.jobmanager.preparation import restore, restore_again
from runtime.jobmanager.restore_choice import choose_checkpoint, output_would_repeat
from runtime.metadata.jobs import JobRecord, JobRecords
from runtime.metadata.store import SqliteMetadataStore
from tests.support import graphs

JOB = JobId("a" * 32)


def stateless_job() -> JobGraph:
    """It has the operator of the checkpoints below."""
    return graphs.graph(graphs.vertex(0, graphs.calc("o")))


class Place:
    """Checkpoints 1, 2, 3 with one state file each (`base` is in all of them) and one pending epoch in the last."""

    def __init__(self, root: Path) -> None:
        self.root = root / "checkpoints" / JOB
        self.store = CheckpointStore(str(root / "checkpoints"))
        base = self.segment("base")
        pointers: list[CheckpointPointer] = []
        for number in (1, 2, 3):
            segments = (base, self.segment(f"s{number}"))
            epochs = (Committable(0, 3, "i", b"", 1, 1, "epochs/e3"),) if number == 3 else ()
            operators = (OperatorSnapshot("o", segments=segments, committables=epochs),)
            snapshots = (SubtaskSnapshot(0, "v", 0, 1, operators),)
            pointers.append(self.store.write(CheckpointManifest(JOB, 1, number, "i", 0, 0, "", 0, (), snapshots)))
        write_bytes(self.store.files(JOB), "epochs/e3", b"rows")
        self.pointer = msgspec.structs.replace(pointers[2], earlier=(pointers[0], pointers[1]))

    def segment(self, name: str) -> SegmentHandle:
        sealed = write_bytes(self.store.files(JOB), f"state/{name}", b"rows of " + name.encode())
        return SegmentHandle(sealed.path, "s", 0, 127, 1, sealed.byte_size, sealed.checksum)

    def flip(self, name: str) -> None:
        content = bytearray((self.root / name).read_bytes())
        content[-1] ^= 1
        (self.root / name).write_bytes(content)

    def tear(self, name: str) -> None:
        (self.root / name).write_bytes((self.root / name).read_bytes()[:-1])

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_latest_one_with_all_that_are_retained(place: Place) -> None:
    choice = choose_checkpoint(place.store, JOB, place.pointer)
    assert choice.chosen.manifest.checkpoint_id == 3
    assert [earlier.manifest.checkpoint_id for earlier in choice.earlier] == [1, 2]
    assert choice.damage == ""


@pytest.mark.parametrize("damage", [Place.flip, Place.tear, Place.remove], ids=["flip", "tear", "remove"])
@pytest.mark.parametrize("file", ["g1/chk-3/manifest", "state/s3"])
def test_a_damaged_one_gives_way_to_the_one_before(
    place: Place, damage: Callable[[Place, str], None], file: str
) -> None:
    damage(place, file)
    choice = choose_checkpoint(place.store, JOB, place.pointer)
    assert choice.chosen.manifest.checkpoint_id == 2
    assert [earlier.manifest.checkpoint_id for earlier in choice.earlier] == [1]
    assert choice.damage.startswith(f"checkpoint 3 is damaged: {place.root}/{file}: ")


def test_two_damaged_ones(place: Place) -> None:
    place.tear("state/s3")
    place.flip("state/s2")
    choice = choose_checkpoint(place.store, JOB, place.pointer)
    assert choice.chosen.manifest.checkpoint_id == 1
    assert "checkpoint 3 is damaged" in choice.damage
    assert "checkpoint 2 is damaged" in choice.damage


def test_one_that_retention_has_removed_is_not_called_damaged(place: Place) -> None:
    place.tear("state/s3")
    place.remove("g1/chk-2/manifest")
    choice = choose_checkpoint(place.store, JOB, place.pointer)
    assert choice.chosen.manifest.checkpoint_id == 1
    assert "checkpoint 2" not in choice.damage


def test_without_a_whole_one_the_job_ends_and_names_file_and_remedy(place: Place) -> None:
    place.flip("state/base")
    with pytest.raises(
        RestoreRefusedError, match=r"checkpoint 3 is damaged: .*/state/base: checksum mismatch"
    ) as caught:
        choose_checkpoint(place.store, JOB, place.pointer)
    assert not caught.value.retry
    assert f"'execution.state-recovery.path' = '{place.root}/g1/chk-3'" in caught.value.hint


def test_what_a_task_has_found_counts_when_it_is_so(place: Place) -> None:
    """Of a file whose checksum is known the JobManager looks itself; of a write-ahead file the writer knows more."""
    assert choose_checkpoint(place.store, JOB, place.pointer, {"state/s3"}).chosen.manifest.checkpoint_id == 3
    choice = choose_checkpoint(place.store, JOB, place.pointer, {"epochs/e3"})
    assert choice.chosen.manifest.checkpoint_id == 2
    assert "epochs/e3: a task could not read it" in choice.damage


def test_large_files_are_left_to_the_tasks_until_one_complains(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.jobmanager.restore_choice.VERIFIED_BYTES_MAX", 0)
    place.flip("state/s3")
    assert choose_checkpoint(place.store, JOB, place.pointer).chosen.manifest.checkpoint_id == 3
    assert choose_checkpoint(place.store, JOB, place.pointer, {"state/s3"}).chosen.manifest.checkpoint_id == 2


def test_a_store_that_does_not_answer_is_no_damage(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(store: CheckpointStore, job_id: JobId, pointer: CheckpointPointer) -> CheckpointManifest:
        raise TimeoutError("the store does not answer")

    monkeypatch.setattr(CheckpointStore, "read", unreachable)
    with pytest.raises(TimeoutError):
        choose_checkpoint(place.store, JOB, place.pointer)


def test_the_end_of_a_stopped_job_is_not_gone_behind(place: Place) -> None:
    place.tear("state/s3")
    stopped = msgspec.structs.replace(place.pointer, stopped_with="/savepoints/s")
    with pytest.raises(RestoreRefusedError, match="checkpoint 3 is damaged") as caught:
        choose_checkpoint(place.store, JOB, stopped)
    assert "'/savepoints/s'" in caught.value.hint


def test_nothing_is_swept_before_the_job_has_a_new_checkpoint(place: Place, tmp_path: Path) -> None:
    records = JobRecords(SqliteMetadataStore(tmp_path / "metadata.db"))
    graph = JobGraph("job", (), (), {})
    record = JobRecord(JOB, "job", JobState.RUNNING, False, 0, generation=5)
    records.create(record, graph)
    records.move_pointer(JOB, None, place.pointer)
    orphan = place.root / "state" / f"{JOB[:8]}-g1-v0-s0-a0-x"
    orphan.write_bytes(b"rows")
    place.tear("state/s3")
    with pytest.raises(RestoreRefusedError, match="which the job no longer has"):
        restore(records, place.store, record, graph)
    assert orphan.exists()
    assert (place.root / "state" / "s3").exists()


def test_a_region_starts_from_what_its_generation_started_from(place: Place, tmp_path: Path) -> None:
    """Also where that is older than the pointer, because of damage; later from what the pointer says."""
    records = JobRecords(SqliteMetadataStore(tmp_path / "metadata.db"))
    record = JobRecord(JOB, "job", JobState.RUNNING, False, 0, generation=5)
    graph = stateless_job()
    records.create(record, graph)
    records.move_pointer(JOB, None, place.pointer)
    place.tear("state/s3")
    first = restore(records, place.store, record, graph)
    assert first.plan.checkpoint_id == 2
    again = restore_again(records, place.store, record, graph, first)
    assert (again.plan.checkpoint_id, again.choice) == (2, first.choice)
    with pytest.raises(DamagedCheckpointError, match="state/s2: a task has found it damaged"):
        restore_again(records, place.store, record, graph, first, {"state/s2"})
    newer = place.store.write(CheckpointManifest(JOB, 5, 4, "i", 0, 0, "", 0, (), ()))
    records.move_pointer(JOB, place.pointer, newer)
    assert restore_again(records, place.store, record, graph, first).plan.checkpoint_id == 4


def test_the_refusal_of_repeated_output_says_how_to_go_on() -> None:
    refusal = output_would_repeat("checkpoint 3 is damaged: /c/x: checksum mismatch", 3, 2, "/c/g1/chk-2")
    assert "going on from checkpoint 2 would repeat output" in str(refusal)
    assert "'execution.state-recovery.accept-duplicates' = 'true'" in refusal.hint
    assert "'execution.state-recovery.path' = '/c/g1/chk-2'" in refusal.hint
