"""What a stream is behind UNNEST."""

from __future__ import annotations

import msgspec

from planner.ir.types import TypeRoot
from planner.logical.nodes import Unnest
from planner.streaming.properties import Changelog, Deletes, UpsertKey


def unnest_changelog(below: Changelog) -> Changelog:
    """The kinds of the input pass through. An update may leave fewer elements, whose −U no +U follows."""
    if not below.has_updates:
        return below
    return msgspec.structs.replace(below, deletes=Deletes.FULL)


def unnest_keys(plan: Unnest, keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """A key of the input with what tells the elements of one row apart: the ordinality, or the key in a map. Nothing
    does without them."""
    kept = plan.kept_columns
    marker: int | None = None
    if plan.with_ordinality:
        marker = len(plan.columns) - 1
    elif plan.input.columns[plan.collection].type.root is TypeRoot.MAP:
        marker = len(kept)
    if marker is None:
        return frozenset()
    positions = {column: i for i, column in enumerate(kept)}
    passed = (key for key in keys if all(c in positions for c in key))
    return frozenset(frozenset(positions[c] for c in key) | {marker} for key in passed)


def unnest_constants(plan: Unnest, constants: frozenset[int]) -> frozenset[int]:
    """Columns of one value stay so."""
    return frozenset(i for i, column in enumerate(plan.kept_columns) if column in constants)
