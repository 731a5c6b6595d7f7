"""DESCRIBE a table or view."""

from __future__ import annotations

from collections.abc import Callable

from planner.catalog import CatalogEntry
from planner.ir import types as t
from planner.sql.statements import Describe
from server.lazy_planner import planner_api
from server.statements.context import StatementContext
from server.statements.result import StatementResult, rows

_COLUMNS = (
    ("name", t.STRING),
    ("type", t.STRING),
    ("null", t.BOOLEAN),
    ("key", t.STRING),
    ("extras", t.STRING),
    ("watermark", t.STRING),
)


async def describe(statement: Describe, context: StatementContext) -> StatementResult:
    _, entry = context.existing(statement.name)
    return described(entry)


def described(entry: CatalogEntry, keep: Callable[[str], bool] = lambda name: True) -> StatementResult:
    """The columns whose name `keep` wants."""
    return rows(_COLUMNS, [row for row in planner_api.describe(entry) if keep(row[0])])
