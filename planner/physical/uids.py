"""Stable identities of operators: what keeps an operator's state through edits of a script, and what notices a change.

A uid is made of the sink table, the kind of operator, the key columns by origin and an ordinal among equals; a
source's of its table and connector. Position in the script, aliases and the text play no part. Beside it stand
three fingerprints: of the state's layout, of the plan below, and of the place outside that the state points at.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from planner.ir.expressions import Call, Expression, InputRef, Literal, canonical
from planner.ir.job_graph import Fingerprint, StatePart
from planner.ir.operators import AggregateCall
from planner.logical.columns import Passing
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    ChangelogNormalize,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    Limit,
    LookupJoin,
    Plan,
    ResultSink,
    Scan,
    SetOperation,
    TableSink,
    TemporalJoin,
    UnionAll,
    Unnest,
    Values,
    WindowAggregate,
    WindowJoin,
    WindowTableFunction,
    inputs_of,
)

_LOCATION_OPTIONS = ("connector", "topic", "topic-pattern", "path", "properties.bootstrap.servers")
_DIGEST_LENGTH = 16


class UidFactory:
    """Hands out uids, numbering equal ones in the order they are asked for."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def make(self, *parts: str) -> str:
        base = "/".join(parts)
        ordinal = self._used[base]
        self._used[base] += 1
        return f"{base}/{ordinal}"


def origin(plan: Plan, index: int) -> str:
    """Where a column comes from: `catalog.database.table.column`, or an expression over such columns."""
    match plan:
        case Scan():
            return f"{plan.path}.{plan.columns[index].name}"
        case Values():
            return f"values.{index}"
        case Calc():
            return _expression_origin(plan.projections[index], plan.input)
        case UnionAll():
            return origin(plan.inputs[0], index)
        case WindowAggregate() | GroupAggregate():
            if index < len(plan.keys):
                return origin(plan.input, plan.keys[index])
            call = index - len(plan.keys)
            if call < len(plan.aggregates):
                function, argument, *_ = _call_layout(plan.input, plan.aggregates[call])
                return f"{function}({argument})"
            return plan.columns[index].name
        case Expand():
            # The set that has the column decides; the others have NULL there.
            column = [p[index] for p in plan.projections]
            present = [e for e in column if not isinstance(e, Literal)]
            return _expression_origin(present[0], plan.input) if present else "grouping-id"
        case WindowTableFunction():
            in_input = index < len(plan.input.columns)
            return origin(plan.input, index) if in_input else plan.columns[index].name
        case Limit() | TableSink() | ResultSink() | ChangelogNormalize():
            return origin(plan.input, index)
        case SetOperation():
            return origin(plan.left, index)
        case _:
            return _passed_origin(plan, index)


def _passed_origin(plan: Passing, index: int) -> str:
    """Of a node that puts out its inputs' columns, then its own."""
    if isinstance(plan, Unnest):
        kept = plan.kept_columns
        if index < len(kept):
            return origin(plan.input, kept[index])
        return f"UNNEST({origin(plan.input, plan.collection)}).{index - len(kept)}"
    for below in inputs_of(plan):
        if index < len(below.columns):
            return origin(below, index)
        index -= len(below.columns)
    if isinstance(plan, LookupJoin):
        return origin(plan.table, index)
    return f"{type(plan).__name__}.{index}"


def _expression_origin(expression: Expression, plan: Plan) -> str:
    match expression:
        case InputRef(index=index):
            return origin(plan, index)
        case Call(function=function, args=args):
            return f"{function}({', '.join(_expression_origin(a, plan) for a in args)})"
        case _:
            return canonical(expression)


def aggregate_layout(
    plan: WindowAggregate | GroupAggregate, *, from_partials: bool, is_retracting: bool = False
) -> str:
    """What the state of an aggregate consists of: keys by type, a column per call and what it is a call of; merged
    partial aggregates are kept otherwise than rows taken in one by one."""
    keys = [plan.input.columns[k].type.sql() for k in plan.keys]
    calls = [_call_layout(plan.input, call) for call in plan.aggregates]
    layout = f"{keys}, {calls}, {'partials' if from_partials else 'rows'}"
    if isinstance(plan, GroupAggregate):
        return f"{layout}, {'retracting' if is_retracting else 'adding'}"
    window = plan.window.window if isinstance(plan.window, AttachedWindow) else plan.window
    retracting = ", retracting" if is_retracting else ""
    return f"{layout}, {window.kind.value}, {window.size_ms}, {window.step_ms}, {window.offset_ms}{retracting}"


def join_keys_origin(plan: Join | IntervalJoin | TemporalJoin | WindowJoin) -> str:
    """The keys of both sides by origin."""
    pairs = zip(plan.left_keys, plan.right_keys, strict=True)
    return "[" + ", ".join(f"{origin(plan.left, a)}={origin(plan.right, b)}" for a, b in pairs) + "]"


def row_layout(plan: Plan) -> str:
    """What whole rows in a state consist of: each column's origin and type."""
    return repr([(origin(plan, i), c.type.sql()) for i, c in enumerate(plan.columns)])


def condition_origin(condition: Expression | None, left: Plan, right: Plan) -> str:
    """A join's condition over its columns by origin; it decides how many partners a row has."""
    if condition is None:
        return ""
    width = len(left.columns)
    match condition:
        case InputRef(index=index):
            return f"left.{origin(left, index)}" if index < width else f"right.{origin(right, index - width)}"
        case Call(function=function, args=args):
            return f"{function}({', '.join(condition_origin(a, left, right) for a in args)})"
        case _:
            return canonical(condition)


def _call_layout(plan: Plan, call: AggregateCall) -> tuple[str, ...]:
    argument = origin(plan, call.argument) if call.argument is not None else ""
    argument_type = call.argument_type.sql() if call.argument_type is not None else ""
    filter_ = origin(plan, call.filter) if call.filter is not None else ""
    parts = (call.function.value, argument, argument_type, call.type.sql(), filter_)
    return (*parts, "distinct") if call.distinct else parts


def location(options: dict[str, str]) -> str:
    """The options that say where outside the data is."""
    return repr([(key, options[key]) for key in _LOCATION_OPTIONS if key in options])


def fingerprint(
    uid: str, state: str, input_: str = "", location_: str = "", parts: tuple[StatePart, ...] = ()
) -> Fingerprint:
    """`parts`: `state` in words."""
    return Fingerprint(uid, _digest(state), _digest(input_), _digest(location_), parts)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
