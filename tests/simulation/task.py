"""One attempt of one subtask: the loop of `runtime.taskmanager.task` as fibers of its slot's process.

Aligner and watermark valve are the runtime's own; the order of what happens at a barrier, at the end of input, at a
commit and at an abort follows `Task` and `TaskCheckpoints`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from connectors.errors import ConnectorError
from runtime import key_groups
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.elements import MAX_WATERMARK_MS, Barrier, EndOfInput, Watermark, WatermarkStatus
from runtime.ids import AttemptId
from runtime.protocol import messages as m
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager import barrier_aligner as aligner
from runtime.taskmanager.watermark_valve import WatermarkValve
from tests.simulation.kernel import Kernel, Link, Signal, Steps, Violation
from tests.simulation.operators import CountOperator, SourceOperator
from tests.simulation.sink import SinkOperator, TaskFailed
from tests.simulation.store import File
from tests.simulation.workload import KEY_GROUPS, key_group_of

if TYPE_CHECKING:
    from tests.simulation.cluster import World
    from tests.simulation.taskmanager import Slot

CREDIT = 3
"""Batches on their way in one channel."""
SOURCE, COUNT, SINK = "source", "count", "sink"
"""What uids begin with; the number of the pipeline follows."""


def is_source(uid: str) -> bool:
    return uid.startswith(SOURCE)


def is_count(uid: str) -> bool:
    return uid.startswith(COUNT)


def is_sink(uid: str) -> bool:
    return uid.startswith(SINK)


class TaskCancelled(Exception):
    pass


class SinksCommitted(msgspec.Struct, frozen=True):
    checkpoint_id: int


class Channel:
    """The consumer's end."""

    __slots__ = ("blocked", "producer", "queue")

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.blocked = False
        self.producer: Output | None = None


class Output:
    """The producer's end of one channel: in the same slot, or over a connection."""

    def __init__(self, task: Task, consumer: Task, channel: int) -> None:
        self.task = task
        self.consumer = consumer
        self.batches = 0
        self.link: Link | None = None
        self._channel = channel
        consumer.channels[channel].producer = self
        if consumer.slot is not task.slot:
            self.link = Link(task.slot, consumer.slot, f"{task.name} to {consumer.name}")
            self.link.receive[1] = self._arrived
            self.link.lost = [task.connection_lost, consumer.connection_lost]

    def send(self, element: Any) -> None:
        self.batches += type(element) is list
        if self.link is None:
            self._arrived(element)
        else:
            self.link.send(self.task.slot, element)

    def taken(self) -> None:
        """The consumer has taken a batch: there is credit again."""
        self.batches -= 1
        self.task.signal.notify()

    def _arrived(self, element: Any) -> None:
        self.consumer.channels[self._channel].queue.append(element)
        self.consumer.signal.notify()


@cache
def owners_of_groups(parallelism: int) -> list[int]:
    groups = np.arange(KEY_GROUPS, dtype=np.int16)
    return [int(i) for i in key_groups.subtask_of(groups, parallelism, KEY_GROUPS)]


