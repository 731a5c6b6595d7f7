"""What users see of a job's checkpoints, over restarts and JobManagers."""

from __future__ import annotations

import pytest

from connectors.api import Committable
from runtime.api import CheckpointState
from runtime.checkpoint.coordination import SavepointWanted, SubtaskAcked, SubtaskTimings
from runtime.checkpoint.manifest import CheckpointCounts, CheckpointManifest
from runtime.checkpoint.snapshot import InFlightHandle, OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.ids import AttemptId, JobId
from runtime.jobmanager import checkpoint_history
from runtime.jobmanager.checkpoint_history import HISTORY_LENGTH, CheckpointHistory

JOB = JobId("a" * 32)
OLD, NEW = (SegmentHandle(f"state/{name}", "s", 0, 127, 1, size, "") for name, size in (("old", 100), ("new", 10)))


def ack(number: int, *segments: SegmentHandle) -> SubtaskAcked:
    epochs = (Committable(0, number - 1, "i", b"", 1, 1000), Committable(0, number, "i", b"", 1, 5))
    operators = (OperatorSnapshot("o", segments=segments, committables=epochs),)
    in_flight = (InFlightHandle(0, 0, 0, f"flight/{number}", 1, 2, ""),)
    snapshot = SubtaskSnapshot(0, "v", 0, 1, operators, in_flight=in_flight)
    return SubtaskAcked(AttemptId(JOB, 1, 0, 0, 0), number, snapshot, SubtaskTimings(1.0, 2.0, 3.0, True))


def manifest(number: int, *segments: SegmentHandle, generation: int = 1) -> CheckpointManifest:
    counts = CheckpointCounts(7, 5, 1)
    return CheckpointManifest(
        JOB, generation, number, "i", 0, 0, "", 0, (), (ack(number, *segments).snapshot,), counts=counts
    )


def test_from_the_trigger_to_the_end() -> None:
    history = CheckpointHistory()
    history.triggered(2, 1, None)
    assert history.summary().in_progress == 1
    history.acknowledged(ack(2, OLD, NEW), {"state/old"})
    history.stored(manifest(2, OLD, NEW), "/c/g1/chk-2", 40)
    history.completed()
    summary = history.summary()
    assert (summary.triggered, summary.completed, summary.failed, summary.in_progress) == (1, 1, 0, 0)
    (record,) = summary.history
    assert (record.state, record.path, record.duration_ms) == (CheckpointState.COMPLETED, "/c/g1/chk-2", 40)
    assert (record.byte_size, record.full_byte_size) == (17, 1117)
    assert (summary.latest_bytes, summary.latest_completed_id, summary.latest_path) == (17, 2, "/c/g1/chk-2")
    (subtask,) = record.subtasks
    assert (subtask.sync_ms, subtask.async_ms, subtask.alignment_ms, subtask.is_unaligned) == (1.0, 2.0, 3.0, True)
    assert subtask.persisted_bytes == 2
    history.discarded([2])
    assert history.summary().history[0].discarded


def test_failures_and_what_a_restart_cuts_off() -> None:
    history = CheckpointHistory()
    history.triggered(1, 1, None)
    history.failed(1, "the disk is full")
    history.triggered(2, 1, SavepointWanted("s", "/sp"))
    history.generation_ended()
    summary = history.summary()
    assert (summary.failed, summary.in_progress) == (1, 0)
    assert [(r.checkpoint_id, r.failure[:11]) for r in summary.history] == [(2, "the tasks o"), (1, "the disk is")]
    assert summary.latest_failed == summary.history[0]


def test_the_next_job_manager_knows_what_the_manifest_tells() -> None:
    history = CheckpointHistory()
    history.restored(manifest(9, OLD), "/c/g1/chk-9", "")
    summary = history.summary()
    assert (summary.triggered, summary.completed, summary.failed) == (7, 5, 1)
    assert (summary.latest_completed_id, summary.restored_id, summary.restored_path) == (9, 9, "/c/g1/chk-9")
    assert (summary.restored_count, summary.restored_is_savepoint) == (1, False)


def test_a_start_from_a_savepoint_counts_none_of_its_checkpoints() -> None:
    history = CheckpointHistory()
    history.restored(manifest(9, OLD, generation=0), "/c/g0/chk-9", "")
    summary = history.summary()
    assert (summary.triggered, summary.completed, summary.latest_completed_id) == (0, 0, 0)
    assert (summary.restored_id, summary.restored_is_savepoint) == (9, True)


def test_the_history_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_history, "wall_clock_ms", lambda: 1)
    history = CheckpointHistory()
    for number in range(1, 40):
        history.triggered(number, 1, None)
        history.failed(number, "no")
    assert [r.checkpoint_id for r in history.summary().history] == list(range(39, 39 - HISTORY_LENGTH - 1, -1))
