"""Savepoints as Flink's JobManager REST API has them: trigger, stop, and ask what has come of it."""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.api import (
    JobClient,
    SavepointRefusedError,
    SavepointRequest,
    SavepointState,
    SavepointStatus,
    UnknownJobError,
    UnknownSavepointError,
)
from server.http.errors import BadRequestError, NotFoundError, bad_parameter
from server.http.job_ids import no_job, parse_job_id
from server.http.requests import body_of, json_response

_DISPOSALS_KEPT = 100
_FORMATS = ("CANONICAL", "NATIVE")
_EXCEPTION = "org.apache.flink.runtime.checkpoint.CheckpointException"


class SavepointTriggerRequestBody(
    msgspec.Struct, frozen=True, rename={"target_directory": "target-directory", "cancel_job": "cancel-job"}
):
    target_directory: str | None = None
    cancel_job: bool = False
    formatType: str | None = None
    triggerId: str | None = None


class StopWithSavepointRequestBody(msgspec.Struct, frozen=True):
    targetDirectory: str | None = None
    drain: bool = False
    formatType: str | None = None
    triggerId: str | None = None


class SavepointDisposalRequestBody(msgspec.Struct, frozen=True, rename={"savepoint_path": "savepoint-path"}):
    savepoint_path: str


class _Disposals:
    """What has come of the latest disposals, by trigger id; each is over when it is answered."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}

    async def dispose(self, jobs: JobClient, path: str) -> str:
        trigger_id = uuid.uuid4().hex
        try:
            await jobs.dispose_savepoint(path)
            self._failures[trigger_id] = ""
        except SavepointRefusedError as error:
            self._failures[trigger_id] = f"{error}. {error.hint}" if error.hint else str(error)
        for old in list(self._failures)[:-_DISPOSALS_KEPT]:
            del self._failures[old]
        return trigger_id

    def status(self, trigger_id: str) -> dict[str, Any]:
        """Raises KeyError."""
        failure = self._failures[trigger_id]
        operation = {"failure-cause": {"class": _EXCEPTION, "stack-trace": failure}} if failure else {}
        return {"status": {"id": "COMPLETED"}, "operation": operation}


def add_savepoints(router: APIRouter, jobs: JobClient) -> None:
    """The routes below `/jobs/{job_id}`, and the disposal of any savepoint."""
    disposals = _Disposals()

    @router.post("/savepoint-disposal")
    async def dispose(request: Request) -> Response:
        """Delete a savepoint for good, unless a job still needs it."""
        body = await body_of(request, SavepointDisposalRequestBody)
        return json_response({"request-id": await disposals.dispose(jobs, body.savepoint_path)}, 202)

    @router.get("/savepoint-disposal/{trigger_id}")
    async def disposal_status(trigger_id: str) -> Response:
        """What has come of it."""
        try:
            return json_response(disposals.status(_trigger_id(trigger_id, "triggerid")))
        except KeyError:
            raise NotFoundError(f"There is no savepoint disposal with triggerId={trigger_id}.") from None

    @router.post("/jobs/{job_id}/stop")
    async def stop(job_id: str, request: Request) -> Response:
        """Stop a job with a savepoint; `drain` fires first what is due and ends the job for good."""
        body = await body_of(request, StopWithSavepointRequestBody)
        wanted = SavepointRequest(body.targetDirectory or "", True, body.drain, _trigger_id(body.triggerId))
        return await _trigger(jobs, job_id, wanted, body.formatType)

    @router.post("/jobs/{job_id}/savepoints")
    async def savepoint(job_id: str, request: Request) -> Response:
        """Take a savepoint; with `cancel-job` the job stops with it."""
        body = await body_of(request, SavepointTriggerRequestBody)
        wanted = SavepointRequest(body.target_directory or "", body.cancel_job, False, _trigger_id(body.triggerId))
        return await _trigger(jobs, job_id, wanted, body.formatType)

    @router.get("/jobs/{job_id}/savepoints/{trigger_id}")
    async def savepoint_status(job_id: str, trigger_id: str) -> Response:
        """What has come of a savepoint or a stop."""
        known = parse_job_id(job_id)
        try:
            status = await jobs.savepoint(known, _trigger_id(trigger_id, "triggerid"))
        except UnknownJobError:
            raise no_job(known) from None
        except UnknownSavepointError:
            raise NotFoundError(
                f"There is no savepoint operation with triggerId={trigger_id} for job {known}."
            ) from None
        return json_response(_status(status))


async def _trigger(jobs: JobClient, job_id: str, wanted: SavepointRequest, format_type: str | None) -> Response:
    if format_type is not None and format_type.upper() not in _FORMATS:
        cause = f"formatType '{format_type}' is none of {', '.join(_FORMATS)}"
        raise BadRequestError("Request did not match expected format.", cause)
    known = parse_job_id(job_id)
    try:
        trigger_id = await jobs.trigger_savepoint(known, wanted)
    except UnknownJobError:
        raise no_job(known) from None
    except SavepointRefusedError as error:
        text = f"{error}. {error.hint}" if error.hint else str(error)
        raise BadRequestError(text, text) from error
    return json_response({"request-id": trigger_id}, 202)


def _trigger_id(text: str | None, kind: str = "triggerId") -> str:
    if text is None:
        return uuid.uuid4().hex
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise bad_parameter("path" if kind == "triggerid" else "body", kind, text)
    return text.lower()


def _status(status: SavepointStatus) -> dict[str, Any]:
    match status.state:
        case SavepointState.IN_PROGRESS:
            return {"status": {"id": "IN_PROGRESS"}}
        case SavepointState.COMPLETED:
            return {"status": {"id": "COMPLETED"}, "operation": {"location": status.location}}
        case SavepointState.FAILED:
            failure = status.failure
            text = failure.message if failure is not None else "the savepoint failed"
            cause: dict[str, Any] = {"class": _EXCEPTION, "stack-trace": f"{_EXCEPTION}: {text}"}
            if failure is not None and failure.hint:
                cause["hint"] = failure.hint
            operation: dict[str, Any] = {"failure-cause": cause}
            if status.location:
                operation["location"] = status.location
            return {"status": {"id": "COMPLETED"}, "operation": operation}
