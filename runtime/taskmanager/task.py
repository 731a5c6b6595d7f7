"""One attempt of one subtask: the loop from input channels (or a source) over the operator chain to the writers.

Everything below `run` happens in the task's own thread; `deliver`, `cancel` and `metrics` may be called from
others. Life: INITIALIZING (open, restore, recover sinks, connect) → TaskInitialized → StartTasks → RUNNING → end of
input → a checkpoint taken after the end is committed → FINISHED.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from planner.ir import operators as ir
from runtime.checkpoint.files import open_files
from runtime.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Barrier,
    Batch,
    Control,
    Element,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)
from runtime.exchange.channel import Inbox, InputChannel, TaskCancelled
from runtime.exchange.writer import RecordWriter
from runtime.ids import AttemptId
from runtime.key_groups import key_group_range
from runtime.operators.chain import OperatorChain
from runtime.operators.collect import ResultBuffer
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.operators.registry import build_operators
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import (
    AbortCheckpoint,
    AssignSplits,
    CommitCheckpoint,
    EndSources,
    FromSlot,
    InputsEnded,
    StartTasks,
    TaskInitialized,
    TaskMetrics,
    TaskState,
    TaskStateChanged,
    TriggerCheckpoint,
)
from runtime.taskmanager.barrier_aligner import (
    AlignerCommand,
    BarrierAligner,
    BlockChannel,
    TakeSnapshot,
    UnblockChannel,
)
from runtime.taskmanager.failures import failure_of
from runtime.taskmanager.task_checkpoints import SinksCommitted, TaskCheckpoints
from runtime.taskmanager.task_timers import TaskTimers
from runtime.taskmanager.time_accounting import TimeAccount, Waiting
from runtime.taskmanager.watermark_valve import WatermarkValve

POLL_MS_MAX = 50
"""A source waits at most this long for rows before it looks at its mail."""

log = logging.getLogger(__name__)

ToTask = StartTasks | AssignSplits | TriggerCheckpoint | AbortCheckpoint | CommitCheckpoint | EndSources


class TaskServices(msgspec.Struct, frozen=True):
    """What a slot gives to each of its tasks. `on_ending` is called once, in the task's thread, when
    only closing is left to be done and the final state to be sent."""

    send: Callable[[FromSlot], None]
    on_ending: Callable[[Task], None]
    collect_garbage: Callable[[int], None]
    """Called at a barrier with the checkpoint's id, once the batch before it is released."""
    managed_bytes: int
    channel_bytes: int
    check_operators: bool = False
    monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000.0
    wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


def operator_context(descriptor: TaskDescriptor, services: TaskServices, node: ir.Operator) -> OperatorContext:
    """What an operator of the task is told of its surroundings."""
    first, last = key_group_range(descriptor.subtask_index, descriptor.parallelism, descriptor.vertex.max_parallelism)
    return OperatorContext(
        attempt=descriptor.attempt,
        parallelism=descriptor.parallelism,
        max_parallelism=descriptor.vertex.max_parallelism,
        key_groups=KeyGroupRange(first, last),
        settings=descriptor.settings,
        files=open_files(descriptor.checkpoint_directory),
        restore=next((r for r in descriptor.restore if r.uid == node.uid), None),
        managed_bytes=services.managed_bytes,
        wall_clock_ms=services.wall_clock_ms,
    )


class TaskOutputs:
    """The writers of a task's outgoing edges, as one."""

    def __init__(self, writers: list[RecordWriter], now_ms: Callable[[], float]) -> None:
        self._writers = writers
        self._now_ms = now_ms

    @property
    def are_open(self) -> bool:
        """Every consumer has announced its credit."""
        return all(writer.is_open for writer in self._writers)

    @property
    def records_out(self) -> int:
        return sum(writer.records_out for writer in self._writers)

    @property
    def bytes_out(self) -> int:
        return sum(writer.bytes_out for writer in self._writers)

    def emit(self, batch: Batch) -> None:
        for writer in self._writers:
            writer.write(batch)

    def broadcast(self, element: Control) -> None:
        for writer in self._writers:
            writer.broadcast(element)

    def time_to_flush_ms(self) -> float | None:
        """Until collected rows must go; None when there are none."""
        due = [d for writer in self._writers if (d := writer.flush_due_ms) is not None]
        return max(0.0, min(due) - self._now_ms()) if due else None

    def flush_due(self) -> None:
        now_ms = self._now_ms()
        for writer in self._writers:
            writer.flush_if_due(now_ms)


