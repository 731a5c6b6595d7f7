"""SET and RESET: a session's settings."""

from __future__ import annotations

from planner.errors import SqlError
from planner.ir import types as t
from planner.sql.statements import Reset, Set
from server.secrets import masked
from server.settings import canonical, check_value, remark
from server.statements.context import StatementContext
from server.statements.result import StatementResult, ok, rows


async def set_setting(statement: Set, context: StatementContext) -> StatementResult:
    session = context.session
    if statement.key is None or statement.value is None:
        shown = context.server_defaults | session.properties
        return rows([("key", t.STRING), ("value", t.STRING)], sorted(masked(shown).items()))

    try:
        check_value(statement.key, statement.value)
    except SqlError as error:
        error.span = error.span or statement.source.span
        raise
    session.properties[canonical(statement.key)] = statement.value

    notice = remark(statement.key)
    if notice and statement.key not in session.remarked:
        session.remarked.add(statement.key)
        context.notices.append(notice)
    return ok()


async def reset_setting(statement: Reset, context: StatementContext) -> StatementResult:
    session = context.session
    if statement.key is None:
        session.properties.clear()
    else:
        session.properties.pop(canonical(statement.key), None)
    return ok()
