"""Window table functions, and which columns of a plan are window columns."""

from __future__ import annotations

import msgspec

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, substitute
from planner.ir.operators import JoinKind, WindowProperty
from planner.logical.expressions import can_substitute, conjunction, identity
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    Column,
    Deduplicate,
    IntervalJoin,
    LookupJoin,
    Plan,
    TemporalJoin,
    UnionAll,
    Unnest,
    Window,
    WindowAggregate,
    WindowJoin,
    WindowKind,
    WindowRank,
    WindowTableFunction,
)

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


def window_table_function(plan: Plan, window: Window, time_index: int) -> WindowTableFunction:
    """The input's columns, its time column demoted, and the three window columns."""
    time = plan.columns[time_index]
    moved = "processing" if time.type.is_proctime else "event"
    demoted = Column(
        time.name, time.type.with_time_attribute(None), f"a window function moved {moved} time to window_time"
    )
    columns = [demoted if i == time_index else c for i, c in enumerate(plan.columns)]
    columns += [Column(p.value, property_type(p, window.time_type)) for p in PROPERTIES]
    return WindowTableFunction(plan, window, tuple(columns))


def is_computable(window: Window) -> bool:
    """Whether each row has one window, which follows from its time column."""
    return window.kind is WindowKind.TUMBLE and window.time_index is not None


def window_call(which: WindowProperty, window: Window) -> Expression:
    """A window column of an `is_computable` window, from the columns of the function's input."""
    assert window.time_index is not None
    size = Literal(window.size_ms, t.BIGINT.with_nullable(False))
    offset = Literal(window.offset_ms, t.BIGINT.with_nullable(False))
    time = InputRef(window.time_index, window.time_type)
    return Call(_FUNCTIONS[which], (time, size, offset), property_type(which, window.time_type))


def expanded(function: WindowTableFunction) -> Calc:
    """The columns of an `is_computable` function as plain expressions."""
    passed = identity(function.columns[: -len(PROPERTIES)])
    computed = (window_call(p, function.window) for p in PROPERTIES)
    return Calc(function.input, None, (*passed, *computed), function.columns)


class Collapsed(msgspec.Struct, frozen=True):
    """What lies between an aggregate and the window function below: one filter, one projection."""

    function: WindowTableFunction
    condition: Expression | None
    projections: tuple[Expression, ...]

    @property
    def first_property(self) -> int:
        """The function's columns from here on are the window's."""
        return len(self.function.columns) - len(PROPERTIES)


def collapse(plan: Plan) -> Collapsed | None:
    """The window function below `plan`, if only calcs that can be merged stand between."""
    match plan:
        case WindowTableFunction():
            return Collapsed(plan, None, identity(plan.columns))
        case Calc():
            below = collapse(plan.input)
            if below is None:
                return None
            upper = [*plan.projections, *([plan.condition] if plan.condition is not None else [])]
            if not can_substitute(upper, below.projections):
                return None
            condition = plan.condition
            if condition is not None:
                condition = substitute(condition, below.projections)
            projections = tuple(substitute(p, below.projections) for p in plan.projections)
            return Collapsed(below.function, conjunction((below.condition, condition)), projections)
        case _:
            return None


class WindowColumns(msgspec.Struct, frozen=True):
    """The window that each row of a plan belongs to, and the columns that carry it. `halves`: those that carry it or
    NULL, by the side of the full outer join that they come from (True: the left one); one of both sides has it."""

    window: Window
    properties: dict[int, WindowProperty]
    halves: dict[int, tuple[WindowProperty, bool]] = {}


