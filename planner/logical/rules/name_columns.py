"""Columns of a join get names of their own where both sides have one: `k` and `k0`, as Flink names them.

Nothing but what is shown depends on it: nodes refer to columns by index.
"""

from __future__ import annotations

import msgspec

from planner.logical.columns import Passing
from planner.logical.nodes import Column, Plan, Unnest, inputs_of
from planner.logical.rewrite import bottom_up


def name_columns(plan: Plan) -> Plan:
    return bottom_up(plan, _named)


def _named(node: Plan) -> Plan:
    if not isinstance(node, Passing) or len(node.columns) < 2:
        return node
    if isinstance(node, Unnest):
        below = tuple(node.input.columns[i].name for i in node.kept_columns)
    else:
        below = tuple(c.name for i in inputs_of(node) for c in i.columns)[: len(node.columns)]
    names = (*below, *(c.name for c in node.columns[len(below) :]))
    columns = tuple(
        msgspec.structs.replace(column, name=name)
        for column, name in zip(node.columns, unique_names(names), strict=True)
    )
    return node if columns == node.columns else msgspec.structs.replace(node, columns=columns)


def unique_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, a repeated one with the first number that makes it unlike all others."""
    taken = set(names)
    seen: set[str] = set()
    found: list[str] = []
    for name in names:
        number, chosen = 0, name
        while chosen in seen or (chosen != name and chosen in taken):
            chosen, number = f"{name}{number}", number + 1
        seen.add(chosen)
        found.append(chosen)
    return tuple(found)


def joined_columns(left: tuple[Column, ...], right: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of both sides under names that differ."""
    columns = (*left, *right)
    names = unique_names(tuple(c.name for c in columns))
    return tuple(Column(name, c.type) for name, c in zip(names, columns, strict=True))
