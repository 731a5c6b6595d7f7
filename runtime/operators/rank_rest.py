"""The rows of a large partition that are far from being shown: found by their upsert key, read as a whole only when so
many better ones have gone that the next ones are needed.

Each of them comes after every row of its partition that is not here (by sort keys, then arrival), and a partition that
has some has at least as many others as are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.key_groups import KeyGroups
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.order_keys import OrderKeys
from runtime.operators.rank_entries import Entries, Run
from runtime.operators.rank_rows import PartitionKeys, RankRows
from runtime.state.protocol import KeyedStateBackend, KeyedTable, Slots

Array = Any

REST = "rest"
PARTED = "parted"
NEAR_ROWS = 1_024
"""So many rows besides those shown stay outside; twice as many are parted."""
_COUNT, _NEXT_NUMBER = 0, 1


class RestRows:
    def __init__(
        self, backend: KeyedStateBackend, schema: pa.Schema, keys: PartitionKeys, upsert_key: tuple[int, ...], last: int
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._last = last
        self._names = tuple(i for i in upsert_key if i not in keys.columns)
        self._others = tuple(i for i in range(len(schema)) if i not in keys.columns and i not in self._names)
        partition = [field.with_name(f"k{i}") for i, field in enumerate(keys.schema)]
        names = [schema.field(i).with_name(f"n{i}") for i in self._names]
        others = [schema.field(i).with_name(f"v{i}") for i in self._others]
        number = pa.field("number", pa.int64(), nullable=False)
        self._table: KeyedTable = backend.keyed_table(
            REST, pa.schema([*partition, *names]), pa.schema([number, *others]), prefix_length=len(partition)
        )
        counts = [pa.field("count", pa.int64(), nullable=False), pa.field("next_number", pa.int64(), nullable=False)]
        self._parted: KeyedTable = backend.keyed_table(PARTED, pa.schema(partition), pa.schema(counts))

    @property
    def row_count(self) -> int:
        return self._table.row_count

    def of_partitions(self, keys: Sequence[Array], groups: KeyGroups) -> tuple[Ints, Ints]:
        """How many rows each partition has here, and a number larger than those of all its rows (0 without any)."""
        if not self._parted.row_count:
            nothing = np.zeros(len(groups), dtype=np.int64)
            return nothing, nothing
        slots = self._parted.find(keys, groups)
        counts, numbers = self._parted.numbers(_COUNT), self._parted.numbers(_NEXT_NUMBER)
        return np.where(slots >= 0, counts[slots], 0), np.where(slots >= 0, numbers[slots], 0)

    def find(self, keys: Sequence[Array], columns: Sequence[Array], groups: KeyGroups) -> Slots:
        """Slots of rows with the same partition and upsert key as those of `columns`; -1 where there is none."""
        return self._table.find([*keys, *(columns[i] for i in self._names)], groups)

    def read(self, slots: Slots) -> tuple[list[Array], Ints]:
        """Columns and arrival numbers."""
        columns: dict[int, Array] = dict(
            zip((*self._keys.columns, *self._names), self._key_columns(slots), strict=True)
        )
        for number, column in enumerate(self._others, 1):
            columns[column] = self._table.read(number, slots)
        return [columns[i] for i in range(len(self._schema))], self._table.numbers(0)[slots]

    def remove(self, slots: Slots) -> None:
        if len(slots):
            self._table.remove(slots)

    def add(self, keys: Sequence[Array], numbers: Ints, groups: KeyGroups, columns: Sequence[Array]) -> None:
        slots, _ = self._table.slots([*keys, *(columns[i] for i in self._names)], groups)
        self._table.write(0, slots, pa.array(numbers))
        for number, column in enumerate(self._others, 1):
            self._table.write(number, slots, columns[column])

    def set_partitions(self, keys: Sequence[Array], groups: KeyGroups, counts: Ints, next_numbers: Ints) -> None:
        """What `of_partitions` will say."""
        known = self._parted.find(keys, groups)
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
        self, keys: Sequence[Array], groups: KeyGroups, batch_rows: Ints, order: OrderKeys, rows: RankRows
    ) -> None:
        """Hand the best rows of partitions over to `rows`: as many as a batch with so many rows can make needed."""
        which, slots = self._table.find_prefix(keys, groups)
        columns, numbers = self.read(slots)
        codes = order.codes(columns, len(slots))
        by_rank = np.lexsort((numbers, codes, which))
        starts = np.searchsorted(which, np.arange(len(groups)))
        counts = np.diff(np.append(starts, len(which)))
        wanted = np.array([self._last + NEAR_ROWS + 4 * math.isqrt(count) for count in counts.tolist()])
        places = np.arange(len(which)) - np.repeat(starts, counts)
        taken = by_rank[places < np.repeat(wanted + batch_rows, counts)]
        index: Any = pa.array(taken)
        owners: Any = pa.array(which[taken])
        near = [column.take(index) for column in columns]
        rows.add([key.take(owners) for key in keys], numbers[taken], groups[which[taken]], near)
        self.remove(slots[taken])
        _, next_numbers = self.of_partitions(keys, groups)
        left = counts - np.bincount(which[taken], minlength=len(groups))
        self.set_partitions(keys, groups, left, next_numbers)

    def far(self, entries: Entries, near: Bools) -> Bools:
        """Of the entries that are `near` now: those to be kept here from now on."""
        there = near & entries.stays
        counts = np.bincount(entries.partitions[there], minlength=len(entries.partition_starts))
        limit = self._last + NEAR_ROWS
        crowded = counts > 2 * limit
        far = np.zeros(len(near), dtype=np.bool_)
        if crowded.any():
            before = np.concatenate(([0], np.cumsum(there)))
            places = before[:-1] - before[entries.partition_starts[entries.partitions]]
            far = there & crowded[entries.partitions] & (places >= limit)
        return far

    def _key_columns(self, slots: Slots) -> list[Array]:
        columns = self._table.keys(slots)
        return columns if self._keys.columns else columns[1:]


def lowest_counts(run: Run, entries: Entries, near: Bools) -> Ints:
    """Per partition the smallest number of `near` entries that are there at any time of the batch."""
    there = np.bincount(entries.partitions[near & entries.was_there], minlength=len(run.starts))
    steps = np.zeros(2 * run.row_count, dtype=np.int64)
    # In one row a removal comes before an addition.
    np.add.at(steps, 2 * entries.starts[near & ~entries.was_there] + 1, 1)
    np.add.at(steps, 2 * entries.ends[near & ~entries.stays], -1)
    totals = np.cumsum(steps)
    starts = 2 * run.starts
    lowest: Ints = there + np.minimum(np.minimum.reduceat(totals, starts) - (totals[starts] - steps[starts]), 0)
    return lowest
