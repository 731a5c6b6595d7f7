"""Texts that are equal for nodes that compute the same, whatever names and places they have in a script."""

from __future__ import annotations

from planner.ir.expressions import canonical
from planner.logical.columns import Passing
from planner.logical.nodes import (
    Calc,
    ChangelogNormalize,
    Expand,
    GroupAggregate,
    Join,
    Limit,
    LookupJoin,
    Plan,
    ResultSink,
    Scan,
    SetOperation,
    TableSink,
    UnionAll,
    Values,
    WindowAggregate,
    WindowTableFunction,
    inputs_of,
)


def canonical_plan(plan: Plan) -> str:
    """A text equal for plans that compute the same from the same tables; options of tables are not part of it."""
    inputs = ", ".join(canonical_plan(i) for i in inputs_of(plan))
    if isinstance(plan, TableSink | ResultSink):
        return inputs
    return f"{canonical_node(plan)}({inputs})" if inputs else canonical_node(plan)


def canonical_node(plan: Plan) -> str:
    """The node alone, without its inputs."""
    match plan:
        case Scan():
            names = [f"{c.name}:{c.type.sql()}" for c in plan.columns]
            return f"scan({plan.path}, {names})"
        case ChangelogNormalize():
            return f"normalize({plan.keys}{'' if plan.delete_time is None else f', {plan.delete_time}'})"
        case Values():
            return f"values({[[canonical(e) for e in row] for row in plan.rows]})"
        case Calc():
            condition = canonical(plan.condition) if plan.condition is not None else ""
            return f"calc({condition}, {[canonical(p) for p in plan.projections]})"
        case WindowTableFunction():
            return f"window({plan.window!r})"
        case WindowAggregate():
            properties = [p.value for p in plan.properties]
            return f"window-aggregate({plan.keys}, {plan.aggregates!r}, {plan.window!r}, {properties})"
        case GroupAggregate():
            return f"group-aggregate({plan.keys}, {plan.aggregates!r})"
        case Expand():
            return f"expand({[[canonical(e) for e in p] for p in plan.projections]})"
        case UnionAll():
            return "union-all"
        case Limit():
            return f"limit({plan.count}, {plan.offset})"
        case TableSink() | ResultSink():
            return ""
        case SetOperation():
            return f"set-operation({plan.kind.value})"
        case _:
            return _passing_node(plan)


_NOT_COMPUTED = frozenset(
    {"left", "right", "input", "table", "condition", "columns", "place", "left_ttl_ms", "right_ttl_ms"}
)
"""Fields of nodes that say nothing of what is computed, or are shown apart."""


def _passing_node(plan: Passing) -> str:
    kind = type(plan).__name__
    shown = [f"{name}={getattr(plan, name)!r}" for name in plan.__struct_fields__ if name not in _NOT_COMPUTED]
    condition = getattr(plan, "condition", None)
    if condition is not None:
        shown.append(f"condition={canonical(condition)}")
    if isinstance(plan, LookupJoin):
        shown.append(f"table={canonical_node(plan.table)}")
    return f"{kind}({', '.join(shown)})"


def execution_options(plan: Plan) -> str:
    """What else two nodes must have in common to be one: options of tables, times to live."""
    match plan:
        case Scan(options=options) | LookupJoin(table=Scan(options=options)):
            return repr(sorted(options.items()))
        case GroupAggregate():
            return repr(plan.state_ttl_ms)
        case Join():
            return repr((plan.left_ttl_ms, plan.right_ttl_ms))
        case _:
            return ""
