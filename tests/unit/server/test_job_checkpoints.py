"""A job's checkpoints as the REST API shows them."""

from __future__ import annotations

import asyncio
import re
from typing import cast

import msgspec
import pytest

from runtime.api import (
    CheckpointConfig,
    CheckpointRecord,
    CheckpointState,
    CheckpointSummary,
    ClusterOverview,
    JobClient,
    JobId,
    JobState,
    JobStatus,
    SubtaskCheckpoint,
    VertexStatus,
)
from server.http.checkpoints import (
    checkpoint_configuration,
    checkpoint_details,
    checkpoint_statistics,
    checkpoint_subtasks,
)
from server.http.errors import NotFoundError
from server.http.metrics import metrics_text

SOURCE, SINK = f"{0:032x}", f"{1:032x}"
ANSWERS = (
    SubtaskCheckpoint(0, 1, 1_020, 20, 30, 100, sync_ms=1.0, async_ms=4.0),
    SubtaskCheckpoint(0, 0, 1_010, 10, 10, 100, sync_ms=3.0, async_ms=6.0),
    SubtaskCheckpoint(1, 0, 1_050, 50, 0, 5, alignment_ms=7.5, is_unaligned=True, persisted_bytes=64),
)
HISTORY = (
    CheckpointRecord(4, CheckpointState.IN_PROGRESS, 4_000, 3, latest_ack_at_ms=0),
    CheckpointRecord(3, CheckpointState.FAILED, 3_000, 3, ended_at_ms=3_500, duration_ms=500, failure="disk full"),
    CheckpointRecord(2, CheckpointState.COMPLETED, 2_000, 3, is_savepoint=True, ended_at_ms=2_100, path="/sp/1"),
    CheckpointRecord(
        1,
        CheckpointState.COMPLETED,
        1_000,
        3,
        latest_ack_at_ms=1_050,
        ended_at_ms=1_060,
        duration_ms=60,
        byte_size=40,
        full_byte_size=205,
        path="/c/g1/chk-1",
        subtasks=ANSWERS,
    ),
)
SUMMARY = CheckpointSummary(
    triggered=4,
    completed=2,
    failed=1,
    in_progress=1,
    latest_completed_id=1,
    latest_savepoint_id=2,
    restored_id=9,
    restored_at_ms=500,
    restored_path="/sp/0",
    restored_is_savepoint=True,
    restored_count=1,
    latest_failed=HISTORY[1],
    history=HISTORY,
)
JOB = JobStatus(
    JobId("f" * 32),
    "job",
    JobState.RUNNING,
    1,
    -1,
    {"RUNNING": 7},
    (VertexStatus(0, "source", 2, 128, {}), VertexStatus(1, "sink", 1, 128, {})),
    SUMMARY,
    checkpoint_config=CheckpointConfig(
        interval_ms=1000,
        timeout_ms=600_000,
        concurrent_max=1,
        retention="DELETE_ON_CANCELLATION",
        aligned_timeout_ms=300,
        state_backend="hashmap",
        location="/c",
    ),
)


def test_counts_the_latest_and_the_history() -> None:
    shown = checkpoint_statistics(JOB)
    assert shown["counts"] == {"restored": 1, "total": 4, "in_progress": 1, "completed": 2, "failed": 1}
    assert [(c["id"], c["className"], c["checkpoint_type"]) for c in shown["history"]] == [
        (4, "in_progress", "CHECKPOINT"),
        (3, "failed", "CHECKPOINT"),
        (2, "completed", "SAVEPOINT"),
        (1, "completed", "UNALIGNED_CHECKPOINT"),
    ]
    latest = shown["latest"]
    assert (latest["completed"]["id"], latest["savepoint"]["external_path"]) == (1, "/sp/1")
    assert (latest["failed"]["failure_message"], latest["failed"]["failure_timestamp"]) == ("disk full", 3_500)
    assert latest["restored"] == {
        "id": 9,
        "restore_timestamp": 500,
        "is_savepoint": True,
        "external_path": "/sp/0",
    }
    completed = latest["completed"]
    assert (completed["checkpointed_size"], completed["state_size"], completed["persisted_data"]) == (40, 205, 64)
    assert (completed["num_subtasks"], completed["num_acknowledged_subtasks"]) == (3, 3)
    assert completed["external_path"] == "/c/g1/chk-1"
    assert shown["summary"]["state_size"]["max"] == 205


