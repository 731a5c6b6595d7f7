"""What a ranking shows before and after a batch, or around each of its rows, as a changelog.

The answer to one row added: the *wide* state (with it) and the *narrow* one (without it) differ in that row, and in
the ranks of those behind it. A row removed is the same backwards. All questions about states go to a `History`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from planner.ir.ranks import RankFunction
from runtime.operators.group_aggregate_output import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.rank_entries import Entries, Run, turns_of
from runtime.operators.rank_history import History

Array = Any
Kinds = npt.NDArray[np.int8]

PAIRS_MAX = 65_536
"""Steps are answered in pieces of about so many changes: each row may shift all ranks."""


class Range(msgspec.Struct, frozen=True):
    """Which ranks are shown, and how."""

    function: RankFunction
    first: int
    last: int
    puts_out_rank: bool

    @property
    def is_by_rank(self) -> bool:
        """A partition shows one row per rank (or one at all), which others replace."""
        return self.function is RankFunction.ROW_NUMBER and (self.puts_out_rank or self.first == self.last)

    @property
    def has_updates(self) -> bool:
        """What is shown may be replaced; else rows come and go."""
        return self.puts_out_rank or self.is_by_rank


class Changes(msgspec.Struct, frozen=True):
    """Rows to put out in order; `places` are those of entries."""

    kinds: Kinds
    places: Ints
    ranks: Ints


def relevant(entries: Entries, shown: Range) -> Entries:
    """Without the entries that are out of reach during the whole batch: behind enough rows that stay all the time."""
    stable = entries.was_there & entries.stays
    return entries.only(entries.better(stable, shown.function) < shown.last)


# ------------------------------------------------------------------------------------------------ net emission


def net_changes(
    entries: Entries, shown: Range, same: Callable[[Ints, Ints], Bools], identities: Callable[[Ints, Ints], Ints]
) -> Changes:
    """The difference of what is shown before and after. `same` compares rows by place; `identities` numbers
    (partition, place) pairs: equal for rows of one upsert key, or, without one, for equal rows."""
    old_ranks = entries.better(entries.was_there, shown.function) + 1
    new_ranks = entries.better(entries.stays, shown.function) + 1
    old = np.flatnonzero(entries.was_there & (old_ranks >= shown.first) & (old_ranks <= shown.last))
    new = np.flatnonzero(entries.stays & (new_ranks >= shown.first) & (new_ranks <= shown.last))
    if shown.is_by_rank:
        old_names, new_names = _by_rank(entries, shown, (old, old_ranks[old]), (new, new_ranks[new]))
    else:
        # What stays as it is needs no name.
        moved = old_ranks != new_ranks if shown.puts_out_rank else np.zeros(len(old_ranks), dtype=np.bool_)
        old, new = _without_common(old, new, ~moved)
        rows = np.concatenate((old, new))
        names = identities(entries.partitions[rows], entries.places[rows])
        names = _numbered(names[: len(old)], names[len(old) :])
        old_names, new_names = names[: len(old)], names[len(old) :]
    return _difference(entries, (old, old_ranks[old], old_names), (new, new_ranks[new], new_names), shown, same)


def _by_rank(entries: Entries, shown: Range, old: tuple[Ints, Ints], new: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Names of ranks. A partition shows its ranks from the first on without a gap."""
    lengths = np.zeros(len(entries.partition_starts), dtype=np.int64)
    for rows, ranks in (old, new):
        np.maximum.at(lengths, entries.partitions[rows], ranks - shown.first + 1)
    starts = np.cumsum(lengths) - lengths - shown.first
    return starts[entries.partitions[old[0]]] + old[1], starts[entries.partitions[new[0]]] + new[1]


def _without_common(old: Ints, new: Ints, unmoved: Bools) -> tuple[Ints, Ints]:
    sides = np.zeros((2, len(unmoved)), dtype=np.bool_)
    sides[0, old], sides[1, new] = True, True
    common = sides[0] & sides[1] & unmoved
    return old[~common[old]], new[~common[new]]


def _numbered(old: Ints, new: Ints) -> Ints:
    """Names made unique on each side: the k-th row of a name on one side meets the k-th on the other."""
    copies = np.concatenate((_occurrences(old), _occurrences(new)))
    names = np.concatenate((old, new))
    if not copies.any():
        return names
    unique: Ints = np.unique(names * (int(copies.max()) + 1) + copies, return_inverse=True)[1]
    return unique


