"""`/jobs/:id/exceptions` in Flink's shape: what has gone wrong, newest first, each root cause with what failed with it.

A field of ours: `attributes` has the failure's domain (user, external, internal), its hint, and whether a restart can
help.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.api import FailureEntry, JobClient, JobStatus, TaskFailure
from server.http.errors import bad_parameter
from server.http.job_ids import status_of
from server.http.requests import json_response

ENTRIES_DEFAULT = 20


def add_exceptions(router: APIRouter, jobs: JobClient) -> None:
    @router.get("/jobs/{job_id}/exceptions")
    async def job_exceptions(job_id: str, request: Request) -> Response:
        """What has gone wrong in one job, newest first; `?maxExceptions=` (20) of it."""
        text = request.query_params.get("maxExceptions", str(ENTRIES_DEFAULT))
        if not text.isdecimal():
            raise bad_parameter("query", "maxExceptions", text)
        return json_response(exceptions(await status_of(jobs, job_id), int(text)))


def exceptions(job: JobStatus, entries_max: int) -> dict[str, Any]:
    entries = job.exceptions
    if not entries and job.failure is not None:
        # Of a job that an earlier JobManager had, the last failure is all that is known.
        at_ms = max(job.state_timestamps_ms.values(), default=job.start_ms)
        entries = (FailureEntry(TaskFailure(job.failure, at_ms)),)
    shown = [
        {**_entry(entry.root), "concurrentExceptions": [_entry(found) for found in entry.concurrent]}
        for entry in entries[:entries_max]
    ]
    truncated = job.exceptions_truncated or len(entries) > entries_max
    return {"exceptionHistory": {"entries": shown, "truncated": truncated}}


def _entry(found: TaskFailure) -> dict[str, Any]:
    failure = found.failure
    return {
        "exceptionName": f"headrace.{failure.domain}",
        "stacktrace": failure.message,
        "timestamp": found.at_ms,
        "failureLabels": {},
        "taskName": found.task or None,
        "endpoint": found.endpoint or None,
        "taskManagerId": found.task_manager_id or None,
        "attributes": {"domain": failure.domain, "hint": failure.hint, "retry": failure.retry},
    }
