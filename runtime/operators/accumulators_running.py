"""Accumulators of an unbounded aggregate: columns of state by group, and how a batch of changes moves them.

All that can be added is a column of 64-bit integers (counts, sums of integers, limbs of decimals) or a pair of DOUBLE
columns (a sum and what rounding left out). So a retraction is an addition of the opposite sign. NaN and the infinities
of a DOUBLE sum are counted apart where values may be taken back: a sum that held them is itself again without them.
Accumulators with the same argument, filter and DISTINCT are kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from planner.ir.types import DataType, to_arrow
from runtime.key_groups import KeyGroups
from runtime.operators import decimal_sums
from runtime.operators.accumulators_values import Values, ordered_integers, rank_codes, take_or_null
from runtime.operators.group_aggregate_scan import Bools, Doubles, Ints, Scan, running_doubles
from runtime.state.protocol import KeyedTable

pc: Any = pyarrow.compute
Array = Any

_FALSE = pa.scalar(False)


class Selection(msgspec.Struct, frozen=True):
    """Which rows an aggregate takes in: those with a value in column `argument` (None: all), where column `filter` is
    TRUE, and of equal values one if `distinct`."""

    argument: int | None
    filter: int | None = None
    distinct: bool = False


class Changes:
    """A batch of changes at hand: its rows in order of arrival, their keys, and the scan that orders them. Everything
    asked for comes ordered by group, and is computed once."""

    def __init__(self, rows: pa.RecordBatch, keys: Sequence[Array], groups: KeyGroups, scan: Scan) -> None:
        self.rows = rows
        self.keys = list(keys)
        self.key_groups = groups
        self.scan = scan
        self.distinct_weights: dict[Selection, Ints] = {}
        """Of DISTINCT selections: 1 where a value appears in its group, -1 where it disappears."""
        self._weights: dict[Selection, Ints] = {}
        self._integers: dict[int, Ints] = {}
        self._doubles: dict[int, Doubles] = {}

    def weights(self, selection: Selection) -> Ints:
        """Per row by how much it changes the number of values taken in."""
        if selection.distinct:
            return self.distinct_weights[selection]
        known = self._weights.get(selection)
        if known is None:
            known = self.scan.weights
            mask = self._mask(selection)
            if mask is not None:
                known = known * self.scan.sorted(mask)
            self._weights[selection] = known
        return known

    def integers(self, column: int) -> Ints:
        """The values of an integer column, 0 where NULL."""
        known = self._integers.get(column)
        if known is None:
            values = _filled(self.rows.column(column)).to_numpy(zero_copy_only=False)
            known = self.scan.sorted(values).astype(np.int64, copy=False)
            self._integers[column] = known
        return known

    def doubles(self, column: int) -> Doubles:
        """The values of a numeric column as doubles, 0 where NULL."""
        known = self._doubles.get(column)
        if known is None:
            values = _filled(self.rows.column(column).cast(pa.float64(), safe=False)).to_numpy(zero_copy_only=False)
            known = self.scan.sorted(values)
            self._doubles[column] = known
        return known

    def applied(self, values: Any) -> Any:
        """Values with 0 for rows that do not count at all."""
        return values if self.scan.applies is None else np.where(self.scan.applies, values, values.dtype.type(0))

    def _mask(self, selection: Selection) -> Bools | None:
        """Rows with a value that pass the filter, in order of arrival; None = all."""
        mask: Bools | None = None
        if selection.argument is not None:
            values = self.rows.column(selection.argument)
            if values.null_count:
                mask = values.is_valid().to_numpy(zero_copy_only=False)
        if selection.filter is not None:
            passed = pc.fill_null(self.rows.column(selection.filter), _FALSE).to_numpy(zero_copy_only=False)
            mask = passed if mask is None else mask & passed
        return mask


class Accumulator(Protocol):
    """State columns `fields` and the step that moves them."""

    @property
    def fields(self) -> tuple[pa.Field[Any], ...]: ...

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        """Bring the columns (from `first_column` of the table on) up to date and keep the states for results."""


class IntegerSum:
    """`states` of a sum of what `delta` says each row adds."""

    def __init__(self, delta: Callable[[Changes], Ints]) -> None:
        self._delta = delta
        self.fields = (pa.field("sum", pa.int64(), nullable=False),)
        self.states: Ints = np.zeros(0, dtype=np.int64)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        column, scan = table.numbers(first_column), changes.scan
        self.states = scan.sum(self._delta(changes), column[scan.group_slots])
        column[scan.group_slots] = scan.final(self.states)


class RowCount:
    """The hidden row count as an accumulator without columns of its own."""

    def __init__(self) -> None:
        self.fields: tuple[pa.Field[Any], ...] = ()
        self.states: Ints = np.zeros(0, dtype=np.int64)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        self.states = changes.scan.states(changes.scan.initial_counts, changes.scan.running_counts)


Counter = IntegerSum | RowCount


class DoubleSum:
    """`states` of a sum of doubles; `part` gives what each row adds: a finite number where values may be taken back,
    and, from partials, what rounding had left out of it."""

    def __init__(self, part: Callable[[Changes], tuple[Doubles, Doubles | None]]) -> None:
        self._part = part
        self.fields = (pa.field("sum", pa.float64(), nullable=False), pa.field("rest", pa.float64(), nullable=False))
        self.states: Doubles = np.zeros(0)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan = changes.scan
        sums, rests = table.numbers(first_column), table.numbers(first_column + 1)
        values, more = self._part(changes)
        before, before_rest = sums[scan.group_slots], rests[scan.group_slots]
        running, left = running_doubles(
            scan.starts, scan.lengths, values, scan.initial_of_segments(before), scan.initial_of_segments(before_rest)
        )
        if more is not None:
            # From partials: their rests are small; a plain running sum of them is exact enough.
            with np.errstate(all="ignore"):
                nothing = np.zeros(len(scan.starts))
                left = left + running_doubles(scan.starts, scan.lengths, more, nothing, nothing)[0]
        sums[scan.group_slots] = running[scan.group_ends - 1]
        rests[scan.group_slots] = left[scan.group_ends - 1]
        with np.errstate(all="ignore"):
            self.states = scan.states(before + before_rest, running + left)


class DecimalSum:
    """`states` of an exact sum of decimals, as limbs of 32 bits each, the highest signed and holding all the rest: two
    limbs where a value fits in 64 bits, else four. `weights` None: each row counts once (partials)."""

    def __init__(self, column: int, kind: Any, weights: Callable[[Changes], Ints] | None) -> None:
        self._column = column
        self._weights = weights
        self.fields = tuple(pa.field(f"limb{i}", pa.int64(), nullable=False) for i in range(limb_count(kind)))
        self.states: list[Ints] = []

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan = changes.scan
        self.states = []
        final: list[Ints] = []
        for number, limb in enumerate(decimal_limbs(changes.rows.column(self._column))):
            part = limb[scan.order]
            part = changes.applied(part) if self._weights is None else part * self._weights(changes)
            states = scan.sum(part, table.numbers(first_column + number)[scan.group_slots])
            self.states.append(states)
            final.append(scan.final(states).copy())
        # In state the limbs are carried over: they never outgrow 64 bits, however many rows there are.
        for low, high in pairwise(final):
            high += low >> np.int64(32)
            low &= np.int64(0xFFFFFFFF)
        for number, column in enumerate(final):
            table.numbers(first_column + number)[scan.group_slots] = column


class Extreme:
    """MIN or MAX over an append-only input of a type that is stored in at most 64 bits: kept as an integer that orders
    as the values do, inverted for MIN. `counter` counts the values."""

    def __init__(self, selection: Selection, kind: DataType, *, is_max: bool, counter: Counter) -> None:
        self._selection = selection
        self._kind: Any = to_arrow(kind)
        self._is_max = is_max
        self._counter = counter
        self.fields = (pa.field("extreme", pa.int64(), nullable=False),)
        self.states: Ints = np.zeros(0, dtype=np.int64)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        column, scan = table.numbers(first_column), changes.scan
        assert self._selection.argument is not None
        values = scan.sorted(ordered_integers(changes.rows.column(self._selection.argument)))
        if not self._is_max:
            values = ~values
        weights = changes.weights(self._selection)
        lowest = np.int64(-(2**63))
        if weights is not scan.weights or scan.applies is not None:
            values = np.where(weights != 0, values, lowest)
        known = self._counter.states[: scan.group_count] > 0
        initial = np.where(known, column[scan.group_slots], lowest)
        self.states = scan.highest(values, initial)
        column[scan.group_slots] = scan.final(self.states)

    def values(self) -> Ints:
        """States as integers that order as the values do."""
        return self.states if self._is_max else ~self.states


class WideExtreme:
    """MIN or MAX over an append-only input of any other type. `states` point into `candidates` (-1 = NULL): the groups'
    extremes before the batch, then the batch's values."""

    def __init__(self, selection: Selection, kind: DataType, *, is_max: bool) -> None:
        self._selection = selection
        self._is_max = is_max
        self.fields = (pa.field("extreme", to_arrow(kind)),)
        self.candidates: Array = pa.array([], to_arrow(kind))
        self.states: Ints = np.zeros(0, dtype=np.int64)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        scan = changes.scan
        assert self._selection.argument is not None
        batch = changes.rows.column(self._selection.argument)
        before = table.read(first_column, scan.group_slots)
        values = Values(before, batch)
        codes = rank_codes(values.array, descending=not self._is_max)
        given = codes[scan.group_count :][scan.order]
        given = np.where(changes.weights(self._selection) != 0, given, -1)
        self.states = values.of_codes(codes, scan.highest(given, codes[: scan.group_count]))
        self.candidates = values.array
        table.write(first_column, scan.group_slots, values.take(scan.final(self.states)))

    def values(self) -> Array:
        """States as a column."""
        return take_or_null(self.candidates, self.states)


