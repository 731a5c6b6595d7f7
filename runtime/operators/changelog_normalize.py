"""Makes a full changelog of an upsert stream, or of one that may repeat events: keeps the last row per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import ChangelogNormalize
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group
from runtime.operators.accumulators_values import Values
from runtime.operators.drop_update_before import without_update_before
from runtime.operators.group_aggregate_output import DELETE, Steps, changelog
from runtime.operators.keyed import KeyedOperator
from runtime.operators.protocol import OperatorContext

Array = Any

TABLE_NAME = "rows"


class ChangelogNormalizeOperator(KeyedOperator):
    """What a key shows after a row is that row, or nothing after a delete; what it showed before is the key's row
    before in the batch, or the stored one. So a batch needs no running state."""

    def __init__(self, node: ChangelogNormalize, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._others = tuple(i for i in range(len(node.output.columns)) if i not in node.keys)
        self._order = (*node.keys, *self._others)

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        keys = pa.schema([self._schema.field(i) for i in self._node.keys])
        values = pa.schema([self._schema.field(i) for i in self._others])
        self._table = self._backend.keyed_table(TABLE_NAME, keys, values, ttl_ms=self._node.state_ttl_ms)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        batch = without_update_before(batch)
        count = batch.row_count
        if count == 0:
            return
        rows, table = batch.data, self._table
        kinds = np.zeros(count, dtype=np.int8) if batch.row_kinds is None else batch.row_kinds.to_numpy()
        keys: list[Array] = [rows.column(i) for i in self._node.keys]
        slots, made = table.slots(keys, key_group(hash_columns(keys), self._context.max_parallelism))
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        key_slots, last = ordered[starts], order[np.append(starts[1:], count) - 1]
        stored = [table.read(i, key_slots) for i in range(len(self._others))]
        adds = kinds != DELETE
        # Places of rows: those stored, one per key, then those of the batch.
        old, was = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.bool_)
        old[order[1:]], was[order[1:]] = len(starts) + order[:-1], adds[order[:-1]]
        old[order[starts]], was[order[starts]] = np.arange(len(starts)), ~made[order[starts]]
        steps = Steps(np.arange(count), old, len(starts) + np.arange(count), was, adds)
        states = [Values(known, rows.column(i)).array for known, i in zip(stored, self._others, strict=True)]
        self._store(rows, key_slots, last, adds)
        time = self._node.delete_time
        of_deletes = {} if time is None else {self._others.index(time): rows.column(time)}
        yield from self._in_table_order(keys, states, steps, of_deletes)

    def _store(self, rows: pa.RecordBatch, key_slots: Any, last: Any, adds: Any) -> None:
        """Each key's last row of the batch is what it shows from now on."""
        stays = adds[last]
        kept, index = key_slots[stays], pa.array(last[stays])
        self._table.touch(kept)
        for number, column in enumerate(self._others):
            self._table.write(number, kept, rows.column(column).take(index))
        self._table.remove(key_slots[~stays])
        self._table.settle()

    def _in_table_order(
        self, keys: list[Array], states: list[Array], steps: Steps, of_deletes: dict[int, Array]
    ) -> Iterator[Batch]:
        schema = pa.schema([self._schema.field(i) for i in self._order])
        positions = [self._order.index(i) for i in range(len(self._order))]
        for piece in changelog(
            schema,
            keys,
            states,
            steps,
            with_update_before=self._node.emits_update_before,
            repeats_unchanged=self._node.state_ttl_ms > 0,
            of_deletes=of_deletes,
        ):
            columns = [piece.data.column(i) for i in positions]
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), piece.row_kinds)
