"""Regular join: both inputs are kept, every change of one is joined with what there is of the other.

While a batch of one input is processed the other side stands still, so all that its rows put out follows from one
look-up: the pairs of each row with its matches, and, where sides are padded, the moments at which a row of the other
side finds its first match or loses its last. Those are the zero crossings of its count of matches, moved by the rows of
the batch in order of arrival. The order of output is that of a join row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import Join, JoinKind
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.accumulators_values import take_or_null
from runtime.operators.group_aggregate_output import DELETE, INSERT
from runtime.operators.group_aggregate_scan import Ints
from runtime.operators.join_condition import JoinCondition, compile_condition
from runtime.operators.join_side import Candidates, JoinSide, SideRows, SideSpec, side_specs
from runtime.operators.keyed import RETRACTIONS_WITHOUT_STATE, KeyedOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.running_counts import signs
from runtime.state.protocol import Slots

Array = Any
Kinds = npt.NDArray[np.int8]

PAIRS_MAX = 8 * OUTPUT_ROWS_MAX
"""Candidates looked at together (a row's own are never parted)."""

LEFT, RIGHT = 0, 1


class Entries(msgspec.Struct, frozen=True):
    """Output rows: rows of the batch and slots of the other side beside each other, -1 where there is none. `causes`
    are the rows of the batch that they are put out for. `phase` orders what has one cause."""

    causes: Ints
    phase: Ints | int
    own: Ints | None
    other: Slots | None
    kinds: Kinds | None


class JoinOperator(KeyedOperator):
    """Every call of `process_input` leaves the state complete."""

    def __init__(self, node: Join, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._output = arrow_schema(node.output.types)
        self._sides = tuple(JoinSide(spec, context.max_parallelism) for spec in side_specs(node))
        self._is_filter = not node.kind.keeps_right
        self._shows_unmatched = (
            node.kind.is_left_outer or node.kind is JoinKind.ANTI,
            node.kind.is_right_outer,
        )
        self._condition: JoinCondition | None = None
        left, right = (side.spec for side in self._sides)
        # The other side's columns that look like one of the batch's in every pair: keys whose equality is identity.
        self._equal_columns = (_equal_columns(left, right), _equal_columns(right, left))

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        for side in self._sides:
            side.open(self._backend)
        if self._node.condition is not None:
            self._condition = compile_condition(self._node.condition, len(self._node.left.columns), self._context)
        if self._context.restore is not None:
            self._sides[LEFT].ignored = self._context.restore.counters.get(RETRACTIONS_WITHOUT_STATE, 0)

    def process(self, batch: Batch) -> Iterator[Batch]:
        raise AssertionError(f"{self.uid} has two inputs")

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError, ExpressionError."""
        if batch.row_count == 0:
            return
        own, other = self._sides[input_index], self._sides[1 - input_index]
        changes = own.rows_of(batch)
        matches = None
        if not self._node.emits_at_end:
            if own.spec.counts_matches:
                matches = np.zeros(changes.count, dtype=np.int64)
            yield from self._joined(input_index, changes, matches)
        own.store(changes, matches)
        own.settle()
        other.settle()

    def end(self, drain: bool) -> Iterator[Batch]:
        """In batch execution, everything."""
        if not (drain and self._node.emits_at_end):
            return
        for input_index, side in enumerate(self._sides):
            if input_index == LEFT or self._shows_unmatched[RIGHT]:
                for rows in side.stored():
                    matches = np.zeros(rows.count, dtype=np.int64)
                    yield from self._joined(input_index, rows, matches)
                    self._sides[1 - input_index].settle()

    def _kept_counters(self) -> dict[str, int]:
        return {RETRACTIONS_WITHOUT_STATE: sum(side.ignored for side in self._sides)}

    def _rows_stored(self) -> int:
        return sum(side.row_count for side in self._sides)

    # ------------------------------------------------------------------------------------------------------ joining

    def _joined(self, input_index: int, changes: SideRows, matches: Ints | None) -> Iterator[Batch]:
        """What the rows put out. Their `matches` are counted there."""
        candidates = self._sides[1 - input_index].candidates(changes)
        for first, end in _stretches(candidates.counts):
            for entries in self._entries(input_index, changes, candidates, matches, first, end):
                yield from self._put_out(input_index, changes, entries)

    def _entries(
        self,
        input_index: int,
        changes: SideRows,
        candidates: Candidates,
        matches: Ints | None,
        first: int,
        end: int,
    ) -> Iterator[Entries]:
        other = self._sides[1 - input_index]
        rows, slots = candidates.pairs(first, end)
        if self._condition is not None and len(rows):
            passed = self._condition.passed(input_index, changes.rows, rows, other, slots)
            if passed is not None:
                rows, slots = rows[passed], slots[passed]
        weights = other.weights(slots)
        if matches is not None:
            matches[first:end] = np.bincount(rows - first, weights, minlength=end - first)
        found: list[Entries] = []
        if other.spec.counts_matches:
            found += self._crossings(input_index, changes, rows, slots, weights)
        if not self._is_filter:
            if weights is not None:
                rows, slots = np.repeat(rows, weights), np.repeat(slots, weights)
            # In batch execution the left rows have put out the pairs.
            if len(rows) and not (self._node.emits_at_end and input_index == RIGHT):
                found.append(Entries(rows, 1, rows, slots, self._kinds(changes, rows)))
            if matches is not None and self._shows_unmatched[input_index]:
                found += self._own(changes, first + np.flatnonzero(matches[first:end] == 0))
        elif input_index == LEFT:
            assert matches is not None
            shown = (matches[first:end] == 0) == self._shows_unmatched[LEFT]
            found += self._own(changes, first + np.flatnonzero(shown))
        if len(found) == 1 and isinstance(found[0].phase, int):
            yield found[0]
        elif found:
            yield _merged(found)

    def _own(self, changes: SideRows, rows: Ints) -> list[Entries]:
        """Rows of the batch by themselves."""
        return [Entries(rows, 1, rows, None, self._kinds(changes, rows))] if len(rows) else []

    def _kinds(self, changes: SideRows, rows: Ints) -> Kinds | None:
        """Kinds of what rows of the batch put out: their own where no side is padded."""
        if self._node.emits_at_end:
            return None
        if self._node.kind is JoinKind.INNER or self._is_filter:
            return None if changes.kinds is None else changes.kinds[rows]
        if changes.adds is None:
            return np.zeros(len(rows), dtype=np.int8)
        return np.where(changes.adds[rows], np.int8(INSERT), np.int8(DELETE))

    def _crossings(
        self, input_index: int, changes: SideRows, rows: Ints, slots: Slots, weights: Ints | None
    ) -> list[Entries]:
        """Rows of the other side that are matched from now on, or no longer, by a pair."""
        other = self._sides[1 - input_index]
        counted = other.count_matches(slots, signs(changes.adds, rows))
        crossed = np.flatnonzero((counted.before == 0) != (counted.after == 0))
        if not len(crossed):
            return []
        # In order of the pairs: a row's matches by age.
        crossed = crossed[np.argsort(counted.order[crossed])]
        pairs, is_matched = counted.order[crossed], counted.after[crossed] > 0
        causes, slots = rows[pairs], slots[pairs]
        if weights is not None:
            times = weights[pairs]
            causes, slots, is_matched = np.repeat(causes, times), np.repeat(slots, times), np.repeat(is_matched, times)
        kinds = np.where(is_matched == self._shows_unmatched[1 - input_index], np.int8(DELETE), np.int8(INSERT))
        # Padding goes before the first pair comes, and comes when the last pair has gone.
        phase = np.where(is_matched, 0, 2)
        return [Entries(causes, phase, None, slots, kinds)]

    # ------------------------------------------------------------------------------------------------------- output

    def _put_out(self, input_index: int, changes: SideRows, entries: Entries) -> Iterator[Batch]:
        for first in range(0, len(entries.causes), OUTPUT_ROWS_MAX):
            piece = slice(first, first + OUTPUT_ROWS_MAX)
            own = None if entries.own is None else entries.own[piece]
            slots = None if entries.other is None else entries.other[piece]
            count = len(entries.causes[piece])
            of_own = self._own_columns(input_index, changes.rows, own, count)
            sides = [of_own, self._other_columns(input_index, own, of_own, slots, count)]
            if input_index == RIGHT:
                sides.reverse()
            columns = sides[LEFT] if self._is_filter else [*sides[LEFT], *sides[RIGHT]]
            # Without kinds where all are inserts: the output of two inputs of inserts may be declared as such.
            some = None if entries.kinds is None else entries.kinds[piece]
            kinds: Any = None if some is None or not some.any() else pa.array(some)
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._output), kinds)

    def _own_columns(self, input_index: int, rows: pa.RecordBatch, own: Ints | None, count: int) -> list[Array]:
        if self._is_filter and input_index == RIGHT:
            return []
        if own is None:
            return [pa.nulls(count, field.type) for field in rows.schema]
        if count == rows.num_rows and np.array_equal(own, np.arange(count)):
            return list(rows.columns)
        return [take_or_null(column, own) for column in rows.columns]

    def _other_columns(
        self, input_index: int, own: Ints | None, of_own: list[Array], slots: Slots | None, count: int
    ) -> list[Array]:
        if self._is_filter and input_index == LEFT:
            return []
        other = self._sides[1 - input_index]
        schema = other.spec.schema
        if slots is None:
            return [pa.nulls(count, field.type) for field in schema]
        known = slots >= 0
        if known.all():
            if own is not None and (own >= 0).all():
                equal = self._equal_columns[input_index]
                return [of_own[equal[i]] if i in equal else other.column(i, slots) for i in range(len(schema))]
            return [other.column(i, slots) for i in range(len(schema))]
        index = np.where(known, np.cumsum(known) - 1, -1)
        slots = slots[known]
        return [take_or_null(other.column(i, slots), index) for i in range(len(schema))]


def _equal_columns(own: SideSpec, other: SideSpec) -> dict[int, int]:
    found: dict[int, int] = {}
    for mine, theirs in zip(own.keys, other.keys, strict=True):
        kind = other.schema.field(theirs).type
        if own.schema.field(mine).type == kind and not (pa.types.is_floating(kind) or pa.types.is_nested(kind)):
            found[theirs] = mine
    return found


def _stretches(counts: Ints) -> Iterator[tuple[int, int]]:
    """Rows cut so that each stretch has at most `PAIRS_MAX` candidates, or is one row."""
    count = len(counts)
    totals = np.cumsum(counts)
    if int(totals[-1]) <= PAIRS_MAX:
        yield 0, count
        return
    first = 0
    while first < count:
        before = int(totals[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(totals, before + PAIRS_MAX, side="right")))
        yield first, end
        first = end


def _merged(found: list[Entries]) -> Entries:
    """In order of cause, then phase."""
    causes = np.concatenate([entries.causes for entries in found])
    phases = np.concatenate([np.broadcast_to(entries.phase, len(entries.causes)) for entries in found])
    order = np.argsort(causes * 3 + phases, kind="stable")
    missing = [np.full(len(entries.causes), -1) for entries in found]
    own = np.concatenate([m if e.own is None else e.own for e, m in zip(found, missing, strict=True)])
    other = np.concatenate([m if e.other is None else e.other for e, m in zip(found, missing, strict=True)])
    kinds = None
    if found[0].kinds is not None:
        kinds = np.concatenate([entries.kinds for entries in found if entries.kinds is not None])[order]
    return Entries(causes[order], 1, own[order], other[order], kinds)
