"""The values of an argument per group, with how often each is there: DISTINCT, and MIN and MAX that can be taken back.

One table per argument, keyed by group and value, with a count per FILTER; all aggregates on that argument share it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir.types import DataType, to_arrow
from runtime.operators.accumulators_running import Changes, Selection
from runtime.operators.accumulators_values import (
    Values,
    fits_one_word,
    ordered_integers,
    rank_codes,
    take_or_null,
)
from runtime.operators.group_aggregate_scan import Bools, Ints, Scan, clamp, highest_over_intervals
from runtime.operators.grouping import canonical_floats
from runtime.state.protocol import KeyedStateBackend, KeyedTable

Array = Any


class Multisets:
    """All multisets of an operator, by argument."""

    def __init__(self, key_schema: pa.Schema, *, retracting: bool, ttl_ms: int) -> None:
        self._key_schema = key_schema
        self._retracting = retracting
        self._ttl_ms = ttl_ms
        self._by_argument: dict[int, Multiset] = {}

    @property
    def clamped(self) -> int:
        return sum(multiset.clamped for multiset in self._by_argument.values())

    def add_distinct(self, selection: Selection, kind: DataType) -> None:
        """Ask for the weights of a DISTINCT selection."""
        self._of(selection, kind).add(selection.filter)

    def add_counts(self, selection: Selection, kind: DataType) -> Multiset:
        """Ask for a count per value of a selection."""
        multiset = self._of(selection, kind)
        multiset.add(selection.filter)
        return multiset

    def open(self, backend: KeyedStateBackend) -> None:
        for multiset in self._by_argument.values():
            multiset.open(backend)

    def apply(self, changes: Changes) -> None:
        for multiset in self._by_argument.values():
            multiset.apply(changes)

    def forget(self, changes: Changes, dead: Bools) -> None:
        for multiset in self._by_argument.values():
            multiset.forget(changes, dead)

    def settle(self) -> None:
        for multiset in self._by_argument.values():
            multiset.settle()

    def _of(self, selection: Selection, kind: DataType) -> Multiset:
        assert selection.argument is not None
        multiset = self._by_argument.get(selection.argument)
        if multiset is None:
            multiset = Multiset(
                selection.argument, kind, self._key_schema, retracting=self._retracting, ttl_ms=self._ttl_ms
            )
            self._by_argument[selection.argument] = multiset
        return multiset


class Events(msgspec.Struct, frozen=True):
    """What a batch did to the count of one filter: per event, in order of pair and arrival, the count `after`; per pair
    (a value of a group) the count before (`initial`) and after the batch (`final`)."""

    after: Ints
    initial: Ints
    final: Ints


class Pairs(msgspec.Struct, frozen=True):
    """The pairs a batch touched. `positions` are the events' places in the scan, in order of pair and arrival; a pair's
    events are `starts` up to the next start. `slots` and `groups` (index into the scan's groups) are per pair."""

    positions: Ints
    starts: Ints
    slots: Ints
    groups: Ints
    by_filter: dict[int | None, Events]


class Multiset:
    """After `apply`, `pairs` is what the batch touched (None = nothing)."""

    def __init__(self, argument: int, kind: DataType, key_schema: pa.Schema, *, retracting: bool, ttl_ms: int) -> None:
        self.argument = argument
        self.is_one_word = fits_one_word(kind)
        self.clamped = 0
        self.pairs: Pairs | None = None
        self._kind = to_arrow(kind)
        self._key_schema = key_schema
        self._retracting = retracting
        self._ttl_ms = ttl_ms
        self._filters: list[int | None] = []
        self._table: KeyedTable | None = None
        self._gone: Ints = np.zeros(0, dtype=np.int64)

    @property
    def table(self) -> KeyedTable:
        assert self._table is not None, "the multiset is not open"
        return self._table

    @property
    def _is_set(self) -> bool:
        """Values only come, and for one filter: being there is enough."""
        return not self._retracting and len(self._filters) == 1

    def add(self, filter_column: int | None) -> None:
        """A count is needed for the rows that pass the filter."""
        if filter_column not in self._filters:
            self._filters.append(filter_column)

    def open(self, backend: KeyedStateBackend) -> None:
        keys = pa.schema([*self._key_schema, pa.field("value", self._kind)])
        counts = [] if self._is_set else [pa.field(f"count{i}", pa.int64(), False) for i in range(len(self._filters))]
        self._table = backend.keyed_table(
            f"values-{self.argument}",
            keys,
            pa.schema(counts),
            prefix_length=len(self._key_schema) if self._retracting else 0,
            ttl_ms=self._ttl_ms,
        )

    def counts(self, filter_column: int | None, slots: Ints) -> Ints:
        """How often values are there."""
        counts: Ints = self.table.numbers(self._filters.index(filter_column))[slots]
        return counts

    def apply(self, changes: Changes) -> None:
        """Bring the counts up to date and give out the weights of DISTINCT selections."""
        scan = changes.scan
        weights = [changes.weights(Selection(self.argument, f)) for f in self._filters]
        touched = weights[0] != 0
        for more in weights[1:]:
            touched |= more != 0
        active = np.flatnonzero(touched)
        self.pairs = None
        flags = [np.zeros(scan.row_count, dtype=np.int64) for _ in self._filters]
        for filter_column, flag in zip(self._filters, flags, strict=True):
            changes.distinct_weights[Selection(self.argument, filter_column, True)] = flag
        if not len(active):
            return
        rows = scan.order[active]
        index: Any = pa.array(rows)
        keys = [column.take(index) for column in (*changes.keys, changes.rows.column(self.argument))]
        slots, made = self.table.slots(keys, changes.key_groups[rows])
        if self._is_set:
            flags[0][active] = made
            if self._ttl_ms:
                self.table.touch(slots)
            return
        self._count(scan, active, slots, weights, flags)

    def _count(self, scan: Scan, active: Ints, slots: Ints, weights: list[Ints], flags: list[Ints]) -> None:
        by_pair = np.argsort(slots, kind="stable")
        ordered, positions = slots[by_pair], active[by_pair]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        ends = np.append(starts[1:], len(ordered))
        pair_slots = ordered[starts]
        self.table.touch(pair_slots)
        by_filter: dict[int | None, Events] = {}
        gone = np.ones(len(starts), dtype=np.bool_)
        for number, filter_column in enumerate(self._filters):
            column, steps = self.table.numbers(number), weights[number][positions]
            initial: Ints = column[pair_slots]
            totals = np.cumsum(steps)
            totals += np.repeat(initial - totals[starts] + steps[starts], ends - starts)
            if totals.min() < 0:
                totals = clamp(totals, starts, ends - starts)
            before = np.empty_like(totals)
            before[1:] = totals[:-1]
            before[starts] = initial
            self.clamped += int(np.count_nonzero((steps < 0) & (before == 0)))
            final = totals[ends - 1]
            column[pair_slots] = final
            flags[number][positions] = ((before == 0) & (totals > 0)).astype(np.int64) - ((before > 0) & (totals == 0))
            by_filter[filter_column] = Events(totals, initial, final)
            gone &= final == 0
        self._gone = pair_slots[gone]
        self.pairs = Pairs(positions, starts, pair_slots, scan.positions_of_groups[positions[starts]], by_filter)

    def forget(self, changes: Changes, dead: Bools) -> None:
        """Drop what groups that have ended left behind (after retractions that never came)."""
        rows = changes.scan.order[changes.scan.group_starts[dead]]
        index: Any = pa.array(rows)
        _, slots = self.table.find_prefix([key.take(index) for key in changes.keys], changes.key_groups[rows])
        self._gone = np.union1d(self._gone, slots)

    def settle(self) -> None:
        if len(self._gone):
            self.table.remove(self._gone)
            self._gone = np.zeros(0, dtype=np.int64)
        self.table.settle()


class ExtremeOfMultiset:
    """MIN or MAX of what a multiset holds. The group keeps its extreme; the group's values are read again only if the
    extreme was taken away. `states` point into `candidates` (-1 = NULL)."""

    def __init__(self, multiset: Multiset, selection: Selection, kind: DataType, *, is_max: bool) -> None:
        self._multiset = multiset
        self._filter = selection.filter
        self._is_max = is_max
        self.fields = (pa.field("extreme", to_arrow(kind)),)
        self._candidates: Array = pa.array([], to_arrow(kind))
        self._states: Ints = np.zeros(0, dtype=np.int64)

    def values(self) -> Array:
        """States as a column."""
        return take_or_null(self._candidates, self._states)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan, pairs = changes.scan, self._multiset.pairs
        cached = table.read(first_column, scan.group_slots)
        known = cached.is_valid().to_numpy(zero_copy_only=False)
        initial = np.where(known, np.arange(scan.group_count), -1)
        if pairs is None:
            self._candidates = cached
            running = initial[scan.positions_of_groups] if scan.every else initial
            self._states = np.concatenate((initial, running))
            return
        events = pairs.by_filter[self._filter]
        index: Any = pa.array(scan.order[pairs.positions[pairs.starts]])
        touched = changes.rows.column(self._multiset.argument).take(index)
        if pa.types.is_floating(touched.type):
            # -0.0 and 0.0 are one entry of the multiset: they must look alike here, too.
            cached, touched = canonical_floats(cached), canonical_floats(touched)
        own_codes = rank_codes(Values(cached, touched).array)
        is_extreme = own_codes[scan.group_count :] == own_codes[pairs.groups]
        # The kept extreme is one of the values touched: these say whether it is still there.
        known[pairs.groups[is_extreme]] = False
        lowest = np.minimum.reduceat(events.after, pairs.starts) if scan.every else events.final
        dirty = np.zeros(scan.group_count, dtype=np.bool_)
        dirty[pairs.groups[is_extreme & (lowest == 0)]] = True
        found, found_groups = self._search(changes, dirty, pairs)
        values = Values(cached, touched, found)
        codes = rank_codes(values.array, descending=not self._is_max)
        bounds = np.cumsum([0, scan.group_count, len(touched), len(found)])
        best = _best_codes(scan, pairs, events, known, found_groups, [codes[a:b] for a, b in pairwise_bounds(bounds)])
        self._candidates = values.array
        self._states = np.concatenate((initial, values.of_codes(codes, best)))
        table.write(first_column, scan.group_slots, values.take(scan.final(self._states)))

    def _search(self, changes: Changes, dirty: Bools, pairs: Pairs) -> tuple[Array, Ints]:
        """The extreme among the values that the batch did not touch, of each dirty group that has one."""
        groups = np.flatnonzero(dirty)
        if not len(groups):
            return self._nothing(), groups
        multiset, scan = self._multiset, changes.scan
        rows = scan.order[scan.group_starts[groups]]
        index: Any = pa.array(rows)
        which, slots = multiset.table.find_prefix([key.take(index) for key in changes.keys], changes.key_groups[rows])
        usable = (multiset.counts(self._filter, slots) > 0) & ~np.isin(slots, pairs.slots)
        which, slots = which[usable], slots[usable]
        if not len(slots):
            return self._nothing(), groups[:0]
        values: Array = multiset.table.keys(slots)[-1]
        codes = ordered_integers(values) if multiset.is_one_word else rank_codes(values)
        if not self._is_max:
            codes = ~codes
        starts = np.flatnonzero(np.concatenate(([True], which[1:] != which[:-1])))
        lengths = np.diff(np.append(starts, len(which)))
        winners = np.flatnonzero(codes == np.repeat(np.maximum.reduceat(codes, starts), lengths))
        _, first = np.unique(which[winners], return_index=True)
        winners = winners[first]
        return values.take(pa.array(winners)), groups[which[winners]]

    def _nothing(self) -> Array:
        return pa.array([], self.fields[0].type)


def pairwise_bounds(bounds: Ints) -> list[tuple[int, int]]:
    """Consecutive (from, to) of ascending bounds."""
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _best_codes(scan: Scan, pairs: Pairs, events: Events, known: Bools, found_groups: Ints, codes: list[Ints]) -> Ints:
    """The highest code that is there: after each row, or after the batch per group; -1 where there is none. `codes` are
    those of the kept extremes (valid where `known`), of the pairs, and of the values found."""
    kept_codes, pair_codes, found_codes = codes
    kept = np.flatnonzero(known)
    if not scan.every:
        best = np.full(scan.group_count, -1, dtype=np.int64)
        there = events.final > 0
        np.maximum.at(best, pairs.groups[there], pair_codes[there])
        best[kept] = np.maximum(best[kept], kept_codes[kept])
        np.maximum.at(best, found_groups, found_codes)
        return best
    group_starts, group_ends = scan.group_starts, scan.group_ends
    event_count = len(pairs.positions)
    lengths = np.diff(np.append(pairs.starts, event_count))
    event_ends = np.append(pairs.positions[1:], 0)
    event_ends[np.append(pairs.starts[1:], event_count) - 1] = group_ends[pairs.groups]
    during, before = events.after > 0, events.initial > 0
    whole = np.concatenate((kept, found_groups))
    return highest_over_intervals(
        scan.row_count,
        np.concatenate((pairs.positions[during], group_starts[pairs.groups[before]], group_starts[whole])),
        np.concatenate((event_ends[during], pairs.positions[pairs.starts[before]], group_ends[whole])),
        np.concatenate((np.repeat(pair_codes, lengths)[during], pair_codes[before], kept_codes[kept], found_codes)),
    )
