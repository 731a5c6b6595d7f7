"""The task loop in this process: sources and sinks made by hand, local channels, messages written down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import SplitBatch, SplitState
from connectors.errors import ConnectorError, ErrorDomain, RecordError
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import InputRef
from planner.ir.job_graph import EdgeKind
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.exchange.local import LocalChannel
from runtime.exchange.partitioner import partitioner
from runtime.exchange.writer import RecordWriter
from runtime.ids import AttemptId, SlotId
from runtime.protocol.descriptors import ChannelAddress, TaskDescriptor
from runtime.protocol.messages import (
    AbortCheckpoint,
    AssignSplits,
    CheckpointAcknowledged,
    CheckpointCommitted,
    CommitCheckpoint,
    EndSources,
    InputsEnded,
    StartTasks,
    TaskInitialized,
    TaskState,
    TaskStateChanged,
    TriggerCheckpoint,
)
from runtime.taskmanager.task import Task, TaskServices
from tests.support.operators import HandConnector, split
from tests.support.slots import JOB, attempt, edge_input, edge_output, task

SLOT = SlotId("tm/0/1")
HERE = ChannelAddress(SLOT, "127.0.0.1", 1)
NUMBERS = ir.Schema((ir.Column("n", t.INT),))
M = TypeVar("M")


class Cluster:
    """Tasks of one slot without its process. `by_table` gives each table a connector of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.directory = str(directory)
        self.by_table: dict[str, HandConnector] = {}
        monkeypatch.setattr(registry, "connector", lambda name: self.by_table.setdefault(name, HandConnector()))
        self.messages: list[object] = []
        self._changed = threading.Condition()
        self.tasks: dict[AttemptId, Task] = {}
        self.wall_ms = 1_700_000_000_000

    def send(self, message: object) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def find(self, kind: type[M], where: Callable[[M], bool] = lambda _: True) -> list[M]:
        return [m for m in self.messages if isinstance(m, kind) and where(m)]

    def wait(self, kind: type[M], where: Callable[[M], bool] = lambda _: True) -> M:
        with self._changed:
            assert self._changed.wait_for(lambda: self.find(kind, where), 20), self.messages
        return self.find(kind, where)[0]

    def wait_state(self, who: AttemptId, state: TaskState) -> TaskStateChanged:
        return self.wait(TaskStateChanged, lambda m: m.attempt == who and m.state is state)

    def wait_acknowledged(self, who: AttemptId, checkpoint_id: int) -> CheckpointAcknowledged:
        return self.wait(CheckpointAcknowledged, lambda m: m.attempt == who and m.checkpoint_id == checkpoint_id)

    def deploy(self, *descriptors: TaskDescriptor) -> None:
        services = TaskServices(
            self.send, lambda _: None, lambda _: None, 0, 1_000_000, True, wall_clock_ms=lambda: self.wall_ms
        )
        for descriptor in descriptors:
            self.tasks[descriptor.attempt] = Task(descriptor, services)
        for descriptor in descriptors:
            made = self.tasks[descriptor.attempt]
            writers = []
            for edge in descriptor.outputs:
                channels = [
                    LocalChannel(self.tasks[c.attempt].input_channel(1, made.attempt), made.inbox)
                    for c in edge.consumers
                ]
                rule = partitioner(edge.kind, edge.keys, len(channels), 128)
                writers.append(RecordWriter(rule, channels, made.wait_backpressured, made.now_ms, 10))
            made.attach(writers)
            made.start()
        for descriptor in descriptors:
            self.wait(TaskInitialized, lambda m, who=descriptor.attempt: m.attempt == who)  # type: ignore[misc]

    def tell(self, message: Any, *to: AttemptId) -> None:
        for who in to or tuple(self.tasks):
            self.tasks[who].deliver(message)

    def start(self) -> None:
        self.tell(StartTasks(SLOT, JOB, 1, tuple(self.tasks)))

    def trigger(self, checkpoint_id: int, *to: AttemptId, stop: bool = False) -> None:
        self.tell(TriggerCheckpoint(SLOT, JOB, 1, checkpoint_id, to, stop), *to)

    def commit(self, checkpoint_id: int) -> None:
        self.tell(CommitCheckpoint(SLOT, JOB, 1, checkpoint_id))

    def assign(self, who: AttemptId, *states: SplitState, all_assigned: bool = True) -> None:
        self.tell(AssignSplits(SLOT, who, "source", states, all_assigned), who)

    def close(self) -> None:
        for made in self.tasks.values():
            made.cancel()
        ended = (TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED)
        for who in self.tasks:
            self.wait(TaskStateChanged, lambda m, who=who: m.attempt == who and m.state in ended)  # type: ignore[misc]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(monkeypatch, tmp_path)
    yield made
    made.close()


