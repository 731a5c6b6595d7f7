"""From an ExecutionGraph whose tasks have slots to the descriptors that slots execute. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from planner.ir.job_graph import Edge, EdgeKind, Vertex
from planner.ir.operators import Sink
from runtime.checkpoint.recovery import RestorePlan
from runtime.ids import AttemptId, SlotId
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.protocol.descriptors import ChannelAddress, ChannelEnd, InputDescriptor, OutputDescriptor, TaskDescriptor
from runtime.protocol.messages import DeployTasks


class DeploymentPlan(msgspec.Struct, frozen=True):
    """What all tasks of a generation share. `namespaces`: sink uid → namespace."""

    checkpoint_directory: str
    incarnation: str
    namespaces: Mapping[str, str]
    settings: Mapping[str, str]
    restore: RestorePlan


def deployments(
    execution: ExecutionGraph, plan: DeploymentPlan, attempts: Sequence[AttemptId] | None = None
) -> list[DeployTasks]:
    """One message per slot, with the tasks of that slot: all, or those among `attempts` (of whole regions)."""
    by_slot: dict[SlotId, list[TaskDescriptor]] = {}
    for attempt in execution.attempts if attempts is None else attempts:
        by_slot.setdefault(execution.slot(attempt).slot_id, []).append(_descriptor(execution, plan, attempt))
    return [
        DeployTasks(slot_id, execution.job_id, execution.generation, tuple(tasks)) for slot_id, tasks in by_slot.items()
    ]


def _descriptor(execution: ExecutionGraph, plan: DeploymentPlan, attempt: AttemptId) -> TaskDescriptor:
    graph = execution.graph
    vertex = graph.vertex(attempt.vertex_id)
    key = (attempt.vertex_id, attempt.subtask_index)
    return TaskDescriptor(
        attempt=attempt,
        vertex=vertex,
        inputs=tuple(
            _input(execution, edge_id, edge, attempt)
            for edge_id, edge in enumerate(graph.edges)
            if edge.target == vertex.id
        ),
        outputs=tuple(
            _output(execution, edge_id, edge, attempt)
            for edge_id, edge in enumerate(graph.edges)
            if edge.source == vertex.id
        ),
        settings=dict(plan.settings),
        checkpoint_directory=plan.checkpoint_directory,
        incarnation=plan.incarnation,
        namespaces={o.uid: plan.namespaces[o.uid] for o in vertex.operators if isinstance(o, Sink)},
        restored_checkpoint_id=plan.restore.checkpoint_id,
        restore=plan.restore.operators[key],
        in_flight=plan.restore.in_flight.get(key, ()),
        finished=key in plan.restore.finished,
    )


def _input(execution: ExecutionGraph, edge_id: int, edge: Edge, attempt: AttemptId) -> InputDescriptor:
    source, target = execution.graph.vertex(edge.source), execution.graph.vertex(edge.target)
    producers = [
        index
        for index in range(source.parallelism)
        if attempt.subtask_index in consumer_indexes(edge.kind, index, source, target)
    ]
    return InputDescriptor(
        edge_id,
        edge.kind,
        edge.schema,
        edge.changelog,
        tuple(_end(execution, source, index) for index in producers),
        source.operators[-1].uid,
        edge.input_index,
    )


def _output(execution: ExecutionGraph, edge_id: int, edge: Edge, attempt: AttemptId) -> OutputDescriptor:
    source, target = execution.graph.vertex(edge.source), execution.graph.vertex(edge.target)
    consumers = consumer_indexes(edge.kind, attempt.subtask_index, source, target)
    return OutputDescriptor(
        edge_id,
        edge.kind,
        edge.schema,
        edge.changelog,
        edge.keys,
        target.parallelism,
        tuple(_end(execution, target, index) for index in consumers),
        target.operators[0].uid,
        edge.input_index,
    )


def consumer_indexes(kind: EdgeKind, producer_index: int, source: Vertex, target: Vertex) -> tuple[int, ...]:
    """Consumer subtasks that one producer subtask has a channel to. Raises ValueError for a forward edge between
    vertices of different parallelism."""
    match kind:
        case EdgeKind.FORWARD:
            if source.parallelism != target.parallelism:
                raise ValueError(f"forward edge from '{source.name}' to '{target.name}' changes parallelism")
            return (producer_index,)
        case EdgeKind.SINGLE:
            return (0,)
        case EdgeKind.HASH | EdgeKind.REBALANCE | EdgeKind.BROADCAST:
            return tuple(range(target.parallelism))
        case EdgeKind.RESCALE:
            return _rescaled(producer_index, source.parallelism, target.parallelism)


def _rescaled(producer_index: int, producers: int, consumers: int) -> tuple[int, ...]:
    """The side with more subtasks is cut into stretches, one for each of the other: consumer i reads the producers from
    i·producers/consumers on; if there are more consumers, producer i feeds those from ⌈i·consumers/producers⌉ on."""
    if producers > consumers:
        return tuple(
            index
            for index in range(consumers)
            if index * producers // consumers <= producer_index < (index + 1) * producers // consumers
        )
    first = -(-producer_index * consumers // producers)
    end = -(-(producer_index + 1) * consumers // producers)
    return tuple(range(first, end))


def _end(execution: ExecutionGraph, vertex: Vertex, index: int) -> ChannelEnd:
    attempt = execution.attempt(vertex.id, index)
    slot = execution.slot(attempt)
    return ChannelEnd(attempt, ChannelAddress(slot.slot_id, slot.host, slot.data_port))
