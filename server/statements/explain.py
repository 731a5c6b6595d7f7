"""EXPLAIN: the plan as text, without starting anything."""

from __future__ import annotations

from planner.sql.statements import Explain
from server.lazy_planner import planner_api
from server.secrets import masked_sql
from server.settings import for_job
from server.statements.context import StatementContext, in_thread
from server.statements.result import StatementResult, texts


async def explain(statement: Explain, context: StatementContext) -> StatementResult:
    plan = await in_thread(planner_api.explain, statement, context.catalog, for_job(context.settings))
    return texts("result", [masked_sql(plan)])
