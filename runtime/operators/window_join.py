"""Window join: rows of equal windows and keys, when the window is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.joins import JoinKind, WindowJoin
from planner.ir.schema import Schema
from planner.ir.types import arrow_schema
from planner.ir.windows import AttachedWindow
from runtime.elements import Batch
from runtime.operators.accumulators_values import Values, take_or_null
from runtime.operators.grouping import group_ids
from runtime.operators.join_condition import JoinCondition, compile_condition
from runtime.operators.pairs import (
    Bools,
    Ints,
    equal_ranges,
    nulls,
    pair_pieces,
    taken,
    without_nulls,
)
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.timed_join import TimedJoinOperator
from runtime.operators.window_clock import WindowClock
from runtime.operators.window_rows import append_by_end
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedStateBackend, WindowState
from runtime.state.window_blocks import concat_blocks

Array = Any

MATCHED_FIELD = pa.field("matched", pa.bool_(), nullable=False)
DONE_FIELD = pa.field("done", pa.int32(), nullable=False)
GROUP, MATCHED, DONE, ROW = 0, 1, 2, 3
"""Columns of a kept row: key group, whether it has had a partner, with how many right rows it has been paired, then the
input's columns."""


class Side:
    """Rows of one input by window end."""

    def __init__(self, backend: KeyedStateBackend, name: str, schema: Schema, node: WindowJoin, is_left: bool) -> None:
        self.keys = node.left_keys if is_left else node.right_keys
        self.end = node.left_end if is_left else node.right_end
        self.clock = WindowClock(AttachedWindow(self.end, node.window), node.name)
        kind = node.kind
        self.keeps_lonely = (kind.is_left_outer or kind is JoinKind.ANTI) if is_left else kind.is_right_outer
        """Whether a row without partner is put out."""
        rows = arrow_schema(schema.types)
        self.kinds = rows.types
        self.schema = pa.schema([KEY_GROUP_FIELD, MATCHED_FIELD, DONE_FIELD, *rows])
        self.state: WindowState = backend.window_state(
            name, self.schema, lambda blocks: concat_blocks(blocks, self.schema)
        )

    def block(self, groups: npt.NDArray[np.int16], rows: pa.RecordBatch) -> pa.RecordBatch:
        count = rows.num_rows
        marks: list[Array] = [pa.array(np.zeros(count, dtype=np.bool_)), pa.array(np.zeros(count, dtype=np.int32))]
        return pa.RecordBatch.from_arrays([pa.array(groups), *marks, *rows.columns], schema=self.schema)

    def rows_of(self, end: int) -> pa.RecordBatch:
        """The window's rows; they stay in the state."""
        if end in self.state.ends():
            return self.state.merge(end)
        return concat_blocks([], self.schema)

    def key_columns(self, block: pa.RecordBatch) -> list[Array]:
        return [block.column(ROW + i) for i in self.keys]

    def with_marks(self, block: pa.RecordBatch, place: int, marks: npt.NDArray[Any]) -> pa.RecordBatch:
        """The block with one column of marks replaced."""
        columns: list[Array] = list(block.columns)
        columns[place] = pa.array(marks)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class WindowJoinOperator(TimedJoinOperator):
    """Rows wait as blocks of their window, which is read once when the watermark passes its end and dropped whole.

    A window is put out in pieces, left rows in the order in which they lie in the state, each with the right rows of
    its key; then the right rows that have had no partner. Between two pieces the state holds the left rows that are
    not done (the first of them knows how many right rows it has met, if these are more than a piece) and, where right
    rows without partner are put out, which ones have had one. So nothing of the size of the result is ever held."""

    def __init__(self, node: WindowJoin, context: OperatorContext) -> None:
        super().__init__(node.uid, node.name, context)
        self._node = node
        self._output = arrow_schema(node.output.types)
        self._condition: JoinCondition | None = None
        self._left: Side
        self._right: Side

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        node = self._node
        if node.condition is not None:
            self._condition = compile_condition(node.condition, len(node.left.columns), self._context)
        self._left = Side(self._backend, "left", node.left, node, is_left=True)
        self._right = Side(self._backend, "right", node.right, node, is_left=False)

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, NullRowtimeError."""
        rows = batch.data
        if rows.num_rows:
            side = (self._left, self._right)[input_index]
            keys = [rows.column(i) for i in side.keys]
            ends = side.clock.slice_ends(rows, 0)
            groups = self._key_groups([*keys, rows.column(side.end)], rows.num_rows)
            kept = side.clock.fire_instants(ends) > self._clocks[groups]
            self._late_rows += len(kept) - int(np.count_nonzero(kept))
            if not side.keeps_lonely and (able := without_nulls(keys, self._node.null_safe)) is not None:
                kept &= able
            append_by_end(side.state, side.block(groups, rows), ends, None if kept.all() else np.flatnonzero(kept))
        yield from ()

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        self._pass_time(watermark_ms)
        for end in sorted({*self._left.state.ends(), *self._right.state.ends()}):
            if self._left.clock.fire_instant(end) <= watermark_ms:
                yield from self._fire(end)

    # --------------------------------------------------------------------------------------------------- firing

    def _fire(self, end: int) -> Iterator[Batch]:
        window = self._open_window(end)
        row_count = window.left.num_rows
        if not row_count:
            self._keep_right(end, window, is_last=True)
        first = 0
        while first < row_count:
            stop, owners, places = window.next_pairs(first)
            piece = self._left_piece(window, first, stop, owners, places)
            self._keep_left(end, window, stop, is_parted=stop == first)
            self._keep_right(end, window, is_last=stop == row_count)
            first = stop
            if piece.num_rows:
                yield Batch(piece)
        lonely = self._right.rows_of(end)
        for begin in range(0, lonely.num_rows, OUTPUT_ROWS_MAX):
            rest = lonely.slice(begin + OUTPUT_ROWS_MAX)
            self._right.state.keep_rest(end, rest if rest.num_rows else None)
            rows = lonely.slice(begin, OUTPUT_ROWS_MAX)
            yield Batch(self._rows(nulls(self._left.kinds, rows.num_rows), rows.columns[ROW:]))

    def _open_window(self, end: int) -> Window:
        left, right = self._left.rows_of(end), self._right.rows_of(end)
        order, starts, counts = equal_ranges(*self._codes(left, right))
        if not self._node.kind.keeps_right and self._condition is None:
            # One partner is as good as many.
            counts = np.minimum(counts, 1)
        right = right.take(order)
        done = left.column(DONE).to_numpy()
        flags = [side.column(MATCHED).to_numpy(zero_copy_only=False).copy() for side in (left, right)]
        return Window(left, right, starts + done, counts - done, *flags)

    def _codes(self, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Numbers of the keys of both sides, -1 where a key equals nothing."""
        keys = self._left.key_columns(left), self._right.key_columns(right)
        count = left.num_rows
        codes = np.zeros(count + right.num_rows, dtype=np.int64)
        if keys[0] and len(codes):
            codes = group_ids([Values(*pair).array for pair in zip(*keys, strict=True)])
        parts = codes[:count], codes[count:]
        for part, columns in zip(parts, keys, strict=True):
            able = without_nulls(columns, self._node.null_safe)
            if able is not None:
                part[~able] = -1
        return parts

    def _left_piece(self, window: Window, first: int, stop: int, owners: Ints, places: Ints) -> pa.RecordBatch:
        """What the left rows from `first` to `stop`, or a part of the pairs of one, put out."""
        kind = self._node.kind
        passed = self._passed(window, owners, places)
        if passed is not None:
            owners, places = owners[passed], places[passed]
        window.left_matched[owners] = True
        if self._right.keeps_lonely:
            window.right_matched[places] = True
        own = window.left_matched[first:stop]
        if not kind.keeps_right:
            rows = first + np.flatnonzero(own if kind is JoinKind.SEMI else ~own)
            columns = taken(window.left.columns[ROW:], rows)
            return pa.RecordBatch.from_arrays(columns, schema=self._output)
        if kind.is_left_outer and not own.all():
            lonely = first + np.flatnonzero(~own)
            owners = np.concatenate((owners, lonely))
            places = np.concatenate((places, np.full(len(lonely), -1, dtype=np.int64)))
        right = [take_or_null(column, places) for column in window.right.columns[ROW:]]
        return self._rows(taken(window.left.columns[ROW:], owners), right)

    def _passed(self, window: Window, owners: Ints, places: Ints) -> Bools | None:
        """The pairs that the rest of the condition lets pass; None: all."""
        if self._condition is None or not len(owners):
            return None

        def left(index: int, piece: slice) -> Array:
            return taken([window.left.column(ROW + index)], owners[piece])[0]

        def right(index: int, piece: slice) -> Array:
            return taken([window.right.column(ROW + index)], places[piece])[0]

        return self._condition.passed_pairs(0, left, right, len(owners))

    def _keep_left(self, end: int, window: Window, first: int, *, is_parted: bool) -> None:
        """Left rows from `first` on are not done; is_parted: the first of them has met some of its right rows."""
        rest = window.left.slice(first)
        if not rest.num_rows:
            self._left.state.keep_rest(end, None)
            return
        if is_parted:
            done = rest.column(DONE).to_numpy().copy()
            done[0] = window.done_of(first)
            rest = self._left.with_marks(rest, DONE, done)
            rest = self._left.with_marks(rest, MATCHED, window.left_matched[first:])
        self._left.state.keep_rest(end, rest)

    def _keep_right(self, end: int, window: Window, *, is_last: bool) -> None:
        """Right rows are needed until the left ones are done, those without partner until they are put out."""
        if is_last:
            lonely = window.right.filter(pa.array(~window.right_matched)) if self._right.keeps_lonely else None
            self._right.state.keep_rest(end, lonely if lonely is not None and lonely.num_rows else None)
        elif self._right.keeps_lonely:
            rows = self._right.with_marks(window.right, MATCHED, window.right_matched.copy())
            self._right.state.keep_rest(end, rows)

    def _rows(self, left: list[Array], right: list[Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*left, *right], schema=self._output)


