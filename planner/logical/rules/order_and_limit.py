"""ORDER BY and LIMIT become a Top-N, or are what the whole query ends in.

Limit(n, m) over Sort            →   Rank(m + 1 .. m + n); in batch mode, at the top, below a Sort: its rows in order
Limit at the top, over inserts   →   stays: it ends the job
Limit elsewhere, or over changes →   Rank by arrival
Sort elsewhere                   →   goes: a table has no order
"""

from __future__ import annotations

from planner.errors import SqlError, SqlState
from planner.logical.nodes import Calc, Limit, Plan, Rank, ResultSink, Sort, TableSink, inputs_of, with_inputs
from planner.logical.ranks import limited
from planner.streaming.derive import Derivation


def order_and_limit(sink: Plan, is_batch: bool) -> Plan:
    """The tree of a sink with every Limit and Sort settled."""
    return _settled(sink, is_batch)


def _settled(plan: Plan, is_batch: bool) -> Plan:
    """As far down as rows come out as the query's: `plan` is the sink or a calc, Limit or Sort on the way to it."""
    match plan:
        case TableSink() | ResultSink() | Calc():
            return with_inputs(plan, (_settled(plan.input, is_batch),))
        case Limit():
            return _top_limit(plan, is_batch)
        case Sort():
            return _top_sort(plan, is_batch)
        case _:
            return _sub_query(plan)


def _top_limit(limit: Limit, is_batch: bool) -> Plan:
    below = _below_limit(limit.input)
    limit = Limit(below, limit.count, limit.offset, limit.columns)
    settled = limited(limit)
    rank = settled
    while isinstance(rank, Calc) and rank is not below:
        rank = rank.input
    if isinstance(rank, Rank) and not rank.order and Derivation(is_batch).of(below).changelog.is_insert_only:
        return limit
    if not is_batch or not isinstance(rank, Rank):
        return settled
    return _replaced(settled, rank, Sort(rank, rank.order, rank.columns))


def _replaced(plan: Plan, old: Plan, new: Plan) -> Plan:
    return new if plan is old else with_inputs(plan, (_replaced(inputs_of(plan)[0], old, new),))


def _top_sort(sort: Sort, is_batch: bool) -> Plan:
    below = _sub_query(sort.input)
    first = sort.order[0]
    type_ = sort.input.columns[first.index].type
    if not is_batch and type_.time_attribute is not None and not first.is_descending:
        # Rows come in the order of processing time.
        return below if type_.is_proctime else Sort(below, sort.order, sort.columns, sort.place)
    if is_batch:
        return Sort(below, sort.order, sort.columns, sort.place)
    message = "ORDER BY of a stream has no end to wait for: only an ascending time attribute can come first"
    hint = "LIMIT n gives the first n rows, kept up to date; bounded tables: SET 'execution.runtime-mode' = 'batch'."
    if sort.place is None:
        raise SqlError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    place = sort.place
    raise SqlError(SqlState.FEATURE_NOT_SUPPORTED, message, span=place.span, hint=hint, text=place.script)


def _sub_query(plan: Plan) -> Plan:
    """The tree of a sub-query: each Limit is a Top-N, and what only orders is gone."""
    match plan:
        case Limit():
            return limited(Limit(_below_limit(plan.input), plan.count, plan.offset, plan.columns))
        case Sort():
            return _sub_query(plan.input)
        case _:
            inputs = tuple(_sub_query(i) for i in inputs_of(plan))
            return with_inputs(plan, inputs) if inputs != inputs_of(plan) else plan


def _below_limit(plan: Plan) -> Plan:
    """What a LIMIT stands above: its order counts, also through projections."""
    match plan:
        case Sort():
            return with_inputs(plan, (_sub_query(plan.input),))
        case Calc(condition=None):
            return with_inputs(plan, (_below_limit(plan.input),))
        case _:
            return _sub_query(plan)
