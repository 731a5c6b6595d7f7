"""Slot processes under a small supervisor, and the task descriptors they are given."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from planner.ir.job_graph import EdgeKind, Vertex
from planner.ir.operators import ChangelogMode, Operator, Schema
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.ids import AttemptId, JobId, SlotId
from runtime.protocol.codec import LENGTH_BYTES, decode_message, encode_frame, frame_length
from runtime.protocol.descriptors import (
    ChannelAddress,
    ChannelEnd,
    InputDescriptor,
    OutputDescriptor,
    TaskDescriptor,
)
from runtime.protocol.messages import (
    CancelTasks,
    CheckpointAcknowledged,
    CommitCheckpoint,
    DeployTasks,
    Message,
    SlotStarted,
    StartTasks,
    TaskInitialized,
    TaskState,
    TaskStateChanged,
    TriggerCheckpoint,
)

JOB = JobId("0123456789abcdef" * 2)
M = TypeVar("M")


def attempt(vertex_id: int, subtask_index: int = 0, number: int = 1, generation: int = 1) -> AttemptId:
    return AttemptId(JOB, generation, vertex_id, subtask_index, number)


class SlotProcess:
    """One real slot process. Use as a context manager: leaving it ends the process by its lifeline."""

    def __init__(self, name: str = "tm/0/1", *extra: str) -> None:
        self.slot_id = SlotId(name)
        self._control, control = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        arguments = ["--slot-id", name, "--control-fd", str(control.fileno()), "--lifeline-fd", str(lifeline)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "runtime.taskmanager.slot", *arguments, "--check-operators", *extra],
            pass_fds=(control.fileno(), lifeline),
            start_new_session=True,
        )
        control.close()
        os.close(lifeline)
        self.deployed: list[AttemptId] = []
        self.messages: list[Message] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> SlotProcess:
        self.port = self.wait(SlotStarted).data_port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._control.close()

    @property
    def address(self) -> ChannelAddress:
        return ChannelAddress(self.slot_id, "127.0.0.1", self.port)

    def cut_lifeline(self) -> int:
        """What a supervisor's death does. Returns the exit code."""
        os.close(self._lifeline)
        self._lifeline = -1
        return self._process.wait(10)

    def kill(self) -> None:
        self._process.kill()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def _read(self) -> None:
        # A killed process leaves what it had not read: its end of the connection is reset then.
        with suppress(ConnectionResetError), self._control.makefile("rb") as stream:
            while len(prefix := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
                message = decode_message(stream.read(frame_length(prefix)))
                with self._changed:
                    self.messages.append(message)
                    self._changed.notify_all()

    def send(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, DeployTasks):
                self.deployed += [task.attempt for task in message.tasks]
            self._control.sendall(encode_frame(message))

    def find(self, kind: type[M], where: Callable[[M], bool] = lambda _: True) -> list[M]:
        """Messages of a kind that have arrived so far."""
        return [m for m in self.messages if isinstance(m, kind) and where(m)]

    def wait(self, kind: type[M], where: Callable[[M], bool] = lambda _: True, timeout_s: float = 30.0) -> M:
        """The first message of a kind; fails at once when a task fails meanwhile."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not (found := self.find(kind, where)):
                failed = self.find(TaskStateChanged, lambda m: m.state is TaskState.FAILED)
                assert not failed or kind is TaskStateChanged, failed[0].failure
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"no {kind.__name__} among {self.messages}"
                self._changed.wait(left_s)
        return found[0]

    def wait_state(self, who: AttemptId, state: TaskState) -> TaskStateChanged:
        return self.wait(TaskStateChanged, lambda m: m.attempt == who and m.state is state)

    # ------------------------------------------------------------------------- what a JobManager says, in short

    def deploy(self, *tasks: TaskDescriptor, generation: int = 1) -> None:
        """Deploy and wait until every task is initialized."""
        self.send(DeployTasks(self.slot_id, JOB, generation, tasks))
        for task in tasks:
            self.wait(TaskInitialized, lambda m, who=task.attempt: m.attempt == who)  # type: ignore[misc]

    def start(self, generation: int = 1) -> None:
        self.send(StartTasks(self.slot_id, JOB, generation, tuple(self.deployed)))

    def trigger(self, checkpoint_id: int, *attempts: AttemptId, generation: int = 1) -> None:
        self.send(TriggerCheckpoint(self.slot_id, JOB, generation, checkpoint_id, attempts))

    def acknowledged(self, checkpoint_id: int, who: AttemptId) -> CheckpointAcknowledged:
        return self.wait(CheckpointAcknowledged, lambda m: m.checkpoint_id == checkpoint_id and m.attempt == who)

    def commit(self, checkpoint_id: int, generation: int = 1) -> None:
        self.send(CommitCheckpoint(self.slot_id, JOB, generation, checkpoint_id))

    def cancel(self, generation: int = 1) -> None:
        self.send(CancelTasks(self.slot_id, JOB, generation, tuple(self.deployed)))


def task(
    who: AttemptId,
    operators: tuple[Operator, ...],
    directory: str,
    *,
    inputs: tuple[InputDescriptor, ...] = (),
    outputs: tuple[OutputDescriptor, ...] = (),
    parallelism: int = 1,
    settings: dict[str, str] | None = None,
    restore: tuple[OperatorRestore, ...] = (),
    finished: bool = False,
) -> TaskDescriptor:
    vertex = Vertex(who.vertex_id, f"v{who.vertex_id}", f"vertex {who.vertex_id}", operators, parallelism)
    return TaskDescriptor(
        who,
        vertex,
        inputs,
        outputs,
        settings or {},
        directory,
        "incarnation-1",
        restore=restore,
        finished=finished,
    )


def edge_input(kind: EdgeKind, schema: Schema, *producers: tuple[AttemptId, ChannelAddress]) -> InputDescriptor:
    ends = tuple(ChannelEnd(who, address) for who, address in producers)
    return InputDescriptor(1, kind, schema, ChangelogMode.INSERT_ONLY, ends)


def edge_output(
    kind: EdgeKind, schema: Schema, *consumers: tuple[AttemptId, ChannelAddress], keys: tuple[int, ...] = ()
) -> OutputDescriptor:
    ends = tuple(ChannelEnd(who, address) for who, address in consumers)
    return OutputDescriptor(1, kind, schema, ChangelogMode.INSERT_ONLY, keys, len(ends), ends)
