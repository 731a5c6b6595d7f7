"""The rows of a keyed table in memory: a key index over columns, addressed by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.key_groups import Hashes, KeyGroups, hash_columns
from runtime.state.columns import Column, Keys, make_column
from runtime.state.growing import grown
from runtime.state.key_index import KeyIndex, Mask, Rows
from runtime.state.protocol import KEY_GROUP_FIELD, Slots

Array = Any

CAPACITY_MIN = 256
DOUBLED_UP_TO = 1 << 20
"""Rows up to which a store doubles; above it grows by a sixteenth, which costs nothing and is all it counts as used."""
SEQUENCE_FIELD = pa.field("sequence", pa.int64(), nullable=False)
"""Segment column of tables with a prefix: rows by the order in which they were made."""
LAST_WRITE_FIELD = pa.field("last_write_ms", pa.int64(), nullable=False)
"""Segment column of tables with a time to live."""
REMOVED_FIELD = pa.field("removed", pa.bool_(), nullable=False)
"""Last column of segments that hold changes: of a removed row only key group and keys count."""


class TableShape(msgspec.Struct, frozen=True):
    """What `keyed_table` was asked for."""

    name: str
    keys: Any
    values: Any
    prefix_length: int = 0
    ttl_ms: int = 0

    @property
    def plain_schema(self) -> pa.Schema:
        """Columns of every segment: key group, keys by position, values by position and name: keys may be renamed with
        the query, but a value of another name has another meaning."""
        fields = [KEY_GROUP_FIELD]
        fields += [pa.field(f"k{i}", kind) for i, kind in enumerate(self.keys.types)]
        fields += [pa.field(f"v{i} {field.name}", field.type) for i, field in enumerate(self.values)]
        return pa.schema(fields)

    @property
    def segment_schema(self) -> pa.Schema:
        """`plain_schema` and what the table keeps beside it."""
        schema = self.plain_schema
        if self.prefix_length:
            schema = schema.append(SEQUENCE_FIELD)
        if self.ttl_ms:
            schema = schema.append(LAST_WRITE_FIELD)
        return schema

    @property
    def delta_schema(self) -> pa.Schema:
        """`segment_schema` and whether the row is gone."""
        fields = [KEY_GROUP_FIELD, *(field.with_nullable(True) for field in list(self.segment_schema)[1:])]
        return pa.schema([*fields, REMOVED_FIELD])

    @property
    def removal_schema(self) -> pa.Schema:
        """Key group and keys of rows that are gone."""
        return pa.schema([*list(self.segment_schema)[: 1 + len(self.keys)], REMOVED_FIELD])

    def removals(self, columns: Sequence[Array]) -> pa.RecordBatch:
        """`columns`: key group and keys."""
        removed = pa.array(np.ones(len(columns[0]), dtype=np.bool_))
        return pa.RecordBatch.from_arrays([*columns, removed], schema=self.removal_schema)

    def as_delta(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `segment_schema` or `removal_schema` as `delta_schema` has them; those that already are stay."""
        schema = self.delta_schema
        columns: list[Array] = list(rows.columns)
        if rows.schema.names[-1] == REMOVED_FIELD.name:
            missing = range(len(columns) - 1, len(schema) - 1)
            columns[-1:] = [*(pa.nulls(rows.num_rows, schema.field(i).type) for i in missing), columns[-1]]
        else:
            columns.append(pa.array(np.zeros(rows.num_rows, dtype=np.bool_)))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class RowStore:
    """Slots, what they hold, and which are free. Keys are found through `index`."""

    def __init__(self, shape: TableShape) -> None:
        self.shape = shape
        self.key_columns = [make_column(f.type, nullable=True) for f in shape.keys]
        self.value_columns = [make_column(f.type, f.nullable) for f in shape.values]
        self.index = KeyIndex()
        self.groups: KeyGroups = np.zeros(1, dtype=np.int16)
        self.sequence: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.last_write: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.changed: npt.NDArray[np.int32] = np.zeros(1, dtype=np.int32)
        """Epoch of each row's last change (see `segment_chain`)."""
        self.capacity = 0
        self.slot_count = 0
        """Slots ever used; the rows held are among them."""
        self.capacity_target: int | None = None
        """Slots that the owner means to need; growing in advance stops there."""
        self._free: Slots = np.empty(0, dtype=np.int64)
        self._removed: list[Slots] = []

    @property
    def columns(self) -> list[Column]:
        return [*self.key_columns, *self.value_columns]

    @property
    def byte_size(self) -> int:
        size = sum(column.byte_size for column in self.columns) + self.index.byte_size + self._free.nbytes
        return size + self.groups.nbytes + self.sequence.nbytes + self.last_write.nbytes + self.changed.nbytes

    def batch(self, keys: Sequence[Array], row_count: int, hashes: Hashes | None = None) -> KeyBatch:
        """Keys (or the first of them) of a batch, to be compared with stored ones. `hashes`: theirs, if known."""
        return KeyBatch(self.key_columns[: len(keys)], keys, row_count, hashes)

    def allocate(self, count: int) -> Slots:
        """Slots for new rows; `fill` them."""
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(reused)]
        fresh = np.arange(self.slot_count, self.slot_count + count - len(reused))
        self.slot_count += len(fresh)
        if self.slot_count > self.capacity:
            self._grow()
        return np.concatenate((reused, fresh)) if len(reused) else fresh

    def fill(
        self, slots: Slots, keys: Sequence[Array], groups: KeyGroups, values: Sequence[Array] | None = None
    ) -> None:
        """Make new rows of allocated slots. Without `values` they are NULL, or 0."""
        for column, own in zip(self.key_columns, keys, strict=True):
            column.fill(slots, own)
        if values is None:
            for column in self.value_columns:
                column.reset(slots)
        else:
            for column, own in zip(self.value_columns, values, strict=True):
                column.fill(slots, own)
        self.groups[slots] = groups

    def remove(self, slots: Slots) -> None:
        """Rows (distinct, held) are gone; they can be read, and are not used again, until `recycle`."""
        self.index.free(slots)
        self._removed.append(slots)

    def recycle(self) -> None:
        """Slots of removed rows may be used again."""
        if self._removed:
            slots = np.concatenate(self._removed)
            self._removed = []
            for column in self.columns:
                column.release(slots)
            self._free = np.concatenate((self._free, slots))

    def compact(self, *, urgent: bool = False) -> None:
        for column in self.columns:
            column.compact(self.slot_count, urgent=urgent)

    def live_among(self, first: int, end: int) -> Slots:
        """Slots of the rows held in a stretch of slots."""
        return first + np.flatnonzero(self.index.live[first : min(end, self.slot_count)])

    def rows(self, slots: Slots) -> pa.RecordBatch:
        """Rows as a segment has them, in memory of their own."""
        columns: list[Array] = [pa.array(self.groups[slots])]
        columns += [column.read(slots) for column in self.columns]
        if self.shape.prefix_length:
            columns.append(pa.array(self.sequence[slots]))
        if self.shape.ttl_ms:
            columns.append(pa.array(self.last_write[slots]))
        return pa.RecordBatch.from_arrays(columns, schema=self.shape.segment_schema)

    def removals(self, slots: Slots) -> pa.RecordBatch:
        """Key group and keys of rows, in memory of their own."""
        return self.shape.removals([pa.array(self.groups[slots]), *(key.read(slots) for key in self.key_columns)])

    def set_rows(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Everything but the group; an equal key may be written otherwise (-0.0 and 0.0)."""
        for column, values in zip(self.key_columns, rows.columns[1:], strict=False):
            column.write(slots, values)
        self.set_values(slots, rows)

    def set_values(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Everything but group and keys of rows as a segment has them; columns that it lacks stay."""
        key_end = 1 + len(self.key_columns)
        for column, values in zip(self.value_columns, rows.columns[key_end:], strict=False):
            column.write(slots, values)
        names = rows.schema.names
        if self.shape.prefix_length and SEQUENCE_FIELD.name in names:
            self.sequence[slots] = rows.column(SEQUENCE_FIELD.name).to_numpy()
        if self.shape.ttl_ms and LAST_WRITE_FIELD.name in names:
            self.last_write[slots] = rows.column(LAST_WRITE_FIELD.name).to_numpy()

    def _grow(self) -> None:
        factor = 2.0 if self.capacity < DOUBLED_UP_TO else 1.0625
        ahead = max(CAPACITY_MIN, int(self.capacity * factor))
        if self.capacity_target is not None:
            ahead = min(ahead, self.capacity_target)
        capacity = max(self.slot_count, ahead)
        self.index.grow(capacity)
        for column in self.columns:
            column.grow(capacity)
        self.groups = grown(self.groups, capacity)
        self.changed = grown(self.changed, capacity)
        if self.shape.prefix_length:
            self.sequence = grown(self.sequence, capacity)
        if self.shape.ttl_ms:
            self.last_write = grown(self.last_write, capacity)
        self.capacity = capacity


class KeyBatch:
    """The keys of a batch, ready to be compared."""

    def __init__(
        self, columns: Sequence[Column], keys: Sequence[Array], row_count: int, hashes: Hashes | None = None
    ) -> None:
        self._columns = columns
        self._keys: list[Keys] = [column.prepare(key) for column, key in zip(columns, keys, strict=True)]
        self.hashes: Hashes = hash_columns(keys, row_count) if hashes is None else hashes

    def same_stored(self, slots: Slots, rows: Rows) -> Mask:
        """Whether stored keys equal those of the rows beside them."""
        if not self._keys:
            return np.ones(len(slots), dtype=np.bool_)
        equal = self._columns[0].same(slots, self._keys[0], rows)
        for column, keys in zip(self._columns[1:], self._keys[1:], strict=True):
            equal &= column.same(slots, keys, rows)
        return equal

    def same_rows(self, left: Rows, right: Rows) -> Mask:
        """Whether pairs of rows have equal keys."""
        equal = np.ones(len(left), dtype=np.bool_)
        for keys in self._keys:
            equal &= keys.same(left, right)
        return equal
