"""BEGIN STATEMENT SET; INSERT …; INSERT …; END sent one by one: the session collects, END submits one job."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.sql.statements import BeginStatementSet, EndStatementSet, Insert, Statement
from server.lazy_planner import planner_api
from server.settings import for_job
from server.statements.context import StatementContext, in_thread
from server.statements.insert_into import insert_into
from server.statements.result import StatementResult, ok


async def begin_statement_set(statement: BeginStatementSet, context: StatementContext) -> StatementResult:
    context.session.pending_inserts = []
    return ok()


async def within_statement_set(statement: Statement, context: StatementContext) -> StatementResult:
    """Any statement between BEGIN STATEMENT SET and END; a refused one leaves what was collected."""
    pending = context.session.pending_inserts
    assert pending is not None
    match statement:
        case Insert():
            # Compiled now only to refuse a wrong INSERT where it stands, not at END.
            await in_thread(planner_api.compile_job, statement, context.catalog, for_job(context.settings))
            pending.append(statement)
            return ok()
        case EndStatementSet():
            return await _end(statement, context, pending)
        case _:
            raise SqlError(
                SqlState.SYNTAX_ERROR,
                "only INSERT is allowed in a statement set",
                span=statement.source.span,
                hint="Send END to submit the set, then this statement.",
            )


async def _end(statement: EndStatementSet, context: StatementContext, pending: list[Insert]) -> StatementResult:
    if not pending:
        context.session.pending_inserts = None
        raise SqlError(SqlState.SYNTAX_ERROR, "no INSERT in the statement set", span=statement.source.span)
    result = await insert_into(planner_api.combine_inserts(pending), context)
    context.session.pending_inserts = None
    return result


async def end_outside(statement: EndStatementSet, context: StatementContext) -> StatementResult:
    raise SqlError(
        SqlState.SYNTAX_ERROR,
        "END without BEGIN STATEMENT SET",
        span=statement.source.span,
        hint="Send BEGIN STATEMENT SET.",
    )
