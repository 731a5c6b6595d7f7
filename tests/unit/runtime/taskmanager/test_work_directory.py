"""Work directories of TaskManagers that were killed go at the next start; those in use stay."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from runtime.taskmanager.work_directory import LOCK_NAME, PREFIX, WorkDirectory

_HOLDER = """
import os, sys
from runtime.taskmanager.work_directory import WorkDirectory
directory = WorkDirectory(sys.argv[1])
(directory.path / "slot-0").mkdir()
(directory.path / "slot-0" / "rows").write_bytes(b"x" * 1000)
print(directory.path, flush=True)
sys.stdin.read()
"""


def test_directories_of_killed_processes_are_removed_at_the_next_start(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    paths = [Path(holder.stdout.readline().strip()) for holder in holders if holder.stdout is not None]
    foreign = tmp_path / f"{PREFIX}foreign"
    (foreign / "files").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with contextlib.closing(WorkDirectory(str(tmp_path))) as own:
        assert own.remove_abandoned() == 0
        holders[0].kill()
        holders[0].wait()
        assert own.remove_abandoned() == 1
        assert not paths[0].exists()
        assert (paths[1] / "slot-0" / "rows").exists()
        assert own.path.exists()
        assert (foreign / "files").exists()
        holders[1].kill()
        holders[1].wait()
    assert not own.path.exists()
    with contextlib.closing(WorkDirectory(str(tmp_path))) as own:
        assert own.remove_abandoned() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}foreign", "other"]
    for holder in holders:
        holder.communicate()


def test_a_slot_that_still_runs_holds_the_directory(tmp_path: Path) -> None:
    own = WorkDirectory(str(tmp_path))
    slot = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[own.lock_fd]
    )
    os.close(own.lock_fd)  # As when its TaskManager is killed.
    with contextlib.closing(WorkDirectory(str(tmp_path))) as other:
        assert other.remove_abandoned() == 0
        assert (own.path / LOCK_NAME).exists()
        slot.communicate()
        assert other.remove_abandoned() == 1
