"""Deriving stream properties from a plan, inputs first."""

from __future__ import annotations

from planner.ir.expressions import InputRef
from planner.ir.operators import ChangelogMode
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
    inputs_of,
)
from planner.streaming.properties import Changelog, Properties, StateBound, UpsertKey

_MODE_ORDER = (ChangelogMode.INSERT_ONLY, ChangelogMode.UPSERT, ChangelogMode.RETRACT)


def derive(plan: Plan) -> Properties:
    """The properties of the plan's root."""
    inputs = tuple(derive(i) for i in inputs_of(plan))
    return Properties(
        changelog=_changelog(inputs),
        upsert_keys=_upsert_keys(plan, inputs),
        emission=None,
        has_watermark=_has_watermark(plan, inputs),
        state=_state(plan),
    )


def _changelog(inputs: tuple[Properties, ...]) -> Changelog:
    """No operator makes updates of appends yet: a node carries what its most general input does."""
    if not inputs:
        return Changelog()
    return max((i.changelog for i in inputs), key=lambda c: _MODE_ORDER.index(c.mode))


def _upsert_keys(plan: Plan, inputs: tuple[Properties, ...]) -> frozenset[UpsertKey]:
    match plan:
        case Calc():
            return _kept_keys(plan, inputs[0].upsert_keys)
        case WindowAggregate():
            return _window_keys(plan)
        case Limit() | TableSink() | ResultSink() | WindowTableFunction():
            return inputs[0].upsert_keys
        case Scan() | UnionAll() | Values():
            # Appended rows may repeat a primary key, and branches of a union may share any key.
            return frozenset()


def _kept_keys(calc: Calc, keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """A projection keeps the keys of which it passes every column."""
    positions = {p.index: i for i, p in enumerate(calc.projections) if isinstance(p, InputRef)}
    return frozenset(frozenset(positions[c] for c in key) for key in keys if all(c in positions for c in key))


def _window_keys(node: WindowAggregate) -> frozenset[UpsertKey]:
    """Group keys and one window bound: each window of a key is put out once."""
    first_property = len(node.keys) + len(node.aggregates)
    bounds = range(first_property, first_property + len(node.properties))
    return frozenset(frozenset((*range(len(node.keys)), bound)) for bound in bounds)


def _has_watermark(plan: Plan, inputs: tuple[Properties, ...]) -> bool:
    if isinstance(plan, Scan):
        return plan.entry.watermark is not None
    return bool(inputs) and all(i.has_watermark for i in inputs)


def _state(plan: Plan) -> StateBound:
    match plan:
        case WindowAggregate():
            return StateBound.BY_WATERMARK
        case Limit():
            return StateBound.BY_CONSTANT
        case _:
            return StateBound.NONE
