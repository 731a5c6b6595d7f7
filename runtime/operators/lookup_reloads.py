"""When a table that is cached whole is loaded anew. Pure: no clock, no thread, no table."""

from __future__ import annotations

import msgspec
import numpy as np

from connectors.api import PeriodicReload, TimedReload
from runtime.operators.expressions.zones import zone_of

RETRY_MS = 60_000
"""A load that has failed is begun again after so long, or after the interval if that is shorter."""
_DAY_MS = 86_400_000


class TimerFired(msgspec.Struct, frozen=True):
    """The table is opened, or the clock has reached the timer."""


class LoadSucceeded(msgspec.Struct, frozen=True):
    """The table is there, whole."""


class LoadFailed(msgspec.Struct, frozen=True):
    """All tries have."""


Event = TimerFired | LoadSucceeded | LoadFailed


class StartLoad(msgspec.Struct, frozen=True):
    """Read the whole table; what is there serves until then."""


class ReloadTrigger:
    """One load at a time; the first at once. `time_zone` is the session's."""

    def __init__(self, reload: PeriodicReload | TimedReload | None, time_zone: str) -> None:
        self._reload = reload
        self._zone = zone_of((reload.zone if isinstance(reload, TimedReload) else "") or time_zone)
        self._is_loading = False
        self._due_ms: int | None = 0
        self._planned_ms = 0
        """When a load is due that no failed one brings forward."""

    def timer_ms(self, now_ms: int) -> int | None:
        """When the next load is due; None while one runs, and if there is to be none."""
        if self._is_loading or self._due_ms is None:
            return None
        if self._due_ms - now_ms > self._longest_ms():
            # The clock was set back.
            self._due_ms = self._planned_ms = self._next(now_ms)
        return self._due_ms

    def handle(self, event: Event, now_ms: int) -> list[StartLoad]:
        match event:
            case TimerFired():
                due_ms = self.timer_ms(now_ms)
                if due_ms is None or due_ms > now_ms:
                    return []
                self._is_loading = True
                if self._reload is not None and self._planned_ms <= now_ms:
                    self._planned_ms = self._after(self._planned_ms, now_ms)
                return [StartLoad()]
            case LoadSucceeded():
                self._ended(now_ms)
            case LoadFailed():
                self._ended(now_ms)
                if self._due_ms is not None:
                    self._due_ms = min(self._due_ms, now_ms + RETRY_MS)
        return []

    def _ended(self, now_ms: int) -> None:
        assert self._is_loading
        self._is_loading = False
        if self._reload is None:
            self._due_ms = None
            return
        if isinstance(self._reload, PeriodicReload) and not self._reload.is_fixed_rate:
            self._planned_ms = now_ms + self._reload.interval_ms
        # A load that took longer than the interval is followed by the next.
        self._due_ms = max(self._planned_ms, now_ms + 1)

    # ----------------------------------------------------------------------------------------------------- times

    def _longest_ms(self) -> int:
        match self._reload:
            case PeriodicReload(interval_ms=interval_ms):
                return interval_ms
            case TimedReload(interval_days=days):
                return (days + 1) * _DAY_MS  # Days have 25 hours at times.
            case None:
                return 0

    def _after(self, planned_ms: int, now_ms: int) -> int:
        """The time planned behind the one that is due."""
        if not isinstance(self._reload, TimedReload) or not planned_ms:
            return self._next(now_ms)
        next_ms = planned_ms
        while next_ms <= now_ms:
            next_ms = self._at(self._day(next_ms) + self._reload.interval_days)
        return next_ms

    def _next(self, now_ms: int) -> int:
        if isinstance(self._reload, TimedReload):
            today = self._day(now_ms)
            return next(at for day in range(today, today + 3) if (at := self._at(day)) > now_ms)
        assert self._reload is not None
        return now_ms + self._reload.interval_ms

    def _day(self, instant_ms: int) -> int:
        return int(self._zone.to_local(np.array([instant_ms]), 1000)[0]) // _DAY_MS

    def _at(self, day: int) -> int:
        assert isinstance(self._reload, TimedReload)
        local_ms = day * _DAY_MS + self._reload.time_ms
        return int(self._zone.to_instant(np.array([local_ms]), 1000)[0])
