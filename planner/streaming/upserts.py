"""Where a consumer that takes upserts by a key may go without −U, and without a normalised source."""

from __future__ import annotations

from planner.ir.expressions import Expression, Literal, input_indexes
from planner.ir.operators import ChangelogMode
from planner.logical.expressions import is_deterministic
from planner.logical.nodes import (
    Calc,
    ChangelogNormalize,
    Deduplicate,
    Expand,
    GroupAggregate,
    LookupJoin,
    Plan,
    Rank,
    Scan,
    TableSink,
    with_inputs,
)
from planner.streaming.derive import Derivation
from planner.streaming.kept_columns import kept_column
from planner.streaming.lookups import gives_one_row
from planner.streaming.properties import UpsertKey


def sink_key(sink: TableSink) -> tuple[int, ...]:
    """Positions of the sink table's primary key in the written row; empty without one."""
    if sink.entry.primary_key is None:
        return ()
    names = [c.name for c in sink.columns]
    return tuple(names.index(c) for c in sink.entry.primary_key.columns)


def upserts_suffice(plan: Plan, key: UpsertKey, derivation: Derivation) -> bool:
    """Whether a consumer that takes upserts by `key` needs no −U of `plan`: the key is an upsert key of what makes the
    updates, and no filter on the way reads a column outside it."""
    given = derivation.of(plan)
    if given.changelog.is_insert_only:
        return True
    match plan:
        case Scan() | ChangelogNormalize() | GroupAggregate() | Rank() | Deduplicate():
            return key in given.upsert_keys
        case Calc():
            below = _through(plan.projections, key)
            if below is None or not _reads_only(plan.condition, below):
                return False
            return upserts_suffice(plan.input, below, derivation)
        case LookupJoin():
            width = len(plan.input.columns)
            is_whole = gives_one_row(plan) and all(i < width for i in key)
            return is_whole and upserts_suffice(plan.input, key, derivation)
        case Expand():
            images = {_through(p, key) for p in plan.projections}
            below = images.pop() if len(images) == 1 else None
            is_told_apart = any(key >= k for k in given.upsert_keys)
            return below is not None and is_told_apart and upserts_suffice(plan.input, below, derivation)
        case _:
            return False


def _through(projections: tuple[Expression, ...], key: UpsertKey) -> UpsertKey | None:
    """The input columns that the key's columns pass on; a constant tells no rows apart. None if one is computed."""
    below: set[int] = set()
    for index in key:
        column = kept_column(projections[index])
        if column is not None:
            below.add(column)
        elif not isinstance(projections[index], Literal):
            return None
    return frozenset(below)


def _reads_only(condition: Expression | None, key: UpsertKey) -> bool:
    return condition is None or (input_indexes(condition) <= key and is_deterministic(condition))


def without_needless_normalization(sink: Plan) -> Plan:
    """The tree without the normalisation of its source, if its only use would be to complete changes for a sink that
    takes them by the same key as they come."""
    if not isinstance(sink, TableSink) or sink.capabilities.sink_changelog is not ChangelogMode.UPSERT:
        return sink
    if not upserts_suffice(sink.input, frozenset(sink_key(sink)), Derivation()):
        return sink
    return with_inputs(sink, (_without(sink.input),))


def _without(plan: Plan) -> Plan:
    match plan:
        case Calc():
            return with_inputs(plan, (_without(plan.input),))
        case ChangelogNormalize(input=Scan() as scan) if scan.capabilities.source_changelog is ChangelogMode.UPSERT:
            return scan
        case _:
            return plan
