"""Restart or give up, and when. Pure."""

from __future__ import annotations

from collections import deque
from typing import assert_never

from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.protocol.messages import Failure


class Failover:
    """Counts the failures of one job, of whichever of its regions. What fails before the restart that an earlier
    failure brought has the same cause (the death of one slot fails tasks in several): it counts as nothing new and is
    restarted at the same time."""

    def __init__(self, settings: RestartSettings, seed: int) -> None:
        """`seed` spreads the delays of jobs that failed together (jitter)."""
        self._settings = settings
        self._seed = seed
        self._backoff_ms = float(settings.delay_ms)
        self._attempts = 0
        """Since the last reset."""
        self._failures_ms: deque[int] = deque()
        """Of the failure-rate strategy: those within its interval, oldest first."""
        self._restart_at_ms: int | None = None
        self.restarts = 0
        """Restarts granted."""

    def restart_at_ms(self, failure: Failure, now_ms: int) -> int | None:
        """None: the job fails. An error that a restart cannot help (`retry` False) ends it under any strategy."""
        if not failure.retry:
            return None
        if self._restart_at_ms is not None and now_ms < self._restart_at_ms:
            return self._restart_at_ms
        delay_ms = self._delay_ms(now_ms)
        if delay_ms is None:
            return None
        self.restarts += 1
        self._restart_at_ms = now_ms + delay_ms
        return self._restart_at_ms

    def _delay_ms(self, now_ms: int) -> int | None:
        match self._settings.strategy:
            case RestartStrategy.NONE:
                return None
            case RestartStrategy.FIXED_DELAY:
                return self._settings.delay_ms if self._is_granted() else None
            case RestartStrategy.EXPONENTIAL_DELAY:
                return self._exponential(now_ms)
            case RestartStrategy.FAILURE_RATE:
                return self._by_rate(now_ms)
            case _ as unknown:
                assert_never(unknown)

    def _exponential(self, now_ms: int) -> int | None:
        """The quiet time that brings the first delay back begins with the restart, as in Flink."""
        settings = self._settings
        if self._restart_at_ms is None or now_ms >= self._restart_at_ms + settings.reset_after_ms:
            self._backoff_ms = float(settings.delay_ms)
            self._attempts = 0
        if not self._is_granted():
            return None
        delay_ms = self._backoff_ms * (1 + settings.jitter_factor * self._jitter())
        self._backoff_ms = min(self._backoff_ms * settings.backoff_multiplier, float(settings.backoff_ms_max))
        return round(delay_ms)

    def _by_rate(self, now_ms: int) -> int | None:
        """A failure leaves the interval when it is older than it, not when it is as old."""
        settings = self._settings
        while self._failures_ms and now_ms - self._failures_ms[0] > settings.failure_interval_ms:
            self._failures_ms.popleft()
        self._failures_ms.append(now_ms)
        return settings.delay_ms if len(self._failures_ms) <= settings.failures_per_interval else None

    def _is_granted(self) -> bool:
        if self._settings.attempts is not None and self._attempts >= self._settings.attempts:
            return False
        self._attempts += 1
        return True

    def _jitter(self) -> float:
        """-1 … 1, the same for equal seed and number of restarts."""
        mixed = (self._seed * 2_654_435_761 + self._attempts * 40_503_111) % 4_294_967_296
        return mixed / 2_147_483_648 - 1