def _occurrences(names: Ints) -> Ints:
    """How many equal ones are before each."""
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(names) else order
    counts = np.empty(len(names), dtype=np.int64)
    counts[order] = np.arange(len(names)) - np.repeat(starts, np.diff(np.append(starts, len(names))))
    return counts


Side = tuple[Ints, Ints, Ints]
"""Entries shown, their ranks, and names by which the sides are matched (small numbers from 0 on)."""


def _difference(entries: Entries, old: Side, new: Side, shown: Range, same: Callable[[Ints, Ints], Bools]) -> Changes:
    count = max(int(old[2].max(initial=-1)), int(new[2].max(initial=-1))) + 1
    sides = np.full((2, count), -1, dtype=np.int64)
    ranks = np.zeros((2, count), dtype=np.int64)
    for number, (chosen, chosen_ranks, names) in enumerate((old, new)):
        sides[number, names], ranks[number, names] = chosen, chosen_ranks
    was, is_now = sides[0] >= 0, sides[1] >= 0
    both = np.flatnonzero(was & is_now)
    equal = sides[0, both] == sides[1, both]
    # Rows that are not peers differ.
    unsure = np.flatnonzero(~equal & (entries.codes[sides[0, both]] == entries.codes[sides[1, both]]))
    equal[unsure] = same(entries.places[sides[0, both[unsure]]], entries.places[sides[1, both[unsure]]])
    if shown.puts_out_rank:
        equal &= ranks[0, both] == ranks[1, both]
    changed = was | is_now
    changed[both[equal]] = False
    chosen = np.flatnonzero(changed)
    changes = _in_pairs(entries, sides[:, chosen], ranks[:, chosen], shown)
    # Partition by partition; within one what leaves comes first: a row may move from one rank to another.
    partitions = entries.partitions[np.where(was, sides[0], sides[1])[chosen]]
    partitions = np.repeat(partitions, was[chosen].astype(np.int64) + is_now[chosen])
    is_added = (changes.kinds == INSERT) | (changes.kinds == UPDATE_AFTER)
    order = np.lexsort((is_added, partitions))
    return Changes(changes.kinds[order], changes.places[order], changes.ranks[order])


def _in_pairs(entries: Entries, sides: Ints, ranks: Ints, shown: Range) -> Changes:
    """The changes from the first side to the second, pair by pair; -1 = nothing is shown on that side."""
    was, is_now = sides >= 0
    kinds = np.empty(2 * len(was), dtype=np.int8)
    kinds[0::2], kinds[1::2] = DELETE, INSERT
    if shown.has_updates:
        replaced = was & is_now
        kinds[0::2][replaced], kinds[1::2][replaced] = UPDATE_BEFORE, UPDATE_AFTER
    chosen = np.flatnonzero(sides.T.reshape(-1) >= 0)
    return Changes(
        kinds[chosen],
        entries.places[sides.T.reshape(-1)[chosen]],
        ranks.T.reshape(-1)[chosen],
    )


# ---------------------------------------------------------------------------------------- emission of every change


class _Steps(msgspec.Struct, frozen=True):
    """Additions and removals in order of arrival: the entry, its partition, whether it is added, the moment of the wide
    state, and whether the entry is the only one of its peers there."""

    entries: Ints
    partitions: Ints
    is_added: Bools
    moments: Ints
    is_alone: Bools

    def part(self, chosen: Any) -> _Steps:
        return _Steps(
            self.entries[chosen],
            self.partitions[chosen],
            self.is_added[chosen],
            self.moments[chosen],
            self.is_alone[chosen],
        )