class Task:
    def __init__(self, slot: Slot, descriptor: TaskDescriptor) -> None:
        self.slot = self.process = slot
        self.world: World = slot.world
        self.kernel: Kernel = slot.kernel
        self.descriptor: TaskDescriptor = descriptor
        self.attempt: AttemptId = descriptor.attempt
        attempt = self.attempt
        self.name: str = f"g{attempt.generation}-v{attempt.vertex_id}-s{attempt.subtask_index}-a{attempt.number}"
        self.directory = descriptor.checkpoint_directory
        self.signal = Signal()
        self.mail: deque[Any] = deque()
        self.channels: list[Channel] = [Channel() for edge in descriptor.inputs for _ in edge.producers]
        self.outputs: dict[int, Output] = {}
        """By consumer subtask."""
        self.started = self.ended = self.over = False
        self._drain = True
        self._failure: str | None = None
        self._cancelled = False
        self._aligner = aligner.BarrierAligner(0 if descriptor.finished else len(self.channels))
        self._valve = WatermarkValve(len(self.channels))
        self._watermark_ms: int | None = None
        self._encoder: deque[Steps] = deque()
        self._encoder_signal = Signal()
        self._commits: deque[int] = deque()
        self._commit_signal = Signal()
        self._final_id: int | None = None
        self._final_committed = False
        self._stop_id: int | None = None
        self._not_written: set[str] = set()
        self.source: SourceOperator | None = None
        self.count: CountOperator | None = None
        self.sink: SinkOperator | None = None

    # ---------------------------------------------------------------------------------------------- for operators

    def create(self, path: str) -> File:
        return self.world.files.create(self.directory + path, self.slot)

    def read(self, path: str) -> Any:
        try:
            return self.world.files.read(self.directory + path)
        except OSError as error:
            raise Violation(f"{self.name} needs {path}: {error!r}") from error

    def relative(self, path: str) -> str:
        return path.removeprefix(self.directory)

    # ---------------------------------------------------------------------------------------------- from outside

    def start(self) -> None:
        self.slot.start(self._run())
        self.slot.start(self._encode())
        if any(is_sink(o.uid) for o in self.descriptor.vertex.operators):
            self.slot.start(self._commit())

    def deliver(self, message: Any) -> None:
        if isinstance(message, m.CommitCheckpoint) and self.sink is not None:
            self._commits.append(message.checkpoint_id)
            self._commit_signal.notify()
        self.mail.append(message)
        self.signal.notify()

    def cancel(self) -> None:
        self._cancelled = True
        self.signal.notify()

    def fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self.signal.notify()

    def connection_lost(self, link: Link) -> None:
        """A lost connection fails both tasks, unless everything has been said on it."""
        if not (self.over or (self._final_committed and self.ended)):
            self.fail(f"connection lost: {link.name}")

    # ------------------------------------------------------------------------------------------------ life cycle

    def _run(self) -> Steps:
        state, failure = m.TaskState.FINISHED, None
        try:
            yield from self._live()
        except TaskCancelled:
            state = m.TaskState.CANCELED
        except TaskFailed as error:
            state, failure = m.TaskState.FAILED, m.Failure(str(error), "external", True)
            if self._cancelled:
                state, failure = m.TaskState.CANCELED, None
        except ConnectorError as error:
            state, failure = m.TaskState.FAILED, m.Failure(str(error), str(error.domain), error.retry)
        self.over = True
        self.kernel.log(self.slot, f"{self.name} is {state} {failure.message if failure else ''}")
        if state is not m.TaskState.FINISHED:
            self._close_channels()
        self.slot.send(m.TaskStateChanged(self.attempt, state, failure))

    def _close_channels(self) -> None:
        outputs = [*self.outputs.values(), *(c.producer for c in self.channels if c.producer is not None)]
        for output in outputs:
            if output.link is not None:
                output.link.close(self.slot)

    def _check(self) -> None:
        if self._cancelled:
            raise TaskCancelled
        if self._failure is not None:
            raise TaskFailed(self._failure)

    def _live(self) -> Steps:
        yield None
        yield from self._initialize()
        while not self.started:
            yield from self._serve_mail()
            if not self.started:
                yield self.signal
            self._check()
        self.slot.send(m.TaskStateChanged(self.attempt, m.TaskState.RUNNING))
        if self.descriptor.finished:
            self._drain = True
        elif self.source is not None:
            yield from self._run_source()
        else:
            yield from self._run_inputs()
        yield from self._end()

    def _initialize(self) -> Steps:
        for restore in self.descriptor.restore:
            if is_source(restore.uid):
                self.source = SourceOperator(self, restore.uid, restore)
            elif is_count(restore.uid):
                self.count = CountOperator(self, restore.uid, restore)
            elif is_sink(restore.uid):
                self.sink = SinkOperator(self, restore.uid, restore)
                yield from self.sink.recover()
        self.world.checks.restored(self)
        expected = sum(len(output.consumers) for output in self.descriptor.outputs)
        while len(self.outputs) < expected:
            yield self.signal
            self._check()
        markers = {self.sink.uid: self.sink.markers} if self.sink is not None else {}
        self.world.checks.initialized(self)
        self.slot.send(m.TaskInitialized(self.attempt, markers))

    def _run_source(self) -> Steps:
        source = self.source
        assert source is not None
        yield from self._serve_mail()
        while not source.ended:
            self._check()
            if self._stop_id is None:
                yield from self._wait_for_credit()
                for element in source.poll():
                    self._take_in(element)
            if self._stop_id is not None or not (source.readable or source.ended):
                yield self.signal
            else:
                yield (self.signal, self.kernel.below(self.world.pace_ms))
            yield from self._serve_mail()

    def _run_inputs(self) -> Steps:
        while not self._aligner.all_ended:
            self._check()
            yield from self._serve_mail()
            yield from self._wait_for_credit()
            if self._take_element():
                yield None
            else:
                yield self.signal

    def _end(self) -> Steps:
        if not self.descriptor.finished and self._drain:
            self._take_in(Watermark(MAX_WATERMARK_MS))
        self.ended = True
        self._broadcast(EndOfInput(self._drain))
        self.slot.send(m.InputsEnded(self.attempt))
        while not self._final_committed:
            self._check()
            yield from self._serve_mail()
            if self.descriptor.finished:
                for channel in self.channels:
                    channel.queue.clear()
            elif self._take_element():
                continue
            if not self._final_committed:
                yield self.signal

    def _wait_for_credit(self) -> Steps:
        while any(output.batches >= CREDIT for output in self.outputs.values()):
            yield self.signal
            self._check()

    # -------------------------------------------------------------------------------------------------- elements

    def _take_element(self) -> bool:
        ready = [i for i, channel in enumerate(self.channels) if channel.queue and not channel.blocked]
        if not ready:
            return False
        index = ready[self.kernel.below(len(ready))] if len(ready) > 1 else ready[0]
        channel = self.channels[index]
        element = channel.queue.popleft()
        if type(element) is list:
            if channel.producer is not None:
                channel.producer.taken()
            self._take_in(element)
        elif isinstance(element, Barrier):
            self._perform(self._aligner.on_barrier(index, element, self.kernel.now_ms))
        elif isinstance(element, Watermark):
            self._take_in_all(self._valve.on_watermark(index, element.timestamp_ms))
        elif isinstance(element, WatermarkStatus):
            self._take_in_all(self._valve.on_status(index, element.idle))
        else:
            self._drain = self._drain and element.drain
            if element.drain:
                self._take_in_all(self._valve.on_ended(index))
            self._perform(self._aligner.on_ended(index, self.kernel.now_ms))
        return True

    def _take_in_all(self, elements: Iterable[Watermark | WatermarkStatus]) -> None:
        for element in elements:
            self._take_in(element)

    def _take_in(self, element: Any) -> None:
        """Through the chain, to the outputs."""
        if type(element) is list:
            if self.source is not None:
                self.world.checks.rows_read(self)
            self._emit(self.count.process(element) if self.count is not None else element)
            return
        if isinstance(element, Watermark):
            self.world.checks.watermark(self, self._watermark_ms, element.timestamp_ms)
            self._watermark_ms = element.timestamp_ms
            if self.count is not None:
                self._emit(self.count.advance(element.timestamp_ms))
        self._broadcast(element)

    def _emit(self, rows: list[Any]) -> None:
        if not rows:
            return
        if self.sink is not None:
            self.sink.write(rows)
            return
        owners = owners_of_groups(self.descriptor.outputs[0].consumer_parallelism)
        parts: dict[int, list[Any]] = {}
        for row in rows:
            key = row.key if self.count is None else row[1]
            parts.setdefault(owners[key_group_of(key)], []).append(row)
        for consumer, part in parts.items():
            self.outputs[consumer].send(part)

    def _broadcast(self, element: Any) -> None:
        for output in self.outputs.values():
            output.send(element)

    # ------------------------------------------------------------------------------------------------------ mail

    def _serve_mail(self) -> Steps:
        while self.mail:
            message = self.mail.popleft()
            match message:
                case m.StartTasks():
                    self.started = True
                case m.AssignSplits(splits=splits):
                    assert self.source is not None
                    self.source.add_splits(splits)
                case m.TriggerCheckpoint(checkpoint_id=number, generation=generation, stop=stop):
                    self._perform(self._aligner.on_trigger(Barrier(number, generation, stop)))
                case m.AbortCheckpoint(checkpoint_id=number):
                    self._perform(self._aligner.on_aborted(number))
                    self._aborted(number)
                case m.EndSources():
                    if self.source is not None:
                        self.source.stop()
                case m.CommitCheckpoint(checkpoint_id=number):
                    self._on_committed(number, by_sinks=False)
                    if self._stop_id == number and self.source is not None and not self.ended:
                        self._drain = False
                        self.source.stop()
                case SinksCommitted(checkpoint_id=number):
                    self._on_committed(number, by_sinks=True)
            if self.mail:
                yield 0

    def _aborted(self, number: int) -> None:
        if self._stop_id == number:
            self._stop_id = None
            if self._final_id == number:
                self._final_id = None

    def _on_committed(self, number: int, *, by_sinks: bool) -> None:
        if self.count is not None and not by_sinks:
            self.count.committed(number)
        if by_sinks == (self.sink is not None) and self._final_id is not None and number >= self._final_id:
            self._final_committed = True

    # ------------------------------------------------------------------------------------------------- snapshots

    def _perform(self, commands: list[aligner.AlignerCommand]) -> None:
        for command in commands:
            match command:
                case aligner.BlockChannel(channel=channel):
                    self.channels[channel].blocked = True
                case aligner.UnblockChannel(channel=channel):
                    self.channels[channel].blocked = False
                case aligner.TakeSnapshot(barrier=barrier):
                    self._snapshot(barrier)
                    self._broadcast(barrier)

    def _snapshot(self, barrier: Barrier) -> None:
        number = barrier.checkpoint_id
        self.kernel.log(self.slot, f"{self.name} takes its snapshot for {number}")
        operators: list[OperatorSnapshot] = []
        written: list[tuple[SegmentHandle, Any]] = []
        if self.source is not None:
            operators.append(OperatorSnapshot(self.source.uid, self.source.snapshot()))
        if self.count is not None:
            count = self.count
            file = count.snapshot(number, barrier.stop)
            written = [file] if file is not None else []
            chain = count.chain(number)
            operators.append(OperatorSnapshot(count.uid, segments=chain, clocks=count.clocks, counters=count.counters))
        if self.sink is not None:
            operators.append(OperatorSnapshot(self.sink.uid, committables=self.sink.prepare_commit(number)))
        if self._stop_id is not None and self._stop_id < number:
            self._aborted(self._stop_id)
        if barrier.stop:
            self._stop_id = number
        if (self.ended or barrier.stop) and self._final_id is None:
            self._final_id = number
        descriptor = self.descriptor
        snapshot = SubtaskSnapshot(
            descriptor.vertex.id,
            descriptor.vertex.uid,
            descriptor.subtask_index,
            descriptor.parallelism,
            tuple(operators),
            self.ended,
        )
        self.world.checks.snapshot_taken(self, number, snapshot)
        self._encoder.append(self._acknowledge(number, snapshot, written))
        self._encoder_signal.notify()

    def _acknowledge(self, number: int, snapshot: SubtaskSnapshot, written: list[tuple[SegmentHandle, Any]]) -> Steps:
        for handle, content in written:
            file = self.create(handle.path)
            yield None
            if self.world.write_fails():
                self.world.files.discard(file)
                self._not_written.add(handle.path)
            else:
                self.world.files.seal(file, content)
        yield None
        if any(s.path in self._not_written for o in snapshot.operators for s in o.segments):
            failure = m.Failure("disk is full", "external", True)
            self.slot.send(m.CheckpointDeclined(self.attempt, number, failure))
        else:
            self.slot.send(m.CheckpointAcknowledged(self.attempt, number, snapshot))

    def _encode(self) -> Steps:
        while not self.over:
            while self._encoder:
                yield from self._encoder.popleft()
            yield self._encoder_signal

    def _commit(self) -> Steps:
        while True:
            while self._commits:
                number = self._commits.popleft()
                assert self.sink is not None
                yield None
                if self.over and not self._final_committed:
                    return
                try:
                    yield from self.sink.commit(number)
                except TaskFailed as error:
                    self.fail(str(error))
                    return
                self.slot.send(m.CheckpointCommitted(self.attempt, number))
                self.mail.append(SinksCommitted(number))
                self.signal.notify()
            yield self._commit_signal
