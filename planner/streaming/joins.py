"""Stream properties of regular joins and of set operations.

The rules of upsert keys are Flink's (FlinkRelMdUniqueKeys, FlinkRelMdUpsertKeys) with these differences: where changes
of one row may be parted, because the join key is no part of its key, the key with the join key added is one still; an
outer join of both sides has a key only if that tells its two kinds of padded rows apart; and a column that equals one
of the other side need not stand in a key beside it.
"""

from __future__ import annotations

from planner.ir.operators import JoinKind, SetOperationKind
from planner.ir.types import TypeRoot
from planner.logical.nodes import Calc, Join, Plan, SetOperation
from planner.streaming.kept_columns import kept_column
from planner.streaming.properties import Changelog, Deletes, Properties, StateBound, UpsertKey

_BOUNDS = (StateBound.BY_CONSTANT, StateBound.BY_TTL, StateBound.BY_INPUT, StateBound.BY_KEYS, StateBound.UNBOUNDED)
"""From what grows least to what grows most."""
_INEXACT = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


# -- changelogs ---------------------------------------------------------------------------------------


def join_changelog(kind: JoinKind, left: Changelog, right: Changelog) -> Changelog:
    """An inner join passes kinds on. A row padded with NULLs goes when its first partner comes; so does a row of an
    anti join. What the right side of a semi join takes back makes left rows go."""
    has_updates = left.has_updates or right.has_updates
    deletes = Deletes.FULL if left.deletes is not Deletes.NONE or right.deletes is not Deletes.NONE else Deletes.NONE
    if kind not in (JoinKind.INNER, JoinKind.SEMI) or (kind is JoinKind.SEMI and not right.is_insert_only):
        deletes = Deletes.FULL
    return Changelog(has_updates, has_updates, deletes)


def set_operation_changelog(kind: SetOperationKind, left: Changelog, right: Changelog) -> Changelog:
    """Rows are counted: they come and go. More rows on the right take rows away from EXCEPT."""
    is_except = kind in (SetOperationKind.EXCEPT, SetOperationKind.EXCEPT_ALL)
    stays = left.is_insert_only and right.is_insert_only and not is_except
    return Changelog(deletes=Deletes.NONE if stays else Deletes.FULL)


# -- unique and upsert keys ---------------------------------------------------------------------------


def unique_key(side: Properties, join_keys: tuple[int, ...]) -> tuple[int, ...] | None:
    """The columns under which at most one row of a join's input is there at a time: within the join key, if there are
    such; None if nothing is known."""

    def rank(key: UpsertKey) -> tuple[bool, int, list[int]]:
        return not key <= frozenset(join_keys), len(key), sorted(key)

    chosen = min(side.upsert_keys, key=rank, default=None)
    return None if chosen is None else tuple(sorted(chosen))


def join_upsert_keys(plan: Join, left: Properties, right: Properties) -> frozenset[UpsertKey]:
    """If a left row has one partner at most, the left keys hold for the output; else left and right ones together."""
    left_keys = _kept_together(plan.left, left, plan.left_keys)
    if not plan.kind.keeps_right:
        return left_keys
    width = len(plan.left.columns)
    right_keys = frozenset(_shifted(key, width) for key in _kept_together(plan.right, right, plan.right_keys))
    found = {a | b for a in left_keys for b in right_keys if _tells_apart(plan, a, b)}
    if _is_unique(right, plan.right_keys) and not plan.kind.is_right_outer:
        found |= left_keys
    if _is_unique(left, plan.left_keys) and not plan.kind.is_left_outer:
        found |= right_keys
    return _without_equals(plan, frozenset(found))


def _kept_together(plan: Plan, side: Properties, join_keys: tuple[int, ...]) -> frozenset[UpsertKey]:
    """The keys under which changes of one row stay in order behind an exchange by the join key. A row that is never
    changed stays in one place whatever the exchange."""
    if side.changelog.is_insert_only:
        return side.upsert_keys
    sources = [kept_column(p) for p in plan.projections] if isinstance(plan, Calc) else list(range(len(plan.columns)))
    found: set[UpsertKey] = set()
    for key in side.upsert_keys:
        told = {sources[i] for i in key}
        found.add(key | {i for i in join_keys if sources[i] is None or sources[i] not in told})
    return frozenset(found)


