"""What a new start takes over from a manifest, at the same and at another parallelism."""

from __future__ import annotations

import msgspec
import pytest

from connectors.api import Committable, Split, SplitState
from planner.ir.job_graph import Fingerprint, JobGraph
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord
from runtime.checkpoint.recovery import RestorePlan, plan_restore, spread_splits
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.ids import JobId
from tests.support import graphs

MAX = 8


def split(name: str, done: bool = False) -> SplitState:
    return SplitState(Split(name, b""), position=b"7", done=done, watermark_ms=5)


def segment(first: int, last: int) -> SegmentHandle:
    return SegmentHandle(f"state/{first}-{last}", "window", first, last, 1, 1, "00")


def epoch(owner: int, number: int) -> Committable:
    return Committable(owner, number, "i", f"{owner}-{number}".encode(), 1, 1)


def manifest(
    graph: JobGraph, snapshots: list[SubtaskSnapshot], sinks: tuple[SinkRecord, ...] = ()
) -> CheckpointManifest:
    return CheckpointManifest(
        job_id=JobId("j"),
        generation=1,
        checkpoint_id=9,
        incarnation="i",
        parent_id=8,
        restored_id=0,
        graph_digest="",
        triggered_at_ms=0,
        vertices=tuple(
            VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
            for v in graph.vertices
        ),
        snapshots=tuple(snapshots),
        sinks=sinks,
        fingerprints=graph.fingerprints,
    )


def subtask(
    graph: JobGraph, vertex_id: int, index: int, *operators: OperatorSnapshot, finished: bool = False
) -> SubtaskSnapshot:
    vertex = graph.vertex(vertex_id)
    return SubtaskSnapshot(vertex_id, vertex.uid, index, vertex.parallelism, operators, finished)


def sources(parallelism: int) -> JobGraph:
    return graphs.graph(graphs.vertex(0, graphs.generator(), parallelism=parallelism, max_parallelism=MAX))


def keyed(parallelism: int) -> JobGraph:
    return graphs.graph(graphs.vertex(0, graphs.calc("window"), parallelism=parallelism, max_parallelism=MAX))


def sinks(parallelism: int) -> JobGraph:
    return graphs.graph(graphs.vertex(0, graphs.sink(), parallelism=parallelism, max_parallelism=MAX))


def restores(plan: RestorePlan, uid: str, parallelism: int) -> list[OperatorRestore]:
    return [next(r for r in plan.operators[0, i] if r.uid == uid) for i in range(parallelism)]


def split_names(plan: RestorePlan, parallelism: int) -> list[list[str]]:
    return [[s.split.id for s in r.splits] for r in restores(plan, "source", parallelism)]


def three_splits() -> CheckpointManifest:
    graph = sources(2)
    return manifest(
        graph,
        [
            subtask(graph, 0, 0, OperatorSnapshot("source", (split("c"), split("a", done=True)))),
            subtask(graph, 0, 1, OperatorSnapshot("source", (split("b"),))),
        ],
    )


def test_a_fresh_start_restores_nothing() -> None:
    plan = plan_restore(sinks(2), None, {"sink": 3})
    assert plan.checkpoint_id == 0
    assert plan.finished == frozenset()
    owners = [[(o.owner, o.pending, o.floor, o.marker_expected) for o in r.owners] for r in restores(plan, "sink", 2)]
    # Owner 2 existed in a larger attempt only: it is fenced all the same.
    assert owners == [[(0, (), 0, False), (2, (), 0, False)], [(1, (), 0, False)]]


def test_splits_stay_where_they_are_at_the_same_parallelism() -> None:
    """A subtask that has ended must not be given an unread split."""
    assert split_names(plan_restore(sources(2), three_splits(), {}), 2) == [["c", "a"], ["b"]]


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, [["a", "b", "c"]]), (3, [["a"], ["b"], ["c"]]), (4, [["a"], ["b"], ["c"], []])]
)
def test_splits_are_spread_over_another_parallelism(parallelism: int, expected: list[list[str]]) -> None:
    plan = plan_restore(sources(parallelism), three_splits(), {})
    assert split_names(plan, parallelism) == expected
    assert [s.split.id for s in plan.known_splits["source"]] == ["a", "b", "c"]
    assert all(s.position == b"7" and s.watermark_ms == 5 for s in plan.known_splits["source"])


