"""What a task does about its barriers: hears of them, performs the aligner's commands, and knows what is in flight.

A snapshot of the task is complete when its state is captured, every barrier has arrived, and its own barrier has left
its output queues: by being sent in its place (aligned), or by overtaking what was before it (unaligned). Everything
here runs in the task's thread, at its yield points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from runtime.checkpoint.in_flight import ChannelRef, InFlight
from runtime.elements import Barrier, Batch, Element
from runtime.exchange.channel import Inbox
from runtime.exchange.frames import channel_schema
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager.barrier_aligner import (
    AlignerCommand,
    BarrierAligner,
    BlockChannel,
    CompleteRecording,
    DropRecording,
    OvertakeChannel,
    TakeSnapshot,
    UnblockChannel,
)
from runtime.taskmanager.recovered_input import RecoveredInput
from runtime.taskmanager.task_outputs import TaskOutputs


class Snapshots(Protocol):
    """What is done with snapshots."""

    def acknowledge(self, checkpoint_id: int, alignment_ms: float, in_flight: list[InFlight] | None = None) -> None:
        """A captured snapshot is complete. `in_flight` in order of processing; None: its barrier kept its place."""

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint is given up."""


class _Leaving(msgspec.Struct, frozen=True):
    """An aligned barrier that waits in output queues, until when it may."""

    barrier: Barrier
    alignment_ms: float
    deadline_ms: float
    in_flight: list[InFlight]


