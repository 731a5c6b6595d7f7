"""GROUP BY and SELECT DISTINCT: windowed where the keys say so, unbounded otherwise; an Expand makes grouping sets."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from planner.analysis import type_rules
from planner.analysis.aggregates import BoundAggregate
from planner.analysis.grouping_sets import GroupingSets
from planner.errors import Span, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal, input_indexes, shift_inputs, substitute
from planner.ir.operators import AggregateCall, WindowProperty
from planner.logical.expressions import identity
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    Column,
    Expand,
    GroupAggregate,
    Plan,
    Window,
    WindowAggregate,
)
from planner.logical.windows import (
    PROPERTIES,
    Collapsed,
    collapse,
    is_computable,
    property_type,
    window_call,
    window_columns,
)

_GROUPING_ID = "$grouping_id"
_COUNT = t.BIGINT.with_nullable(False)


class WindowKeys(msgspec.Struct, frozen=True):
    """Group keys that are columns of one window: key → property. `end_index` is window_end's column below."""

    window: Window
    properties: dict[int, WindowProperty]
    end_index: int


def window_keys(plan: Plan, sets: GroupingSets) -> WindowKeys | None:
    """The window that the keys group by: both window_start and window_end must be in every grouping set."""
    carried = window_columns(plan)
    if carried is None:
        return None
    found: dict[int, WindowProperty] = {}
    end_index = None
    for i, key in enumerate(sets.keys):
        if isinstance(key, InputRef) and key.index in carried.properties and sets.is_in_every_set(i):
            found[i] = carried.properties[key.index]
            if found[i] is WindowProperty.END:
                end_index = key.index
    if WindowProperty.START not in found.values() or end_index is None:
        return None
    return WindowKeys(carried.window, found, end_index)


def key_types(sets: GroupingSets, window: WindowKeys | None) -> tuple[t.DataType, ...]:
    """Types of the keys above the aggregate: window_time alone stays a time attribute, and a key that is not in every
    set may be NULL."""
    types: list[t.DataType] = []
    for i, key in enumerate(sets.keys):
        type_ = key.type
        if window is None or i not in window.properties:
            type_ = type_rules.plain(type_)
        types.append(type_.with_nullable(type_.nullable or not sets.is_in_every_set(i)))
    return tuple(types)


def build_aggregate(
    plan: Plan,
    sets: GroupingSets,
    window: WindowKeys | None,
    aggregates: tuple[BoundAggregate, ...],
    span: Span,
) -> tuple[Plan, tuple[int, ...]]:
    """The aggregate over `plan`, and the column there of each key, of the grouping id (where there are several sets)
    and of each aggregate."""
    work = _Aggregation(sets, window, aggregates)
    if window is None:
        return work.unbounded(plan)
    below = collapse(plan)
    if below is not None and (is_computable(window.window) or not _reads_window(below, work)):
        return work.over_function(below)
    if window.window.time_type.is_proctime:
        raise not_supported(
            "window columns of a processing-time window outside GROUP BY and SELECT",
            span,
            hint="Filter above the aggregation: HAVING, or a query around it.",
        )
    return work.attached(plan, window)


def _reads_window(below: Collapsed, work: _Aggregation) -> bool:
    """Whether anything but the window keys reads the window's columns."""
    expressions = [substitute(e, below.projections) for e in work.expressions()]
    if below.condition is not None:
        expressions.append(below.condition)
    return any(index >= below.first_property for e in expressions for index in input_indexes(e))