class Task:
    """Built with its inbox and input channels; `attach` gives it its outputs, `start` runs it."""

    def __init__(self, descriptor: TaskDescriptor, services: TaskServices) -> None:
        self.descriptor = descriptor
        self.attempt = descriptor.attempt
        self.now_ms = services.monotonic_ms
        self.inbox = Inbox()
        self.account = TimeAccount(services.monotonic_ms)
        self.progress = 0
        self.ending = False
        """Its last figures are reported; only the final state is left to be sent."""
        self._metrics_lock = threading.Lock()
        self._services = services
        for edge in descriptor.inputs:
            for _ in edge.producers:
                self.inbox.add_channel(services.channel_bytes)
        channel_count = len(self.inbox.channels)
        # A task restored as ended takes no barrier from its channels.
        self._aligner = BarrierAligner(0 if descriptor.finished else channel_count)
        self._valve = WatermarkValve(channel_count)
        self._outputs = TaskOutputs([], services.monotonic_ms)
        self._started = False
        self._ended = False
        self._drain = True
        self._cancelled = False
        self._watermark_ms = MIN_WATERMARK_MS
        self._records_in = 0
        self._thread = threading.Thread(target=self.run, name=str(self.attempt), daemon=True)
        environment = TaskEnvironment(
            descriptor=descriptor,
            monotonic_ms=services.monotonic_ms,
            wait_until=self.wait_backpressured,
            notify=self.inbox.notify,
            send=services.send,
            backpressured_ms=lambda: self.account.backpressured_ms,
        )
        operators = build_operators(
            descriptor.vertex.operators,
            lambda node: operator_context(descriptor, services, node),
            environment,
            checked=services.check_operators,
        )
        self.collect = operators.collect
        self._source = operators.source
        self._sinks = operators.sinks
        self._chain = OperatorChain(operators.links, lambda batch: self._outputs.emit(batch), self.inbox.check)
        self._checkpoints = TaskCheckpoints(descriptor, operators, self.inbox, services.send)
        self._timers = TaskTimers(self._chain, services.wall_clock_ms, lambda: self._checkpoints.stop_id is not None)

    # ------------------------------------------------------------------------------------- from other threads

    def attach(self, writers: list[RecordWriter]) -> None:
        """One writer per outgoing edge; before `start`."""
        self._outputs = TaskOutputs(writers, self.now_ms)

    def start(self) -> None:
        self._thread.start()

    def deliver(self, message: ToTask) -> None:
        """A message of the JobManager for this task."""
        if isinstance(message, CommitCheckpoint):
            self._checkpoints.commit(message.checkpoint_id)
        self.inbox.post(message)

    def cancel(self) -> None:
        """End at the next yield point or wait."""
        self._cancelled = True
        self.inbox.interrupt(TaskCancelled())

    @property
    def ended(self) -> bool:
        """The thread has reported its final state and is gone."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def input_channel(self, edge_id: int, producer: AttemptId) -> InputChannel:
        """The consumer's side of one incoming channel. Raises LookupError."""
        ends = [(edge.edge_id, end.attempt) for edge in self.descriptor.inputs for end in edge.producers]
        if (edge_id, producer) not in ends:
            raise LookupError(f"task {self.attempt} has no channel from {producer}")
        return self.inbox.channels[ends.index((edge_id, producer))]

    def metrics(self) -> TaskMetrics:
        with self._metrics_lock:
            shares = self.account.shares()
        operators = self._chain.counters()
        if self._source is not None:
            operators[self._source.uid] = self._source.counters()
        return TaskMetrics(
            attempt=self.attempt,
            records_in=self._records_in,
            records_out=self._outputs.records_out,
            bytes_in=sum(channel.bytes_received for channel in self.inbox.channels),
            bytes_out=self._outputs.bytes_out,
            busy_ms_per_second=shares.busy,
            backpressured_ms_per_second=shares.backpressured,
            idle_ms_per_second=shares.idle,
            cpu_ms_per_second=shares.cpu,
            watermark_ms=None if self._watermark_ms == MIN_WATERMARK_MS else self._watermark_ms,
            operators=operators,
        )

    # ------------------------------------------------------------------------------------------------ life cycle

    def run(self) -> None:
        """The thread's body: reports the final state exactly once."""
        self.account.bind_thread(threading.get_ident())
        final = TaskStateChanged(self.attempt, TaskState.FINISHED)
        try:
            self._live()
        except TaskCancelled:
            final = TaskStateChanged(self.attempt, TaskState.CANCELED)
        except Exception as error:  # Whatever it was, the JobManager decides what follows.
            final = TaskStateChanged(self.attempt, TaskState.FAILED, failure_of(error))
            if self._cancelled:
                final = TaskStateChanged(self.attempt, TaskState.CANCELED)
            else:
                log.warning("task %s failed", self.attempt, exc_info=error)
        # The last figures are taken while everything is still open.
        self.ending = True
        self._services.on_ending(self)
        self._close(final.state)
        self.account.unbind_thread()
        self._services.send(final)

    def _live(self) -> None:
        self._initialize()
        self._await_start()
        self._services.send(TaskStateChanged(self.attempt, TaskState.RUNNING))
        if self.descriptor.finished:
            self._drain = True
        elif self._source is not None:
            self._run_source()
        else:
            self._run_inputs()
        self._end()

    def _initialize(self) -> None:
        self._chain.open()
        if self._source is not None:
            self._source.open()
        with self.account.waiting(Waiting.IDLE):
            self.inbox.wait_until(lambda: self._outputs.are_open)
        markers = {sink.uid: sink.markers for sink in self._sinks}
        self._services.send(TaskInitialized(self.attempt, markers))

    def _await_start(self) -> None:
        while not self._started:
            self._serve_mail()
            if not self._started:
                self._wait(None)

    def _close(self, state: TaskState) -> None:
        self._checkpoints.close(finishing=state is TaskState.FINISHED)
        for close in (self._chain.close, self._source.close if self._source is not None else None):
            if close is not None:
                try:
                    close()
                except Exception as error:  # The attempt is over; its outcome stands.
                    log.warning("task %s: closing failed", self.attempt, exc_info=error)

    # ----------------------------------------------------------------------------------------------------- loops

    def _run_source(self) -> None:
        source = self._source
        assert source is not None
        self._serve_mail()
        while not source.ended:
            self.progress += 1
            self.inbox.check()
            wake_ms = self._timers.wake_ms(self._outputs.time_to_flush_ms())
            if self._checkpoints.stop_id is None:
                self._poll_source(int(POLL_MS_MAX if wake_ms is None else min(POLL_MS_MAX, wake_ms)))
            if self._checkpoints.stop_id is not None or not (source.readable or source.ended):
                self._wait(self._timers.wake_ms(self._outputs.time_to_flush_ms()))
            self._timers.serve()
            self._outputs.flush_due()
            self._serve_mail()

    def _poll_source(self, timeout_ms: int) -> None:
        """What the reader waited for rows counts as idle: its wall time without its CPU time."""
        assert self._source is not None
        now_ms, waiting = self.now_ms, True
        wall_ms, cpu_s = now_ms(), time.thread_time()
        for element in self._source.poll(timeout_ms):
            if waiting:
                waiting = False
                self.account.add_idle(now_ms() - wall_ms - (time.thread_time() - cpu_s) * 1000.0)
            self._take_in(element)
        if waiting:
            self.account.add_idle(now_ms() - wall_ms - (time.thread_time() - cpu_s) * 1000.0)

    def _run_inputs(self) -> None:
        while not self._aligner.all_ended:
            self.progress += 1
            self.inbox.check()
            self._serve_mail()
            if not self._take_element():
                self._wait(self._timers.wake_ms(self._outputs.time_to_flush_ms()))
            self._timers.serve()
            self._outputs.flush_due()

    def _take_element(self) -> bool:
        taken = self.inbox.take()
        if taken is None:
            return False
        channel, element = taken
        match element:
            case Barrier():
                self._perform(self._aligner.on_barrier(channel, element, self.now_ms()))
            case Watermark(timestamp_ms=timestamp_ms):
                self._take_in_all(self._valve.on_watermark(channel, timestamp_ms))
            case WatermarkStatus(idle=idle):
                self._take_in_all(self._valve.on_status(channel, idle))
            case EndOfInput(drain=drain):
                self._drain = self._drain and drain
                if drain:
                    self._take_in_all(self._valve.on_ended(channel))
                self._perform(self._aligner.on_ended(channel, self.now_ms()))
            case Batch():
                self._take_in(element)
        return True

    def _take_in_all(self, elements: list[Watermark | WatermarkStatus]) -> None:
        for element in elements:
            self._take_in(element)

    def _take_in(self, element: Element) -> None:
        """What the chain is to see: rows and the task's own event time."""
        match element:
            case Batch():
                self._records_in += element.row_count
                self._chain.process(element)
            case Watermark(timestamp_ms=timestamp_ms):
                self._watermark_ms = timestamp_ms
                self._chain.advance(timestamp_ms)
                self._outputs.broadcast(element)
            case _:
                self._outputs.broadcast(element)

    def _end(self) -> None:
        """Fire what is due, tell the consumers, then wait for the checkpoint that holds the end."""
        if not self.descriptor.finished:
            if self._drain:
                self._take_in(Watermark(MAX_WATERMARK_MS))
            self._chain.end(self._drain)
        self._ended = True
        self._outputs.broadcast(EndOfInput(self._drain))
        self._services.send(InputsEnded(self.attempt))
        while not self._checkpoints.final_committed:
            self.progress += 1
            self.inbox.check()
            self._serve_mail()
            if self.descriptor.finished:
                # A task restored as ended has seen all its input: what ended producers say again is dropped.
                while self.inbox.take() is not None:
                    pass
            elif self._take_element():
                continue
            if not self._checkpoints.final_committed:
                self._wait(None)
        if self.collect is not None:
            self._await_reader(self.collect.buffer)

    def _await_reader(self, results: ResultBuffer) -> None:
        """Until the last row is read; checkpoints are served meanwhile."""
        while not results.drained():
            self._serve_mail()
            with self.account.waiting(Waiting.IDLE):
                self.inbox.wait_until(lambda: self.inbox.has_mail or results.drained())

    # ----------------------------------------------------------------------------------------------------- waits

    def wait_backpressured(self, ready: Callable[[], bool]) -> None:
        """Block until `ready`; counts as backpressure."""
        with self.account.waiting(Waiting.BACKPRESSURED):
            self.inbox.wait_until(ready)

    def _wait(self, timeout_ms: float | None) -> None:
        with self.account.waiting(Waiting.IDLE):
            self.inbox.wait(None if timeout_ms is None else timeout_ms / 1000.0)

    # ------------------------------------------------------------------------------------------------------ mail

    def _serve_mail(self) -> None:
        while (message := self.inbox.take_mail()) is not None:
            match message:
                case StartTasks():
                    self._started = True
                case AssignSplits(splits=splits, all_assigned=all_assigned):
                    assert self._source is not None, "splits for a task without a source"
                    self._source.add_splits(splits, all_assigned)
                case TriggerCheckpoint(checkpoint_id=checkpoint_id, generation=generation, stop=stop):
                    self._perform(self._aligner.on_trigger(Barrier(checkpoint_id, generation, stop)))
                case AbortCheckpoint(checkpoint_id=checkpoint_id):
                    self._perform(self._aligner.on_aborted(checkpoint_id))
                    self._checkpoints.aborted(checkpoint_id)
                case EndSources():
                    if self._source is not None:
                        self._source.stop()
                case CommitCheckpoint(checkpoint_id=checkpoint_id):
                    if self._source is not None:
                        self._source.checkpoint_committed(checkpoint_id)
                    self._checkpoints.on_committed(checkpoint_id, by_sinks=False)
                    if self._checkpoints.stop_id == checkpoint_id and self._source is not None and not self._ended:
                        self._drain = False  # The job ends with this checkpoint: nothing may fire.
                        self._source.stop()
                case SinksCommitted(checkpoint_id=checkpoint_id):
                    self._checkpoints.on_committed(checkpoint_id, by_sinks=True)
                case _:
                    raise AssertionError(f"unexpected message {message!r}")

    def _perform(self, commands: list[AlignerCommand]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel=channel):
                    self.inbox.block(channel)
                case UnblockChannel(channel=channel):
                    self.inbox.unblock(channel)
                case TakeSnapshot(barrier=barrier, alignment_ms=alignment_ms):
                    self._chain.flush()
                    self._checkpoints.snapshot(
                        barrier.checkpoint_id,
                        ended=self._ended,
                        last=barrier.stop,
                        alignment_ms=alignment_ms,
                        then=lambda barrier=barrier: self._outputs.broadcast(barrier),  # type: ignore[misc]
                    )
                    self._services.collect_garbage(barrier.checkpoint_id)
