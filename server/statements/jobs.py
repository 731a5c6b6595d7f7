"""DESCRIBE JOB and STOP JOB."""

from __future__ import annotations

from planner.errors import SqlError, SqlState, not_supported
from planner.sql.statements import DescribeJob, StopJob
from runtime.api import JobId, UnknownJobError
from server.statements.context import StatementContext
from server.statements.result import StatementResult, ok
from server.statements.show import jobs_table


async def describe_job(statement: DescribeJob, context: StatementContext) -> StatementResult:
    try:
        return jobs_table([await context.jobs.status(JobId(statement.job_id))])
    except UnknownJobError as error:
        raise _unknown_job(statement) from error


async def stop_job(statement: StopJob, context: StatementContext) -> StatementResult:
    if statement.with_savepoint or statement.with_drain:
        how = "WITH SAVEPOINT" if statement.with_savepoint else "WITH DRAIN"
        raise not_supported(f"STOP JOB {how}", statement.source.span, hint="STOP JOB '<id>' cancels the job.")
    try:
        await context.jobs.cancel(JobId(statement.job_id))
    except UnknownJobError as error:
        raise _unknown_job(statement) from error
    return ok()


def _unknown_job(statement: DescribeJob | StopJob) -> SqlError:
    return SqlError(
        SqlState.UNDEFINED_OBJECT,
        f"job '{statement.job_id}' does not exist",
        span=statement.source.span,
        hint="SHOW JOBS lists all jobs.",
    )
