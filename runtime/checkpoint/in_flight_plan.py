"""Which new subtask gets which elements in flight, in which order. Pure.

Rules. Elements go to the operator that was to take them. Of one channel, what the consumer had in its queue comes
before what its producer had not sent yet; an operator further down its chain takes its own first. At unchanged
parallelism every element goes where it was going, with the watermarks between the rows. At another parallelism of the
consumer a hash edge's rows are dealt out by key group, a rebalanced edge's files are spread, and where a job of
parallelism 1 chains what was an edge before, the one task takes all. A forward, rescale or broadcast edge then has no
right place for them: refused. Watermarks are dropped when a side has another parallelism: the channels are others, and
every source says its own again; a row is never judged by a later watermark than the one it has followed, because
event-time clocks are state by key group and what is in flight is processed before any new watermark. A changed query
is refused: the rows in flight are neither old nor new.
"""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import Edge, EdgeKind, JobGraph, Vertex
from runtime.checkpoint.in_flight import layout
from runtime.checkpoint.manifest import CheckpointManifest, VertexRecord
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import InFlightHandle, InFlightRestore
from runtime.exchange.frames import channel_schema
from runtime.key_groups import key_group_range

TaskKey = tuple[int, int]
"""Vertex id and subtask index."""

_REMEDY = (
    "Stop the job with a savepoint (its barriers wait for all rows in flight) and start the changed one from there; or "
    "let one checkpoint complete with 'execution.checkpointing.unaligned.enabled' = 'false' first."
)


class _Target(msgspec.Struct, frozen=True):
    """Where the elements of an edge go in the new job. `edge` None: inside a chain."""

    vertex: Vertex
    position: int
    edge_id: int
    edge: Edge | None


def plan_in_flight(graph: JobGraph, manifest: CheckpointManifest) -> dict[TaskKey, tuple[InFlightRestore, ...]]:
    """Raises RestoreRefusedError."""
    handles = _in_order(manifest)
    if not handles:
        return {}
    check_unchanged(graph, manifest)
    records = {uid: record for record in manifest.vertices for uid in record.operator_uids}
    targets = {handle: _target(graph, manifest, handle) for handle in handles}
    # Further down a chain is older.
    handles.sort(key=lambda handle: -targets[handle].position)
    planned: dict[TaskKey, list[InFlightRestore]] = {}
    for number, handle in enumerate(handles):
        target = targets[handle]
        restore = _restore(graph, records, handle, target)
        for index in _consumers(manifest, records, handle, target, number):
            planned.setdefault((target.vertex.id, index), []).append(restore)
    return {key: tuple(restores) for key, restores in planned.items()}


def _in_order(manifest: CheckpointManifest) -> list[InFlightHandle]:
    """What consumers had in their queues, then what producers had not sent."""
    received: list[InFlightHandle] = []
    unsent: list[InFlightHandle] = []
    operators = {record.vertex_id: record.operator_uids for record in manifest.vertices}
    for snapshot in manifest.snapshots:
        for handle in snapshot.in_flight:
            (received if handle.target_uid in operators[snapshot.vertex_id] else unsent).append(handle)
    return received + unsent


def check_unchanged(graph: JobGraph, manifest: CheckpointManifest) -> None:
    """Every operator is there, over the same input, if anything is in flight. Raises RestoreRefusedError."""
    if not any(snapshot.in_flight for snapshot in manifest.snapshots):
        return
    old = {fingerprint.uid: fingerprint for fingerprint in manifest.fingerprints}
    for new in graph.fingerprints:
        before = old.get(new.uid)
        if before is None or before.input != new.input:
            raise _changed(manifest, f"operator '{new.uid}' is new or has another input")
    for uid in sorted(old.keys() - {new.uid for new in graph.fingerprints}):
        raise _changed(manifest, f"operator '{uid}' is gone")


def _changed(manifest: CheckpointManifest, what: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"checkpoint {manifest.checkpoint_id} holds rows in flight between operators, and the query has changed: "
        f"{what}",
        hint=_REMEDY,
    )


def _target(graph: JobGraph, manifest: CheckpointManifest, handle: InFlightHandle) -> _Target:
    for vertex in graph.vertices:
        uids = [operator.uid for operator in vertex.operators]
        if handle.target_uid not in uids:
            continue
        position = uids.index(handle.target_uid)
        if position:
            if uids[position - 1] != handle.source_uid:
                break
            return _Target(vertex, position, -1, None)
        for edge_id, edge in enumerate(graph.edges):
            source = graph.vertex(edge.source).operators[-1].uid
            # A table joined with itself: two edges between the same operators.
            same_input = edge.target == vertex.id and edge.input_index == handle.input_index
            if same_input and source == handle.source_uid:
                if layout(channel_schema(edge.schema, edge.changelog)) != handle.layout:
                    raise _changed(manifest, f"the rows from '{source}' to '{handle.target_uid}' have other columns")
                return _Target(vertex, 0, edge_id, edge)
    raise _changed(manifest, f"rows no longer go from '{handle.source_uid}' to '{handle.target_uid}'")


def _restore(
    graph: JobGraph, records: dict[str, VertexRecord], handle: InFlightHandle, target: _Target
) -> InFlightRestore:
    if target.edge is None:
        return InFlightRestore(handle, -1)
    consumers_same = records[handle.target_uid].parallelism == target.vertex.parallelism
    producers_same = records[handle.source_uid].parallelism == graph.vertex(target.edge.source).parallelism
    keys = target.edge.keys if target.edge.kind is EdgeKind.HASH and not consumers_same else None
    return InFlightRestore(handle, target.edge_id, keys, consumers_same and producers_same)


def _consumers(
    manifest: CheckpointManifest,
    records: dict[str, VertexRecord],
    handle: InFlightHandle,
    target: _Target,
    number: int,
) -> list[int]:
    """The new subtasks that get the elements, or their part of them."""
    vertex, old = target.vertex, records[handle.target_uid]
    same = old.parallelism == vertex.parallelism
    match EdgeKind.FORWARD if target.edge is None else target.edge.kind:
        case EdgeKind.SINGLE:
            return [0]
        case EdgeKind.HASH:
            return [handle.consumer_index] if same else _sharing(handle, old, vertex)
        case EdgeKind.REBALANCE:
            return [handle.consumer_index if same else number % vertex.parallelism]
        case EdgeKind.FORWARD if target.edge is None and vertex.parallelism == 1:
            return [0]
        case kind:
            if same:
                return [handle.consumer_index]
            raise RestoreRefusedError(
                f"checkpoint {manifest.checkpoint_id} holds rows in flight to '{vertex.name}' on a {kind.value} edge, "
                f"which cannot go from parallelism {old.parallelism} to {vertex.parallelism}",
                hint=_REMEDY,
            )


def _sharing(handle: InFlightHandle, old: VertexRecord, vertex: Vertex) -> list[int]:
    """New subtasks with key groups of the old consumer."""
    first, last = key_group_range(handle.consumer_index, old.parallelism, old.max_parallelism)
    found: list[int] = []
    for index in range(vertex.parallelism):
        own_first, own_last = key_group_range(index, vertex.parallelism, vertex.max_parallelism)
        if own_first <= last and first <= own_last:
            found.append(index)
    return found