def source(table: str = "in") -> ir.Source:
    return ir.Source(
        "source", "source", ir.TableRef(table, table, {}, NUMBERS), NUMBERS, (), (InputRef(0, t.INT),), NUMBERS
    )


def sink(table: str = "out") -> ir.Sink:
    return ir.Sink("sink", "sink", ir.TableRef(table, table, {}, NUMBERS), NUMBERS)


def rows(*numbers: int, done: bool = False, of: str = "a") -> SplitBatch:
    return SplitBatch(of, pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32())], ["c0"]), done)


def written(connector: HandConnector) -> list[object]:
    return [n for batch in connector.sink_writer.written for n in batch.column(0).to_pylist()]


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s, "nothing happened in time"
        threading.Event().wait(0.002)


ONE = attempt(1)


def test_a_chain_from_source_to_sink_until_its_last_commit(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))
    assert cluster.find(TaskInitialized)[0].markers == {"sink": {0: 7}}
    reader, out = cluster.by_table["in"].made, cluster.by_table["out"]
    reader.give(rows(1, 2))
    cluster.assign(ONE, split("a"))
    cluster.start()
    until(lambda: written(out) == [1, 2])
    cluster.trigger(1, ONE)
    first = cluster.wait_acknowledged(ONE, 1).snapshot
    assert not first.finished
    assert [(s.split.id, s.position) for s in first.operators[0].splits] == [("a", b"2")]
    assert [c.checkpoint_id for c in first.operators[1].committables] == [1]
    cluster.commit(1)
    cluster.wait(CheckpointCommitted)
    until(lambda: [i for i, _ in reader.committed] == [1])
    reader.give(rows(3, done=True))
    cluster.wait(InputsEnded)
    assert not cluster.find(TaskStateChanged, lambda m: m.state is TaskState.FINISHED)
    cluster.trigger(2, ONE)
    assert cluster.wait_acknowledged(ONE, 2).snapshot.finished
    cluster.commit(2)
    cluster.wait_state(ONE, TaskState.FINISHED)
    assert out.sink_writer.committed == [1, 2]
    assert reader.closed
    order = [m for m in cluster.messages if isinstance(m, CheckpointCommitted | TaskStateChanged)]
    assert isinstance(order[-2], CheckpointCommitted)


def two_sources(cluster: Cluster) -> tuple[AttemptId, AttemptId, AttemptId]:
    """Tables in0 and in1 in tasks of their own, both into one sink."""
    left, right, end = attempt(1), attempt(2), attempt(3)
    out = edge_output(EdgeKind.SINGLE, NUMBERS, (end, HERE))
    into = edge_input(EdgeKind.SINGLE, NUMBERS, (left, HERE), (right, HERE))
    cluster.deploy(
        task(left, (source("in0"),), cluster.directory, outputs=(out,)),
        task(right, (source("in1"),), cluster.directory, outputs=(out,)),
        task(end, (sink(),), cluster.directory, inputs=(into,)),
    )
    for who in (left, right):
        cluster.assign(who, split("a"))
    cluster.start()
    return left, right, end


