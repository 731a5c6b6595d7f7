"""A real task and barriers that overtake: under backpressure, between blocked writes, with what a restore brought."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from connectors.api import SplitBatch
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import InputRef
from planner.ir.job_graph import EdgeKind
from planner.ir.operators import ChangelogMode
from runtime.checkpoint.files import open_files
from runtime.checkpoint.in_flight import ChannelRef, InFlight, read, write
from runtime.checkpoint.snapshot import InFlightRestore
from runtime.elements import Barrier, Batch, Control, Element, Watermark
from runtime.exchange.channel import Inbox
from runtime.exchange.frames import channel_schema
from runtime.exchange.local import LocalChannel
from runtime.exchange.partitioner import partitioner
from runtime.exchange.writer import RecordWriter
from runtime.protocol.messages import AbortCheckpoint, CheckpointAcknowledged, StartTasks, TriggerCheckpoint
from runtime.taskmanager.task import Task, TaskServices
from tests.support.operators import HandConnector, split
from tests.support.slots import JOB, attempt, edge_input, edge_output, task
from tests.unit.runtime.taskmanager.test_task import HERE, NUMBERS, ONE, SLOT, Cluster, rows, sink, source, until

SCHEMA = channel_schema(NUMBERS, ChangelogMode.INSERT_ONLY)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(monkeypatch, tmp_path)
    yield made
    made.close()


def trigger(cluster: Cluster, checkpoint_id: int, timeout_ms: int | None) -> None:
    message = TriggerCheckpoint(SLOT, JOB, 1, checkpoint_id, (ONE,), aligned_timeout_ms=timeout_ms)
    cluster.tell(message, ONE)


def numbers(*values: int) -> Batch:
    return Batch(pa.RecordBatch.from_arrays([pa.array(values, pa.int32())], ["c0"]))


def told(elements: list[Element]) -> list[object]:
    return [e.data.column(0).to_pylist() if isinstance(e, Batch) else e for e in elements]


def in_flight(cluster: Cluster, acknowledged: CheckpointAcknowledged) -> list[object]:
    """The elements in the snapshot's files, file by file."""
    files = open_files(cluster.directory)
    return [told(read(files, handle)[1]) for handle in acknowledged.snapshot.in_flight]


def in_flight_files(cluster: Cluster) -> list[Path]:
    return list(Path(cluster.directory).glob("in-flight/*"))


def test_without_credit_a_task_serves_barriers_and_they_overtake(cluster: Cluster) -> None:
    descriptor = task(
        ONE, (source(),), cluster.directory, outputs=(edge_output(EdgeKind.SINGLE, NUMBERS, (attempt(2), HERE)),)
    )
    made = Task(descriptor, TaskServices(cluster.send, lambda _: None, lambda _: None, 0, 1_000_000, True))
    consumer = Inbox()
    channel = LocalChannel(consumer.add_channel(1), made.inbox)
    writer = RecordWriter(partitioner(EdgeKind.SINGLE, (), 1, 128), [channel], made.wait_backpressured, made.now_ms, 0)
    made.attach([writer])
    cluster.tasks[ONE] = made
    made.start()
    cluster.assign(ONE, split("a"))
    cluster.tell(StartTasks(SLOT, JOB, 1, (ONE,)))
    for number in (1, 2):
        cluster.by_table["in"].made.give(rows(number))
    until(lambda: not writer.has_room)

    trigger(cluster, 1, 0)
    acknowledged = cluster.wait_acknowledged(ONE, 1)
    assert acknowledged.is_unaligned
    assert acknowledged.persisted_bytes > 0
    assert in_flight(cluster, acknowledged) == [[[2]]]
    assert acknowledged.snapshot.operators[0].splits[0].position == b"2"

    # Given up: no trace.
    cluster.tell(AbortCheckpoint(SLOT, JOB, 1, 1), ONE)
    until(lambda: in_flight_files(cluster) == [])

    # In its place at first, then its time is over.
    trigger(cluster, 2, 30)
    acknowledged = cluster.wait_acknowledged(ONE, 2)
    assert acknowledged.is_unaligned
    assert in_flight(cluster, acknowledged) == [[[2]]]

    # In its place for ever: acknowledged without waiting for it.
    trigger(cluster, 3, None)
    assert cluster.wait_acknowledged(ONE, 3).snapshot.in_flight == ()

    # With time left it is acknowledged when it has left, with nothing in flight.
    trigger(cluster, 4, 3_600_000)
    taken: list[object] = []

    def is_through() -> bool:
        while (element := consumer.take()) is not None:
            taken.extend(told([element[1]]))
        return len(taken) == 6

    until(is_through)
    assert taken[:5] == [
        [1],
        Barrier(1, 1, aligned_timeout_ms=0),
        Barrier(2, 1, aligned_timeout_ms=0),
        [2],
        Barrier(3, 1),
    ]
    last: Any = taken[5]
    assert last.checkpoint_id == 4
    assert 0 < last.aligned_timeout_ms <= 3_600_000
    acknowledged = cluster.wait_acknowledged(ONE, 4)
    assert (acknowledged.is_unaligned, acknowledged.snapshot.in_flight) == (False, ())


