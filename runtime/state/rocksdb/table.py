"""Keyed tables whose cold rows are in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.key_groups import Hashes, KeyGroups, hash_columns
from runtime.state.columns import last_of_each
from runtime.state.encoding import decode, encode
from runtime.state.growing import grown
from runtime.state.key_index import Rows
from runtime.state.keyed_table import MemoryKeyedTable, check_columns
from runtime.state.protocol import Slots
from runtime.state.rocksdb.database import Family, View
from runtime.state.rocksdb.spool import SpooledLog
from runtime.state.row_store import LAST_WRITE_FIELD, REMOVED_FIELD, SEQUENCE_FIELD, KeyBatch, TableShape
from runtime.state.segment_chain import SnapshotPlan, TableChain
from runtime.state.table_snapshot import Capture, WritePieces

Array = Any
Batches = npt.NDArray[np.int32]

GROUP_BYTES = 2
PREFIX_BYTES = 8
MOVED_ROWS = 8_192
"""Rows written or read at once: bounds the Python objects in flight."""
HOT_ROWS_MIN = 1_024
ROW_BYTES = 128
"""What a row is thought to take before there is one."""
EVICTED_ROWS_MIN = 4_096
"""Rows written at once by an eviction."""
CHOSEN_SHARE = 0.125
"""Rows of memory chosen at once for the evictions to come: choosing looks at every row."""
SWEPT_ROWS = 512
"""Cold rows looked at per batch for an expired time to live."""


class RocksKeyedTable(MemoryKeyedTable):
    """Hot rows as in memory; each other row is in `family` under key group, hash of the prefix (of tables that have
    one) and the key's canonical bytes. Those go first whose last use but one is the longest ago (LRU-2): a row that was
    used once only does not drive out one that is used now and then. An eviction takes no more than is too much, so that
    no batch waits for long."""

    holds_all_rows = False

    def __init__(
        self,
        shape: TableShape,
        chain: TableChain,
        wall_clock_ms: Callable[[], int],
        family: Family,
        hot_bytes: Callable[[], int],
    ) -> None:
        self._family = family
        super().__init__(shape, chain, wall_clock_ms, lambda: None, SpooledLog(shape, family.directory))
        self._hot_bytes = hot_bytes
        self._row_kind: Any = pa.struct(list(shape.segment_schema))
        self._batch_number = 1
        self._used: Batches = np.zeros(1, dtype=np.int32)
        self._used_before: Batches = np.zeros(1, dtype=np.int32)
        self._chosen: Slots = np.empty(0, dtype=np.int64)
        self._chosen_at = 0
        self._cold_count = 0
        self._sweep_from = b""
        self._restored_sequence = -1
        self._counts_again = False

    @property
    def row_count(self) -> int:
        return super().row_count + self._cold_count

    def find(self, keys: Sequence[Array], groups: KeyGroups) -> Slots:
        with self.lock:
            return super().find(keys, groups)

    def find_prefix(
        self, prefix: Sequence[Array], groups: KeyGroups, hashes: Hashes | None = None
    ) -> tuple[Slots, Slots]:
        with self.lock:
            if self._cold_count:
                hashes = hash_columns(prefix) if hashes is None else hashes
                self._load_prefixes(hashes, groups)
            rows, slots = super().find_prefix(prefix, groups, hashes)
        self._mark(slots)
        # Rows that came back from the database stand behind younger ones.
        order = np.lexsort((self.store.sequence[slots], rows))
        return rows[order], slots[order]

    def all_slots(self) -> Iterator[Slots]:
        view = self._family.view()
        try:
            held = [piece.copy() for piece in super().all_slots()]
            for piece in held:
                live = piece[self.store.index.live[piece]]
                if len(live):
                    yield live
            for names, values in view.pieces():
                with self.lock:
                    slots = self._bring_in(names, values)
                    if self.shape.ttl_ms:
                        slots = slots[~self._expired(slots)]
                if len(slots):
                    yield slots
                self._evict()
        finally:
            view.close()

    def settle(self) -> None:
        super().settle()
        self._evict()
        self._batch_number += 1
        if self.shape.ttl_ms and self._cold_count:
            self._sweep_cold()

    def capture(self, plan: SnapshotPlan) -> Capture:
        with self.lock:
            # Changes of cold rows are in the log.
            view = self._family.view() if plan.renewed or not plan.is_delta else None
            return RocksCapture(super().capture(plan), view, plan, self.shape, self._rows_of)

    def restore(self, rows: pa.RecordBatch, source: str) -> None:
        """Fills memory, then the database."""
        if self._cold_count == 0 and self.store.index.live_count + rows.num_rows <= self._hot_rows_max():
            super().restore(rows, source)
            return
        check_columns(self.shape, rows, source)
        if REMOVED_FIELD.name in rows.schema.names:
            rows = self._restore_hot_changes(rows)
            if not rows.num_rows:
                return
        columns: list[Array] = list(rows.columns[: len(self.shape.plain_schema)])
        names = rows.schema.names
        if self.shape.prefix_length:
            sequence = np.arange(self._next_sequence, self._next_sequence + rows.num_rows)
            if SEQUENCE_FIELD.name in names:
                sequence = cast(Any, rows.column(SEQUENCE_FIELD.name)).to_numpy()
            self._restored_sequence = max(self._restored_sequence, int(sequence.max()))
            self._next_sequence = max(self._next_sequence, self._restored_sequence + 1)
            columns.append(pa.array(sequence))
        if self.shape.ttl_ms:
            known = LAST_WRITE_FIELD.name in names
            now = np.full(rows.num_rows, self._now())
            columns.append(rows.column(LAST_WRITE_FIELD.name) if known else pa.array(now))
        cold = pa.RecordBatch.from_arrays(columns, schema=self.shape.segment_schema)
        if self.chain.is_tracked:
            self.log.append(self.chain.epoch, cold)
        self._store_cold(cold)

    def _restore_hot_changes(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Changes of rows that are in memory are made there, and cold rows that are removed are; the others, which
        replace what is in the database, are returned."""
        keys = rows.columns[1 : 1 + len(self.shape.keys)]
        names = self._names(keys, cast(Any, rows.column(0)).to_numpy())
        # Of a key that occurs several times the last row counts.
        last = last_of_each(names.dictionary_encode().indices.to_numpy())
        rows, names = rows.take(last), names.take(pa.array(last))
        keys = rows.columns[1 : 1 + len(self.shape.keys)]
        batch = self.store.batch(keys, rows.num_rows)
        slots = self.store.index.find(batch.hashes, batch.same_stored)
        removed = rows.column(REMOVED_FIELD.name).to_numpy(zero_copy_only=False)
        hot = slots >= 0
        changed = np.flatnonzero(hot & ~removed)
        self.store.set_rows(slots[changed], rows.take(changed))
        self.store.changed[slots[changed]] = self.chain.epoch
        self.remove(slots[hot & removed])
        self.store.recycle()
        gone = pa.array(~hot & removed)
        if self.chain.is_tracked and gone.true_count:
            gone_keys = rows.filter(gone).columns[: 1 + len(self.shape.keys)]
            self.log.append(self.chain.epoch, self.shape.removals(gone_keys))
        self._family.delete(names.filter(gone).to_pylist())
        self._counts_again = True
        return rows.filter(pa.array(~hot & ~removed))

    def finish_restore(self) -> None:
        if self._counts_again:
            self._cold_count = self._family.count()
            self._counts_again = False
        super().finish_restore()
        self._next_sequence = max(self._next_sequence, self._restored_sequence + 1)

    # ------------------------------------------------------------------------------------------------- internal

    def _look_up(self, batch: KeyBatch, keys: Sequence[Array], groups: KeyGroups) -> Slots:
        slots = super()._look_up(batch, keys, groups)
        if self._cold_count:
            missing = np.flatnonzero(slots < 0)
            if len(missing):
                self._load_missing(slots, missing, keys, groups)
        self._mark(slots[slots >= 0])
        return slots

    def _make_rows(
        self,
        keys: Sequence[Array],
        groups: KeyGroups,
        first: Rows | None,
        hashes: Hashes | None = None,
        values: Sequence[Array] | None = None,
    ) -> Slots:
        slots = super()._make_rows(keys, groups, first, hashes, values)
        self._mark(slots)
        self._used_before[slots] = 0
        return slots

    def _bring_in(self, names: list[bytes], values: list[bytes]) -> Slots:
        """Rows that were in the database once: where they are now. Those that were removed since are left out."""
        rows = self._rows_of(values)
        batch = self.store.batch(rows.columns[1 : 1 + len(self.shape.keys)], rows.num_rows)
        slots = self.store.index.find(batch.hashes, batch.same_stored)
        cold = _present(self._family, [names[row] for row in np.flatnonzero(slots < 0).tolist()])
        return np.concatenate((slots[slots >= 0], self._load(*cold)))

    def _mark(self, slots: Slots) -> None:
        """The rows are in use."""
        if len(self._used) < self.store.capacity:
            old = len(self._used)
            self._used, self._used_before = (grown(a, self.store.capacity) for a in (self._used, self._used_before))
            self._used[old:] = self._used_before[old:] = 0
        before = self._used[slots]
        first = before != self._batch_number
        slots = slots[first]
        self._used_before[slots] = before[first]
        self._used[slots] = self._batch_number

    def _load_missing(self, slots: Slots, missing: Rows, keys: Sequence[Array], groups: KeyGroups) -> None:
        """Bring the keys of rows `missing` in from the database where they are there; their places are filled."""
        taken = pa.array(missing)
        names = self._names([key.take(taken) for key in keys], groups[missing]).dictionary_encode()
        distinct = names.dictionary.to_pylist()
        # In order: neighbours are read from one block.
        present, values = _present(self._family, sorted(distinct))
        if not values:
            return
        loaded = self._load(present, values)
        places = np.full(len(distinct), -1, dtype=np.int64)
        position = {name: i for i, name in enumerate(distinct)}
        places[[position[name] for name in present]] = loaded
        slots[missing] = places[names.indices.to_numpy()]

    def _load_prefixes(self, hashes: Hashes, groups: KeyGroups) -> None:
        """Bring in all rows of these prefixes."""
        assert self._prefixes is not None
        wanted = self._prefixes.incomplete(hashes)
        for row in wanted.tolist():
            self._load(*self._family.scan_prefix(_header(groups[row : row + 1], hashes[row : row + 1]).tobytes()))
        self._prefixes.complete(hashes[wanted])

    def _load(self, names: list[bytes], values: list[bytes]) -> Slots:
        """Move rows into memory."""
        if not names:
            return np.empty(0, dtype=np.int64)
        rows = self._rows_of(values)
        groups = cast(Any, rows.column(0)).to_numpy()
        keys = rows.columns[1 : 1 + len(self.shape.keys)]
        batch = self.store.batch(keys, rows.num_rows)
        every = np.arange(rows.num_rows)
        slots, _ = self.store.index.insert(
            batch.hashes, every, batch.same_rows, lambda first: self._make_rows(keys, groups, first)
        )
        self.store.set_values(slots, rows)
        # What had changed was logged when the rows left memory.
        self.store.changed[slots] = 0
        self._family.delete(names)
        self._cold_count -= len(names)
        return slots

    def _hot_rows_max(self) -> int:
        """Rows that fit in memory by what a row takes now: columns by room, arenas with as much garbage."""
        store = self.store
        if not store.capacity:
            return max(HOT_ROWS_MIN, self._hot_bytes() // ROW_BYTES)
        arenas = [column.arena_bytes for column in store.columns]
        fixed = (self.byte_size - sum(total for total, _ in arenas)) / store.capacity
        variable = 2 * sum(used for _, used in arenas) / max(1, store.index.live_count)
        return max(HOT_ROWS_MIN, int(self._hot_bytes() / (fixed + variable)))

    def _evict(self) -> None:
        """Move rows to the database when memory is full."""
        live, most = self.store.index.live_count, self._hot_rows_max()
        self.store.capacity_target = most
        if live <= most:
            return
        with self.lock:
            excess = min(live, max(live - most, EVICTED_ROWS_MIN))
            while excess > 0:
                slots = self._victims(min(excess, MOVED_ROWS))
                rows = self.store.rows(slots)
                self._store_cold(rows)
                self._preserve(slots)
                if self.chain.is_tracked:
                    changed = self.store.changed[slots]
                    for epoch in np.unique(changed[changed > self.chain.floor]).tolist():
                        self.log.append(self.chain.level(epoch), rows.filter(pa.array(changed == epoch)))
                self.store.remove(slots)
                if self._prefixes is not None:
                    self._prefixes.displace(slots)
                excess -= len(slots)
            self.store.recycle()
            self.store.compact()

    def _victims(self, count: int) -> Slots:
        """Up to `count` rows (at least one) that are needed least. `count` rows are held, or more."""
        while True:
            chosen, self._chosen = self._chosen[:count], self._chosen[count:]
            # Since they were chosen some have been used, or removed (and their slots used again).
            chosen = chosen[self.store.index.live[chosen] & (self._used[chosen] <= self._chosen_at)]
            if len(chosen):
                return chosen
            if not len(self._chosen):
                self._choose(count)

    def _choose(self, count: int) -> None:
        self._mark(np.empty(0, dtype=np.int64))
        live = self.store.live_among(0, self.store.slot_count)
        count = min(len(live), max(count, int(len(live) * CHOSEN_SHARE)))
        before = self._used_before[live].astype(np.int64)
        once = before == 0
        # Rows used once only go before all others, in the order of that use.
        before[once] = self._used[live[once]].astype(np.int64) - (1 << 32)
        least = np.argpartition(before, count - 1)[:count]
        self._chosen = live[least[np.argsort(before[least], kind="stable")]]
        self._chosen_at = self._batch_number

    def _store_cold(self, rows: pa.RecordBatch) -> None:
        """Put rows into the database."""
        groups = cast(Any, rows.column(0)).to_numpy()
        names = self._names(rows.columns[1 : 1 + len(self.shape.keys)], groups)
        for first in range(0, rows.num_rows, MOVED_ROWS):
            piece: Any = rows.slice(first, MOVED_ROWS)
            values = encode(pa.StructArray.from_arrays(piece.columns, fields=list(piece.schema)))
            self._family.put(names.slice(first, MOVED_ROWS).to_pylist(), values.to_pylist())
        self._cold_count += rows.num_rows

    def _rows_of(self, values: list[bytes]) -> pa.RecordBatch:
        fields = decode(self._row_kind, pa.array(values, pa.binary())).flatten()
        return pa.RecordBatch.from_arrays(fields, schema=self.shape.segment_schema)

    def _names(self, keys: Sequence[Array], groups: KeyGroups) -> Array:
        """The database's key of each row."""
        hashes = hash_columns(keys[: self.shape.prefix_length], len(groups)) if self.shape.prefix_length else None
        header = _header(groups, hashes)
        offsets: Any = pa.py_buffer(cast(Any, np.arange(len(groups) + 1, dtype=np.int32) * header.shape[1]))
        names: Any = pa.Array.from_buffers(pa.binary(), len(groups), [None, offsets, pa.py_buffer(cast(Any, header))])
        parts = [encode(pa.StructArray.from_arrays([key], ["k"]), canonical=True) for key in keys]
        return pc.binary_join_element_wise(names, *parts, pa.scalar(b"", pa.binary())) if parts else names

    def _sweep_cold(self) -> None:
        """Delete the expired among the next few cold rows."""
        view = self._family.view()
        try:
            names, values = next(view.pieces(self._sweep_from, limit=SWEPT_ROWS), ([], []))
        finally:
            view.close()
        self._sweep_from = names[-1] + b"\0" if len(names) == SWEPT_ROWS else b""
        if names:
            rows = self._rows_of(values)
            last_write = cast(Any, rows.column(LAST_WRITE_FIELD.name)).to_numpy()
            gone = np.flatnonzero(last_write + self.shape.ttl_ms <= self._now())
            if len(gone) and self.chain.is_tracked:
                expired = rows.take(gone).columns[: 1 + len(self.shape.keys)]
                self.log.append(self.chain.epoch, self.shape.removals(expired))
            self._family.delete(names[row] for row in gone.tolist())
            self._cold_count -= len(gone)
        self._now_ms = None


class RocksCapture:
    """The hot rows of a table and, beside them, the cold ones as they were when it was made."""

    def __init__(
        self,
        hot: Capture,
        cold: View | None,
        plan: SnapshotPlan,
        shape: TableShape,
        rows_of: Callable[[list[bytes]], pa.RecordBatch],
    ) -> None:
        self._hot = hot
        self._cold = cold
        self._plan = plan
        self._shape = shape
        self._rows_of = rows_of

    def write_early(self, write: WritePieces) -> None:
        self._hot.write_early(write)

    def logged(self) -> Iterator[pa.RecordBatch]:
        return self._hot.logged()

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Every row once, hot ones first: they cost the task's thread copies while they wait."""
        yield from self._hot.pieces()
        if self._cold is None:
            return
        if not self._plan.is_delta:
            for _, values in self._cold.pieces():
                yield self._rows_of(values)
            return
        for group in sorted(self._plan.renewed):
            first, end = group.to_bytes(GROUP_BYTES, "big"), (group + 1).to_bytes(GROUP_BYTES, "big")
            for _, values in self._cold.pieces(first, end):
                yield self._shape.as_delta(self._rows_of(values))

    def close(self) -> None:
        self._hot.close()
        if self._cold is not None:
            self._cold.close()


def _present(family: Family, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Those of the names that are in the database, with their values."""
    found = [(name, value) for name, value in zip(names, family.get(names), strict=True) if value is not None]
    return [name for name, _ in found], [value for _, value in found]


def _header(groups: KeyGroups, hashes: Hashes | None) -> npt.NDArray[np.uint8]:
    """Key group and hash of the prefix, big-endian, as rows of bytes."""
    parts = [groups.astype(">i2").view(np.uint8).reshape(-1, GROUP_BYTES)]
    if hashes is not None:
        parts.append(hashes.astype(">u8").view(np.uint8).reshape(-1, PREFIX_BYTES))
    return np.ascontiguousarray(np.hstack(parts))