class _Aggregation:
    """One GROUP BY on its way to a node. Plain keys are those that are no window columns."""

    def __init__(self, sets: GroupingSets, window: WindowKeys | None, aggregates: tuple[BoundAggregate, ...]) -> None:
        self.sets = sets
        self.aggregates = aggregates
        self.window_properties = window.properties if window is not None else {}
        self.plain_keys = [i for i in range(len(sets.keys)) if i not in self.window_properties]
        self.properties = tuple(p for p in PROPERTIES if p in self.window_properties.values())
        self.types = key_types(sets, window)

    def expressions(self) -> list[Expression]:
        """All that is computed below the aggregate."""
        read = [self.sets.keys[i] for i in self.plain_keys]
        for aggregate in self.aggregates:
            read += [e for e in (aggregate.argument, aggregate.filter) if e is not None]
        return read

    def unbounded(self, plan: Plan) -> tuple[Plan, tuple[int, ...]]:
        source = _Source(plan, None, lambda e: e)
        prepared = self._prepare(source, None)
        columns = tuple(self._columns())
        return GroupAggregate(prepared.below, prepared.keys, prepared.calls, columns), self._mapping()

    def attached(self, plan: Plan, window: WindowKeys) -> tuple[Plan, tuple[int, ...]]:
        """Each row carries its window already."""
        end = plan.columns[window.end_index]
        prepared = self._prepare(_Source(plan, None, lambda e: e), (end.name, InputRef(window.end_index, end.type)))
        plain_window = msgspec.structs.replace(window.window, time_index=None)
        return self._window_node(prepared, AttachedWindow(prepared.extra, plain_window), plain_window)

    def over_function(self, below: Collapsed) -> tuple[Plan, tuple[int, ...]]:
        """The function is taken into the aggregate: what stands between is computed from the function's input."""
        function = below.function
        window = function.window
        to_input = identity(function.input.columns)
        if is_computable(window):
            to_input = (*to_input, *(window_call(p, window) for p in PROPERTIES))

        def translate(expression: Expression) -> Expression:
            return substitute(substitute(expression, below.projections), to_input)

        condition = substitute(below.condition, to_input) if below.condition is not None else None
        extra: tuple[str, Expression] | None = None
        if window.time_index is not None:
            extra = function.input.columns[window.time_index].name, InputRef(window.time_index, window.time_type)
        prepared = self._prepare(_Source(function.input, condition, translate), extra)
        time_index = prepared.extra if extra is not None else None
        moved = msgspec.structs.replace(window, time_index=time_index)
        return self._window_node(prepared, moved, moved)

    def _window_node(
        self, prepared: _Prepared, window: Window | AttachedWindow, shape: Window
    ) -> tuple[Plan, tuple[int, ...]]:
        columns = self._columns()
        columns += [Column(p.value, property_type(p, shape.time_type)) for p in self.properties]
        node = WindowAggregate(prepared.below, prepared.keys, prepared.calls, window, self.properties, tuple(columns))
        return node, self._mapping()

    def _columns(self) -> list[Column]:
        """Keys, grouping id, aggregates."""
        out = [Column(self.sets.names[i], self.types[i]) for i in self.plain_keys]
        if not self.sets.is_single:
            out.append(Column(_GROUPING_ID, _COUNT))
        return out + [Column(a.text, a.type) for a in self.aggregates]

    def _mapping(self) -> tuple[int, ...]:
        positions = {key: position for position, key in enumerate(self.plain_keys)}
        first_call = len(self.plain_keys) + (0 if self.sets.is_single else 1)
        first_property = first_call + len(self.aggregates)
        for key, which in self.window_properties.items():
            positions[key] = first_property + self.properties.index(which)
        mapping = [positions[i] for i in range(len(self.sets.keys))]
        if not self.sets.is_single:
            mapping.append(len(self.plain_keys))
        return (*mapping, *range(first_call, first_property))

    # -- the input ----------------------------------------------------------------------------------

    def _prepare(self, source: _Source, extra: tuple[str, Expression] | None) -> _Prepared:
        """One calc that computes keys, arguments, filters and the window's column `extra`; with grouping sets an Expand
        above it."""
        needed = _Needed(source.translate)
        keys = [needed.column(self.sets.names[i], self.sets.keys[i]) for i in self.plain_keys]
        arguments: list[tuple[int | None, int | None]] = []
        for j, aggregate in enumerate(self.aggregates):
            argument = needed.column(f"$a{j}", aggregate.argument) if aggregate.argument is not None else None
            filter_ = needed.column(f"$f{j}", aggregate.filter) if aggregate.filter is not None else None
            arguments.append((argument, filter_))
        extra_index = needed.add(*extra) if extra is not None else -1
        below = source.calc(needed.columns)
        if self.sets.is_single:
            return _Prepared(below, tuple(keys), self._calls(arguments, None), extra_index)
        return self._expanded(below, keys, arguments, extra_index)

    def _expanded(
        self, below: Plan, keys: list[int], arguments: list[tuple[int | None, int | None]], extra: int
    ) -> _Prepared:
        """Columns: keys (NULL where not in the set), grouping id, then what aggregates and window read, untouched."""
        read = {index for pair in arguments for index in pair if index is not None}
        passed = sorted(read | ({extra} if extra >= 0 else set()))
        moved = {index: len(keys) + 1 + position for position, index in enumerate(passed)}
        kept = tuple(InputRef(i, below.columns[i].type) for i in passed)
        projections: list[tuple[Expression, ...]] = []
        for set_, number in zip(self.sets.sets, self.sets.grouping_ids(), strict=True):
            chosen: list[Expression] = []
            for position, key in enumerate(self.plain_keys):
                type_ = below.columns[keys[position]].type
                in_set = key in set_
                chosen.append(InputRef(keys[position], type_) if in_set else Literal(None, self.types[key]))
            projections.append((*chosen, Literal(number, _COUNT), *kept))
        columns = [Column(self.sets.names[i], self.types[i]) for i in self.plain_keys]
        columns += [Column(_GROUPING_ID, _COUNT), *(below.columns[i] for i in passed)]
        expand = Expand(below, tuple(projections), tuple(columns))
        calls = self._calls(arguments, moved)
        return _Prepared(expand, tuple(range(len(keys) + 1)), calls, moved.get(extra, -1))

    def _calls(
        self, arguments: list[tuple[int | None, int | None]], moved: dict[int, int] | None
    ) -> tuple[AggregateCall, ...]:
        calls: list[AggregateCall] = []
        for aggregate, (argument, filter_) in zip(self.aggregates, arguments, strict=True):
            if moved is not None:
                argument = moved[argument] if argument is not None else None
                filter_ = moved[filter_] if filter_ is not None else None
            argument_type = type_rules.plain(aggregate.argument.type) if aggregate.argument is not None else None
            calls.append(
                AggregateCall(
                    function=aggregate.function,
                    argument=argument,
                    argument_type=argument_type,
                    type=aggregate.type,
                    filter=filter_,
                    distinct=aggregate.distinct,
                    separator=aggregate.separator,
                )
            )
        return tuple(calls)


