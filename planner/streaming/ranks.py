"""Stream properties of nodes that rank and order rows.

What a Top-N may call an update is a matter of its upsert keys: a row that takes another's place under one key is an
update of that key, a row that enters or leaves is an insert or a delete.
"""

from __future__ import annotations

from planner.ir.operators import RankFunction
from planner.logical.nodes import Deduplicate, Rank, Sort, WindowRank
from planner.logical.rank_bounds import NO_BOUND
from planner.streaming.properties import Changelog, Deletes, StateBound, UpsertKey

_INSERTS = Changelog()


def rank_changelog(plan: Rank, given: Changelog) -> Changelog:
    """Rows enter and leave. With its rank put out a row is replaced by another at that rank, or by itself at another
    rank; so is the one row of a partition. Over inserts a row number is never vacant again, and nothing leaves what
    was kept in the order of arrival."""
    if not plan.order and given.is_insert_only:
        return _INSERTS
    is_numbered = plan.function is RankFunction.ROW_NUMBER
    has_updates = plan.puts_out_rank or (is_numbered and plan.first == plan.last)
    stays = has_updates and is_numbered and given.is_insert_only
    return Changelog(has_updates, has_updates, Deletes.NONE if stays else Deletes.FULL)


def deduplicate_changelog(plan: Deduplicate) -> Changelog:
    """The first row to arrive stays; an earlier or a later one may come by event time."""
    if plan.is_processing_time and not plan.keeps_last:
        return _INSERTS
    return Changelog(has_updates=True, has_update_before=True)


def rank_keys(plan: Rank, given: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """The partition with the row number; or, where rows only enter and leave, the input's keys. These hold within a
    partition: a row that moves from one to another comes from two subtasks."""
    partition = frozenset(plan.keys)
    if plan.function is RankFunction.ROW_NUMBER:
        if plan.first == plan.last:
            return frozenset({partition})
        if plan.puts_out_rank:
            return frozenset({partition | {len(plan.input.columns)}})
    return frozenset(key | partition for key in given)


def window_rank_keys(plan: WindowRank, given: frozenset[UpsertKey]) -> frozenset[UpsertKey]:
    """As of a Top-N, within the window; rows stay what they are, so the input's keys hold as well."""
    partition = frozenset(plan.keys) | {plan.end}
    keys = set(given)
    if plan.function is RankFunction.ROW_NUMBER:
        if plan.first == plan.last:
            keys.add(partition)
        elif plan.puts_out_rank:
            keys.add(partition | {len(plan.input.columns)})
    return frozenset(keys)


def rank_state(plan: Rank | Deduplicate, given: Changelog, has_key: bool) -> StateBound:
    """What the state of a Top-N or a deduplication grows with, before TTL. `has_key`: the input has an upsert key."""
    if isinstance(plan, Rank):
        if not given.is_insert_only:
            # Any row may come up again when those before it are taken back.
            return StateBound.BY_KEYS if has_key else StateBound.UNBOUNDED
        if plan.last == NO_BOUND or plan.function is not RankFunction.ROW_NUMBER:
            # Rows of equal rank may be any number.
            return StateBound.UNBOUNDED
    return StateBound.BY_KEYS if plan.keys else StateBound.BY_CONSTANT


def sort_state(plan: Sort, is_batch: bool) -> StateBound:
    return StateBound.BY_INPUT if is_batch else StateBound.BY_WATERMARK
