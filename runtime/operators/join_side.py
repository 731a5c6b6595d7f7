"""What a join keeps of one of its inputs: the rows by join key, in one keyed table.

How a row is told from others of its key decides the table's layout. An upsert key within the join key: there is one
row, found at once. Any other upsert key stands behind the join key. Rows without one that only come are numbered; such
that may be taken back are keys as a whole, with a count of equal ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir.operators import ChangelogMode, Join, JoinKind
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.key_groups import Hashes, KeyGroups, hash_columns, key_group
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.grouping import group_ids
from runtime.operators.pairs import taken, without_nulls
from runtime.operators.running_counts import CountSteps, adds_of, count_steps, heads, signs
from runtime.state.prefix_index import expand
from runtime.state.protocol import KeyedStateBackend, KeyedTable, Slots

Array = Any

SHARED_FROM = 2
"""Candidates per row of a batch from which on rows with equal keys share them."""


class Layout(StrEnum):
    """Keys of the table, behind those of the join."""

    SINGLE = "single"
    """None: a join key has one row at most."""
    UNIQUE = "unique"
    """The rest of the upsert key."""
    NUMBERED = "numbered"
    """A number."""
    COUNTED = "counted"
    """All other columns; the first value is how many such rows there are."""


class SideSpec(msgspec.Struct, frozen=True):
    """One input of a join. `counts_matches`: beside each row stands how many rows of the other side match it. `is_set`:
    what matters is only whether there are such rows. `keeps_all`: also rows whose key is NULL, which match nothing. No
    `keys`: any row may match any other."""

    name: str
    schema: Any
    keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    unique_key: tuple[int, ...] | None
    only_inserts: bool
    counts_matches: bool
    is_set: bool
    keeps_all: bool
    ttl_ms: int

    @property
    def layout(self) -> Layout:
        if self.unique_key is not None:
            return Layout.SINGLE if set(self.unique_key) <= set(self.keys) else Layout.UNIQUE
        return Layout.NUMBERED if self.only_inserts and not self.is_set else Layout.COUNTED


def side_specs(node: Join) -> tuple[SideSpec, SideSpec]:
    """The left and the right input."""
    of_left = node.kind in (JoinKind.SEMI, JoinKind.ANTI)
    counts = not node.emits_at_end
    left = SideSpec(
        "left",
        arrow_schema(node.left.types),
        node.left_keys,
        node.null_safe,
        node.left_unique_key,
        node.left_changelog is ChangelogMode.INSERT_ONLY,
        counts and (node.kind.is_left_outer or of_left),
        False,
        node.emits_at_end and (node.kind.is_left_outer or node.kind is JoinKind.ANTI),
        node.left_state_ttl_ms,
    )
    right = SideSpec(
        "right",
        arrow_schema(node.right.types),
        node.right_keys,
        node.null_safe,
        node.right_unique_key,
        node.right_changelog is ChangelogMode.INSERT_ONLY,
        counts and node.kind.is_right_outer,
        of_left,
        node.emits_at_end and node.kind.is_right_outer,
        node.right_state_ttl_ms,
    )
    return left, right


class SideRows(msgspec.Struct, frozen=True):
    """Rows of one side. `adds` None: all add. `usable` are those whose key can match (None: all); `keys`, `hashes`
    and `groups` are theirs."""

    rows: pa.RecordBatch
    kinds: Any
    adds: Bools | None
    usable: Ints | None
    keys: Sequence[Array]
    hashes: Hashes
    groups: KeyGroups

    @property
    def count(self) -> int:
        return self.rows.num_rows

    def of_usable(self, column: int) -> Array:
        values: Array = self.rows.column(column)
        return values if self.usable is None else values.take(pa.array(self.usable))


class Candidates(msgspec.Struct, frozen=True):
    """Stored rows with the key of a batch's row: `counts` of them, from `starts` on in `slots`."""

    starts: Ints
    counts: Ints
    slots: Slots

    def pairs(self, first: int, end: int) -> tuple[Ints, Slots]:
        """Rows `first` to `end` of the batch, each beside its candidates in the order in which those came."""
        starts, counts = self.starts[first:end], self.counts[first:end]
        if counts.max(initial=0) <= 1:
            rows = np.flatnonzero(counts)
            return first + rows, self.slots[starts[rows]]
        rows, places = expand(starts, counts)
        return first + rows, self.slots[places]


