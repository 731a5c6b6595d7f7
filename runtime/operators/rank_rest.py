"""The rows of a large partition that are far from being shown: found by their upsert key, or without one as a whole,
and read as a whole only when so many better ones have gone that the next ones are needed.

Each of them comes after every row of its partition that is not here: by sort keys, then arrival; with RANK and
DENSE_RANK by sort keys alone, so that peers are never parted. A partition that has some has at least as many others as
ranks are shown (with DENSE_RANK as many groups of peers), so that none of these has a rank that is shown, nor a say in
those of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.ranks import RankFunction
from runtime.key_groups import KeyGroups
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.order_keys import OrderKeys
from runtime.operators.rank_entries import Entries, Run, Stored, entries_of, turns_of
from runtime.operators.rank_rows import PartitionKeys, RankRows
from runtime.state.protocol import KeyedStateBackend, KeyedTable, Slots

Array = Any

REST = "rest"
PARTED = "parted"
NEAR_ROWS = 1_024
"""So many rows besides those shown stay outside when a partition is parted."""
NEAR_PER_ROOT = 4
"""So many times the root of a partition's rows more are brought near together, because all the rest is read for them;
a partition is parted anew with twice as many near as need be, and these."""
_COUNT, _NEXT_NUMBER = 0, 1


class RestRows:
    """With an upsert key a slot holds one row. Without one it holds all equal rows of a partition (as keys are:
    0.0 stands for -0.0 as well), with their arrival numbers, ascending."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        schema: pa.Schema,
        keys: PartitionKeys,
        upsert_key: tuple[int, ...] | None,
        function: RankFunction,
        last: int,
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._function = function
        self._last = last
        self._is_by_content = upsert_key is None
        columns = [i for i in range(len(schema)) if i not in keys.columns]
        self._names = tuple(i for i in columns if upsert_key is None or i in upsert_key)
        self._others = tuple(i for i in columns if i not in self._names)
        partition = [field.with_name(f"k{i}") for i, field in enumerate(keys.schema)]
        names = [schema.field(i).with_name(f"n{i}") for i in self._names]
        others = [schema.field(i).with_name(f"v{i}") for i in self._others]
        number: Any = pa.field("number", pa.int64(), nullable=False)
        if self._is_by_content:
            number = pa.field("numbers", pa.binary(), nullable=False)
        self._table: KeyedTable = backend.keyed_table(
            REST, pa.schema([*partition, *names]), pa.schema([number, *others]), prefix_length=len(partition)
        )
        counts = [pa.field("count", pa.int64(), nullable=False), pa.field("next_number", pa.int64(), nullable=False)]
        self._parted: KeyedTable = backend.keyed_table(PARTED, pa.schema(partition), pa.schema(counts))
        self.row_count = sum(int(self._parted.numbers(_COUNT)[slots].sum()) for slots in self._parted.all_slots())

    def of_partitions(self, keys: Sequence[Array], groups: KeyGroups) -> tuple[Ints, Ints]:
        """How many rows each partition has here, and a number larger than those of all its rows (0 without any)."""
        if not self._parted.row_count:
            nothing = np.zeros(len(groups), dtype=np.int64)
            return nothing, nothing
        slots = self._parted.find(keys, groups)
        counts, numbers = self._parted.numbers(_COUNT), self._parted.numbers(_NEXT_NUMBER)
        return np.where(slots >= 0, counts[slots], 0), np.where(slots >= 0, numbers[slots], 0)

    def find(self, keys: Sequence[Array], columns: Sequence[Array], groups: KeyGroups) -> Slots:
        """Slots of rows with the same partition and upsert key (without one: the same values) as those of `columns`;
        -1 where there is none."""
        return self._table.find([*keys, *(columns[i] for i in self._names)], groups)

    def read(self, slots: Slots) -> tuple[Ints, list[Array], Ints]:
        """The rows of slots: places in `slots`, columns, arrival numbers; those of one slot are in order of arrival."""
        places, numbers = self._numbers(slots)
        return places, self._columns(slots[places], range(len(self._schema))), numbers

    def remove(self, slots: Slots) -> None:
        """A row of each slot, the one that came first; of a slot that occurs several times so many rows."""
        if not len(slots):
            return
        if not self._is_by_content:
            self._table.remove(slots)
            return
        distinct, counts = np.unique(slots, return_counts=True)
        places, numbers = self._numbers(distinct)
        kept = np.arange(len(places)) - np.searchsorted(places, places) >= counts[places]
        lengths = np.bincount(places[kept], minlength=len(distinct))
        some = np.flatnonzero(lengths)
        if len(some):
            self._table.write(0, distinct[some], _packed(lengths[some], numbers[kept]))
        self._table.remove(distinct[lengths == 0])

    def add(self, keys: Sequence[Array], numbers: Ints, groups: KeyGroups, columns: Sequence[Array]) -> None:
        slots, _ = self._table.slots([*keys, *(columns[i] for i in self._names)], groups)
        if not self._is_by_content:
            self._table.write(0, slots, pa.array(numbers))
            for number, column in enumerate(self._others, 1):
                self._table.write(number, slots, columns[column])
            return
        distinct, owners = np.unique(slots, return_inverse=True)
        places, known = self._numbers(distinct)
        places, numbers = np.concatenate((places, owners)), np.concatenate((known, numbers))
        order = np.lexsort((numbers, places))
        self._table.write(0, distinct, _packed(np.bincount(places), numbers[order]))

    def set_partitions(self, keys: Sequence[Array], groups: KeyGroups, counts: Ints, next_numbers: Ints) -> None:
        """What `of_partitions` will say."""
        known = self._parted.find(keys, groups)
        self.row_count += int(counts.sum() - self._parted.numbers(_COUNT)[known[known >= 0]].sum())
        gone = counts == 0
        self._parted.remove(known[gone & (known >= 0)])
        stays = np.flatnonzero(~gone)
        if len(stays):
            index: Any = pa.array(stays)
            slots, _ = self._parted.slots([key.take(index) for key in keys], groups[stays])
            self._parted.touch(slots)
            self._parted.numbers(_COUNT)[slots] = counts[stays]
            self._parted.numbers(_NEXT_NUMBER)[slots] = next_numbers[stays]

    def settle(self) -> None:
        self._table.settle()
        self._parted.settle()

    def bring_near(
        self, keys: Sequence[Array], groups: KeyGroups, missing: Ints, touched: Slots, order: OrderKeys, rows: RankRows
    ) -> None:
        """Hand the best rows of partitions over to `rows`: at least so many more than are `missing` (with DENSE_RANK:
        groups of peers) that a batch does not touch. `touched`: the slots that it may take a row from."""
        which, slots = self._table.find_prefix(keys, groups)
        places, numbers = self._numbers(slots)
        arrival = np.argsort(numbers, kind="stable")
        places, numbers = places[arrival], numbers[arrival]
        which, slots = which[places], slots[places]
        codes = order.codes(self._columns(slots, order.columns), len(slots))
        nothing = np.zeros(0, dtype=np.int64)
        bounds = np.zeros(len(groups), dtype=np.int64)
        run = Run(nothing, nothing, bounds, bounds)
        entries = entries_of(run, Stored(which, slots, numbers), codes, self._function)
        counts = np.bincount(which, minlength=len(groups))
        wanted = missing + NEAR_ROWS + _spare(counts)
        stays = ~np.isin(entries.slots, touched)
        taken = entries.better(stays, RankFunction.RANK) < wanted[entries.partitions]
        if self._function is RankFunction.DENSE_RANK:
            taken |= entries.better(stays, RankFunction.DENSE_RANK) <= missing[entries.partitions]
        which, slots, numbers = entries.partitions[taken], entries.slots[taken], entries.numbers[taken]
        owners: Any = pa.array(which)
        near = self._columns(slots, range(len(self._schema)))
        rows.add([key.take(owners) for key in keys], numbers, groups[which], near)
        self.remove(slots)
        _, next_numbers = self.of_partitions(keys, groups)
        self.set_partitions(keys, groups, counts - np.bincount(which, minlength=len(groups)), next_numbers)

    def far(self, entries: Entries, near: Bools, rest_counts: Ints) -> Bools:
        """Of the entries that are `near` now: those to be kept here from now on. `rest_counts`: see `of_partitions`."""
        there = near & entries.stays
        keeps = entries.better(there, RankFunction.RANK) < self._last + NEAR_ROWS
        if self._function is RankFunction.DENSE_RANK:
            # One group more than are shown: one may go and come again, as a row that is updated does.
            keeps |= entries.better(there, RankFunction.DENSE_RANK) <= self._last
        partition_count = len(entries.partition_starts)
        counts = np.bincount(entries.partitions[there], minlength=partition_count)
        kept = np.bincount(entries.partitions[there & keeps], minlength=partition_count)
        crowded = counts > 2 * kept + _spare(counts + rest_counts)
        far: Bools = there & ~keeps & crowded[entries.partitions]
        return far

    def _numbers(self, slots: Slots) -> tuple[Ints, Ints]:
        """Arrival numbers of the rows of slots, and to which of `slots` each belongs (ascending)."""
        if not self._is_by_content:
            return np.arange(len(slots)), self._table.numbers(0)[slots]
        lengths, numbers = _unpacked(self._table.read(0, slots))
        return np.repeat(np.arange(len(slots)), lengths), numbers

    def _columns(self, slots: Slots, wanted: Sequence[int]) -> list[Array]:
        """Columns of rows by index; None in place of those that are not `wanted`."""
        columns: list[Array] = [None] * len(self._schema)
        for column in wanted:
            if column in self._others:
                columns[column] = self._table.read(1 + self._others.index(column), slots)
            elif column in self._names:
                columns[column] = self._table.key(len(self._keys.schema) + self._names.index(column), slots)
            else:
                columns[column] = self._table.key(self._keys.columns.index(column), slots)
        return columns


