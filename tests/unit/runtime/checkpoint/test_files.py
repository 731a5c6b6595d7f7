"""Checkpoint files in a directory, and the texts that name places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.checkpoint.files import JobFiles, LocationError, below, normalized, open_files, write_bytes
from tests.unit.runtime.checkpoint.files_contract import FilesContract


class TestDirectory(FilesContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> JobFiles:
        return open_files(str(tmp_path / "job"))


def test_what_dead_writers_left_is_found_and_removed(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    writer = files.create("state/4f-g2-v1-s0-a1-x")
    writer.write(bytes(2 << 20))
    (left,) = files.unsealed()
    assert "4f-g2-v1-s0-a1-x" in left
    files.discard_unsealed(left)
    assert files.unsealed() == []
    with pytest.raises(FileNotFoundError):
        writer.seal()
    assert files.list("") == []


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(str(tmp_path))
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_bytes(files, "state/a", b"x")
    assert (files.list(""), files.unsealed()) == ([], [])


def test_a_sealed_file_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes, its name, and the names of all folders above it are synced, in this order."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    write_bytes(open_files(str(tmp_path / "job")), "g1/chk-1/manifest", b"x")
    assert Path(synced[0]).name.startswith(".manifest")
    assert synced[1:] == [str(tmp_path / folder) for folder in ("job/g1/chk-1", "job/g1", "job", ".")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/var/checkpoints/", "/var/checkpoints"),
        ("file:///var/checkpoints", "/var/checkpoints"),
        ("file:/var//checkpoints", "/var/checkpoints"),
        ("s3://bucket", "s3://bucket"),
        (" s3a://bucket/a//b/ ", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_places(text: str, place: str) -> None:
    assert normalized(text) == place
    assert normalized(below(place, "x")) == f"{place}/x"


@pytest.mark.parametrize("text", ["checkpoints", "hdfs://host/a", "s3://", "s3:///a", "az://container@account/a", ""])
def test_what_names_no_place(text: str) -> None:
    with pytest.raises(LocationError):
        normalized(text)


def test_a_directory_needs_no_library_for_object_stores(tmp_path: Path) -> None:
    code = "import sys, runtime.taskmanager.slot_runtime\nfrom runtime.checkpoint.files import open_files\n"
    code += f"open_files({str(tmp_path)!r}).list('')\nprint('obstore' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).strip() == "False"
