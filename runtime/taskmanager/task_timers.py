"""Processing-time timers of a task's operators: when to wake for them, and that they fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from runtime.operators.chain import OperatorChain

TIMER_WAIT_MS_MAX = 1_000
"""A task with a processing-time timer looks at the wall clock this often: the clock may be set."""


class TaskTimers:
    """`is_stopping`: the checkpoint that is to be the job's last has been taken, so nothing may fire."""

    def __init__(self, chain: OperatorChain, wall_clock_ms: Callable[[], int], is_stopping: Callable[[], bool]) -> None:
        self._chain = chain
        self._wall_clock_ms = wall_clock_ms
        self._is_stopping = is_stopping

    def wake_ms(self, flush_ms: float | None) -> float | None:
        """Until collected rows must go (`flush_ms`) or a timer is due; None when nothing is waited for but input."""
        timer_ms = self._chain.timer_ms()
        if timer_ms is None or self._is_stopping():
            return flush_ms
        until_ms = min(max(0, timer_ms - self._wall_clock_ms()), TIMER_WAIT_MS_MAX)
        return until_ms if flush_ms is None else min(until_ms, flush_ms)

    def due(self) -> Iterator[None] | None:
        """The steps by which the timers that are due fire; None when there are none."""
        timer_ms = self._chain.timer_ms()
        if timer_ms is not None and timer_ms <= (now_ms := self._wall_clock_ms()) and not self._is_stopping():
            return self._chain.on_timers(now_ms)
        return None
