"""What a new job takes over from a savepoint, and what is refused by name."""

from __future__ import annotations

import msgspec
import pytest

from connectors.api import Committable, Split, SplitState
from planner.ir import types as t
from planner.ir.job_graph import EdgeKind, Fingerprint, JobGraph, StatePart
from planner.ir.operators import AggregateCall, AggregateFunction, ChangelogMode, GroupAggregate
from runtime.checkpoint.adoption import adopt
from runtime.checkpoint.identity import operator_record
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord
from runtime.checkpoint.recovery import plan_restore
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.elements import MAX_WATERMARK_MS
from runtime.ids import JobId
from tests.support import graphs

SOURCE, AGGREGATE, SINK = "source", "aggregate", "sink"
SEGMENT = SegmentHandle("state/a", "s", 0, 127, 1, 1, "00")
EPOCH = Committable(0, 9, "i", b"{}", 1, 1)


def aggregate() -> GroupAggregate:
    call = AggregateCall(AggregateFunction.SUM, 0, t.BIGINT, t.BIGINT)
    return GroupAggregate(
        AGGREGATE, "GroupAggregate", (0,), (t.BIGINT,), (call,), ChangelogMode.INSERT_ONLY, graphs.NUMBERS
    )


def prints(**changed: str) -> tuple[Fingerprint, ...]:
    """Fingerprints of the three operators; `aggregate_state="x"` changes one part of one."""
    found = []
    for uid in (SOURCE, AGGREGATE, SINK):
        parts = {part: changed.get(f"{uid}_{part}", part) for part in ("state", "input", "location")}
        found.append(Fingerprint(uid, parts["state"], parts["input"], parts["location"]))
    return tuple(found)


def job(
    fingerprints: tuple[Fingerprint, ...] | None = None,
    max_parallelism: int = 128,
    topic: str = "in",
) -> JobGraph:
    source = graphs.generator(uid=SOURCE)
    table = msgspec.structs.replace(source.table, options={"connector": "kafka", "topic": topic})
    return graphs.graph(
        graphs.vertex(0, msgspec.structs.replace(source, table=table)),
        graphs.vertex(1, aggregate(), parallelism=2, max_parallelism=max_parallelism),
        graphs.vertex(2, graphs.sink(uid=SINK)),
        edges=(graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(1, 2, EdgeKind.SINGLE)),
        fingerprints=fingerprints if fingerprints is not None else prints(),
    )


def savepoint(
    *, drained: bool = False, clock_ms: int | None = None, epochs: tuple[Committable, ...] = ()
) -> CheckpointManifest:
    graph = job()
    clocks = {3: clock_ms} if clock_ms is not None else {}
    splits = (SplitState(Split("0", b""), b"7"),)
    snapshots = (
        SubtaskSnapshot(0, SOURCE, 0, 1, (OperatorSnapshot(SOURCE, splits=splits),), finished=drained),
        SubtaskSnapshot(
            1, AGGREGATE, 0, 2, (OperatorSnapshot(AGGREGATE, segments=(SEGMENT,), clocks=clocks),), finished=drained
        ),
        SubtaskSnapshot(2, SINK, 0, 1, (OperatorSnapshot(SINK, committables=epochs),), finished=drained),
    )
    return CheckpointManifest(
        job_id=JobId("a" * 32),
        generation=4,
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
        snapshots=snapshots,
        sinks=(SinkRecord(SINK, "ns", 1),),
        fingerprints=graph.fingerprints,
        operators=tuple(operator_record(o) for v in graph.vertices for o in v.operators),
        is_savepoint=True,
        drained=drained,
    )


def refusal(graph: JobGraph, manifest: CheckpointManifest, ignore: bool = False) -> RestoreRefusedError:
    with pytest.raises(RestoreRefusedError) as caught:
        adopt(graph, manifest, ignore_unclaimed_state=ignore, is_committed=False)
    return caught.value


def test_the_same_job_takes_over_everything_and_can_be_planned() -> None:
    adoption = adopt(job(), savepoint(epochs=(EPOCH,)), ignore_unclaimed_state=False, is_committed=False)
    assert adoption.notes == ()
    plan = plan_restore(job(), adoption.manifest, {})
    assert plan.checkpoint_id == 9
    assert plan.operators[0, 0][0].splits[0].position == b"7"
    assert plan.operators[1, 1][0].segments == (SEGMENT,)
    assert plan.operators[2, 0][0].owners[0].pending == (EPOCH,)


