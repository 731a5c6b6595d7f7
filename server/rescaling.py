"""The job at another parallelism: what its statement becomes then, and the wish to go on with it."""

from __future__ import annotations

from planner.errors import SqlError
from planner.ir.job_graph import JobGraph
from planner.origin import OriginFormatError
from runtime.api import JobClient, JobId, RescaleRefusedError
from server.lazy_planner import planner_api
from server.statements.context import in_thread

PARALLELISM = "parallelism.default"


async def rescaled_graph(jobs: JobClient, job_id: JobId, parallelism: int) -> JobGraph:
    """Compiled from what the job was compiled from. Raises UnknownJobError, RescaleRefusedError."""
    graph = await jobs.graph(job_id)
    if graph.is_query:
        raise RescaleRefusedError("a SELECT cannot be rescaled: it has one result", "Run it again.")
    try:
        return await in_thread(planner_api.recompile, graph, {PARALLELISM: str(parallelism)})
    except SqlError as error:
        raise RescaleRefusedError(error.message, error.hint or "") from error
    except OriginFormatError as error:
        raise RescaleRefusedError(
            "the job was submitted by another version, which kept no statement to compile again",
            "Stop it WITH SAVEPOINT and start its statement from the savepoint.",
        ) from error
