"""Rows by unique key in this process's memory: a key index over columns, both in numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.key_groups import Hashes, KeyGroups, hash_columns
from runtime.state.columns import Column, FixedColumn, Keys, make_column
from runtime.state.errors import SegmentError
from runtime.state.key_index import KeyIndex, Mask, Rows, grown
from runtime.state.prefix_index import PrefixIndex
from runtime.state.protocol import KEY_GROUP_FIELD, Slots
from runtime.state.table_snapshot import TableCapture

Array = Any

CAPACITY_MIN = 256
DOUBLED_UP_TO = 1 << 20
"""Rows up to which a table doubles; above it grows by a quarter, so that room never used stays small."""
PIECE_ROWS = 65_536
SEQUENCE_FIELD = pa.field("sequence", pa.int64(), nullable=False)
"""Segment column of tables with a prefix: rows by the order in which they were made."""
LAST_WRITE_FIELD = pa.field("last_write_ms", pa.int64(), nullable=False)
"""Segment column of tables with a time to live."""


class TableShape(msgspec.Struct, frozen=True):
    """What `keyed_table` was asked for."""

    name: str
    keys: Any
    values: Any
    prefix_length: int = 0
    ttl_ms: int = 0

    @property
    def plain_schema(self) -> pa.Schema:
        """Columns of every segment: key group, keys, values; by position, since names may change with the query."""
        fields = [KEY_GROUP_FIELD]
        fields += [pa.field(f"k{i}", kind) for i, kind in enumerate(self.keys.types)]
        fields += [pa.field(f"v{i}", kind) for i, kind in enumerate(self.values.types)]
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


class MemoryKeyedTable:
    """See `KeyedTable`. Used by its task's thread; an open snapshot reads rows in another one, under the lock that
    every structural change and every announced change of rows takes."""

    def __init__(self, shape: TableShape, wall_clock_ms: Callable[[], int], check_size: Callable[[], None]) -> None:
        self.shape = shape
        self._wall_clock_ms = wall_clock_ms
        self._check_size = check_size
        self._key_columns = [make_column(f.type, nullable=True) for f in shape.keys]
        self._value_columns = [make_column(f.type, f.nullable) for f in shape.values]
        self._index = KeyIndex()
        self._prefixes = PrefixIndex() if shape.prefix_length else None
        self._groups: KeyGroups = np.zeros(1, dtype=np.int16)
        self._sequence: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._last_write: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._capacity = 0
        self._slot_count = 0
        self._next_sequence = 0
        self._free: Slots = np.empty(0, dtype=np.int64)
        self._removed: list[Slots] = []
        self._now_ms: int | None = None
        self._swept = 0
        self.lock = threading.RLock()
        self._captures: list[TableCapture] = []

    # ------------------------------------------------------------------------------------------------- look-ups

    @property
    def row_count(self) -> int:
        return self._index.live_count

    @property
    def byte_size(self) -> int:
        size = sum(column.byte_size for column in self._columns) + self._index.byte_size + self._free.nbytes
        size += self._groups.nbytes + self._sequence.nbytes + self._last_write.nbytes
        return size + (0 if self._prefixes is None else self._prefixes.byte_size)

    def slots(self, keys: Sequence[Array], groups: KeyGroups) -> tuple[Slots, Mask]:
        with self.lock:
            batch = KeyBatch(self._key_columns, keys, len(groups))
            slots = self._index.find(batch.hashes, batch.same_stored)
            if self.shape.ttl_ms:
                self._remove_expired(slots)
            made = np.zeros(len(groups), dtype=np.bool_)
            missing = np.flatnonzero(slots < 0)
            if len(missing):
                slots[missing], made[missing] = self._index.insert(
                    batch.hashes, missing, batch.same_rows, lambda first: self._make_rows(keys, groups, first)
                )
                self._check_size()
        return slots, made

    def find(self, keys: Sequence[Array], groups: KeyGroups) -> Slots:
        batch = KeyBatch(self._key_columns, keys, len(groups))
        slots = self._index.find(batch.hashes, batch.same_stored)
        if self.shape.ttl_ms:
            found = np.flatnonzero(slots >= 0)
            slots[found[self._expired(slots[found])]] = -1
        return slots

    def find_prefix(self, prefix: Sequence[Array], groups: KeyGroups) -> tuple[Slots, Slots]:
        assert self._prefixes is not None
        assert len(prefix) == self.shape.prefix_length
        batch = KeyBatch(self._key_columns[: len(prefix)], prefix, len(groups))
        rows, slots = self._prefixes.find(batch.hashes)
        kept = batch.same_stored(slots, rows)
        if self.shape.ttl_ms:
            kept &= ~self._expired(slots)
        return (rows, slots) if kept.all() else (rows[kept], slots[kept])

    def keys(self, slots: Slots) -> list[Array]:
        return [column.read(slots) for column in self._key_columns]

    def read(self, column: int, slots: Slots) -> Array:
        return self._value_columns[column].read(slots)

    def numbers(self, column: int) -> npt.NDArray[Any]:
        values = self._value_columns[column]
        field = self.shape.values.field(column)
        assert isinstance(values, FixedColumn)
        assert not field.nullable
        assert pa.types.is_primitive(field.type), f"{field} cannot be used in place"
        return values.values[: self._slot_count]

    def all_slots(self) -> Iterator[Slots]:
        first = 0
        while first < self._slot_count:
            slots = first + np.flatnonzero(self._index.live[first : first + PIECE_ROWS])
            if self.shape.ttl_ms:
                slots = slots[~self._expired(slots)]
            if len(slots):
                yield slots
            first += PIECE_ROWS

    # -------------------------------------------------------------------------------------------------- changes

    def write(self, column: int, slots: Slots, values: Array) -> None:
        with self.lock:
            self.touch(slots)
            self._value_columns[column].write(slots, values)

    def touch(self, slots: Slots) -> None:
        if self._captures:
            with self.lock:
                self._preserve(slots)
        if self.shape.ttl_ms:
            self._last_write[slots] = self._now()

    def remove(self, slots: Slots) -> None:
        slots = np.unique(slots)
        slots = slots[self._index.live[slots]]
        if not len(slots):
            return
        with self.lock:
            self._preserve(slots)
            self._index.free(slots)
            if self._prefixes is not None:
                self._prefixes.remove(slots)
            # Not used again before the batch has ended: the caller may still read them.
            self._removed.append(slots)

    def settle(self) -> None:
        with self.lock:
            if self.shape.ttl_ms:
                self._sweep()
            self._recycle()
            self._index.move(PIECE_ROWS)
            if self._prefixes is not None:
                self._prefixes.compact()
            for column in self._columns:
                column.compact(self._slot_count)
            self._now_ms = None
        self._check_size()

    def compact(self) -> None:
        """Give back what is not needed."""
        with self.lock:
            for column in self._columns:
                column.compact(self._slot_count, urgent=True)

    # ------------------------------------------------------------------------------------- snapshot and restore

    def capture(self) -> TableCapture:
        """Open a snapshot of the rows as they are now; costs the same at any size."""
        with self.lock:
            capture = TableCapture(self, self._slot_count)
            self._captures.append(capture)
        return capture

    def release(self, capture: TableCapture) -> None:
        """The snapshot is complete or given up."""
        with self.lock:
            if capture in self._captures:
                self._captures.remove(capture)

    def live_among(self, first: int, end: int) -> Slots:
        """Slots of the rows held in a stretch of slots."""
        return first + np.flatnonzero(self._index.live[first:end])

    def rows(self, slots: Slots) -> pa.RecordBatch:
        """Rows as a segment has them, in memory of their own."""
        columns: list[Array] = [pa.array(self._groups[slots])]
        columns += [column.read(slots) for column in self._columns]
        if self.shape.prefix_length:
            columns.append(pa.array(self._sequence[slots]))
        if self.shape.ttl_ms:
            columns.append(pa.array(self._last_write[slots]))
        return pa.RecordBatch.from_arrays(columns, schema=self.shape.segment_schema)

    def restore(self, rows: pa.RecordBatch, source: str) -> None:
        """Take over rows of a segment. After the last ones: `finish_restore`. Raises SegmentError."""
        plain = self.shape.plain_schema
        if not pa.schema(list(rows.schema)[: len(plain)]).equals(plain):
            raise SegmentError(f"state file {source} has columns {rows.schema}, expected {plain}")
        key_end = 1 + len(self._key_columns)
        slots, made = self.slots(rows.columns[1:key_end], cast(Any, rows.column(0)).to_numpy())
        if not made.all():
            raise SegmentError(f"state file {source} has rows whose keys are not unique")
        for column, values in zip(self._value_columns, rows.columns[key_end:], strict=False):
            column.write(slots, values)
        names = rows.schema.names
        if self.shape.prefix_length and SEQUENCE_FIELD.name in names:
            self._sequence[slots] = rows.column(SEQUENCE_FIELD.name).to_numpy()
        if self.shape.ttl_ms and LAST_WRITE_FIELD.name in names:
            self._last_write[slots] = rows.column(LAST_WRITE_FIELD.name).to_numpy()

    def finish_restore(self) -> None:
        """All rows are there: put them in order."""
        if self._prefixes is not None and self._slot_count:
            slots = self.live_among(0, self._slot_count)
            slots = slots[np.argsort(self._sequence[slots], kind="stable")]
            self._next_sequence = int(self._sequence[slots[-1]]) + 1 if len(slots) else 0
            self._prefixes = PrefixIndex()
            self._prefixes.grow(self._capacity)
            for first in range(0, len(slots), PIECE_ROWS):
                piece = slots[first : first + PIECE_ROWS]
                self._prefixes.add(piece, self._prefix_hashes(self.keys(piece)))
        self._now_ms = None

    # ------------------------------------------------------------------------------------------------- internal

    @property
    def _columns(self) -> list[Column]:
        return [*self._key_columns, *self._value_columns]

    def _now(self) -> int:
        """The wall clock, read once per batch."""
        if self._now_ms is None:
            self._now_ms = self._wall_clock_ms()
        return self._now_ms

    def _expired(self, slots: Slots) -> Mask:
        expired: Mask = self._last_write[slots] + self.shape.ttl_ms <= self._now()
        return expired

    def _remove_expired(self, slots: Slots) -> None:
        """Expired rows among those found are removed; their places in `slots` become -1."""
        found = np.flatnonzero(slots >= 0)
        gone = found[self._expired(slots[found])]
        if len(gone):
            self.remove(slots[gone])
            slots[gone] = -1

    def _make_rows(self, keys: Sequence[Array], groups: KeyGroups, first: Rows) -> Slots:
        """Slots for new rows whose keys are in the batch's rows `first`."""
        slots = self._allocate(len(first))
        for capture in self._captures:
            capture.exclude(slots)
        taken = keys if len(first) == len(groups) else [key.take(pa.array(first)) for key in keys]
        for column, values in zip(self._key_columns, taken, strict=True):
            column.reset(slots)
            column.write(slots, values)
        for column in self._value_columns:
            column.reset(slots)
        self._groups[slots] = groups[first]
        if self.shape.ttl_ms:
            self._last_write[slots] = self._now()
        if self._prefixes is not None:
            self._sequence[slots] = np.arange(self._next_sequence, self._next_sequence + len(slots))
            self._next_sequence += len(slots)
            self._prefixes.add(slots, self._prefix_hashes(taken))
        return slots

    def _prefix_hashes(self, keys: Sequence[Array]) -> Hashes:
        return hash_columns(keys[: self.shape.prefix_length])

    def _allocate(self, count: int) -> Slots:
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(reused)]
        fresh = np.arange(self._slot_count, self._slot_count + count - len(reused))
        self._slot_count += len(fresh)
        if self._slot_count > self._capacity:
            self._grow()
        return np.concatenate((reused, fresh)) if len(reused) else fresh

    def _grow(self) -> None:
        factor = 2.0 if self._capacity < DOUBLED_UP_TO else 1.25
        capacity = max(CAPACITY_MIN, self._slot_count, int(self._capacity * factor))
        self._index.grow(capacity)
        for column in self._columns:
            column.grow(capacity)
        self._groups = grown(self._groups, capacity)
        if self._prefixes is not None:
            self._prefixes.grow(capacity)
            self._sequence = grown(self._sequence, capacity)
        if self.shape.ttl_ms:
            self._last_write = grown(self._last_write, capacity)
        self._capacity = capacity

    def _preserve(self, slots: Slots) -> None:
        for capture in self._captures:
            capture.preserve(slots)

    def _sweep(self) -> None:
        """Remove the expired rows of the next stretch of slots."""
        if self._swept >= self._slot_count:
            self._swept = 0
        slots = self.live_among(self._swept, min(self._swept + PIECE_ROWS, self._slot_count))
        self._swept += PIECE_ROWS
        self.remove(slots[self._expired(slots)])

    def _recycle(self) -> None:
        """Slots of removed rows may be used again."""
        if not self._removed:
            return
        slots = np.concatenate(self._removed)
        self._removed = []
        for column in self._columns:
            column.release(slots)
        self._free = np.concatenate((self._free, slots))


class KeyBatch:
    """The keys of a batch, ready to be compared."""

    def __init__(self, columns: Sequence[Column], keys: Sequence[Array], row_count: int) -> None:
        self._columns = columns
        self._keys: list[Keys] = [column.prepare(key) for column, key in zip(columns, keys, strict=True)]
        self.hashes: Hashes = hash_columns(keys, row_count)

    def same_stored(self, slots: Slots, rows: Rows) -> Mask:
        """Whether stored keys equal those of the rows beside them."""
        equal = np.ones(len(slots), dtype=np.bool_)
        for column, keys in zip(self._columns, self._keys, strict=True):
            equal &= column.same(slots, keys, rows)
        return equal

    def same_rows(self, left: Rows, right: Rows) -> Mask:
        """Whether pairs of rows have equal keys."""
        equal = np.ones(len(left), dtype=np.bool_)
        for keys in self._keys:
            equal &= keys.same(left, right)
        return equal
