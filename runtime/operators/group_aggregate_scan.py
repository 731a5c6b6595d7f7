"""One batch of changes, ordered by group, and the segmented kernels over it.

A batch is sorted by group once (stably, so a group's rows stay in order of arrival; groups stand in the order in which
they first occur). A *segment* is a stretch of rows
of one group during which the group exists; it ends where the group's row count falls to zero. Running values are
computed over whole columns, segment by segment, without a loop over rows.

*States* of an accumulator are a column of G + n values: those of the G groups before the batch, then those after each
of the n rows (emission of every change) or, with n = G, those after the batch (net emission).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SHORT_MAX = 32_767
_ODD = 0x9E3779B97F4A7C15
_ROUNDS_MAX = 64
"""Segments up to this length are summed side by side, row by row of each; longer ones one after the other."""


class Scan:
    """`counts` is the column of row counts by slot, before the batch; it is not changed. `deltas` are changes of the
    row count per row, in order of arrival (None = 1 each)."""

    def __init__(self, slots: Ints, deltas: Ints | None, counts: Ints, *, every: bool) -> None:
        self.every = every
        self.row_count = len(slots)
        firsts = first_rows(slots)
        self.is_sorted = firsts is None
        """No two rows are of one group, so the order is that of arrival."""
        self.order: Ints
        self.group_starts: Ints
        if firsts is None:
            self.order = self.group_starts = np.arange(len(slots))
            self.group_slots = slots
        else:
            # Short integers are sorted by radix.
            short = firsts.astype(np.int16) if len(slots) <= _SHORT_MAX else firsts
            self.order = short.argsort(kind="stable")
            self.group_starts = (firsts[self.order] == self.order).nonzero()[0]
            self.group_slots = slots[self.order[self.group_starts]]
        self.group_count = len(self.group_starts)
        self.group_ends: Ints = _ends(self.group_starts, self.row_count)
        self.group_lengths: Ints = self.group_ends - self.group_starts
        self.initial_counts: Ints = counts[self.group_slots]
        self.starts, self.segment_groups = self.group_starts, np.arange(self.group_count)
        self.has_retractions = False
        self.applies: Bools | None = None
        """Which rows count at all; None = all. The others are retractions that meet no group."""
        self.ignored = 0
        """Retractions for groups that do not exist."""
        self.clamped = 0
        """Rows after which the count would have been below zero."""
        if deltas is None:
            self.weights: Ints = np.ones(self.row_count, dtype=np.int64)
            self.running_counts = self.running(self.weights, self.initial_counts)
        else:
            self._count(self.sorted(deltas))
        self.final_counts: Ints = self.running_counts[self.group_ends - 1]
        self.has_restarts = self.starts is not self.group_starts
        self.lengths: Ints = self.group_lengths
        if self.has_restarts:
            self.lengths = _ends(self.starts, self.row_count) - self.starts

    def sorted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values in order of arrival ordered by group; they may be the same array."""
        return values if self.is_sorted else values[self.order]

    def running(self, values: Ints, initial: Ints) -> Ints:
        """Running sums per group."""
        if self.is_sorted:
            return initial + values
        totals = values.cumsum()
        offsets = initial - totals[self.group_starts] + values[self.group_starts]
        totals += offsets.repeat(self.group_lengths)
        return totals

    def _count(self, deltas: Ints) -> None:
        """Row counts over retractions: never below zero; what meets no group is ignored."""
        counts = self.running(deltas, self.initial_counts)
        self.has_retractions = bool((deltas < 0).any())
        lowest = counts.min()
        if lowest < 0:
            counts = clamp(counts, self.group_starts, self.group_lengths)
        before = self.before(counts)
        unknown = (before == 0) & (deltas <= 0)
        if lowest < 0:
            self.clamped = int(np.count_nonzero((before > 0) & (before + deltas < 0)))
        self.running_counts = counts
        self.weights = deltas
        if unknown.any():
            self.ignored = int(np.count_nonzero(unknown & (deltas < 0)))
            self.applies = ~unknown
            self.weights = np.where(unknown, 0, deltas)
        died = before == 0
        died[self.group_starts] = False
        if died.any():
            died[self.group_starts] = True
            self.starts = np.flatnonzero(died)
            self.segment_groups = np.repeat(np.arange(self.group_count), self.group_lengths)[self.starts]

    def before(self, running: Ints) -> Ints:
        """Counts before each row from counts after each row."""
        shifted = np.empty_like(running)
        shifted[1:] = running[:-1]
        shifted[self.group_starts] = self.initial_counts
        return shifted

    @property
    def positions_of_groups(self) -> Ints:
        """Index of the group of each row."""
        return np.repeat(np.arange(self.group_count), self.group_lengths)

    def initial_of_segments(self, initial: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Per segment what it starts from: its group's value, or nothing where the group had ended before."""
        if not self.has_restarts:
            return initial
        values = initial[self.segment_groups]
        values[self.starts != self.group_starts[self.segment_groups]] = 0
        return values

    def states(self, initial: npt.NDArray[Any], running: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """States from the values before the batch and after each row."""
        return np.concatenate((initial, running if self.every else running[self.group_ends - 1]))

    def sum(self, values: Ints, initial: Ints) -> Ints:
        """States of a sum; integers wrap."""
        if self.is_sorted:
            return np.concatenate((initial, initial + values))
        totals = values.cumsum()
        offsets = self.initial_of_segments(initial) - totals[self.starts] + values[self.starts]
        if self.every:
            totals += np.repeat(offsets, self.lengths)
            return np.concatenate((initial, totals))
        last = self.last_segments()
        return np.concatenate((initial, totals[self.group_ends - 1] + offsets[last]))

    def last_segments(self) -> Ints | slice:
        """The last segment of each group."""
        if not self.has_restarts:
            return slice(None)
        return np.append(np.flatnonzero(np.diff(self.segment_groups)), len(self.starts) - 1)

    def final(self, states: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values after the batch, per group."""
        running = states[self.group_count :]
        return running[self.group_ends - 1] if self.every else running

    def highest(self, values: Ints, initial: Ints) -> Ints:
        """States of a maximum over groups that take nothing back."""
        if self.is_sorted:
            return np.concatenate((initial, np.maximum(values, initial)))
        if not self.every:
            final = np.maximum(np.maximum.reduceat(values, self.starts), initial)
            return np.concatenate((initial, final))
        running = values.copy()
        running[self.starts] = np.maximum(running[self.starts], initial)
        running_maximum(running, self.starts, self.lengths)
        return np.concatenate((initial, running))


def _ends(starts: Ints, row_count: int) -> Ints:
    """Where stretches end that begin at `starts` and lie side by side."""
    ends = np.empty(len(starts), dtype=np.int64)
    ends[:-1], ends[-1:] = starts[1:], row_count
    return ends


def first_rows(slots: Ints) -> Ints | None:
    """Per row the first row with the same slot; None where no slot repeats. A small table that fits a core's cache is
    asked round by round: in each every row whose place in it belongs to its own slot is done."""
    count = len(slots)
    bits = max(6, (4 * count).bit_length())
    table = np.empty(1 << bits, dtype=np.int32)
    rows = np.arange(count)
    firsts = rows.copy()
    factor = 1
    pending, wanted, is_distinct = rows, slots, True
    while len(pending):
        factor = factor * _ODD % 2**64
        places = ((wanted.view(np.uint64) * np.uint64(factor)) >> np.uint64(64 - bits)).view(np.int64)
        # Backwards: of the rows that want one place the first is written last and stays.
        table[places[::-1]] = pending[::-1]
        owners = table[places]
        others = (owners != pending).nonzero()[0]
        if not len(others):
            break
        same = slots[owners[others]] == wanted[others]
        if same.any():
            is_distinct = False
            twins = others[same]
            firsts[pending[twins]] = owners[twins]
        others = others[~same]
        pending, wanted = pending[others], wanted[others]
    return None if is_distinct else firsts


def running_maximum(values: Ints, starts: Ints, lengths: Ints) -> None:
    """In place: each value becomes the largest of its segment up to it. By doubling: log2(longest segment) passes."""
    longest = int(lengths.max())
    if longest == 1:
        return
    ranks = np.arange(len(values)) - np.repeat(starts, lengths)
    distance = 1
    while distance < longest:
        reached = np.flatnonzero(ranks >= distance)
        values[reached] = np.maximum(values[reached], values[reached - distance])
        distance *= 2


def clamp(running: Ints, starts: Ints, lengths: Ints) -> Ints:
    """What running sums become when no sum may fall below zero: each step is taken from the clamped sum before it, so a
    sum is raised by the deepest fall so far."""
    falls = np.maximum(-running, 0)
    running_maximum(falls, starts, lengths)
    raised: Ints = running + falls
    return raised


def running_doubles(
    starts: Ints, lengths: Ints, values: Doubles, sums: Doubles, rests: Doubles
) -> tuple[Doubles, Doubles]:
    """Running sums of each segment and, apart, what rounding left out of them (Neumaier's compensation), from the
    segment's `sums` and `rests` before. A sum that is not finite has rest 0."""
    with np.errstate(all="ignore"):
        return _running_doubles(starts, lengths, values, sums, rests)


def _running_doubles(
    starts: Ints, lengths: Ints, values: Doubles, sums: Doubles, rests: Doubles
) -> tuple[Doubles, Doubles]:
    running, left = np.empty_like(values), np.empty_like(values)
    by_length = np.argsort(-lengths, kind="stable")
    long_count = int(np.count_nonzero(lengths > _ROUNDS_MAX))
    for segment in by_length[:long_count].tolist():
        first = int(starts[segment])
        stretch = slice(first, first + int(lengths[segment]))
        totals = np.cumsum(np.concatenate((sums[segment : segment + 1], values[stretch])))
        running[stretch] = totals[1:]
        left[stretch] = rests[segment] + np.cumsum(_rounding(totals[:-1], values[stretch], totals[1:]))
    short = by_length[long_count:]
    lengths, positions = lengths[short], starts[short].copy()
    total, rest = sums[short], rests[short]
    alive = len(short)
    for done in range(int(lengths[0]) if alive else 0):
        alive = int(np.searchsorted(-lengths, -done))
        positions, total, rest = positions[:alive], total[:alive], rest[:alive]
        added = values[positions]
        following = total + added
        rest = rest + _rounding(total, added, following)
        total = following
        running[positions], left[positions] = total, rest
        positions = positions + 1
    left[~np.isfinite(running)] = 0.0
    return running, left


def _rounding(before: Doubles, added: Doubles, after: Doubles) -> Doubles:
    """The part of before + added that `after` lacks; 0 where a sum is not finite."""
    larger = np.abs(before) >= np.abs(added)
    error = np.where(larger, (before - after) + added, (added - after) + before)
    error[~np.isfinite(error)] = 0.0
    return error


def highest_over_intervals(row_count: int, starts: Ints, ends: Ints, codes: Ints) -> Ints:
    """Per row the largest code (>= 0) of the intervals [start, end) that cover it, -1 where none does. A segment tree
    over the rows: every interval marks O(log n) nodes, all intervals at once, level by level."""
    size = 1 << max(row_count - 1, 0).bit_length()
    tree = np.full(2 * size, -1, dtype=np.int64)
    left, right = starts + size, ends + size
    codes = codes.copy()
    while True:
        open_ = left < right
        if not open_.all():
            left, right, codes = left[open_], right[open_], codes[open_]
        if not len(left):
            break
        odd = (left & 1) == 1
        np.maximum.at(tree, left[odd], codes[odd])
        left = (left + 1) >> 1
        odd = (right & 1) == 1
        np.maximum.at(tree, right[odd] - 1, codes[odd])
        right = right >> 1
    level = 1
    while level < size:
        children = tree[2 * level : 4 * level]
        np.maximum(children, np.repeat(tree[level : 2 * level], 2), out=children)
        level *= 2
    return tree[size : size + row_count]
