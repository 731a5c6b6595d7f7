"""Window table functions and the aggregation over them."""

from __future__ import annotations

import msgspec

from planner.analysis.grouping import BoundAggregate
from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, shift_inputs, substitute
from planner.ir.operators import AggregateCall, WindowProperty
from planner.logical import nodes
from planner.logical.expressions import can_substitute, conjunction, identity
from planner.logical.nodes import Calc, Column, Plan, Window, WindowTableFunction

_WINDOW_BOUND = t.timestamp(3).with_nullable(False)
PROPERTIES = (WindowProperty.START, WindowProperty.END, WindowProperty.TIME)
_FUNCTIONS = {
    WindowProperty.START: "TUMBLE_START",
    WindowProperty.END: "TUMBLE_END",
    WindowProperty.TIME: "TUMBLE_TIME",
}


def property_type(which: WindowProperty, time_type: t.DataType) -> t.DataType:
    """window_start and window_end are local TIMESTAMP(3); window_time is the new time attribute."""
    if which is WindowProperty.TIME:
        kind = t.DataType(time_type.root, nullable=False, precision=3)
        return kind.with_time_attribute(time_type.time_attribute)
    return _WINDOW_BOUND


def window_table_function(plan: Plan, window: Window) -> WindowTableFunction:
    """The input's columns, its time column demoted, and the three window columns."""
    time = plan.columns[window.time_index]
    demoted = Column(
        time.name, time.type.with_time_attribute(None), "a window function moved event time to window_time"
    )
    columns = [demoted if i == window.time_index else c for i, c in enumerate(plan.columns)]
    columns += [Column(p.value, property_type(p, time.type)) for p in PROPERTIES]
    return WindowTableFunction(plan, window, tuple(columns))


def window_call(which: WindowProperty, window: Window, time_type: t.DataType) -> Expression:
    """A window column computed from the time column of the function's input."""
    size = Literal(window.size_ms, t.BIGINT.with_nullable(False))
    offset = Literal(window.offset_ms, t.BIGINT.with_nullable(False))
    time = InputRef(window.time_index, time_type)
    return Call(_FUNCTIONS[which], (time, size, offset), property_type(which, time_type))


def expanded(function: WindowTableFunction) -> Calc:
    """The window columns as plain expressions, where no aggregation follows."""
    time_type = function.input.columns[function.window.time_index].type
    passed = identity(function.columns[: -len(PROPERTIES)])
    computed = (window_call(p, function.window, time_type) for p in PROPERTIES)
    return Calc(function.input, None, (*passed, *computed), function.columns)


class _Collapsed(msgspec.Struct, frozen=True):
    """What lies between an aggregate and the window function below: one filter, one projection."""

    function: WindowTableFunction
    condition: Expression | None
    projections: tuple[Expression, ...]


def _collapse(plan: Plan) -> _Collapsed | None:
    match plan:
        case WindowTableFunction():
            return _Collapsed(plan, None, identity(plan.columns))
        case Calc():
            below = _collapse(plan.input)
            if below is None:
                return None
            upper = [*plan.projections, *([plan.condition] if plan.condition is not None else [])]
            if not can_substitute(upper, below.projections):
                return None
            condition = plan.condition
            if condition is not None:
                condition = substitute(condition, below.projections)
            projections = tuple(substitute(p, below.projections) for p in plan.projections)
            return _Collapsed(below.function, conjunction((below.condition, condition)), projections)
        case _:
            return None


