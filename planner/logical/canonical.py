"""Texts that are equal for nodes that compute the same, whatever names and places they have in a script."""

from __future__ import annotations

from planner.ir.expressions import canonical
from planner.logical.nodes import (
    Calc,
    ChangelogNormalize,
    Expand,
    GroupAggregate,
    Limit,
    Plan,
    ResultSink,
    Scan,
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
            return f"normalize({plan.keys})"
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
