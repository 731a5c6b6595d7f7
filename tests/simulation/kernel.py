"""One thread, one seed, virtual time: fibers of processes that can be killed or paused at every step, and links between
them that keep order, delay, and break.

A fiber is a generator. It yields a number (sleep so many ms), None (a short random pause), a Signal (until it is
notified) or (Signal, ms). Every resumption is one *step*; faults are placed by step, so that no step is safe from one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

Steps = Generator[Any, None, Any]
HEARTBEAT_TIMEOUT_MS = 40
"""A process that is silent for so long is given up by its peers."""


class Violation(Exception):
    """A checker's finding: what must not happen has happened."""


class Signal:
    """At most one fiber waits for it; a notification without a waiter is kept."""

    __slots__ = ("fiber", "is_set", "token")

    def __init__(self) -> None:
        self.fiber: Fiber | None = None
        self.token = 0
        self.is_set = False

    def notify(self) -> None:
        fiber = self.fiber
        if fiber is None or fiber.token != self.token:
            self.is_set = True
            return
        self.fiber = None
        kernel = fiber.process.kernel
        kernel.at(0, fiber.process, fiber.resume, self.token)


class Process:
    """Something that dies as a whole. `kernel` events of a dead process are dropped, of a paused one deferred."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.alive = True
        self.paused = False
        self.links: list[Link] = []
        self.children: list[Process] = []
        self.deferred: deque[tuple[Callable[..., None], Any]] = deque()

    def start(self, steps: Steps, name: str = "") -> None:
        fiber = Fiber(self, steps, name)
        self.kernel.fibers.append(fiber)
        self.kernel.at(0, self, fiber.resume, fiber.token)

    def kill(self) -> None:
        """As kill -9: nothing of it runs any more, its children end, its peers' connections break."""
        if not self.alive:
            return
        self.alive = False
        self.kernel.log(self, "dies")
        for child in self.children:
            child.kill()
        for link in list(self.links):
            link.cut(prompt=True)
        self.on_death()

    def on_death(self) -> None:
        """What becomes of what it had not made durable."""

    def pause(self, duration_ms: int) -> None:
        """SIGSTOP for a while, children included; peers notice by the heartbeat time-out."""
        self.kernel.log(self, f"is paused for {duration_ms} ms")
        for process in (self, *self.children):
            if process.alive and not process.paused:
                process.paused = True
                self.kernel.at(duration_ms, None, process.wake, None)
                for link in list(process.links):
                    self.kernel.at(HEARTBEAT_TIMEOUT_MS, None, link.give_up, process)

    def wake(self, _: object) -> None:
        """What had come meanwhile is seen first, in order."""
        if self.alive:
            self.kernel.log(self, "wakes up")
            self._catch_up(None)

    def _catch_up(self, _: object) -> None:
        if not self.alive:
            return
        if self.deferred:
            self.kernel.step(self, *self.deferred.popleft())
            self.kernel.at(0, None, self._catch_up, None)
        else:
            self.paused = False


class Fiber:
    __slots__ = ("name", "process", "steps", "token")

    def __init__(self, process: Process, steps: Steps, name: str) -> None:
        self.process, self.steps, self.name = process, steps, name
        self.token = 0

    def resume(self, token: int) -> None:
        if token != self.token:
            return
        self.token = token = token + 1
        kernel = self.process.kernel
        try:
            wanted = self.steps.send(None)
        except StopIteration:
            return
        if wanted is None:
            kernel.at(kernel.delay(), self.process, self.resume, token)
        elif type(wanted) is int:
            kernel.at(wanted, self.process, self.resume, token)
        else:
            signal, timeout_ms = wanted if type(wanted) is tuple else (wanted, None)
            if signal.is_set:
                signal.is_set = False
                kernel.at(0, self.process, self.resume, token)
                return
            signal.fiber, signal.token = self, token
            if timeout_ms is not None:
                kernel.at(timeout_ms, self.process, self.resume, token)


