"""What an operator's state consists of, in words: when a changed query meets a savepoint, the parts that differ are
named. The fingerprint of the state decides; these only explain it."""

from __future__ import annotations

from collections.abc import Iterable

from planner.catalog import ObjectPath
from planner.ir.job_graph import StatePart
from planner.ir.operators import AggregateCall, AggregateFunction, JoinKind, SortKey
from planner.logical.nodes import (
    AttachedWindow,
    Column,
    Deduplicate,
    GroupAggregate,
    IntervalJoin,
    Join,
    LookupJoin,
    Plan,
    Rank,
    Scan,
    SetOperation,
    Sort,
    TemporalJoin,
    Window,
    WindowAggregate,
    WindowJoin,
    WindowRank,
    inputs_of,
)
from planner.physical.uids import condition_origin, origin

_LENGTH_MAX = 120


def join_parts(
    plan: Join, left_unique_key: tuple[int, ...] | None, right_unique_key: tuple[int, ...] | None
) -> tuple[StatePart, ...]:
    """Of a regular join: see `join_layout`."""
    return (
        *_sides(plan, is_condition_kept=plan.kind is not JoinKind.INNER),
        _key_part("unique key of the left side", plan.left, left_unique_key),
        _key_part("unique key of the right side", plan.right, right_unique_key),
    )


def timed_join_parts(plan: IntervalJoin | TemporalJoin | WindowJoin) -> tuple[StatePart, ...]:
    """Bounds and condition decide what is noted of outer rows; those of others may change."""
    match plan:
        case IntervalJoin():
            is_outer = plan.kind.is_left_outer or plan.kind.is_right_outer
            times = ["processing time"] if plan.is_processing_time else _times(plan)
            parts = (*_sides(plan, is_condition_kept=is_outer), StatePart("times", tuple(times)))
            bounds = StatePart("bounds", (f"from {plan.lower_ms} ms to {plan.upper_ms} ms",))
            return (*parts, bounds) if is_outer else parts
        case TemporalJoin():
            return (*_sides(plan), StatePart("times", tuple(_times(plan))))
        case WindowJoin():
            return (*_sides(plan), StatePart("window", (_window(plan.window),)))


def rank_parts(plan: Rank | Deduplicate | WindowRank | Sort, *, is_retracting: bool) -> tuple[StatePart, ...]:
    rows = _rows("columns", plan.input)
    match plan:
        case Sort():
            return rows, _order(plan.input, plan.order)
        case Deduplicate():
            time = "arrival" if plan.is_processing_time else _column(plan.input, plan.time)
            kept = f"the {'last' if plan.keeps_last else 'first'} row by {time}"
            return rows, _key_part("PARTITION BY", plan.input, plan.keys), StatePart("row kept", (kept,))
    ranks = f"{plan.function.value} from {plan.first} to {plan.last}{' put out' if plan.puts_out_rank else ''}"
    parts = (
        rows,
        _key_part("PARTITION BY", plan.input, plan.keys),
        _order(plan.input, plan.order),
        StatePart("ranks", (ranks,)),
    )
    if isinstance(plan, WindowRank):
        return (*parts, StatePart("window", (_window(plan.window),)))
    return (*parts, _input_part(is_retracting))


def aggregate_parts(
    plan: WindowAggregate | GroupAggregate, *, from_partials: bool, is_retracting: bool
) -> tuple[StatePart, ...]:
    calls = tuple(_call(plan.input, call) for call in plan.aggregates)
    parts = [
        StatePart("keys", tuple(_typed(plan.input, key) for key in plan.keys)),
        StatePart("aggregates", calls),
        _input_part(is_retracting),
        StatePart("phases", ("two" if from_partials else "one",)),
    ]
    if isinstance(plan, WindowAggregate):
        parts.append(StatePart("window", (_window(plan.window),)))
    return tuple(parts)


def set_operation_parts(plan: SetOperation) -> tuple[StatePart, ...]:
    return StatePart("operation", (plan.kind.value,)), _rows("columns", plan)


