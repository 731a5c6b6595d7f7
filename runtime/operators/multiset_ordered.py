"""The values of an argument per group in order of arrival: FIRST_VALUE, LAST_VALUE and LISTAGG.

Where values may be taken back each is an entry of a table, keyed by group and arrival number; a retraction takes the
oldest entry with an equal value. Within a batch an entry stands for an interval of rows: from where it came (or the
start of the batch) to where it was taken back (or the end); what is first, last or listed after a row follows from the
intervals that cover it.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from planner.ir.types import DataType, to_arrow
from runtime.operators.accumulators_running import Changes, Selection
from runtime.operators.accumulators_values import Values, equality_codes, take_or_null
from runtime.operators.group_aggregate_scan import Bools, Ints, Scan, clamp, highest_over_intervals
from runtime.state.protocol import KeyedStateBackend, KeyedTable

pc: Any = pyarrow.compute
Array = Any

_NONE: Ints = np.zeros(0, dtype=np.int64)


class Entries(msgspec.Struct, frozen=True):
    """Entries of the batch's groups in order of (group, arrival). `ends` is where one is taken back, or its group's end
    in the scan. `places` point into `values`; `slots` are those of the table, -1 for what this batch brought."""

    groups: Ints
    starts: Ints
    ends: Ints
    numbers: Ints
    places: Ints
    slots: Ints
    values: Array
    is_read: Bools
    """Per group: whether all its entries are here; of the others only those that this batch brought."""

    def lasting(self, scan: Scan) -> Bools:
        """The entries that are there after the batch."""
        lasting: Bools = self.ends == scan.group_ends[self.groups]
        return lasting


class OrderedValues:
    """The entries of one selection, shared by all aggregates on it; `entries` after each step."""

    def __init__(
        self, selection: Selection, kind: DataType, key_schema: pa.Schema, *, retracting: bool, ttl_ms: int
    ) -> None:
        assert selection.argument is not None
        self.clamped = 0
        self.kind = to_arrow(kind)
        self.retracting = retracting
        self.entries: Entries | None = None
        self.lists: list[JoinedList] = []
        self._selection = selection
        self._argument = selection.argument
        self._key_schema = key_schema
        self._ttl_ms = ttl_ms
        self._table: KeyedTable | None = None
        self._gone: Ints = _NONE
        self.fields = (pa.field("arrivals", pa.int64(), nullable=False),) if retracting else ()

    @property
    def has_list(self) -> bool:
        return bool(self.lists)

    def add_list(self, separator: str) -> JoinedList:
        """A list of all values."""
        for known in self.lists:
            if known.separator == separator:
                return known
        self.lists.append(JoinedList(self, separator))
        return self.lists[-1]

    @property
    def table(self) -> KeyedTable:
        assert self._table is not None, "not open"
        return self._table

    def open(self, backend: KeyedStateBackend) -> None:
        if not self.retracting:
            return
        keys = pa.schema([*self._key_schema, pa.field("number", pa.int64(), nullable=False)])
        name = f"ordered-{self._argument}-{self._selection.filter}-{int(self._selection.distinct)}"
        values = pa.schema([pa.field("value", self.kind)])
        self._table = backend.keyed_table(name, keys, values, prefix_length=len(self._key_schema), ttl_ms=self._ttl_ms)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan, weights = changes.scan, changes.weights(self._selection)
        groups = scan.positions_of_groups
        added = np.flatnonzero(weights > 0)
        values = changes.rows.column(self._argument)
        if not self.retracting:
            nothing = np.zeros(len(added), dtype=np.int64)
            self.entries = Entries(
                groups[added],
                added,
                scan.group_ends[groups[added]],
                nothing,
                scan.order[added],
                nothing - 1,
                values,
                np.zeros(scan.group_count, dtype=np.bool_),
            )
            return
        column = table.numbers(first_column)
        arrivals = scan.running((weights > 0).astype(np.int64), column[scan.group_slots])
        column[scan.group_slots] = arrivals[scan.group_ends - 1]
        taken = np.flatnonzero(weights < 0)
        is_read = np.full(scan.group_count, self.has_list)
        is_read[groups[taken]] = True
        self.entries = self._with_known(changes, is_read, added, arrivals[added] - 1)
        if len(taken):
            self.clamped += _take_back(scan, self.entries, taken, values)
        self._keep(changes, self.entries)

    def _with_known(self, changes: Changes, is_read: Bools, added: Ints, numbers: Ints) -> Entries:
        """The entries known of the groups to be read, and those that the batch brings."""
        scan, groups = changes.scan, changes.scan.positions_of_groups
        read = np.flatnonzero(is_read)
        which, slots, known_numbers = _NONE, _NONE, _NONE
        known_values: Array = pa.array([], self.kind)
        if len(read):
            rows = scan.order[scan.group_starts[read]]
            index: Any = pa.array(rows)
            which, slots = self.table.find_prefix([key.take(index) for key in changes.keys], changes.key_groups[rows])
            known_numbers = self.table.keys(slots)[-1].to_numpy()
            known_values = self.table.read(0, slots)
        known_groups = read[which]
        entry_groups = np.concatenate((known_groups, groups[added]))
        entry_numbers = np.concatenate((known_numbers, numbers))
        order = np.lexsort((entry_numbers, entry_groups))
        values = Values(known_values, changes.rows.column(self._argument))
        return Entries(
            entry_groups[order],
            np.concatenate((scan.group_starts[known_groups], added))[order],
            scan.group_ends[entry_groups[order]],
            entry_numbers[order],
            np.concatenate((np.arange(len(slots)), len(slots) + scan.order[added]))[order],
            np.concatenate((slots, np.full(len(added), -1)))[order],
            values.array,
            is_read,
        )

    def _keep(self, changes: Changes, entries: Entries) -> None:
        """Write down what lasts, forget what was taken back."""
        scan, lasting = changes.scan, entries.lasting(changes.scan)
        known = entries.slots >= 0
        self._gone = entries.slots[known & ~lasting]
        new = np.flatnonzero(~known & lasting)
        if self._ttl_ms:
            self.table.touch(entries.slots[known & lasting])
        if len(new):
            rows = scan.order[entries.starts[new]]
            index: Any = pa.array(rows)
            keys = [*(key.take(index) for key in changes.keys), pa.array(entries.numbers[new])]
            slots, _ = self.table.slots(keys, changes.key_groups[rows])
            self.table.write(0, slots, entries.values.take(pa.array(entries.places[new])))

    def forget(self, changes: Changes, dead: Bools) -> None:
        """Drop what groups that have ended left behind (after retractions that never came)."""
        rows = changes.scan.order[changes.scan.group_starts[dead]]
        index: Any = pa.array(rows)
        _, slots = self.table.find_prefix([key.take(index) for key in changes.keys], changes.key_groups[rows])
        self._gone = np.union1d(self._gone, slots)

    def settle(self) -> None:
        if self._table is None:
            return
        if len(self._gone):
            self._table.remove(self._gone)
            self._gone = _NONE
        self._table.settle()


def _take_back(scan: Scan, entries: Entries, taken: Ints, values: Array) -> int:
    """Match retractions (rows `taken` of the scan) with entries, oldest first among equal ones, and set `ends`. Returns
    how many found none.

    Entries and retractions of equal values of a group form a queue. The k-th retraction that finds its queue not empty
    takes the queue's k-th entry."""
    codes = equality_codes(Values(entries.values, values).array)
    entry_codes = codes[entries.places]
    taken_codes = codes[len(entries.values) :][scan.order[taken]]
    groups = np.concatenate((entries.groups, scan.positions_of_groups[taken]))
    queues = groups * (int(codes.max()) + 1) + np.concatenate((entry_codes, taken_codes))
    is_entry = np.arange(len(queues)) < len(entries.groups)
    known = np.concatenate((entries.slots >= 0, np.zeros(len(taken), dtype=np.bool_)))
    # What was there before the batch precedes its first row.
    when = np.where(known, -1, np.concatenate((entries.starts, taken)))
    within = np.concatenate((entries.numbers, np.zeros(len(taken), dtype=np.int64)))
    order = np.lexsort((within, when, queues))
    queues, is_entry = queues[order], is_entry[order]
    starts = np.flatnonzero(np.concatenate(([True], queues[1:] != queues[:-1])))
    lengths = np.diff(np.append(starts, len(queues)))
    steps = np.where(is_entry, 1, -1)
    totals = np.cumsum(steps)
    sizes = totals - np.repeat(totals[starts] - steps[starts], lengths)
    if sizes.min() < 0:
        sizes = clamp(sizes, starts, lengths)
    before = np.concatenate(([0], sizes[:-1]))
    before[starts] = 0
    finds = ~is_entry & (before > 0)
    finds_so_far: Ints = np.cumsum(finds)
    rank: Ints = finds_so_far - np.repeat(finds_so_far[starts] - finds[starts], lengths) - 1
    places = np.flatnonzero(is_entry)
    entries_before: Ints = np.cumsum(is_entry) - is_entry
    first_of_queue: Ints = np.repeat(entries_before[starts], lengths)
    found = np.flatnonzero(finds)
    victims = order[places[first_of_queue[found] + rank[found]]]
    entries.ends[victims] = taken[order[found] - len(entries.groups)]
    return int(np.count_nonzero(~is_entry) - len(found))


