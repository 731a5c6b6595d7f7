"""CREATE [TEMPORARY] TABLE: bind the definition, ask the connector about its options, store it."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.sql.statements import CreateTable
from server.catalog.validate import check_options
from server.lazy_planner import planner_api
from server.statements.context import StatementContext, in_thread, kind_of
from server.statements.result import StatementResult, ok


async def create_table(statement: CreateTable, context: StatementContext) -> StatementResult:
    path = context.resolve(statement.name)
    catalog = context.catalog
    taken = catalog.temporary.get(path) if statement.is_temporary else catalog.permanent(path)
    if taken is not None and statement.if_not_exists:
        return ok()

    entry = await in_thread(planner_api.bind_table, statement, catalog, context.settings)
    await in_thread(check_options, path, entry, statement.options, statement.name.span)

    created = taken is None and await in_thread(catalog.create, path, entry, temporary=statement.is_temporary)
    if not created and not statement.if_not_exists:
        what = kind_of(taken) if taken is not None else "table"
        raise SqlError(
            SqlState.DUPLICATE_TABLE,
            f"{what} '{path}' already exists",
            span=statement.name.span,
            hint="DROP it first, or write CREATE TABLE IF NOT EXISTS.",
        )
    return ok()
