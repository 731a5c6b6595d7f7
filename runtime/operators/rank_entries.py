"""Rows of the partitions that a batch touches, in their order, each with the stretch of the batch during which it is
there.

A batch's rows are sorted by partition, and by arrival within one; a *place in time* is a place in that order. What is
stored is there from the beginning of its partition's stretch on.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from planner.ir.ranks import RankFunction
from runtime.operators.group_aggregate_scan import Bools, Ints, clamp

Array = Any

_SHORT_MAX = 32_767


class Run(msgspec.Struct, frozen=True):
    """Rows of a batch by (partition, arrival). Partitions are numbered from 0; `arrivals` and `partitions` are per row,
    `starts` and `ends` per partition."""

    arrivals: Ints
    partitions: Ints
    starts: Ints
    ends: Ints

    @property
    def row_count(self) -> int:
        return len(self.arrivals)


def run_of(partitions: Ints, arrivals: Ints) -> Run:
    """From the partition of each row, in order of arrival; partitions are numbered by first occurrence."""
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return Run(arrivals[order], ordered, starts, np.append(starts[1:], len(order)))


class Stored(msgspec.Struct, frozen=True):
    """Rows of the run's partitions that were there before, by (partition, arrival number)."""

    partitions: Ints
    slots: Ints
    numbers: Ints


class Entries(msgspec.Struct, frozen=True):
    """Rows in order: by partition, sort keys, arrival number. One is there in rows [start, end) of the run (start -1:
    it was before). `places` point into the stored rows and then the run's; `slots` are those of stored rows, else -1.
    `groups` are numbers of peers, ascending; `group_starts` and `group_ends` are per group."""

    partitions: Ints
    codes: Ints
    numbers: Ints
    starts: Ints
    ends: Ints
    places: Ints
    slots: Ints
    groups: Ints
    group_starts: Ints
    group_ends: Ints
    partition_starts: Ints
    """Per partition of the run, where its entries begin."""
    last_row_ends: Ints
    """Where the run's rows of the entry's partition end."""

    @property
    def was_there(self) -> Bools:
        """Entries there before the batch."""
        there: Bools = self.starts < 0
        return there

    @property
    def stays(self) -> Bools:
        """Entries there after the batch."""
        there: Bools = self.ends == self.last_row_ends
        return there

    def better(self, there: Bools, function: RankFunction) -> Ints:
        """Per entry: how many of those that are `there` rank before it (for DENSE_RANK: how many groups of peers)."""
        if not len(there):
            return np.zeros(0, dtype=np.int64)
        if function is RankFunction.DENSE_RANK:
            counts = _before(np.logical_or.reduceat(there, self.group_starts))
            group_of_first = self.groups[np.minimum(self.partition_starts, len(there) - 1)]
            per_entry: Ints = counts[self.groups] - counts[group_of_first[self.partitions]]
            return per_entry
        counts = _before(there)
        better: Ints = counts[self.group_starts[self.groups]] - counts[self.partition_starts[self.partitions]]
        return better

    def only(self, chosen: Bools) -> Entries:
        """Those entries alone."""
        if chosen.all():
            return self
        kept = np.flatnonzero(chosen)
        groups = self.groups[kept]
        return _grouped(
            self.partitions[kept],
            self.codes[kept],
            self.numbers[kept],
            self.starts[kept],
            self.ends[kept],
            self.places[kept],
            self.slots[kept],
            np.concatenate(([True], groups[1:] != groups[:-1])) if len(kept) else np.zeros(0, dtype=np.bool_),
            len(self.partition_starts),
            self.last_row_ends[kept],
        )


def _before(values: Bools) -> Ints:
    counts = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=counts[1:])
    return counts


def _grouped(
    partitions: Ints,
    codes: Ints,
    numbers: Ints,
    starts: Ints,
    ends: Ints,
    places: Ints,
    slots: Ints,
    is_first: Bools,
    partition_count: int,
    last_row_ends: Ints,
) -> Entries:
    group_starts = np.flatnonzero(is_first)
    return Entries(
        partitions,
        codes,
        numbers,
        starts,
        ends,
        places,
        slots,
        np.cumsum(is_first) - 1,
        group_starts,
        np.append(group_starts[1:], len(partitions)),
        np.searchsorted(partitions, np.arange(partition_count)),
        last_row_ends,
    )