def weighted_integers(selection: Selection) -> Callable[[Changes], Ints]:
    """What a sum of integers takes from raw rows."""
    argument = selection.argument
    assert argument is not None
    return lambda changes: changes.integers(argument) * changes.weights(selection)


def counted(selection: Selection) -> Callable[[Changes], Ints]:
    """What a count takes from raw rows."""
    return lambda changes: changes.weights(selection)


def partial_integers(column: int) -> Callable[[Changes], Ints]:
    """What a sum takes from a BIGINT column of partials."""
    return lambda changes: changes.applied(changes.integers(column))


def valid_partials(column: int) -> Callable[[Changes], Ints]:
    """Counts the partials that hold a value."""

    def count(changes: Changes) -> Ints:
        values = changes.rows.column(column)
        if values.null_count == 0:
            return changes.applied(np.ones(len(values), dtype=np.int64))  # type: ignore[no-any-return]
        valid = changes.scan.sorted(values.is_valid().to_numpy(zero_copy_only=False))
        return changes.applied(valid.astype(np.int64))  # type: ignore[no-any-return]

    return count


def limb_count(kind: Any) -> int:
    """Limbs that a sum of decimals of the Arrow type `kind` is kept in: two where a value fits in 64 bits."""
    return 2 if kind.precision <= 18 else 4