def test_rows_behind_a_barrier_wait_for_the_other_barrier(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    out = cluster.by_table["out"]
    cluster.trigger(1, left)
    cluster.wait_acknowledged(left, 1)
    cluster.by_table["in0"].made.give(rows(1))
    cluster.by_table["in1"].made.give(rows(2))
    until(lambda: written(out) == [2])
    cluster.trigger(1, right)
    cluster.wait_acknowledged(end, 1)
    until(lambda: written(out) == [2, 1])


def test_an_aborted_alignment_lets_its_rows_go(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    out = cluster.by_table["out"]
    cluster.trigger(1, left)
    cluster.wait_acknowledged(left, 1)
    cluster.by_table["in0"].made.give(rows(1))
    cluster.by_table["in1"].made.give(rows(2))
    until(lambda: written(out) == [2])
    cluster.tell(AbortCheckpoint(SLOT, JOB, 1, 1))
    until(lambda: written(out) == [2, 1])
    cluster.trigger(2, left, right)
    cluster.wait_acknowledged(end, 2)
    assert not cluster.find(CheckpointAcknowledged, lambda m: m.attempt == end and m.checkpoint_id == 1)


def test_an_ended_input_does_not_hold_up_checkpoints(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    cluster.by_table["in0"].made.give(rows(1, done=True))
    cluster.wait(InputsEnded)
    cluster.trigger(1, left, right)
    snapshots = {who: cluster.wait_acknowledged(who, 1).snapshot.finished for who in (left, right, end)}
    assert snapshots == {left: True, right: False, end: False}
    cluster.commit(1)
    cluster.wait_state(left, TaskState.FINISHED)
    cluster.by_table["in1"].made.give(rows(2, done=True))
    cluster.wait(InputsEnded, lambda m: m.attempt == end)
    # Only one source is triggered: the sink hears of the checkpoint from it, although its input has ended.
    cluster.trigger(2, right)
    assert cluster.wait_acknowledged(end, 2).snapshot.finished
    cluster.trigger(2, end)
    cluster.commit(2)
    for who in (right, end):
        cluster.wait_state(who, TaskState.FINISHED)
    assert len(cluster.find(CheckpointAcknowledged, lambda m: m.attempt == end and m.checkpoint_id == 2)) == 1


def test_a_stop_ends_the_job_with_the_savepoint_and_nothing_more_is_written(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    out = cluster.by_table["out"]
    cluster.by_table["in0"].made.give(rows(1))
    until(lambda: written(out) == [1])
    cluster.trigger(1, left, right, stop=True)
    snapshots = [cluster.wait_acknowledged(who, 1).snapshot for who in (left, right, end)]
    assert [snapshot.finished for snapshot in snapshots] == [False, False, False]
    # What comes now waits for the next job.
    cluster.by_table["in0"].made.give(rows(2))
    cluster.commit(1)
    for who in (left, right, end):
        cluster.wait_state(who, TaskState.FINISHED)
    assert written(out) == [1]
    assert out.sink_writer.committed == [1]


def test_a_stop_that_is_given_up_lets_the_job_go_on(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    out = cluster.by_table["out"]
    cluster.trigger(1, left, right, stop=True)
    cluster.wait_acknowledged(end, 1)
    cluster.by_table["in0"].made.give(rows(1))
    cluster.tell(AbortCheckpoint(SLOT, JOB, 1, 1))
    until(lambda: written(out) == [1])
    cluster.trigger(2, left, right)
    cluster.wait_acknowledged(end, 2)
    cluster.commit(2)
    cluster.wait(CheckpointCommitted, lambda m: m.checkpoint_id == 2)
    assert not cluster.find(InputsEnded)
    cluster.trigger(3, left, right, stop=True)
    cluster.wait_acknowledged(end, 3)
    cluster.commit(3)
    for who in (left, right, end):
        cluster.wait_state(who, TaskState.FINISHED)


def test_a_source_that_had_ended_is_stopped_with_the_others(cluster: Cluster) -> None:
    left, right, end = two_sources(cluster)
    cluster.by_table["in0"].made.give(rows(1, done=True))
    cluster.wait(InputsEnded)
    cluster.trigger(1, left, right, stop=True)
    finished = {who: cluster.wait_acknowledged(who, 1).snapshot.finished for who in (left, right, end)}
    assert finished == {left: True, right: False, end: False}
    cluster.commit(1)
    for who in (left, right, end):
        cluster.wait_state(who, TaskState.FINISHED)


def test_end_sources_ends_a_task_where_it_is(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))
    cluster.assign(ONE, split("a"), all_assigned=False)
    cluster.start()
    cluster.tell(EndSources(SLOT, JOB, 1))
    cluster.wait(InputsEnded)


def test_a_task_restored_as_ended_writes_nothing_and_ends(cluster: Cluster) -> None:
    left, end = attempt(1), attempt(2)
    out = edge_output(EdgeKind.SINGLE, NUMBERS, (end, HERE))
    into = edge_input(EdgeKind.SINGLE, NUMBERS, (left, HERE))
    restore = (OperatorRestore("source", splits=(split("a", done=True),)),)
    descriptors = (
        task(left, (source(),), cluster.directory, outputs=(out,), restore=restore, finished=True),
        task(end, (sink(),), cluster.directory, inputs=(into,), finished=True),
    )
    cluster.deploy(*descriptors)
    cluster.start()
    for who in (left, end):
        cluster.wait(InputsEnded, lambda m, who=who: m.attempt == who)  # type: ignore[misc]
    cluster.trigger(5, left, end)
    snapshot = cluster.wait_acknowledged(left, 5).snapshot
    assert snapshot.finished
    assert [s.done for s in snapshot.operators[0].splits] == [True]
    cluster.wait_acknowledged(end, 5)
    cluster.commit(5)
    for who in (left, end):
        cluster.wait_state(who, TaskState.FINISHED)
    assert written(cluster.by_table["out"]) == []


def test_snapshots_do_not_forget_which_operators_had_ended_before_the_restore(cluster: Cluster) -> None:
    restore = (OperatorRestore("source"), OperatorRestore("sink", ended=True))
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory, restore=restore))
    cluster.assign(ONE, split("a"))
    cluster.start()
    cluster.trigger(1, ONE)
    snapshot = cluster.wait_acknowledged(ONE, 1).snapshot
    assert not snapshot.finished
    assert {operator.uid: operator.ended for operator in snapshot.operators} == {"source": False, "sink": True}
    cluster.by_table["in"].made.give(rows(1, done=True))
    cluster.wait(InputsEnded)
    cluster.trigger(2, ONE)
    assert all(operator.ended for operator in cluster.wait_acknowledged(ONE, 2).snapshot.operators)


def test_a_doubtful_commit_fails_the_task(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))
    cluster.assign(ONE, split("a"), all_assigned=False)
    cluster.start()

    def doubtful(checkpoint_id: int) -> None:
        raise ConnectorError("no answer", domain=ErrorDomain.EXTERNAL, retry=True, hint="Look at the broker.")

    cluster.by_table["out"].sink_writer.commit = doubtful  # type: ignore[method-assign]
    cluster.trigger(1, ONE)
    cluster.wait_acknowledged(ONE, 1)
    cluster.commit(1)
    failure = cluster.wait_state(ONE, TaskState.FAILED).failure
    assert failure is not None
    assert (failure.message, failure.domain, failure.retry) == ("no answer", "external", True)
    assert failure.hint == "Look at the broker."
    assert not cluster.find(CheckpointCommitted)


def test_a_record_that_cannot_be_decoded_fails_the_task_by_its_place(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))

    def broken(timeout_ms: int) -> list[SplitBatch]:
        raise RecordError("topic orders, partition 3, offset 17: field 'n' is not a number")

    cluster.by_table["in"].made.poll = broken  # type: ignore[method-assign]
    cluster.assign(ONE, split("a"))
    cluster.start()
    failure = cluster.wait_state(ONE, TaskState.FAILED).failure
    assert failure is not None
    assert failure.message == "topic orders, partition 3, offset 17: field 'n' is not a number"
    assert (failure.domain, failure.retry) == ("user", False)