class JoinSide:
    """Used by its operator only. Slots are valid until `settle`."""

    def __init__(self, spec: SideSpec, max_parallelism: int) -> None:
        self.spec = spec
        self.ignored = 0
        """Rows taken back that were not there."""
        self._layout = layout = spec.layout
        self._max_parallelism = max_parallelism
        self._table: KeyedTable
        rest = [i for i in range(len(spec.schema)) if i not in spec.keys]
        self._more_keys = rest if layout is Layout.COUNTED else []
        if layout is Layout.UNIQUE:
            assert spec.unique_key is not None
            self._more_keys = [i for i in rest if i in spec.unique_key]
        self._values = [i for i in rest if i not in self._more_keys]
        self._first_value = int(layout is Layout.COUNTED) + int(spec.counts_matches)
        self._matches = self._first_value - 1
        first_key = len(self._fields_of_keys())
        self._key_of = {i: first_key + position for position, i in enumerate(self._more_keys)}
        self._key_of |= {i: spec.keys.index(i) for i in spec.keys}

    @property
    def row_count(self) -> int:
        return self._table.row_count

    def open(self, backend: KeyedStateBackend) -> None:
        """Raises SegmentError, StateTooLargeError."""
        schema = self.spec.schema
        keys = self._fields_of_keys()
        prefix_length = 0 if self._layout is Layout.SINGLE else len(keys)
        keys += [schema.field(i) for i in self._more_keys]
        if self._layout is Layout.NUMBERED:
            keys.append(pa.field("number", pa.int64(), nullable=False))
        values = [pa.field("count", pa.int64(), nullable=False)] if self._layout is Layout.COUNTED else []
        if self.spec.counts_matches:
            values.append(pa.field("matches", pa.int64(), nullable=False))
        values += [schema.field(i) for i in self._values]
        self._table = backend.keyed_table(
            self.spec.name, pa.schema(keys), pa.schema(values), prefix_length=prefix_length, ttl_ms=self.spec.ttl_ms
        )

    def _fields_of_keys(self) -> list[Any]:
        if not self.spec.keys:
            return [pa.field("none", pa.int8(), nullable=False)]
        return [self.spec.schema.field(i) for i in self.spec.keys]

    # ------------------------------------------------------------------------------------------------------ batches

    def rows_of(self, batch: Batch) -> SideRows:
        """A batch of this side, with its keys."""
        keeps_all = self.spec.keeps_all
        if self.spec.only_inserts or batch.row_kinds is None:
            return self._keyed(batch.data, None, None, keeps_all)
        return self._keyed(batch.data, batch.row_kinds.to_numpy(), adds_of(batch), keeps_all)

    def _keyed(self, rows: pa.RecordBatch, kinds: Any, adds: Bools | None, keeps_all: bool = False) -> SideRows:
        count = rows.num_rows
        if not self.spec.keys:
            # All in the first key group, which is the first subtask's: there all rows go.
            groups, none = np.zeros(count, dtype=np.int16), [pa.array(np.zeros(count, dtype=np.int8))]
            return SideRows(rows, kinds, adds, None, none, hash_columns(none), groups)
        keys: list[Array] = [rows.column(i) for i in self.spec.keys]
        usable = None
        able = None if keeps_all else without_nulls(keys, self.spec.null_safe)
        if able is not None:
            usable = np.flatnonzero(able)
            keys = taken(keys, usable)
        hashes = hash_columns(keys)
        return SideRows(rows, kinds, adds, usable, keys, hashes, key_group(hashes, self._max_parallelism))

    # ----------------------------------------------------------------------------------------------------- look-ups

    def candidates(self, others: SideRows) -> Candidates:
        """Rows of this side with the keys of the other's rows."""
        starts = np.arange(len(others.groups))
        if not len(starts):
            none = np.zeros(others.count, dtype=np.int64)
            return Candidates(none, none, starts)
        if self._layout is Layout.SINGLE:
            slots = self._table.find(others.keys, others.groups)
            counts = (slots >= 0).astype(np.int64)
        else:
            starts, counts, slots = self._with_prefix(others)
        if others.usable is None:
            return Candidates(starts, counts, slots)
        all_starts, all_counts = np.zeros((2, others.count), dtype=np.int64)
        all_starts[others.usable], all_counts[others.usable] = starts, counts
        return Candidates(all_starts, all_counts, slots)

    def _with_prefix(self, others: SideRows) -> tuple[Ints, Ints, Slots]:
        keys, groups, hashes = others.keys, others.groups, others.hashes
        row_count = self._table.prefix_row_count(hashes)
        ids = None
        if row_count is None or row_count > SHARED_FROM * len(hashes):
            # What many rows of the batch meet is looked at once.
            ids = group_ids(keys)
            distinct = int(ids.max(initial=-1)) + 1
            if distinct < len(ids):
                first = np.empty(distinct, dtype=np.int64)
                first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
                keys, groups, hashes = taken(keys, first), groups[first], hashes[first]
        which, slots = self._table.find_prefix(keys, groups, hashes)
        counts = np.bincount(which, minlength=len(hashes))
        starts = np.cumsum(counts) - counts
        return (starts, counts, slots) if ids is None else (starts[ids], counts[ids], slots)

    def weights(self, slots: Slots) -> Ints | None:
        """How many equal rows there are; None: one of each."""
        if self._layout is not Layout.COUNTED:
            return None
        counts: Ints = self._table.numbers(0)[slots]
        return None if (counts == 1).all() else counts

    def column(self, index: int, slots: Slots) -> Array:
        """Values of one column."""
        key = self._key_of.get(index)
        if key is not None:
            return self._table.key(key, slots)
        return self._table.read(self._first_value + self._values.index(index), slots)

    # ------------------------------------------------------------------------------------------------------ changes

    def count_matches(self, slots: Slots, steps: Ints) -> CountSteps:
        """Rows of the other side that match came or went, in this order."""
        counted = count_steps(slots, steps, self._table.numbers(self._matches))
        self._table.touch(counted.slots)
        self._table.numbers(self._matches)[counted.slots] = counted.final
        return counted

    def store(self, changes: SideRows, matches: Ints | None) -> None:
        """Rows come and go; `matches` are their matches, if they are counted. Raises StateTooLargeError."""
        if not len(changes.groups):
            return
        adds = changes.adds
        if changes.usable is not None:
            adds = None if adds is None else adds[changes.usable]
            matches = None if matches is None else matches[changes.usable]
        match self._layout:
            case Layout.NUMBERED:
                self._append(changes, matches)
            case Layout.COUNTED:
                self._count(changes, adds, matches)
            case _:
                self._replace(changes, adds, matches)

    def _append(self, changes: SideRows, matches: Ints | None) -> None:
        values = [changes.of_usable(i) for i in self._values]
        if self.spec.counts_matches:
            values.insert(0, pa.array(np.zeros(len(changes.groups), dtype=np.int64) if matches is None else matches))
        self._table.append(changes.keys, changes.groups, values, changes.hashes)

    def _replace(self, changes: SideRows, adds: Bools | None, matches: Ints | None) -> None:
        more: list[Array] = [changes.of_usable(i) for i in self._more_keys]
        slots, made = self._table.slots([*changes.keys, *more], changes.groups)
        if adds is None and made.all():
            self._write(slots, changes, None, matches)
            return
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        starts = heads(ordered)
        last = order[np.append(starts[1:], len(order)) - 1]
        if adds is not None:
            was = np.empty(len(order), dtype=np.bool_)
            was[order[1:]] = adds[order[:-1]]
            was[order[starts]] = ~made[order[starts]]
            self.ignored += int(np.count_nonzero(~adds & ~was))
            gone = ~adds[last]
            self._table.remove(slots[last[gone]])
            last = last[~gone]
        self._write(slots[last], changes, last, matches)

    def _count(self, changes: SideRows, adds: Bools | None, matches: Ints | None) -> None:
        more: list[Array] = [changes.of_usable(i) for i in self._more_keys]
        table = self._table
        slots, _ = table.slots([*changes.keys, *more], changes.groups)
        counted = count_steps(slots, signs(adds, np.arange(len(slots))), table.numbers(0))
        self.ignored += counted.refused
        table.touch(counted.slots)
        table.numbers(0)[counted.slots] = counted.final
        if matches is not None:
            table.numbers(self._matches)[slots] = matches
        table.remove(counted.slots[counted.final == 0])

    def _write(self, slots: Slots, changes: SideRows, some: Ints | None, matches: Ints | None) -> None:
        """Values of usable rows (`some` of them) into slots that are distinct."""
        if not len(slots):
            return
        table = self._table
        table.touch(slots)
        if matches is not None:
            table.numbers(self._matches)[slots] = matches if some is None else matches[some]
        for position, index in enumerate(self._values):
            values = changes.of_usable(index)
            table.write(self._first_value + position, slots, values if some is None else values.take(pa.array(some)))

    def settle(self) -> None:
        """The batch is done. Raises StateTooLargeError."""
        self._table.settle()

    # ------------------------------------------------------------------------------------------------ end of input

    def stored(self) -> Iterator[SideRows]:
        """All rows, each as often as it is there, in pieces that end with the next one."""
        for slots in self._table.all_slots():
            weights = self.weights(slots)
            every = slots if weights is None else np.repeat(slots, weights)
            columns = [self.column(i, every) for i in range(len(self.spec.schema))]
            yield self._keyed(pa.RecordBatch.from_arrays(columns, schema=self.spec.schema), None, None)