def window_columns(plan: Plan) -> WindowColumns | None:
    """Window columns come from a window function or a windowed aggregate, live through filters, renames, UNION ALL of
    the same window and joins that keep rows no longer than event time allows, and are lost by any function and by all
    other operators."""
    match plan:
        case WindowTableFunction():
            first = len(plan.columns) - len(PROPERTIES)
            return WindowColumns(plan.window, {first + i: p for i, p in enumerate(PROPERTIES)})
        case WindowAggregate():
            window = plan.window.window if isinstance(plan.window, AttachedWindow) else plan.window
            if window.time_type.is_proctime:
                # The windows of its output would fire by a watermark, and there is none.
                return None
            first = len(plan.keys) + len(plan.aggregates)
            return WindowColumns(window, {first + i: p for i, p in enumerate(plan.properties)})
        case Calc():
            below = window_columns(plan.input)
            if below is None:
                return None
            return _projected(plan.projections, below)
        case WindowRank() | Deduplicate():
            # Rows pass as they are; the rank is behind their columns.
            return window_columns(plan.input)
        case UnionAll():
            return _common_columns([window_columns(i) for i in plan.inputs])
        case WindowJoin():
            return _joined_columns(plan)
        case IntervalJoin():
            left = None if plan.kind.is_right_outer else _timed_columns(plan.left, plan.left_time)
            right = None if plan.kind.is_left_outer else _timed_columns(plan.right, plan.right_time)
            return left or _shifted(right, len(plan.left.columns))
        case TemporalJoin():
            return _timed_columns(plan.left, plan.left_time)
        case LookupJoin() | Unnest():
            return window_columns(plan.input)
        case _:
            return None


def _projected(projections: tuple[Expression, ...], below: WindowColumns) -> WindowColumns:
    kept: dict[int, WindowProperty] = {}
    halves: dict[int, tuple[WindowProperty, bool]] = {}
    for i, projection in enumerate(projections):
        match projection:
            case InputRef(index=index) if index in below.properties:
                kept[i] = below.properties[index]
            case InputRef(index=index) if index in below.halves:
                halves[i] = below.halves[index]
            case Call(function="COALESCE", args=(InputRef(index=first), InputRef(index=second))):
                a, b = below.halves.get(first), below.halves.get(second)
                if a is not None and b is not None and a[0] is b[0] and a[1] is not b[1]:
                    kept[i] = a[0]
    return WindowColumns(below.window, kept, halves)


def _joined_columns(join: WindowJoin) -> WindowColumns | None:
    """Of the sides that are never padded with NULLs; of a full outer join both sides together have them."""
    left, right = window_columns(join.left), window_columns(join.right)
    if left is None or right is None:
        return None
    moved = {len(join.left.columns) + i: p for i, p in right.properties.items()}
    if join.kind is JoinKind.FULL:
        halves = {i: (p, True) for i, p in left.properties.items()} | {i: (p, False) for i, p in moved.items()}
        return WindowColumns(join.window, {}, halves)
    kept = {} if join.kind.is_right_outer else dict(left.properties)
    if join.kind.keeps_right and not join.kind.is_left_outer:
        kept |= moved
    return WindowColumns(join.window, kept)


def _timed_columns(plan: Plan, time: int) -> WindowColumns | None:
    """The window columns of rows that are held back by `time`, if that keeps them in front of their window's end."""
    columns = window_columns(plan)
    if columns is None or columns.properties.get(time) is not WindowProperty.TIME:
        return None
    return WindowColumns(columns.window, columns.properties)


def _shifted(columns: WindowColumns | None, by: int) -> WindowColumns | None:
    if columns is None:
        return None
    return WindowColumns(columns.window, {i + by: p for i, p in columns.properties.items()})


def _common_columns(branches: list[WindowColumns | None]) -> WindowColumns | None:
    first = branches[0]
    if first is None or first.window.time_type.is_proctime:
        return None
    kept = dict(first.properties)
    for branch in branches[1:]:
        if branch is None or not same_windows(branch.window, first.window):
            return None
        kept = {i: p for i, p in kept.items() if branch.properties.get(i) is p}
    return WindowColumns(first.window, kept)


def same_windows(a: Window, b: Window) -> bool:
    """Whether both give out the same windows, over whatever column."""
    return _shape(a) == _shape(b)


def _shape(window: Window) -> tuple[object, ...]:
    type_ = window.time_type
    return window.kind, window.size_ms, window.step_ms, window.offset_ms, type_.root, type_.time_attribute
