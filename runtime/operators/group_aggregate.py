"""Unbounded GROUP BY: keeps accumulators by group and answers with a changelog."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import AggregateFunction, Emission, GroupAggregate
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.operators.accumulators_running import Changes
from runtime.operators.final_rows import FinalRows
from runtime.operators.group_aggregate_functions import Functions
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER, changelog, latest, steps_of
from runtime.operators.group_aggregate_scan import Ints, Scan
from runtime.operators.grouping import canonical_floats
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.operators.single_row import SingleRows
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedTable

Array = Any

TABLE_NAME = "groups"
RETRACTIONS_WITHOUT_STATE = "numRetractionsWithoutState"
"""Retractions for groups that do not exist: ignored (their state may have expired)."""
COUNTS_CLAMPED = "numCountsClamped"
"""Retractions of values that a group does not hold, and counts that would have fallen below zero."""
_ZERO_OVER_NOTHING = (AggregateFunction.COUNT, AggregateFunction.COUNT_STAR, AggregateFunction.SUM0)
_LIST_BYTES = 16_000_000
"""About so much text is made in one step where each output row carries a list: 6,000 rows of 1 kB, listed in one group,
are 18 GB of lists."""
_LIST_ROWS_MAX = 512
_LIST_ROWS_FIRST = 8


class GroupAggregateOperator:
    """Without keys there is one group, in key group 0, so the first subtask has it at every parallelism."""

    def __init__(self, node: GroupAggregate, context: OperatorContext) -> None:
        self._node = node
        self._context = context
        self._schema = arrow_schema(node.output.types)
        self._retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
        self._every = node.emission is Emission.EVERY and node.mini_batch is None
        self._inserts_only = not node.aggregates and not self._retracting
        key_types = arrow_schema(node.key_types).types if node.keys else [pa.int8()]
        self._key_schema = pa.schema([pa.field(f"k{i}", kind) for i, kind in enumerate(key_types)])
        self._functions = Functions(
            node.aggregates,
            self._key_schema,
            retracting=self._retracting,
            partials_from=len(node.keys) + 1 if node.from_partials else None,
            ttl_ms=node.state_ttl_ms,
        )
        self._single_rows = SingleRows(
            node.aggregates,
            [column.name for column in node.output.columns[len(node.keys) :]],
            retracting=self._retracting,
            ttl_ms=node.state_ttl_ms,
        )
        self._backend = open_backend(node.uid, context)
        self._table: KeyedTable
        self._final: FinalRows | None = None
        self._ignored = 0
        self._clamped = 0
        self._held: list[Batch] = []
        self._held_rows = 0
        self._due_ms: int | None = None
        self._list_rows = _LIST_ROWS_FIRST

    @property
    def uid(self) -> str:
        return self._node.uid

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        columns = [pa.field("count", pa.int64(), nullable=False), *self._functions.fields]
        values = pa.schema([field.with_name(f"v{i}") for i, field in enumerate(columns)])
        self._table = self._backend.keyed_table(TABLE_NAME, self._key_schema, values, ttl_ms=self._node.state_ttl_ms)
        self._functions.open(self._backend)
        if self._node.emits_at_end and not self._inserts_only:
            key_count = len(self._node.keys)
            self._final = FinalRows(self._backend, self._schema, key_count, self._context.max_parallelism)
        restore = self._context.restore
        if restore is not None:
            self._ignored = restore.counters.get(RETRACTIONS_WITHOUT_STATE, 0)
            self._clamped = restore.counters.get(COUNTS_CLAMPED, 0)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, SeveralRowsError."""
        if batch.row_count == 0:
            return
        if self._node.mini_batch is None:
            yield from self._apply(batch)
            return
        self._held.append(batch)
        self._held_rows += batch.row_count
        if self._due_ms is None:
            self._due_ms = self._context.wall_clock_ms() + self._node.mini_batch.latency_ms
        if self._held_rows >= self._node.mini_batch.rows_max:
            yield from self.flush()

    def flush(self) -> Iterator[Batch]:
        """Put out what the mini-batch holds."""
        held, self._held, self._held_rows, self._due_ms = self._held, [], 0, None
        if held:
            yield from self._apply(_concatenated(held))

    def timer_ms(self) -> int | None:
        return self._due_ms

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        if self._due_ms is not None and self._due_ms <= now_ms:
            yield from self.flush()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        yield from self.flush()

    def end(self, drain: bool) -> Iterator[Batch]:
        """The final rows, in batch execution; the row over nothing, where one is asked for and nothing is shown."""
        yield from self.flush()
        if drain:
            self._single_rows.check()
        if drain and self._final is not None:
            yield from self._final.rows()
        if drain and self._node.emits_row_over_nothing and self._context.key_groups.first == 0:
            yield from self._row_over_nothing()

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        """Raises SeveralRowsError."""
        assert not self._held, "a mini-batch is flushed before a snapshot"
        self._single_rows.check()
        write_segments = self._backend.capture(checkpoint_id)
        counters = self._counts()

        def finish() -> OperatorSnapshot:
            return OperatorSnapshot(self.uid, segments=write_segments(), counters=counters)

        return finish

    def counters(self) -> dict[str, float]:
        return {
            **self._counts(),
            "stateBytes": self._backend.byte_size,
            "numGroups": self._table.row_count,
            "numRowsHeld": self._held_rows,
        }

    def close(self) -> None:
        self._backend.close()

    def _counts(self) -> dict[str, int]:
        return {
            RETRACTIONS_WITHOUT_STATE: self._ignored,
            COUNTS_CLAMPED: self._clamped + self._functions.clamped,
        }

    def _apply(self, batch: Batch) -> Iterator[Batch]:
        changes = self._changes(batch)
        if self._final is None:
            yield from changes
            return
        for change in changes:
            self._final.take(change)

    def _changes(self, batch: Batch) -> Iterator[Batch]:
        if self._every and self._functions.has_lists:
            yield from self._in_list_steps(batch)
        else:
            yield from self._step(batch)

    def _in_list_steps(self, batch: Batch) -> Iterator[Batch]:
        """The rows in steps, each with as many as the lists of the step before it and their own width allow."""
        row_bytes = max(1, batch.data.nbytes // batch.row_count)
        first = 0
        while first < batch.row_count:
            row_count = min(self._list_rows, math.isqrt(_LIST_BYTES // row_bytes) or 1, batch.row_count - first)
            kinds = None if batch.row_kinds is None else batch.row_kinds.slice(first, row_count)
            output_bytes = 0
            for change in self._step(Batch(batch.data.slice(first, row_count), kinds)):
                output_bytes += change.data.nbytes
                yield change
            affordable = _LIST_BYTES * row_count // max(1, output_bytes)
            self._list_rows = max(1, min(affordable, 4 * row_count, _LIST_ROWS_MAX))
            first += row_count

    def _step(self, batch: Batch) -> Iterator[Batch]:
        keys = self._keys(batch.data)
        groups = self._key_groups(keys, batch.row_count)
        table = self._table
        slots, _ = table.slots(keys, groups)
        counts = table.numbers(0)
        scan = Scan(slots, self._deltas(batch), counts, every=self._every)
        # Before any column changes: an open snapshot keeps the rows as they were.
        table.touch(scan.group_slots)
        counts[scan.group_slots] = scan.final_counts
        self._ignored += scan.ignored
        self._clamped += scan.clamped
        self._single_rows.take(scan)
        changes = Changes(batch.data, keys, groups, scan)
        self._functions.step(changes, table, 1)
        states = self._functions.results()
        dead = scan.final_counts == 0
        if dead.any():
            self._functions.forget(changes, dead)
            table.remove(scan.group_slots[dead])
        self._functions.settle()
        table.settle()
        shown_keys = keys if self._node.keys else []
        if self._inserts_only:
            yield from self._first_rows(shown_keys, scan)
            return
        repeats_unchanged = self._node.state_ttl_ms > 0
        if not (self._every or self._node.emits_update_before) and scan.final_counts.all():
            yield from latest(self._schema, shown_keys, states, scan, repeats_unchanged=repeats_unchanged)
            return
        yield from changelog(
            self._schema,
            shown_keys,
            states,
            steps_of(scan),
            with_update_before=self._node.emits_update_before,
            repeats_unchanged=repeats_unchanged,
        )

    def _keys(self, rows: pa.RecordBatch) -> list[Array]:
        """Key columns of the rows; one constant without keys. Equal floats look alike, so that a group is shown under
        one key."""
        if not self._node.keys:
            return [pa.array(np.zeros(rows.num_rows, dtype=np.int8))]
        columns: list[Array] = [rows.column(i) for i in self._node.keys]
        return [canonical_floats(c) if pa.types.is_floating(c.type) else c for c in columns]

    def _key_groups(self, keys: list[Array], row_count: int) -> KeyGroups:
        if not self._node.keys:
            return np.zeros(row_count, dtype=np.int16)
        return key_group(hash_columns(keys), self._context.max_parallelism)

    def _deltas(self, batch: Batch) -> Ints | None:
        """By how much each row changes its group's row count; None = by one."""
        if self._node.from_partials:
            deltas: Ints = batch.data.column(len(self._node.keys)).to_numpy()
            return deltas if self._retracting else deltas.copy()
        if batch.row_kinds is None or not self._retracting:
            return None
        kinds = batch.row_kinds.to_numpy()
        return np.where((kinds == INSERT) | (kinds == UPDATE_AFTER), np.int64(1), np.int64(-1))

    def _first_rows(self, keys: list[Array], scan: Scan) -> Iterator[Batch]:
        """SELECT DISTINCT over inserts: the first row of each group, as an insert."""
        first = np.sort(scan.order[scan.group_starts[scan.initial_counts == 0]])
        if len(first):
            index: Any = pa.array(first)
            yield Batch(pa.RecordBatch.from_arrays([key.take(index) for key in keys], schema=self._schema))

    def _row_over_nothing(self) -> Iterator[Batch]:
        """COUNT is 0 and all else NULL (SUM0 is 0)."""
        if self._table.row_count:
            return
        columns = []
        for call, field in zip(self._node.aggregates, self._schema, strict=True):
            value = 0 if call.function in _ZERO_OVER_NOTHING else None
            columns.append(pa.array([value], field.type))
        kinds = None if self._node.emits_at_end else pa.array([INSERT], pa.int8())
        yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), kinds)


def _concatenated(batches: list[Batch]) -> Batch:
    """The batches as one."""
    if len(batches) == 1:
        return batches[0]
    rows = pa.Table.from_batches([batch.data for batch in batches]).combine_chunks().to_batches()[0]
    if all(batch.row_kinds is None for batch in batches):
        return Batch(rows)
    kinds = [
        np.zeros(batch.row_count, dtype=np.int8) if batch.row_kinds is None else batch.row_kinds.to_numpy()
        for batch in batches
    ]
    return Batch(rows, pa.array(np.concatenate(kinds)))
