"""A job's checkpoints as Flink's JobManager REST API shows them: counts, the latest ones, a history with the answer of
every task, and what is configured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.api import (
    CheckpointRecord,
    CheckpointState,
    CheckpointSummary,
    JobClient,
    JobStatus,
    SubtaskCheckpoint,
    VertexStatus,
)
from server.http.errors import NotFoundError
from server.http.job_ids import NOT_FOUND, status_of
from server.http.requests import json_response

_CLASS_NAMES = {
    CheckpointState.IN_PROGRESS: "in_progress",
    CheckpointState.COMPLETED: "completed",
    CheckpointState.FAILED: "failed",
}
_PERCENTILES = (50, 90, 95, 99, 99.9)


def add_checkpoints(router: APIRouter, jobs: JobClient) -> None:
    @router.get("/jobs/{job_id}/checkpoints")
    async def checkpoints(job_id: str) -> Response:
        """Counts, the latest checkpoints and the history."""
        return json_response(checkpoint_statistics(await status_of(jobs, job_id)))

    @router.get("/jobs/{job_id}/checkpoints/config")
    async def config(job_id: str) -> Response:
        """How the job is checkpointed."""
        return json_response(checkpoint_configuration(await status_of(jobs, job_id)))

    @router.get("/jobs/{job_id}/checkpoints/details/{checkpoint_id}")
    async def details(job_id: str, checkpoint_id: str) -> Response:
        """One checkpoint of the history with its vertices."""
        return json_response(checkpoint_details(await status_of(jobs, job_id), checkpoint_id))

    @router.get("/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}")
    async def subtasks(job_id: str, checkpoint_id: str, vertex_id: str) -> Response:
        """One vertex of a checkpoint with the answers of its subtasks."""
        return json_response(checkpoint_subtasks(await status_of(jobs, job_id), checkpoint_id, vertex_id))


def _record(job: JobStatus, text: str) -> CheckpointRecord:
    for record in job.checkpoints.history:
        if str(record.checkpoint_id) == text:
            return record
    raise NotFoundError(f"{NOT_FOUND}: Could not find checkpointing statistics for checkpoint {text}.\n")


def checkpoint_details(job: JobStatus, checkpoint_id: str) -> dict[str, Any]:
    """One checkpoint with its vertices. Raises NotFoundError."""
    record = _record(job, checkpoint_id)
    return {**_checkpoint(record), "tasks": {_vertex_id(v.vertex_id): _task(record, v) for v in job.vertices}}


def checkpoint_subtasks(job: JobStatus, checkpoint_id: str, vertex_id: str) -> dict[str, Any]:
    """One vertex of a checkpoint. Raises NotFoundError."""
    record = _record(job, checkpoint_id)
    for vertex in job.vertices:
        if _vertex_id(vertex.vertex_id) == vertex_id:
            return _subtasks(record, vertex)
    raise NotFoundError(f"{NOT_FOUND}: There is no vertex {vertex_id} in job {job.job_id}\n")


def checkpoint_statistics(job: JobStatus) -> dict[str, Any]:
    """Counts, the latest ones, the history."""
    summary = job.checkpoints
    completed = [r for r in summary.history if r.state is CheckpointState.COMPLETED]
    own = [record for record in completed if not record.is_savepoint]
    savepoints = [record for record in completed if record.is_savepoint]
    return {
        "counts": {
            "restored": summary.restored_count,
            "total": summary.triggered,
            "in_progress": summary.in_progress,
            "completed": summary.completed,
            "failed": summary.failed,
        },
        "summary": {
            "checkpointed_size": _spread([r.byte_size for r in completed]),
            "state_size": _spread([r.full_byte_size for r in completed]),
            "end_to_end_duration": _spread([r.duration_ms for r in completed]),
            "alignment_buffered": _spread([0 for _ in completed]),
            "persisted_data": _spread([_persisted(r.subtasks) for r in completed]),
        },
        "latest": {
            "completed": _checkpoint(own[0]) if own else _earlier_checkpoint(summary),
            "savepoint": _checkpoint(savepoints[0]) if savepoints else _earlier_savepoint(summary),
            "failed": _checkpoint(summary.latest_failed) if summary.latest_failed is not None else None,
            "restored": _restored(summary),
        },
        "history": [_checkpoint(record) for record in summary.history],
    }


def _checkpoint(record: CheckpointRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "className": _CLASS_NAMES[record.state],
        "id": record.checkpoint_id,
        "status": record.state.value,
        "is_savepoint": record.is_savepoint,
        "savepointFormat": "CANONICAL" if record.is_savepoint else None,
        "trigger_timestamp": record.triggered_at_ms,
        "latest_ack_timestamp": record.latest_ack_at_ms or -1,
        "checkpointed_size": record.byte_size,
        "state_size": record.full_byte_size,
        "end_to_end_duration": record.duration_ms,
        "alignment_buffered": 0,
        "persisted_data": _persisted(record.subtasks),
        "num_subtasks": record.subtask_count,
        "num_acknowledged_subtasks": len(record.subtasks),
        "checkpoint_type": _type(record),
        "tasks": {},
    }
    match record.state:
        case CheckpointState.COMPLETED:
            shown |= {"external_path": record.path, "discarded": record.discarded}
        case CheckpointState.FAILED:
            shown |= {"failure_timestamp": record.ended_at_ms, "failure_message": record.failure}
        case CheckpointState.IN_PROGRESS:
            pass
    return shown


def _type(record: CheckpointRecord) -> str:
    if record.is_savepoint:
        return "SYNC_SAVEPOINT" if record.stops else "SAVEPOINT"
    return "UNALIGNED_CHECKPOINT" if any(s.is_unaligned for s in record.subtasks) else "CHECKPOINT"


def _earlier_checkpoint(summary: CheckpointSummary) -> dict[str, Any] | None:
    """Completed under an earlier JobManager: its figures are not all known."""
    if not summary.latest_completed_id:
        return None
    return {
        "className": "completed",
        "id": summary.latest_completed_id,
        "status": CheckpointState.COMPLETED.value,
        "is_savepoint": False,
        "savepointFormat": None,
        "trigger_timestamp": summary.latest_completed_at_ms - int(summary.latest_duration_ms),
        "latest_ack_timestamp": summary.latest_completed_at_ms,
        "checkpointed_size": summary.latest_bytes,
        "state_size": summary.latest_full_bytes,
        "end_to_end_duration": summary.latest_duration_ms,
        "checkpoint_type": "CHECKPOINT",
        "external_path": summary.latest_path,
        "discarded": False,
    }


def _earlier_savepoint(summary: CheckpointSummary) -> dict[str, Any] | None:
    if not summary.latest_savepoint_id:
        return None
    return {
        "className": "completed",
        "id": summary.latest_savepoint_id,
        "status": CheckpointState.COMPLETED.value,
        "is_savepoint": True,
        "savepointFormat": "CANONICAL",
        "latest_ack_timestamp": summary.latest_savepoint_at_ms,
        "checkpoint_type": "SAVEPOINT",
        "external_path": summary.latest_savepoint_path,
        "discarded": False,
    }


def _restored(summary: CheckpointSummary) -> dict[str, Any] | None:
    if not summary.restored_id:
        return None
    return {
        "id": summary.restored_id,
        "restore_timestamp": summary.restored_at_ms,
        "is_savepoint": summary.restored_is_savepoint,
        "external_path": summary.restored_path,
    }


def _task(record: CheckpointRecord, vertex: VertexStatus) -> dict[str, Any]:
    answers = _answers(record, vertex)
    return {
        "id": record.checkpoint_id,
        "status": record.state.value,
        "latest_ack_timestamp": max((a.acknowledged_at_ms for a in answers), default=-1),
        "checkpointed_size": sum(a.byte_size for a in answers),
        "state_size": sum(a.full_byte_size for a in answers),
        "end_to_end_duration": max((a.duration_ms for a in answers), default=-1),
        "alignment_buffered": 0,
        "persisted_data": _persisted(answers),
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": len(answers),
    }


def _subtasks(record: CheckpointRecord, vertex: VertexStatus) -> dict[str, Any]:
    answers = _answers(record, vertex)
    waiting = sorted(set(range(vertex.parallelism)) - {a.subtask_index for a in answers})
    pending = [{"className": "pending", "index": index, "status": "pending_or_failed"} for index in waiting]
    return {
        **_task(record, vertex),
        "summary": {
            "checkpointed_size": _spread([a.byte_size for a in answers]),
            "state_size": _spread([a.full_byte_size for a in answers]),
            "end_to_end_duration": _spread([a.duration_ms for a in answers]),
            "checkpoint_duration": {
                "sync": _spread([a.sync_ms for a in answers]),
                "async": _spread([a.async_ms for a in answers]),
            },
            "alignment": {
                "buffered": _spread([0 for _ in answers]),
                "persisted": _spread([a.persisted_bytes for a in answers]),
                "duration": _spread([a.alignment_ms for a in answers]),
            },
        },
        "subtasks": sorted([*map(_subtask, answers), *pending], key=lambda subtask: int(subtask["index"])),
    }


def _subtask(answer: SubtaskCheckpoint) -> dict[str, Any]:
    return {
        "className": "completed",
        "index": answer.subtask_index,
        "status": "completed",
        "ack_timestamp": answer.acknowledged_at_ms,
        "end_to_end_duration": answer.duration_ms,
        "checkpointed_size": answer.byte_size,
        "state_size": answer.full_byte_size,
        "checkpoint": {"sync": round(answer.sync_ms, 3), "async": round(answer.async_ms, 3)},
        "alignment": {
            "buffered": 0,
            "persisted": answer.persisted_bytes,
            "duration": round(answer.alignment_ms, 3),
        },
        "unaligned_checkpoint": answer.is_unaligned,
        "aborted": False,
    }


def _answers(record: CheckpointRecord, vertex: VertexStatus) -> list[SubtaskCheckpoint]:
    return [answer for answer in record.subtasks if answer.vertex_id == vertex.vertex_id]


def _persisted(answers: Iterable[SubtaskCheckpoint]) -> int:
    return sum(answer.persisted_bytes for answer in answers)


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values) or [0]
    shown: dict[str, float] = {"min": ordered[0], "max": ordered[-1], "avg": sum(ordered) // len(ordered)}
    for percentile in _PERCENTILES:
        name = f"p{percentile}".replace(".", "")
        shown[name] = ordered[min(len(ordered) - 1, int(len(ordered) * percentile / 100))]
    return shown


def _vertex_id(number: int) -> str:
    return f"{number:032x}"


def checkpoint_configuration(job: JobStatus) -> dict[str, Any]:
    """How the job is checkpointed."""
    config = job.checkpoint_config
    return {
        "mode": "exactly_once",
        "interval": config.interval_ms,
        "timeout": config.timeout_ms,
        "min_pause": config.min_pause_ms,
        "max_concurrent": config.concurrent_max,
        "externalization": {
            "enabled": config.retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": config.retention != "RETAIN_ON_CANCELLATION",
        },
        "num_retained": config.retained_count,
        "state_backend": config.state_backend,
        "checkpoint_storage": config.location,
        "unaligned_checkpoints": config.aligned_timeout_ms is not None,
        "aligned_checkpoint_timeout": config.aligned_timeout_ms or 0,
        "tolerable_failed_checkpoints": config.tolerable_failures,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
    }
