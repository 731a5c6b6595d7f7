"""Event-time temporal join: each left row meets the version of its key that was valid at its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

from planner.ir.joins import JoinKind, TemporalJoin
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.key_groups import KeyGroups
from runtime.operators.accumulators_values import take_or_null
from runtime.operators.group_aggregate_output import DELETE, UPDATE_BEFORE
from runtime.operators.grouping import group_ids
from runtime.operators.pairs import Bools, Ints, Residual, taken, time_codes, without_null_keys
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.side_rows import SideRows, first_of_each
from runtime.operators.time_ordered import TimeOrderedRows
from runtime.operators.timed_join import TimedJoinOperator
from runtime.operators.window_clock import rowtimes
from runtime.state.protocol import Slots, WindowState
from runtime.state.window_blocks import concat_blocks

Array = Any

TIME_FIELD = pa.field("time_ms", pa.int64(), nullable=False)
ENDED_FIELD = pa.field("ended", pa.int8(), nullable=False)
KIND_FIELD = pa.field("kind", pa.int8(), nullable=False)
ENDED = 0
"""Position of the mark in the table: the version says that there is no row from its time on."""
ORDER_COLUMNS = 3
"""Columns of an ordered row before its own: key group, time, seq."""


class TemporalJoinOperator(TimedJoinOperator):
    """Versions are a keyed table of (keys, time) with a prefix index: a later arrival of the same time overwrites.
    Left rows wait as blocks in order of time. When the watermark passes, those that are due meet the versions of their
    keys in pieces: one search in (key, time). A row that is late when it arrives is dropped and counted.

    A key whose version the watermark has passed is looked at once: of its versions that are passed the newest stays,
    also if it says that there is no row, for a still later one may be older than it. What `_passed` names may be named
    again after a restore, to no effect. Waiting rows must not come again: those up to their key group's clock are gone.
    So the clock goes along with what is put out; the rest of a moment that has more rows than a piece is state of its
    own."""

    def __init__(self, node: TemporalJoin, context: OperatorContext) -> None:
        super().__init__(node.uid, node.name, context)
        self._node = node
        self._output = arrow_schema(node.output.types)
        self._is_left_outer = node.kind is JoinKind.LEFT
        self._has_kinds = node.left_changelog is not ChangelogMode.INSERT_ONLY
        self._null_safe = (False,) * len(node.left_keys)
        self._residual: Residual
        self._versions: SideRows
        self._passed: TimeOrderedRows
        """Keys of versions, by the time at which they are to be looked at."""
        self._waiting: TimeOrderedRows
        self._rest: WindowState
        self._next_seq = 0

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        node, backend = self._node, self._backend
        self._residual = Residual(node.condition, self._context)
        self._versions = SideRows(backend, "versions", node.right, node.right_keys, TIME_FIELD, [ENDED_FIELD])
        self._passed = TimeOrderedRows(backend, "versions-order", self._versions.prefix_schema)
        columns = pa.schema([KIND_FIELD, *arrow_schema(node.left.types)])
        self._waiting = TimeOrderedRows(backend, "waiting", columns, self._clocks)
        schema = self._waiting.schema
        self._rest = backend.window_state("rest", schema, lambda blocks: concat_blocks(blocks, schema))
        if self._context.restore is not None:
            self._next_seq = self._waiting.next_seq()

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        if batch.row_count:
            if input_index:
                self._keep_versions(batch)
            else:
                self._wait(batch)
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        for moment in self._rest.ends():
            yield from self._put_out(moment, self._rest.merge(moment))
        while (due := self._waiting.take(watermark_ms, OUTPUT_ROWS_MAX)) is not None:
            self._pass_time(due.reached_ms)
            self._waiting.settle(due.reached_ms)
            if due.rows.num_rows > OUTPUT_ROWS_MAX:
                self._rest.append(due.reached_ms, due.rows)
            yield from self._put_out(due.reached_ms, due.rows)
        while (due := self._passed.take(watermark_ms, OUTPUT_ROWS_MAX)) is not None:
            self._forget_versions(due.rows, watermark_ms)
            self._passed.settle(due.reached_ms)
        self._pass_time(watermark_ms)

    # -------------------------------------------------------------------------------------------------- arrival

    def _wait(self, batch: Batch) -> None:
        node, rows = self._node, batch.data
        keys = [rows.column(i) for i in node.left_keys]
        times = rowtimes(rows.column(node.left_time), self._name)
        groups = self._key_groups(keys, rows.num_rows)
        kept = times > self._clocks[groups]
        self._late_rows += len(times) - int(np.count_nonzero(kept))
        if not self._is_left_outer and (able := without_null_keys(keys, self._null_safe)) is not None:
            kept &= able
        kinds = batch.row_kinds
        columns = [pa.array(np.zeros(len(times), dtype=np.int8)) if kinds is None else kinds, *rows.columns]
        numbers = np.arange(self._next_seq, self._next_seq + len(times))
        self._next_seq += len(times)
        if not kept.all():
            columns = taken(columns, np.flatnonzero(kept))
            groups, times, numbers = groups[kept], times[kept], numbers[kept]
        self._waiting.append(groups, times, numbers, columns)

    def _keep_versions(self, batch: Batch) -> None:
        rows, kinds = batch.data, batch.row_kinds
        able = without_null_keys(self._versions.key_columns(rows), self._null_safe)
        if able is not None:
            mask: Any = pa.array(able)
            rows, kinds = rows.filter(mask), None if kinds is None else kinds.filter(mask)
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

    def _put_out(self, moment: int, rows: pa.RecordBatch) -> Iterator[Batch]:
        """Joined rows in pieces; what is left of a large moment stays in the state."""
        for first in range(0, rows.num_rows, OUTPUT_ROWS_MAX):
            piece = self._joined(rows.slice(first, OUTPUT_ROWS_MAX))
            next_row = first + OUTPUT_ROWS_MAX
            if rows.num_rows > OUTPUT_ROWS_MAX:
                self._rest.keep_rest(moment, rows.slice(next_row) if next_row < rows.num_rows else None)
            if piece is not None:
                yield piece

    def _joined(self, waiting: pa.RecordBatch) -> Batch | None:
        """Waiting rows with their versions."""
        groups, times = (cast(Any, column).to_numpy() for column in waiting.columns[:2])
        columns: list[Array] = waiting.columns[ORDER_COLUMNS + 1 :]
        slots = self._slots_at(columns, groups, times)
        met = np.flatnonzero(slots >= 0)
        passing = self._passing(columns, met, slots[met]) if len(met) else None
        if passing is not None:
            slots[met[~passing]] = -1
            met = met[passing]
        places = np.full(len(slots), -1, dtype=np.int64)
        places[met] = np.arange(len(met))
        right = self._versions.columns(slots[met])
        self._versions.table.settle()
        kinds = waiting.column(ORDER_COLUMNS)
        if self._is_left_outer:
            right = [take_or_null(column, places) for column in right] if len(met) < len(slots) else right
        else:
            if not len(met):
                return None
            columns, (kinds,) = taken(columns, met), taken([kinds], met)
        rows = pa.RecordBatch.from_arrays([*columns, *right], schema=self._output)
        return Batch(rows, cast(Any, kinds) if self._has_kinds else None)

    def _slots_at(self, columns: list[Array], groups: KeyGroups, times: Ints) -> Slots:
        """Of each row the slot of the version of its key at its time, -1 where there is none."""
        keys = [columns[i] for i in self._node.left_keys]
        slots = np.full(len(times), -1, dtype=np.int64)
        able = without_null_keys(keys, self._null_safe)
        rows = np.arange(len(times)) if able is None else np.flatnonzero(able)
        if not len(rows):
            return slots
        prefix = self._versions.prefix(keys if able is None else taken(keys, rows), len(rows))
        ids = group_ids(prefix)
        first = first_of_each(ids)
        table = self._versions.table
        which, found = table.find_prefix(taken(prefix, first), groups[rows[first]])
        if not len(found):
            return slots
        codes, wanted = time_codes(which, self._version_times(found), (ids, times[rows]))
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            codes, which, found = codes[order], which[order], found[order]
        places = codes.searchsorted(wanted, side="right") - 1
        met = (places >= 0) & (which[places] == ids)
        met[met] = table.numbers(ENDED)[found[places[met]]] == 0
        slots[rows[met]] = found[places[met]]
        return slots

    def _passing(self, columns: list[Array], rows: Ints, slots: Slots) -> Bools | None:
        """The pairs of rows and versions that the rest of the condition lets pass."""
        if not self._residual.is_needed:
            return None
        index: Any = pa.array(rows)

        def column(number: int) -> Array:
            if number < len(columns):
                return columns[number].take(index)
            return self._versions.column(number - len(columns), slots)

        return self._residual.passing(column, len(rows))

    def _forget_versions(self, entries: pa.RecordBatch, watermark_ms: int) -> None:
        """Of the keys named, all versions but the newest that the watermark has passed, and those it has not."""
        prefix = entries.columns[ORDER_COLUMNS:]
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
        times: Ints = self._versions.table.keys(slots)[-1].to_numpy()
        return times

    def counters(self) -> dict[str, float]:
        return {**super().counters(), "numRowsStored": self._versions.table.row_count}
