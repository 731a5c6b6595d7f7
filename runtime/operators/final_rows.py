"""Batch execution of an updating operator: what each key shows is kept, and put out once, at the end of input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.elements import Batch
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER
from runtime.state.protocol import KeyedStateBackend, KeyedTable

TABLE_NAME = "final"


class FinalRows:
    """The last row per key of a changelog in which a key changes at most once per batch (net emission without −U).
    The first `key_count` columns are the key; without any there is one row."""

    def __init__(self, backend: KeyedStateBackend, schema: pa.Schema, key_count: int, max_parallelism: int) -> None:
        self._schema = schema
        self._key_count = key_count
        self._max_parallelism = max_parallelism
        fields = list(schema)
        keys = pa.schema(fields[:key_count] or [pa.field("none", pa.int8())])
        self._table: KeyedTable = backend.keyed_table(TABLE_NAME, keys, pa.schema(fields[key_count:]))

    def take(self, changes: Batch) -> None:
        """Raises StateTooLargeError."""
        assert changes.row_kinds is not None
        kinds = changes.row_kinds.to_numpy()
        adds = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        for is_added in (False, True):
            chosen = adds if is_added else ~adds
            if not chosen.any():
                continue
            rows = changes.data if chosen.all() else changes.data.filter(pa.array(chosen))
            self._put(rows) if is_added else self._remove(rows)
        self._table.settle()

    def rows(self) -> Iterator[Batch]:
        """Every key's row, as appended rows."""
        for slots in self._table.all_slots():
            columns = self._table.keys(slots) if self._key_count else []
            columns += [self._table.read(i, slots) for i in range(len(self._schema) - self._key_count)]
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), None)

    def _put(self, rows: pa.RecordBatch) -> None:
        slots, _ = self._table.slots(*self._keys(rows))
        self._table.touch(slots)
        for i, column in enumerate(rows.columns[self._key_count :]):
            self._table.write(i, slots, column)

    def _remove(self, rows: pa.RecordBatch) -> None:
        slots = self._table.find(*self._keys(rows))
        self._table.remove(slots[slots >= 0])

    def _keys(self, rows: pa.RecordBatch) -> tuple[Sequence[pa.Array[Any]], KeyGroups]:
        if not self._key_count:
            return [pa.array(np.zeros(rows.num_rows, dtype=np.int8))], np.zeros(rows.num_rows, dtype=np.int16)
        keys = rows.columns[: self._key_count]
        return keys, key_group(hash_columns(keys), self._max_parallelism)
