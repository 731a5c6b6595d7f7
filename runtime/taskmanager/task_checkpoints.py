"""Snapshots and commits of one task: what is done in its own thread, and what in its helper threads."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.exchange.channel import Inbox
from runtime.operators.protocol import FinishSnapshot
from runtime.operators.registry import Operators
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import CheckpointAcknowledged, CheckpointCommitted, CheckpointDeclined, FromSlot
from runtime.taskmanager.failures import failure_of
from runtime.taskmanager.helper_thread import HelperThread


class SinksCommitted(msgspec.Struct, frozen=True):
    """Mail from the commit thread: every sink of the task has committed the checkpoint."""

    checkpoint_id: int


class TaskCheckpoints:
    """Synchronous halves run in the task's thread; `encode` and `commit` threads do the rest."""

    def __init__(
        self, descriptor: TaskDescriptor, operators: Operators, inbox: Inbox, send: Callable[[FromSlot], None]
    ) -> None:
        self._descriptor = descriptor
        self._operators = operators
        self._inbox = inbox
        self._send = send
        self._encoder = HelperThread(f"{descriptor.attempt} snapshots")
        self._committer = HelperThread(f"{descriptor.attempt} commits")
        self._commits = bool(operators.sinks) or operators.collect is not None
        self._final_id: int | None = None
        self._final_committed = False
        self.stop_id: int | None = None
        """The checkpoint that is to be the job's last: until its outcome is known no row follows and no timer fires."""

    @property
    def final_committed(self) -> bool:
        """A checkpoint taken after the end of input is committed, by the task's sinks too."""
        return self._final_committed

    def snapshot(
        self, checkpoint_id: int, *, ended: bool, last: bool, alignment_ms: float, then: Callable[[], None]
    ) -> None:
        """Capture every operator, call `then` (the barrier goes on), leave encoding to the helper thread. `ended`: the
        task has seen the end of its input; `last`: it may end with this checkpoint, also without that."""
        started_s = time.monotonic()
        source = self._operators.source
        parts = [] if source is None else [source.snapshot(checkpoint_id)]
        parts += [link.snapshot(checkpoint_id) for link in self._operators.links]
        sync_ms = (time.monotonic() - started_s) * 1000.0
        if last:
            self.stop_id = checkpoint_id
        if (ended or last) and self._final_id is None:
            self._final_id = checkpoint_id
        self._encoder.submit(lambda: self._acknowledge(checkpoint_id, parts, ended, sync_ms, alignment_ms))
        then()

    def _acknowledge(
        self, checkpoint_id: int, parts: list[FinishSnapshot], ended: bool, sync_ms: float, alignment_ms: float
    ) -> None:
        """In the helper thread."""
        descriptor = self._descriptor
        started_s = time.monotonic()
        try:
            operators = tuple(finish() for finish in parts)
        except Exception as error:  # The checkpoint fails, not the task.
            self._send(CheckpointDeclined(descriptor.attempt, checkpoint_id, failure_of(error)))
            return
        snapshot = SubtaskSnapshot(
            vertex_id=descriptor.vertex.id,
            vertex_uid=descriptor.vertex.uid,
            subtask_index=descriptor.subtask_index,
            parallelism=descriptor.parallelism,
            operators=operators,
            finished=ended,
        )
        async_ms = (time.monotonic() - started_s) * 1000.0
        self._send(CheckpointAcknowledged(descriptor.attempt, checkpoint_id, snapshot, sync_ms, async_ms, alignment_ms))

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; if it was to be the last one, the task goes on as before it."""
        if self.stop_id == checkpoint_id:
            self.stop_id = None
            if self._final_id == checkpoint_id:
                self._final_id = None

    def commit(self, checkpoint_id: int) -> None:
        """From the control thread: the checkpoint is durable. Sinks commit in the commit thread."""
        if self._commits:
            self._committer.submit(lambda: self._commit_sinks(checkpoint_id))

    def _commit_sinks(self, checkpoint_id: int) -> None:
        try:
            for sink in self._operators.sinks:
                sink.commit(checkpoint_id)
        except Exception as error:  # The outcome is in doubt: the attempt ends, recovery decides.
            self._inbox.interrupt(error)
            return
        self._send(CheckpointCommitted(self._descriptor.attempt, checkpoint_id))
        self._inbox.post(SinksCommitted(checkpoint_id))

    def on_committed(self, checkpoint_id: int, *, by_sinks: bool) -> None:
        """Mail in the task's thread: the checkpoint is durable, or the task's sinks have committed it."""
        if by_sinks == self._commits and self._final_id is not None and checkpoint_id >= self._final_id:
            self._final_committed = True

    def close(self, *, finishing: bool) -> None:
        """Join the helper threads. A task that ends well lets them do what is waiting."""
        self._encoder.close(run_waiting=finishing)
        self._committer.close(run_waiting=finishing)