def test_new_splits_go_on_where_the_known_ones_stop() -> None:
    spread = spread_splits([split("d"), split("e")], 3, first=2)
    assert [[s.split.id for s in part] for part in spread] == [["e"], [], ["d"]]


def test_segments_clocks_and_counters_follow_key_groups() -> None:
    graph = keyed(2)
    old = manifest(
        graph,
        [
            subtask(graph, 0, 0, OperatorSnapshot("window", (), (segment(0, 3),), {0: 10, 3: 13}, {"late": 2})),
            subtask(graph, 0, 1, OperatorSnapshot("window", (), (segment(4, 7),), {4: 14, 7: 17, 3: 99}, {"late": 3})),
        ],
    )
    first, second, third = restores(plan_restore(keyed(3), old, {}), "window", 3)
    assert [s.path for s in first.segments] == ["state/0-3"]
    assert [s.path for s in second.segments] == ["state/0-3", "state/4-7"]
    assert [s.path for s in third.segments] == ["state/4-7"]
    assert (first.clocks, second.clocks, third.clocks) == ({0: 10}, {3: 99, 4: 14}, {7: 17})
    assert [r.counters for r in (first, second, third)] == [{"late": 5}, {}, {}]


def test_sink_owners_are_resolved_by_owner_modulo_parallelism_own_first() -> None:
    graph = sinks(4)
    old = manifest(
        graph,
        [
            subtask(graph, 0, 1, OperatorSnapshot("sink", committables=(epoch(1, 9), epoch(1, 8)))),
            subtask(graph, 0, 3, OperatorSnapshot("sink", committables=(epoch(3, 9),))),
        ],
        sinks=(SinkRecord("sink", "ns", owner_count=4, floors={0: 7, 1: 7}),),
    )
    plan = plan_restore(sinks(3), old, {"sink": 5})
    owners = [[o.owner for o in r.owners] for r in restores(plan, "sink", 3)]
    assert owners == [[0, 3], [1, 4], [2]]
    by_owner = {o.owner: o for r in restores(plan, "sink", 3) for o in r.owners}
    assert [c.checkpoint_id for c in by_owner[1].pending] == [8, 9]
    assert {n: o.floor for n, o in by_owner.items()} == {0: 7, 1: 7, 2: 0, 3: 0, 4: 0}
    assert {n: o.marker_expected for n, o in by_owner.items()} == {0: True, 1: True, 2: True, 3: True, 4: False}
    # Recovery commits what is pending: that is the floor from then on.
    assert plan.floors == {("sink", 0): 7, ("sink", 1): 9, ("sink", 2): 0, ("sink", 3): 9, ("sink", 4): 0}


def test_pending_epochs_of_owners_beyond_every_count_are_not_forgotten() -> None:
    graph = sinks(1)
    old = manifest(graph, [subtask(graph, 0, 0, OperatorSnapshot("sink", committables=(epoch(2, 5),)))])
    plan = plan_restore(sinks(1), old, {})
    assert [o.owner for o in restores(plan, "sink", 1)[0].owners] == [0, 1, 2]


def test_finished_subtasks_stay_finished_at_the_same_parallelism() -> None:
    graph = keyed(2)
    old = manifest(graph, [subtask(graph, 0, 0, finished=True), subtask(graph, 0, 1)])
    assert plan_restore(keyed(2), old, {}).finished == {(0, 0)}
    # At another one a vertex has ended only when all of it had.
    assert plan_restore(keyed(3), old, {}).finished == frozenset()
    all_ended = manifest(graph, [subtask(graph, 0, i, finished=True) for i in range(2)])
    assert plan_restore(keyed(3), all_ended, {}).finished == {(0, 0), (0, 1), (0, 2)}


