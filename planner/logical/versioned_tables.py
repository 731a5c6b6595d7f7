"""Which tables and views have versions that a temporal join can look up, and what makes the versions.

A versioned table has a key and a time attribute; each row is what the key's row is from its time on. There are two
kinds: a table with PRIMARY KEY and WATERMARK, and a view that keeps the last row per key of a table with a WATERMARK.

    Calc(rate > 1, [k, rate, ts]) over Deduplicate(k, last by ts) over rates
      →   rates as versions of k by ts, shown by [k, rate, ts], valid where rate > 1

The deduplication goes: it would show the last version only, and none that comes late. A filter above the versions does
not choose among them. It says of a version whether the view shows it, so it must be asked after the version was found;
below, it would hide the version that ends another one. A filter of key columns alone may stay below.
"""

from __future__ import annotations

import msgspec

from planner.ir.expressions import Expression, InputRef, input_indexes, substitute
from planner.logical.expressions import can_substitute, conjunction, identity, is_deterministic
from planner.logical.join_conditions import conjuncts
from planner.logical.nodes import Calc, ChangelogNormalize, Deduplicate, Plan, Scan, WindowTableFunction
from planner.streaming.derive import Derivation, primary_key_positions


class VersionedTable(msgspec.Struct, frozen=True):
    """`rows` are the versions; `keys` the sets of their columns that are a key, `time` the time attribute. The view has
    `projections` of them as columns, and shows the versions that pass `filters`."""

    rows: Plan
    keys: tuple[tuple[int, ...], ...]
    time: int | None
    projections: tuple[Expression, ...]
    filters: tuple[Expression, ...]


def versioned_table(plan: Plan) -> VersionedTable | None:
    """What `plan` has of a versioned table. None if calcs in it cannot be taken apart."""
    projections: tuple[Expression, ...] = identity(plan.columns)
    condition: Expression | None = None
    below = plan
    while isinstance(below, Calc):
        upper = [*projections, *conjuncts(condition)]
        if not can_substitute(upper, below.projections):
            return None
        if condition is not None:
            condition = substitute(condition, below.projections)
        condition = conjunction((below.condition, condition))
        projections = tuple(substitute(p, below.projections) for p in projections)
        below = below.input
    keys: tuple[tuple[int, ...], ...]
    time: int | None
    if isinstance(below, Deduplicate) and below.keeps_last and not below.is_processing_time:
        keys, time, below = (below.keys,), below.time, below.input
    else:
        keys = _keys(below)
        shown = [p.index for p in projections if isinstance(p, InputRef)]
        time = next((i for i in (*shown, *range(len(below.columns))) if below.columns[i].type.is_rowtime), None)
    common = frozenset.intersection(*map(frozenset, keys)) if keys else frozenset()
    is_on_key = {id(p): input_indexes(p) <= common and is_deterministic(p) for p in conjuncts(condition)}
    lower = conjunction(p for p in conjuncts(condition) if is_on_key[id(p)])
    rows = below if lower is None else Calc(below, lower, identity(below.columns), below.columns)
    filters = tuple(p for p in conjuncts(condition) if not is_on_key[id(p)])
    return VersionedTable(rows, keys, time, projections, filters)


def _keys(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The declared primary key, also of a source of inserts, whose rows are its versions; else the derived keys."""
    match plan:
        case Scan():
            declared = primary_key_positions(plan)
            return (declared,) if declared is not None else ()
        case ChangelogNormalize():
            return (plan.keys,)
        case _:
            derived = Derivation().of(plan).upsert_keys
            return tuple(tuple(sorted(k)) for k in sorted(derived, key=lambda k: (len(k), sorted(k))))


def lost_time(plan: Plan) -> str:
    """Why a column of `plan` is no time attribute any more; empty if there never was one."""
    return next((c.lost for c in plan.columns if c.lost), "")


def table_name(plan: Plan) -> str:
    """What the user may know the rows of `plan` by."""
    while not isinstance(plan, Scan):
        if isinstance(plan, Calc | Deduplicate | ChangelogNormalize | WindowTableFunction):
            plan = plan.input
        else:
            return "the joined table"
    return f"`{plan.path.name}`"
