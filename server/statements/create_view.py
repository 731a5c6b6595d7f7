"""CREATE [TEMPORARY] VIEW: bind the query now, so that a wrong one is refused now, and keep its text."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.sql.statements import CreateView
from server.lazy_planner import planner_api
from server.statements.context import StatementContext, in_thread, kind_of
from server.statements.result import StatementResult, ok


async def create_view(statement: CreateView, context: StatementContext) -> StatementResult:
    path = context.resolve(statement.name)
    catalog = context.catalog
    taken = catalog.temporary.get(path) if statement.is_temporary else catalog.permanent(path)
    if taken is not None and statement.if_not_exists:
        return ok()

    entry = await in_thread(planner_api.bind_view, statement, catalog, context.settings)

    created = taken is None and await in_thread(catalog.create, path, entry, temporary=statement.is_temporary)
    if not created and not statement.if_not_exists:
        what = kind_of(taken) if taken is not None else "view"
        raise SqlError(
            SqlState.DUPLICATE_TABLE,
            f"{what} '{path}' already exists",
            span=statement.name.span,
            hint="DROP it first, or write CREATE VIEW IF NOT EXISTS.",
        )
    return ok()
