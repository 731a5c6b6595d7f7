"""Stream properties of joins that event time or processing time bounds: interval, window and temporal joins.

Interval and window joins read and give inserts. A temporal join gives for each change of its left side that change with
the version of its time, as the row itself has it: what takes a row back meets the same version.
"""

from __future__ import annotations

from planner.errors import SqlError, not_supported
from planner.logical.nodes import IntervalJoin, Join, Plan, TemporalJoin, WindowJoin
from planner.streaming import joins
from planner.streaming.properties import Changelog, Properties, StateBound, UpsertKey

TimedJoin = IntervalJoin | TemporalJoin | WindowJoin


def timed_join_changelog(plan: TimedJoin, left: Changelog) -> Changelog:
    return left if isinstance(plan, TemporalJoin) else Changelog()


def timed_join_keys(plan: TimedJoin, left: Properties, right: Properties) -> frozenset[UpsertKey]:
    """As of a regular join of rows that stay; rows of equal windows are joined by these, too. A temporal join gives one
    row for each of its left side, and changes leave it by their event time: only those of equal times in order."""
    if not isinstance(plan, TemporalJoin):
        return joins.join_upsert_keys(_as_join(plan), left, right)
    if left.changelog.is_insert_only:
        return left.upsert_keys
    return frozenset(key | frozenset(plan.left_keys) | {plan.left_time} for key in left.upsert_keys)


def timed_join_constants(plan: TimedJoin, left: Properties, right: Properties) -> frozenset[int]:
    return joins.join_constants(_as_join(plan), left, right)


def _as_join(plan: TimedJoin) -> Join:
    """The regular join of which this one gives the rows."""
    left_keys, right_keys = plan.left_keys, plan.right_keys
    if isinstance(plan, WindowJoin):
        left_keys, right_keys = (*left_keys, plan.left_end), (*right_keys, plan.right_end)
    return Join(plan.left, plan.right, plan.kind, None, plan.columns, left_keys, right_keys)


def timed_join_state(plan: TimedJoin, right: Properties) -> StateBound:
    """Of each key of a versioned table the last version stays."""
    if isinstance(plan, TemporalJoin):
        return StateBound.BY_INPUT if right.is_bounded else StateBound.BY_KEYS
    is_processing_time = isinstance(plan, IntervalJoin) and plan.is_processing_time
    return StateBound.BY_TIMER if is_processing_time else StateBound.BY_WATERMARK


def changing_side(plan: IntervalJoin | WindowJoin, changes: list[Changelog]) -> Plan | None:
    """The input that gives other changes than inserts, which such a join cannot take."""
    sides = zip((plan.left, plan.right), changes, strict=True)
    return next((side for side, given in sides if not given.is_insert_only), None)


def refusal_of_changes(plan: IntervalJoin | WindowJoin, changes: str, culprit: str) -> SqlError:
    """Rows are dropped when no partner can come any more, so there is nothing left to take one back from."""
    span = plan.place.span if plan.place is not None else None
    if isinstance(plan, IntervalJoin):
        what = "an interval join"
        hint = (
            "Compare CAST(… AS TIMESTAMP(3)) of one time attribute instead: then it is a regular join, which takes "
            "changes and keeps all rows."
        )
    else:
        what = "a window join"
        hint = (
            "Aggregate in the windows first (GROUP BY window_start, window_end): a window aggregation takes changes "
            "and gives final rows."
        )
    error = not_supported(f"{what} over {changes} changes, which {culprit} makes", span, hint)
    if plan.place is not None:
        error.text = plan.place.script
    return error
