"""One attempt of one subtask: the loop of `runtime.taskmanager.task` as fibers of its slot's process.

Aligner and watermark valve are the runtime's own; the order of what happens at a barrier, at the end of input, at a
commit and at an abort follows `Task` and `TaskCheckpoints`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from connectors.errors import ConnectorError
from runtime import key_groups
from runtime.elements import MAX_WATERMARK_MS, Barrier, Batch, Element, EndOfInput, Watermark, WatermarkStatus
from runtime.exchange.channel import Inbox
from runtime.ids import AttemptId
from runtime.protocol import messages as m
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager.task_barriers import TaskBarriers
from runtime.taskmanager.watermark_valve import WatermarkValve
from tests.simulation.channels import ModelRecovered, Output, Outputs, WakeUp, key_of
from tests.simulation.kernel import Kernel, Link, Signal, Steps, Violation
from tests.simulation.operators import CountOperator, SourceOperator
from tests.simulation.sink import SinkOperator, TaskFailed
from tests.simulation.snapshots import SinksCommitted, TaskSnapshots
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
        self.snapshots = TaskSnapshots(self)
        self._recovered = ModelRecovered(self)
        outputs: Any = self.outputs
        self._barriers = TaskBarriers(
            descriptor,
            self.inbox,
            outputs,
            self._recovered,
            self.snapshots,
            self.snapshots.capture,
            lambda: self.kernel.now_ms,
        )
        self._valve = WatermarkValve(len(self.inbox.channels))
        self._watermark_ms: int | None = None
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
            if self.world.checks.is_over(self):
                raise TaskFailed(f"{path} is gone") from error
            raise Violation(f"{self.name} needs {path}: {error!r}") from error

    def relative(self, path: str) -> str:
        return path.removeprefix(self.directory)

    # ---------------------------------------------------------------------------------------------- from outside

    def start(self) -> None:
        self.slot.start(self._run())
        self.slot.start(self.snapshots.encode())
        if any(is_sink(o.uid) for o in self.descriptor.vertex.operators):
            self.slot.start(self.snapshots.commit())

    def deliver(self, message: Any) -> None:
        if isinstance(message, m.CommitCheckpoint) and self.sink is not None:
            self.snapshots.request_commit(message.checkpoint_id)
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
        if not (self.over or (self.snapshots.final_committed and self.ended)):
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
            for output in (*self.outputs.by_consumer.values(), *self.producers.values()):
                if output.link is not None:
                    output.link.close(self.slot)
        self.slot.send(m.TaskStateChanged(self.attempt, state, failure))

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
        self._check()

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
            if self.snapshots.stop_id is None:
                for element in source.poll():
                    self._take_in(Batch(element) if isinstance(element, list) else element)  # type: ignore[arg-type]
            if self.snapshots.stop_id is not None or not (source.readable or source.ended):
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
        while not (self.snapshots.final_committed and self.outputs.has_room()):
            yield from self._is_free()
            if self.descriptor.finished:
                while self.inbox.take() is not None:
                    pass
            elif self._take_element():
                continue
            if not (self.snapshots.final_committed and self.outputs.has_room()):
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
                    self.snapshots.on_committed(number, by_sinks=False)
                    if self.snapshots.stop_id == number and self.source is not None and not self.ended:
                        self._drain = False
                        self.source.stop()
                case SinksCommitted(checkpoint_id=number):
                    self.snapshots.on_committed(number, by_sinks=True)
            if self.inbox.has_mail:
                yield 0