class TaskBarriers:
    """`capture` takes the state of every operator for the barrier; nothing may be held back in the chain by then."""

    def __init__(
        self,
        descriptor: TaskDescriptor,
        inbox: Inbox,
        outputs: TaskOutputs,
        recovered: RecoveredInput,
        snapshots: Snapshots,
        capture: Callable[[Barrier], None],
        now_ms: Callable[[], float],
    ) -> None:
        self._descriptor = descriptor
        self._inbox = inbox
        self._outputs = outputs
        self._recovered = recovered
        self._snapshots = snapshots
        self._capture = capture
        self._now_ms = now_ms
        # A task restored as ended takes no barrier from its channels.
        self._aligner = BarrierAligner(0 if descriptor.finished else len(inbox.channels))
        self._overtaken: list[InFlight] = []
        """By the barrier of the snapshot that is being recorded: what had been recovered, and outputs."""
        self._leaving: _Leaving | None = None
        self._postponed: Barrier | None = None
        """Triggered, but it may hold nothing in flight, or nothing may follow it: it waits until the task is free."""

    @property
    def all_ended(self) -> bool:
        return self._aligner.all_ended

    # ------------------------------------------------------------------------------------------------------- events

    def on_barrier(self, channel: int, barrier: Barrier) -> None:
        """A barrier is taken from a channel, in its place."""
        self._perform(self._aligner.on_barrier(channel, barrier, self._now_ms()))

    def on_ended(self, channel: int) -> None:
        """A channel's end is taken from it and dealt with."""
        self._perform(self._aligner.on_ended(channel, self._now_ms()))

    def on_trigger(self, barrier: Barrier, *, is_busy: bool) -> None:
        """From the JobManager. `is_busy`: the task has not put out all of what it is at."""
        if (barrier.aligned_timeout_ms is None and self._recovered.remains) or (barrier.stop and is_busy):
            self._postponed = barrier
        else:
            self._perform(self._aligner.on_trigger(barrier))

    def on_free(self) -> None:
        """The task has put out everything, and everything that was in flight at the restore is processed."""
        if self._postponed is not None:
            barrier, self._postponed = self._postponed, None
            self._perform(self._aligner.on_trigger(barrier))

    def on_aborted(self, checkpoint_id: int) -> None:
        """From the JobManager: no trace of the checkpoint stays."""
        self._perform(self._aligner.on_aborted(checkpoint_id))
        if self._postponed is not None and self._postponed.checkpoint_id <= checkpoint_id:
            self._postponed = None
        self._outputs.withdraw(checkpoint_id)
        if self._leaving is not None and self._leaving.barrier.checkpoint_id <= checkpoint_id:
            self._leaving = None
        self._snapshots.aborted(checkpoint_id)

    @property
    def is_due(self) -> bool:
        """Whether `serve` has something to do."""
        if self._inbox.has_announced or (self._leaving is not None and not self._is_held(self._leaving)):
            return True
        deadline_ms = self._deadline_ms
        return deadline_ms is not None and deadline_ms <= self._now_ms()

    def wait_ms(self) -> float | None:
        """Until `serve` must be called; None when only an announcement can make it so."""
        if self._leaving is not None and not self._is_held(self._leaving):
            return 0.0
        deadline_ms = self._deadline_ms
        return None if deadline_ms is None else max(0.0, deadline_ms - self._now_ms())

    @property
    def _deadline_ms(self) -> float | None:
        aligning_ms = self._aligner.deadline_ms
        if self._leaving is None:
            return aligning_ms
        return self._leaving.deadline_ms if aligning_ms is None else min(aligning_ms, self._leaving.deadline_ms)

    def serve(self) -> None:
        """Barriers that have joined a queue, and time-outs."""
        while (announced := self._inbox.take_announced()) is not None:
            channel, element = announced
            if isinstance(element, Barrier):
                self._perform(self._aligner.on_announced(channel, element, self._now_ms()))
            else:
                self._perform(self._aligner.on_end_announced(channel, self._now_ms()))
        if self._aligner.deadline_ms is not None:
            self._perform(self._aligner.on_time(self._now_ms()))
        if self._leaving is not None:
            self._serve_leaving(self._leaving)

    # ----------------------------------------------------------------------------------------------------- commands

    def _perform(self, commands: list[AlignerCommand]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel=channel):
                    self._inbox.block(channel)
                case UnblockChannel(channel=channel):
                    self._inbox.unblock(channel)
                case OvertakeChannel(channel=channel, checkpoint_id=checkpoint_id):
                    self._inbox.overtake(channel, checkpoint_id)
                case TakeSnapshot():
                    self._snapshot(command)
                case CompleteRecording(checkpoint_id=checkpoint_id, alignment_ms=alignment_ms):
                    in_flight, self._overtaken = self._with_inputs(self._overtaken), []
                    self._snapshots.acknowledge(checkpoint_id, alignment_ms, in_flight)
                case DropRecording():
                    self._inbox.end_recording()
                    self._overtaken = []

    def _snapshot(self, command: TakeSnapshot) -> None:
        barrier, self._leaving = command.barrier, None
        self._capture(barrier)
        if command.is_unaligned:
            self._overtaken = self._recovered.rest() + self._outputs.overtake(barrier)
            return
        # A source is triggered while its chain may still be at work on what was recovered.
        in_flight = self._recovered.rest()
        self._outputs.broadcast(barrier)
        if barrier.aligned_timeout_ms is not None and self._outputs.holds_barrier(barrier.checkpoint_id):
            deadline_ms = self._now_ms() + barrier.aligned_timeout_ms
            self._leaving = _Leaving(barrier, command.alignment_ms, deadline_ms, in_flight)
        else:
            self._snapshots.acknowledge(barrier.checkpoint_id, command.alignment_ms, in_flight or None)

    def _is_held(self, leaving: _Leaving) -> bool:
        return self._outputs.holds_barrier(leaving.barrier.checkpoint_id)

    def _serve_leaving(self, leaving: _Leaving) -> None:
        checkpoint_id = leaving.barrier.checkpoint_id
        if not self._is_held(leaving):
            self._leaving = None
            self._snapshots.acknowledge(checkpoint_id, leaving.alignment_ms, leaving.in_flight or None)
        elif leaving.deadline_ms <= self._now_ms():
            self._leaving = None
            overtaken = self._outputs.release(msgspec.structs.replace(leaving.barrier, aligned_timeout_ms=0.0))
            self._snapshots.acknowledge(checkpoint_id, leaving.alignment_ms, leaving.in_flight + overtaken)

    def _with_inputs(self, others: list[InFlight]) -> list[InFlight]:
        """What was recovered is older than what the input channels had; the outputs are other channels."""
        recorded = iter(self._inbox.end_recording())
        found: list[InFlight] = []
        for edge in self._descriptor.inputs:
            for producer in edge.producers:
                elements: list[Element] = next(recorded)
                if any(isinstance(element, Batch) for element in elements):
                    channel = ChannelRef(
                        edge.edge_id,
                        producer.attempt.subtask_index,
                        self._descriptor.subtask_index,
                        edge.source_uid,
                        self._descriptor.vertex.operators[0].uid,
                        channel_schema(edge.schema, edge.changelog),
                        edge.input_index,
                    )
                    found.append(InFlight(channel, elements))
        return others + found
