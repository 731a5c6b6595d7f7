"""What a lookup join remembers of an outside table: the keys it has asked for (all rows: `lookup_full_cache`). Not part
of any state: a restart begins with nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.api import Found, LookupOptions
from runtime.key_groups import KeyGroups
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.lookup_requests import rows_only, together
from runtime.operators.protocol import KeyGroupRange
from runtime.state.keyed_table import MemoryKeyedTable
from runtime.state.row_store import TableShape
from runtime.state.segment_chain import TableChain

Lookup = Callable[[pa.RecordBatch], Found]
_WRITTEN, _READ, _USED, _ENTRY = range(4)
_SWEEP_MS_MIN = 1_000


def cache_table(name: str, keys: pa.Schema, values: pa.Schema, prefix_length: int = 0) -> MemoryKeyedTable:
    shape = TableShape(name, keys, values, prefix_length)
    return MemoryKeyedTable(shape, TableChain(KeyGroupRange(0, 0)), lambda: 0, lambda: None)


def no_groups(count: int) -> KeyGroups:
    return np.zeros(count, dtype=np.int16)


def named(prefix: str, types: list[pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(f"{prefix}{i}", kind) for i, kind in enumerate(types)])


class PartialCache:
    """The answers of keys that were asked for, those without rows as well if `keeps_missing_keys`. Above `rows_max` the
    keys go whose last use is longest ago."""

    def __init__(
        self, options: LookupOptions, keys: list[pa.DataType], columns: list[pa.DataType], now_ms: Callable[[], int]
    ) -> None:
        self._options = options
        self._now_ms = now_ms
        numbers = [pa.field(name, pa.int64(), nullable=False) for name in ("written", "read", "used", "entry")]
        self._keys = cache_table("keys", named("k", keys), pa.schema(numbers))
        entry = pa.schema([pa.field("entry", pa.int64()), pa.field("number", pa.int64())])
        self._rows = cache_table("rows", entry, named("c", columns), prefix_length=1)
        self._width = len(columns)
        self._next_entry = 0
        self._uses = 0
        self._swept_at_ms = now_ms()
        self.hit_count = 0
        self.miss_count = 0

    @property
    def key_count(self) -> int:
        return self._keys.row_count

    def answer(self, keys: pa.RecordBatch, ask: Lookup) -> Found:
        """The rows of distinct keys; `ask` is asked for those that are not known."""
        now_ms = self._now_ms()
        self._sweep(now_ms)
        self._uses += 1
        slots = self._keys.find(keys.columns, no_groups(keys.num_rows))
        known = np.flatnonzero(slots >= 0)
        gone = known[self._expired(slots[known], now_ms)]
        if len(gone):
            self._remove(slots[gone])
            slots[gone] = -1
            known = np.flatnonzero(slots >= 0)
        missing = np.flatnonzero(slots < 0)
        self.hit_count += len(known)
        self.miss_count += len(missing)
        found = self._known(known, slots[known], now_ms)
        if len(missing):
            wanted = keys if not len(known) else keys.take(missing)
            asked = ask(wanted)
            self._keep(wanted, asked, now_ms)
            both = [found.rows, asked.rows]
            found = Found(np.concatenate([found.keys, missing[asked.keys]]), together(both)) if len(known) else asked
        self._evict()
        self._keys.settle()
        self._rows.settle()
        return found

    def _known(self, numbers: Ints, slots: Ints, now_ms: int) -> Found:
        self._keys.numbers(_USED)[slots] = self._uses
        self._keys.numbers(_READ)[slots] = now_ms
        entries: Any = pa.array(self._keys.numbers(_ENTRY)[slots])
        which, rows = self._rows.find_prefix([entries], no_groups(len(slots)))
        if not self._width:
            return Found(numbers[which], rows_only(len(which)))
        columns = [self._rows.read(i, rows) for i in range(self._width)]
        return Found(numbers[which], pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(self._width)]))

    def _keep(self, keys: pa.RecordBatch, found: Found, now_ms: int) -> None:
        entries = self._next_entry + np.arange(keys.num_rows)
        self._next_entry += keys.num_rows
        kept, kept_entries = keys, entries
        if not self._options.keeps_missing_keys:
            has_rows = np.flatnonzero(np.bincount(found.keys, minlength=keys.num_rows))
            kept, kept_entries = keys.take(has_rows), entries[has_rows]
        slots, _ = self._keys.slots(kept.columns, no_groups(kept.num_rows))
        self._keys.numbers(_ENTRY)[slots] = kept_entries
        self._keys.numbers(_WRITTEN)[slots] = now_ms
        self._keys.numbers(_USED)[slots] = self._uses
        self._keys.numbers(_READ)[slots] = now_ms
        owners: Any = pa.array(entries[found.keys])
        numbers: Any = pa.array(np.arange(len(found.keys)))
        rows, _ = self._rows.slots([owners, numbers], no_groups(len(found.keys)))
        for i in range(self._width):
            self._rows.write(i, rows, found.rows.column(i))

    def _expired(self, slots: Ints, now_ms: int) -> Bools:
        expired = np.zeros(len(slots), dtype=np.bool_)
        limits = (self._options.expire_after_write_ms, self._options.expire_after_access_ms)
        for column, limit in zip((_WRITTEN, _READ), limits, strict=True):
            if limit:
                expired |= self._keys.numbers(column)[slots] + limit <= now_ms
        return expired

    def _remove(self, slots: Ints) -> None:
        entries: Any = pa.array(self._keys.numbers(_ENTRY)[slots])
        _, rows = self._rows.find_prefix([entries], no_groups(len(slots)))
        self._rows.remove(rows)
        self._keys.remove(slots)

    def _evict(self) -> None:
        over = self._keys.row_count - self._options.rows_max
        if self._options.rows_max and over > 0:
            slots = np.concatenate(list(self._keys.all_slots()))
            oldest = np.argsort(self._keys.numbers(_USED)[slots], kind="stable")[:over]
            self._remove(slots[oldest])

    def _sweep(self, now_ms: int) -> None:
        """Keys that have expired go, asked for or not."""
        limits = (self._options.expire_after_write_ms, self._options.expire_after_access_ms)
        shortest = min((limit for limit in limits if limit), default=0)
        if shortest and now_ms - self._swept_at_ms >= max(shortest, _SWEEP_MS_MIN):
            self._swept_at_ms = now_ms
            for slots in list(self._keys.all_slots()):
                self._remove(slots[self._expired(slots, now_ms)])
