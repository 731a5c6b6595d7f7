"""Snapshots and commits of one task: what is done in its own thread, and what in its helper threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from connectors.api import CheckpointFiles
from runtime.checkpoint.in_flight import InFlight, write
from runtime.checkpoint.snapshot import InFlightHandle, OperatorSnapshot, SubtaskSnapshot
from runtime.exchange.channel import Inbox
from runtime.operators.protocol import FinishSnapshot
from runtime.operators.registry import Operators
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import CheckpointAcknowledged, CheckpointCommitted, CheckpointDeclined, FromSlot
from runtime.taskmanager.failures import failure_of
from runtime.taskmanager.helper_thread import HelperThread

log = logging.getLogger(__name__)


class SinksCommitted(msgspec.Struct, frozen=True):
    """Mail from the commit thread: every sink of the task has committed the checkpoint."""

    checkpoint_id: int


class _Snapshot:
    """One snapshot between its capture and its acknowledgement."""

    def __init__(self, parts: list[FinishSnapshot], ended: bool, sync_ms: float) -> None:
        self.parts = parts
        self.ended = ended
        self.sync_ms = sync_ms
        self.async_ms = 0.0
        self.operators: tuple[OperatorSnapshot, ...] | None = None


class TaskCheckpoints:
    """Synchronous halves run in the task's thread; `encode` and `commit` threads do the rest. A snapshot is captured,
    encoded at once, and acknowledged when all that was in flight at it is known."""

    def __init__(
        self,
        descriptor: TaskDescriptor,
        operators: Operators,
        files: CheckpointFiles,
        inbox: Inbox,
        send: Callable[[FromSlot], None],
    ) -> None:
        self._descriptor = descriptor
        self._restored_as_ended = descriptor.ended_operators
        self._operators = operators
        self._files = files
        self._inbox = inbox
        self._send = send
        self._encoder = HelperThread(f"{descriptor.attempt} snapshots")
        self._committer = HelperThread(f"{descriptor.attempt} commits")
        self._commits = bool(operators.sinks) or operators.collect is not None
        self._captured: dict[int, _Snapshot] = {}
        self._in_flight: dict[int, list[InFlightHandle]] = {}
        """Files written for checkpoints whose outcome is not known; for the encoding thread."""
        self._final_id: int | None = None
        self._final_committed = False
        self.stop_id: int | None = None
        """The checkpoint that is to be the job's last: until its outcome is known no row follows and no timer fires."""

    @property
    def final_committed(self) -> bool:
        """A checkpoint taken after the end of input is committed, by the task's sinks too."""
        return self._final_committed

    def capture(self, checkpoint_id: int, *, ended: bool, last: bool) -> None:
        """The state of every operator as of now; a helper thread encodes it. `ended`: the task has seen the end of its
        input; `last`: it may end with this checkpoint, also without that."""
        started_s = time.monotonic()
        source = self._operators.source
        parts = [] if source is None else [source.snapshot(checkpoint_id)]
        parts += [link.snapshot(checkpoint_id) for link in self._operators.links]
        sync_ms = (time.monotonic() - started_s) * 1000.0
        if self.stop_id is not None and self.stop_id < checkpoint_id:
            # A newer barrier was faster than the word that the job does not stop after all.
            self._forget_stop()
        if last:
            self.stop_id = checkpoint_id
        if (ended or last) and self._final_id is None:
            self._final_id = checkpoint_id
        captured = self._captured[checkpoint_id] = _Snapshot(parts, ended, sync_ms)
        self._encoder.submit(lambda: self._encode(checkpoint_id, captured))

    def acknowledge(self, checkpoint_id: int, alignment_ms: float, in_flight: list[InFlight] | None = None) -> None:
        """Report the captured snapshot. `in_flight`: what an unaligned barrier has overtaken, in the order in which it
        is to be processed; None = the barrier has kept its place."""
        captured = self._captured.pop(checkpoint_id)
        self._encoder.submit(lambda: self._acknowledge(checkpoint_id, captured, alignment_ms, in_flight))

    def _encode(self, checkpoint_id: int, captured: _Snapshot) -> None:
        """In the helper thread."""
        started_s = time.monotonic()
        try:
            captured.operators = tuple(self._finished(finish, captured.ended) for finish in captured.parts)
        except Exception as error:  # The checkpoint fails, not the task.
            self._send(CheckpointDeclined(self._descriptor.attempt, checkpoint_id, failure_of(error)))
        captured.parts = []
        captured.async_ms = (time.monotonic() - started_s) * 1000.0

    def _finished(self, finish: FinishSnapshot, ended: bool) -> OperatorSnapshot:
        """An operator that is restored as ended stays so, whatever the task around it is at."""
        snapshot = finish()
        return msgspec.structs.replace(snapshot, ended=ended or snapshot.uid in self._restored_as_ended)

    def _acknowledge(
        self, checkpoint_id: int, captured: _Snapshot, alignment_ms: float, in_flight: list[InFlight] | None
    ) -> None:
        """In the helper thread."""
        descriptor = self._descriptor
        if captured.operators is None:
            return  # Declined.
        started_s = time.monotonic()
        try:
            handles = self._write_in_flight(checkpoint_id, in_flight or [])
        except Exception as error:  # The checkpoint fails, not the task.
            self._send(CheckpointDeclined(descriptor.attempt, checkpoint_id, failure_of(error)))
            return
        snapshot = SubtaskSnapshot(
            vertex_id=descriptor.vertex.id,
            vertex_uid=descriptor.vertex.uid,
            subtask_index=descriptor.subtask_index,
            parallelism=descriptor.parallelism,
            operators=captured.operators,
            finished=captured.ended,
            in_flight=tuple(handles),
        )
        async_ms = captured.async_ms + (time.monotonic() - started_s) * 1000.0
        self._send(
            CheckpointAcknowledged(
                descriptor.attempt,
                checkpoint_id,
                snapshot,
                captured.sync_ms,
                async_ms,
                alignment_ms,
                persisted_bytes=sum(handle.byte_size for handle in handles),
                is_unaligned=in_flight is not None,
            )
        )

    def _write_in_flight(self, checkpoint_id: int, in_flight: list[InFlight]) -> list[InFlightHandle]:
        written = self._in_flight.setdefault(checkpoint_id, []) if in_flight else []
        for number, channel in enumerate(in_flight):
            written.append(write(self._files, f"{self._descriptor.attempt}-c{checkpoint_id}-{number}.arrow", channel))
        return written

    def _forget_in_flight(self, checkpoint_id: int, *, delete: bool) -> None:
        """In the helper thread: the outcome of a checkpoint is known."""
        for handle in self._in_flight.pop(checkpoint_id, []):
            if delete:
                try:
                    self._files.delete(handle.path)
                except OSError as error:  # It is swept before the job's next start.
                    log.warning("%s is left behind", self._files.locate(handle.path), exc_info=error)

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; if it was to be the last one, the task goes on as before it."""
        self._captured.pop(checkpoint_id, None)
        self._encoder.submit(lambda: self._forget_in_flight(checkpoint_id, delete=True))
        if self.stop_id == checkpoint_id:
            self._forget_stop()

    def _forget_stop(self) -> None:
        if self._final_id == self.stop_id:
            self._final_id = None
        self.stop_id = None

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
        if self._in_flight:
            self._encoder.submit(lambda: self._forget_in_flight(checkpoint_id, delete=False))
        if by_sinks == self._commits and self._final_id is not None and checkpoint_id >= self._final_id:
            self._final_committed = True

    def close(self, *, finishing: bool) -> None:
        """Join the helper threads. A task that ends well lets them do what is waiting."""
        self._encoder.close(run_waiting=finishing)
        self._committer.close(run_waiting=finishing)
