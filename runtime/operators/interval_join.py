"""Interval join: rows of equal keys whose times are close to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

from planner.ir.joins import IntervalJoin
from planner.ir.schema import Schema
from planner.ir.types import arrow_schema
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.key_groups import KeyGroups
from runtime.operators.grouping import group_ids
from runtime.operators.join_condition import JoinCondition, compile_condition
from runtime.operators.pairs import Bools, Ints, nulls, pair_pieces, taken, time_codes, without_nulls
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.side_rows import SideRows, first_of_each
from runtime.operators.time_ordered import TimeOrderedRows
from runtime.operators.timed_join import TimedJoinOperator
from runtime.operators.window_clock import rowtimes
from runtime.state.protocol import KeyedStateBackend, Slots

Array = Any

NUMBER_FIELD = pa.field("number", pa.int64(), nullable=False)
TIME_FIELD = pa.field("time_ms", pa.int64(), nullable=False)
MATCHED_FIELD = pa.field("matched", pa.int8(), nullable=False)
TIME, MATCHED = 0, 1
"""Positions of the marks in the table."""


class Side:
    """One input: its rows that may still have partners, and the order in which they cease to.

    A row of time t has partners from `t + behind_ms` to `t + ahead_ms` on the other side."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        name: str,
        schema: Schema,
        keys: tuple[int, ...],
        time: int | None,
        behind_ms: int,
        ahead_ms: int,
        is_outer: bool,
    ) -> None:
        self.time = time
        self.behind_ms = behind_ms
        self.ahead_ms = ahead_ms
        self.is_outer = is_outer
        marks = [TIME_FIELD, MATCHED_FIELD] if is_outer else [TIME_FIELD]
        self.rows = SideRows(backend, f"{name}-rows", schema, keys, NUMBER_FIELD, marks)
        self.queue = TimeOrderedRows(backend, f"{name}-order", self.rows.prefix_schema)

    def keep(self, rows: pa.RecordBatch, times: Ints, groups: KeyGroups, matched: Bools) -> None:
        """Raises StateTooLargeError."""
        first = self.rows.table.next_sequence
        numbers = np.arange(first, first + len(times))
        marks: list[Array] = [pa.array(times)]
        if self.is_outer:
            marks.append(pa.array(matched.view(np.int8)))
        self.rows.add(rows, pa.array(numbers), groups, marks)
        prefix = self.rows.prefix(self.rows.key_columns(rows), rows.num_rows)
        self.queue.append(groups, times, numbers, prefix)

    def mark(self, slots: Slots) -> None:
        """These rows have had a partner."""
        flags = self.rows.table.numbers(MATCHED)
        fresh = np.unique(slots[flags[slots] == 0])
        if len(fresh):
            self.rows.table.touch(fresh)
            flags[fresh] = 1

    def expired_ms(self, now_ms: int) -> int:
        """Rows up to this time can have no partner any more."""
        return MAX_WATERMARK_MS if now_ms == MAX_WATERMARK_MS else max(now_ms - self.ahead_ms - 1, -MAX_WATERMARK_MS)

    def expire(self, entries: pa.RecordBatch) -> list[Array] | None:
        """Drop rows that are named in the queue; the columns of those that an outer join has to pad. What the queue
        says of rows that are gone (it may say it again after a restore) is of no effect."""
        groups, times, numbers = (cast(Any, column).to_numpy() for column in entries.columns[:3])
        table = self.rows.table
        slots = table.find([*entries.columns[3:], pa.array(numbers)], groups)
        there = np.flatnonzero(slots >= 0)
        slots = slots[there]
        # A number that was given out again after a restore is another row's.
        slots = slots[table.numbers(TIME)[slots] == times[there]]
        lonely = None
        if self.is_outer:
            unmatched = slots[table.numbers(MATCHED)[slots] == 0]
            if len(unmatched):
                lonely = self.rows.columns(unmatched)
        table.remove(slots)
        table.settle()
        return lonely


