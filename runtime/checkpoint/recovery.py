"""What a new start of a job takes over from a checkpoint, at the same or another parallelism. Pure.

Rules: source splits form one registry per source; at the same parallelism each subtask keeps its own (one that has
ended must not be given an unread split), at another they are spread round-robin; state files go to every subtask whose
key groups they touch; event-time clocks follow their key group (the highest value wins); counters are summed and
given to subtask 0; a sink's owner `o` is resolved by subtask `o % parallelism`, its own first. Same operator uid and
same state fingerprint = restored; a changed state fingerprint or a vanished stateful operator is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from connectors.api import Committable, OwnerState, SplitState
from planner.ir.job_graph import JobGraph, Vertex
from planner.ir.operators import Sink, Source
from runtime.checkpoint.in_flight_plan import TaskKey, plan_in_flight
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.segment_order import merged
from runtime.checkpoint.snapshot import InFlightRestore, OperatorRestore, OperatorSnapshot, SegmentHandle
from runtime.key_groups import key_group_range


class RestorePlan(msgspec.Struct, frozen=True):
    """`floors`: (sink uid, owner) → highest epoch known to be committed once all tasks have recovered."""

    checkpoint_id: int
    operators: dict[TaskKey, tuple[OperatorRestore, ...]]
    finished: frozenset[TaskKey]
    known_splits: dict[str, tuple[SplitState, ...]]
    """Source uid → every split in the checkpoint, in order of id."""
    floors: dict[tuple[str, int], int]
    in_flight: dict[TaskKey, tuple[InFlightRestore, ...]] = {}


class _OperatorState(msgspec.Struct):
    """All subtasks' snapshots of one operator, in subtask order, with the parallelism they were taken at."""

    parallelism: int
    snapshots: list[tuple[int, OperatorSnapshot]]


def plan_restore(
    graph: JobGraph, manifest: CheckpointManifest | None, owner_counts: Mapping[str, int], *, repeats: bool = False
) -> RestorePlan:
    """`manifest` None = a fresh start. `owner_counts`: sink uid → the largest parallelism ever started. `repeats`: the
    user goes back and accepts repeated output. Raises RestoreRefusedError."""
    states: dict[str, _OperatorState] = {}
    if manifest is not None:
        _check_compatible(graph, manifest)
        for snapshot in manifest.snapshots:
            for operator in snapshot.operators:
                state = states.setdefault(operator.uid, _OperatorState(snapshot.parallelism, []))
                state.snapshots.append((snapshot.subtask_index, operator))
    sinks = {sink.uid: sink for sink in manifest.sinks} if manifest is not None else {}
    operators: dict[TaskKey, tuple[OperatorRestore, ...]] = {}
    known_splits: dict[str, tuple[SplitState, ...]] = {}
    floors: dict[tuple[str, int], int] = {}
    ended = _ended_operators(graph, manifest)
    for vertex in graph.vertices:
        restores: list[list[OperatorRestore]] = [[] for _ in range(vertex.parallelism)]
        for ir_operator in vertex.operators:
            uid = ir_operator.uid
            found = states.get(uid, _OperatorState(0, []))
            owners: tuple[OwnerState, ...] = ()
            if isinstance(ir_operator, Source):
                known_splits[uid] = _splits(found)
            if isinstance(ir_operator, Sink):
                owners = _owners(found, sinks.get(uid), max(owner_counts.get(uid, 0), vertex.parallelism), repeats)
                floors.update({(uid, owner.owner): _floor_after_recovery(owner) for owner in owners})
            for index in range(vertex.parallelism):
                restored = _restore(vertex, index, uid, found, known_splits.get(uid, ()), owners)
                restores[index].append(msgspec.structs.replace(restored, ended=index in ended.get(uid, ())))
        for index, of_task in enumerate(restores):
            operators[vertex.id, index] = tuple(of_task)
    return RestorePlan(
        checkpoint_id=manifest.checkpoint_id if manifest is not None else 0,
        operators=operators,
        finished=_finished(graph, ended),
        known_splits=known_splits,
        floors=floors,
        in_flight=plan_in_flight(graph, manifest) if manifest is not None else {},
    )


