"""Keyed tables in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from runtime.key_groups import Hashes, KeyGroups, hash_columns
from runtime.state.change_log import ChangeLog
from runtime.state.columns import last_of_each
from runtime.state.errors import SegmentError
from runtime.state.key_index import Mask, Rows
from runtime.state.prefix_index import PrefixIndex, counted
from runtime.state.protocol import Slots
from runtime.state.row_store import REMOVED_FIELD, KeyBatch, RowStore, TableShape
from runtime.state.segment_chain import SnapshotPlan, TableChain
from runtime.state.table_reads import TableReads
from runtime.state.table_snapshot import Capture, TableCapture

Array = Any

PIECE_ROWS = 65_536


class MemoryKeyedTable(TableReads):
    """See `KeyedTable`. Used by its task's thread; an open snapshot reads rows in another one, under the lock that
    every structural change and every announced change of rows takes."""

    holds_all_rows = True
    """Not those that are in a database."""

    def __init__(
        self,
        shape: TableShape,
        chain: TableChain,
        wall_clock_ms: Callable[[], int],
        check_size: Callable[[], None],
        log: ChangeLog | None = None,
    ) -> None:
        self.shape = shape
        self.chain = chain
        self.store = RowStore(shape)
        self.log = log or ChangeLog()
        self._wall_clock_ms = wall_clock_ms
        self._check_size = check_size
        self._prefixes = PrefixIndex() if shape.prefix_length else None
        self._next_sequence = 0
        self._now_ms: int | None = None
        self._swept = 0
        self.lock = threading.RLock()
        self._captures: list[TableCapture] = []

    # ------------------------------------------------------------------------------------------------- look-ups

    @property
    def row_count(self) -> int:
        return self.store.index.live_count

    @property
    def next_sequence(self) -> int:
        return self._next_sequence

    @property
    def byte_size(self) -> int:
        prefixes = 0 if self._prefixes is None else self._prefixes.byte_size
        return self.store.byte_size + prefixes + self.log.memory_bytes

    def slots(self, keys: Sequence[Array], groups: KeyGroups) -> tuple[Slots, Mask]:
        with self.lock:
            batch = self.store.batch(keys, len(groups))
            slots = self._look_up(batch, keys, groups)
            if self.shape.ttl_ms:
                found = (slots >= 0).nonzero()[0]
                gone = found[self._expired(slots[found])]
                if len(gone):
                    self.remove(slots[gone])
                    slots[gone] = -1
            made = np.zeros(len(groups), dtype=np.bool_)
            missing = (slots < 0).nonzero()[0]
            if len(missing):
                slots[missing], made[missing] = self.store.index.insert(
                    batch.hashes, missing, batch.same_rows, lambda first: self._make_rows(keys, groups, first)
                )
                self._check_size()
        return slots, made

    def find(self, keys: Sequence[Array], groups: KeyGroups) -> Slots:
        slots = self._look_up(self.store.batch(keys, len(groups)), keys, groups)
        if self.shape.ttl_ms:
            found = (slots >= 0).nonzero()[0]
            slots[found[self._expired(slots[found])]] = -1
        return slots

    def append(
        self, prefix: Sequence[Array], groups: KeyGroups, values: Sequence[Array], hashes: Hashes | None = None
    ) -> None:
        assert len(self.shape.keys) == self.shape.prefix_length + 1
        numbers = pa.array(np.arange(self._next_sequence, self._next_sequence + len(groups)))
        if not self.holds_all_rows:
            # Those that come back are found by their keys.
            slots, _ = self.slots([*prefix, numbers], groups)
            for column, own in enumerate(values):
                self.write(column, slots, own)
            return
        with self.lock:
            self.store.index.drop_entries()
            slots = self._make_rows([*prefix, numbers], groups, None, hashes, values)
            self.store.index.take_in(slots)
            self._check_size()

    def prefix_row_count(self, hashes: Hashes) -> int | None:
        assert self._prefixes is not None
        return self._prefixes.row_count(hashes) if self.holds_all_rows else None

    def find_prefix(
        self, prefix: Sequence[Array], groups: KeyGroups, hashes: Hashes | None = None
    ) -> tuple[Slots, Slots]:
        assert self._prefixes is not None
        assert len(prefix) == self.shape.prefix_length
        batch = self.store.batch(prefix, len(groups), hashes)
        rows, slots = self._prefixes.find(batch.hashes)
        kept = batch.same_stored(slots, rows)
        if self.shape.ttl_ms:
            kept &= ~self._expired(slots)
        return (rows, slots) if kept.all() else (rows[kept], slots[kept])

    def all_slots(self) -> Iterator[Slots]:
        first = 0
        while first < self.store.slot_count:
            slots = self.store.live_among(first, first + PIECE_ROWS)
            if self.shape.ttl_ms:
                slots = slots[~self._expired(slots)]
            if len(slots):
                yield slots
            first += PIECE_ROWS

    # -------------------------------------------------------------------------------------------------- changes

    def write(self, column: int, slots: Slots, values: Array) -> None:
        with self.lock:
            self.touch(slots)
            self.store.value_columns[column].write(slots, values)

    def touch(self, slots: Slots) -> None:
        if self._captures:
            with self.lock:
                self._preserve(slots)
        self.store.changed[slots] = self.chain.epoch
        if self.shape.ttl_ms:
            self.store.last_write[slots] = self._now()

    def remove(self, slots: Slots) -> None:
        slots, _ = counted(slots[self.store.index.live[slots]])
        if not len(slots):
            return
        with self.lock:
            self._preserve(slots)
            if self.chain.is_tracked:
                self.log.append(self.chain.epoch, self.store.removals(slots))
            self.store.remove(slots)
            if self._prefixes is not None:
                self._prefixes.remove(slots)

    def settle(self) -> None:
        with self.lock:
            if self.shape.ttl_ms:
                # Expired rows of the next stretch of slots go, whether they are asked for or not.
                first = self._swept if self._swept < self.store.slot_count else 0
                self._swept = first + PIECE_ROWS
                swept = self.store.live_among(first, self._swept)
                self.remove(swept[self._expired(swept)])
            self.store.recycle()
            self.store.index.move(PIECE_ROWS)
            if self._prefixes is not None:
                self._prefixes.compact()
            self.store.compact()
            self._now_ms = None
        if self.log.is_too_large(self.row_count, self.store.byte_size):
            self._forget_changes()
        self._check_size()

    # ------------------------------------------------------------------------------------- snapshot and restore

    def capture(self, plan: SnapshotPlan) -> Capture:
        """The rows as they are now, those of the plan; costs the same at any size."""
        with self.lock:
            log = self.log.after(plan.cut) if plan.is_delta else []
            return TableCapture(self.store, plan, log, self.lock, self._captures)

    def restore(self, rows: pa.RecordBatch, source: str) -> None:
        """Take over rows of a segment, after those of the segments before it. After the last ones: `finish_restore`.
        Raises SegmentError."""
        check_columns(self.shape, rows, source)
        key_end = 1 + len(self.store.key_columns)
        slots, made = self.slots(rows.columns[1:key_end], cast(Any, rows.column(0)).to_numpy())
        if REMOVED_FIELD.name not in rows.schema.names:
            if not made.all():
                raise SegmentError(f"state file {source} has rows whose keys are not unique")
            self.store.set_values(slots, rows)
            return
        # Of a key that occurs several times the last row counts.
        last = last_of_each(slots)
        removed = rows.column(REMOVED_FIELD.name).to_numpy(zero_copy_only=False)[last]
        kept = last[~removed]
        self.store.set_rows(slots[kept], rows.take(kept))
        self.store.changed[slots[kept]] = self.chain.epoch
        self.remove(slots[last[removed]])
        self.store.recycle()

    def finish_restore(self) -> None:
        """All rows are there: put them in order."""
        if self._prefixes is not None and self.store.slot_count:
            slots = self.store.live_among(0, self.store.slot_count)
            slots = slots[np.argsort(self.store.sequence[slots], kind="stable")]
            self._next_sequence = int(self.store.sequence[slots[-1]]) + 1 if len(slots) else 0
            self._prefixes = PrefixIndex()
            self._prefixes.grow(self.store.capacity)
            for first in range(0, len(slots), PIECE_ROWS):
                piece = slots[first : first + PIECE_ROWS]
                self._prefixes.add(piece, hash_columns(self.keys(piece)[: self.shape.prefix_length]))
        self._now_ms = None

    # ------------------------------------------------------------------------------------------------- internal

    def _forget_changes(self) -> None:
        """First what is kept only to be merged, then all that no checkpoint has taken: the next one is a full one."""
        self.chain.forget_cuts()
        self.log.drop(self.chain.floor)
        if self.log.is_too_large(self.row_count, self.store.byte_size):
            self.chain.forget()
            self.log.drop(self.chain.epoch)

    def _look_up(self, batch: KeyBatch, keys: Sequence[Array], groups: KeyGroups) -> Slots:
        """Slots of the keys that are held, expired ones too; -1 for the others."""
        return self.store.index.find(batch.hashes, batch.same_stored)

    def _now(self) -> int:
        """The wall clock, read once per batch."""
        if self._now_ms is None:
            self._now_ms = self._wall_clock_ms()
        return self._now_ms

    def _expired(self, slots: Slots) -> Mask:
        expired: Mask = self.store.last_write[slots] + self.shape.ttl_ms <= self._now()
        return expired

    def _make_rows(
        self,
        keys: Sequence[Array],
        groups: KeyGroups,
        first: Rows | None,
        hashes: Hashes | None = None,
        values: Sequence[Array] | None = None,
    ) -> Slots:
        """Slots for new rows whose keys are in the batch's rows `first` (None: in all). `hashes`: of the prefixes of
        all rows."""
        count = len(groups) if first is None else len(first)
        slots = self.store.allocate(count)
        for capture in self._captures:
            capture.exclude(slots)
        if first is None or count == len(groups):
            taken, own_groups = keys, groups
        else:
            taken, own_groups = [key.take(pa.array(first)) for key in keys], groups[first]
        self.store.fill(slots, taken, own_groups, values)
        self.store.changed[slots] = self.chain.epoch
        if self.shape.ttl_ms:
            self.store.last_write[slots] = self._now()
        if self._prefixes is not None:
            self.store.sequence[slots] = np.arange(self._next_sequence, self._next_sequence + len(slots))
            self._next_sequence += len(slots)
            self._prefixes.grow(self.store.capacity)
            if hashes is None:
                hashes = hash_columns(taken[: self.shape.prefix_length])
            self._prefixes.add(slots, hashes)
        return slots

    def _preserve(self, slots: Slots) -> None:
        for capture in self._captures:
            capture.preserve(slots)


def check_columns(shape: TableShape, rows: pa.RecordBatch, source: str) -> None:
    """Whether rows of a segment are this table's. Raises SegmentError."""
    plain = shape.plain_schema
    if not pa.schema(list(rows.schema)[: len(plain)]).equals(plain):
        raise SegmentError(f"state file {source} has columns {rows.schema}, expected {plain}")
