"""From ROW_NUMBER, RANK and DENSE_RANK with a filter above, and from LIMIT, to operators that keep ranks.

    Calc(rn <= 3) over OverRank(ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn)   →   Rank(k, v DESC, 1..3)

The binder asks for it at each WHERE and QUALIFY, because what a rank becomes decides whether time attributes live on;
the rule `rank_filters` asks again for filters that were moved.
"""

from __future__ import annotations

import msgspec

from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal, input_indexes, substitute
from planner.ir.operators import RankFunction, SortKey, WindowProperty
from planner.logical.expressions import can_substitute, conjunction, identity, is_deterministic
from planner.logical.join_conditions import conjuncts, may_raise, reads_outer_query
from planner.logical.nodes import (
    Calc,
    Column,
    Deduplicate,
    Limit,
    OverRank,
    Plan,
    Rank,
    Sort,
    UnionAll,
    WindowKind,
    WindowRank,
    WindowTableFunction,
    with_inputs,
)
from planner.logical.rank_bounds import NO_BOUND, RANK_TYPE, RankRange, rank_range
from planner.logical.windows import WindowColumns, window_columns
from planner.streaming.derive import Derivation

_LOST = "a Top-N took rows back by later ones"
_NOT_PLAIN = (
    t.TypeRoot.FLOAT,
    t.TypeRoot.DOUBLE,
    t.TypeRoot.ARRAY,
    t.TypeRoot.MAP,
    t.TypeRoot.MULTISET,
    t.TypeRoot.ROW,
)
_FALSE = Literal(False, t.BOOLEAN.with_nullable(False))


class RankChain(msgspec.Struct, frozen=True):
    """An OverRank and the calcs above it, the uppermost first."""

    calcs: tuple[Calc, ...]
    over: OverRank

    def over_input(self, input_: Plan) -> Plan:
        """The same over another input of the OverRank."""
        plan: Plan = with_inputs(self.over, (input_,))
        for calc in reversed(self.calcs):
            plan = with_inputs(calc, (plan,))
        return plan


def rank_below(plan: Plan) -> RankChain | None:
    """The OverRank that `plan` is, or calcs over."""
    calcs: list[Calc] = []
    while isinstance(plan, Calc):
        calcs.append(plan)
        plan = plan.input
    return RankChain(tuple(calcs), plan) if isinstance(plan, OverRank) else None


def settled_ranks(plan: Plan) -> Plan:
    """The plan whose root, a filter, bounds the rank of an OverRank below it, with what keeps those ranks up to date
    instead; any other plan as it is. Columns stay the same in number, order and name; time attributes may be lost."""
    chain = rank_below(plan)
    if chain is None or not chain.calcs:
        return plan
    calcs, over = chain.calcs, chain.over
    bounds = RankRange()
    conditions: list[Expression | None] = []
    of_partitions: list[Expression] = []
    for i, calc in enumerate(calcs):
        kept: list[Expression] = []
        for conjunct in conjuncts(calc.condition):
            below = _below(conjunct, calcs[i + 1 :])
            found = rank_range(below, len(over.columns) - 1) if below is not None else None
            if found is not None:
                bounds = bounds.both(found)
            if below is not None and _keeps_partitions_whole(below, over):
                of_partitions.append(below)
            elif found is None or not found.is_exact:
                kept.append(conjunct)
        conditions.append(conjunction(kept))
    if bounds.last is None:
        return plan
    if of_partitions:
        passed = over.input.columns
        over = msgspec.structs.replace(
            over, input=Calc(over.input, conjunction(of_partitions), identity(passed), passed)
        )
    settled = ranked(over, bounds.first, bounds.last)
    for calc, condition in zip(reversed(calcs), reversed(conditions), strict=True):
        settled = _over(settled, condition, calc)
    return settled


def _below(conjunct: Expression, calcs: tuple[Calc, ...]) -> Expression | None:
    """A conjunct as it reads the columns below the projections of `calcs`."""
    for calc in calcs:
        if not can_substitute([conjunct], calc.projections):
            return None
        conjunct = substitute(conjunct, calc.projections)
    return conjunct


def _keeps_partitions_whole(condition: Expression, over: OverRank) -> bool:
    """Whether it is true of all rows of a partition or of none, so that the others need not be ranked. Numbers that are
    one key may still differ: 0.0 and -0.0."""
    read = input_indexes(condition)
    if not read or not read <= frozenset(over.keys) or may_raise(condition) or not is_deterministic(condition):
        return False
    types = [over.columns[i].type for i in read]
    is_plain = all(type_.root not in _NOT_PLAIN for type_ in types)
    return is_plain and not reads_outer_query(condition)


def _over(below: Plan, condition: Expression | None, calc: Calc) -> Plan:
    """The calc over another input, whose columns may have lost their time attributes."""
    if condition is not None:
        condition = _retyped(condition, below.columns)
    projections = tuple(_retyped(p, below.columns) for p in calc.projections)
    columns = tuple(
        msgspec.structs.replace(c, type=p.type, lost=below.columns[p.index].lost or c.lost)
        if isinstance(p, InputRef)
        else c
        for c, p in zip(calc.columns, projections, strict=True)
    )
    if condition is None and projections == identity(below.columns) and columns == below.columns:
        return below
    return Calc(below, condition, projections, columns)


def _retyped(expression: Expression, columns: tuple[Column, ...]) -> Expression:
    return substitute(expression, identity(columns))


# -- what a rank becomes ------------------------------------------------------------------------------