class IntervalJoinOperator(TimedJoinOperator):
    """Each side is a keyed table of (keys, number) with a prefix index, so that a batch meets the rows of its keys only
    and, with the database behind it, state may be larger than memory; and a queue of (time, keys, number) as window
    blocks, which costs an append per batch and finds what has expired without looking at anything else. The table is
    what counts: the queue may name rows that are gone.

    A batch joins with what is there (one search in the sorted times of its keys), then what may still have partners is
    kept: `clock < time + ahead`. Rows of outer sides carry a flag, written with their first partner; those without it
    are padded when they expire, or at once if they are not kept. Rows with a NULL in their key or for a time have no
    partner: they are padded at once."""

    def __init__(self, node: IntervalJoin, context: OperatorContext) -> None:
        super().__init__(node.uid, node.name, context)
        self._node = node
        self._output = arrow_schema(node.output.types)
        self._is_processing_time = node.left_time is None
        self._condition: JoinCondition | None = None
        self._sides: tuple[Side, Side]

    @property
    def watermark_delay_ms(self) -> int:
        return self._node.watermark_delay_ms

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        node, backend = self._node, self._backend
        if node.condition is not None:
            self._condition = compile_condition(node.condition, len(node.left.columns), self._context)
        self._sides = (
            Side(
                backend, "left", node.left, node.left_keys, node.left_time, node.lower_ms, node.upper_ms,
                node.kind.is_left_outer,
            ),
            Side(
                backend, "right", node.right, node.right_keys, node.right_time, -node.upper_ms, -node.lower_ms,
                node.kind.is_right_outer,
            ),
        )  # fmt: skip

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, ExpressionError."""
        rows = batch.data
        if not rows.num_rows:
            return
        own, other = self._sides[input_index], self._sides[1 - input_index]
        able = self._able(own, rows)
        if able is not None:
            if own.is_outer:
                yield from self._padded(input_index, rows.filter(pa.array(~able)).columns)
            rows = rows.filter(pa.array(able))
            if not rows.num_rows:
                return
        times = self._times(own, rows)
        groups = self._key_groups(own.rows.key_columns(rows), rows.num_rows)
        matched = np.zeros(rows.num_rows, dtype=np.bool_)
        yield from self._met(input_index, rows, times, groups, matched)
        lasting = self._clocks[groups] < times + own.ahead_ms
        if lasting.all():
            own.keep(rows, times, groups, matched)
        else:
            if own.is_outer and not (lasting | matched).all():
                yield from self._padded(input_index, rows.filter(pa.array(~(lasting | matched))).columns)
            if lasting.any():
                own.keep(rows.filter(pa.array(lasting)), times[lasting], groups[lasting], matched[lasting])
        own.rows.table.settle()
        other.rows.table.settle()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        if not self._is_processing_time:
            yield from self._expire(watermark_ms)

    def timer_ms(self) -> int | None:
        """When the next row expires; it may turn out then that it does so later."""
        if not self._is_processing_time:
            return None
        times = [(side.queue.earliest_ms, side.ahead_ms) for side in self._sides]
        return min((time + ahead + 1 for time, ahead in times if time is not None), default=None)

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        yield from self._expire(now_ms)

    def counters(self) -> dict[str, float]:
        rows = sum(side.rows.table.row_count for side in self._sides)
        return {"numRowsStored": rows, "stateBytes": self._backend.byte_size}

    def _able(self, side: Side, rows: pa.RecordBatch) -> Bools | None:
        """The rows that may have a partner. A time may be NULL where an outer join below has padded it."""
        keys = side.rows.key_columns(rows)
        if side.time is None:
            return without_nulls(keys, self._node.null_safe)
        return without_nulls([*keys, rows.column(side.time)], (*self._node.null_safe, False))

    def _times(self, side: Side, rows: pa.RecordBatch) -> Ints:
        if side.time is not None:
            return rowtimes(rows.column(side.time), self._name)
        owned = self._clocks[self._context.key_groups.first : self._context.key_groups.last + 1]
        now_ms = max(self._context.wall_clock_ms(), int(owned.max()))
        self._pass_time(now_ms)
        return np.full(rows.num_rows, now_ms, dtype=np.int64)

    def _met(
        self, input_index: int, rows: pa.RecordBatch, times: Ints, groups: KeyGroups, matched: Bools
    ) -> Iterator[Batch]:
        """Joined rows of a batch and what the other side has; says in `matched` who took part."""
        own, other = self._sides[input_index], self._sides[1 - input_index]
        prefix = own.rows.prefix(own.rows.key_columns(rows), rows.num_rows)
        ids = group_ids(prefix)
        first = first_of_each(ids)
        table = other.rows.table
        which, slots = table.find_prefix(taken(prefix, first), groups[first])
        if not len(slots):
            return
        found = table.numbers(TIME)[slots]
        lows, highs = times + own.behind_ms, times + own.ahead_ms
        near = (found >= lows.min()) & (found <= highs.max())
        if not near.all():
            which, slots, found = which[near], slots[near], found[near]
        codes, low_codes, high_codes = time_codes(which, found, (ids, lows), (ids, highs))
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            codes, slots = codes[order], slots[order]
        starts = codes.searchsorted(low_codes, side="left")
        # Bounds the wrong way round: nothing is between them.
        counts = np.maximum(codes.searchsorted(high_codes, side="right") - starts, 0)
        for owners, places in pair_pieces(starts, counts):
            yield from self._joined(input_index, rows, owners, slots[places], matched)

    def _joined(
        self, input_index: int, rows: pa.RecordBatch, owners: Ints, slots: Slots, matched: Bools
    ) -> Iterator[Batch]:
        """A piece of the pairs of rows of a batch and kept rows of the other side."""
        other = self._sides[1 - input_index]
        if self._condition is not None:
            passed = self._condition.passed(input_index, rows, owners, other.rows, slots)
            if passed is not None:
                owners, slots = owners[passed], slots[passed]
            if not len(owners):
                return
        matched[owners] = True
        if other.is_outer:
            other.mark(slots)
        sides = [taken(rows.columns, owners), other.rows.columns(slots)]
        yield self._batch(sides[input_index], sides[1 - input_index])

    def _expire(self, now_ms: int) -> Iterator[Batch]:
        for index, side in enumerate(self._sides):
            while (due := side.queue.take(side.expired_ms(now_ms), OUTPUT_ROWS_MAX)) is not None:
                # A moment may have more rows than a piece.
                for first in range(0, due.rows.num_rows, OUTPUT_ROWS_MAX):
                    lonely = side.expire(due.rows.slice(first, OUTPUT_ROWS_MAX))
                    if lonely is not None:
                        yield from self._padded(index, lonely)
                side.queue.settle(due.reached_ms)
        self._pass_time(now_ms)

    def _padded(self, input_index: int, columns: list[Array]) -> Iterator[Batch]:
        """Rows of an outer side without partner."""
        other = self._sides[1 - input_index].rows
        for first in range(0, len(columns[0]), OUTPUT_ROWS_MAX):
            own = [column.slice(first, OUTPUT_ROWS_MAX) for column in columns]
            sides = [own, nulls(other.kinds, len(own[0]))]
            yield self._batch(sides[input_index], sides[1 - input_index])

    def _batch(self, left: list[Array], right: list[Array]) -> Batch:
        return Batch(pa.RecordBatch.from_arrays([*left, *right], schema=self._output))
