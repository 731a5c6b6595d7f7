"""`standalone`: starts a cluster's processes, restarts what dies, ends all of them. It is none of them itself.

Command lines come from the caller. Each child runs in a session of its own, so that Ctrl-C reaches only the launcher,
and gets `--lifeline-fd N` appended: when the launcher is killed with -9, its children end too.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from runtime.clock import monotonic_ms
from runtime.lifeline import Lifeline

STOP_GRACE_S = 6.0
"""A child that has not ended so long after SIGTERM is killed."""
RESTART_DELAY_S = 0.2
RESTART_DELAY_S_MAX = 5.0
STABLE_MS = 10_000
"""A child that lived so long starts again with the shortest delay."""
STARTS_BEFORE_READY_MAX = 3
READY_POLL_S = 0.1
READY_REQUEST_TIMEOUT_S = 2.0


class ChildCommand(msgspec.Struct, frozen=True):
    """`name` is for people, e.g. `taskmanager 2`. Children are stopped in the order of the list."""

    name: str
    arguments: tuple[str, ...]


class StartFailedError(Exception):
    """A child ended again and again before the cluster was ready."""


class Launcher:
    """`run` once. `ready_url` answers 200 when the cluster is ready; then `ready_line` is printed to stdout."""

    def __init__(self, children: Sequence[ChildCommand], ready_url: str, ready_line: str) -> None:
        self._children = [_Child(command) for command in children]
        self._ready_url = ready_url
        self._ready_line = ready_line
        self._ready = False
        self._stopping = asyncio.Event()
        self._failure: StartFailedError | None = None

    def stop(self) -> None:
        """Ask `run` to end all children and return; asked a second time, they are killed."""
        if self._stopping.is_set():
            for child in self._children:
                child.kill()
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT. Raises StartFailedError, after everything has been ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        tasks = [loop.create_task(self._keep(child)) for child in self._children]
        tasks.append(loop.create_task(self._announce()))
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _progress("stopping")
        for child in self._children:
            await child.end()
        if self._failure is not None:
            raise self._failure

    async def _keep(self, child: _Child) -> None:
        delay_s = RESTART_DELAY_S
        starts = 0
        while True:
            started_at_ms = monotonic_ms()
            starts += 1
            _progress(f"starting {child.name}" if starts == 1 else f"starting {child.name} again")
            try:
                ending = await child.run()
            except OSError as error:
                ending = str(error)
            _progress(f"{child.name} {ending}")
            if not self._ready and starts >= STARTS_BEFORE_READY_MAX:
                self._failure = StartFailedError(f"{child.name} does not start; see its messages above")
                self._stopping.set()
                return
            delay_s = RESTART_DELAY_S if monotonic_ms() - started_at_ms > STABLE_MS else delay_s
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_S_MAX)

    async def _announce(self) -> None:
        while not await asyncio.to_thread(_answers, self._ready_url):
            await asyncio.sleep(READY_POLL_S)
        self._ready = True
        print(self._ready_line, flush=True)


class _Child:
    """One process after another under one name."""

    def __init__(self, command: ChildCommand) -> None:
        self.name = command.name
        self._arguments = command.arguments
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: Lifeline | None = None

    async def run(self) -> str:
        """Start it and wait for its end; returns how it ended. Raises OSError when it cannot be started."""
        lifeline = Lifeline()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                *("--lifeline-fd", str(lifeline.read_fd)),
                pass_fds=(lifeline.read_fd,),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            lifeline.close()
            raise
        finally:
            lifeline.close_read()
        # Kept open until the process has ended, also when this coroutine is cancelled because the launcher stops.
        self._lifeline = lifeline
        code = await self._process.wait()
        lifeline.close()
        self._lifeline = None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        """SIGTERM, and SIGKILL after a while."""
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await self._process.wait()
        except TimeoutError:
            _progress(f"{self.name} does not stop; it is killed")
            self.kill()
            await self._process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=READY_REQUEST_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _progress(text: str) -> None:
    try:
        print(f"headrace: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass  # Where messages go to a full disk, what dies must be started again all the same.