def test_a_chain_has_ended_only_if_each_of_its_operators_had() -> None:
    """At parallelism 1 the aggregation is chained to the source, of which all four subtasks had ended before it."""
    apart = graphs.graph(
        graphs.vertex(0, graphs.generator(), parallelism=4, max_parallelism=MAX),
        graphs.vertex(1, graphs.calc("window"), parallelism=1, max_parallelism=MAX),
    )
    together = graphs.graph(graphs.vertex(0, graphs.generator(), graphs.calc("window"), max_parallelism=MAX))
    ended = [subtask(apart, 0, i, finished=True) for i in range(4)]
    plan = plan_restore(together, manifest(apart, [*ended, subtask(apart, 1, 0)]), {})
    assert plan.finished == frozenset()
    # What had ended in it does not end again.
    assert [restore.ended for restore in plan.operators[0, 0]] == [True, False]
    all_ended = manifest(apart, [*ended, subtask(apart, 1, 0, finished=True)])
    assert plan_restore(together, all_ended, {}).finished == {(0, 0)}
    # A checkpoint before the chain has ended as a whole does not forget it.
    parts = [OperatorSnapshot(operator.uid, ended=i == 0) for i, operator in enumerate(together.vertices[0].operators)]
    plan = plan_restore(together, manifest(together, [subtask(together, 0, 0, *parts)]), {})
    assert plan.finished == frozenset()
    assert [restore.ended for restore in plan.operators[0, 0]] == [True, False]


def test_unkeyed_data_cannot_change_parallelism() -> None:
    graph = keyed(1)
    old = manifest(graph, [subtask(graph, 0, 0, OperatorSnapshot("window", data=b"3"))])
    assert restores(plan_restore(keyed(1), old, {}), "window", 1)[0].data == b"3"
    with pytest.raises(RestoreRefusedError, match="cannot change"):
        plan_restore(keyed(2), old, {})


def test_a_vanished_operator_with_state_is_refused_by_name() -> None:
    graph = keyed(1)
    old = manifest(graph, [subtask(graph, 0, 0, OperatorSnapshot("window", segments=(segment(0, 7),)))])
    with pytest.raises(RestoreRefusedError, match="'window'"):
        plan_restore(sources(1), old, {})
    stateless = manifest(graph, [subtask(graph, 0, 0, OperatorSnapshot("window", counters={"late": 0}))])
    assert plan_restore(sources(1), stateless, {}).checkpoint_id == 9


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (Fingerprint("window", "other", "in", "at"), "another shape"),
        (Fingerprint("window", "state", "in", "other"), "another place"),
    ],
)
def test_a_changed_fingerprint_is_refused(changed: Fingerprint, text: str) -> None:
    graph = msgspec.structs.replace(keyed(1), fingerprints=(Fingerprint("window", "state", "in", "at"),))
    old = manifest(graph, [subtask(graph, 0, 0)])
    with pytest.raises(RestoreRefusedError, match=text):
        plan_restore(msgspec.structs.replace(graph, fingerprints=(changed,)), old, {})
    other_input = msgspec.structs.replace(graph, fingerprints=(Fingerprint("window", "state", "other", "at"),))
    assert plan_restore(other_input, old, {}).checkpoint_id == 9


def test_another_max_parallelism_is_refused() -> None:
    graph = keyed(1)
    old = manifest(graph, [subtask(graph, 0, 0, OperatorSnapshot("window", segments=(segment(0, 7),)))])
    changed = graphs.graph(graphs.vertex(0, graphs.calc("window"), max_parallelism=16))
    with pytest.raises(RestoreRefusedError, match="max parallelism"):
        plan_restore(changed, old, {})
    without_keys = manifest(graph, [subtask(graph, 0, 0)])
    assert plan_restore(changed, without_keys, {}).checkpoint_id == 9