def _spare(counts: Ints) -> Ints:
    return (NEAR_PER_ROOT * np.sqrt(counts)).astype(np.int64)


def _packed(lengths: Ints, numbers: Ints) -> Array:
    """A value for each of `lengths`: so many of the numbers, eight bytes each."""
    offsets = np.concatenate(([0], np.cumsum(8 * lengths))).astype(np.int32)
    buffers: list[Any] = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _unpacked(values: Array) -> tuple[Ints, Ints]:
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    count = int(offsets[-1] - offsets[0]) // 8
    numbers = np.frombuffer(data, np.int64, count, int(offsets[0])) if count else np.zeros(0, dtype=np.int64)
    return np.diff(offsets) // 8, numbers


# ----------------------------------------------------------------------------------------------- how many are near


def counts_after(entries: Entries, near: Bools, function: RankFunction) -> Ints:
    """Per partition the number of `near` entries (for DENSE_RANK: of their groups) that are there after the batch."""
    return _counts(entries, near & entries.stays, function)


def lowest_counts(run: Run, entries: Entries, near: Bools, function: RankFunction) -> Ints:
    """Per partition the smallest number of `near` entries (for DENSE_RANK: of their groups) that are there at any time
    of the batch."""
    times, signs = _events(entries, near, function)
    steps = np.zeros(2 * run.row_count, dtype=np.int64)
    np.add.at(steps, times, signs)
    totals = np.cumsum(steps)
    starts = 2 * run.starts
    there = _counts(entries, near & entries.was_there, function)
    lowest: Ints = there + np.minimum(np.minimum.reduceat(totals, starts) - (totals[starts] - steps[starts]), 0)
    return lowest


