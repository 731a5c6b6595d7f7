"""A submitted text to its statement, and the statement to its handler."""

from __future__ import annotations

from typing import assert_never

from planner.errors import SqlError, SqlState
from planner.sql import statements as s
from server.lazy_planner import planner_api
from server.statements.context import StatementContext, in_thread
from server.statements.create_table import create_table
from server.statements.create_view import create_view
from server.statements.describe import describe
from server.statements.drop import drop
from server.statements.explain import explain
from server.statements.insert_into import insert_into
from server.statements.jobs import alter_job, describe_job, drop_savepoint, show_savepoints, stop_job
from server.statements.result import StatementResult
from server.statements.select import select
from server.statements.settings import reset_setting, set_setting
from server.statements.show import (
    show_catalogs,
    show_columns,
    show_create,
    show_current_catalog,
    show_current_database,
    show_databases,
    show_functions,
    show_jobs,
    show_tables,
    show_views,
)
from server.statements.statement_set import begin_statement_set, end_outside, within_statement_set
from server.statements.use import use_catalog, use_database

CONFIGURING = s.CreateTable | s.DropTable | s.CreateView | s.DropView | s.UseCatalog | s.UseDatabase | s.Set | s.Reset
"""What configure-session accepts: statements that change the session or the catalog and start nothing."""


async def parse_one(text: str) -> s.Statement:
    """The single statement of a submitted text; a trailing semicolon is allowed. Raises SqlError."""
    statements = await in_thread(planner_api.parse, text)
    if not statements:
        raise SqlError(SqlState.SYNTAX_ERROR, "the statement is empty").located(text)
    if len(statements) > 1:
        raise SqlError(
            SqlState.SYNTAX_ERROR,
            "only single statement supported",
            span=statements[1].source.span,
            hint="Send one statement at a time, or EXECUTE STATEMENT SET for several INSERTs.",
        ).located(text)
    return statements[0]


async def run(statement: s.Statement, context: StatementContext) -> StatementResult:
    """Does what the statement says. Raises SqlError, located in the submitted text."""
    try:
        if context.session.pending_inserts is not None:
            return await within_statement_set(statement, context)
        return await _run(statement, context)
    except SqlError as error:
        raise error.located(statement.source.script) from error.__cause__


async def _run(statement: s.Statement, context: StatementContext) -> StatementResult:
    match statement:
        case s.Select():
            return await select(statement, context)
        case s.Insert() | s.StatementSet():
            return await insert_into(statement, context)
        case s.BeginStatementSet():
            return await begin_statement_set(statement, context)
        case s.EndStatementSet():
            return await end_outside(statement, context)
        case s.Explain():
            return await explain(statement, context)
        case s.StopJob():
            return await stop_job(statement, context)
        case s.DescribeJob():
            return await describe_job(statement, context)
        case s.AlterJob():
            return await alter_job(statement, context)
        case s.ShowSavepoints():
            return await show_savepoints(statement, context)
        case s.DropSavepoint():
            return await drop_savepoint(statement, context)
        case s.Describe():
            return await describe(statement, context)
        case s.CreateTable() | s.DropTable() | s.CreateView() | s.DropView():
            return await _define(statement, context)
        case s.UseCatalog():
            return await use_catalog(statement, context)
        case s.UseDatabase():
            return await use_database(statement, context)
        case s.Set():
            return await set_setting(statement, context)
        case s.Reset():
            return await reset_setting(statement, context)
        case _:
            return await _show(statement, context)


async def _define(
    statement: s.CreateTable | s.DropTable | s.CreateView | s.DropView, context: StatementContext
) -> StatementResult:
    match statement:
        case s.CreateTable():
            return await create_table(statement, context)
        case s.CreateView():
            return await create_view(statement, context)
        case s.DropTable() | s.DropView():
            return await drop(statement, context)
        case _:
            assert_never(statement)


async def _show(
    statement: s.ShowTables
    | s.ShowViews
    | s.ShowCatalogs
    | s.ShowDatabases
    | s.ShowCurrentCatalog
    | s.ShowCurrentDatabase
    | s.ShowFunctions
    | s.ShowJobs
    | s.ShowCreateTable
    | s.ShowColumns,
    context: StatementContext,
) -> StatementResult:
    match statement:
        case s.ShowTables():
            return await show_tables(statement, context)
        case s.ShowViews():
            return await show_views(statement, context)
        case s.ShowCatalogs():
            return await show_catalogs(statement, context)
        case s.ShowDatabases():
            return await show_databases(statement, context)
        case s.ShowCurrentCatalog():
            return await show_current_catalog(context)
        case s.ShowCurrentDatabase():
            return await show_current_database(context)
        case s.ShowFunctions():
            return await show_functions(statement, context)
        case s.ShowJobs():
            return await show_jobs(statement, context)
        case s.ShowCreateTable():
            return await show_create(statement, context)
        case s.ShowColumns():
            return await show_columns(statement, context)
        case _:
            assert_never(statement)
