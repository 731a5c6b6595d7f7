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

from connectors.api import CheckpointFiles
from planner.ir import operators as ir
from runtime import clock
from runtime.checkpoint.files import open_files
from runtime.checkpoint.notices import CheckpointNotices
from runtime.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Barrier,
    Element,
    EndOfInput,
    Watermark,
)
from runtime.exchange.channel import Inbox, InputChannel, TaskCancelled
from runtime.exchange.writer import RecordWriter
from runtime.ids import AttemptId
from runtime.key_groups import key_group_range
from runtime.operators.chain import OperatorChain
from runtime.operators.collect import ResultBuffer
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import KeyGroupRange, OperatorContext, SourceOperator
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
from runtime.taskmanager.failures import failure_of
from runtime.taskmanager.recovered_input import RecoveredInput
from runtime.taskmanager.task_barriers import TaskBarriers
from runtime.taskmanager.task_checkpoints import SinksCommitted, TaskCheckpoints
from runtime.taskmanager.task_outputs import TaskOutputs
from runtime.taskmanager.task_timers import TaskTimers
from runtime.taskmanager.task_work import TaskWork
from runtime.taskmanager.time_accounting import TimeAccount, Waiting

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
    wall_clock_ms: Callable[[], int] = clock.wall_clock_ms
    files: Callable[[TaskDescriptor], CheckpointFiles] = lambda task: open_files(task.checkpoint_directory)
    """Of the job's checkpoints."""


