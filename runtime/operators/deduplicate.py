"""One row per key of an insert-only input: the first or the last, by a time column or by arrival."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import Emission
from planner.ir.ranks import Deduplicate, SortKey
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.accumulators_values import Values
from runtime.operators.group_aggregate_output import Steps, changelog
from runtime.operators.group_aggregate_scan import Bools, Ints, running_maximum
from runtime.operators.keyed import KeyedOperator
from runtime.operators.order_keys import OrderKeys
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.rank_rows import ByKey, PartitionKeys

Array = Any

TABLE_NAME = "rows"
_LOWEST = np.int64(-(2**63))


class DeduplicateOperator(KeyedOperator):
    """The table holds the row that each key shows. A row of a batch replaces it if its time is not before (keep-last),
    or before (keep-first), those of all rows before it: its key's shown row then is the last that has replaced.

    The first by arrival is never replaced, so nothing but keys is kept."""

    def __init__(self, node: Deduplicate, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._keys = PartitionKeys(self._schema, node.keys, context.max_parallelism)
        self._others = tuple(i for i in range(len(self._schema)) if i not in node.keys)
        self._is_final = node.time is None and not node.keeps_last
        """Whether what is shown stays."""
        self._order = None if node.time is None else OrderKeys([SortKey(0)], [self._schema.types[node.time]])

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        keys = [field.with_name(f"k{i}") for i, field in enumerate(self._keys.schema)]
        kept = [] if self._is_final else self._others
        values = [self._schema.field(i).with_name(f"v{i}") for i in kept]
        self._table = self._backend.keyed_table(
            TABLE_NAME, pa.schema(keys), pa.schema(values), ttl_ms=self._node.state_ttl_ms
        )

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        rows = batch.data
        if not rows.num_rows:
            return
        keys = self._keys.of(rows)
        slots, made = self._table.slots(keys, self._keys.key_groups(keys))
        if self._is_final:
            self._table.settle()
            yield from self._inserts(rows, np.flatnonzero(made))
            return
        by_key = ByKey(slots)
        is_new = made[by_key.order[by_key.starts]]
        stored = [self._table.read(i, by_key.slots) for i in range(len(self._others))]
        replacing = self._replacing(rows, by_key, is_new, stored)
        steps = self._steps(by_key, replacing, is_new)
        self._store(rows, by_key, replacing)
        if not self._node.emits_at_end:
            states = [Values(known, rows.column(i)).array for known, i in zip(stored, self._others, strict=True)]
            yield from self._in_table_order(keys, states, steps)

    def end(self, drain: bool) -> Iterator[Batch]:
        """Batch execution: the row of each key."""
        if not (drain and self._node.emits_at_end) or self._is_final:
            return
        for slots in self._table.all_slots():
            for first in range(0, len(slots), OUTPUT_ROWS_MAX):
                piece = slots[first : first + OUTPUT_ROWS_MAX]
                columns = dict(zip(self._node.keys, self._table.keys(piece), strict=False))
                columns |= {column: self._table.read(i, piece) for i, column in enumerate(self._others)}
                ordered = [columns[i] for i in range(len(self._schema))]
                yield Batch(pa.RecordBatch.from_arrays(ordered, schema=self._schema))

    def _replacing(self, rows: pa.RecordBatch, by_key: ByKey, is_new: Bools, stored: list[Array]) -> Ints:
        """The rows, as places in the order, that their key shows when they have come."""
        node = self._node
        if self._order is None or node.time is None:
            return np.arange(rows.num_rows)
        if node.time in self._others:
            known = stored[self._others.index(node.time)]
            times = Values(known, rows.column(node.time)).array
            codes = self._order.codes([times], len(times))
        else:
            # The time is a key: all rows of one key are equal in it.
            codes = np.zeros(rows.num_rows + len(is_new), dtype=np.int64)
        if not node.keeps_last:
            codes = ~codes
        initial, own = codes[: len(is_new)].copy(), codes[len(is_new) :][by_key.order]
        initial[is_new] = _LOWEST
        highest = own.copy()
        highest[by_key.starts] = np.maximum(highest[by_key.starts], initial)
        running_maximum(highest, by_key.starts, by_key.lengths)
        before = np.empty_like(highest)
        before[1:] = highest[:-1]
        before[by_key.starts] = initial
        replaces = own >= before if node.keeps_last else own > before
        replaces[by_key.starts[is_new]] = True
        return np.flatnonzero(replaces)

    def _steps(self, by_key: ByKey, replacing: Ints, is_new: Bools) -> Steps:
        """Places: what is stored, per key, then the batch's rows."""
        key_count = len(is_new)
        keys = by_key.keys[replacing]
        is_first = np.ones(len(keys), dtype=np.bool_)
        is_first[1:] = keys[1:] != keys[:-1]
        if self._node.emission is Emission.NET:
            last = np.append(np.flatnonzero(is_first)[1:], len(keys)) - 1 if len(keys) else replacing
            old, was, replacing = keys[last], ~is_new[keys[last]], replacing[last]
        else:
            old, was = keys.copy(), ~is_new[keys]
            old[~is_first] = key_count + by_key.order[replacing[np.flatnonzero(~is_first) - 1]]
            was[~is_first] = True
        rows = by_key.order[replacing]
        arrival = np.argsort(rows, kind="stable")
        rows = rows[arrival]
        return Steps(rows, old[arrival], key_count + rows, was[arrival], np.ones(len(rows), dtype=np.bool_))

    def _store(self, rows: pa.RecordBatch, by_key: ByKey, replacing: Ints) -> None:
        """Each key's last row that replaced is what it shows from now on."""
        keys = by_key.keys[replacing]
        last = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)) if len(keys) else keys
        slots = by_key.slots[keys[last]]
        index: Any = pa.array(by_key.order[replacing[last]])
        self._table.touch(slots)
        for number, column in enumerate(self._others):
            self._table.write(number, slots, rows.column(column).take(index))
        self._table.settle()

    def _inserts(self, rows: pa.RecordBatch, chosen: Ints) -> Iterator[Batch]:
        for first in range(0, len(chosen), OUTPUT_ROWS_MAX):
            yield Batch(rows.take(chosen[first : first + OUTPUT_ROWS_MAX]))

    def _in_table_order(self, keys: list[Array], states: list[Array], steps: Steps) -> Iterator[Batch]:
        shown_keys = keys if self._node.keys else []
        columns = (*self._node.keys, *self._others)
        positions = [columns.index(i) for i in range(len(self._schema))]
        for piece in changelog(
            pa.schema([self._schema.field(i) for i in columns]),
            shown_keys,
            states,
            steps,
            with_update_before=self._node.emits_update_before,
            repeats_unchanged=self._node.state_ttl_ms > 0,
        ):
            ordered = [piece.data.column(i) for i in positions]
            yield Batch(pa.RecordBatch.from_arrays(ordered, schema=self._schema), piece.row_kinds)
