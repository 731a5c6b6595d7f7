"""The rows that a Top-N keeps, by partition and arrival number, and the bounds of partitions that are full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.elements import Batch
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.operators.accumulators_values import Values, equality_codes
from runtime.operators.group_aggregate_output import UPDATE_BEFORE, pieces
from runtime.operators.group_aggregate_scan import Bools, Ints, first_rows
from runtime.operators.grouping import group_ids
from runtime.operators.order_keys import NO_LEAD
from runtime.operators.rank_changes import Changes
from runtime.operators.rank_entries import Stored
from runtime.state.protocol import KeyedStateBackend, KeyedTable, Slots

Array = Any

ROWS = "rows"
BOUNDS = "bounds"
_SHORT_MAX = 32_767


class PartitionKeys:
    """Key columns of rows; without any there is one partition, in key group 0."""

    def __init__(self, schema: pa.Schema, keys: tuple[int, ...], max_parallelism: int) -> None:
        self.columns = keys
        self.schema = pa.schema([schema.field(i) for i in keys] or [pa.field("none", pa.int8(), nullable=False)])
        self._max_parallelism = max_parallelism

    def of(self, rows: pa.RecordBatch) -> list[Array]:
        if not self.columns:
            return [pa.array(np.zeros(rows.num_rows, dtype=np.int8))]
        return [rows.column(i) for i in self.columns]

    def key_groups(self, keys: list[Array]) -> KeyGroups:
        if not self.columns:
            return np.zeros(len(keys[0]), dtype=np.int16)
        return key_group(hash_columns(keys), self._max_parallelism)

    def numbers(self, keys: list[Array]) -> Ints:
        """A number per row, equal for rows of one partition, by first occurrence."""
        return group_ids(keys) if self.columns else np.zeros(len(keys[0]), dtype=np.int64)


class ByKey:
    """A batch by key: `order` sorts its rows by key, in order of arrival within one; keys are numbered, have rows from
    `starts` on, and `slots`."""

    def __init__(self, slots: Ints) -> None:
        firsts = first_rows(slots)
        if firsts is None:
            self.order = self.starts = np.arange(len(slots))
        else:
            # Short integers are sorted by radix.
            short = firsts.astype(np.int16) if len(slots) <= _SHORT_MAX else firsts
            self.order = short.argsort(kind="stable")
            self.starts = np.flatnonzero(firsts[self.order] == self.order)
        self.slots = slots[self.order[self.starts]]
        self.lengths: Ints = np.diff(np.append(self.starts, len(slots)))
        self.keys: Ints = np.repeat(np.arange(len(self.starts)), self.lengths)
        """Number of the key of each row of the order."""


class RankRows:
    """`values` holds the columns that are not keys. Slots are valid until `settle`."""

    def __init__(
        self, backend: KeyedStateBackend, schema: pa.Schema, keys: PartitionKeys, *, ttl_ms: int, has_bounds: bool
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._others = tuple(i for i in range(len(schema)) if i not in keys.columns)
        number = pa.field("number", pa.int64(), nullable=False)
        self._table: KeyedTable = backend.keyed_table(
            ROWS,
            pa.schema([*_renamed(keys.schema, "k"), number]),
            pa.schema(_renamed(pa.schema([schema.field(i) for i in self._others]), "v")),
            prefix_length=len(keys.schema),
            ttl_ms=ttl_ms,
        )
        self._bounds: KeyedTable | None = None
        if has_bounds:
            bound = pa.field("lead", pa.int64(), nullable=False)
            self._bounds = backend.keyed_table(BOUNDS, pa.schema(_renamed(keys.schema, "k")), pa.schema([bound]))

    @property
    def row_count(self) -> int:
        return self._table.row_count

    @property
    def next_number(self) -> int:
        """Larger than the arrival numbers of all rows, if they were taken from here."""
        return self._table.next_sequence

    def read(self, prefix: Sequence[Array], groups: KeyGroups) -> tuple[Stored, list[Array]]:
        """The rows of partitions (distinct), and their columns."""
        which, slots = self._table.find_prefix(prefix, groups)
        columns, numbers = self._columns(slots)
        order = np.lexsort((numbers, which)) if len(numbers) and not _ascending(which, numbers) else None
        if order is not None:
            index: Any = pa.array(order)
            which, slots, numbers = which[order], slots[order], numbers[order]
            columns = [column.take(index) for column in columns]
        return Stored(which, slots, numbers), columns

    def add(self, keys: Sequence[Array], numbers: Ints, groups: KeyGroups, columns: Sequence[Array]) -> None:
        """New rows; `columns` are all of theirs."""
        slots, _ = self._table.slots([*keys, pa.array(numbers)], groups)
        for number, column in enumerate(self._others):
            self._table.write(number, slots, columns[column])
        if not self._others:
            self._table.touch(slots)

    def remove(self, slots: Slots) -> None:
        if len(slots):
            self._table.remove(slots)

    def bounds(self, keys: Sequence[Array], groups: KeyGroups) -> Ints | None:
        """Per row the bound of its partition, NO_LEAD where there is none; None when no partition has one."""
        if self._bounds is None or not self._bounds.row_count:
            return None
        slots = self._bounds.find(keys, groups)
        return np.where(slots >= 0, self._bounds.numbers(0)[slots], NO_LEAD)

    def set_bounds(self, keys: Sequence[Array], groups: KeyGroups, leads: Ints) -> None:
        if self._bounds is not None and len(leads):
            slots, _ = self._bounds.slots(keys, groups)
            self._bounds.touch(slots)
            self._bounds.numbers(0)[slots] = leads

    def settle(self) -> None:
        self._table.settle()
        if self._bounds is not None:
            self._bounds.settle()

    def all_rows(self) -> tuple[list[Array], Ints]:
        """Every row: columns, arrival numbers."""
        parts = [self._columns(slots) for slots in self._table.all_slots()]
        if not parts:
            return [pa.array([], kind) for kind in self._schema.types], np.zeros(0, dtype=np.int64)
        columns = [pa.concat_arrays([part[0][i] for part in parts]) for i in range(len(self._schema))]
        return columns, np.concatenate([part[1] for part in parts])

    def _columns(self, slots: Slots) -> tuple[list[Array], Ints]:
        keys = self._table.keys(slots)
        columns: dict[int, Array] = dict(zip(self._keys.columns, keys, strict=False))
        for number, column in enumerate(self._others):
            columns[column] = self._table.read(number, slots)
        return [columns[i] for i in range(len(self._schema))], keys[-1].to_numpy()


def _renamed(schema: pa.Schema, prefix: str) -> list[pa.Field[Any]]:
    return [field.with_name(f"{prefix}{i}") for i, field in enumerate(schema)]


def _ascending(which: Ints, numbers: Ints) -> bool:
    return bool(((which[1:] != which[:-1]) | (numbers[1:] > numbers[:-1])).all())


class RankedRows:
    """All columns of stored rows and then of a batch's, by place."""

    def __init__(self, stored: Sequence[Array], rows: Sequence[Array]) -> None:
        self.columns = [Values(known, new).array for known, new in zip(stored, rows, strict=True)]

    def __len__(self) -> int:
        return len(self.columns[0])

    def same(self, left: Ints, right: Ints) -> Bools:
        """Whether pairs of rows have equal values."""
        equal = np.ones(len(left), dtype=np.bool_)
        if not len(left):
            return equal
        index: Any = pa.array(np.concatenate((left, right)))
        for column in self.columns:
            codes = equality_codes(column.take(index))
            equal &= codes[: len(left)] == codes[len(left) :]
        return equal

    def identities(self, partitions: Ints, places: Ints, columns: Sequence[int] | None) -> Ints:
        """Numbers that are equal for rows of one partition with equal `columns` (None: all)."""
        if not len(places):
            return places
        index: Any = pa.array(places)
        chosen = range(len(self.columns)) if columns is None else columns
        return group_ids([pa.array(partitions), *(self.columns[i].take(index) for i in chosen)])

    def batches(
        self, changes: Changes, schema: pa.Schema, *, puts_out_rank: bool, with_update_before: bool
    ) -> Iterator[Batch]:
        kinds, places, ranks = changes.kinds, changes.places, changes.ranks
        if not with_update_before:
            kept = np.flatnonzero(kinds != UPDATE_BEFORE)
            kinds, places, ranks = kinds[kept], places[kept], ranks[kept]
        if not len(kinds):
            return
        index: Any = pa.array(places)
        columns = [column.take(index) for column in self.columns]
        if puts_out_rank:
            columns.append(pa.array(ranks))
        yield from pieces(pa.RecordBatch.from_arrays(columns, schema=schema), kinds)