class Kernel:
    def __init__(self, seed: int, recording: bool) -> None:
        self.rng = random.Random(seed)
        self.random = self.rng.random
        self.now_ms = 0
        self.steps = 0
        self.recording = recording
        self.trace: list[str] = []
        self.fibers: list[Fiber] = []
        self._heap: list[tuple[int, int, Process | None, Callable[..., None], Any]] = []
        self._sequence = 0
        self._slowness = 1 + self.below(8)
        self.fault_steps: list[int] = []
        self.on_fault: Callable[[Process], None] = lambda process: None

    def close(self) -> None:
        """End every fiber where it stands."""
        for fiber in self.fibers:
            fiber.steps.close()
        self.fibers.clear()
        self._heap.clear()

    def below(self, count: int) -> int:
        """0 … count - 1."""
        return int(self.random() * count)

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def delay(self) -> int:
        """A short random time: mostly nothing or a millisecond, sometimes many."""
        drawn = self.random()
        return int(drawn * 3) if drawn < 0.9 else int((drawn - 0.9) * 40 * self._slowness)

    def at(self, delay_ms: int, process: Process | None, call: Callable[..., None], argument: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._sequence, process, call, argument))

    def log(self, process: Process | None, text: str) -> None:
        if self.recording:
            name = process.name if process is not None else "-"
            self.trace.append(f"{self.now_ms:6} ms  step {self.steps:5}  {name:24} {text}")

    def run(self, until: Callable[[], bool], steps_max: int, time_max_ms: int) -> None:
        """Raises Violation when the end does not come."""
        heap = self._heap
        while not until():
            if not heap:
                raise Violation("nothing is left to happen, and the job has not ended")
            time_ms, _, process, call, argument = heappop(heap)
            self.now_ms = time_ms
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.deferred.append((call, argument))
                    continue
                self.step(process, call, argument)
            else:
                call(argument)
            if self.steps > steps_max or self.now_ms > time_max_ms:
                raise Violation(f"no end in sight after {self.steps} steps, {self.now_ms} ms")

    def step(self, process: Process, call: Callable[..., None], argument: Any) -> None:
        self.steps += 1
        if self.fault_steps and self.steps >= self.fault_steps[-1]:
            self.fault_steps.pop()
            was_paused = process.paused
            self.on_fault(process)
            if not process.alive:
                return
            if process.paused and not was_paused:
                process.deferred.append((call, argument))
                return
        call(argument)


class Link:
    """A connection between two processes, FIFO in each direction as TCP. When it breaks, what is on its way may be
    lost (all of a direction, from some message on), and each end learns of it in its own time."""

    def __init__(self, a: Process, b: Process, name: str) -> None:
        self.kernel = a.kernel
        self.name = name
        self.ends = (a, b)
        self.receive: list[Callable[[Any], None]] = [_ignore, _ignore]
        self.lost: list[Callable[[Link], None]] = [_ignore, _ignore]
        self.is_cut = False
        self._told = [False, False]
        self._dropping = [False, False]
        self._last_ms = [0, 0]
        a.links.append(self)
        b.links.append(self)

    def send(self, sender: Process, message: Any) -> None:
        side = 1 if sender is self.ends[0] else 0
        if self.is_cut or self._told[1 - side]:
            return
        kernel = self.kernel
        time_ms = max(self._last_ms[side], kernel.now_ms + kernel.delay())
        self._last_ms[side] = time_ms
        kernel.at(time_ms - kernel.now_ms, self.ends[side], self._deliver, (side, message))

    def _deliver(self, sent: tuple[int, Any]) -> None:
        side, message = sent
        if not (self._dropping[side] or self._told[side]):
            self.receive[side](message)

    def cut(self, prompt: bool = False) -> None:
        if self.is_cut:
            return
        self.is_cut = True
        kernel = self.kernel
        for side in (0, 1):
            self._dropping[side] = kernel.chance(0.7)
            delay_ms = kernel.below(4) if prompt else kernel.below(HEARTBEAT_TIMEOUT_MS)
            kernel.at(delay_ms, self.ends[side], self._tell, side)
        if not prompt:
            kernel.log(None, f"link {self.name} breaks")

    def give_up(self, silent: Process) -> None:
        """The peer of a paused process has not heard of it for too long."""
        if not silent.paused or self.is_cut:
            return
        self.is_cut = True
        for side in (0, 1):
            if self.ends[side] is not silent:
                self._tell(side)
            else:
                # It may still read what had come before, and then finds the connection closed.
                self.kernel.at(1, silent, self._tell, side)

    def close(self, closer: Process) -> None:
        """By one of the ends, which is not told."""
        self._told[0 if closer is self.ends[0] else 1] = True
        self.cut(prompt=True)

    def _tell(self, side: int) -> None:
        if self._told[side]:
            return
        self._told[side] = True
        process = self.ends[side]
        if self in process.links:
            process.links.remove(self)
        if process.alive:
            self.lost[side](self)


def _ignore(_: Any) -> None:
    pass
