"""Time zones as Java has them: instants ↔ local date-times, vectorised over sorted transition tables.

Arrow refuses or misplaces local times in gaps and overlaps, and knows no `GMT+08:00`; so the transitions of a zone
(from the shipped tz database) are tabled once per process and looked up by binary search.
"""

from __future__ import annotations

import importlib.resources
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.IGNORECASE)
_FIRST_YEAR, _LAST_YEAR = 1840, 2400
"""Transitions outside these years are not tabled: the nearest offset holds."""


class Zone:
    """Offsets of a zone by instant and by local time. Times are integers in `units` per second since the epoch."""

    def __init__(self, instants: list[int], offsets: list[int]) -> None:
        """`offsets[i]` (seconds east) holds from `instants[i - 1]` up to `instants[i]` (seconds, ascending)."""
        self._instants = np.array(instants, np.int64)
        self._offsets = np.array(offsets, np.int64)
        before, after = self._offsets[:-1], self._offsets[1:]
        # A local time in a gap or overlap still has the offset from before the transition (java.time) …
        self._local_starts = self._instants + np.maximum(before, after)
        # … or, in an overlap, the one from after it (java.util.Calendar).
        self._local_starts_late = self._instants + after

    @property
    def is_fixed(self) -> bool:
        return len(self._instants) == 0

    def to_local(self, instants: Int64s, units: int) -> Int64s:
        """Wall-clock times of instants."""
        if self.is_fixed:
            return np.asarray(instants + self._offsets[0] * units)
        offsets = self._offsets[np.searchsorted(self._instants, instants // units, "right")]
        return np.asarray(instants + offsets * units)

    def to_instant(self, local: Int64s, units: int, *, later: bool = False) -> Int64s:
        """Instants of wall-clock times: in a gap moved forward by its length, in an overlap the earlier one (`later`:
        the later one)."""
        if self.is_fixed:
            return np.asarray(local - self._offsets[0] * units)
        starts = self._local_starts_late if later else self._local_starts
        offsets = self._offsets[np.searchsorted(starts, local // units, "right")]
        return np.asarray(local - offsets * units)


@lru_cache(maxsize=64)
def zone_of(name: str) -> Zone:
    """The zone of an IANA name or an offset (`+02:00`, `GMT+08:00`). Raises ValueError for an unknown one."""
    if name.upper() in ("UTC", "GMT", "Z", "UT", "ETC/UTC"):
        return Zone([], [0])
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        return Zone([], [-total if sign == "-" else total])
    return Zone(*_transitions(_load(name)))


def _load(name: str) -> tzinfo:
    """The zone from the tz database that is installed with us, so that all machines agree."""
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", name):
        raise ValueError(f"unknown time zone {name!r}")
    *folders, file = name.split("/")
    resource = importlib.resources.files("tzdata").joinpath("zoneinfo", *folders, file)
    try:
        with resource.open("rb") as data:
            return ZoneInfo.from_file(data, name)
    except (OSError, ValueError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


def _transitions(zone: tzinfo) -> tuple[list[int], list[int]]:
    """Instants at which the offset changes, found by monthly probes and bisection, and the offsets around them."""

    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def offset(instant: int) -> int:
        moment = (epoch + timedelta(seconds=instant)).astimezone(zone).utcoffset()
        return int(moment.total_seconds()) if moment is not None else 0

    probes = [
        int((datetime(year, month, 1, tzinfo=UTC) - epoch).total_seconds())
        for year in range(_FIRST_YEAR, _LAST_YEAR)
        for month in range(1, 13)
    ]
    instants: list[int] = []
    offsets = [offset(probes[0])]
    for low, high in pairwise(probes):
        after = offset(high)
        if after == offsets[-1]:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if offset(middle) == offsets[-1]:
                low = middle
            else:
                high = middle
        instants.append(high)
        offsets.append(after)
    return instants, offsets