class Ordered:
    """FIRST_VALUE or LAST_VALUE. The group keeps its value, so only groups that lose an entry have theirs read."""

    def __init__(self, values: OrderedValues, *, is_last: bool) -> None:
        self._source = values
        self._is_last = is_last
        self.fields = (pa.field("value", values.kind),)
        self._candidates: Array = pa.array([], values.kind)
        self._states: Ints = _NONE

    def values(self) -> Array:
        """States as a column."""
        return take_or_null(self._candidates, self._states)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan, entries = changes.scan, self._source.entries
        assert entries is not None
        cached = table.read(first_column, scan.group_slots)
        known = cached.is_valid().to_numpy(zero_copy_only=False)
        initial = np.where(known, np.arange(scan.group_count), -1)
        kept = np.flatnonzero(known & ~entries.is_read)
        count = len(entries.groups)
        # The higher code wins. A group that is not read has its kept value before all that comes.
        ranks = np.arange(count)
        codes = ranks + 1 if self._is_last else count - 1 - ranks
        kept_code = 0 if self._is_last else count
        if scan.every:
            best = highest_over_intervals(
                scan.row_count,
                np.concatenate((entries.starts, scan.group_starts[kept])),
                np.concatenate((entries.ends, scan.group_ends[kept])),
                np.concatenate((codes, np.full(len(kept), kept_code))),
            )
            owners = scan.positions_of_groups
        else:
            best = np.full(scan.group_count, -1, dtype=np.int64)
            best[kept] = kept_code
            lasting = entries.lasting(scan)
            np.maximum.at(best, entries.groups[lasting], codes[lasting])
            owners = np.arange(scan.group_count)
        states = np.where(best == kept_code, owners, -1)
        from_entries = np.flatnonzero((best >= 0) & (best != kept_code))
        ranks = best[from_entries] - 1 if self._is_last else count - 1 - best[from_entries]
        states[from_entries] = scan.group_count + entries.places[ranks]
        values = Values(cached, entries.values)
        self._candidates = values.array
        self._states = np.concatenate((initial, states))
        table.write(first_column, scan.group_slots, values.take(scan.final(self._states)))


