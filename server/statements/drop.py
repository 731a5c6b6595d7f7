"""DROP [TEMPORARY] TABLE and VIEW. Running jobs keep their own copy of every definition and are not touched."""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.sql.statements import DropTable, DropView
from server.statements.context import StatementContext, in_thread, kind_of, unknown
from server.statements.result import StatementResult, ok


async def drop(statement: DropTable | DropView, context: StatementContext) -> StatementResult:
    wanted = "view" if isinstance(statement, DropView) else "table"
    path = context.resolve(statement.name)
    catalog = context.catalog
    temporary, permanent = catalog.temporary.get(path), catalog.permanent(path)

    if not statement.is_temporary and temporary is not None and permanent is not None:
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            f"a temporary {kind_of(temporary)} '{path}' hides the permanent one",
            span=statement.name.span,
            hint=f"DROP TEMPORARY {kind_of(temporary).upper()} it first.",
        )
    entry = temporary if statement.is_temporary else permanent
    if entry is None:
        if statement.if_exists:
            return ok()
        if temporary is not None:
            raise SqlError(
                SqlState.WRONG_OBJECT_TYPE,
                f"'{path}' is temporary",
                span=statement.name.span,
                hint=f"Write DROP TEMPORARY {kind_of(temporary).upper()}.",
            )
        raise unknown(wanted, str(path), catalog.names(path.catalog, path.database), statement.name)
    if kind_of(entry) != wanted:
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            f"'{path}' is a {kind_of(entry)}, not a {wanted}",
            span=statement.name.span,
            hint=f"Write DROP {kind_of(entry).upper()}.",
        )

    await in_thread(catalog.drop, path, temporary=statement.is_temporary)
    return ok()
