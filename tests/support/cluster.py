"""A standalone cluster under fire: find and kill -9 any of its processes, and follow its jobs through restarts.

with Cluster(tmp_path / "data", taskmanagers=2, slots=2) as cluster:
    job_id = cluster.session().execute("INSERT INTO out SELECT …").job_id
    cluster.kill("taskmanager")
    cluster.wait_for_job(job_id, "FINISHED", timeout_s=60)
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Literal

from tests.support.standalone import Standalone

Role = Literal["jobmanager", "taskmanager", "slot"]


class Cluster(Standalone):
    """`headrace standalone` and everything below it."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def pids(self, role: Role) -> list[int]:
        """Living processes of a role below the launcher."""
        marker = {"jobmanager": "jobmanager", "taskmanager": "taskmanager", "slot": "runtime.taskmanager.slot"}[role]
        found = []
        for pid in _descendants(self.process.pid):
            words = _command_line(pid)
            if marker in words[:6] and (role == "slot" or "runtime.taskmanager.slot" not in words):
                found.append(pid)
        return found

    def kill(self, role: Role, index: int = 0) -> int | None:
        """kill -9 the index-th (modulo) process of a role; its pid, or None when there is none just now."""
        pids = self.pids(role)
        if not pids:
            return None
        pid = pids[index % len(pids)]
        _kill(pid)
        return pid


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It ended by itself in the meantime.


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents first."""
    found = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    for child in children:
        found += [int(child), *_descendants(int(child))]
    return found


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