def window_aggregate(
    plan: Plan,
    keys: tuple[Expression, ...],
    key_names: tuple[str, ...],
    aggregates: tuple[BoundAggregate, ...],
    span: Span,
) -> tuple[Plan, tuple[int, ...]]:
    """The aggregate over `plan`, whose keys must contain window_start and window_end of one window function.

    Returns the node and, for each key and then each aggregate, its column there.
    """
    collapsed = _collapse(plan)
    if collapsed is None:
        raise _unbounded(span, bool(keys))
    function = collapsed.function
    inner_keys = tuple(substitute(k, collapsed.projections) for k in keys)
    first_property = len(function.columns) - len(PROPERTIES)
    found: dict[WindowProperty, int] = {}
    for i, key in enumerate(inner_keys):
        if isinstance(key, InputRef) and key.index >= first_property:
            found[PROPERTIES[key.index - first_property]] = i
    for bound in (WindowProperty.START, WindowProperty.END):
        if bound not in found:
            if not found:
                raise _unbounded(span, bool(keys))
            raise SqlError(
                SqlState.WINDOWING_ERROR,
                f"GROUP BY misses {bound.value}",
                span=span,
                hint="A window aggregation groups by both window_start and window_end.",
            )
    return _build(collapsed, inner_keys, key_names, aggregates, found)


def _unbounded(span: Span, has_keys: bool) -> SqlError:
    feature = "GROUP BY without a window" if has_keys else "aggregation without a window"
    hint = "Group by window_start and window_end of FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)."
    return not_supported(feature, span, hint)


def _build(
    collapsed: _Collapsed,
    keys: tuple[Expression, ...],
    key_names: tuple[str, ...],
    aggregates: tuple[BoundAggregate, ...],
    found: dict[WindowProperty, int],
) -> tuple[Plan, tuple[int, ...]]:
    function = collapsed.function
    time_type = function.input.columns[function.window.time_index].type
    to_input = (
        *identity(function.input.columns),
        *(window_call(p, function.window, time_type) for p in PROPERTIES),
    )
    needed: list[tuple[str, Expression]] = []

    def column_of(name: str, expression: Expression) -> int:
        inner = substitute(expression, to_input)
        for i, (_, known) in enumerate(needed):
            if known == inner:
                return i
        needed.append((name, inner))
        return len(needed) - 1

    plain_keys = [i for i in range(len(keys)) if i not in found.values()]
    key_columns = tuple(column_of(key_names[i], keys[i]) for i in plain_keys)
    calls: list[AggregateCall] = []
    for j, aggregate in enumerate(aggregates):
        argument = filter_ = None
        if aggregate.argument is not None:
            argument = column_of(f"$a{j}", substitute(aggregate.argument, collapsed.projections))
        if aggregate.filter is not None:
            filter_ = column_of(f"$f{j}", substitute(aggregate.filter, collapsed.projections))
        argument_type = aggregate.argument.type.with_time_attribute(None) if aggregate.argument else None
        calls.append(AggregateCall(aggregate.function, argument, argument_type, aggregate.type, filter_))
    time = InputRef(function.window.time_index, time_type)
    time_index = column_of(function.input.columns[function.window.time_index].name, time)
    condition = collapsed.condition
    if condition is not None:
        condition = substitute(condition, to_input)
    columns = tuple(Column(name, expression.type) for name, expression in needed)
    below = Calc(function.input, condition, tuple(e for _, e in needed), columns)
    window = msgspec.structs.replace(function.window, time_index=time_index)
    properties = tuple(p for p in PROPERTIES if p in found)
    out = [Column(key_names[i], keys[i].type) for i in plain_keys]
    out += [Column(a.text, a.type) for a in aggregates]
    out += [Column(p.value, property_type(p, time_type)) for p in properties]
    node = nodes.WindowAggregate(below, key_columns, tuple(calls), window, properties, tuple(out))
    positions: dict[int, int] = {i: position for position, i in enumerate(plain_keys)}
    first_property = len(plain_keys) + len(aggregates)
    for position, which in enumerate(properties):
        positions[found[which]] = first_property + position
    mapping = [positions[i] for i in range(len(keys))]
    mapping += [len(plain_keys) + j for j in range(len(aggregates))]
    return node, tuple(mapping)


def remap(expression: Expression, mapping: tuple[int, ...]) -> Expression:
    """`expression` over (keys, aggregates) as one over the aggregate node's columns."""
    return shift_inputs(expression, dict(enumerate(mapping)))