def _is_unique(side: Properties, join_keys: tuple[int, ...]) -> bool:
    return any(key <= frozenset(join_keys) for key in side.upsert_keys)


def _shifted(key: UpsertKey, by: int) -> UpsertKey:
    return frozenset(i + by for i in key)


def _tells_apart(plan: Join, left_key: UpsertKey, right_key: UpsertKey) -> bool:
    """Whether rows padded on the left differ in the key from those padded on the right: one has a value where the other
    has NULL."""
    if plan.kind is not JoinKind.FULL:
        return True
    below = (*plan.left.columns, *plan.right.columns)
    return any(not below[i].type.nullable for i in left_key | right_key)


def _without_equals(plan: Join, keys: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """The keys with one of two columns that the join makes equal, under the name of either side where neither is
    padded."""
    width = len(plan.left.columns)
    pairs = {
        right + width: left
        for left, right in zip(plan.left_keys, plan.right_keys, strict=True)
        if plan.left.columns[left].type.root not in _INEXACT
    }
    back = {left: right for right, left in pairs.items()}
    found: set[UpsertKey] = set()
    if plan.kind in (JoinKind.INNER, JoinKind.LEFT):
        found |= {frozenset(pairs.get(i, i) for i in key) for key in keys}
    if plan.kind in (JoinKind.INNER, JoinKind.RIGHT):
        found |= {frozenset(back.get(i, i) for i in key) for key in keys}
    return _smallest(found | keys)


def _smallest(keys: set[UpsertKey] | frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """Without those that contain another."""
    return frozenset(key for key in keys if not any(other < key for other in keys))


def set_operation_keys(plan: SetOperation, left: Properties, right: Properties) -> frozenset[UpsertKey]:
    """Rows of the output are rows of the left side; the exchange by all columns parts changes of one row. Without ALL
    there is each row once."""
    keys: set[UpsertKey] = set()
    if left.changelog.is_insert_only:
        keys |= left.upsert_keys
    if right.changelog.is_insert_only and plan.kind in (SetOperationKind.INTERSECT, SetOperationKind.INTERSECT_ALL):
        keys |= right.upsert_keys
    is_single = plan.kind in (SetOperationKind.INTERSECT, SetOperationKind.EXCEPT) or bool(left.upsert_keys)
    if is_single:
        keys.add(frozenset(range(len(plan.columns))))
    return _smallest(keys)


# -- constants ----------------------------------------------------------------------------------------


def join_constants(plan: Join, left: Properties, right: Properties) -> frozenset[int]:
    """Columns of one value on a side, unless the other side's rows are padded there."""
    found = frozenset[int]() if plan.kind.is_right_outer else left.constants
    if plan.kind.keeps_right and not plan.kind.is_left_outer:
        found |= _shifted(right.constants, len(plan.left.columns))
    return found


# -- state --------------------------------------------------------------------------------------------


def join_state(plan: Join, left: Properties, right: Properties, session_ttl_ms: int) -> StateBound:
    """Both sides are kept; the one that grows most says how the state grows."""
    sides = (
        (left, plan.left_keys, plan.left_ttl_ms),
        (right, plan.right_keys, plan.right_ttl_ms),
    )
    bounds = [_side_bound(*side, session_ttl_ms=session_ttl_ms) for side in sides]
    return max(bounds, key=_BOUNDS.index)


def _side_bound(side: Properties, join_keys: tuple[int, ...], ttl_ms: int | None, session_ttl_ms: int) -> StateBound:
    key = unique_key(side, join_keys)
    if key == ():
        return StateBound.BY_CONSTANT
    if session_ttl_ms if ttl_ms is None else ttl_ms:
        return StateBound.BY_TTL
    if side.is_bounded:
        return StateBound.BY_INPUT
    return StateBound.UNBOUNDED if key is None else StateBound.BY_KEYS
