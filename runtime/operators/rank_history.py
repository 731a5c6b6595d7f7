"""Which of ordered items are there after each of a sequence of events, and who is the n-th of them.

A wavelet matrix over the events: level by level (one per bit of an item's number) events are parted by that bit, with
running counts. A question about a moment walks down the levels; any number of questions are asked at once, so nothing
loops over events. Items may come and go; an item is there at most once.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class _Level(msgspec.Struct, frozen=True):
    """`zeros[i]`: how many of the first i events have a 0 here; `totals[i]`: the sum of their signs; `zero_count` of
    all."""

    zeros: Ints
    totals: Ints
    zero_count: int


class History:
    """A *moment* is the number of events that have happened. Items are 0..`size` - 1."""

    def __init__(self, items: Ints, signs: Ints, size: int) -> None:
        self._signs = _running(signs)
        # Room for `size` itself: `count_below` may be asked for it.
        self._bits = max(1, size.bit_length())
        self._levels: list[_Level] = []
        for shift in range(self._bits - 1, -1, -1):
            is_zero = (items >> shift) & 1 == 0
            zeros = _running(is_zero)
            self._levels.append(_Level(zeros, _running(np.where(is_zero, signs, 0)), int(zeros[-1])))
            order = np.concatenate((np.flatnonzero(is_zero), np.flatnonzero(~is_zero)))
            items, signs = items[order], signs[order]

    def count(self, moments: Ints) -> Ints:
        """How many items are there."""
        return self._signs[moments]

    def count_below(self, moments: Ints, items: Ints) -> Ints:
        """How many of the items that are there are smaller than `items`."""
        first, last = np.zeros_like(moments), moments
        counts = np.zeros_like(moments)
        for shift, level in zip(range(self._bits - 1, -1, -1), self._levels, strict=True):
            is_one = (items >> shift) & 1 == 1
            counts += np.where(is_one, level.totals[last] - level.totals[first], 0)
            first, last = _descend(level, is_one, first, last)
        return counts

    def select(self, moments: Ints, ranks: Ints) -> Ints:
        """The item that has `ranks` (0 or more) smaller ones beside it; there must be one."""
        first, last = np.zeros_like(moments), moments
        items = np.zeros_like(moments)
        ranks = ranks.copy()
        for shift, level in zip(range(self._bits - 1, -1, -1), self._levels, strict=True):
            below = level.totals[last] - level.totals[first]
            is_one = ranks >= below
            ranks -= np.where(is_one, below, 0)
            items |= is_one.astype(np.int64) << shift
            first, last = _descend(level, is_one, first, last)
        return items


def _running(values: npt.NDArray[np.generic]) -> Ints:
    totals = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=totals[1:])
    return totals


def _descend(level: _Level, is_one: npt.NDArray[np.bool_], first: Ints, last: Ints) -> tuple[Ints, Ints]:
    zeros_first, zeros_last = level.zeros[first], level.zeros[last]
    return (
        np.where(is_one, level.zero_count + first - zeros_first, zeros_first),
        np.where(is_one, level.zero_count + last - zeros_last, zeros_last),
    )
