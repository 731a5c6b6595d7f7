"""Applying a rewrite to every node of a tree, inputs first."""

from __future__ import annotations

from collections.abc import Callable

from planner.logical.nodes import Plan, inputs_of, with_inputs


def bottom_up(plan: Plan, rewrite: Callable[[Plan], Plan]) -> Plan:
    """`plan` with `rewrite` applied to each node after its inputs were rewritten."""
    inputs = inputs_of(plan)
    rewritten = tuple(bottom_up(i, rewrite) for i in inputs)
    if rewritten != inputs:
        plan = with_inputs(plan, rewritten)
    return rewrite(plan)
