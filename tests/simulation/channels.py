"""Channels between tasks, on both sides: the runtime's own inbox and recovered input, and a model of writers with
credit that barriers overtake as they do in `runtime.exchange.writer`."""

from __future__ import annotations

import hashlib
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import key_groups
from runtime.checkpoint.in_flight import ChannelRef, InFlight, layout
from runtime.checkpoint.snapshot import InFlightHandle
from runtime.elements import Barrier, Batch, Control, Element, Watermark, WatermarkStatus
from runtime.exchange.frames import channel_schema
from runtime.taskmanager.recovered_input import RecoveredInput
from tests.simulation.kernel import Link, Signal
from tests.simulation.workload import KEY_GROUPS, key_group_of
from tests.support import graphs

if TYPE_CHECKING:
    from tests.simulation.task import Task

CREDIT = 3
"""Batches on their way in one channel."""


def key_of(row: Any) -> int:
    """Of a source's row, or of an output."""
    key: int = row[1] if isinstance(row[0], str) else row.key
    return key


@cache
def _schema() -> Any:
    """Of every channel of the model job."""
    return channel_schema(graphs.NUMBERS, graphs.edge(0, 1).changelog)


@cache
def _layout() -> str:
    return layout(_schema())


def handle_of(in_flight: InFlight, path: str) -> InFlightHandle:
    channel = in_flight.channel
    return InFlightHandle(
        channel.edge_id,
        channel.producer_index,
        channel.consumer_index,
        path,
        1,
        1,
        hashlib.sha256(path.encode()).hexdigest(),
        channel.source_uid,
        channel.target_uid,
        _layout(),
    )


class WakeUp:
    """In the place of an inbox's condition: one thread, so nothing is locked."""

    def __init__(self, signal: Signal) -> None:
        self.notify = signal.notify

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class ModelRecovered(RecoveredInput):
    """The model's files hold elements."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.descriptor)
        self._task = task

    def load_model(self) -> None:
        descriptor = self._task.descriptor
        first, last = key_groups.key_group_range(descriptor.subtask_index, descriptor.parallelism, KEY_GROUPS)
        for restore in descriptor.in_flight:
            own: deque[Element] = deque()
            for element in self._task.read(restore.handle.path):
                if isinstance(element, Batch):
                    rows: Any = element.data
                    if restore.keys is not None:
                        rows = [row for row in rows if first <= key_group_of(key_of(row)) <= last]
                    if rows:
                        own.append(Batch(rows))
                elif restore.with_times:
                    own.append(element)
            if own:
                self._waiting.append((restore, _schema(), own))


class Output:
    """The producer's end of one channel: in the same slot, or over a connection."""

    def __init__(self, task: Task, consumer: Task, channel: int) -> None:
        self.task = task
        self.consumer = consumer
        self.batches = 0
        self.queue: deque[Element] = deque()
        self.link: Link | None = None
        self._channel = consumer.inbox.channels[channel]
        consumer.producers[channel] = self
        if consumer.slot is not task.slot:
            self.link = Link(task.slot, consumer.slot, f"{task.name} to {consumer.name}")
            self.link.receive[1] = self._arrived
            self.link.lost = [task.connection_lost, consumer.connection_lost]

    def offer(self, element: Element) -> None:
        """Sent, or queued for want of credit."""
        if self.queue or (isinstance(element, Batch) and self.batches >= CREDIT):
            self.queue.append(self._dated(element))
        else:
            self.send(element)

    def drain(self) -> bool:
        """Sends what there is credit for. True: nothing waits."""
        while self.queue and not (isinstance(self.queue[0], Batch) and self.batches >= CREDIT):
            self.send(self._left(self.queue.popleft()))
        return not self.queue

    def send(self, element: Element) -> None:
        self.batches += isinstance(element, Batch)
        if self.link is None:
            self._arrived(element)
        else:
            self.link.send(self.task.slot, element)

    def taken(self) -> None:
        """The consumer has taken a batch: there is credit again."""
        self.batches -= 1
        self.task.signal.notify()

    def before(self, checkpoint_id: int) -> list[Element] | None:
        """Takes the barrier out of the queue; what waits before it. None: it is not there."""
        for index, element in enumerate(self.queue):
            if isinstance(element, Barrier) and element.checkpoint_id == checkpoint_id:
                del self.queue[index]
                return [e for e in list(self.queue)[:index] if isinstance(e, Batch | Watermark | WatermarkStatus)]
        return None

    def _dated(self, element: Element) -> Element:
        if isinstance(element, Barrier) and element.aligned_timeout_ms is not None:
            due_ms = self.task.kernel.now_ms + element.aligned_timeout_ms
            return msgspec.structs.replace(element, aligned_timeout_ms=due_ms)
        return element

    def _left(self, element: Element) -> Element:
        if isinstance(element, Barrier) and element.aligned_timeout_ms is not None:
            left_ms = max(0.0, element.aligned_timeout_ms - self.task.kernel.now_ms)
            return msgspec.structs.replace(element, aligned_timeout_ms=left_ms)
        return element

    def _arrived(self, element: Element) -> None:
        self._channel.put(element, int(isinstance(element, Batch)))


class Outputs:
    """All outputs of a task, with the interface of `runtime.taskmanager.task_outputs`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.by_consumer: dict[int, Output] = {}

    def broadcast(self, element: Control) -> None:
        for output in self.by_consumer.values():
            output.offer(element)

    def has_room(self) -> bool:
        return all(output.drain() for output in self.by_consumer.values())

    def overtake(self, barrier: Barrier) -> list[InFlight]:
        """The barrier goes before everything that waits."""
        found: list[InFlight] = []
        for index, output in self.by_consumer.items():
            waiting: list[Element] = [e for e in output.queue if isinstance(e, Batch | Watermark | WatermarkStatus)]
            found += self._in_flight(index, waiting)
            output.send(barrier)
        return found

    def holds_barrier(self, checkpoint_id: int) -> bool:
        return any(
            isinstance(element, Barrier) and element.checkpoint_id == checkpoint_id
            for output in self.by_consumer.values()
            for element in output.queue
        )

    def release(self, barrier: Barrier) -> list[InFlight]:
        """An aligned barrier that still waits somewhere overtakes what is before it."""
        found: list[InFlight] = []
        for index, output in self.by_consumer.items():
            before = output.before(barrier.checkpoint_id)
            if before is not None:
                found += self._in_flight(index, before)
                output.send(barrier)
        return found

    def withdraw(self, checkpoint_id: int) -> None:
        for output in self.by_consumer.values():
            output.before(checkpoint_id)

    def _in_flight(self, consumer: int, elements: list[Element]) -> list[InFlight]:
        if not any(isinstance(element, Batch) for element in elements):
            return []
        descriptor = self._task.descriptor
        edge = descriptor.outputs[0]
        source_uid = descriptor.vertex.operators[-1].uid
        channel = ChannelRef(edge.edge_id, descriptor.subtask_index, consumer, source_uid, edge.target_uid, _schema())
        return [InFlight(channel, elements)]
