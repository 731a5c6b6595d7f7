"""What a slot does (see `slot` for its process): builds tasks, wires their channels, passes messages to them, reports.

Threads: main reads the control channel; *exchange* owns the data sockets; *report* sends figures; one per task, and its
helpers.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy.ma  # noqa: F401 - Arrow asks for it at the first array made of numpy's: a tenth of a second.
import pyarrow as pa

from connectors.api import CheckpointFiles
from planner.ir.operators import (
    ChangelogNormalize,
    GlobalWindowAggregate,
    GroupAggregate,
    Operator,
    SinkMaterializer,
    is_mergeable,
)
from planner.ir.types import ChangelogMode
from runtime.checkpoint.files import open_files
from runtime.exchange.channel import OutputChannel
from runtime.exchange.credits import channel_capacity
from runtime.exchange.frames import channel_schema
from runtime.exchange.local import LocalChannel
from runtime.exchange.partitioner import partitioner
from runtime.exchange.remote import DataServer
from runtime.exchange.writer import RecordWriter
from runtime.ids import AttemptId, JobId, SlotId
from runtime.job_settings import LOCAL_RECOVERY, boolean, duration_ms
from runtime.protocol.descriptors import ChannelEnd, OutputDescriptor, TaskDescriptor
from runtime.protocol.messages import (
    AbortCheckpoint,
    AssignSplits,
    CancelTasks,
    CheckpointAcknowledged,
    CommitCheckpoint,
    DeployTasks,
    EndSources,
    FromSlot,
    Message,
    Ping,
    Pong,
    SlotReport,
    SlotStarted,
    StartTasks,
    TaskMetrics,
    TaskState,
    TaskStateChanged,
    TriggerCheckpoint,
)
from runtime.taskmanager.failures import failure_of
from runtime.taskmanager.local_copies import FilesWithCopies, LocalCopies
from runtime.taskmanager.process_memory import GarbageCollection
from runtime.taskmanager.slot_control import ControlChannel
from runtime.taskmanager.task import Task, TaskServices

log = logging.getLogger("runtime.slot")

BROKEN_EXIT_CODE = 70
"""The process ended itself after a mistake of ours; its supervisor reports the slot as lost."""
REPORT_INTERVAL_S = 2.0
NETWORK_BYTES = 64_000_000
STATEFUL = (GlobalWindowAggregate, GroupAggregate, ChangelogNormalize, SinkMaterializer)
"""Operators with keyed state (see `needs_managed_memory`)."""
BUFFER_TIMEOUT = "execution.buffer-timeout"
BUFFER_TIMEOUT_MS = 100


_OfGeneration = StartTasks | TriggerCheckpoint | CommitCheckpoint | AbortCheckpoint | EndSources | CancelTasks


def needs_managed_memory(operator: Operator) -> bool:
    """The slot's managed memory is shared equally among these operators of its tasks. An aggregation without keys that
    holds one row of fixed size leaves its share to the others."""
    if isinstance(operator, GroupAggregate) and not operator.keys:
        retracting = operator.input_changelog is not ChangelogMode.INSERT_ONLY
        return not all(is_mergeable(call, retracting=retracting) for call in operator.aggregates)
    return isinstance(operator, STATEFUL)


class SlotSettings(msgspec.Struct, frozen=True):
    """What the supervisor says on the command line. `managed_bytes` 0 = unlimited."""

    slot_id: SlotId
    host: str
    managed_bytes: int
    network_bytes: int = NETWORK_BYTES
    check_operators: bool = False
    local_state_directory: str = ""


class Slot:
    """Passes messages to tasks and wires their channels. Used by the main thread, except where said otherwise."""

    def __init__(self, settings: SlotSettings, control: ControlChannel, listener: socket.socket | None = None) -> None:
        """`listener`: the data port, where the supervisor has bound it already."""
        self._settings = settings
        self._control = control
        self._data = DataServer(settings.host, settings.slot_id, lambda _: os._exit(BROKEN_EXIT_CODE), listener)
        self._garbage = GarbageCollection()
        self._job_id: JobId | None = None
        self._generation = 0
        self._tasks: dict[AttemptId, Task] = {}
        self._started: set[AttemptId] = set()
        self._copies: LocalCopies | None = None
        self._files: dict[AttemptId, FilesWithCopies] = {}
        """Of tasks whose job keeps copies."""

    def run(self) -> None:
        """Until the supervisor closes the control channel."""
        self._data.start()
        self._control.send(SlotStarted(os.getpid(), self._data.port))
        threading.Thread(target=self._report, name="report", daemon=True).start()
        while (message := self._control.receive()) is not None:
            self._handle(message)

    def _handle(self, message: Message) -> None:
        match message:
            case Ping(number=number):
                progress = {str(attempt): task.progress for attempt, task in self._tasks.items()}
                self._control.send(Pong(number, progress))
            case DeployTasks():
                self._deploy(message)
            case AssignSplits(attempt=attempt):
                task = self._tasks.get(attempt)
                if task is not None:
                    task.deliver(message)
            case StartTasks(attempts=attempts):
                self._garbage.freeze()
                for task in self._current(message, attempts):
                    self._started.add(task.attempt)
                    task.deliver(message)
            case TriggerCheckpoint(attempts=attempts):
                for task in self._current(message, attempts):
                    task.deliver(message)
            case CommitCheckpoint() | AbortCheckpoint() | EndSources():
                # A task that restarts is still restoring what is committed: what the others are told is not for it.
                named = message.attempts if isinstance(message, EndSources) else ()
                for task in self._current(message, named or tuple(self._tasks)):
                    if task.attempt in self._started:
                        task.deliver(message)
                if isinstance(message, CommitCheckpoint) and self._copies is not None:
                    self._copies.committed(message.checkpoint_id)
            case CancelTasks(attempts=attempts):
                for task in self._current(message, attempts):
                    task.cancel()
            case _:
                log.warning("slot %s: dropped an unexpected %s", self._settings.slot_id, type(message).__name__)

    def _current(self, message: _OfGeneration, attempts: Sequence[AttemptId]) -> list[Task]:
        """Those of the named tasks that are here: none when the message is stale."""
        if message.job_id != self._job_id or message.generation != self._generation:
            log.info("slot %s: dropped a stale message of generation %d", self._settings.slot_id, message.generation)
            return []
        return [self._tasks[attempt] for attempt in attempts if attempt in self._tasks]

    # ------------------------------------------------------------------------------------------------ deployment

    def _deploy(self, message: DeployTasks) -> None:
        if self._job_id not in (None, message.job_id) or message.generation < self._generation:
            log.warning("slot %s: refused tasks of a stale generation or of another job", self._settings.slot_id)
            return
        if message.generation > self._generation:
            for task in self._tasks.values():
                task.cancel()
        self._tasks = {attempt: task for attempt, task in self._tasks.items() if not task.ended}
        self._started &= self._tasks.keys()
        self._job_id, self._generation = message.job_id, message.generation
        self._data.begin(message.job_id, message.generation, [d.attempt for d in message.tasks])
        services = self._services(message.tasks)
        made: list[Task] = []
        for descriptor in message.tasks:
            self._control.send(TaskStateChanged(descriptor.attempt, TaskState.INITIALIZING))
            try:
                self._keep_copies(descriptor)
                task = Task(descriptor, services)
            except Exception as error:  # A setting that cannot be used, an operator that cannot be built.
                self._fail(descriptor.attempt, error)
                continue
            self._tasks[descriptor.attempt] = task
            made.append(task)
        for task in made:
            self._expect_inputs(task)
        for task in made:
            try:
                task.attach([self._writer(task, output) for output in task.descriptor.outputs])
            except Exception as error:
                self._fail(task.attempt, error)
                del self._tasks[task.attempt]
                continue
            if task.collect is not None:
                self._data.readers.register(task.attempt, task.collect.buffer)
            task.start()

    def _fail(self, attempt: AttemptId, error: Exception) -> None:
        log.warning("task %s cannot be deployed", attempt, exc_info=error)
        self._control.send(TaskStateChanged(attempt, TaskState.FAILED, failure_of(error)))

    def _services(self, descriptors: Sequence[TaskDescriptor]) -> TaskServices:
        """A restarted task gets the share that it had: the others have theirs."""
        every = [*descriptors, *(task.descriptor for task in self._tasks.values())]
        channel_count = sum(len(edge.producers) for d in every for edge in d.inputs)
        stateful = sum(needs_managed_memory(o) for d in every for o in d.vertex.operators)
        return TaskServices(
            send=self._send,
            on_ending=self._on_ending,
            collect_garbage=self._garbage.at_barrier,
            managed_bytes=self._settings.managed_bytes // max(1, stateful),
            channel_bytes=channel_capacity(self._settings.network_bytes, channel_count),
            check_operators=self._settings.check_operators,
            files=self._files_of,
        )

    def _keep_copies(self, descriptor: TaskDescriptor) -> None:
        """If the job wants it, and there is a place."""
        if not self._settings.local_state_directory or not boolean(descriptor.settings, LOCAL_RECOVERY, False):
            return
        if self._copies is None:
            self._copies = LocalCopies(Path(self._settings.local_state_directory, descriptor.job_id))
        self._copies.deployed(descriptor)
        files = open_files(descriptor.checkpoint_directory)
        self._files = {attempt: found for attempt, found in self._files.items() if attempt in self._tasks}
        self._files[descriptor.attempt] = self._copies.over(files)

    def _files_of(self, descriptor: TaskDescriptor) -> CheckpointFiles:
        return self._files.get(descriptor.attempt) or open_files(descriptor.checkpoint_directory)

    def _expect_inputs(self, task: Task) -> None:
        channels = iter(task.inbox.channels)
        for edge in task.descriptor.inputs:
            schema = channel_schema(edge.schema, edge.changelog)
            for producer in edge.producers:
                channel = next(channels)
                if producer.address.slot_id != self._settings.slot_id:
                    key = (edge.edge_id, producer.attempt, task.attempt)
                    self._data.input(key, producer.address, schema, channel)

    def _writer(self, task: Task, output: OutputDescriptor) -> RecordWriter:
        schema = channel_schema(output.schema, output.changelog)
        channels = [self._output_channel(task, output.edge_id, consumer, schema) for consumer in output.consumers]
        descriptor = task.descriptor
        return RecordWriter(
            partitioner(
                output.kind,
                output.keys,
                len(output.consumers),
                descriptor.vertex.max_parallelism,
                descriptor.subtask_index,
            ),
            channels,
            task.wait_backpressured,
            task.now_ms,
            duration_ms(descriptor.settings, BUFFER_TIMEOUT, BUFFER_TIMEOUT_MS),
        )

    def _output_channel(self, task: Task, edge_id: int, end: ChannelEnd, schema: pa.Schema) -> OutputChannel:
        if end.address.slot_id != self._settings.slot_id:
            return self._data.output((edge_id, task.attempt, end.attempt), end.address, schema, task.inbox)
        consumer = self._tasks.get(end.attempt)
        if consumer is None:
            raise LookupError(f"task {end.attempt} is not in this slot")
        return LocalChannel(consumer.input_channel(edge_id, task.attempt), task.inbox)

    # ------------------------------------------------------------------------------------- from other threads

    def _send(self, message: FromSlot) -> None:
        if isinstance(message, CheckpointAcknowledged) and self._copies is not None:
            self._copies.acknowledged(message.attempt, message.checkpoint_id, message.snapshot)
        try:
            self._control.send(message)
        except OSError:
            pass  # The supervisor is gone; the lifeline ends this process.

    def _on_ending(self, task: Task) -> None:
        """The last figures go before the final state: the slot may be released right after that."""
        self._data.forget(task.attempt)
        self._send_report([task])

    def _report(self) -> None:
        while True:
            time.sleep(REPORT_INTERVAL_S)
            self._send_report([task for task in list(self._tasks.values()) if not task.ending])

    def _send_report(self, tasks: list[Task]) -> None:
        metrics = [self._metrics(task) for task in tasks]
        known = tuple(m for m in metrics if m is not None)
        self._send(SlotReport(self._settings.slot_id, self._garbage.at_report(), known))

    def _metrics(self, task: Task) -> TaskMetrics | None:
        try:
            return self._with_reads(task.metrics())
        except Exception:  # A gauge looked at something that its task is changing or has closed: next time.
            log.debug("no metrics of %s", task.attempt, exc_info=True)
            return None

    def _with_reads(self, metrics: TaskMetrics) -> TaskMetrics:
        files = self._files.get(metrics.attempt)
        if files is None or not metrics.operators:
            return metrics
        uid, figures = next(iter(metrics.operators.items()))
        reads = {"numLocalStateReads": float(files.reads), "numLocalStateFallbacks": float(files.fallbacks)}
        operators = {**metrics.operators, uid: {**figures, **reads}}
        return msgspec.structs.replace(metrics, operators=operators)


def serve(settings: SlotSettings, control_fd: int, listener: socket.socket | None) -> None:
    """Until the supervisor closes the control channel."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    Slot(settings, ControlChannel(control_fd), listener).run()