class Turnstile:
    """A sink's writer that lets one batch through per permit."""

    def __init__(self, cluster: Cluster) -> None:
        self._permits = threading.Semaphore(0)
        self.waiting = 0
        writer = cluster.by_table["out"].sink_writer
        self._writer, self._write = writer, writer.write
        writer.write = self.write  # type: ignore[method-assign]

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        self.waiting += 1
        assert self._permits.acquire(timeout=20)
        self._write(batch, row_kinds)

    def permit(self, count: int = 1) -> None:
        self._permits.release(count)

    @property
    def written(self) -> list[object]:
        return [batch.column(0).to_pylist() for batch in self._writer.written]


class Consumer:
    """A task with a sink and two input channels, which the test fills."""

    def __init__(self, cluster: Cluster, *restores: InFlightRestore) -> None:
        self.producers = (attempt(2), attempt(3))
        into = edge_input(EdgeKind.SINGLE, NUMBERS, *((producer, HERE) for producer in self.producers))
        descriptor = msgspec.structs.replace(
            task(ONE, (sink(),), cluster.directory, inputs=(into,)), in_flight=restores
        )
        cluster.by_table["out"] = HandConnector()
        self.gate = Turnstile(cluster)
        cluster.deploy(descriptor)
        self._task = cluster.tasks[ONE]

    def put(self, channel: int, *elements: Batch | Control) -> None:
        target = self._task.input_channel(1, self.producers[channel])
        for element in elements:
            target.put(element, element.byte_size if isinstance(element, Batch) else 0)


def test_a_task_records_what_is_queued_and_what_comes_until_the_last_barrier(cluster: Cluster) -> None:
    consumer = Consumer(cluster)
    gate = consumer.gate
    cluster.start()
    consumer.put(0, numbers(1))
    until(lambda: gate.waiting == 1)
    barrier = Barrier(1, 1, aligned_timeout_ms=0)
    consumer.put(0, numbers(2), Watermark(5), numbers(3), barrier, numbers(4))
    consumer.put(1, numbers(5))
    # Between two elements, as soon as the write returns.
    gate.permit()
    until(lambda: gate.waiting == 2)
    consumer.put(1, numbers(6), barrier, numbers(7))
    gate.permit()
    acknowledged = cluster.wait_acknowledged(ONE, 1)
    assert in_flight(cluster, acknowledged) == [[[2], Watermark(5), [3]], [[5], [6]]]
    assert [(h.producer_index, h.consumer_index) for h in acknowledged.snapshot.in_flight] == [(0, 0), (0, 0)]
    gate.permit(10)
    until(lambda: len(gate.written) == 7)
    assert sorted(gate.written, key=str) == [[n] for n in range(1, 8)]


def test_an_aborted_recording_leaves_nothing_and_blocks_nothing(cluster: Cluster) -> None:
    consumer = Consumer(cluster)
    gate = consumer.gate
    cluster.start()
    consumer.put(0, numbers(1), Barrier(1, 1, aligned_timeout_ms=0), numbers(2))
    gate.permit(10)
    until(lambda: len(gate.written) == 2)
    cluster.tell(AbortCheckpoint(SLOT, JOB, 1, 1), ONE)
    # Its late barrier changes nothing; the next checkpoint, aligned, holds nothing in flight.
    consumer.put(1, numbers(3), Barrier(1, 1, aligned_timeout_ms=0), numbers(4), Barrier(2, 1))
    consumer.put(0, Barrier(2, 1), numbers(5))
    acknowledged = cluster.wait_acknowledged(ONE, 2)
    assert (acknowledged.is_unaligned, acknowledged.snapshot.in_flight) == (False, ())
    until(lambda: len(gate.written) == 5)
    assert not cluster.find(CheckpointAcknowledged, lambda m: m.checkpoint_id == 1)
    assert in_flight_files(cluster) == []


def restore(cluster: Cluster, name: str, *elements: Element) -> InFlightRestore:
    channel = ChannelRef(1, 0, 0, "source", "sink", SCHEMA)
    handle = write(open_files(cluster.directory), name, InFlight(channel, list(elements)))
    return InFlightRestore(handle, 1, None, False)


def test_what_was_in_flight_comes_before_input_and_is_in_flight_again(cluster: Cluster) -> None:
    older = restore(cluster, "older", numbers(1), Watermark(3), numbers(2))
    newer = restore(cluster, "newer", numbers(3))
    consumer = Consumer(cluster, older, newer)
    gate = consumer.gate
    barrier = Barrier(1, 1, aligned_timeout_ms=0)
    consumer.put(0, numbers(4), barrier)
    consumer.put(1, barrier, numbers(5))
    gate.permit()
    cluster.start()
    # The barriers wait already when the task starts: nothing of what was recovered is lost.
    acknowledged = cluster.wait_acknowledged(ONE, 1)
    assert in_flight(cluster, acknowledged) == [[[1], [2]], [[3]], [[4]]]
    gate.permit(10)
    until(lambda: len(gate.written) == 5)
    assert gate.written[:3] == [[1], [2], [3]]
    assert sorted(gate.written[3:], key=str) == [[4], [5]]