def spread_splits(splits: Iterable[SplitState], parallelism: int, first: int = 0) -> list[tuple[SplitState, ...]]:
    """Round-robin over subtasks, beginning at subtask `first % parallelism`."""
    spread: list[list[SplitState]] = [[] for _ in range(parallelism)]
    for number, split in enumerate(splits, start=first):
        spread[number % parallelism].append(split)
    return [tuple(part) for part in spread]


def _check_compatible(graph: JobGraph, manifest: CheckpointManifest) -> None:
    new_uids = {operator.uid for vertex in graph.vertices for operator in vertex.operators}
    for snapshot in manifest.snapshots:
        for operator in snapshot.operators:
            if operator.uid not in new_uids and has_state(operator):
                raise RestoreRefusedError(
                    f"checkpoint {manifest.checkpoint_id} has state of operator '{operator.uid}', "
                    "which the job no longer has"
                )
    fingerprints = {fingerprint.uid: fingerprint for fingerprint in manifest.fingerprints}
    for new in graph.fingerprints:
        old = fingerprints.get(new.uid)
        if old is None:
            continue
        if old.state != new.state:
            raise RestoreRefusedError(f"the state of operator '{new.uid}' has another shape than in the checkpoint")
        if old.location != new.location:
            raise RestoreRefusedError(f"operator '{new.uid}' reads or writes another place than in the checkpoint")
    max_parallelism = {uid: record.max_parallelism for record in manifest.vertices for uid in record.operator_uids}
    keyed = keyed_operators(manifest)
    for vertex in graph.vertices:
        for ir_operator in vertex.operators:
            old_max = max_parallelism.get(ir_operator.uid, vertex.max_parallelism)
            if ir_operator.uid in keyed and old_max != vertex.max_parallelism:
                raise RestoreRefusedError(
                    f"max parallelism of '{vertex.name}' is {vertex.max_parallelism}, but {old_max} in the checkpoint"
                )


def keyed_operators(manifest: CheckpointManifest) -> set[str]:
    """Uids of operators whose state is cut into key groups."""
    return {o.uid for s in manifest.snapshots for o in s.operators if o.segments or o.clocks}


def has_state(operator: OperatorSnapshot) -> bool:
    """Whether anything would be lost without it."""
    return bool(
        operator.splits
        or operator.segments
        or operator.clocks
        or operator.committables
        or operator.data
        or any(operator.counters.values())
    )


def _splits(state: _OperatorState) -> tuple[SplitState, ...]:
    found = {split.split.id: split for _, snapshot in state.snapshots for split in snapshot.splits}
    return tuple(found[split_id] for split_id in sorted(found))


def _own_splits(state: _OperatorState, index: int) -> tuple[SplitState, ...]:
    return tuple(split for old_index, snapshot in state.snapshots if old_index == index for split in snapshot.splits)


def _owners(state: _OperatorState, sink: SinkRecord | None, owner_count: int, repeats: bool) -> tuple[OwnerState, ...]:
    pending: dict[int, list[Committable]] = {}
    for _, snapshot in state.snapshots:
        for committable in snapshot.committables:
            pending.setdefault(committable.owner, []).append(committable)
    recovered_count = sink.owner_count if sink is not None else 0
    return tuple(
        OwnerState(
            owner,
            tuple(sorted(pending.get(owner, ()), key=lambda c: c.checkpoint_id)),
            floor=sink.floors.get(owner, 0) if sink is not None else 0,
            marker_expected=owner < recovered_count,
            repeats=repeats,
        )
        for owner in range(max(owner_count, recovered_count, 1 + max(pending, default=-1)))
    )


def _floor_after_recovery(owner: OwnerState) -> int:
    return max([owner.floor, *(committable.checkpoint_id for committable in owner.pending)])


