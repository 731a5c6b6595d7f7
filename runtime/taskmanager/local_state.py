"""The folders in which a TaskManager's slots keep copies of what they wrote for checkpoints, one per job: gone some
time after the job's last slot here."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from runtime.ids import JobId

FOLDER = "local-state"
KEPT_FOR_MS = 600_000
"""A restart that waits for slots comes back within this time, or reads from the checkpoint storage."""


class LocalState:
    """Jobs are noted when tasks arrive; `remove_unused` is called now and then, in a helper thread."""

    def __init__(self, work_directory: Path) -> None:
        self.path = work_directory / FOLDER
        self._unused_since_ms: dict[JobId, int | None] = {}

    def note(self, running: Collection[JobId], now_ms: int) -> list[JobId]:
        """The jobs that have slots here now; what is returned has had none for long."""
        for job_id in running:
            self._unused_since_ms[job_id] = None
        over = []
        for job_id, since_ms in list(self._unused_since_ms.items()):
            if job_id in running:
                continue
            if since_ms is None:
                self._unused_since_ms[job_id] = now_ms
            elif now_ms - since_ms >= KEPT_FOR_MS:
                del self._unused_since_ms[job_id]
                over.append(job_id)
        return over

    def remove(self, job_ids: Collection[JobId]) -> None:
        for job_id in job_ids:
            shutil.rmtree(self.path / job_id, ignore_errors=True)
