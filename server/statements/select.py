"""A streaming SELECT: a job that ends in a collect sink, whose rows the gateway pulls page by page."""

from __future__ import annotations

import msgspec

from planner.sql.statements import Select
from server.lazy_planner import planner_api
from server.secrets import masked_sql
from server.settings import for_job
from server.statements.context import StatementContext, in_thread
from server.statements.result import StatementResult, query_started


async def select(statement: Select, context: StatementContext) -> StatementResult:
    compiled = await in_thread(planner_api.compile_job, statement, context.catalog, for_job(context.settings))
    assert compiled.result is not None
    context.notices.extend(compiled.warnings)

    name = context.settings.get("pipeline.name") or masked_sql(statement.text)
    graph = msgspec.structs.replace(compiled.job_graph, name=name)

    job_id = await context.submit(graph, statement.source)
    return query_started(job_id, compiled.result, compiled.changelog)
