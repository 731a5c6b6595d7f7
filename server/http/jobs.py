"""The part of Flink's JobManager REST API that tools read: overview, jobs, TaskManagers, cancel.
Checkpoints are in `checkpoints`, savepoints in `savepoints`.

Offered without prefix and under /v1. Figures Headrace does not have are left out, never invented.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.api import (
    ClusterOverview,
    JobClient,
    JobState,
    JobStatus,
    TaskManagerStatus,
    TaskState,
    UnknownJobError,
    VertexStatus,
)
from server.http.checkpoints import add_checkpoints
from server.http.errors import NotFoundError, bad_parameter
from server.http.job_exceptions import add_exceptions
from server.http.job_ids import NOT_FOUND, no_job, parse_job_id, status_of
from server.http.requests import json_response
from server.http.rescaling import add_rescaling
from server.http.savepoints import add_savepoints
from server.secrets import masked_sql

_TASK_STATES = [state.value for state in TaskState]


def jobs_router(jobs: JobClient, product_version: str) -> APIRouter:
    """The routes, without prefix."""
    router = APIRouter(tags=["JobManager"])
    _add_cluster(router, jobs, product_version)
    _add_jobs(router, jobs)
    add_exceptions(router, jobs)
    add_checkpoints(router, jobs)
    add_savepoints(router, jobs)
    add_rescaling(router, jobs)
    return router


def _add_cluster(router: APIRouter, jobs: JobClient, product_version: str) -> None:
    @router.get("/overview")
    async def overview() -> Response:
        """Slots, TaskManagers and jobs by state."""
        return json_response(_overview(await jobs.overview(), product_version))

    @router.get("/config")
    async def config() -> Response:
        """What a dashboard may offer."""
        return json_response(
            {
                "refresh-interval": 3000,
                "timezone-name": "Coordinated Universal Time",
                "timezone-offset": 0,
                "flink-version": product_version,
                "flink-revision": "",
                "features": {"web-submit": False, "web-cancel": True, "web-rescale": False, "web-history": False},
            }
        )

    @router.get("/taskmanagers")
    async def task_managers() -> Response:
        """All registered TaskManagers."""
        return json_response({"taskmanagers": [_task_manager(t) for t in await jobs.task_managers()]})

    @router.get("/taskmanagers/{task_manager_id}")
    async def task_manager(task_manager_id: str) -> Response:
        """One TaskManager."""
        for status in await jobs.task_managers():
            if status.task_manager_id == task_manager_id:
                return json_response(_task_manager(status))
        raise NotFoundError(f"{NOT_FOUND}: Could not find TaskManager with id {task_manager_id}\n")


def _add_jobs(router: APIRouter, jobs: JobClient) -> None:
    @router.get("/jobs")
    async def all_jobs() -> Response:
        """Ids and states of all jobs."""
        return json_response({"jobs": [{"id": j.job_id, "status": j.state.value} for j in await jobs.jobs()]})

    @router.get("/jobs/overview")
    async def jobs_overview() -> Response:
        """Name, times and tasks of all jobs."""
        now_ms = _now_ms()
        return json_response({"jobs": [_job_summary(j, now_ms) for j in await jobs.jobs()]})

    @router.get("/jobs/{job_id}")
    async def job(job_id: str) -> Response:
        """One job with its vertices and their figures."""
        return json_response(_job_details(await status_of(jobs, job_id), _now_ms()))

    @router.get("/jobs/{job_id}/status")
    async def job_status(job_id: str) -> Response:
        """The state of one job."""
        return json_response({"status": (await status_of(jobs, job_id)).state.value})

    @router.patch("/jobs/{job_id}")
    async def cancel(job_id: str, request: Request) -> Response:
        """Cancel a job: `?mode=cancel`."""
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise bad_parameter("query", "mode", mode)
        known = parse_job_id(job_id)
        try:
            await jobs.cancel(known)
        except UnknownJobError:
            raise no_job(known) from None
        return json_response({}, 202)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _overview(overview: ClusterOverview, product_version: str) -> dict[str, Any]:
    counts = overview.jobs_by_state
    ended = (JobState.FINISHED, JobState.CANCELED, JobState.FAILED)
    running = sum(n for state, n in counts.items() if state not in ended and state != JobState.SUSPENDED)
    return {
        "taskmanagers": overview.task_managers,
        "slots-total": overview.slots_total,
        "slots-available": overview.slots_available,
        "jobs-running": running,
        "jobs-finished": counts.get(JobState.FINISHED, 0),
        "jobs-cancelled": counts.get(JobState.CANCELED, 0),
        "jobs-failed": counts.get(JobState.FAILED, 0),
        "flink-version": product_version,
        "flink-commit": "",
    }


def _duration_ms(job: JobStatus, now_ms: int) -> int:
    return (job.end_ms if job.end_ms >= 0 else now_ms) - job.start_ms


def _job_summary(job: JobStatus, now_ms: int) -> dict[str, Any]:
    tasks = {state.lower(): 0 for state in (*_TASK_STATES, "RECONCILING")}
    for vertex in job.vertices:
        for state, count in vertex.task_states.items():
            tasks[state.lower()] += count
    return {
        "jid": job.job_id,
        "name": masked_sql(job.name),
        "start-time": job.start_ms,
        "end-time": job.end_ms,
        "duration": _duration_ms(job, now_ms),
        "state": job.state.value,
        "last-modification": max(job.state_timestamps_ms.values(), default=job.start_ms),
        "tasks": {"total": sum(tasks.values()), **tasks},
        "pending-operators": 0,
        "slots-missing": job.slots_missing,
        "restarts": job.restarts,
        "failure": job.failure.message if job.failure is not None else None,
    }


def _job_details(job: JobStatus, now_ms: int) -> dict[str, Any]:
    states = [*(state.value for state in JobState), "RECONCILING"]
    status_counts = dict.fromkeys((*_TASK_STATES, "RECONCILING"), 0)
    for vertex in job.vertices:
        for state, count in vertex.task_states.items():
            status_counts[state] += count
    details = {
        "jid": job.job_id,
        "name": masked_sql(job.name),
        "isStoppable": not (job.is_query or job.state.terminal),
        "state": job.state.value,
        "job-type": "STREAMING",
        "start-time": job.start_ms,
        "end-time": job.end_ms,
        "duration": _duration_ms(job, now_ms),
        "maxParallelism": -1,
        "now": now_ms,
        "timestamps": {state: job.state_timestamps_ms.get(state, 0) for state in states},
        "vertices": [_vertex(v, job.state.terminal) for v in job.vertices],
        "status-counts": status_counts,
        "plan": {
            "jid": job.job_id,
            "name": masked_sql(job.name),
            "type": "STREAMING",
            "nodes": [{"id": _vertex_id(v), "parallelism": v.parallelism, "description": v.name} for v in job.vertices],
        },
        "restarts": job.restarts,
        "full-restarts": job.recovery.full_restarts,
        "restarting-time": job.recovery.restarting_time_ms,
        "down-time": job.recovery.down_time_ms,
        "up-time": job.recovery.up_time_ms,
        "generation": job.generation,
        "slots-missing": job.slots_missing,
    }
    if job.failure is not None:
        details["failure"] = {
            "message": job.failure.message,
            "domain": job.failure.domain,
            "hint": job.failure.hint,
            "retry": job.failure.retry,
        }
    return details


def _vertex_id(vertex: VertexStatus) -> str:
    return f"{vertex.vertex_id:032x}"


def _vertex(vertex: VertexStatus, complete: bool) -> dict[str, Any]:
    figures = {
        "read-bytes": sum(m.bytes_in for m in vertex.metrics),
        "write-bytes": sum(m.bytes_out for m in vertex.metrics),
        "read-records": sum(m.records_in for m in vertex.metrics),
        "write-records": sum(m.records_out for m in vertex.metrics),
    }
    metrics: dict[str, Any] = {}
    for name, value in figures.items():
        metrics[name] = value
        metrics[f"{name}-complete"] = complete
    if vertex.metrics:
        count = len(vertex.metrics)
        metrics["busy-ms-per-second"] = sum(m.busy_ms_per_second for m in vertex.metrics) / count
        metrics["backpressured-ms-per-second"] = sum(m.backpressured_ms_per_second for m in vertex.metrics) / count
        metrics["idle-ms-per-second"] = sum(m.idle_ms_per_second for m in vertex.metrics) / count
        watermarks = [m.watermark_ms for m in vertex.metrics if m.watermark_ms is not None]
        metrics["watermark-ms"] = min(watermarks) if len(watermarks) == count else None
    return {
        "id": _vertex_id(vertex),
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": _aggregate_state(vertex.task_states),
        "tasks": {state: vertex.task_states.get(state, 0) for state in (*_TASK_STATES, "RECONCILING")},
        "metrics": metrics,
        "operators": _operators(vertex),
    }


def _operators(vertex: VertexStatus) -> dict[str, dict[str, float]]:
    """Figures of each operator of the chain (an addition of ours), summed over subtasks, also of an ended job: how
    many late rows were dropped, how many records skipped."""
    found: dict[str, dict[str, float]] = {}
    for task in vertex.metrics:
        for uid, figures in task.operators.items():
            totals = found.setdefault(uid, {})
            for name, value in figures.items():
                totals[name] = totals.get(name, 0) + value
    return found


def _aggregate_state(task_states: dict[str, int]) -> str:
    """One word for all tasks of a vertex: the worst of the ended, else the least advanced."""
    for state in ("FAILED", "CANCELING", "CANCELED", "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"):
        if task_states.get(state):
            return state
    return "FINISHED" if task_states.get("FINISHED") else "CREATED"


def _task_manager(status: TaskManagerStatus) -> dict[str, Any]:
    return {
        "id": status.task_manager_id,
        "path": f"{status.host}/{status.task_manager_id}",
        "host": status.host,
        "pid": status.pid,
        "timeSinceLastHeartbeat": status.last_heartbeat_ms,
        "slotsNumber": status.slots_total,
        "freeSlots": status.slots_free,
        "slotPids": list(status.slot_pids),
        "slotRssBytes": list(status.slot_rss_bytes),
        "memoryConfiguration": {"totalProcessMemory": status.memory_bytes},
    }
