"""DESCRIBE JOB and STOP JOB."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.sql.statements import DescribeJob, StopJob
from runtime.api import JobId, SavepointRefusedError, SavepointRequest, SavepointState, UnknownJobError
from server.statements.context import StatementContext
from server.statements.result import StatementResult, ok, texts
from server.statements.show import jobs_table

SAVEPOINT_DIRECTORY = "execution.checkpointing.savepoint-dir"
_POLL_MS = 10_000


async def describe_job(statement: DescribeJob, context: StatementContext) -> StatementResult:
    try:
        return jobs_table([await context.jobs.status(JobId(statement.job_id))], context.notices)
    except UnknownJobError as error:
        raise _unknown_job(statement) from error


async def stop_job(statement: StopJob, context: StatementContext) -> StatementResult:
    """WITH SAVEPOINT answers with the savepoint's path when the job is FINISHED; without it the job is cancelled."""
    if statement.with_drain and not statement.with_savepoint:
        raise SqlError(
            SqlState.SYNTAX_ERROR,
            "WITH DRAIN needs WITH SAVEPOINT",
            span=statement.source.span,
            hint="Write STOP JOB '<id>' WITH SAVEPOINT WITH DRAIN.",
        )
    try:
        if statement.with_savepoint:
            return texts("savepoint path", [await _stop_with_savepoint(statement, context)])
        await context.jobs.cancel(JobId(statement.job_id))
    except UnknownJobError as error:
        raise _unknown_job(statement) from error
    return ok()


async def _stop_with_savepoint(statement: StopJob, context: StatementContext) -> str:
    job_id = JobId(statement.job_id)
    directory = context.settings.get(SAVEPOINT_DIRECTORY, "")
    request = SavepointRequest(directory, stop=True, drain=statement.with_drain)
    try:
        trigger_id = await context.jobs.trigger_savepoint(job_id, request)
    except SavepointRefusedError as error:
        raise _not_now(statement, str(error), error.hint) from error
    while True:
        status = await context.jobs.savepoint(job_id, trigger_id, _POLL_MS)
        match status.state:
            case SavepointState.COMPLETED:
                return status.location
            case SavepointState.FAILED:
                failure = status.failure
                message = failure.message if failure is not None else "the savepoint failed"
                complete = f"The savepoint at {status.location} is complete." if status.location else ""
                hints = [failure.hint if failure is not None else "", complete]
                raise _not_now(statement, message, " ".join(hint for hint in hints if hint))
            case SavepointState.IN_PROGRESS:
                continue


def _not_now(statement: StopJob, message: str, hint: str) -> SqlError:
    return SqlError(
        SqlState.OBJECT_NOT_IN_STATE,
        f"job '{statement.job_id}' is not stopped: {message}",
        span=statement.source.span,
        hint=hint,
    )


def _unknown_job(statement: DescribeJob | StopJob) -> SqlError:
    return SqlError(
        SqlState.UNDEFINED_OBJECT,
        f"job '{statement.job_id}' does not exist",
        span=statement.source.span,
        hint="SHOW JOBS lists all jobs.",
    )
