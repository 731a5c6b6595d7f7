"""Operators of joins that event time or processing time bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.ir import operators as ir
from planner.ir.operators import ChangelogMode
from planner.logical.canonical import canonical_plan
from planner.logical.nodes import IntervalJoin, TemporalJoin, WindowJoin
from planner.logical.rules.interval_join import watermark_delay_ms
from planner.physical.aggregates import aligned_window
from planner.physical.changes import without_update_before
from planner.physical.joins import input_streams
from planner.physical.state_parts import timed_join_parts
from planner.physical.streams import Stream, schema_of
from planner.physical.uids import condition_origin, fingerprint, join_keys_origin, origin, row_layout

if TYPE_CHECKING:
    from planner.physical.translate import Translator

_TimedJoin = IntervalJoin | TemporalJoin | WindowJoin


def translate_timed_join(plan: _TimedJoin, translator: Translator) -> Stream:
    """The operator of the join, behind exchanges by its keys; rows of a window meet by the window, too."""
    left, right = input_streams(plan, translator)
    left_keys, right_keys = plan.left_keys, plan.right_keys
    operator: ir.Operator
    match plan:
        case IntervalJoin():
            operator = _interval_join(plan, translator)
        case WindowJoin():
            left_keys, right_keys = (*left_keys, plan.left_end), (*right_keys, plan.right_end)
            operator = _window_join(plan, translator)
        case TemporalJoin():
            given = translator.streaming.of(plan.right).changelog
            if given.has_updates and given.has_update_before:
                # It would take the old version back at its own time, as if it had never been valid.
                right = without_update_before(right, translator)
            operator = _temporal_join(plan, translator)
    mode = translator.streaming.of(plan).changelog.mode
    stream = translator.add_two_inputs(operator, left, right, (left_keys, right_keys), mode)
    print_ = fingerprint(operator.uid, _layout(plan), canonical_plan(plan), parts=timed_join_parts(plan))
    translator.fingerprints.append(print_)
    return stream


def _uid(plan: _TimedJoin, kind: str, translator: Translator) -> str:
    return translator.uids.make(translator.sink_name, kind, join_keys_origin(plan))


def _interval_join(plan: IntervalJoin, translator: Translator) -> ir.IntervalJoin:
    is_event_time = not plan.is_processing_time
    return ir.IntervalJoin(
        uid=_uid(plan, "interval-join", translator),
        name="IntervalJoin",
        kind=plan.kind,
        left_keys=plan.left_keys,
        right_keys=plan.right_keys,
        null_safe=plan.null_safe,
        left_time=plan.left_time if is_event_time else None,
        right_time=plan.right_time if is_event_time else None,
        lower_ms=plan.lower_ms,
        upper_ms=plan.upper_ms,
        condition=plan.condition,
        left=schema_of(plan.left),
        right=schema_of(plan.right),
        output=schema_of(plan),
        watermark_delay_ms=watermark_delay_ms(plan),
    )


def _window_join(plan: WindowJoin, translator: Translator) -> ir.WindowJoin:
    return ir.WindowJoin(
        uid=_uid(plan, "window-join", translator),
        name="WindowJoin",
        kind=plan.kind,
        left_keys=plan.left_keys,
        right_keys=plan.right_keys,
        null_safe=plan.null_safe,
        left_end=plan.left_end,
        right_end=plan.right_end,
        window=aligned_window(plan.window, {}, translator.settings.local_time_zone),
        condition=plan.condition,
        left=schema_of(plan.left),
        right=schema_of(plan.right),
        output=schema_of(plan),
    )


def _temporal_join(plan: TemporalJoin, translator: Translator) -> ir.TemporalJoin:
    right = translator.streaming.of(plan.right).changelog
    return ir.TemporalJoin(
        uid=_uid(plan, "temporal-join", translator),
        name="TemporalJoin",
        kind=plan.kind,
        left_keys=plan.left_keys,
        right_keys=plan.right_keys,
        left_time=plan.left_time,
        right_time=plan.right_time,
        condition=plan.condition,
        left=schema_of(plan.left),
        right=schema_of(plan.right),
        left_changelog=translator.streaming.of(plan.left).changelog.mode,
        right_changelog=ChangelogMode.INSERT_ONLY if right.is_insert_only else ChangelogMode.UPSERT,
        output=schema_of(plan),
    )


def _layout(plan: _TimedJoin) -> str:
    """What the state consists of: rows of both sides by key and time, for outer joins also whether they had a partner,
    which the condition and the bounds decide."""
    parts: list[object] = [plan.kind.value, plan.left_keys, plan.right_keys]
    parts += [row_layout(plan.left), row_layout(plan.right)]
    match plan:
        case IntervalJoin(is_processing_time=True):
            parts.append("processing time")
        case IntervalJoin() | TemporalJoin():
            parts += [origin(plan.left, plan.left_time), origin(plan.right, plan.right_time)]
        case WindowJoin(window=window):
            parts += [plan.left_end, plan.right_end]
            parts += [window.kind.value, window.size_ms, window.step_ms, window.offset_ms]
    if isinstance(plan, IntervalJoin) and (plan.kind.is_left_outer or plan.kind.is_right_outer):
        parts += [plan.lower_ms, plan.upper_ms, condition_origin(plan.condition, plan.left, plan.right)]
    return repr(parts)
