"""Stable identities of operators: what keeps an operator's state through edits of a script, and what notices a change.

A uid is made of the sink table, the kind of operator, the key columns by origin and an ordinal among equals; a
source's of its table and connector. Position in the script, aliases and the text play no part. Beside it stand
three fingerprints: of the state's layout, of the plan below, and of the place outside that the state points at.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from planner.ir.expressions import Call, Expression, InputRef, canonical
from planner.ir.job_graph import Fingerprint
from planner.logical.nodes import (
    Calc,
    Limit,
    Plan,
    ResultSink,
    Scan,
    TableSink,
    UnionAll,
    Values,
    WindowAggregate,
    WindowTableFunction,
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
        case WindowAggregate():
            if index < len(plan.keys):
                return origin(plan.input, plan.keys[index])
            return plan.columns[index].name
        case WindowTableFunction():
            in_input = index < len(plan.input.columns)
            return origin(plan.input, index) if in_input else plan.columns[index].name
        case Limit() | TableSink() | ResultSink():
            return origin(plan.input, index)


def _expression_origin(expression: Expression, plan: Plan) -> str:
    match expression:
        case InputRef(index=index):
            return origin(plan, index)
        case Call(function=function, args=args):
            return f"{function}({', '.join(_expression_origin(a, plan) for a in args)})"
        case _:
            return canonical(expression)


def canonical_plan(plan: Plan) -> str:
    """A text equal for plans that compute the same from the same tables."""
    match plan:
        case Scan():
            names = [f"{c.name}:{c.type.sql()}" for c in plan.columns]
            return f"scan({plan.path}, {names})"
        case Values():
            rows = [[canonical(e) for e in row] for row in plan.rows]
            return f"values({rows})"
        case Calc():
            condition = canonical(plan.condition) if plan.condition is not None else ""
            projections = [canonical(p) for p in plan.projections]
            return f"calc({condition}, {projections}, {canonical_plan(plan.input)})"
        case WindowAggregate():
            return f"window-aggregate({aggregate_layout(plan)}, {plan.keys}, {canonical_plan(plan.input)})"
        case WindowTableFunction():
            return f"window({plan.window!r}, {canonical_plan(plan.input)})"
        case UnionAll():
            return f"union-all({[canonical_plan(i) for i in plan.inputs]})"
        case Limit():
            return f"limit({plan.count}, {plan.offset}, {canonical_plan(plan.input)})"
        case TableSink() | ResultSink():
            return canonical_plan(plan.input)


def aggregate_layout(plan: WindowAggregate) -> str:
    """What the state of a window aggregate consists of."""
    keys = [plan.input.columns[k].type.sql() for k in plan.keys]
    calls = [
        (c.function.value, c.argument_type.sql() if c.argument_type else "", c.type.sql(), c.filter is not None)
        for c in plan.aggregates
    ]
    return f"{keys}, {calls}, {plan.window.size_ms}, {plan.window.offset_ms}"


def location(options: dict[str, str]) -> str:
    """The options that say where outside the data is."""
    return repr([(key, options[key]) for key in _LOCATION_OPTIONS if key in options])


def fingerprint(uid: str, state: str, input_: str = "", location_: str = "") -> Fingerprint:
    return Fingerprint(uid, _digest(state), _digest(input_), _digest(location_))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