def entries_of(
    run: Run,
    stored: Stored,
    codes: Ints,
    function: RankFunction,
    lives: Lives | None = None,
    least_numbers: Ints | None = None,
) -> Entries:
    """`codes` order the stored rows and then the run's (see `OrderKeys.codes`). `lives` tells when rows are there;
    None: everything is added and stays. New rows have numbers from `least_numbers` (per partition) on at least."""
    known = len(stored.slots)
    next_numbers = np.zeros(len(run.starts), dtype=np.int64) if least_numbers is None else least_numbers.copy()
    np.maximum.at(next_numbers, stored.partitions, stored.numbers + 1)
    rows = np.arange(run.row_count)
    partitions = np.concatenate((stored.partitions, run.partitions))
    numbers = np.concatenate(
        (stored.numbers, next_numbers[run.partitions] + rows - run.starts[run.partitions]),
    )
    starts = np.concatenate((np.full(known, -1, dtype=np.int64), rows))
    slots = np.concatenate((stored.slots, np.full(run.row_count, -1, dtype=np.int64)))
    last_row_ends = run.ends[partitions]
    # Peers are in order of arrival already: stored rows first, by number.
    if lives is None:
        order = _by_partition(partitions, codes)
        ends = last_row_ends
    else:
        added = np.flatnonzero(lives.is_entry)
        order = added[_by_partition(partitions[added], codes[added])]
        ends = lives.ends
    ordered_partitions, ordered_codes = partitions[order], codes[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    if function is not RankFunction.ROW_NUMBER:
        is_first[1:] = (ordered_partitions[1:] != ordered_partitions[:-1]) | (ordered_codes[1:] != ordered_codes[:-1])
    return _grouped(
        ordered_partitions,
        ordered_codes,
        numbers[order],
        starts[order],
        ends[order],
        order,
        slots[order],
        is_first,
        len(run.starts),
        last_row_ends[order],
    )


def _by_partition(partitions: Ints, codes: Ints) -> Ints:
    """Order by partition, then code; stable."""
    order = codes.argsort(kind="stable")
    wanted = partitions[order]
    # Short integers are sorted by radix.
    if not len(wanted) or int(wanted.max()) <= _SHORT_MAX:
        wanted = wanted.astype(np.int16)
    by_partition: Ints = order[wanted.argsort(kind="stable")]
    return by_partition


class Lives(msgspec.Struct, frozen=True):
    """Of the stored rows and then the run's: whether one is a row that is added, and when it is taken away (the end of
    its partition's rows where it stays). `unknown`: removals of what is not there."""

    is_entry: Bools
    ends: Ints
    unknown: int


def lives_by_key(run: Run, known_partitions: Ints, identities: Ints, adds: Bools) -> Lives:
    """Rows of equal `identities` (stored ones, then the run's) replace each other; a removal takes the one there.
    `adds` is per row of the run."""
    known = len(known_partitions)
    is_add = np.concatenate((np.ones(known, dtype=np.bool_), adds))
    when = np.concatenate((np.full(known, -1, dtype=np.int64), np.arange(run.row_count)))
    ends = run.ends[np.concatenate((known_partitions, run.partitions))]
    order = np.argsort(identities, kind="stable")
    same = identities[order][1:] == identities[order][:-1]
    ends[order[:-1][same]] = when[order[1:][same]]
    previous_added = np.concatenate(([False], is_add[order[:-1]] & same))
    unknown = int(np.count_nonzero(~is_add[order] & ~previous_added))
    return Lives(is_add, ends, unknown)


def lives_by_content(run: Run, known_partitions: Ints, identities: Ints, adds: Bools) -> Lives:
    """A removal takes the oldest of the equal rows that are there.

    The k-th removal that finds its queue of equal rows not empty takes the queue's k-th row."""
    known = len(known_partitions)
    is_add = np.concatenate((np.ones(known, dtype=np.bool_), adds))
    when = np.concatenate((np.full(known, -1, dtype=np.int64), np.arange(run.row_count)))
    ends = run.ends[np.concatenate((known_partitions, run.partitions))]
    order = np.argsort(identities, kind="stable")
    ordered, entering = identities[order], is_add[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(starts, len(ordered)))
    steps = np.where(entering, 1, -1)
    totals = np.cumsum(steps)
    sizes = totals - np.repeat(totals[starts] - steps[starts], lengths)
    if sizes.min() < 0:
        sizes = clamp(sizes, starts, lengths)
    before = np.concatenate(([0], sizes[:-1]))
    before[starts] = 0
    finds = ~entering & (before > 0)
    finds_so_far: Ints = np.cumsum(finds)
    rank = finds_so_far - np.repeat(finds_so_far[starts] - finds[starts], lengths) - 1
    rows = np.flatnonzero(entering)
    rows_before: Ints = np.cumsum(entering) - entering
    found = np.flatnonzero(finds)
    victims = order[rows[np.repeat(rows_before[starts], lengths)[found] + rank[found]]]
    ends[victims] = when[order[found]]
    return Lives(is_add, ends, int(np.count_nonzero(~entering) - len(found)))


def turns_of(groups: Ints, signs: Ints) -> Bools:
    """At which events, in order of time, a group's first entry comes (its sign is 1) or its last one goes (-1)."""
    turns = np.zeros(len(groups), dtype=np.bool_)
    if not len(groups):
        return turns
    order = np.argsort(groups, kind="stable")
    ordered, own = groups[order], signs[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    totals = np.cumsum(own)
    sizes = totals - np.repeat(totals[starts] - own[starts], np.diff(np.append(starts, len(order))))
    turns[order] = sizes == (own > 0)
    return turns


def ranks_of(partitions: Ints, codes: Ints, function: RankFunction) -> Ints:
    """Ranks, from 1, of rows in order of partition and code."""
    count = len(partitions)
    places = np.arange(count)
    is_first = np.ones(count, dtype=np.bool_)
    is_first[1:] = partitions[1:] != partitions[:-1]
    begins = np.maximum.accumulate(np.where(is_first, places, 0))
    if function is RankFunction.ROW_NUMBER:
        return places - begins + 1
    leads = is_first.copy()
    leads[1:] |= codes[1:] != codes[:-1]
    if function is RankFunction.RANK:
        return np.maximum.accumulate(np.where(leads, places, 0)) - begins + 1
    groups: Ints = np.cumsum(leads)
    ranks: Ints = groups - groups[begins] + 1
    return ranks