def test_rows_of_two_inputs_go_to_their_own_also_when_they_were_in_flight(cluster: Cluster) -> None:
    """Left except right: what is left tells which rows came on which input."""
    schema = channel_schema(NUMBERS, ChangelogMode.RETRACT)
    channel = ChannelRef(2, 0, 0, "source", "set", schema, input_index=1)
    handle = write(open_files(cluster.directory), "right", InFlight(channel, [numbers(1)]))
    end = ((attempt(2), HERE),)
    left = edge_input(EdgeKind.SINGLE, NUMBERS, *end)
    right = msgspec.structs.replace(left, edge_id=2, input_index=1, source_uid="source")
    operator = ir.SetOperation("set", "set", ir.SetOperationKind.EXCEPT, NUMBERS)
    out = msgspec.structs.replace(sink(), changelog=ChangelogMode.RETRACT)
    descriptor = msgspec.structs.replace(
        task(ONE, (operator, out), cluster.directory, inputs=(left, right)),
        in_flight=(InFlightRestore(handle, 2, None, False),),
    )
    cluster.by_table["out"] = HandConnector()
    gate = Turnstile(cluster)
    cluster.deploy(descriptor)
    channels = cluster.tasks[ONE].inbox.channels

    def put(number: int, *elements: Batch | Control) -> None:
        for element in elements:
            channels[number].put(element, element.byte_size if isinstance(element, Batch) else 0)

    put(0, numbers(1, 2, 3, 4))
    cluster.start()
    until(lambda: gate.waiting == 1)
    barrier = Barrier(1, 1, aligned_timeout_ms=0)
    put(0, numbers(7), barrier)
    put(1, numbers(2), barrier)
    gate.permit(10)
    acknowledged = cluster.wait_acknowledged(ONE, 1)
    assert in_flight(cluster, acknowledged) == [[[7]], [[2]]]
    assert [(h.edge_id, h.input_index) for h in acknowledged.snapshot.in_flight] == [(1, 0), (2, 1)]
    until(lambda: len(gate.written) == 3)
    assert sorted(gate.written, key=str) == [[2, 3, 4], [2], [7]]


def test_a_barrier_that_has_left_the_queue_is_acknowledged_though_nothing_follows(cluster: Cluster) -> None:
    """The task has nothing to wait for but the credit that lets the barrier go."""
    into = edge_input(EdgeKind.SINGLE, NUMBERS, (attempt(2), HERE))
    out = edge_output(EdgeKind.SINGLE, NUMBERS, (attempt(3), HERE))
    calc = ir.Calc("calc", "Calc", None, (InputRef(0, t.INT),), NUMBERS)
    descriptor = task(ONE, (calc,), cluster.directory, inputs=(into,), outputs=(out,))
    made = Task(descriptor, TaskServices(cluster.send, lambda _: None, lambda _: None, 0, 1_000_000, True))
    consumer = Inbox()
    channel = LocalChannel(consumer.add_channel(1), made.inbox)
    made.attach(
        [RecordWriter(partitioner(EdgeKind.SINGLE, (), 1, 128), [channel], made.wait_backpressured, made.now_ms, 0)]
    )
    cluster.tasks[ONE] = made
    made.start()
    cluster.tell(StartTasks(SLOT, JOB, 1, (ONE,)))
    for element in (numbers(1), Barrier(1, 1, aligned_timeout_ms=3_600_000)):
        made.inbox.channels[0].put(element, element.byte_size if isinstance(element, Batch) else 0)
    cluster.wait_acknowledged(ONE, 1)
    for element in (numbers(2), Barrier(2, 1, aligned_timeout_ms=3_600_000)):
        made.inbox.channels[0].put(element, element.byte_size if isinstance(element, Batch) else 0)
    until(lambda: made.metrics().records_in == 2)
    while (taken := consumer.take()) is None or not isinstance(taken[1], Barrier) or taken[1].checkpoint_id < 2:
        pass
    acknowledged = cluster.wait_acknowledged(ONE, 2)
    assert (acknowledged.is_unaligned, acknowledged.snapshot.in_flight) == (False, ())


def test_an_unread_result_does_not_hold_up_a_checkpoint(cluster: Cluster) -> None:
    cluster.deploy(task(ONE, (source(), ir.Collect("collect", "Collect", NUMBERS)), cluster.directory))
    collect = cluster.tasks[ONE].collect
    assert collect is not None
    wide = pa.RecordBatch.from_arrays([pa.array(np.arange(1_200_000, dtype=np.int32))], ["c0"])
    cluster.by_table["in"].made.give(SplitBatch("a", wide, False))
    cluster.assign(ONE, split("a"))
    cluster.start()
    until(lambda: not collect.buffer.has_room())
    trigger(cluster, 1, None)
    cluster.wait_acknowledged(ONE, 1)
