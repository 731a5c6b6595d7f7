"""Where a task's time goes: busy, backpressured (waiting for credit) or idle (waiting for input)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import msgspec


class Waiting(StrEnum):
    IDLE = "idle"
    BACKPRESSURED = "backpressured"


class TimeShares(msgspec.Struct, frozen=True):
    """ms per second since the last report; the first three sum to 1,000. `cpu` is the thread's CPU time: busy − cpu
    is time spent waiting for the interpreter or for I/O."""

    busy: float
    backpressured: float
    idle: float
    cpu: float


class TimeAccount:
    """The task's thread records its waits; another thread asks for the shares."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._waited_ms = {Waiting.IDLE: 0.0, Waiting.BACKPRESSURED: 0.0}
        self._open: tuple[Waiting, float] | None = None
        self._cpu_clock: int | None = None
        self._reported_at_ms = now_ms()
        self._reported_ms = dict(self._waited_ms)
        self._reported_cpu_s = 0.0

    def bind_thread(self, thread_ident: int) -> None:
        """Take CPU time from this thread's clock from now on."""
        self._cpu_clock = time.pthread_getcpuclockid(thread_ident)
        self._reported_cpu_s = time.clock_gettime(self._cpu_clock)

    def unbind_thread(self) -> None:
        """Before the thread ends: its clock goes with it."""
        self._cpu_clock = None

    @property
    def backpressured_ms(self) -> float:
        """In all, since the start."""
        return self._waited_ms[Waiting.BACKPRESSURED]

    @contextmanager
    def waiting(self, kind: Waiting) -> Iterator[None]:
        """The enclosed code waits."""
        self._open = (kind, self._now_ms())
        try:
            yield
        finally:
            _, started_ms = self._open
            self._waited_ms[kind] += self._now_ms() - started_ms
            self._open = None

    def add_idle(self, duration_ms: float) -> None:
        """Time found to have been a wait for input after the fact."""
        self._waited_ms[Waiting.IDLE] += max(0.0, duration_ms)

    def shares(self) -> TimeShares:
        """Since the last call. Waits that are still going on count up to now."""
        now_ms = self._now_ms()
        waited = dict(self._waited_ms)
        current = self._open
        if current is not None:
            waited[current[0]] += max(0.0, now_ms - current[1])
        elapsed_ms = max(now_ms - self._reported_at_ms, 1e-3)
        per_second = 1000.0 / elapsed_ms
        idle = min(1000.0, max(0.0, waited[Waiting.IDLE] - self._reported_ms[Waiting.IDLE]) * per_second)
        backpressured = min(
            1000.0 - idle,
            max(0.0, waited[Waiting.BACKPRESSURED] - self._reported_ms[Waiting.BACKPRESSURED]) * per_second,
        )
        clock = self._cpu_clock
        cpu_s = time.clock_gettime(clock) if clock is not None else self._reported_cpu_s
        cpu = (cpu_s - self._reported_cpu_s) * 1000.0 * per_second
        self._reported_at_ms, self._reported_ms, self._reported_cpu_s = now_ms, waited, cpu_s
        return TimeShares(1000.0 - idle - backpressured, backpressured, idle, max(0.0, cpu))
