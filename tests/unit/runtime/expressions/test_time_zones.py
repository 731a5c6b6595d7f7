"""Zones and calendar arithmetic against Python's own."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.operators.expressions import civil
from runtime.operators.expressions.zones import zone_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Sao_Paulo",
)


@given(zone=st.sampled_from(ZONES), second=st.integers(-4_000_000_000, 7_000_000_000))
def test_local_time_is_pythons(zone: str, second: int) -> None:
    expected = (EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    local = zone_of(zone).to_local(np.array([second]), 1)[0]
    assert local == int((expected - EPOCH).total_seconds())


@given(zone=st.sampled_from(ZONES), second=st.integers(-4_000_000_000, 7_000_000_000), later=st.booleans())
def test_instants_of_local_times(zone: str, second: int, later: bool) -> None:
    """In an overlap the earlier (or later) instant; in a gap the offset from before it, as `fold=0` has it."""
    local = (EPOCH + timedelta(seconds=second)).replace(tzinfo=None)
    moments = [local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)]
    in_gap = moments[0] > moments[1]
    expected = moments[0] if in_gap or not later else moments[1]
    instant = zone_of(zone).to_instant(np.array([second]), 1, later=later)[0]
    assert instant == int((expected - EPOCH).total_seconds())


def test_gaps_and_overlaps_of_berlin() -> None:
    zone = zone_of("Europe/Berlin")

    def instant(text: str, *, later: bool = False) -> str:
        local = int((datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH).total_seconds()) * 1000
        return str(EPOCH + timedelta(milliseconds=int(zone.to_instant(np.array([local]), 1000, later=later)[0])))

    assert instant("2023-03-26 02:30") == "2023-03-26 01:30:00+00:00"
    assert instant("2023-10-29 02:30") == "2023-10-29 00:30:00+00:00"
    assert instant("2023-10-29 02:30", later=True) == "2023-10-29 01:30:00+00:00"


@pytest.mark.parametrize(
    ("name", "offset"), [("GMT+08:00", 28_800), ("-05:30", -19_800), ("UTC", 0), ("Z", 0), ("UTC+1", 3600)]
)
def test_fixed_offsets(name: str, offset: int) -> None:
    assert zone_of(name).to_local(np.array([0]), 1)[0] == offset


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../etc/passwd", "", "Europe"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        zone_of(name)


@given(day=st.dates(), months=st.integers(-3000, 3000))
def test_the_calendar_is_pythons(day: date, months: int) -> None:
    days = np.array([day.toordinal() - date(1970, 1, 1).toordinal()])
    assert [int(part[0]) for part in civil.from_days(days)] == [day.year, day.month, day.day]
    assert civil.to_days(np.array([day.year]), np.array([day.month]), np.array([day.day]))[0] == days[0]
    year, week, weekday = day.isocalendar()
    assert (civil.iso_week(days)[0][0], civil.iso_week(days)[1][0], civil.iso_weekday(days)[0]) == (year, week, weekday)
    total = day.year * 12 + day.month - 1 + months
    moved = civil.from_days(civil.add_months(days, np.array([months])))
    assert (moved.year[0], moved.month[0]) == (total // 12, total % 12 + 1)
    assert moved.day[0] == min(day.day, civil.month_length(moved.year, moved.month)[0])