def operator_context(
    descriptor: TaskDescriptor, services: TaskServices, notices: CheckpointNotices, node: ir.Operator
) -> OperatorContext:
    """What an operator of the task is told of its surroundings."""
    first, last = key_group_range(descriptor.subtask_index, descriptor.parallelism, descriptor.vertex.max_parallelism)
    return OperatorContext(
        attempt=descriptor.attempt,
        parallelism=descriptor.parallelism,
        max_parallelism=descriptor.vertex.max_parallelism,
        key_groups=KeyGroupRange(first, last),
        settings=descriptor.settings,
        files=services.files(descriptor),
        restore=next((r for r in descriptor.restore if r.uid == node.uid), None),
        managed_bytes=services.managed_bytes,
        wall_clock_ms=services.wall_clock_ms,
        notices=notices,
    )


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
        self._started = False
        self._ended = False
        self._cancelled = False
        self._thread = threading.Thread(target=self.run, name=str(self.attempt), daemon=True)
        environment = TaskEnvironment(
            descriptor=descriptor,
            monotonic_ms=services.monotonic_ms,
            wait_until=self.wait_backpressured,
            notify=self.inbox.notify,
            check=self.inbox.check,
            send=services.send,
            backpressured_ms=lambda: self.account.backpressured_ms,
        )
        self._recovered = RecoveredInput(descriptor)
        self._notices = CheckpointNotices()
        operators = build_operators(
            descriptor.vertex.operators,
            lambda node: operator_context(descriptor, services, self._notices, node),
            environment,
            checked=services.check_operators,
            apart=self._recovered.entered_operators,
        )
        self.collect = operators.collect
        self._source = operators.source
        self._sinks = operators.sinks
        ended = descriptor.ended_operators
        self._chain = OperatorChain(operators.links, lambda batch: self._outputs.emit(batch), self.inbox.check, ended)
        self._files = services.files(descriptor)
        self._checkpoints = TaskCheckpoints(descriptor, operators, self._files, self.inbox, services.send)
        self._timers = TaskTimers(self._chain, services.wall_clock_ms, lambda: self._checkpoints.stop_id is not None)
        self._outputs: TaskOutputs
        self._barriers: TaskBarriers
        self._work: TaskWork
        self.attach([])

    # ------------------------------------------------------------------------------------- from other threads

    def attach(self, writers: list[RecordWriter]) -> None:
        """One writer per outgoing edge; before `start`."""
        buffer = self.collect.buffer if self.collect is not None else None
        self._outputs = TaskOutputs(self.descriptor, writers, self.now_ms, buffer.has_room if buffer else None)
        self._barriers = TaskBarriers(
            self.descriptor,
            self.inbox,
            self._outputs,
            self._recovered,
            self._checkpoints,
            self._capture,
            self.now_ms,
        )
        input_indexes = [edge.input_index for edge in self.descriptor.inputs for _ in edge.producers]
        self._work = TaskWork(self._chain, self.inbox, self._recovered, self._outputs, self._barriers, input_indexes)

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
        watermark_ms = self._work.watermark_ms
        return TaskMetrics(
            attempt=self.attempt,
            records_in=self._work.records_in,
            records_out=self._outputs.records_out,
            bytes_in=sum(channel.bytes_received for channel in self.inbox.channels),
            bytes_out=self._outputs.bytes_out,
            busy_ms_per_second=shares.busy,
            backpressured_ms_per_second=shares.backpressured,
            idle_ms_per_second=shares.idle,
            cpu_ms_per_second=shares.cpu,
            watermark_ms=None if watermark_ms == MIN_WATERMARK_MS else watermark_ms,
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
        while not self._started:
            self._serve_mail()
            if not self._started:
                with self.account.waiting(Waiting.IDLE):
                    self.inbox.wait_until(lambda: self.inbox.has_mail)
        self._services.send(TaskStateChanged(self.attempt, TaskState.RUNNING))
        # What was in flight comes before all input and timers.
        while self._recovered.remains:
            if self._is_free():
                self._work.take_recovered()
        self._finish_work()
        if self.descriptor.finished:
            pass
        elif self._source is not None:
            self._run_source(self._source)
        else:
            self._run_inputs()
        self._end()

    def _initialize(self) -> None:
        self._recovered.load(self._files)
        self._chain.open()
        if self._source is not None:
            self._source.open()
        with self.account.waiting(Waiting.IDLE):
            self.inbox.wait_until(lambda: self._outputs.are_open)
        markers = {sink.uid: sink.markers for sink in self._sinks}
        self._services.send(TaskInitialized(self.attempt, markers))

    def _close(self, state: TaskState) -> None:
        self._checkpoints.close(finishing=state is TaskState.FINISHED)
        for close in (self._chain.close, self._source.close if self._source is not None else None):
            if close is not None:
                try:
                    close()
                except Exception as error:  # The attempt is over; its outcome stands.
                    log.warning("task %s: closing failed", self.attempt, exc_info=error)

    # ----------------------------------------------------------------------------------------------------- loops

    def _serve(self) -> None:
        """A turn of every loop begins here, at a yield point: mail and barriers."""
        self.progress += 1
        self.inbox.check()
        self._serve_mail()
        if self._barriers.is_due:
            self._barriers.serve()

    def _is_free(self) -> bool:
        """Serves; what was begun goes on. True: the task may begin something new. Else it has waited for room."""
        self._serve()
        if not self._outputs.has_room():
            with self.account.waiting(Waiting.BACKPRESSURED):
                self.inbox.wait_for_room(self._outputs.can_go_on, _seconds(self._barriers.wait_ms()))
            return False
        if self._work.is_unfinished:
            self._work.go_on()
        elif not self._recovered.remains:
            self._barriers.on_free()
        return not self._work.is_unfinished

    def _finish_work(self) -> None:
        while self._work.is_unfinished:
            self._is_free()

    def _run_source(self, source: SourceOperator) -> None:
        self._serve_mail()
        while not source.ended:
            if not self._is_free() or source.ended:
                continue
            wake_ms = self._wake_ms()
            if self._checkpoints.stop_id is None:
                self._poll_source(source, int(POLL_MS_MAX if wake_ms is None else min(POLL_MS_MAX, wake_ms)))
            if self._checkpoints.stop_id is not None or not (source.readable or source.ended):
                self._wait(self._wake_ms())
            self._work.fire(self._timers.due())
            self._outputs.flush_due()

    def _poll_source(self, source: SourceOperator, timeout_ms: int) -> None:
        """What the reader waited for rows counts as idle: its wall time without its CPU time."""
        now_ms, waiting = self.now_ms, True
        wall_ms, cpu_s = now_ms(), time.thread_time()
        last: Element | None = None
        for element in source.poll(timeout_ms):
            if waiting:
                waiting = False
                self.account.add_idle(now_ms() - wall_ms - (time.thread_time() - cpu_s) * 1000.0)
            if last is not None:
                self._work.take_in(last)
                # The source's position may be taken behind the last element of a poll only.
                self._work.finish()
            last = element
        if waiting:
            self.account.add_idle(now_ms() - wall_ms - (time.thread_time() - cpu_s) * 1000.0)
        if last is not None:
            self._work.take_in(last)

    def _run_inputs(self) -> None:
        while not self._barriers.all_ended:
            if not self._is_free() or self._barriers.all_ended:
                continue
            if not self._work.take_input():
                self._wait(self._wake_ms())
            self._work.fire(self._timers.due())
            self._outputs.flush_due()
        self._finish_work()

    def _end(self) -> None:
        """Fire what is due, tell the consumers, then wait for the checkpoint that holds the end."""
        self._finish_work()
        if not self.descriptor.finished:
            if self._work.drains:
                self._work.take_in(Watermark(MAX_WATERMARK_MS))
                self._finish_work()
            self._chain.end(self._work.drains)
        self._ended = True
        self._outputs.broadcast(EndOfInput(self._work.drains))
        self._services.send(InputsEnded(self.attempt))
        while not (self._checkpoints.final_committed and self._outputs.all_sent()):
            self._serve()
            self._outputs.has_room()
            if self.descriptor.finished:
                # A task restored as ended has seen all its input: what ended producers say again is dropped.
                while self.inbox.take() is not None:
                    pass
            elif self._work.take_input():
                continue
            if not (self._checkpoints.final_committed and self._outputs.all_sent()):
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

    def _wake_ms(self) -> float | None:
        """Until timers are due or collected rows must go."""
        return self._timers.wake_ms(self._outputs.time_to_flush_ms())

    def _wait(self, timeout_ms: float | None) -> None:
        """For mail, input, barriers, and credit for what waits for it."""
        barriers_ms = self._barriers.wait_ms()
        if barriers_ms is not None:
            timeout_ms = barriers_ms if timeout_ms is None else min(timeout_ms, barriers_ms)
        with self.account.waiting(Waiting.IDLE):
            self.inbox.wait(_seconds(timeout_ms), self._outputs.can_send)

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
                    barrier = Barrier(
                        checkpoint_id,
                        generation,
                        stop,
                        message.aligned_timeout_ms,
                        full=message.full,
                        committed_id=message.committed_id,
                    )
                    self._barriers.on_trigger(barrier, is_busy=self._work.is_unfinished)
                case AbortCheckpoint(checkpoint_id=checkpoint_id):
                    self._barriers.on_aborted(checkpoint_id)
                case EndSources():
                    if self._source is not None:
                        self._source.stop()
                case CommitCheckpoint(checkpoint_id=checkpoint_id):
                    if self._source is not None:
                        self._source.checkpoint_committed(checkpoint_id)
                    self._notices.committed(checkpoint_id)
                    self._checkpoints.on_committed(checkpoint_id, by_sinks=False)
                    if self._checkpoints.stop_id == checkpoint_id and self._source is not None and not self._ended:
                        self._work.drains = False  # The job ends with this checkpoint: nothing may fire.
                        self._source.stop()
                case SinksCommitted(checkpoint_id=checkpoint_id):
                    self._checkpoints.on_committed(checkpoint_id, by_sinks=True)
                case _:
                    raise AssertionError(f"unexpected message {message!r}")

    def _capture(self, barrier: Barrier) -> None:
        self._chain.flush()
        self._notices.at_barrier(barrier.checkpoint_id, full=barrier.full, committed_id=barrier.committed_id)
        self._checkpoints.capture(barrier.checkpoint_id, ended=self._ended, last=barrier.stop)
        self._services.collect_garbage(barrier.checkpoint_id)


def _seconds(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000.0