class Window:
    """A window that is put out: left rows as they lie in the state, right rows by key. Left row i is still to be paired
    with `counts[i]` right rows from `starts[i]` on."""

    def __init__(
        self,
        left: pa.RecordBatch,
        right: pa.RecordBatch,
        starts: Ints,
        counts: Ints,
        left_matched: Bools,
        right_matched: Bools,
    ) -> None:
        self.left = left
        self.right = right
        self.left_matched = left_matched
        self.right_matched = right_matched
        self._starts = starts
        self._counts = counts
        self._begins = starts - left.column(DONE).to_numpy()
        # A row without pairs may be put out as it is.
        self._rows_out = np.cumsum(np.maximum(counts, 1))

    def next_pairs(self, first: int) -> tuple[int, Ints, Ints]:
        """Pairs (left row, right row) of the rows from `first` on, as many as fit in a piece, and the row after them:
        `first` itself if that one has more than fit."""
        count = max(int(self._counts[first]), 1)
        if count > OUTPUT_ROWS_MAX:
            begin = int(self._starts[first])
            self._starts[first] += OUTPUT_ROWS_MAX
            self._counts[first] -= OUTPUT_ROWS_MAX
            places = np.arange(begin, begin + OUTPUT_ROWS_MAX)
            return first, np.full(OUTPUT_ROWS_MAX, first), places
        most = OUTPUT_ROWS_MAX - count + int(self._rows_out[first])
        stop = int(self._rows_out.searchsorted(most, side="right"))
        for owners, places in pair_pieces(self._starts[first:stop], self._counts[first:stop]):
            return stop, owners + first, places
        return stop, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def done_of(self, row: int) -> int:
        """How many right rows a left row has met."""
        return int(self._starts[row] - self._begins[row])
