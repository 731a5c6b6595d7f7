"""Operators → vertices: what is joined by forward edges at equal parallelism runs as one task."""

from __future__ import annotations

from collections import Counter

from planner.ir import operators as ir
from planner.ir.job_graph import Edge, EdgeKind, Vertex
from planner.physical.operator_graph import OperatorGraph, PhysicalOperator

_STATEFUL = (
    ir.Source,
    ir.ChangelogNormalize,
    ir.GlobalWindowAggregate,
    ir.GroupAggregate,
    ir.SinkMaterializer,
    ir.Limit,
    ir.Join,
    ir.IntervalJoin,
    ir.TemporalJoin,
    ir.WindowJoin,
    ir.SetOperation,
    ir.Rank,
    ir.Deduplicate,
    ir.WindowRank,
    ir.Sort,
    ir.Sink,
)
"""Operators whose state gives their vertex its name."""


def chain(
    graph: OperatorGraph, is_chaining_enabled: bool, max_parallelism: int
) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """Vertices in topological order, numbered from 0, and the edges between them."""
    consumers = Counter(link.source for node in graph.operators for link in node.inputs)
    head_of: dict[int, int] = {}
    chains: dict[int, list[PhysicalOperator]] = {}
    for node in graph.operators:
        head = _chained_to(node, graph, consumers) if is_chaining_enabled else None
        head_of[node.id] = node.id if head is None else head_of[head]
        chains.setdefault(head_of[node.id], []).append(node)
    numbers = {head: number for number, head in enumerate(chains)}
    vertices = tuple(_vertex(numbers[head], operators, max_parallelism) for head, operators in chains.items())
    edges: list[Edge] = []
    for head, operators in chains.items():
        for link in operators[0].inputs:
            source = numbers[head_of[link.source]]
            producer = graph[link.source]
            output, changelog = producer.output, producer.changelog
            edge = Edge(source, numbers[head], link.kind, output, link.keys, changelog, link.input_index)
            edges.append(edge)
    return vertices, tuple(edges)


def _chained_to(node: PhysicalOperator, graph: OperatorGraph, consumers: Counter[int]) -> int | None:
    """The operator whose chain `node` continues, if any."""
    if len(node.inputs) != 1:
        return None
    link = node.inputs[0]
    producer = graph[link.source]
    is_forward = link.kind is EdgeKind.FORWARD and producer.parallelism == node.parallelism
    is_together = producer.slot_sharing_group == node.slot_sharing_group
    return link.source if is_forward and is_together and consumers[link.source] == 1 else None


def _vertex(number: int, operators: list[PhysicalOperator], max_parallelism: int) -> Vertex:
    return Vertex(
        id=number,
        uid=next((o.operator.uid for o in operators if isinstance(o.operator, _STATEFUL)), operators[0].operator.uid),
        name=" -> ".join(o.operator.name for o in operators),
        operators=tuple(o.operator for o in operators),
        parallelism=operators[0].parallelism,
        max_parallelism=max_parallelism,
        slot_sharing_group=operators[0].slot_sharing_group,
    )
