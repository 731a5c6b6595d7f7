"""Window table functions, and which columns of a plan are window columns."""

from __future__ import annotations

import msgspec

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, substitute
from planner.ir.operators import WindowProperty
from planner.logical.expressions import can_substitute, conjunction, identity
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    Column,
    Plan,
    UnionAll,
    Window,
    WindowAggregate,
    WindowKind,
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
    """The window that each row of a plan belongs to, and the columns that carry it."""

    window: Window
    properties: dict[int, WindowProperty]


def window_columns(plan: Plan) -> WindowColumns | None:
    """Window columns come from a window function or a windowed aggregate, live through filters, renames and UNION ALL
    of the same window, and are lost by any function and by all other operators."""
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
            kept = {
                i: below.properties[p.index]
                for i, p in enumerate(plan.projections)
                if isinstance(p, InputRef) and p.index in below.properties
            }
            return WindowColumns(below.window, kept)
        case UnionAll():
            return _common_columns([window_columns(i) for i in plan.inputs])
        case _:
            return None


def _common_columns(branches: list[WindowColumns | None]) -> WindowColumns | None:
    first = branches[0]
    if first is None or first.window.time_type.is_proctime:
        return None
    kept = dict(first.properties)
    for branch in branches[1:]:
        if branch is None or not _same_windows(branch.window, first.window):
            return None
        kept = {i: p for i, p in kept.items() if branch.properties.get(i) is p}
    return WindowColumns(first.window, kept)


def _same_windows(a: Window, b: Window) -> bool:
    """Whether both give out the same windows, over whatever column."""
    return _shape(a) == _shape(b)


def _shape(window: Window) -> tuple[object, ...]:
    type_ = window.time_type
    return window.kind, window.size_ms, window.step_ms, window.offset_ms, type_.root, type_.time_attribute