def ranked(over: OverRank, first: int, last: int) -> Plan:
    """The rows of ranks `first`..`last`, with the columns of `over`. A rank that is the same for all rows is a
    constant, and no operator puts it out."""
    if first > last:
        return Calc(over.input, _FALSE, (*identity(over.input.columns), Literal(1, RANK_TYPE)), over.columns)
    is_constant = first == last
    node = _node(over, first, last, puts_out_rank=not is_constant)
    if not is_constant:
        return node
    projections = (*identity(node.columns), Literal(first, RANK_TYPE))
    return Calc(node, None, projections, (*node.columns, over.columns[-1]))


def unbounded(plan: Plan) -> Plan:
    """A chain with the OverRank of which all ranks are put out."""
    chain = rank_below(plan)
    assert chain is not None
    settled = ranked(chain.over, 1, NO_BOUND)
    for calc in reversed(chain.calcs):
        settled = _over(settled, calc.condition, calc)
    return settled


def is_windowed(over: OverRank) -> bool:
    """Whether the ranks are of rows within a window: each is known for ever when the window ends."""
    return _is_insert_only(over.input) and _window_end(over) is not None


def _node(over: OverRank, first: int, last: int, puts_out_rank: bool) -> Plan:
    function, order = over.function, over.order
    passed = over.columns if puts_out_rank else over.columns[:-1]
    is_insert_only = _is_insert_only(over.input)
    is_first_row = last == 1 and function is RankFunction.ROW_NUMBER
    end = _window_end(over) if is_insert_only else None
    if end is not None:
        windows = window_columns(over.input)
        assert windows is not None
        keys = tuple(k for k in over.keys if k not in windows.properties)
        is_latest = is_first_row and len(order) == 1 and order[0].is_descending
        is_latest = is_latest and _is_window_time(over.input, order[0].index)
        bounds = (first, last, puts_out_rank, is_latest)
        return WindowRank(over.input, function, keys, end, windows.window, order, *bounds, passed)
    if is_first_row and is_insert_only and len(order) == 1:
        type_ = over.input.columns[order[0].index].type
        if type_.time_attribute is not None:
            time = 0 if type_.is_proctime else order[0].index
            return Deduplicate(over.input, over.keys, time, type_.is_proctime, order[0].is_descending, passed)
    return rank_of(over.input, function, over.keys, order, (first, last), puts_out_rank, passed)


def rank_of(
    input_: Plan,
    function: RankFunction,
    keys: tuple[int, ...],
    order: tuple[SortKey, ...],
    ranks: tuple[int, int],
    puts_out_rank: bool,
    columns: tuple[Column, ...],
) -> Rank:
    """A Top-N. Rows come in the order of processing time; what is taken back by later rows has no time attribute."""
    if order and input_.columns[order[0].index].type.is_proctime and not order[0].is_descending:
        # No two rows come at one time.
        order, function = (), RankFunction.ROW_NUMBER
    if order or not _is_insert_only(input_):
        columns = tuple(_demoted(c) for c in columns)
    return Rank(input_, function, keys, order, *ranks, puts_out_rank, columns)


def limited(limit: Limit) -> Plan:
    """LIMIT as a Top-N without partition: by the ORDER BY below it, or by arrival."""
    below = limit.input
    if isinstance(below, Calc) and below.condition is None and _has_order(below):
        moved = limited(Limit(below.input, limit.count, limit.offset, below.input.columns))
        return _over(moved, None, below)
    if limit.count == 0:
        # The order of no rows says nothing, and a Sort of its own could be one that streams cannot have.
        below = below.input if isinstance(below, Sort) else below
        return Calc(below, _FALSE, identity(below.columns), limit.columns)
    order: tuple[SortKey, ...] = ()
    if isinstance(below, Sort):
        order, below = below.order, below.input
    ranks = (limit.offset + 1, limit.offset + limit.count)
    return rank_of(below, RankFunction.ROW_NUMBER, (), order, ranks, False, limit.columns)


def _has_order(plan: Plan) -> bool:
    """Whether rows come from a Sort, through projections."""
    while isinstance(plan, Calc) and plan.condition is None:
        plan = plan.input
    return isinstance(plan, Sort)


def _demoted(column: Column) -> Column:
    if column.type.time_attribute is None:
        return column
    return Column(column.name, column.type.with_time_attribute(None), _LOST)


def _is_insert_only(plan: Plan) -> bool:
    return Derivation().of(plan).changelog.is_insert_only


# -- windows ------------------------------------------------------------------------------------------


def _window_end(over: OverRank) -> int | None:
    """The column of window ends, if each partition lies within one window of event time."""
    windows = window_columns(over.input)
    if windows is None or windows.window.time_type.is_proctime:
        return None
    if not any(_tells_windows_apart(windows, k) for k in over.keys):
        return None
    ends = [i for i, p in windows.properties.items() if p is WindowProperty.END]
    return min(ends, key=lambda i: (i not in over.keys, i), default=None)


def _tells_windows_apart(windows: WindowColumns, column: int) -> bool:
    """CUMULATE's windows share their starts."""
    match windows.properties.get(column):
        case None:
            return False
        case WindowProperty.START:
            return windows.window.kind is not WindowKind.CUMULATE
        case _:
            return True


def _is_window_time(plan: Plan, index: int) -> bool:
    """Whether the column is a time attribute, or was until a window function moved it to window_time."""
    if plan.columns[index].type.time_attribute is not None:
        return True
    match plan:
        case Calc():
            projection = plan.projections[index]
            return isinstance(projection, InputRef) and _is_window_time(plan.input, projection.index)
        case UnionAll():
            return all(_is_window_time(i, index) for i in plan.inputs)
        case WindowTableFunction():
            return index == plan.window.time_index
        case Deduplicate() | WindowRank():
            return index < len(plan.input.columns) and _is_window_time(plan.input, index)
        case _:
            return False
