"""A join whose condition bounds the distance of two time attributes keeps rows only as long as partners may come.

    Join(b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts)   →   IntervalJoin(lower_ms=-5000, upper_ms=0)

Whatever way the bounds are written, they come to `lower_ms <= right time - left time <= upper_ms`; `<` and `>` shift
them by the one millisecond that time attributes are counted in. Of several bounds the tightest hold. What is no bound
stays a condition; so does a bound by months, whose length only the row knows: it bounds by the longest.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, input_indexes, shift_inputs
from planner.ir.joins import JoinKind
from planner.ir.types import TypeRoot
from planner.logical.expressions import conjunction
from planner.logical.join_conditions import conjuncts
from planner.logical.nodes import Calc, Column, IntervalJoin, Join, Plan
from planner.logical.rules.fold_literals import fold
from planner.logical.time_attributes import demoted, spread_ms

BOUND_MS_MAX = 2**53
"""No two timestamps are farther apart, so a wider bound is none; it can be added to any of them."""
_FLIPPED = {"EQ": "EQ", "LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}
_DAY_MS = 86_400_000
_MONTH_DAYS = (28, 31)
_KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)


class _Range(NamedTuple):
    """A length of time: an exact one, or the least and the most that it can be."""

    least_ms: int
    most_ms: int

    def plus(self, other: _Range) -> _Range:
        return _Range(self.least_ms + other.least_ms, self.most_ms + other.most_ms)

    def negated(self) -> _Range:
        return _Range(-self.most_ms, -self.least_ms)


class _Moment(NamedTuple):
    """A time attribute and a constant distance from it."""

    column: InputRef
    offset: _Range


class _Bound(NamedTuple):
    """What one conjunct says of `right time - left time`; the columns are the join's. `is_exact`: it says no more."""

    left: int
    right: int
    lower_ms: int | None
    upper_ms: int | None
    is_exact: bool


def interval_join(join: Join) -> IntervalJoin | None:
    """The interval join that `join`, whose equalities are taken out as keys, is; None if it is none."""
    if join.kind not in _KINDS:
        return None
    width = len(join.left.columns)
    parts = conjuncts(join.condition)
    bounds = [_bound(c, width) for c in parts]
    key_bounds = [None if s else _bound(_key_equality(join, i), width) for i, s in enumerate(join.null_safe)]
    pair = _bounded_pair([b for b in (*key_bounds, *bounds) if b is not None])
    if pair is None:
        return None
    left_time, right_time = pair
    own = [b for b in (*key_bounds, *bounds) if b is not None and (b.left, b.right) == pair]
    is_processing_time = join.left.columns[left_time].type.is_proctime
    keys = _remaining_keys([b is not None and b in own and b.is_exact for b in key_bounds], is_processing_time)
    return IntervalJoin(
        left=join.left,
        right=join.right,
        kind=join.kind,
        left_keys=tuple(join.left_keys[i] for i in keys),
        right_keys=tuple(join.right_keys[i] for i in keys),
        null_safe=tuple(join.null_safe[i] for i in keys),
        left_time=0 if is_processing_time else left_time,
        right_time=0 if is_processing_time else right_time - width,
        is_processing_time=is_processing_time,
        lower_ms=_clamped(max(b.lower_ms for b in own if b.lower_ms is not None)),
        upper_ms=_clamped(min(b.upper_ms for b in own if b.upper_ms is not None)),
        condition=conjunction(
            p for p, b in zip(parts, bounds, strict=True) if b is None or b not in own or not b.is_exact
        ),
        columns=_columns(join, left_time, right_time, is_processing_time),
        place=join.place,
    )


def _key_equality(join: Join, key: int) -> Expression:
    """A key as a condition over both sides' columns."""
    left = _key_value(join.left, join.left_keys[key])
    right = _key_value(join.right, join.right_keys[key])
    width = len(join.left.columns)
    shifted = shift_inputs(right, {i: i + width for i in input_indexes(right)})
    return Call("EQ", (left, shifted), t.BOOLEAN)


def _key_value(side: Plan, key: int) -> Expression:
    """A key column, or what it was computed of if the side still has all that it reads."""
    reference = InputRef(key, side.columns[key].type)
    if not isinstance(side, Calc) or isinstance(side.projections[key], InputRef):
        return reference
    found = {p.index: i for i, p in reversed(list(enumerate(side.projections))) if isinstance(p, InputRef)}
    computed = side.projections[key]
    return shift_inputs(computed, found) if input_indexes(computed) <= found.keys() else reference


def _remaining_keys(is_bound: list[bool], is_processing_time: bool) -> list[int]:
    """An equality of the time attributes is a bound. As a key it spreads rows, if there is no other."""
    others = [i for i, bound in enumerate(is_bound) if not bound]
    return others if others or is_processing_time else list(range(len(is_bound)))