class EveryChange:
    """Answers row by row, as Flink's Top-N functions do, without a loop over rows."""

    def __init__(self, entries: Entries, run: Run, shown: Range) -> None:
        self._entries = entries
        self._shown = shown
        self._dense = shown.function is RankFunction.DENSE_RANK
        count = len(entries.places)
        items = np.arange(count)
        ended = items[~entries.stays]
        # Of the events of one place in time: what was stored, then removals, then additions.
        when = np.concatenate(
            (
                np.where(entries.was_there, 3 * run.starts[entries.partitions], 3 * entries.starts + 2),
                3 * entries.ends[ended] + 1,
            )
        )
        order = np.argsort(when, kind="stable")
        self._items = np.concatenate((items, ended))[order]
        self._signs = np.where(order < count, 1, -1)
        self._when = when[order]
        self._history = History(self._items, self._signs, count)
        partition_count = len(run.starts)
        self._bases = _earlier(entries.partitions[entries.stays], partition_count)
        alone = np.zeros(len(order), dtype=np.bool_)
        if self._dense:
            alone = self._follow_groups(partition_count)
        self._steps = self._steps_of(run, alone)

    def changes(self) -> Iterator[Changes]:
        """In order of arrival, in pieces."""
        steps = self._steps
        if not len(steps.entries):
            return
        if self._shown.function is not RankFunction.ROW_NUMBER:
            yield from self._shifts_of_peers(steps)
            return
        positions = self._history.count_below(steps.moments, steps.entries) - self._bases[steps.partitions]
        enters = np.flatnonzero(positions < self._shown.last)
        steps, positions = steps.part(enters), positions[enters]
        counts = self._history.count(steps.moments) - self._bases[steps.partitions]
        if self._shown.puts_out_rank:
            yield from self._shifts(steps, positions, counts)
        else:
            yield self._at_the_edges(steps, positions, counts)

    def _steps_of(self, run: Run, alone: Bools) -> _Steps:
        stored = (self._when % 3) == 0
        chosen = np.flatnonzero(~stored)
        is_added = self._signs[chosen] > 0
        arrivals = run.arrivals[self._when[chosen] // 3]
        order = np.argsort(2 * arrivals + is_added, kind="stable")
        chosen, is_added = chosen[order], is_added[order]
        items = self._items[chosen]
        return _Steps(items, self._entries.partitions[items], is_added, chosen + is_added, alone[chosen])

    # ------------------------------------------------------------------------------------------------ ROW_NUMBER

    def _shifts(self, steps: _Steps, positions: Ints, counts: Ints) -> Iterator[Changes]:
        """Each rank from the row's own on has another row: -U, +U; at the tail +I or -D."""
        shown = self._shown
        first = np.maximum(positions, shown.first - 1)
        lengths = np.minimum(counts, shown.last) - first
        some = np.flatnonzero(lengths > 0)
        steps, first, lengths, counts = steps.part(some), first[some], lengths[some], counts[some]
        for piece in _in_pieces(lengths):
            yield self._shifted(steps.part(piece), first[piece], lengths[piece], counts[piece])

    def _shifted(self, steps: _Steps, first: Ints, lengths: Ints, counts: Ints) -> Changes:
        # One more than ranks: the row behind the last of them, if there is one.
        owners, within = _expanded(lengths + 1)
        positions = first[owners] + within
        asked = np.flatnonzero(positions < counts[owners])
        found = np.full(len(owners), -1, dtype=np.int64)
        bases = self._bases[steps.partitions]
        found[asked] = self._history.select(steps.moments[owners[asked]], bases[owners[asked]] + positions[asked])
        begins = np.cumsum(lengths + 1) - (lengths + 1)
        owners, within = _expanded(lengths)
        is_added = steps.is_added[owners]
        # Away from where rows go to, so that a row leaves its old rank before it has the new one.
        within = np.where(is_added, within, lengths[owners] - 1 - within)
        wide, narrow = found[begins[owners] + within], found[begins[owners] + within + 1]
        sides = np.stack((np.where(is_added, narrow, wide), np.where(is_added, wide, narrow)))
        ranks = first[owners] + within + 1
        return _in_pairs(self._entries, sides, np.stack((ranks, ranks)), self._shown)

    def _at_the_edges(self, steps: _Steps, positions: Ints, counts: Ints) -> Changes:
        """One row enters what is shown, and one leaves it."""
        shown, bases = self._shown, self._bases[steps.partitions]
        edge = np.maximum(positions, shown.first - 1)
        found = np.full((2, len(positions)), -1, dtype=np.int64)
        for number, place in enumerate((edge, np.full(len(edge), shown.last, dtype=np.int64))):
            exists = np.flatnonzero(place < counts)
            found[number, exists] = self._history.select(steps.moments[exists], bases[exists] + place[exists])
        leaving = np.where(steps.is_added, found[1], found[0])
        entering = np.where(steps.is_added, found[0], found[1])
        return _in_pairs(self._entries, np.stack((leaving, entering)), np.zeros((2, len(edge)), np.int64), shown)

    # ------------------------------------------------------------------------------------------ RANK, DENSE_RANK

    def _follow_groups(self, partition_count: int) -> Bools:
        """A history of groups of peers beside that of entries. Returns at which events a group comes or goes."""
        groups = self._entries.groups[self._items]
        turns = turns_of(groups, self._signs)
        self._group_moments = np.concatenate(([0], np.cumsum(turns)))
        self._group_history = History(groups[turns], self._signs[turns], len(self._entries.group_starts))
        entries = self._entries
        alive = np.logical_or.reduceat(entries.stays, entries.group_starts)
        partitions = entries.partitions[entries.group_starts]
        self._group_bases = _earlier(partitions[alive], partition_count)
        return turns

    def _better(self, moments: Ints, partitions: Ints, entries: Ints) -> Ints:
        """How many rank before an entry, at a moment."""
        groups = self._entries.groups[entries]
        if self._dense:
            counts = self._group_history.count_below(self._group_moments[moments], groups)
            return counts - self._group_bases[partitions]
        counts = self._history.count_below(moments, self._entries.group_starts[groups])
        return counts - self._bases[partitions]

    def _through(self, steps: _Steps, entries: Ints) -> Ints:
        """How many of the partition are there up to the last peer of an entry, in the wide state."""
        ends = self._entries.group_ends[self._entries.groups[entries]]
        return self._history.count_below(steps.moments, ends) - self._bases[steps.partitions]

    def _shifts_of_peers(self, steps: _Steps) -> Iterator[Changes]:
        """Each row behind the row's peers has another rank."""
        own = self._better(steps.moments, steps.partitions, steps.entries)
        enters = np.flatnonzero(own < self._shown.last)
        steps, own = steps.part(enters), own[enters]
        first = self._through(steps, steps.entries)
        lengths = np.maximum(self._reach(steps, own) - first, 0)
        if self._dense:
            lengths = np.where(steps.is_alone, lengths, 0)
        for piece in _in_pieces(lengths + 1):
            yield self._shifted_peers(steps.part(piece), own[piece], first[piece], lengths[piece])

    def _reach(self, steps: _Steps, own: Ints) -> Ints:
        """How many rows of the wide state have, with or without the step's row, a rank that may be shown."""
        last = self._shown.last
        if self._dense:
            history, bases, moments = self._group_history, self._group_bases, self._group_moments[steps.moments]
            position = own
        else:
            history, bases, moments = self._history, self._bases, steps.moments
            position = history.count_below(moments, steps.entries) - bases[steps.partitions]
        counts = history.count(moments) - bases[steps.partitions]
        reach = self._history.count(steps.moments) - self._bases[steps.partitions]
        # The last that counts, among all but the step's own.
        edge = np.where(last - 1 < position, last - 1, last)
        cut = np.flatnonzero(counts > last)
        if len(cut):
            some = steps.part(cut)
            found = history.select(moments[cut], bases[some.partitions] + edge[cut])
            entries = self._entries.group_starts[found] if self._dense else found
            reach[cut] = self._through(some, entries)
        return reach

    def _shifted_peers(self, steps: _Steps, own: Ints, first: Ints, lengths: Ints) -> Changes:
        # The step's own row is the first of those removed, the last of those added.
        owners, within = _expanded(lengths + 1)
        is_added = steps.is_added[owners]
        is_own = within == np.where(steps.is_added, lengths, 0)[owners]
        found = steps.entries[owners]
        asked = np.flatnonzero(~is_own)
        moments, partitions = steps.moments[owners[asked]], steps.partitions[owners[asked]]
        positions = first[owners[asked]] + within[asked] - ~is_added[asked]
        found[asked] = self._history.select(moments, self._bases[partitions] + positions)
        wide = own[owners] + 1
        wide[asked] = self._better(moments, partitions, found[asked]) + 1
        narrow = np.where(is_own, 0, wide - 1)
        ranks = np.stack((np.where(is_added, narrow, wide), np.where(is_added, wide, narrow)))
        shown = (ranks >= self._shown.first) & (ranks <= self._shown.last)
        if not self._shown.puts_out_rank:
            shown &= ~(shown[0] & shown[1])
        return _in_pairs(self._entries, np.where(shown, found, -1), ranks, self._shown)


def _earlier(partitions: Ints, partition_count: int) -> Ints:
    """Per partition how many of all belong to earlier ones."""
    counts = np.bincount(partitions, minlength=partition_count)
    earlier: Ints = np.cumsum(counts) - counts
    return earlier


def _expanded(lengths: Ints) -> tuple[Ints, Ints]:
    """For each of `lengths` so many rows: the index of their owner, and 0, 1, … within it."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owners, within


def _in_pieces(lengths: Ints) -> Iterator[slice]:
    """Stretches of steps with about PAIRS_MAX changes together."""
    totals = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        done = int(totals[first - 1]) if first else 0
        last = max(int(np.searchsorted(totals, done + PAIRS_MAX, side="right")), first + 1)
        yield slice(first, last)
        first = last
