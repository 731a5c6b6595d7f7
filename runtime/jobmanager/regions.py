"""Pipelined regions: the tasks that records can pass between. What fails in one concerns no other. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from planner.ir.job_graph import JobGraph
from planner.ir.operators import Limit
from runtime.checkpoint.in_flight_plan import TaskKey
from runtime.jobmanager.deployment import consumer_indexes


def regions_of(graph: JobGraph) -> dict[TaskKey, frozenset[TaskKey]]:
    """Each task's region, itself included: the connected component of channels. A job of forward edges only has as
    many regions as its parallelism."""
    neighbours: dict[TaskKey, set[TaskKey]] = {
        (vertex.id, index): set() for vertex in graph.vertices for index in range(vertex.parallelism)
    }
    for edge in graph.edges:
        source, target = graph.vertex(edge.source), graph.vertex(edge.target)
        for producer in range(source.parallelism):
            for consumer in consumer_indexes(edge.kind, producer, source, target):
                neighbours[source.id, producer].add((target.id, consumer))
                neighbours[target.id, consumer].add((source.id, producer))
    found: dict[TaskKey, frozenset[TaskKey]] = {}
    for key in neighbours:
        if key not in found:
            region = _connected(key, neighbours)
            found.update(dict.fromkeys(region, region))
    return found


def _connected(start: TaskKey, neighbours: dict[TaskKey, set[TaskKey]]) -> frozenset[TaskKey]:
    seen = {start}
    waiting = [start]
    while waiting:
        fresh = neighbours[waiting.pop()] - seen
        seen |= fresh
        waiting.extend(fresh)
    return frozenset(seen)


def sources_done(graph: JobGraph, satisfied: Iterable[int]) -> frozenset[int]:
    """Source vertices whose rows nobody needs any more: everything they feed lies behind a LIMIT that is satisfied
    (its vertex is among those given)."""
    passed = frozenset(satisfied)
    return frozenset(
        vertex.id
        for vertex in graph.vertices
        if not graph.inputs(vertex.id) and not _is_needed(graph, vertex.id, passed)
    )


def _is_needed(graph: JobGraph, vertex_id: int, satisfied: frozenset[int]) -> bool:
    if vertex_id in satisfied and any(isinstance(operator, Limit) for operator in graph.vertex(vertex_id).operators):
        return False
    consumers = [edge.target for edge in graph.edges if edge.source == vertex_id]
    return not consumers or any(_is_needed(graph, consumer, satisfied) for consumer in consumers)