def _bounded_pair(bounds: list[_Bound]) -> tuple[int, int] | None:
    """The first two time attributes whose distance is bounded from both ends."""
    for bound in bounds:
        own = [b for b in bounds if (b.left, b.right) == (bound.left, bound.right)]
        if any(b.lower_ms is not None for b in own) and any(b.upper_ms is not None for b in own):
            return bound.left, bound.right
    return None


def _bound(conjunct: Expression, width: int) -> _Bound | None:
    """The bound that a comparison of a time of the left side (its columns are below `width`) with one of the right side
    is."""
    if not isinstance(conjunct, Call) or conjunct.function not in _FLIPPED:
        return None
    function = conjunct.function
    first, second = _moment(conjunct.args[0]), _moment(conjunct.args[1])
    if first is None or second is None:
        return None
    if first.column.index >= width:
        first, second, function = second, first, _FLIPPED[function]
    left, right = first.column, second.column
    if not left.index < width <= right.index or not _are_comparable(left, right):
        return None
    # left + first.offset <function> right + second.offset
    least, most = first.offset.plus(second.offset.negated())
    lower = {"EQ": least, "LTE": least, "LT": least + 1}.get(function)
    upper = {"EQ": most, "GTE": most, "GT": most - 1}.get(function)
    return _Bound(left.index, right.index, lower, upper, least == most)


def _are_comparable(left: InputRef, right: InputRef) -> bool:
    """Both of event time, or both of processing time, and counted alike."""
    return left.type.time_attribute is right.type.time_attribute and left.type.root is right.type.root


def _is_time_attribute(column: InputRef) -> bool:
    return column.type.time_attribute is not None


def _moment(expression: Expression) -> _Moment | None:
    match expression:
        case InputRef() if _is_time_attribute(expression):
            return _Moment(expression, _Range(0, 0))
        case (
            Call(function="PLUS_INTERVAL", args=(time, interval))
            | Call(function="INTERVAL_PLUS", args=(interval, time))
        ):
            return _moved(_moment(time), _length(interval))
        case Call(function="MINUS_INTERVAL", args=(time, interval)):
            length = _length(interval)
            return _moved(_moment(time), length.negated() if length is not None else None)
        case _:
            return None


def _moved(moment: _Moment | None, length: _Range | None) -> _Moment | None:
    if moment is None or length is None:
        return None
    if length.least_ms != length.most_ms and moment.column.type.root is TypeRoot.TIMESTAMP_LTZ:
        # Months are counted in local time, whose zone may change its offset on the way.
        length = length.plus(_Range(-_DAY_MS, _DAY_MS))
    return _Moment(moment.column, moment.offset.plus(length))


def _length(interval: Expression) -> _Range | None:
    """The length of a constant interval."""
    folded = fold(interval)
    if isinstance(folded, Call) and folded.function == "NEGATE_INTERVAL":
        length = _length(folded.args[0])
        return length.negated() if length is not None else None
    if not isinstance(folded, Literal) or not isinstance(folded.value, int):
        return None
    match folded.type.root:
        case TypeRoot.INTERVAL_DAY_TIME:
            return _Range(folded.value, folded.value)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            lengths = [folded.value * days * _DAY_MS for days in _MONTH_DAYS]
            return _Range(min(lengths), max(lengths))
        case _:
            return None


def _clamped(bound_ms: int) -> int:
    return max(-BOUND_MS_MAX, min(BOUND_MS_MAX, bound_ms))


# -- event time above ---------------------------------------------------------------------------------


def _columns(join: Join, left_time: int, right_time: int, is_processing_time: bool) -> tuple[Column, ...]:
    """The output's columns: a time attribute stays one if it is known how far it may be behind the watermark."""
    width = len(join.left.columns)
    columns = list(join.columns)
    for i, column in enumerate(columns):
        if not column.type.is_rowtime:
            continue
        if is_processing_time:
            columns[i] = demoted(column, "a join by processing time holds rows back without regard to it")
            continue
        side, time, own = (join.left, left_time, i) if i < width else (join.right, right_time - width, i - width)
        if spread_ms(side, time, own) is None:
            compared = columns[left_time if i < width else right_time].name
            columns[i] = demoted(column, f"an interval join held rows back by `{compared}`, without regard to it")
    return tuple(columns)


def watermark_delay_ms(join: IntervalJoin) -> int:
    """How far time attributes of the output may be behind the watermark of the input.

    A row of the left side meets partners that are not late until the watermark is at its time + upper_ms, one of the
    right side until it is at its time - lower_ms; a row without partner is padded 1 ms later.
    """
    if join.is_processing_time:
        return 0
    width = len(join.left.columns)
    left_waits = max(0, join.upper_ms + join.kind.is_left_outer)
    right_waits = max(0, -join.lower_ms + join.kind.is_right_outer)
    delays = [left_waits, right_waits]
    for i, column in enumerate(join.columns):
        if column.type.is_rowtime and i < width:
            delays.append(left_waits + (spread_ms(join.left, join.left_time, i) or 0))
        elif column.type.is_rowtime:
            delays.append(right_waits + (spread_ms(join.right, join.right_time, i - width) or 0))
    return max(delays)
