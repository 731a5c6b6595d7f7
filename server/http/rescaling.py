"""Flink's `resource-requirements` of a job: read its parallelism, and rescale it while it runs."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from planner.ir.job_graph import JobGraph, Vertex
from runtime.api import JobClient, JobId, RescaleRefusedError, UnknownJobError
from server.http.errors import BadRequestError
from server.http.job_ids import no_job, parse_job_id
from server.http.requests import body_of, json_response
from server.rescaling import rescaled_graph


class ParallelismBounds(msgspec.Struct, frozen=True):
    lowerBound: int = 1
    upperBound: int = 0


class VertexRequirements(msgspec.Struct, frozen=True):
    parallelism: ParallelismBounds


def add_rescaling(router: APIRouter, jobs: JobClient) -> None:
    """The routes below `/jobs/{job_id}`."""

    @router.get("/jobs/{job_id}/resource-requirements")
    async def requirements(job_id: str) -> Response:
        """The parallelism of each vertex, as bounds; it is never lowered by itself."""
        known = parse_job_id(job_id)
        try:
            graph = await jobs.graph(known)
        except UnknownJobError:
            raise no_job(known) from None
        return json_response({_vertex_id(v): _bounds(v.parallelism) for v in graph.vertices})

    @router.put("/jobs/{job_id}/resource-requirements")
    async def rescale(job_id: str, request: Request) -> Response:
        """Go on at the largest upper bound given: checkpoint, then the tasks are replaced. Vertices that have a
        parallelism of their own keep it. Answered once the new parallelism is durable."""
        known = parse_job_id(job_id)
        wanted = await body_of(request, dict[str, VertexRequirements])
        try:
            await _rescale(jobs, known, wanted)
        except UnknownJobError:
            raise no_job(known) from None
        except RescaleRefusedError as error:
            text = f"{error}. {error.hint}" if error.hint else str(error)
            raise BadRequestError(text, text) from error
        return json_response({})


async def _rescale(jobs: JobClient, job_id: JobId, wanted: dict[str, VertexRequirements]) -> None:
    graph = await jobs.graph(job_id)
    known = {_vertex_id(vertex): vertex for vertex in graph.vertices}
    if wanted.keys() != known.keys():
        ids = ", ".join(sorted(known))
        raise RescaleRefusedError(f"the requirements must name the job's vertices, each of them: {ids}")
    for vertex_id, requirements in wanted.items():
        bounds = requirements.parallelism
        if not 1 <= bounds.lowerBound <= bounds.upperBound:
            raise RescaleRefusedError(f"vertex {vertex_id}: 1 ≤ lowerBound ≤ upperBound does not hold")
    parallelism = max(requirements.parallelism.upperBound for requirements in wanted.values())
    rescaled = await rescaled_graph(jobs, job_id, parallelism)
    for vertex_id, requirements in wanted.items():
        bounds, becomes = requirements.parallelism, _becomes(known[vertex_id], rescaled)
        if not bounds.lowerBound <= becomes <= bounds.upperBound:
            raise RescaleRefusedError(
                f"vertex {vertex_id} ('{known[vertex_id].name}') would run at parallelism {becomes}, outside of "
                f"{bounds.lowerBound} to {bounds.upperBound}: all vertices run at the job's parallelism, here "
                f"{parallelism}, but for those that have one of their own"
            )
    await jobs.rescale(job_id, rescaled)


def _becomes(vertex: Vertex, rescaled: JobGraph) -> int:
    """The parallelism of its first operator in the other graph, which may chain operators in another way."""
    uid = vertex.operators[0].uid
    return next(v.parallelism for v in rescaled.vertices if any(operator.uid == uid for operator in v.operators))


def _vertex_id(vertex: Vertex) -> str:
    return f"{vertex.id:032x}"


def _bounds(parallelism: int) -> dict[str, Any]:
    return {"parallelism": {"lowerBound": 1, "upperBound": parallelism}}