class _Prepared(msgspec.Struct, frozen=True):
    """The aggregate's input: key columns (with the grouping id), calls, and the window's column (-1: none)."""

    below: Plan
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    extra: int


class _Source(msgspec.Struct, frozen=True):
    """What is aggregated: a plan, a filter over it, and how an expression of the query reads the plan."""

    plan: Plan
    condition: Expression | None
    translate: Callable[[Expression], Expression]

    def calc(self, needed: list[tuple[str, Expression]]) -> Plan:
        if not needed and self.condition is None:
            return self.plan
        columns = tuple(Column(name, expression.type) for name, expression in needed)
        return Calc(self.plan, self.condition, tuple(e for _, e in needed), columns)


class _Needed:
    """The columns of the calc below an aggregate; equal expressions are one column."""

    def __init__(self, translate: Callable[[Expression], Expression]) -> None:
        self.columns: list[tuple[str, Expression]] = []
        self._translate = translate

    def column(self, name: str, expression: Expression) -> int:
        return self.add(name, self._translate(expression))

    def add(self, name: str, expression: Expression) -> int:
        """The same for an expression over the source itself."""
        for i, (_, known) in enumerate(self.columns):
            if known == expression:
                return i
        self.columns.append((name, expression))
        return len(self.columns) - 1


def remap(expression: Expression, mapping: tuple[int, ...]) -> Expression:
    """`expression` over (keys, grouping id, aggregates) as one over the aggregate node's columns."""
    return shift_inputs(expression, dict(enumerate(mapping)))


def distinct(plan: Plan, span: Span, what: str = "SELECT DISTINCT") -> Plan:
    """SELECT DISTINCT, UNION: all columns are group keys."""
    every = frozenset(range(len(plan.columns)))
    sets = GroupingSets(identity(plan.columns), tuple(c.name for c in plan.columns), (every,))
    window = window_keys(plan, sets)
    aggregate, mapping = build_aggregate(plan, sets, window, (), span)
    types = key_types(sets, window)
    columns = tuple(
        Column(c.name, type_, c.lost or ("" if type_ == c.type else f"{what} made an ordinary value of it"))
        for c, type_ in zip(plan.columns, types, strict=True)
    )
    projections = tuple(InputRef(mapping[i], type_) for i, type_ in enumerate(types))
    return Calc(aggregate, None, projections, columns)