def test_a_changed_input_is_allowed_and_named() -> None:
    graph = job(prints(aggregate_input="other", sink_input="other", sink_state="other"))
    adoption = adopt(graph, savepoint(), ignore_unclaimed_state=False, is_committed=False)
    assert adoption.notes == (
        "The query below 'GroupAggregate' (aggregate) has changed; what it has kept so far goes on.",
        "The query below 'sink' (sink) has changed; what it has kept so far goes on.",
    )
    assert plan_restore(graph, adoption.manifest, {}).operators[1, 0][0].segments == (SEGMENT,)


def test_another_shape_of_state_is_refused_by_what_has_changed() -> None:
    error = refusal(job(prints(aggregate_state="other")), savepoint())
    assert str(error) == "the state of 'GroupAggregate' (aggregate) has another shape than in the savepoint"
    assert "Keep the operator's keys" in error.hint
    then, now = (
        tuple(msgspec.structs.replace(p, parts=(StatePart("aggregates", (call,)),)) for p in fingerprints)
        for fingerprints, call in ((prints(), "SUM(a.v INT)"), (prints(aggregate_state="other"), "MAX(a.v INT)"))
    )
    error = refusal(job(now), msgspec.structs.replace(savepoint(), fingerprints=then))
    assert str(error).endswith("than in the savepoint (aggregates: was SUM(a.v INT), is MAX(a.v INT))")


def test_another_place_is_refused_by_the_option() -> None:
    error = refusal(job(prints(source_location="other"), topic="elsewhere"), savepoint())
    assert "'numbers' (source) is in another place than in the savepoint: 'topic' was 'in'" in str(error)
    assert "its positions would mean nothing there" in str(error)


def test_another_max_parallelism_is_refused() -> None:
    error = refusal(job(max_parallelism=64), savepoint())
    assert "is 64, but 128 in the savepoint" in str(error)
    assert error.hint == "SET 'pipeline.max-parallelism' = '128'."


def without_aggregate() -> JobGraph:
    graph = job()
    return msgspec.structs.replace(
        graph,
        vertices=(graph.vertices[0], graph.vertices[2]),
        edges=(graphs.edge(0, 2),),
        fingerprints=tuple(f for f in graph.fingerprints if f.uid != AGGREGATE),
    )


def test_state_that_nobody_claims_is_refused_or_dropped_when_asked() -> None:
    error = refusal(without_aggregate(), savepoint())
    assert "the savepoint has state of 'GroupAggregate' (aggregate), which the job no longer has" in str(error)
    assert "'execution.state-recovery.ignore-unclaimed-state' = 'true'" in error.hint
    adoption = adopt(without_aggregate(), savepoint(), ignore_unclaimed_state=True, is_committed=False)
    assert adoption.notes == ("The state of 'GroupAggregate' (aggregate) is dropped: the job no longer has it.",)
    assert adoption.manifest.segments == ()
    assert plan_restore(without_aggregate(), adoption.manifest, {}).operators[0, 0][0].splits


def test_a_sink_goes_only_when_its_output_is_known_to_be_committed() -> None:
    graph = job()
    fewer = msgspec.structs.replace(graph, vertices=graph.vertices[:2], edges=graph.edges[:1])
    error = refusal(fewer, savepoint(epochs=(EPOCH,)), ignore=True)
    assert "output of 'sink' (sink) that may not be committed yet" in str(error)
    adoption = adopt(fewer, savepoint(epochs=(EPOCH,)), ignore_unclaimed_state=True, is_committed=True)
    assert adoption.manifest.sinks == ()


def test_a_drained_job_goes_on_only_without_closed_windows() -> None:
    error = refusal(job(), savepoint(drained=True, clock_ms=MAX_WATERMARK_MS))
    assert "every window of 'GroupAggregate' (aggregate) is closed" in str(error)
    adoption = adopt(job(), savepoint(drained=True), ignore_unclaimed_state=False, is_committed=False)
    assert plan_restore(job(), adoption.manifest, {}).finished == frozenset()


def test_a_new_operator_starts_without_state_and_that_is_said() -> None:
    graph = job()
    added = msgspec.structs.replace(
        graph,
        vertices=(*graph.vertices, graphs.vertex(3, graphs.sink(uid="second"))),
        fingerprints=(*graph.fingerprints, Fingerprint("second", "s", "i", "l")),
    )
    adoption = adopt(added, savepoint(), ignore_unclaimed_state=False, is_committed=False)
    assert adoption.notes == ("second is not in the savepoint and starts without state.",)
