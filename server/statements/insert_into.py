"""INSERT INTO and EXECUTE STATEMENT SET: compile to one JobGraph and submit it; the answer is the job's id."""

from __future__ import annotations

import msgspec

from planner.sql.statements import Insert, StatementSet
from server.lazy_planner import planner_api
from server.settings import for_job
from server.statements.context import StatementContext, in_thread
from server.statements.result import StatementResult, job_started


async def insert_into(statement: Insert | StatementSet, context: StatementContext) -> StatementResult:
    compiled = await in_thread(planner_api.compile_job, statement, context.catalog, for_job(context.settings))
    context.notices.extend(compiled.warnings)

    targets = ",".join(str(path) for path in compiled.sinks)
    name = context.settings.get("pipeline.name") or f"insert-into_{targets}"
    graph = msgspec.structs.replace(compiled.job_graph, name=name)

    return job_started(await context.submit(graph, statement.source))
