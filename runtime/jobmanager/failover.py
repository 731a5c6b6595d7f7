"""Restart or give up, and after which delay. Pure."""

from __future__ import annotations

from typing import assert_never

from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.protocol.messages import Failure


class Failover:
    """Counts the failures of one job. The unit of recovery is the whole job."""

    def __init__(self, settings: RestartSettings, seed: int) -> None:
        """`seed` spreads the delays of jobs that failed together (jitter)."""
        self._settings = settings
        self._seed = seed
        self._restarts = 0
        self._backoff_ms = float(settings.delay_ms)
        self._last_failure_ms: int | None = None

    def restart_delay_ms(self, failure: Failure, now_ms: int) -> int | None:
        """None: the job fails. An error that a restart cannot help (`retry` False) ends it under any strategy."""
        if not failure.retry:
            return None
        match self._settings.strategy:
            case RestartStrategy.NONE:
                return None
            case RestartStrategy.FIXED_DELAY:
                if self._exhausted():
                    return None
                self._restarts += 1
                return self._settings.delay_ms
            case RestartStrategy.EXPONENTIAL_DELAY:
                return self._exponential(now_ms)
            case _ as unknown:
                assert_never(unknown)

    def _exponential(self, now_ms: int) -> int | None:
        settings = self._settings
        if self._last_failure_ms is None or now_ms - self._last_failure_ms >= settings.reset_after_ms:
            self._backoff_ms = float(settings.delay_ms)
            self._restarts = 0
        if self._exhausted():
            return None
        delay_ms = self._backoff_ms * (1 + settings.jitter_factor * self._jitter())
        self._backoff_ms = min(self._backoff_ms * settings.backoff_multiplier, float(settings.backoff_ms_max))
        self._restarts += 1
        self._last_failure_ms = now_ms
        return round(delay_ms)

    def _exhausted(self) -> bool:
        return self._settings.attempts is not None and self._restarts >= self._settings.attempts

    def _jitter(self) -> float:
        """-1 … 1, the same for equal seed and number of restarts."""
        mixed = (self._seed * 2_654_435_761 + (self._restarts + 1) * 40_503_111) % 4_294_967_296
        return mixed / 2_147_483_648 - 1
