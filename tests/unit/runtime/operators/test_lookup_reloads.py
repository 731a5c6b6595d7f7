"""When a table that is cached whole is loaded anew."""

from __future__ import annotations

import datetime as dt

from connectors.api import PeriodicReload, TimedReload
from runtime.operators.lookup_reloads import (
    RETRY_MS,
    LoadFailed,
    LoadSucceeded,
    ReloadTrigger,
    StartLoad,
    TimerFired,
)

HOUR_MS = 3_600_000


class Clock:
    """A trigger and the time; a load begins, runs and ends."""

    def __init__(self, reload: PeriodicReload | TimedReload | None, zone: str = "UTC", start: str = "") -> None:
        self.trigger = ReloadTrigger(reload, zone)
        self.now_ms = instant(start or "2026-01-01T00:00Z")
        self.start_ms = self.now_ms

    def begins(self) -> bool:
        started = self.trigger.handle(TimerFired(), self.now_ms)
        assert started in ([], [StartLoad()])
        return bool(started)

    def ends(self, after_ms: int = 0, *, failed: bool = False) -> None:
        assert self.trigger.timer_ms(self.now_ms) is None
        self.now_ms += after_ms
        assert not self.trigger.handle(LoadFailed() if failed else LoadSucceeded(), self.now_ms)

    def due_ms(self) -> int:
        """From the start."""
        due_ms = self.trigger.timer_ms(self.now_ms)
        assert due_ms is not None
        return due_ms - self.start_ms

    def due(self) -> str:
        return dt.datetime.fromtimestamp((self.due_ms() + self.start_ms) / 1000, dt.UTC).isoformat()[:16] + "Z"

    def go(self) -> None:
        """To the moment at which the next load is due; it begins."""
        due_ms = self.start_ms + self.due_ms()
        self.now_ms = due_ms - 1
        assert not self.begins()
        self.now_ms = due_ms
        assert self.begins()


def instant(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def test_without_a_strategy_there_is_one_load() -> None:
    clock = Clock(None)
    assert clock.begins()
    assert not clock.begins()
    clock.ends()
    clock.now_ms += 1000 * HOUR_MS
    assert clock.trigger.timer_ms(clock.now_ms) is None
    assert not clock.begins()


def test_the_interval_begins_at_the_end_of_a_load() -> None:
    clock = Clock(PeriodicReload(HOUR_MS))
    assert clock.begins()
    clock.ends(500)
    assert clock.due_ms() == HOUR_MS + 500
    clock.go()
    clock.now_ms += 3 * HOUR_MS
    assert not clock.begins(), "one at a time"
    clock.ends()
    assert clock.due_ms() == 5 * HOUR_MS + 500


def test_the_interval_begins_at_the_beginning_of_a_load() -> None:
    clock = Clock(PeriodicReload(HOUR_MS, is_fixed_rate=True))
    assert clock.begins()
    clock.ends(500)
    assert clock.due_ms() == HOUR_MS
    clock.go()
    clock.ends(2 * HOUR_MS)
    assert clock.due_ms() == 3 * HOUR_MS + 1, "at once"
    clock.go()
    assert clock.trigger.timer_ms(clock.now_ms) is None


def test_a_failed_load_is_begun_again_soon() -> None:
    for is_fixed_rate in (False, True):
        clock = Clock(PeriodicReload(HOUR_MS, is_fixed_rate))
        assert clock.begins()
        clock.ends()
        clock.go()
        clock.ends(1_000, failed=True)
        assert clock.due_ms() == HOUR_MS + 1_000 + RETRY_MS
        clock.go()
        clock.ends()
        assert clock.due_ms() == 2 * HOUR_MS + (0 if is_fixed_rate else 1_000 + RETRY_MS)
    often = Clock(PeriodicReload(1_000))
    assert often.begins()
    often.ends(failed=True)
    assert often.due_ms() == 1_000


def test_a_time_of_the_day() -> None:
    clock = Clock(TimedReload(2 * HOUR_MS), start="2026-01-01T01:00Z")
    assert clock.begins()
    clock.ends()
    assert clock.due() == "2026-01-01T02:00Z"
    clock.go()
    clock.ends(1_000, failed=True)
    assert clock.due() == "2026-01-01T02:01Z"
    clock.go()
    clock.ends()
    assert clock.due() == "2026-01-02T02:00Z"
    late = Clock(TimedReload(2 * HOUR_MS, interval_days=3), start="2026-01-01T02:00Z")
    assert late.begins()
    late.ends()
    assert late.due() == "2026-01-02T02:00Z"
    late.go()
    late.ends(100 * HOUR_MS)
    assert late.due() == "2026-01-06T06:00Z", "the one of the 5th, at once"
    late.go()
    late.ends()
    assert late.due() == "2026-01-08T02:00Z"


def test_a_time_of_the_day_where_clocks_are_changed() -> None:
    clock = Clock(TimedReload(150 * 60_000), "Europe/Berlin", "2026-03-27T12:00Z")
    assert clock.begins()
    clock.ends()
    dues = []
    for _ in range(3):
        dues.append(clock.due())
        clock.go()
        clock.ends()
    assert dues == ["2026-03-28T01:30Z", "2026-03-29T01:30Z", "2026-03-30T00:30Z"]
    offset = Clock(TimedReload(150 * 60_000, "+0530"), "Europe/Berlin")
    assert offset.begins()
    offset.ends()
    assert offset.due() == "2026-01-01T21:00Z"


def test_a_clock_that_is_set_back_delays_no_load_for_long() -> None:
    clock = Clock(PeriodicReload(HOUR_MS))
    assert clock.begins()
    clock.ends()
    clock.now_ms -= 100 * HOUR_MS
    assert clock.due_ms() == -99 * HOUR_MS
    clock.now_ms += HOUR_MS // 2
    assert clock.due_ms() == -99 * HOUR_MS
    timed = Clock(TimedReload(2 * HOUR_MS), start="2026-01-10T01:00Z")
    assert timed.begins()
    timed.ends()
    timed.now_ms = instant("2026-01-01T05:00Z")
    assert timed.due() == "2026-01-02T02:00Z"
