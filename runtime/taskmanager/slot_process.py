"""One slot's process, seen from its supervisor: started by exec, watched, spoken to, ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from runtime.clock import monotonic_ms
from runtime.ids import AttemptId, JobId, SlotId
from runtime.lifeline import Lifeline
from runtime.protocol.connection import MessageStream
from runtime.protocol.messages import (
    Message,
    Ping,
    Pong,
    SlotOffer,
    SlotStarted,
    TaskState,
    TaskStateChanged,
    ToSlot,
)
from runtime.taskmanager.local_state import FOLDER

_ENDS = frozenset({TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED})
EXIT_GRACE_S = 1.0
"""A process whose control connection has closed gets this long to be gone and leave its exit code."""

_ENVIRONMENT = {
    # Arrow's own allocator gives pages back within milliseconds, from whichever thread, and gets them again for the
    # next batch: the kernel clears each, and interrupts every processor that runs a thread of the slot.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # Two arenas instead of eight per core: threads that hand buffers to each other would spread them over all.
    "MALLOC_ARENA_MAX": "2",
    # Batch buffers stay on the heap. One fixed threshold switches off glibc's moving one, so both are set.
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
    # One thread per native library: a slot's threads are its tasks.
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
}


class SlotProcess:
    """Create with `start`. `started`: it has said so. `busy`: tasks were deployed; a slot serves one job once."""

    def __init__(
        self,
        slot_id: SlotId,
        process: asyncio.subprocess.Process,
        stream: MessageStream,
        lifeline: Lifeline,
        work_directory: Path,
    ) -> None:
        self.slot_id = slot_id
        self.busy = False
        self.job_id: JobId | None = None
        self.started = False
        self.ending = False
        self.offer: SlotOffer | None = None
        self._ended: set[AttemptId] = set()
        """Tasks that have reported their end."""
        self._process = process
        self._stream = stream
        self._lifeline = lifeline
        self._work_directory = work_directory
        self._answered_at_ms = monotonic_ms()
        self._ping_number = 0
        self._kill_reason = ""
        self._closed = False

    @classmethod
    async def start(
        cls,
        slot_id: SlotId,
        host: str,
        managed_bytes: int,
        work_directory: Path,
        load_delay_ms: int = 0,
        lock_fd: int | None = None,
    ) -> SlotProcess:
        """Returns with the process started and its data port open: tasks may be sent. What they need it loads when the
        first message comes, or after the delay. `lock_fd`: says that the directory is in use, as long as the process
        lives. Raises OSError."""
        work_directory.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        lifeline = Lifeline()
        listener = socket.create_server((host, 0))
        data_port = int(listener.getsockname()[1])
        inherited = (theirs.fileno(), lifeline.read_fd, listener.fileno(), lock_fd)
        try:
            process = await asyncio.create_subprocess_exec(
                # -P: a folder called like one of our packages in the current directory must not be found first.
                *(sys.executable, "-P", "-m", "runtime.taskmanager.slot"),
                *("--control-fd", str(theirs.fileno()), "--lifeline-fd", str(lifeline.read_fd)),
                *("--host", host, "--slot-id", slot_id),
                *("--managed-bytes", str(managed_bytes)),
                *("--data-fd", str(listener.fileno()), "--load-delay-ms", str(load_delay_ms)),
                *("--local-state-directory", str(work_directory.parent / FOLDER)),
                pass_fds=[fd for fd in inherited if fd is not None],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                # What libraries write to the temporary folder goes when the slot goes.
                env={**os.environ, **_ENVIRONMENT, "TMPDIR": str(work_directory)},
            )
        except BaseException:
            ours.close()
            lifeline.close()
            raise
        finally:
            theirs.close()
            listener.close()
            lifeline.close_read()
        try:
            stream = MessageStream(*await asyncio.open_connection(sock=ours))
        except BaseException:
            # The TaskManager ends just now.
            lifeline.close()
            process.kill()
            await process.wait()
            raise
        slot = cls(slot_id, process, stream, lifeline, work_directory)
        slot.offer = SlotOffer(slot_id, data_port, managed_bytes, process.pid)
        return slot

    async def receive(self) -> Message:
        """The slot's next message for the JobManager. Raises ConnectionClosedError when the process is gone."""
        while True:
            message = await self._stream.receive()
            if isinstance(message, SlotStarted):
                self.started = True
            elif not isinstance(message, Pong):
                if isinstance(message, TaskStateChanged) and message.state in _ENDS:
                    self._ended.add(message.attempt)
                return message
            self._answered_at_ms = monotonic_ms()

    def send(self, message: ToSlot) -> None:
        self._stream.send(message)

    def has_ended(self, attempts: Iterable[AttemptId]) -> bool:
        """All of these tasks."""
        return self._ended.issuperset(attempts)

    def ping(self, timeout_ms: int) -> None:
        """Ask for a sign of life; a slot that gave none for `timeout_ms` is killed."""
        if monotonic_ms() - self._answered_at_ms > timeout_ms:
            self.kill(f"it did not answer for {timeout_ms} ms")
            return
        self._ping_number += 1
        self._stream.send(Ping(self._ping_number))

    def kill(self, reason: str) -> None:
        """SIGKILL: whatever it was doing is fenced by attempt and generation."""
        self.ending = True
        self._kill_reason = self._kill_reason or reason
        try:
            self._process.kill()
        except ProcessLookupError:
            pass  # It has ended by itself.

    async def end(self, grace_s: float = 0.0) -> None:
        """Returns when the process has ended, by itself within `grace_s` or else killed, and its files are removed."""
        if grace_s:
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                pass  # It is killed below.
        if self._process.returncode is None:
            self.kill("it hung")
        await self._process.wait()
        self.ending = True
        if not self._closed:
            self._closed = True
            self._stream.close()
            self._lifeline.close()
            await asyncio.to_thread(shutil.rmtree, self._work_directory, ignore_errors=True)

    @property
    def was_killed(self) -> bool:
        """By `kill`."""
        return bool(self._kill_reason)

    @property
    def exit_reason(self) -> str:
        """For people: why the process ended."""
        if self._kill_reason:
            return self._kill_reason
        code = self._process.returncode
        if code is None:
            return "it is still running"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"