def row_parts(
    columns: Iterable[Column], keys: tuple[int, ...], upsert_key: tuple[int, ...] | None = None, action: str = ""
) -> tuple[StatePart, ...]:
    """Of what keeps rows by a primary key."""
    shown = [(column.name, f"{column.name} {column.type.sql()}") for column in columns]
    parts = [
        StatePart("columns", tuple(text for _, text in shown)),
        StatePart("primary key", tuple(shown[key][0] for key in keys)),
    ]
    if upsert_key is not None:
        parts.append(StatePart("upsert key of the query", tuple(shown[key][0] for key in upsert_key)))
    if action:
        parts.append(StatePart("ON CONFLICT", (action,)))
    return tuple(parts)


# ---------------------------------------------------------------------------------------------------------- the pieces


def _sides(
    plan: Join | IntervalJoin | TemporalJoin | WindowJoin, *, is_condition_kept: bool = False
) -> tuple[StatePart, ...]:
    sides = (_rows("columns of the left side", plan.left), _rows("columns of the right side", plan.right))
    if not is_condition_kept:
        return sides
    condition = condition_origin(plan.condition, plan.left, plan.right)
    return (*sides, StatePart("condition", (_short(condition, plan),) if condition else ()))


def _rows(what: str, plan: Plan) -> StatePart:
    return StatePart(what, tuple(_typed(plan, i) for i in range(len(plan.columns))))


def _key_part(what: str, plan: Plan, key: tuple[int, ...] | None) -> StatePart:
    """No key at all and the key of no column are told apart: at most one row is something to know."""
    if key is None:
        return StatePart(what, ())
    return StatePart(what, tuple(_column(plan, i) for i in key) or ("()",))


def _order(plan: Plan, order: tuple[SortKey, ...]) -> StatePart:
    return StatePart("ORDER BY", tuple(_sort_key(plan, key) for key in order))


def _sort_key(plan: Plan, key: SortKey) -> str:
    nulls = "" if key.nulls_first is not key.is_descending else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
    return f"{_column(plan, key.index)}{' DESC' if key.is_descending else ''}{nulls}"


def _input_part(is_retracting: bool) -> StatePart:
    return StatePart("input", ("changes" if is_retracting else "inserts",))


def _call(plan: Plan, call: AggregateCall) -> str:
    argument = "" if call.argument is None else _column(plan, call.argument)
    if call.argument_type is not None:
        argument += f" {call.argument_type.with_nullable(True).sql()}"
    name = "COUNT" if call.function is AggregateFunction.COUNT_STAR else call.function.value
    filtered = "" if call.filter is None else f" FILTER ({_column(plan, call.filter)})"
    return f"{name}({'DISTINCT ' if call.distinct else ''}{argument or '*'}){filtered}"


def _times(plan: IntervalJoin | TemporalJoin) -> list[str]:
    return [_column(plan.left, plan.left_time), _column(plan.right, plan.right_time)]


def _window(window: Window | AttachedWindow) -> str:
    if isinstance(window, AttachedWindow):
        window = window.window
    step = f" by {window.step_ms} ms" if window.step_ms != window.size_ms else ""
    offset = f" from {window.offset_ms} ms" if window.offset_ms else ""
    return f"{window.kind.value} of {window.size_ms} ms{step}{offset}"


def _typed(plan: Plan, index: int) -> str:
    return f"{_column(plan, index)} {plan.columns[index].type.sql()}"


def _column(plan: Plan, index: int) -> str:
    return _short(origin(plan, index), plan)


def _short(text: str, plan: Plan) -> str:
    """Without catalogs and databases."""
    for path in sorted(_paths(plan), reverse=True):
        text = text.replace(f"{path}.", f"{path.name}.")
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…"


def _paths(plan: Plan) -> set[ObjectPath]:
    """Of the tables below. Parts of a plan may be shared."""
    paths, seen, waiting = set(), set(), [plan]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += inputs_of(node)
        if isinstance(node, Scan | LookupJoin):
            paths.add(node.path if isinstance(node, Scan) else node.table.path)
    return paths