def test_splits_found_later_are_read(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))
    cluster.assign(ONE, all_assigned=False)
    cluster.start()
    cluster.wait_state(ONE, TaskState.RUNNING)
    cluster.by_table["in"].made.give(rows(4, of="late"))
    cluster.assign(ONE, split("late"), all_assigned=False)
    until(lambda: written(cluster.by_table["out"]) == [4])


def test_a_task_is_cancelled_before_it_has_started(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), sink()), cluster.directory))
    cluster.tasks[ONE].cancel()
    cluster.wait_state(ONE, TaskState.CANCELED)


PROCTIME = t.timestamp_ltz(3).with_time_attribute(t.TimeAttribute.PROCTIME)
COUNTED = ir.Schema((ir.Column("n", t.BIGINT),))


def count_per_second() -> ir.GlobalWindowAggregate:
    """The number of rows of each second of processing time."""
    call = ir.AggregateCall(ir.AggregateFunction.COUNT_STAR, None, None, t.BIGINT)
    window = ir.TumbleWindow(None, PROCTIME, 1000)
    return ir.GlobalWindowAggregate("window", "window", False, (), (), (call,), window, (), COUNTED)


def counts_sink() -> ir.Sink:
    return ir.Sink("sink", "sink", ir.TableRef("out", "out", {}, COUNTED), COUNTED)


