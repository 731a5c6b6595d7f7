"""Which columns of its inputs a node reads for its own work, and the node over inputs whose columns have moved.

One description for all nodes that put out the columns of their inputs, followed by their own: joins, ranks, UNNEST.
Fields that name columns of an input are listed here once; passes over plans need not know each kind of node.
"""

from __future__ import annotations

import msgspec

from planner.ir.expressions import input_indexes, shift_inputs
from planner.ir.operators import SortKey
from planner.logical.nodes import (
    AsOfJoin,
    Column,
    Deduplicate,
    IntervalJoin,
    Join,
    LookupJoin,
    OverRank,
    Plan,
    Rank,
    Sort,
    TemporalJoin,
    Unnest,
    WindowJoin,
    WindowRank,
    inputs_of,
    with_inputs,
)

Passing = (
    Join
    | AsOfJoin
    | IntervalJoin
    | TemporalJoin
    | WindowJoin
    | LookupJoin
    | Unnest
    | OverRank
    | Rank
    | Deduplicate
    | WindowRank
    | Sort
)
"""Nodes whose output is the columns of the input or of both, in their order, then what they append."""

ColumnMapping = dict[int, int]

_FIELDS: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("left_keys", "left_time", "left_end", "as_of", "keys", "order", "time", "end", "collection"),
    ("right_keys", "right_time", "right_end"),
)
"""Names of the fields that hold columns of input 0, and of input 1."""
_TIMES = ("left_time", "right_time", "time")
"""Mean nothing where `is_processing_time` is set."""


def read_columns(plan: Passing) -> tuple[frozenset[int], ...]:
    """Per input, the columns that the node's own work needs."""
    width = len(inputs_of(plan)[0].columns)
    found = [{index for name in _names(plan, side) for index in _indexes(getattr(plan, name))} for side in (0, 1)]
    condition = getattr(plan, "condition", None)
    if condition is not None:
        for index in input_indexes(condition):
            found[index >= width].add(index - width if index >= width else index)
    return tuple(frozenset(columns) for columns in found[: len(inputs_of(plan))])


def moved(
    plan: Passing, inputs: tuple[Plan, ...], mappings: tuple[ColumnMapping, ...], columns: tuple[Column, ...]
) -> Plan:
    """The node over `inputs`: what was column i of input j is `mappings[j][i]` there. `columns` are its new output."""
    changed: dict[str, object] = {"columns": columns}
    for side, mapping in enumerate(mappings):
        for name in _names(plan, side):
            changed[name] = _moved_value(getattr(plan, name), mapping)
    condition = getattr(plan, "condition", None)
    if condition is not None:
        changed["condition"] = shift_inputs(condition, _both(plan, inputs, mappings))
    return msgspec.structs.replace(with_inputs(plan, inputs), **changed)


def _both(plan: Passing, inputs: tuple[Plan, ...], mappings: tuple[ColumnMapping, ...]) -> ColumnMapping:
    """Where the columns that a condition reads have gone; the table of a lookup join stays as it is."""
    width, new_width = len(inputs_of(plan)[0].columns), len(inputs[0].columns)
    if len(mappings) > 1:
        right = mappings[1]
    else:
        right = {i: i for i in range(len(plan.table.columns))} if isinstance(plan, LookupJoin) else {}
    return {**mappings[0], **{width + old: new_width + new for old, new in right.items()}}


def _names(plan: Passing, side: int) -> list[str]:
    is_timeless = getattr(plan, "is_processing_time", False)
    fields = plan.__struct_fields__
    return [n for n in _FIELDS[side] if n in fields and not (is_timeless and n in _TIMES)]


def _indexes(value: object) -> list[int]:
    match value:
        case int():
            return [value]
        case SortKey(index=index):
            return [index]
        case tuple():
            return [index for part in value for index in _indexes(part)]
        case _:
            return []


def _moved_value(value: object, mapping: ColumnMapping) -> object:
    match value:
        case int():
            return mapping[value]
        case SortKey(index=index):
            return msgspec.structs.replace(value, index=mapping[index])
        case tuple():
            return tuple(_moved_value(part, mapping) for part in value)
        case _:
            return value
