"""What has gone wrong in a job, newest first, as `/jobs/:id/exceptions` shows it."""

from __future__ import annotations

from collections import deque

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.api import FailureEntry, TaskFailure
from runtime.jobmanager.job_events import RecordFailure

ENTRIES_KEPT = 16
CONCURRENT_KEPT = 50


class ExceptionHistory:
    """Lives as long as the job's master."""

    def __init__(self) -> None:
        self._entries: deque[FailureEntry] = deque(maxlen=ENTRIES_KEPT)
        self._added = 0

    @property
    def entries(self) -> tuple[FailureEntry, ...]:
        return tuple(reversed(self._entries))

    @property
    def is_truncated(self) -> bool:
        return self._added > len(self._entries)

    def add(self, record: RecordFailure, graph: JobGraph, now_ms: int) -> None:
        """One that came while its region or the job was failing already belongs to the entry before."""
        found = _task_failure(record, graph, now_ms)
        if not record.concurrent or not self._entries:
            self._entries.append(FailureEntry(found))
            self._added += 1
            return
        latest = self._entries[-1]
        if len(latest.concurrent) < CONCURRENT_KEPT:
            self._entries[-1] = msgspec.structs.replace(latest, concurrent=(*latest.concurrent, found))


def _task_failure(record: RecordFailure, graph: JobGraph, now_ms: int) -> TaskFailure:
    task, attempt = "", record.attempt
    if attempt is not None:
        vertex = graph.vertex(attempt.vertex_id)
        subtask = f"{attempt.subtask_index + 1}/{vertex.parallelism}"
        task = f"{vertex.name} ({subtask}) - execution #{attempt.number}"
    slot = record.slot
    if slot is None:
        return TaskFailure(record.failure, now_ms, task)
    return TaskFailure(record.failure, now_ms, task, f"{slot.host}:{slot.data_port}", slot.task_manager_id)