def test_one_checkpoint_by_vertex_and_subtask() -> None:
    tasks = checkpoint_details(JOB, "1")["tasks"]
    assert {v: (t["checkpointed_size"], t["state_size"], t["end_to_end_duration"]) for v, t in tasks.items()} == {
        SOURCE: (40, 200, 20),
        SINK: (0, 5, 50),
    }
    sink = checkpoint_subtasks(JOB, "1", SINK)
    (answer,) = sink["subtasks"]
    assert answer["alignment"] == {"buffered": 0, "persisted": 64, "duration": 7.5}
    assert answer["unaligned_checkpoint"] is True
    source = checkpoint_subtasks(JOB, "1", SOURCE)
    assert [s["index"] for s in source["subtasks"]] == [0, 1]
    assert source["summary"]["checkpoint_duration"]["sync"]["max"] == 3.0


def test_who_has_not_answered_yet() -> None:
    waiting = checkpoint_subtasks(JOB, "4", SOURCE)
    assert [(s["index"], s["status"]) for s in waiting["subtasks"]] == [
        (0, "pending_or_failed"),
        (1, "pending_or_failed"),
    ]
    assert (waiting["num_subtasks"], waiting["num_acknowledged_subtasks"]) == (2, 0)


@pytest.mark.parametrize(("checkpoint", "vertex"), [("77", SOURCE), ("x", SOURCE), ("1", "0"), ("1", f"{5:032x}")])
def test_what_is_not_there_is_not_found(checkpoint: str, vertex: str) -> None:
    with pytest.raises(NotFoundError):
        checkpoint_subtasks(JOB, checkpoint, vertex)


def test_the_configuration_has_flinks_names() -> None:
    shown = checkpoint_configuration(JOB)
    assert (shown["mode"], shown["interval"], shown["max_concurrent"]) == ("exactly_once", 1000, 1)
    assert shown["externalization"] == {"enabled": True, "delete_on_cancellation": True}
    assert (shown["unaligned_checkpoints"], shown["aligned_checkpoint_timeout"]) == (True, 300)
    assert (shown["state_backend"], shown["checkpoint_storage"]) == ("hashmap", "/c")


class OneJob:
    """What the metrics ask of a cluster."""

    async def overview(self) -> ClusterOverview:
        return ClusterOverview(1, 1, 0, {"RUNNING": 1})

    async def jobs(self) -> list[JobStatus]:
        latest = msgspec.structs.replace(
            SUMMARY, latest_bytes=40, latest_full_bytes=205, latest_duration_ms=60.0, latest_completed_at_ms=1_060
        )
        return [msgspec.structs.replace(JOB, checkpoints=latest)]


def test_the_same_figures_are_metrics() -> None:
    text = asyncio.run(metrics_text(cast(JobClient, OneJob())))
    found = dict(re.findall(r"^flink_jobmanager_job_(\w*Checkpoint\w*)\{.*\} (.*)$", text, re.MULTILINE))
    assert found == {
        "numberOfCompletedCheckpoints": "2",
        "numberOfFailedCheckpoints": "1",
        "numberOfInProgressCheckpoints": "1",
        "totalNumberOfCheckpoints": "4",
        "lastCheckpointRestoreTimestamp": "500",
        "lastCheckpointDuration": "60",
        "lastCheckpointSize": "40",
        "lastCheckpointFullSize": "205",
        "lastCheckpointCompletedTimestamp": "1060",
    }
