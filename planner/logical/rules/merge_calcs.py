"""Calc over Calc becomes one Calc; a Calc that changes nothing goes away.

    Calc(b > 1, [b]) over Calc(a > 0, [a, a + 1 AS b])   →   Calc(a > 0 AND a + 1 > 1, [a + 1])

A projection of constant rows becomes other constant rows. The lower filter comes first, so that what guarded an
expression below still guards it. A non-deterministic projection is never copied: then both stay.
"""

from __future__ import annotations

from planner.ir.expressions import substitute
from planner.logical.expressions import can_substitute, conjunction, identity
from planner.logical.nodes import Calc, Plan, Values
from planner.logical.rewrite import bottom_up


def merge_calcs(plan: Plan) -> Plan:
    return bottom_up(plan, _merge)


def _merge(node: Plan) -> Plan:
    if not isinstance(node, Calc):
        return node
    below = node.input
    if isinstance(below, Calc):
        upper = [*node.projections, *([node.condition] if node.condition is not None else [])]
        if not can_substitute(upper, below.projections):
            return node
        condition = node.condition
        if condition is not None:
            condition = substitute(condition, below.projections)
        projections = tuple(substitute(p, below.projections) for p in node.projections)
        node = Calc(below.input, conjunction((below.condition, condition)), projections, node.columns)
    if isinstance(below, Values) and node.condition is None:
        rows = tuple(tuple(substitute(p, row) for p in node.projections) for row in below.rows)
        if all(can_substitute(node.projections, row) for row in below.rows):
            return Values(rows, node.columns)
    if node.condition is None and node.projections == identity(node.input.columns):
        return node.input
    return node
