"""How the state of an operator differs from what a changed query would keep, and what the user can do. Pure."""

from __future__ import annotations

from planner.ir import operators as ir
from planner.ir.job_graph import StatePart

_START_ANEW = "or start the statement without the savepoint."


def state_changes(then: tuple[StatePart, ...], now: tuple[StatePart, ...]) -> str:
    """The parts that differ, in words; empty if nothing is known of one of the two."""
    if not then or not now:
        return ""
    old, new = ({part.name: part.items for part in parts} for parts in (then, now))
    names = dict.fromkeys([*old, *new])
    changes = [_change(name, old.get(name, ()), new.get(name, ())) for name in names if old.get(name) != new.get(name)]
    return "; ".join(changes)


def _change(name: str, then: tuple[str, ...], now: tuple[str, ...]) -> str:
    if len(then) <= 1 and len(now) <= 1:
        return f"{name}: was {_listed(then)}, is {_listed(now)}"
    added, gone = _without(now, then), _without(then, now)
    if not added and not gone:
        return f"{name}: in another order"
    parts = [f"{word} {_listed(items)}" for word, items in (("new", added), ("missing", gone)) if items]
    return f"{name}: {', '.join(parts)}"


def _without(items: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """As bags."""
    left = list(others)
    kept = []
    for item in items:
        if item in left:
            left.remove(item)
        else:
            kept.append(item)
    return tuple(kept)


def _listed(items: tuple[str, ...]) -> str:
    return ", ".join(items) if items else "none"


def state_hint(operator: ir.Operator) -> str:
    """What an operator of this kind keeps, and what must stay therefore."""
    return f"State is never read as something else. {_kept(operator)}, {_START_ANEW}"


def _kept(operator: ir.Operator) -> str:
    match operator:
        case ir.Join():
            return (
                "A join keeps of each side the columns that the query reads of it, with what is known to be unique in "
                "them: read the same columns"
            )
        case ir.IntervalJoin() | ir.TemporalJoin() | ir.WindowJoin():
            return (
                "A join keeps of each side the columns that the query reads of it, as long as its times say: read the "
                "same columns, and leave times, bounds and windows as they were"
            )
        case ir.Rank() | ir.WindowRank() | ir.Sort():
            return (
                "It keeps rows with the columns that the query reads: read the same ones, and leave PARTITION BY, "
                "ORDER BY and the bound of the rank as they were"
            )
        case ir.Deduplicate():
            return (
                "Deduplication keeps a row per key with the columns that the query reads: read the same ones, and "
                "leave PARTITION BY and the order as they were"
            )
        case ir.SetOperation():
            return "A set operation keeps whole rows of both sides: leave its kind and their columns as they were"
        case ir.SinkMaterializer():
            return (
                "Rows are kept by the primary key of the sink because the query has another key: leave the sink's "
                "columns, its key, ON CONFLICT and the query's key as they were"
            )
        case ir.ChangelogNormalize():
            return "The last row of each primary key is kept: leave the columns that are read and the key as they were"
        case _:
            return (
                "Keep the operator's keys, aggregates and window as they were, and the settings of mini-batch and "
                "aggregation phases"
            )
