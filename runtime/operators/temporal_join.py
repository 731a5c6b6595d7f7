"""Event-time temporal join: each left row meets the version of its key that was valid at its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from planner.ir.joins import JoinKind, TemporalJoin
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.key_groups import KeyGroups
from runtime.operators.accumulators_values import take_or_null
from runtime.operators.group_aggregate_output import DELETE, UPDATE_BEFORE
from runtime.operators.grouping import group_ids
from runtime.operators.join_condition import JoinCondition, compile_condition
from runtime.operators.pairs import Ints, nulls, taken, time_codes, without_nulls
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.side_rows import SideRows, first_of_each
from runtime.operators.time_ordered import TimeOrderedRows
from runtime.operators.timed_join import TimedJoinOperator
from runtime.operators.window_clock import rowtimes
from runtime.state.protocol import Slots, WindowState
from runtime.state.window_blocks import concat_blocks

pc: Any = pyarrow.compute
Array = Any

TIME_FIELD = pa.field("time_ms", pa.int64(), nullable=False)
ENDED_FIELD = pa.field("ended", pa.int8(), nullable=False)
KIND_FIELD = pa.field("kind", pa.int8(), nullable=False)
ENDED = 0
"""Position of the mark in the table: the version says that there is no row from its time on."""
SEQ = 2
"""Columns of an ordered row: key group, time, seq, then its own (of a waiting row: kind, then those of the input)."""
FORGOTTEN_ROWS = 65_536
"""Keys whose versions are looked at together."""


class TemporalJoinOperator(TimedJoinOperator):
    """Versions are a keyed table of (keys, time) with a prefix index: a later arrival of the same time overwrites.
    Left rows wait as blocks in order of time. When the watermark passes, those that are due meet the versions of their
    keys: one search in (key, time). They go out in order of arrival, as in Flink, so that changes of one row stay in
    order. A row that is late when it arrives is dropped and counted; one without a time meets nothing, at once.

    A key whose version the watermark has passed is looked at once: of its versions that are passed the newest stays,
    also if it says that there is no row, for a still later one may be older than it. What `_passed` names may be named
    again after a restore, to no effect. Waiting rows must not come again: those up to their key group's clock are gone.
    What is due and has not been put out is state of its own."""

    def __init__(self, node: TemporalJoin, context: OperatorContext) -> None:
        super().__init__(node.uid, node.name, context)
        self._node = node
        self._output = arrow_schema(node.output.types)
        self._is_left_outer = node.kind is JoinKind.LEFT
        self._has_kinds = node.left_changelog is not ChangelogMode.INSERT_ONLY
        self._null_safe = (False,) * len(node.left_keys)
        self._condition: JoinCondition | None = None
        self._versions: SideRows
        self._passed: TimeOrderedRows
        """Keys of versions, by the time at which they are to be looked at."""
        self._waiting: TimeOrderedRows
        self._rest: WindowState
        self._next_seq = 0

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        node, backend = self._node, self._backend
        if node.condition is not None:
            self._condition = compile_condition(node.condition, len(node.left.columns), self._context)
        self._versions = SideRows(backend, "versions", node.right, node.right_keys, TIME_FIELD, [ENDED_FIELD])
        self._passed = TimeOrderedRows(backend, "versions-order", self._versions.prefix_schema)
        columns = pa.schema([KIND_FIELD, *arrow_schema(node.left.types)])
        self._waiting = TimeOrderedRows(backend, "waiting", columns, self._clocks)
        schema = self._waiting.schema
        self._rest = backend.window_state("rest", schema, lambda blocks: concat_blocks(blocks, schema))
        if self._context.restore is not None:
            self._next_seq = self._waiting.next_seq()

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        if not batch.row_count:
            return
        if input_index:
            self._keep_versions(batch)
            return
        timeless = batch.data.column(self._node.left_time).is_null()
        if timeless.true_count:
            if self._is_left_outer:
                yield from self._padded(batch, timeless)
            batch = filtered(batch, pc.invert(timeless))
        self._wait(batch)

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Raises ExpressionError."""
        for moment in self._rest.ends():
            yield from self._put_out(moment, self._rest.merge(moment), is_kept=True)
        due = self._waiting.take(watermark_ms)
        if due is not None:
            self._pass_time(watermark_ms)
            self._waiting.settle(due.reached_ms)
            rows = due.rows.take(np.argsort(cast(Any, due.rows.column(SEQ)).to_numpy(), kind="stable"))
            is_kept = rows.num_rows > OUTPUT_ROWS_MAX
            if is_kept:
                self._rest.append(watermark_ms, rows)
            yield from self._put_out(watermark_ms, rows, is_kept=is_kept)
        while (due := self._passed.take(watermark_ms, FORGOTTEN_ROWS)) is not None:
            self._forget_versions(due.rows, watermark_ms)
            self._passed.settle(due.reached_ms)
        self._pass_time(watermark_ms)

    def counters(self) -> dict[str, float]:
        return {**super().counters(), "numRowsStored": self._versions.table.row_count}

    # -------------------------------------------------------------------------------------------------- arrival

    def _wait(self, batch: Batch) -> None:
        node, rows = self._node, batch.data
        keys = [rows.column(i) for i in node.left_keys]
        times = rowtimes(rows.column(node.left_time), self._name)
        groups = self._key_groups(keys, rows.num_rows)
        kept = times > self._clocks[groups]
        self._late_rows += len(times) - int(np.count_nonzero(kept))
        if not self._is_left_outer and (able := without_nulls(keys, self._null_safe)) is not None:
            kept &= able
        kinds = batch.row_kinds
        columns: list[Array] = [pa.array(np.zeros(len(times), dtype=np.int8)) if kinds is None else kinds]
        columns += rows.columns
        numbers = np.arange(self._next_seq, self._next_seq + len(times))
        self._next_seq += len(times)
        if not kept.all():
            columns = taken(columns, np.flatnonzero(kept))
            groups, times, numbers = groups[kept], times[kept], numbers[kept]
        self._waiting.append(groups, times, numbers, columns)

    def _padded(self, batch: Batch, wanted: Array) -> Iterator[Batch]:
        """Rows that can have no version."""
        rows = filtered(batch, wanted)
        for first in range(0, rows.row_count, OUTPUT_ROWS_MAX):
            data = rows.data.slice(first, OUTPUT_ROWS_MAX)
            columns = [*data.columns, *nulls(self._versions.kinds, data.num_rows)]
            kinds = None if rows.row_kinds is None else rows.row_kinds.slice(first, OUTPUT_ROWS_MAX)
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._output), kinds)

    def _keep_versions(self, batch: Batch) -> None:
        needed = [*self._versions.key_columns(batch.data), batch.data.column(self._node.right_time)]
        able = without_nulls(needed, (*self._null_safe, False))
        if able is not None:
            batch = filtered(batch, pa.array(able))
        rows, kinds = batch.data, batch.row_kinds
        if not rows.num_rows:
            return
        times = rowtimes(rows.column(self._node.right_time), self._name)
        ended = np.zeros(len(times), dtype=np.int8)
        if kinds is not None:
            numbers = kinds.to_numpy()
            ended = ((numbers == DELETE) | (numbers == UPDATE_BEFORE)).view(np.int8)
        keys = self._versions.key_columns(rows)
        groups = self._key_groups(keys, rows.num_rows)
        made = self._versions.add(rows, pa.array(times), groups, [pa.array(ended)])
        self._versions.table.settle()
        # A version that is late is looked at when time goes on.
        next_ms = np.minimum(self._clocks[groups], MAX_WATERMARK_MS - 1) + 1
        prefix = taken(self._versions.prefix(keys, rows.num_rows), made)
        self._passed.append(groups[made], np.maximum(times, next_ms)[made], made, prefix)

    # --------------------------------------------------------------------------------------------------- firing

    def _put_out(self, moment: int, rows: pa.RecordBatch, *, is_kept: bool) -> Iterator[Batch]:
        """Joined rows in pieces; is_kept: they are in the state, where what is left of them stays."""
        for first in range(0, rows.num_rows, OUTPUT_ROWS_MAX):
            piece = self._joined(rows.slice(first, OUTPUT_ROWS_MAX))
            next_row = first + OUTPUT_ROWS_MAX
            if is_kept:
                self._rest.keep_rest(moment, rows.slice(next_row) if next_row < rows.num_rows else None)
            if piece is not None:
                yield piece

    def _joined(self, waiting: pa.RecordBatch) -> Batch | None:
        """Waiting rows with their versions."""
        groups, times = (cast(Any, column).to_numpy() for column in waiting.columns[:2])
        rows = waiting.select(range(SEQ + 2, waiting.num_columns))
        slots = self._slots_at(rows, groups, times)
        met = np.flatnonzero(slots >= 0)
        if self._condition is not None and len(met):
            passed = self._condition.passed(0, rows, met, self._versions, slots[met])
            met = met if passed is None else met[passed]
        places = np.full(len(slots), -1, dtype=np.int64)
        places[met] = np.arange(len(met))
        right = self._versions.columns(slots[met])
        self._versions.table.settle()
        columns, kinds = rows.columns, waiting.column(SEQ + 1)
        if self._is_left_outer:
            right = [take_or_null(column, places) for column in right] if len(met) < len(slots) else right
        else:
            if not len(met):
                return None
            columns, (kinds,) = taken(columns, met), taken([kinds], met)
        joined = pa.RecordBatch.from_arrays([*columns, *right], schema=self._output)
        return Batch(joined, cast(Any, kinds) if self._has_kinds else None)

    def _slots_at(self, rows: pa.RecordBatch, groups: KeyGroups, times: Ints) -> Slots:
        """Of each row the slot of the version of its key at its time, -1 where there is none."""
        keys = [rows.column(i) for i in self._node.left_keys]
        slots = np.full(len(times), -1, dtype=np.int64)
        able = without_nulls(keys, self._null_safe)
        own = np.arange(len(times)) if able is None else np.flatnonzero(able)
        if not len(own):
            return slots
        prefix = self._versions.prefix(keys if able is None else taken(keys, own), len(own))
        ids = group_ids(prefix)
        first = first_of_each(ids)
        table = self._versions.table
        which, found = table.find_prefix(taken(prefix, first), groups[own[first]])
        if not len(found):
            return slots
        codes, wanted = time_codes(which, self._version_times(found), (ids, times[own]))
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            codes, which, found = codes[order], which[order], found[order]
        places = codes.searchsorted(wanted, side="right") - 1
        met = (places >= 0) & (which[places] == ids)
        met[met] = table.numbers(ENDED)[found[places[met]]] == 0
        slots[own[met]] = found[places[met]]
        return slots

    def _forget_versions(self, entries: pa.RecordBatch, watermark_ms: int) -> None:
        """Of the keys named, all versions but the newest that the watermark has passed, and those it has not."""
        prefix = entries.columns[SEQ + 1 :]
        first = first_of_each(group_ids(prefix))
        groups = cast(Any, entries.column(0)).to_numpy()
        table = self._versions.table
        which, slots = table.find_prefix(taken(prefix, first), groups[first])
        times = self._version_times(slots)
        passed = times <= watermark_ms
        which, slots, times = which[passed], slots[passed], times[passed]
        order = np.lexsort((times, which))
        has_newer = which[order][:-1] == which[order][1:]
        table.remove(slots[order[:-1][has_newer]])
        table.settle()

    def _version_times(self, slots: Slots) -> Ints:
        times: Ints = self._versions.table.key(len(self._versions.prefix_schema), slots).to_numpy()
        return times


def filtered(batch: Batch, wanted: Array) -> Batch:
    """Some rows of a batch."""
    kinds = batch.row_kinds
    return Batch(batch.data.filter(wanted), None if kinds is None else kinds.filter(wanted))
