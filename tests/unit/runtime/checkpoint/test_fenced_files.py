"""Checkpoint files under a leader token: a JobManager of yesterday creates nothing and deletes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.api import StaleLeaderError
from runtime.checkpoint.fenced_files import FencedFiles
from runtime.checkpoint.files import open_files, read_bytes, write_bytes


class Leader:
    def __init__(self) -> None:
        self.leads = True

    def check(self) -> None:
        if not self.leads:
            raise StaleLeaderError("another one leads")


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def files(tmp_path: Path, leader: Leader) -> FencedFiles:
    fenced = FencedFiles(open_files(str(tmp_path / "job")), leader.check)
    write_bytes(fenced, "g1/chk-1/manifest", b"one")
    return fenced


def on_disk(files: FencedFiles) -> list[str]:
    return sorted(path.name for path in Path(files.uri).rglob("*") if path.is_file())


def test_a_leader_works_as_ever(files: FencedFiles) -> None:
    assert read_bytes(files, "g1/chk-1/manifest") == b"one"
    assert files.byte_size("g1/chk-1/manifest") == 3
    assert [stored.path for stored in files.list("")] == ["g1/chk-1/manifest"]
    files.delete("g1/chk-1/manifest")
    assert on_disk(files) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.delete("g1/chk-1/manifest"),
        lambda files: files.clear(),
        lambda files: files.create("g1/chk-2/manifest"),
        lambda files: files.discard_unsealed("g1/chk-1/manifest"),
    ],
    ids=["delete", "clear", "create", "discard_unsealed"],
)
def test_one_of_yesterday_changes_nothing(
    files: FencedFiles, leader: Leader, change: Callable[[FencedFiles], object]
) -> None:
    leader.leads = False
    with pytest.raises(StaleLeaderError):
        change(files)
    assert on_disk(files) == ["manifest"]
    assert read_bytes(files, "g1/chk-1/manifest") == b"one"


def test_a_file_that_was_begun_under_the_lease_is_not_sealed_without_it(files: FencedFiles, leader: Leader) -> None:
    writer = files.create("g1/chk-2/manifest")
    writer.write(b"two")
    leader.leads = False
    with pytest.raises(StaleLeaderError):
        writer.seal()
    assert writer.closed
    assert on_disk(files) == ["manifest"]
