"""A join within equal windows of both sides keeps rows only until their window ends.

    Join(l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end)   →   WindowJoin(k = k)

Both sides must carry windows of one shape (`planner.logical.windows` follows the columns), and both ends of them must
be equal; otherwise it is a join like any other, in which window columns are ordinary values.
"""

from __future__ import annotations

import msgspec

from planner.errors import not_supported
from planner.ir.operators import WindowProperty
from planner.logical.nodes import Calc, Column, Join, Plan, UnionAll, WindowJoin, WindowTableFunction
from planner.logical.time_attributes import demoted
from planner.logical.windows import WindowColumns, same_windows, window_columns

_HELD_BACK = "a window join held rows back until their window ended"


def window_join(join: Join) -> WindowJoin | None:
    """The window join that `join`, whose equalities are taken out as keys, is; None if it is none."""
    _refuse_processing_time(join)
    left, right = window_columns(join.left), window_columns(join.right)
    if left is None or right is None or not same_windows(left.window, right.window):
        return None
    by_property = {
        left.properties[a]: (a, b)
        for a, b in zip(join.left_keys, join.right_keys, strict=True)
        if a in left.properties and left.properties[a] is right.properties.get(b)
    }
    if WindowProperty.START not in by_property or WindowProperty.END not in by_property:
        return None
    left_end, right_end = by_property[WindowProperty.END]
    # Rows of one window agree in all three window columns.
    keys = [i for i in range(len(join.left_keys)) if not _is_implied(join, i, left, right)]
    return WindowJoin(
        left=join.left,
        right=join.right,
        kind=join.kind,
        left_keys=tuple(join.left_keys[i] for i in keys),
        right_keys=tuple(join.right_keys[i] for i in keys),
        null_safe=tuple(join.null_safe[i] for i in keys),
        left_end=left_end,
        right_end=right_end,
        window=msgspec.structs.replace(left.window, time_index=None),
        condition=join.condition,
        columns=_columns(join, left, right),
        place=join.place,
    )


def _is_implied(join: Join, key: int, left: WindowColumns, right: WindowColumns) -> bool:
    which = left.properties.get(join.left_keys[key])
    return which is not None and which is right.properties.get(join.right_keys[key])


def _columns(join: Join, left: WindowColumns, right: WindowColumns) -> tuple[Column, ...]:
    """The output's columns: rows leave when their window ends, which only window_time is not behind of."""
    width = len(join.left.columns)
    times = {i for i, p in left.properties.items() if p is WindowProperty.TIME}
    times |= {width + i for i, p in right.properties.items() if p is WindowProperty.TIME}
    return tuple(
        demoted(c, _HELD_BACK) if c.type.is_rowtime and i not in times else c for i, c in enumerate(join.columns)
    )


def _refuse_processing_time(join: Join) -> None:
    """Rows get windows of processing time in the aggregate that closes them, and nowhere else."""
    for side in (join.left, join.right):
        function = _window_function(side)
        if function is not None and function.window.time_type.is_proctime:
            raise not_supported(
                f"a join of {function.window.kind.value} windows of processing time",
                join.place.span if join.place is not None else None,
                "Aggregate in the windows first (GROUP BY window_start, window_end), or use windows of a column with "
                "a WATERMARK.",
            )


def _window_function(plan: Plan) -> WindowTableFunction | None:
    match plan:
        case WindowTableFunction():
            return plan
        case Calc():
            return _window_function(plan.input)
        case UnionAll():
            return next((f for f in map(_window_function, plan.inputs) if f is not None), None)
        case _:
            return None
