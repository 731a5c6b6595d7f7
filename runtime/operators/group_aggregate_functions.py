"""The aggregate calls of an unbounded aggregate: which accumulators they need, and how results follow from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from planner.ir.operators import AggregateCall, AggregateFunction, accumulator_types
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators import accumulators_results as results
from runtime.operators.accumulators import VARIANCES, variance
from runtime.operators.accumulators_running import (
    Accumulator,
    Changes,
    Counter,
    DecimalSum,
    DoubleSum,
    Extreme,
    IntegerSum,
    RowCount,
    Selection,
    WideExtreme,
    counted,
    partial_doubles,
    partial_integers,
    plain_doubles,
    special_doubles,
    valid_partials,
    weighted_integers,
)
from runtime.operators.accumulators_values import fits_one_word, from_ordered_integers
from runtime.operators.group_aggregate_scan import Bools, Doubles, Ints
from runtime.operators.multiset import ExtremeOfMultiset, Multisets
from runtime.operators.multiset_ordered import Ordered, OrderedValues
from runtime.state.protocol import KeyedStateBackend, KeyedTable

Array = Any
Result = Callable[[], Array]
Kind = TypeVar("Kind", bound=Accumulator)

_SUMS = (AggregateFunction.SUM, AggregateFunction.SUM0)
_COUNTS = (AggregateFunction.COUNT, AggregateFunction.COUNT_STAR)
_EXTREMES = (AggregateFunction.MIN, AggregateFunction.MAX)
_FIRST_OR_LAST = (AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE, AggregateFunction.SINGLE_VALUE)
"""Of a single row the last value is the value; NULL is what no value is."""
_APPROXIMATE = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_SPECIALS: tuple[tuple[str, Callable[[Doubles], Bools]], ...] = (
    ("nan", np.isnan),
    ("infinity", np.isposinf),
    ("-infinity", np.isneginf),
)


class Functions:
    """`partials_from` is the first input column with accumulators when the input is partials, else None.
    `key_schema` are the key columns of state; `retracting` says that the input takes values back."""

    def __init__(
        self,
        calls: Sequence[AggregateCall],
        key_schema: pa.Schema,
        *,
        retracting: bool,
        partials_from: int | None,
        ttl_ms: int,
    ) -> None:
        self._retracting = retracting
        self._accumulators: list[Accumulator] = []
        self._known: dict[Hashable, Accumulator] = {}
        self._multisets = Multisets(key_schema, retracting=retracting, ttl_ms=ttl_ms)
        self._ordered: dict[Selection, OrderedValues] = {}
        self._key_schema = key_schema
        self._ttl_ms = ttl_ms
        self._results: list[Result] = []
        column = partials_from or 0
        for call in calls:
            if partials_from is None:
                self._results.append(self._raw(call))
            else:
                self._results.append(self._partial(call, column))
                column += len(accumulator_types(call, retracting=retracting))

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """State columns of all accumulators, in order."""
        return [field for accumulator in self._accumulators for field in accumulator.fields]

    @property
    def clamped(self) -> int:
        """Retractions of values that were not there, since the start."""
        return self._multisets.clamped + sum(values.clamped for values in self._ordered.values())

    @property
    def has_lists(self) -> bool:
        """Whether a result grows with the number of rows of its group."""
        return any(values.has_list for values in self._ordered.values())

    def open(self, backend: KeyedStateBackend) -> None:
        """Make the tables that go beside the one of groups."""
        self._multisets.open(backend)
        for values in self._ordered.values():
            values.open(backend)

    def step(self, changes: Changes, table: KeyedTable, first_column: int) -> None:
        """Move all state by the batch. `first_column` is where the accumulators' columns begin in `table`."""
        self._multisets.apply(changes)
        column = first_column
        for accumulator in self._accumulators:
            accumulator.step(changes, table, column)
            column += len(accumulator.fields)

    def results(self) -> list[Array]:
        """The aggregates' states after the last step, as columns."""
        return [result() for result in self._results]

    def forget(self, changes: Changes, dead: Bools) -> None:
        """Groups (a mark per group) have ended: what is kept beside the table of groups goes as well."""
        if self._retracting and dead.any():
            self._multisets.forget(changes, dead)
            for values in self._ordered.values():
                values.forget(changes, dead)

    def settle(self) -> None:
        self._multisets.settle()
        for values in self._ordered.values():
            values.settle()

    # --------------------------------------------------------------------------------------------- accumulators

    def _once(self, name: Hashable, make: Callable[[], Kind]) -> Kind:
        """The accumulator called `name`, made when it is first asked for."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = make()
            self._accumulators.append(known)
        return known  # type: ignore[return-value]

    def _counter(self, selection: Selection, kind: DataType | None) -> Counter:
        """Counts the rows taken in."""
        if selection.argument is not None and kind is not None and not kind.nullable and not selection.distinct:
            selection = Selection(None, selection.filter)
        if selection == Selection(None):
            return self._once("rows", RowCount)
        return self._once(("count", selection), lambda: IntegerSum(counted(selection)))

    def _doubles(self, selection: Selection, kind: DataType, *, squared: bool = False) -> Callable[[], Doubles]:
        finite = self._retracting and kind.root in _APPROXIMATE
        total = self._once(
            ("double", selection, squared), lambda: DoubleSum(plain_doubles(selection, squared=squared, finite=finite))
        )
        if not finite:
            return lambda: total.states
        specials = [
            self._once((name, selection), lambda test=test: IntegerSum(special_doubles(selection, test)))  # type: ignore[misc]
            for name, test in _SPECIALS
        ]
        return _with_specials(total, specials, squared=squared)

    def _raw(self, call: AggregateCall) -> Result:
        """A call over raw rows."""
        function, kind, argument = call.function, call.argument_type, call.argument
        selection = Selection(argument, call.filter, call.distinct)
        if function is AggregateFunction.LISTAGG:
            return self._list(call, selection)
        if function in _FIRST_OR_LAST:
            return self._first_or_last(call, selection)
        if call.distinct:
            assert kind is not None
            self._multisets.add_distinct(selection, kind)
        counter = self._counter(selection, kind)
        if function in _COUNTS:
            return lambda: pa.array(counter.states)
        assert kind is not None
        assert argument is not None
        if function in _EXTREMES:
            return self._extreme(call, selection, counter)
        if function in VARIANCES:
            sums, squares = self._doubles(selection, kind), self._doubles(selection, kind, squared=True)
            return lambda: variance(call, sums(), squares(), counter.states)
        if kind.root in _APPROXIMATE:
            return _double_result(call, self._doubles(selection, kind), counter)
        if kind.root is TypeRoot.DECIMAL:
            weights = counted(selection)
            limbs = self._once(("limbs", selection), lambda: DecimalSum(argument, to_arrow(kind), weights))
            return _decimal_result(call, limbs, counter)
        total = self._once(("sum", selection), lambda: IntegerSum(weighted_integers(selection)))
        return _integer_result(call, total, counter)

    def _extreme(self, call: AggregateCall, selection: Selection, counter: Counter) -> Result:
        kind, is_max = call.argument_type, call.function is AggregateFunction.MAX
        assert kind is not None
        result_type = to_arrow(call.type)
        if self._retracting:
            multiset = self._multisets.add_counts(selection, kind)
            extreme = self._once(
                (call.function, selection), lambda: ExtremeOfMultiset(multiset, selection, kind, is_max=is_max)
            )
            return lambda: _cast(extreme.values(), result_type)
        if not fits_one_word(kind):
            wide = self._once((call.function, selection), lambda: WideExtreme(selection, kind, is_max=is_max))
            return lambda: _cast(wide.values(), result_type)
        narrow = self._once(
            (call.function, selection), lambda: Extreme(selection, kind, is_max=is_max, counter=counter)
        )
        stored = to_arrow(kind)
        return lambda: _cast(from_ordered_integers(narrow.values(), counter.states <= 0, stored), result_type)

    def _values_in_order(self, call: AggregateCall, selection: Selection) -> OrderedValues:
        kind = call.argument_type
        assert kind is not None
        if selection.distinct:
            self._multisets.add_distinct(selection, kind)
        values = self._ordered.get(selection)
        if values is None:
            values = OrderedValues(selection, kind, self._key_schema, retracting=self._retracting, ttl_ms=self._ttl_ms)
            self._ordered[selection] = values
            self._once(("ordered", selection), lambda: values)
        return values

    def _first_or_last(self, call: AggregateCall, selection: Selection) -> Result:
        values = self._values_in_order(call, selection)
        is_last = call.function is not AggregateFunction.FIRST_VALUE
        one = self._once((is_last, selection), lambda: Ordered(values, is_last=is_last))
        kind = to_arrow(call.type)
        return lambda: _cast(one.values(), kind)

    def _list(self, call: AggregateCall, selection: Selection) -> Result:
        values = self._values_in_order(call, selection)
        joined = values.add_list(call.separator)
        self._once((call.function, selection, call.separator), lambda: joined)
        return lambda: joined.states

    # ------------------------------------------------------------------------------------------------- partials

    def _partial(self, call: AggregateCall, column: int) -> Result:
        """A call over partials, whose accumulators begin at `column` (see `accumulator_types`)."""
        function, kind = call.function, call.argument_type
        if function in _COUNTS:
            if call.argument is None and call.filter is None and not self._retracting:
                rows = self._once("rows", RowCount)
                return lambda: pa.array(rows.states)
            count = self._once(column, lambda: IntegerSum(partial_integers(column)))
            return lambda: pa.array(count.states)
        assert kind is not None
        if function in _EXTREMES:
            return self._extreme(call, Selection(column), self._partial_counter(call, column, None))
        if function in VARIANCES:
            counter = self._partial_counter(call, column, column + 2)
            rests = (column + 3, column + 4) if self._retracting else (None, None)
            specials = self._partial_specials(column + 5) if self._retracting else None
            sums = self._partial_doubles(column, rests[0], specials)
            squares = self._partial_doubles(column + 1, rests[1], specials, squared=True)
            return lambda: variance(call, sums(), squares(), counter.states)
        has_count = self._retracting or function is AggregateFunction.AVG
        counter = self._partial_counter(call, column, column + 1 if has_count else None)
        if kind.root in _APPROXIMATE:
            if not self._retracting:
                return _double_result(call, self._partial_doubles(column, None, None), counter)
            specials = self._partial_specials(column + 3)
            return _double_result(call, self._partial_doubles(column, column + 2, specials), counter)
        if kind.root is TypeRoot.DECIMAL:
            wire = to_arrow(accumulator_types(call, retracting=self._retracting)[0])
            limbs = self._once(column, lambda: DecimalSum(column, wire, None))
            return _decimal_result(call, limbs, counter)
        total = self._once(column, lambda: IntegerSum(partial_integers(column)))
        return _integer_result(call, total, counter)

    def _partial_counter(self, call: AggregateCall, column: int, counts: int | None) -> Counter:
        """Counts values, or, where partials do not say how many there were, the partials that hold any: as many for
        all calls over the same values."""
        if counts is None:
            return self._once(("valid", call.argument, call.filter), lambda: IntegerSum(valid_partials(column)))
        return self._once(counts, lambda: IntegerSum(partial_integers(counts)))

    def _partial_specials(self, first: int) -> list[IntegerSum]:
        return [
            self._once(column, lambda column=column: IntegerSum(partial_integers(column)))  # type: ignore[misc]
            for column in range(first, first + len(_SPECIALS))
        ]

    def _partial_doubles(
        self, column: int, rest: int | None, specials: list[IntegerSum] | None, *, squared: bool = False
    ) -> Callable[[], Doubles]:
        total = self._once(column, lambda: DoubleSum(partial_doubles(column, rest)))
        if specials is None:
            return lambda: total.states
        return _with_specials(total, specials, squared=squared)


def _with_specials(total: DoubleSum, specials: list[IntegerSum], *, squared: bool) -> Callable[[], Doubles]:
    """The sum with what is not finite in it; squares are never -infinity."""

    def states() -> Doubles:
        nans, infinities, negative = (special.states for special in specials)
        if squared:
            infinities, negative = infinities + negative, np.zeros_like(negative)
        return results.double_total(total.states, (nans, infinities, negative))

    return states


def _no_value(call: AggregateCall, counts: Ints) -> Bools:
    """Where the sum is NULL."""
    if call.function is AggregateFunction.SUM0:
        return np.zeros(len(counts), dtype=np.bool_)
    return counts <= 0


def _double_result(call: AggregateCall, states: Callable[[], Doubles], counter: Counter) -> Result:
    kind = to_arrow(call.type)
    if call.function is AggregateFunction.AVG:
        return lambda: results.double_average(states(), counter.states, kind)
    return lambda: results.double_sum(states(), _no_value(call, counter.states), kind)


def _decimal_result(call: AggregateCall, limbs: DecimalSum, counter: Counter) -> Result:
    kind: Any = to_arrow(call.type)
    assert call.argument_type is not None
    scale = call.argument_type.scale or 0
    if call.function is AggregateFunction.AVG:
        return lambda: results.decimal_average(limbs.states, counter.states, scale, kind)
    return lambda: results.decimal_sum(limbs.states, _no_value(call, counter.states), kind)


def _integer_result(call: AggregateCall, total: IntegerSum, counter: Counter) -> Result:
    kind = to_arrow(call.type)
    if call.function is AggregateFunction.AVG:
        return lambda: results.integer_average(total.states, counter.states, kind)
    return lambda: results.integer_sum(total.states, _no_value(call, counter.states), kind)


def _cast(column: Array, kind: Any) -> Array:
    return column if column.type == kind else column.cast(kind)


__all__ = ["Changes", "Functions"]