def decimal_limbs(values: Array) -> list[Ints]:
    """The limbs of each value as `decimal_limb` takes them, 0 where NULL."""
    columns = [pc.fill_null(c, 0).to_numpy(zero_copy_only=False) for c in decimal_sums.limbs(values)]
    if limb_count(values.type) == 2:
        return [columns[0], columns[1] | (columns[2] << 32)]
    return columns


def plain_doubles(selection: Selection, *, squared: bool, finite: bool) -> Callable[[Changes], tuple[Doubles, None]]:
    """What a sum of doubles takes from raw rows: their squares if `squared`, and only what is `finite`."""
    argument = selection.argument
    assert argument is not None

    def part(changes: Changes) -> tuple[Doubles, None]:
        values, weights = changes.doubles(argument), changes.weights(selection)
        with np.errstate(all="ignore"):
            if finite:
                values = np.where(np.isfinite(values), values, 0.0)
            if squared:
                values = values * values
            return np.where(weights == 0, 0.0, values * weights), None

    return part


def special_doubles(selection: Selection, which: Callable[[Doubles], Bools]) -> Callable[[Changes], Ints]:
    """Counts the values of one special kind in raw rows."""
    argument = selection.argument
    assert argument is not None
    return lambda changes: which(changes.doubles(argument)) * changes.weights(selection)


def partial_doubles(column: int, rest: int | None) -> Callable[[Changes], tuple[Doubles, Doubles | None]]:
    """What a sum of doubles takes from partials."""

    def part(changes: Changes) -> tuple[Doubles, Doubles | None]:
        more = None if rest is None else changes.applied(changes.doubles(rest))
        return changes.applied(changes.doubles(column)), more

    return part


def _filled(column: Array) -> Array:
    return pc.fill_null(column, pa.scalar(0, column.type)) if column.null_count else column