def test_a_timer_wakes_a_task_that_reads(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), count_per_second(), counts_sink()), cluster.directory))
    reader, out = cluster.by_table["in"].made, cluster.by_table["out"]
    reader.give(rows(1, 2))
    cluster.assign(ONE, split("a"))
    cluster.start()
    until(lambda: not reader.polls)
    assert written(out) == []
    cluster.wall_ms += 1000
    until(lambda: written(out) == [2])
    # What is open at the end of input is not fired.
    reader.give(rows(3, done=True))
    cluster.wait(InputsEnded)
    assert written(out) == [2]


def test_a_timer_wakes_a_task_that_waits_and_fires_after_a_restore(cluster: Cluster) -> None:
    left, end = attempt(1), attempt(2)
    out_edge = edge_output(EdgeKind.SINGLE, NUMBERS, (end, HERE))
    into = edge_input(EdgeKind.SINGLE, NUMBERS, (left, HERE))
    cluster.deploy(
        task(left, (source(),), cluster.directory, outputs=(out_edge,)),
        task(end, (count_per_second(), counts_sink()), cluster.directory, inputs=(into,)),
    )
    reader, out = cluster.by_table["in"].made, cluster.by_table["out"]
    reader.give(rows(1, 2, 3))
    cluster.assign(left, split("a"))
    cluster.start()
    until(lambda: cluster.tasks[end].metrics().records_in == 3)
    cluster.trigger(1, left)
    window = next(o for o in cluster.wait_acknowledged(end, 1).snapshot.operators if o.uid == "window")
    cluster.wall_ms += 1000
    until(lambda: written(out) == [3])
    cluster.tell(EndSources(SLOT, JOB, 1), left)
    again = attempt(3)
    restore = (OperatorRestore("window", segments=window.segments, clocks=window.clocks),)
    cluster.by_table["out"] = HandConnector()
    cluster.deploy(
        task(again, (source("other"), count_per_second(), counts_sink()), cluster.directory, restore=restore)
    )
    cluster.assign(again, split("b"))
    cluster.tell(StartTasks(SLOT, JOB, 1, (again,)), again)
    until(lambda: written(cluster.by_table["out"]) == [3])
