"""DESCRIBE JOB, STOP JOB, ALTER JOB, and the savepoints of a job."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.ir import types as t
from planner.sql.statements import AlterJob, DescribeJob, DropSavepoint, OptionItem, ShowSavepoints, StopJob
from runtime.api import (
    JobId,
    RescaleRefusedError,
    SavepointRefusedError,
    SavepointRequest,
    SavepointState,
    UnknownJobError,
)
from server.rescaling import PARALLELISM, rescaled_graph
from server.statements.context import StatementContext
from server.statements.result import StatementResult, ok, rows, texts
from server.statements.show import jobs_table

SAVEPOINT_DIRECTORY = "execution.checkpointing.savepoint-dir"
_POLL_MS = 10_000
_CHANGEABLE = ("parallelism", PARALLELISM)
"""What ALTER JOB can change in a running job: one thing, under both of its names."""
_SAVEPOINT_COLUMNS = (
    ("savepoint path", t.STRING),
    ("checkpoint id", t.BIGINT),
    ("taken at", t.timestamp_ltz(3)),
    ("bytes", t.BIGINT),
    ("kind", t.STRING),
)


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


async def alter_job(statement: AlterJob, context: StatementContext) -> StatementResult:
    """Answers when the new parallelism is durable and the tasks are being replaced."""
    parallelism = _wanted_parallelism(statement, context)
    job_id = JobId(statement.job_id)
    try:
        status = await context.jobs.status(job_id)
        if status.state.terminal:
            raise RescaleRefusedError(f"it has ended ({status.state})")
        await context.jobs.rescale(job_id, await rescaled_graph(context.jobs, job_id, parallelism))
    except UnknownJobError as error:
        raise _unknown_job(statement) from error
    except RescaleRefusedError as error:
        raise SqlError(
            SqlState.OBJECT_NOT_IN_STATE,
            f"job '{statement.job_id}' keeps its parallelism: {error}",
            span=statement.options[0].span,
            hint=error.hint,
        ) from error
    return ok()


async def show_savepoints(statement: ShowSavepoints, context: StatementContext) -> StatementResult:
    try:
        found = await context.jobs.savepoints(JobId(statement.job_id))
    except UnknownJobError as error:
        raise _unknown_job(statement) from error
    kinds = ["drain" if entry.drained else "stop" if entry.stopped else "savepoint" for entry in found]
    return rows(
        _SAVEPOINT_COLUMNS,
        [
            [entry.location, entry.checkpoint_id, entry.taken_at_ms, entry.byte_size, kind]
            for entry, kind in zip(found, kinds, strict=True)
        ],
    )


async def drop_savepoint(statement: DropSavepoint, context: StatementContext) -> StatementResult:
    try:
        await context.jobs.dispose_savepoint(statement.path)
    except SavepointRefusedError as error:
        raise SqlError(
            SqlState.OBJECT_NOT_IN_STATE,
            f"the savepoint is not dropped: {error}",
            span=statement.source.span,
            hint=error.hint,
        ) from error
    return ok()


def _wanted_parallelism(statement: AlterJob, context: StatementContext) -> int:
    options = statement.options
    if len(options) != 1:
        raise _wrong(options[0] if options else None, "ALTER JOB changes one setting, 'parallelism'", statement)
    (option,) = options
    if option.key not in _CHANGEABLE:
        message = f"'{option.key}' cannot be changed while a job runs; 'parallelism' can"
        raise _wrong(option, message, statement, "Stop the job WITH SAVEPOINT and start its statement from there.")
    # A session that sets nothing would start the job with the server's own default.
    text = context.server_defaults.get(PARALLELISM, "1") if statement.is_reset else option.value
    if not text.isdecimal() or int(text) < 1:
        raise _wrong(option, f"'{text}' is no parallelism: it is a number from 1 on", statement)
    return int(text)


def _wrong(option: OptionItem | None, message: str, statement: AlterJob, hint: str = "") -> SqlError:
    span = option.span if option is not None else statement.source.span
    return SqlError(SqlState.INVALID_PARAMETER, message, span=span, hint=hint)


def _not_now(statement: StopJob, message: str, hint: str) -> SqlError:
    return SqlError(
        SqlState.OBJECT_NOT_IN_STATE,
        f"job '{statement.job_id}' is not stopped: {message}",
        span=statement.source.span,
        hint=hint,
    )


def _unknown_job(statement: DescribeJob | StopJob | AlterJob | ShowSavepoints) -> SqlError:
    return SqlError(
        SqlState.UNDEFINED_OBJECT,
        f"job '{statement.job_id}' does not exist",
        span=statement.source.span,
        hint="SHOW JOBS lists all jobs.",
    )
