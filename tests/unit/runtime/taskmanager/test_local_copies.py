"""Copies of checkpoint files: read when they are what was written, given up otherwise, removed when not needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.api import Committable, OwnerState
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.ids import AttemptId, JobId
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager.local_copies import FilesWithCopies, LocalCopies
from runtime.taskmanager.local_state import KEPT_FOR_MS, LocalState
from tests.support import graphs

JOB = JobId("f" * 32)


def attempt(number: int, subtask: int = 0) -> AttemptId:
    return AttemptId(JOB, 1, 3, subtask, number)


def segment(path: str) -> SegmentHandle:
    return SegmentHandle(path, "state", 0, 127, 1, 1, "")


def snapshot(*paths: str, epoch: str = "") -> SubtaskSnapshot:
    committables = (Committable(0, 1, "i", b"", 1, 1, epoch),) if epoch else ()
    operators = (OperatorSnapshot("agg", segments=tuple(map(segment, paths)), committables=committables),)
    return SubtaskSnapshot(3, "v", 0, 1, operators)


def task(who: AttemptId, *paths: str, epoch: str = "", checkpoint_id: int = 0) -> TaskDescriptor:
    pending = (Committable(0, 1, "i", b"", 1, 1, epoch),) if epoch else ()
    restore = OperatorRestore("agg", segments=tuple(map(segment, paths)), owners=(OwnerState(0, pending),))
    vertex = graphs.vertex(3, graphs.calc())
    return TaskDescriptor(
        who, vertex, (), (), {}, "/nowhere", "i", restored_checkpoint_id=checkpoint_id, restore=(restore,)
    )


class Place:
    def __init__(self, root: Path) -> None:
        self.store = LocalFiles(str(root / "store"))
        self.directory = root / "local" / JOB
        self.copies = LocalCopies(self.directory)
        self.files = self.copies.over(self.store)

    def again(self) -> FilesWithCopies:
        """After the slot's process has died."""
        self.copies = LocalCopies(self.directory)
        self.files = self.copies.over(self.store)
        return self.files

    def write(self, path: str, data: bytes) -> str:
        writer = self.files.create(path)
        writer.write(data[:3])
        writer.write(memoryview(data)[3:])
        sealed = writer.seal()
        assert (sealed.byte_size, writer.closed) == (len(data), True)
        return path

    def read(self, path: str) -> bytes:
        with self.files.open(path) as file:
            return bytes(file.read())

    @property
    def kept(self) -> list[str]:
        return sorted(f.name for f in self.directory.rglob("*") if f.is_file() and not f.name.endswith(".sha256"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_copy_is_read_and_without_one_the_store(place: Place) -> None:
    path = place.write(f"state/{attempt(0)}-1", b"abcdef")
    place.again()
    assert place.read(path) == b"abcdef"
    assert (place.files.reads, place.files.fallbacks) == (1, 0)
    (place.directory / path).unlink()
    assert place.read(path) == b"abcdef"
    assert (place.files.reads, place.files.fallbacks) == (1, 1)
    # The copy is all that is needed.
    other = place.write(f"state/{attempt(0)}-2", b"ghi")
    place.store.delete(other)
    assert place.read(other) == b"ghi"


@pytest.mark.parametrize("damage", ["changed", "cut", "no digest"])
def test_a_damaged_copy_is_given_up(place: Place, damage: str) -> None:
    path = place.write(f"state/{attempt(0)}-1", b"abcdef")
    copy = place.directory / path
    place.again()
    if damage == "no digest":
        copy.with_name(copy.name + ".sha256").unlink()
    else:
        copy.write_bytes(b"abcdeX" if damage == "changed" else b"abc")
    assert place.read(path) == b"abcdef"
    assert (place.files.reads, place.files.fallbacks) == (0, 1)


def test_what_was_not_sealed_leaves_nothing(place: Place) -> None:
    writer = place.files.create("state/x")
    writer.write(b"abc")
    writer.discard()
    assert place.kept == []
    assert place.store.list("") == []
    with pytest.raises(FileNotFoundError):
        place.files.open("state/x")


def test_no_room_for_a_copy_is_no_failure(place: Place) -> None:
    path = f"state/{attempt(0)}-1"
    place.directory.parent.mkdir(parents=True)
    place.directory.write_text("a file where the folder should be")
    assert place.write(path, b"abcdef") == path
    assert place.read(path) == b"abcdef"
    assert place.files.fallbacks == 1


def test_a_copy_that_cannot_be_written_to_its_end_is_dropped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"state/{attempt(0)}-1"
    writer = place.files.create(path)
    writer.write(b"abc")
    copy = writer._copy  # type: ignore[attr-defined]

    def full(data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copy, "write", full)
    writer.write(b"def")
    writer.seal()
    assert place.kept == []
    assert place.read(path) == b"abcdef"


def test_copies_go_with_the_checkpoints_that_need_them(place: Place) -> None:
    place.copies.deployed(task(attempt(0)))
    base, first, second = (place.write(f"state/{attempt(0)}-{n}", b"x") for n in range(3))
    epoch = place.write(f"epochs/{attempt(0)}-1", b"x")
    place.copies.acknowledged(attempt(0), 1, snapshot(base, first, epoch=epoch))
    place.copies.committed(1)
    assert len(place.kept) == 4
    # An aborted checkpoint's files wait for the next one.
    aborted = place.write(f"state/{attempt(0)}-3", b"x")
    place.copies.acknowledged(attempt(0), 2, snapshot(base, first, aborted))
    place.copies.acknowledged(attempt(0), 3, snapshot(base, second))
    place.copies.committed(3)
    assert place.kept == sorted(Path(path).name for path in (base, second))


def test_a_new_attempt_removes_what_it_does_not_restore(place: Place) -> None:
    mine, left = (place.write(f"state/{attempt(0)}-{n}", b"x") for n in range(2))
    neighbours = place.write(f"state/{attempt(0, subtask=1)}-0", b"x")
    epoch = place.write(f"epochs/{attempt(0)}-1", b"x")
    place.files.create(f"state/{attempt(0)}-9").write(b"cut off by the death of the process")
    place.again()
    place.copies.deployed(task(attempt(1), mine, epoch=epoch, checkpoint_id=5))
    assert place.kept == sorted(Path(path).name for path in (mine, neighbours, epoch))
    assert left not in place.kept
    newer = place.write(f"state/{attempt(1)}-0", b"x")
    place.copies.acknowledged(attempt(1), 6, snapshot(newer))
    place.copies.committed(6)
    assert place.kept == sorted(Path(path).name for path in (newer, neighbours))


def test_a_file_that_is_deleted_has_no_copy(place: Place) -> None:
    path = place.write("epochs/e", b"x")
    place.files.delete(path)
    assert place.kept == []
    assert place.files.list("") == []


def test_a_jobs_folder_goes_some_time_after_its_last_slot(tmp_path: Path) -> None:
    state = LocalState(tmp_path)
    other = JobId("e" * 32)
    for job_id in (JOB, other):
        (state.path / job_id / "state").mkdir(parents=True)
    assert state.note({JOB, other}, 0) == []
    assert state.note({other}, 1_000) == []
    assert state.note({JOB, other}, 2_000) == []
    assert state.note({other}, 3_000) == []
    assert state.note({other}, 3_000 + KEPT_FOR_MS - 1) == []
    over = state.note({other}, 3_000 + KEPT_FOR_MS)
    assert over == [JOB]
    state.remove(over)
    assert [path.name for path in state.path.iterdir()] == [other]