class JoinedList:
    """LISTAGG. Over an append-only input the group keeps the text so far; else it is joined from the entries."""

    def __init__(self, values: OrderedValues, separator: str) -> None:
        self.separator = separator
        self._source = values
        self._separator: Any = pa.scalar(separator, pa.string())
        self.fields = () if values.retracting else (pa.field("list", pa.string()),)
        self.states: Array = pa.array([], pa.string())

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan, entries = changes.scan, self._source.entries
        assert entries is not None
        if self._source.retracting:
            texts, places = entries.values, entries.places
            starts, ends, groups = entries.starts, entries.ends, entries.groups
            there = entries.slots >= 0
            before = self._join(texts.take(pa.array(places[there])), groups[there], scan.group_count)
        else:
            before = table.read(first_column, scan.group_slots)
            known = np.flatnonzero(before.is_valid().to_numpy(zero_copy_only=False))
            # The text so far is the first piece of its group.
            order = np.argsort(np.concatenate((known, entries.groups)), kind="stable")
            texts = Values(before, entries.values).array
            places = np.concatenate((known, scan.group_count + entries.places))[order]
            starts = np.concatenate((scan.group_starts[known], entries.starts))[order]
            ends = np.concatenate((scan.group_ends[known], entries.ends))[order]
            groups = np.concatenate((known, entries.groups))[order]
        if scan.every:
            lengths = ends - starts
            pieces = np.repeat(np.arange(len(starts)), lengths)
            targets = np.arange(len(pieces)) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
            order = np.argsort(targets, kind="stable")
            after = self._join(texts.take(pa.array(places[pieces[order]])), targets[order], scan.row_count)
        else:
            lasting = np.flatnonzero(ends == scan.group_ends[groups])
            after = self._join(texts.take(pa.array(places[lasting])), groups[lasting], scan.group_count)
        self.states = pa.concat_arrays([before, after])
        if not self._source.retracting:
            final = after.take(pa.array(scan.group_ends - 1)) if scan.every else after
            table.write(first_column, scan.group_slots, final)

    def _join(self, texts: Array, targets: Ints, count: int) -> Array:
        """The texts of each target (ascending) as one; NULL where there are none."""
        sizes = np.bincount(targets, minlength=count)
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        lists: Any = pa.ListArray.from_arrays(cast(Any, pa.array(offsets)), texts)
        joined = pc.binary_join(lists, self._separator)
        empty = sizes == 0
        return pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), joined) if empty.any() else joined