def _counts(entries: Entries, there: Bools, function: RankFunction) -> Ints:
    partitions = entries.partitions[there]
    if function is RankFunction.DENSE_RANK:
        partitions = entries.partitions[entries.group_starts[np.unique(entries.groups[there])]]
    return np.bincount(partitions, minlength=len(entries.partition_starts))


def _events(entries: Entries, near: Bools, function: RankFunction) -> tuple[Ints, Ints]:
    """When near entries (groups of them) come, +1, and go, -1. In one row a removal comes before an addition."""
    comes, goes = near & ~entries.was_there, near & ~entries.stays
    if function is not RankFunction.DENSE_RANK:
        times = np.concatenate((2 * entries.starts[comes] + 1, 2 * entries.ends[goes]))
        return times, np.repeat((1, -1), (np.count_nonzero(comes), np.count_nonzero(goes)))
    if not len(near):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    lasts = np.logical_or.reduceat(near & entries.was_there & entries.stays, entries.group_starts)
    moves = ~lasts[entries.groups]
    # What was there comes before the first row.
    comes, goes = near & moves, goes & moves
    times = np.concatenate((2 * entries.starts[comes] + 1, 2 * entries.ends[goes]))
    signs = np.repeat((1, -1), (np.count_nonzero(comes), np.count_nonzero(goes)))
    groups = np.concatenate((entries.groups[comes], entries.groups[goes]))
    order = np.argsort(times, kind="stable")
    times, signs = times[order], signs[order]
    turns = turns_of(groups[order], signs) & (times >= 0)
    return times[turns], signs[turns]
