"""The clock of windows: local wall time of a zone, windows on it, and the instants at which they fire."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir.operators import TumbleWindow
from runtime.operators.window_clock import LocalClock, NullRowtimeError, WindowClock
from tests.support.window_harness import ROWTIME, ROWTIME_LTZ

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ZONES = ["America/Los_Angeles", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Monrovia", "Europe/London", "GMT+05:30"]


def local_ms(text: str) -> int:
    """Milliseconds of a wall time, as if it were UTC."""
    return round(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp() * 1000)


def clock(size_ms: int, zone: str = "UTC", offset_ms: int = 0, time_type: Any = ROWTIME_LTZ) -> WindowClock:
    return WindowClock(TumbleWindow(0, time_type, size_ms, offset_ms, zone), "the window")


@given(st.sampled_from(ZONES), st.lists(st.integers(-(2**41), 2**42), max_size=20))
def test_local_time_is_that_of_the_time_zone_database(zone: str, instants: list[int]) -> None:
    tzinfo: dt.tzinfo = (
        dt.timezone(dt.timedelta(hours=5, minutes=30)) if zone.startswith("GMT") else zoneinfo.ZoneInfo(zone)
    )
    expected = []
    for instant in instants:
        wall = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=instant)).astimezone(tzinfo)
        expected.append((wall.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1))
    assert LocalClock(zone).to_local(np.array(instants, dtype=np.int64)).tolist() == expected


def test_local_time_changes_in_the_millisecond_of_a_transition() -> None:
    spring = local_ms("2021-03-14 10:00:00")  # 02:00 in Los Angeles becomes 03:00.
    found = LocalClock("America/Los_Angeles").to_local(np.array([spring - 1, spring], dtype=np.int64))
    assert found.tolist() == [local_ms("2021-03-14 01:59:59.999"), local_ms("2021-03-14 03:00:00")]


@pytest.mark.parametrize(
    ("wall", "instant", "later"),
    [
        ("2021-11-07 00:30:00", "2021-11-07 07:30:00", "2021-11-07 07:30:00"),
        ("2021-11-07 01:30:00", "2021-11-07 08:30:00", "2021-11-07 09:30:00"),
        ("2021-03-14 02:59:59.999", "2021-03-14 10:59:59.999", "2021-03-14 10:00:00"),
        ("2021-03-14 03:00:00", "2021-03-14 10:00:00", "2021-03-14 10:00:00"),
    ],
    ids=["once", "twice", "never", "after the gap"],
)
def test_instants_of_local_times(wall: str, instant: str, later: str) -> None:
    zone = LocalClock("America/Los_Angeles")
    assert zone.to_instant(local_ms(wall)) == local_ms(instant)
    assert zone.to_instant(local_ms(wall), later=True) == local_ms(later)


@pytest.mark.parametrize("time_ms", [-1, 0, 9, 10, -10, -11])
@pytest.mark.parametrize("offset_ms", [0, 3, -4, 23])
def test_windows_are_floored_also_before_the_epoch(time_ms: int, offset_ms: int) -> None:
    window = clock(10, offset_ms=offset_ms, time_type=ROWTIME)
    (end,) = window.ends(pa.array([time_ms], pa.timestamp("ms"))).tolist()
    assert end - 10 <= time_ms < end
    assert (end - offset_ms) % 10 == 0
    assert (window.start(end), window.window_time(end), window.fire_instant(end)) == (end - 10, end - 1, end - 1)


def test_a_timestamp_without_zone_ignores_the_session_zone() -> None:
    window = clock(DAY_MS, "Asia/Shanghai", time_type=ROWTIME)
    assert window.ends(pa.array([0], pa.timestamp("ms"))).tolist() == [DAY_MS]


def test_local_days_have_23_and_25_hours() -> None:
    zone = clock(DAY_MS, "America/Los_Angeles")
    for first_hour, length in (("2024-03-10 08:00", 23), ("2024-11-03 07:00", 25), ("2024-07-01 07:00", 24)):
        start = local_ms(first_hour)
        times = pa.array([start - 1, start, start + length * HOUR_MS - 1, start + length * HOUR_MS])
        ends = zone.ends(times.cast(pa.timestamp("ms", "UTC"))).tolist()
        assert ends[1] == ends[2]
        assert (ends[1] - ends[0], ends[3] - ends[2]) == (DAY_MS, DAY_MS)
        assert zone.fire_instant(ends[1]) == start + length * HOUR_MS - 1
        assert zone.window_time(ends[1]) == start + length * HOUR_MS - 1


def test_an_hour_that_occurs_twice_fires_after_its_second_occurrence() -> None:
    zone = clock(HOUR_MS, "America/Los_Angeles")
    end = local_ms("2021-11-07 02:00:00")
    first, second = local_ms("2021-11-07 08:15:00"), local_ms("2021-11-07 09:15:00")
    assert zone.ends(pa.array([first, second]).cast(pa.timestamp("ms", "UTC"))).tolist() == [end, end]
    assert zone.fire_instant(end) == local_ms("2021-11-07 09:59:59.999")
    assert zone.fire_instants(np.array([end, end + HOUR_MS], dtype=np.int64)).tolist() == [
        local_ms("2021-11-07 09:59:59.999"),
        local_ms("2021-11-07 10:59:59.999"),
    ]


def test_windows_fire_in_the_order_of_their_ends() -> None:
    zone = clock(HOUR_MS // 2, "America/Los_Angeles")
    for day in ("2021-11-07", "2021-03-14"):
        ends = [local_ms(f"{day} 00:00:00") + i * HOUR_MS // 2 for i in range(48)]
        instants = [zone.fire_instant(end) for end in ends]
        assert instants == sorted(instants)


def test_a_row_without_event_time_is_refused() -> None:
    with pytest.raises(NullRowtimeError, match="the time column of the window is NULL"):
        clock(10).ends(pa.array([None], pa.timestamp("ms", "UTC")))
