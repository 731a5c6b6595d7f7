"""The clock of windows: from time to slices and windows, and from a window end to the instant at which it fires.

Windows over TIMESTAMP are aligned on the value itself. Windows over TIMESTAMP_LTZ are aligned on the local wall time
of the session's time zone, so a local day may have 23 or 25 hours. A window end is always a number of milliseconds in
that clock ("local ms"), while watermarks are instants. Rules follow Flink's TimeWindow, TimeWindowUtil and
SliceAssigners.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import AlignedWindow, AttachedWindow, CumulateWindow, HopWindow, TumbleWindow, Window
from planner.ir.types import TypeRoot

Milliseconds = npt.NDArray[np.int64]

_DAY_MS = 86_400_000
_EPOCH = dt.datetime(1970, 1, 1)
_REMEMBERED_MAX = 10_000
_FIRST_DAY = (dt.datetime(1, 1, 3) - _EPOCH).days
_LAST_DAY = (dt.datetime(9999, 12, 29) - _EPOCH).days
_FIXED_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?$")


class NullRowtimeError(Exception):
    """A row without event time has no window, and no place in an order by time."""

    domain = "user"
    retry = False
    hint = "Filter such rows, or give the time column a value with COALESCE, before the window."

    def __init__(self, operator: str) -> None:
        super().__init__(f"the time column of {operator} is NULL in a row")


class LocalClock:
    """Local wall time of one time zone, as milliseconds, and back. Offsets of days once seen are remembered."""

    def __init__(self, time_zone: str) -> None:
        self._zone = _zone(time_zone)
        self._days: dict[int, tuple[int, int, int]] = {}

    def to_local(self, instants_ms: Milliseconds) -> Milliseconds:
        """Local ms of each instant."""
        if len(instants_ms) == 0:
            return instants_ms
        days = np.clip(instants_ms // _DAY_MS, _FIRST_DAY, _LAST_DAY)
        first, last = int(days.min()), int(days.max())
        if first == last:
            distinct, position = np.array([first]), np.zeros(len(days), dtype=np.int64)
        else:
            distinct, position = np.unique(days, return_inverse=True)
        transition, before, after = np.array([self._day(day) for day in distinct.tolist()], dtype=np.int64).T
        local: Milliseconds = instants_ms + np.where(
            instants_ms < transition[position], before[position], after[position]
        )
        return local

    def to_instant(self, local_ms: int, *, later: bool = False) -> int:
        """Instant of a local time. A local time that occurs twice gives its first occurrence, or the second if `later`.
        One that never occurs is moved forward by the length of the gap, or, if `later`, to the end of the gap."""
        wall = _wall(local_ms)
        offset_first = self._offset_of(wall.replace(fold=0))
        offset_second = self._offset_of(wall.replace(fold=1))
        first, second = local_ms - offset_first, local_ms - offset_second
        if not later or first == second:
            return first
        if first < second:
            return second
        return self._transition(second, first)

    def _day(self, day: int) -> tuple[int, int, int]:
        """Of a UTC day: the instant at which the offset changes (or the day's end), the offset before and after."""
        found = self._days.get(day)
        if found is None:
            start, end = day * _DAY_MS, (day + 1) * _DAY_MS
            before, after = self._offset_at(start), self._offset_at(end - 1)
            found = (end if before == after else self._transition(start, end - 1), before, after)
            self._days[day] = found
        return found

    def _transition(self, low: int, high: int) -> int:
        """The first instant in (low, high] with another offset than at `low`."""
        before = self._offset_at(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset_at(middle) == before else (low, middle)
        return high

    def _offset_at(self, instant_ms: int) -> int:
        utc = (_EPOCH + dt.timedelta(milliseconds=instant_ms)).replace(tzinfo=dt.UTC)
        return self._offset_of(utc.astimezone(self._zone))

    def _offset_of(self, wall: dt.datetime) -> int:
        offset = wall.replace(tzinfo=self._zone).utcoffset() or dt.timedelta()
        return round(offset.total_seconds() * 1000)


class WindowClock:
    """Assigns rows to slices, knows which windows a slice belongs to, and when a window fires.

    A *slice* is the longest stretch of time that no window cuts: the whole window of TUMBLE, one slide of HOP, one
    step of CUMULATE. It is named by its end, as a window is. An attached window is its own only slice."""

    def __init__(self, window: Window, operator: str) -> None:
        self._attached = window if isinstance(window, AttachedWindow) else None
        self._window: AlignedWindow = window.window if isinstance(window, AttachedWindow) else window
        self._operator = operator
        time_type, time_zone = self._window.time_type, self._window.time_zone
        zoned = time_type.root is TypeRoot.TIMESTAMP_LTZ and time_zone not in ("UTC", "Z", "Etc/UTC")
        self._clock = LocalClock(time_zone) if zoned else None
        self._fire_instants: dict[int, int] = {}
        self.slice_ms = _slice_ms(self._window)
        self.is_processing_time = time_type.is_proctime if self._attached else self._window.time_index is None
        """Rows belong to the windows of the wall clock, which fire by timers."""
        self.shares_slices = self._attached is None and self.slice_ms < self._window.size_ms
        """Whether a slice belongs to several windows."""

    @property
    def keeps_merged(self) -> bool:
        """Whether each window holds all of the one before it, up to the last (CUMULATE)."""
        return isinstance(self._window, CumulateWindow)

    def slice_ends(self, rows: pa.RecordBatch, now_ms: int) -> Milliseconds:
        """Slice end, local ms, of each row; `now_ms` is the time of rows of processing time. Raises
        NullRowtimeError."""
        if self._attached is not None:
            return self._values(rows.column(self._attached.end_index))
        if self._window.time_index is None:
            end = self.ends_of_instants(np.array([now_ms], dtype=np.int64))
            return np.repeat(end, rows.num_rows)
        return self.ends(rows.column(self._window.time_index))

    def ends(self, times: pa.Array[Any]) -> Milliseconds:
        """Slice end, local ms, of each event time. Raises NullRowtimeError."""
        return self.ends_of_instants(self._values(times))

    def ends_of_instants(self, values: Milliseconds) -> Milliseconds:
        """Slice end, local ms, of each value of the time column in ms."""
        local = values if self._clock is None else self._clock.to_local(values)
        ends: Milliseconds = local - (local - self._window.offset_ms) % self.slice_ms + self.slice_ms
        return ends

    def last_ends(self, slice_ends: Milliseconds) -> Milliseconds:
        """End of the last window that each slice belongs to."""
        if not self.shares_slices:
            return slice_ends
        if self.keeps_merged:
            size = self._window.size_ms
            first: Milliseconds = slice_ends - 1 - (slice_ends - 1 - self._window.offset_ms) % size
            return first + size
        return slice_ends - self.slice_ms + self._window.size_ms

    def last_end(self, slice_end: int) -> int:
        """`last_ends` of one slice."""
        if not self.shares_slices:
            return slice_end
        size = self._window.size_ms
        return self.start(slice_end) + size if self.keeps_merged else slice_end - self.slice_ms + size

    def first_unfired(self, first_end: int, clock_ms: int) -> int:
        """End of the first window, at or after the one that ends at `first_end`, that has not fired by `clock_ms`."""
        if self.fire_instant(first_end) > clock_ms:
            return first_end
        (end,) = self.ends_of_instants(np.array([clock_ms + 1], dtype=np.int64)).tolist()
        # Where local time is set back, windows that ended before by their names have not fired yet.
        while end > first_end and self.fire_instant(end - self.slice_ms) > clock_ms:
            end -= self.slice_ms
        while self.fire_instant(end) <= clock_ms:
            end += self.slice_ms
        return max(int(end), first_end)

    def fire_instant(self, end: int) -> int:
        """The watermark at which the window fires: its last millisecond. Where that local time occurs twice, the
        second occurrence; where the clock jumps over it, the moment of the jump."""
        if self._clock is None:
            return end - 1
        instant = self._fire_instants.get(end)
        if instant is None:
            if len(self._fire_instants) >= _REMEMBERED_MAX:
                self._fire_instants.clear()
            instant = self._fire_instants[end] = self._clock.to_instant(end - 1, later=True)
        return instant

    def fire_instants(self, ends: Milliseconds) -> Milliseconds:
        """`fire_instant` of each end."""
        if self._clock is None:
            return ends - 1
        distinct, position = np.unique(ends, return_inverse=True)
        return np.array([self.fire_instant(end) for end in distinct.tolist()], dtype=np.int64)[position]

    def start(self, end: int) -> int:
        """`window_start`, local ms, of the window that ends at `end`."""
        size = self._window.size_ms
        if self.keeps_merged:
            return end - 1 - (end - 1 - self._window.offset_ms) % size
        return end - size

    def starts(self, ends: Milliseconds) -> Milliseconds:
        """`start` of each end."""
        size = self._window.size_ms
        if self.keeps_merged:
            starts: Milliseconds = ends - 1 - (ends - 1 - self._window.offset_ms) % size
            return starts
        return ends - size

    def window_time(self, end: int) -> int:
        """`window_time`: the window's last millisecond, as an instant when the time column is TIMESTAMP_LTZ."""
        return end - 1 if self._clock is None else self._clock.to_instant(end - 1)

    def window_times(self, ends: Milliseconds) -> Milliseconds:
        """`window_time` of each end."""
        if self._clock is None:
            return ends - 1
        distinct, position = np.unique(ends, return_inverse=True)
        return np.array([self.window_time(end) for end in distinct.tolist()], dtype=np.int64)[position]

    def _values(self, times: pa.Array[Any]) -> Milliseconds:
        return rowtimes(times, self._operator)


def rowtimes(times: pa.Array[Any], operator: str) -> Milliseconds:
    """A column of TIMESTAMP or TIMESTAMP_LTZ in ms. Raises NullRowtimeError."""
    if times.null_count:
        raise NullRowtimeError(operator)
    values: Milliseconds = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64()).to_numpy()
    return values


def _slice_ms(window: AlignedWindow) -> int:
    match window:
        case TumbleWindow():
            return window.size_ms
        case HopWindow():
            return window.slide_ms
        case CumulateWindow():
            return window.step_ms


def _zone(time_zone: str) -> dt.tzinfo:
    """An IANA zone, or a fixed offset such as `+08:00` or `GMT-3`."""
    fixed = _FIXED_OFFSET.fullmatch(time_zone)
    if fixed is not None:
        offset = dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
        return dt.timezone(-offset if fixed[1] == "-" else offset)
    return zoneinfo.ZoneInfo("UTC" if time_zone == "Z" else time_zone)


def _wall(local_ms: int) -> dt.datetime:
    """Local ms as a naive datetime, held within the years the calendar knows."""
    low, high = _FIRST_DAY * _DAY_MS, _LAST_DAY * _DAY_MS
    return _EPOCH + dt.timedelta(milliseconds=min(max(local_ms, low), high))