def _restore(
    vertex: Vertex,
    index: int,
    uid: str,
    state: _OperatorState,
    splits: tuple[SplitState, ...],
    owners: tuple[OwnerState, ...],
) -> OperatorRestore:
    first, last = key_group_range(index, vertex.parallelism, vertex.max_parallelism)
    same = state.parallelism == vertex.parallelism
    own_first = sorted(owners, key=lambda owner: (owner.owner != index, owner.owner))
    return OperatorRestore(
        uid=uid,
        splits=_own_splits(state, index) if same else spread_splits(splits, vertex.parallelism)[index],
        segments=_segments(state, first, last),
        clocks=_clocks(state, first, last),
        counters=_counters(state) if index == 0 else {},
        owners=tuple(owner for owner in own_first if owner.owner % vertex.parallelism == index),
        data=_data(state, index, vertex),
    )


def _segments(state: _OperatorState, first: int, last: int) -> tuple[SegmentHandle, ...]:
    return merged([
        [s for s in snapshot.segments if s.key_group_first <= last and first <= s.key_group_last]
        for _, snapshot in state.snapshots
    ])  # fmt: skip


def _clocks(state: _OperatorState, first: int, last: int) -> dict[int, int]:
    clocks: dict[int, int] = {}
    for _, snapshot in state.snapshots:
        for key_group, clock_ms in snapshot.clocks.items():
            if first <= key_group <= last:
                clocks[key_group] = max(clocks.get(key_group, clock_ms), clock_ms)
    return clocks


def _counters(state: _OperatorState) -> dict[str, int]:
    total: Counter[str] = Counter()
    for _, snapshot in state.snapshots:
        total.update(snapshot.counters)
    return dict(total)


def _data(state: _OperatorState, index: int, vertex: Vertex) -> bytes:
    by_index = {old_index: snapshot.data for old_index, snapshot in state.snapshots if snapshot.data}
    if by_index and state.parallelism != vertex.parallelism:
        raise RestoreRefusedError(
            f"'{vertex.name}' was checkpointed at parallelism {state.parallelism} and cannot change to "
            f"{vertex.parallelism}"
        )
    return by_index.get(index, b"")


def _finished(graph: JobGraph, ended: Mapping[str, set[int]]) -> frozenset[TaskKey]:
    """The subtasks of which every operator had seen the end of its input."""
    finished: set[TaskKey] = set()
    for vertex in graph.vertices:
        every = [ended[operator.uid] for operator in vertex.operators if operator.uid in ended]
        if every:
            finished.update((vertex.id, index) for index in set.intersection(*every))
    return frozenset(finished)


def _ended_operators(graph: JobGraph, manifest: CheckpointManifest | None) -> dict[str, set[int]]:
    """Operator uid → the new subtasks for which it had seen the end of its input. Operators are asked, not vertices:
    another parallelism chains differently, and a source that has ended may now have an operator behind it that has
    not. Operators that the checkpoint does not have are left out."""
    if manifest is None:
        return {}
    of_vertex = {record.uid: record.operator_uids for record in manifest.vertices}
    by_uid: dict[str, set[int]] = {}
    for snapshot in manifest.snapshots:
        of_task = of_vertex.get(snapshot.vertex_uid, ())
        for uid in of_task if snapshot.finished else (o.uid for o in snapshot.operators if o.ended):
            by_uid.setdefault(uid, set()).add(snapshot.subtask_index)
    records = {uid: record for record in manifest.vertices for uid in record.operator_uids}
    return {
        operator.uid: _ended_indexes(record, by_uid.get(operator.uid, set()), vertex.parallelism)
        for vertex in graph.vertices
        for operator in vertex.operators
        if (record := records.get(operator.uid)) is not None
    }


def _ended_indexes(record: VertexRecord, ended: set[int], parallelism: int) -> set[int]:
    """Of the new subtasks. At another parallelism they have ended only if all the old ones had."""
    if record.parallelism == parallelism:
        return ended
    return set(range(parallelism)) if len(ended) == record.parallelism else set()
