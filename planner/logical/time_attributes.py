"""Time attributes that stand side by side in one row: how far they may be apart, and what takes the mark off one."""

from __future__ import annotations

from planner.ir.expressions import InputRef
from planner.logical.nodes import (
    Calc,
    Column,
    Deduplicate,
    IntervalJoin,
    LookupJoin,
    Plan,
    Rank,
    Sort,
    TemporalJoin,
    UnionAll,
    Unnest,
    WindowJoin,
    WindowRank,
)


def demoted(column: Column, reason: str) -> Column:
    """The column as an ordinary value; `reason` says what made it one."""
    return Column(column.name, column.type.with_time_attribute(None), reason)


def spread_ms(plan: Plan, later: int, earlier: int) -> int | None:
    """The most that column `later` is after column `earlier` in any row of `plan`; None if nothing is known."""
    if later == earlier:
        return 0
    match plan:
        case Calc():
            first, second = plan.projections[later], plan.projections[earlier]
            if isinstance(first, InputRef) and isinstance(second, InputRef):
                return spread_ms(plan.input, first.index, second.index)
            return None
        case UnionAll():
            branches = [spread_ms(i, later, earlier) for i in plan.inputs]
            known = [b for b in branches if b is not None]
            return max(known) if len(known) == len(branches) else None
        case IntervalJoin() | WindowJoin():
            return _joined_spread(plan, later, earlier)
        case TemporalJoin():
            width = len(plan.left.columns)
            return spread_ms(plan.left, later, earlier) if later < width and earlier < width else None
        case LookupJoin() | Unnest() | Rank() | Deduplicate() | WindowRank() | Sort():
            width = len(plan.input.columns)
            return spread_ms(plan.input, later, earlier) if later < width and earlier < width else None
        case _:
            return None


def _joined_spread(join: IntervalJoin | WindowJoin, later: int, earlier: int) -> int | None:
    """Within one side, or from one side to the other by way of the times that the join compares."""
    width = len(join.left.columns)
    first_side, first = (join.left, later) if later < width else (join.right, later - width)
    second_side, second = (join.left, earlier) if earlier < width else (join.right, earlier - width)
    if (later < width) == (earlier < width):
        return spread_ms(first_side, first, second)
    if isinstance(join, WindowJoin) or join.is_processing_time:
        return None
    is_first_left = later < width
    first_time, second_time = join.left_time, join.right_time
    between = -join.lower_ms
    if not is_first_left:
        first_time, second_time = second_time, first_time
        between = join.upper_ms
    to_time, from_time = spread_ms(first_side, first, first_time), spread_ms(second_side, second_time, second)
    return None if to_time is None or from_time is None else to_time + between + from_time
