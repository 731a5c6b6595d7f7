"""Snapshots and commits of one task, as `runtime.taskmanager.task_checkpoints`; its helper threads are fibers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from runtime.checkpoint.in_flight import InFlight
from runtime.checkpoint.snapshot import InFlightHandle, OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.elements import Barrier
from runtime.protocol import messages as m
from tests.simulation.channels import handle_of
from tests.simulation.kernel import Signal, Steps
from tests.simulation.sink import TaskFailed

if TYPE_CHECKING:
    from tests.simulation.task import Task


class SinksCommitted(msgspec.Struct, frozen=True):
    checkpoint_id: int


class Captured(msgspec.Struct):
    """The synchronous half of a snapshot."""

    operators: tuple[OperatorSnapshot, ...]
    ended: bool
    failed: bool = False


class TaskSnapshots:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._captured: dict[int, Captured] = {}
        self._in_flight: dict[int, list[InFlightHandle]] = {}
        self._encoder: deque[Steps] = deque()
        self._encoder_signal = Signal()
        self.commits: deque[int] = deque()
        self._commit_signal = Signal()
        self._final_id: int | None = None
        self.final_committed = False
        self.stop_id: int | None = None
        self._not_written: set[str] = set()

    def request_commit(self, checkpoint_id: int) -> None:
        self.commits.append(checkpoint_id)
        self._commit_signal.notify()

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; if it was to be the last one, the task goes on as before it."""
        self._captured.pop(checkpoint_id, None)
        self._encode_later(self._forget_in_flight(checkpoint_id))
        if self.stop_id == checkpoint_id:
            self._forget_stop()

    def _forget_stop(self) -> None:
        if self._final_id == self.stop_id:
            self._final_id = None
        self.stop_id = None

    def on_committed(self, number: int, *, by_sinks: bool) -> None:
        self._in_flight.pop(number, None)
        if self._task.count is not None and not by_sinks:
            self._task.count.committed(number)
        if by_sinks == (self._task.sink is not None) and self._final_id is not None and number >= self._final_id:
            self.final_committed = True

    def capture(self, barrier: Barrier) -> None:
        number = barrier.checkpoint_id
        self._task.kernel.log(self._task.slot, f"{self._task.name} takes its snapshot for {number}")
        operators: list[OperatorSnapshot] = []
        written: list[tuple[SegmentHandle, Any]] = []
        if self._task.source is not None:
            operators.append(OperatorSnapshot(self._task.source.uid, self._task.source.snapshot()))
        if self._task.count is not None:
            count = self._task.count
            count.committed(barrier.committed_id)
            file = count.snapshot(number, barrier.full)
            written = [file] if file is not None else []
            chain = count.chain(number)
            operators.append(OperatorSnapshot(count.uid, segments=chain, clocks=count.clocks, counters=count.counters))
        if self._task.sink is not None:
            operators.append(OperatorSnapshot(self._task.sink.uid, committables=self._task.sink.prepare_commit(number)))
        if self.stop_id is not None and self.stop_id < number:
            self._forget_stop()
        if barrier.stop:
            self.stop_id = number
        if (self._task.ended or barrier.stop) and self._final_id is None:
            self._final_id = number
        captured = self._captured[number] = Captured(tuple(operators), self._task.ended)
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
            file = self._task.create(handle.path)
            yield None
            if self._task.world.write_fails():
                self._task.world.files.discard(file)
                self._not_written.add(handle.path)
            else:
                self._task.world.files.seal(file, content)
        yield None
        if any(s.path in self._not_written for o in captured.operators for s in o.segments):
            captured.failed = True
            failure = m.Failure("disk is full", "external", True)
            self._task.slot.send(m.CheckpointDeclined(self._task.attempt, number, failure))

    def _acknowledge(self, number: int, captured: Captured, in_flight: list[InFlight]) -> Steps:
        if captured.failed:
            return
        handles = self._in_flight.setdefault(number, []) if in_flight else []
        for index, channel in enumerate(in_flight):
            path = f"{self._task.attempt}-c{number}-{index}.arrow"
            file = self._task.create(path)
            yield None
            self._task.world.files.seal(file, list(channel.elements))
            handles.append(handle_of(channel, path))
        descriptor = self._task.descriptor
        snapshot = SubtaskSnapshot(
            descriptor.vertex.id,
            descriptor.vertex.uid,
            descriptor.subtask_index,
            descriptor.parallelism,
            captured.operators,
            captured.ended,
            tuple(handles),
        )
        self._task.world.checks.snapshot_taken(self._task, number, snapshot)
        yield None
        self._task.slot.send(m.CheckpointAcknowledged(self._task.attempt, number, snapshot))

    def _forget_in_flight(self, number: int) -> Steps:
        for handle in self._in_flight.pop(number, []):
            yield 0
            self._task.world.files.delete(self._task.directory + handle.path)

    def encode(self) -> Steps:
        while not self._task.over:
            while self._encoder:
                yield from self._encoder.popleft()
            yield self._encoder_signal

    def commit(self) -> Steps:
        while True:
            while self.commits:
                number = self.commits.popleft()
                assert self._task.sink is not None
                yield None
                if self._task.over and not self.final_committed:
                    return
                try:
                    yield from self._task.sink.commit(number)
                except TaskFailed as error:
                    self._task.fail(str(error))
                    return
                self._task.slot.send(m.CheckpointCommitted(self._task.attempt, number))
                self._task.inbox.post(SinksCommitted(number))
            yield self._commit_signal
