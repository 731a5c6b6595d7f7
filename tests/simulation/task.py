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
from runtime.checkpoint.in_flight import InFlight
from runtime.checkpoint.snapshot import InFlightHandle, OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.elements import MAX_WATERMARK_MS, Barrier, Batch, Element, EndOfInput, Watermark, WatermarkStatus
from runtime.exchange.channel import Inbox
from runtime.ids import AttemptId
from runtime.protocol import messages as m
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager.task_barriers import TaskBarriers
from runtime.taskmanager.watermark_valve import WatermarkValve
from tests.simulation.channels import ModelRecovered, Output, Outputs, WakeUp, handle_of, key_of
from tests.simulation.kernel import Kernel, Link, Signal, Steps, Violation
from tests.simulation.operators import CountOperator, SourceOperator
from tests.simulation.sink import SinkOperator, TaskFailed
from tests.simulation.store import File
from tests.simulation.workload import KEY_GROUPS, key_group_of

if TYPE_CHECKING:
    from tests.simulation.cluster import World
    from tests.simulation.taskmanager import Slot

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


class Captured(msgspec.Struct):
    """The synchronous half of a snapshot."""

    operators: tuple[OperatorSnapshot, ...]
    ended: bool
    failed: bool = False


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
        self.inbox = Inbox()
        self.inbox.condition = WakeUp(self.signal)  # type: ignore[assignment]
        for edge in descriptor.inputs:
            for _ in edge.producers:
                self.inbox.add_channel(1)
        self.producers: dict[int, Output] = {}
        """By input channel."""
        self.outputs = Outputs(self)
        self.started = self.ended = self.over = False
        self._drain = True
        self._failure: str | None = None
        self._cancelled = False
        self._recovered = ModelRecovered(self)
        outputs: Any = self.outputs
        self._barriers = TaskBarriers(
            descriptor, self.inbox, outputs, self._recovered, self, self._capture, self._now_ms
        )
        self._valve = WatermarkValve(len(self.inbox.channels))
        self._captured: dict[int, Captured] = {}
        self._in_flight: dict[int, list[InFlightHandle]] = {}
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

    def _now_ms(self) -> float:
        return self.kernel.now_ms

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
        self.inbox.post(message)

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
        for output in (*self.outputs.by_consumer.values(), *self.producers.values()):
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
        yield from self._run_recovered()
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
        self._recovered.load_model()
        self.world.checks.restored(self)
        expected = sum(len(output.consumers) for output in self.descriptor.outputs)
        while len(self.outputs.by_consumer) < expected:
            yield self.signal
            self._check()
        markers = {self.sink.uid: self.sink.markers} if self.sink is not None else {}
        self.world.checks.initialized(self)
        self.slot.send(m.TaskInitialized(self.attempt, markers))

    def _is_free(self) -> Steps:
        """Serves mail and barriers. True: the task may begin something new; else it has waited for room."""
        self._check()
        yield from self._serve_mail()
        if self._barriers.is_due:
            self._barriers.serve()
        if not self.outputs.has_room():
            yield from self._wait()
            return False
        if not self._recovered.remains:
            self._barriers.on_free()
        return True

    def _wait(self, at_most_ms: int | None = None) -> Steps:
        barriers_ms = self._barriers.wait_ms()
        if barriers_ms is not None:
            at_most_ms = int(barriers_ms) if at_most_ms is None else min(at_most_ms, int(barriers_ms))
        yield self.signal if at_most_ms is None else (self.signal, at_most_ms)

    def _run_recovered(self) -> Steps:
        """What was in flight comes before all input."""
        while self._recovered.remains:
            if not (yield from self._is_free()):
                continue
            taken = self._recovered.take()
            assert taken is not None
            restore, element = taken
            if isinstance(element, Batch):
                self._take_in(element)
            else:
                self._take_control(self._recovered.position(restore, element), element)  # type: ignore[arg-type]
            yield None

    def _run_source(self) -> Steps:
        source = self.source
        assert source is not None
        yield from self._serve_mail()
        while not source.ended:
            if not (yield from self._is_free()) or source.ended:
                continue
            if self._stop_id is None:
                for element in source.poll():
                    self._take_in(Batch(element) if isinstance(element, list) else element)  # type: ignore[arg-type]
            if self._stop_id is not None or not (source.readable or source.ended):
                yield from self._wait()
            else:
                yield from self._wait(self.kernel.below(self.world.pace_ms))

    def _run_inputs(self) -> Steps:
        while not self._barriers.all_ended:
            if not (yield from self._is_free()) or self._barriers.all_ended:
                continue
            if self._take_element():
                yield self.kernel.delay() + self.kernel.below(self.world.work_ms)
            else:
                yield from self._wait()

    def _end(self) -> Steps:
        if not self.descriptor.finished and self._drain:
            self._take_in(Watermark(MAX_WATERMARK_MS))
        self.ended = True
        self.outputs.broadcast(EndOfInput(self._drain))
        self.slot.send(m.InputsEnded(self.attempt))
        while not (self._final_committed and self.outputs.has_room()):
            yield from self._is_free()
            if self.descriptor.finished:
                while self.inbox.take() is not None:
                    pass
            elif self._take_element():
                continue
            if not (self._final_committed and self.outputs.has_room()):
                yield from self._wait()

    # -------------------------------------------------------------------------------------------------- elements

    def _take_element(self) -> bool:
        taken = self.inbox.take()
        if taken is None:
            return False
        channel, element = taken
        if isinstance(element, Batch):
            if channel in self.producers:
                self.producers[channel].taken()
            self._take_in(element)
        else:
            self._take_control(channel, element)
        return True

    def _take_control(self, channel: int, element: Element) -> None:
        if isinstance(element, Barrier):
            self._barriers.on_barrier(channel, element)
        elif isinstance(element, Watermark):
            self._take_in_all(self._valve.on_watermark(channel, element.timestamp_ms))
        elif isinstance(element, WatermarkStatus):
            self._take_in_all(self._valve.on_status(channel, element.idle))
        elif isinstance(element, EndOfInput):
            self._drain = self._drain and element.drain
            if element.drain:
                self._take_in_all(self._valve.on_ended(channel))
            self._barriers.on_ended(channel)

    def _take_in_all(self, elements: Iterable[Watermark | WatermarkStatus]) -> None:
        for element in elements:
            self._take_in(element)

    def _take_in(self, element: Any) -> None:
        """Through the chain, to the outputs. The data of a batch are the model's rows."""
        if isinstance(element, Batch):
            rows: Any = element.data
            if self.source is not None:
                self.world.checks.rows_read(self)
            self._emit(self.count.process(rows) if self.count is not None else rows)
            return
        if isinstance(element, Watermark):
            self.world.checks.watermark(self, self._watermark_ms, element.timestamp_ms)
            self._watermark_ms = element.timestamp_ms
            if self.count is not None:
                self._emit(self.count.advance(element.timestamp_ms))
        self.outputs.broadcast(element)

    def _emit(self, rows: list[Any]) -> None:
        if not rows:
            return
        if self.sink is not None:
            self.sink.write(rows)
            return
        owners = owners_of_groups(self.descriptor.outputs[0].consumer_parallelism)
        parts: dict[int, list[Any]] = {}
        for row in rows:
            parts.setdefault(owners[key_group_of(key_of(row))], []).append(row)
        for consumer, part in parts.items():
            self.outputs.by_consumer[consumer].offer(Batch(part))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------------ mail

    def _serve_mail(self) -> Steps:
        while self.inbox.has_mail:
            message: Any = self.inbox.take_mail()
            match message:
                case m.StartTasks():
                    self.started = True
                case m.AssignSplits(splits=splits):
                    assert self.source is not None
                    self.source.add_splits(splits)
                case m.TriggerCheckpoint(checkpoint_id=number, generation=generation, stop=stop):
                    timeout_ms = message.aligned_timeout_ms
                    barrier = Barrier(number, generation, stop, timeout_ms, message.full, message.committed_id)
                    self._barriers.on_trigger(barrier, is_busy=False)
                case m.AbortCheckpoint(checkpoint_id=number):
                    self._barriers.on_aborted(number)
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
            if self.inbox.has_mail:
                yield 0

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; if it was to be the last one, the task goes on as before it."""
        self._captured.pop(checkpoint_id, None)
        self._encode_later(self._forget_in_flight(checkpoint_id))
        if self._stop_id == checkpoint_id:
            self._forget_stop()

    def _forget_stop(self) -> None:
        if self._final_id == self._stop_id:
            self._final_id = None
        self._stop_id = None

    def _on_committed(self, number: int, *, by_sinks: bool) -> None:
        self._in_flight.pop(number, None)
        if self.count is not None and not by_sinks:
            self.count.committed(number)
        if by_sinks == (self.sink is not None) and self._final_id is not None and number >= self._final_id:
            self._final_committed = True

    # ------------------------------------------------------------------------------------------------- snapshots

    def _capture(self, barrier: Barrier) -> None:
        number = barrier.checkpoint_id
        self.kernel.log(self.slot, f"{self.name} takes its snapshot for {number}")
        operators: list[OperatorSnapshot] = []
        written: list[tuple[SegmentHandle, Any]] = []
        if self.source is not None:
            operators.append(OperatorSnapshot(self.source.uid, self.source.snapshot()))
        if self.count is not None:
            count = self.count
            count.committed(barrier.committed_id)
            file = count.snapshot(number, barrier.full)
            written = [file] if file is not None else []
            chain = count.chain(number)
            operators.append(OperatorSnapshot(count.uid, segments=chain, clocks=count.clocks, counters=count.counters))
        if self.sink is not None:
            operators.append(OperatorSnapshot(self.sink.uid, committables=self.sink.prepare_commit(number)))
        if self._stop_id is not None and self._stop_id < number:
            self._forget_stop()
        if barrier.stop:
            self._stop_id = number
        if (self.ended or barrier.stop) and self._final_id is None:
            self._final_id = number
        captured = self._captured[number] = Captured(tuple(operators), self.ended)
        self._encode_later(self._write(number, captured, written))

    def acknowledge(self, checkpoint_id: int, alignment_ms: float, in_flight: list[InFlight] | None = None) -> None:
        """A captured snapshot is complete; `in_flight`: what its barrier has overtaken, in order of processing."""
        captured = self._captured.pop(checkpoint_id)
        self._encode_later(self._acknowledge(checkpoint_id, captured, in_flight or []))

    def _encode_later(self, steps: Steps) -> None:
        self._encoder.append(steps)
        self._encoder_signal.notify()

    def _write(self, number: int, captured: Captured, written: list[tuple[SegmentHandle, Any]]) -> Steps:
        for handle, content in written:
            file = self.create(handle.path)
            yield None
            if self.world.write_fails():
                self.world.files.discard(file)
                self._not_written.add(handle.path)
            else:
                self.world.files.seal(file, content)
        yield None
        if any(s.path in self._not_written for o in captured.operators for s in o.segments):
            captured.failed = True
            failure = m.Failure("disk is full", "external", True)
            self.slot.send(m.CheckpointDeclined(self.attempt, number, failure))

    def _acknowledge(self, number: int, captured: Captured, in_flight: list[InFlight]) -> Steps:
        if captured.failed:
            return
        handles = self._in_flight.setdefault(number, []) if in_flight else []
        for index, channel in enumerate(in_flight):
            path = f"{self.attempt}-c{number}-{index}.arrow"
            file = self.create(path)
            yield None
            self.world.files.seal(file, list(channel.elements))
            handles.append(handle_of(channel, path))
        descriptor = self.descriptor
        snapshot = SubtaskSnapshot(
            descriptor.vertex.id,
            descriptor.vertex.uid,
            descriptor.subtask_index,
            descriptor.parallelism,
            captured.operators,
            captured.ended,
            tuple(handles),
        )
        self.world.checks.snapshot_taken(self, number, snapshot)
        yield None
        self.slot.send(m.CheckpointAcknowledged(self.attempt, number, snapshot))

    def _forget_in_flight(self, number: int) -> Steps:
        for handle in self._in_flight.pop(number, []):
            yield 0
            self.world.files.delete(self.directory + handle.path)

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
                self.inbox.post(SinksCommitted(number))
            yield self._commit_signal
