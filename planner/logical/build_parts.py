"""What stands in expressions of a query block and is computed below them: ranks and values of sub-queries.

While expressions are bound, a part is only a placeholder; when they all are, each part is put on top of the block's
tree, in the order in which they were bound, and the placeholder becomes a column.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlglot import exp

from planner.analysis.binder import Binder
from planner.analysis.outer import FIRST_PART, part, replace_outer, replace_parts
from planner.errors import Span, SqlError, SqlState
from planner.ir.expressions import Call, Expression, InputRef, shift_inputs, substitute
from planner.ir.operators import AggregateFunction, JoinKind
from planner.logical.build_ranks import BoundRank, bind_rank, put_rank
from planner.logical.decorrelate import (
    TRUE,
    Decorrelated,
    Domain,
    equality_columns,
    lifted,
    over_nothing,
    plain_column,
    reads_outer,
    reordered,
)
from planner.logical.expressions import conjunction, identity
from planner.logical.joins import settle_joins
from planner.logical.nodes import Calc, Column, GroupAggregate, Join, Place, Plan
from planner.sql.nodes import span_of
from planner.streaming.derive import Derivation

ToPlan = Callable[[Expression], Expression]
"""An expression as it was bound, over the columns of the block's tree."""

_EXISTS = Column("$exists", TRUE.type)


class AggregateValue(msgspec.Struct, frozen=True):
    """The columns of a global aggregate, which is one row; part `first` + i is column i."""

    plan: GroupAggregate
    first: int
    place: Place


class RowValue(msgspec.Struct, frozen=True):
    """The only column of a tree of at most one row that reads nothing of this block."""

    plan: Plan
    first: int
    place: Place


class Marker(msgspec.Struct, frozen=True):
    """Whether a tree has a row."""

    plan: Plan
    first: int
    place: Place


class RankValue(msgspec.Struct, frozen=True):
    rank: BoundRank
    first: int


Part = AggregateValue | RowValue | Marker | RankValue


class Parts:
    """The parts of one block of the nest's `level`. `subqueries` binds a sub-query by these parts."""

    def __init__(
        self,
        level: int,
        script: str,
        subqueries: Callable[[Parts, exp.Expr, Binder], Expression],
        takes_ranks: bool = True,
    ) -> None:
        self.level = level
        self._takes_ranks = takes_ranks
        self.script = script
        self._subqueries = subqueries
        self._parts: list[Part] = []
        self._count = 0
        self.free_of_unknown: frozenset[int] = frozenset()
        """Nodes (by id) in whose place NULL and FALSE mean the same."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def has_ranks(self) -> bool:
        return any(isinstance(p, RankValue) for p in self._parts)

    # -- binding ------------------------------------------------------------------------------------

    def subquery(self, node: exp.Expr, binder: Binder) -> Expression:
        return self._subqueries(self, node, binder)

    def rank(self, node: exp.Expr, binder: Binder) -> Expression:
        if not self._takes_ranks:
            place = binder.aggregates_refused_in or "HAVING"
            message = f"{node.this.args['name'].upper()}() OVER cannot stand in {place}"
            hint = "Filter by ranks with QUALIFY, or compute them in a query in FROM."
            raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node), hint=hint)
        rank = bind_rank(node, binder, self.script)
        for known in self._parts:
            if isinstance(known, RankValue) and known.rank.identity() == rank.identity():
                return part(known.first, known.rank.type)
        self._parts.append(RankValue(rank, self._take(1)))
        return part(self._count - 1, rank.type)

    def aggregate(self, aggregate: GroupAggregate, span: Span) -> tuple[Expression, ...]:
        """What stands for the aggregate's columns."""
        first = self._known(AggregateValue, aggregate)
        if first is None:
            first = self._take(len(aggregate.columns))
            self._parts.append(AggregateValue(aggregate, first, Place(self.script, span)))
        return tuple(part(first + i, c.type) for i, c in enumerate(aggregate.columns))

    def row(self, plan: Plan, span: Span) -> Expression:
        first = self._known(RowValue, plan)
        if first is None:
            first = self._take(1)
            self._parts.append(RowValue(plan, first, Place(self.script, span)))
        return part(first, plan.columns[0].type.with_nullable(True))

    def marker(self, plan: Plan, span: Span) -> Expression:
        """Whether the tree has a row; never NULL."""
        first = self._known(Marker, plan)
        if first is None:
            first = self._take(1)
            self._parts.append(Marker(plan, first, Place(self.script, span)))
        return part(first, TRUE.type)

    def _known(self, kind: type[Part], plan: Plan) -> int | None:
        """The part that an equal sub-query has already."""
        for known in self._parts:
            if isinstance(known, kind) and not isinstance(known, RankValue) and known.plan == plan:
                return known.first
        return None

    def _take(self, count: int) -> int:
        self._count += count
        return self._count - count

    # -- putting on top -----------------------------------------------------------------------------

    def attached(self, plan: Plan, to_plan: ToPlan) -> tuple[Plan, ToPlan]:
        """The tree with all parts on top, its own columns first, and how bound expressions read it."""
        values: dict[int, Expression] = {}

        def resolved(expression: Expression) -> Expression:
            match expression:
                case InputRef(index=index) if index >= FIRST_PART:
                    bound = values[index - FIRST_PART]
                case _:
                    bound = replace_parts(to_plan(expression), values)
            return substitute(bound, identity(plan.columns))

        for part_ in self._parts:
            match part_:
                case RankValue():
                    plan, values[part_.first] = put_rank(plan, part_.rank, resolved)
                case AggregateValue():
                    width = len(plan.columns)
                    only = self._only_rows(part_.plan)
                    if only is not None:
                        plan = self._left_join_lifted(plan, only, resolved, part_.place)
                        values[part_.first] = InputRef(width, plan.columns[width].type)
                        continue
                    plan = self._left_joined(plan, part_.plan, resolved, part_.place)
                    for i in range(len(part_.plan.columns)):
                        reference = InputRef(width + i, plan.columns[width + i].type)
                        values[part_.first + i] = over_nothing(part_.plan, i, reference)
                case RowValue():
                    width = len(plan.columns)
                    plan = left_join(plan, part_.plan, None, part_.place)
                    values[part_.first] = InputRef(width, plan.columns[width].type)
                case Marker():
                    width = len(plan.columns)
                    plan = left_join(plan, *self._marked(plan, part_.plan, resolved, part_.place), part_.place)
                    reference = InputRef(width, plan.columns[width].type)
                    values[part_.first] = Call("IS_NOT_NULL", (reference,), TRUE.type)
        return plan, resolved

    def _marked(self, plan: Plan, subquery: Plan, resolved: ToPlan, place: Place) -> tuple[Plan, Expression | None]:
        """A tree of at most one row for each row of `plan`, there if the sub-query has a row; its first column is
        TRUE. And the condition of the join."""
        if not reads_outer(subquery, self.level):
            return existence(subquery), None
        found = lifted(subquery, self.level)
        keys = equality_columns(found.predicates) if found is not None else None
        if found is None or not keys:
            domain = Domain.of(plan, subquery, self.level, resolved, place)
            below = domain.applied(subquery)
            kept = tuple(range(len(below.columns) - domain.width, len(below.columns)))
            return domain.joined(_mark(below, kept), len(plan.columns))
        places = {key: len(plan.columns) + 1 + i for i, key in enumerate(keys)}
        return _mark(found.plan, keys), _condition(found.predicates, places, self.level, resolved)

    def _left_joined(self, plan: Plan, aggregate: GroupAggregate, resolved: ToPlan, place: Place) -> Plan:
        """`plan` LEFT JOIN an aggregate that may read it, whose columns come first among the new ones. Groups of
        nothing have no partner in the join, which stands for them."""
        if not reads_outer(aggregate, self.level):
            return left_join(plan, aggregate, None, place)
        found = lifted(aggregate, self.level)
        if found is None:
            domain = Domain.of(plan, aggregate, self.level, resolved, place)
            below, condition = domain.joined(domain.grouped(aggregate), len(plan.columns))
            return left_join(plan, below, condition, place)
        return self._left_join_lifted(plan, found, resolved, place)

    def _left_join_lifted(self, plan: Plan, found: Decorrelated, resolved: ToPlan, place: Place) -> Plan:
        """`plan` LEFT JOIN a sub-query, whose outputs come first among the new columns."""
        first = [o.index for o in found.outputs if isinstance(o, InputRef)]
        order = [*first, *(i for i in range(len(found.plan.columns)) if i not in first)]
        places = {i: len(plan.columns) + j for j, i in enumerate(order)}
        below = found.plan if order == sorted(order) else reordered(found.plan, order)
        return left_join(plan, below, _condition(found.predicates, places, self.level, resolved), place)

    def _only_rows(self, aggregate: GroupAggregate) -> Decorrelated | None:
        """What SINGLE_VALUE is asked of, if a key says that there is one row at most: then nothing need be counted."""
        if [call.function for call in aggregate.aggregates] != [AggregateFunction.SINGLE_VALUE]:
            return None
        found = lifted(aggregate.input, self.level)
        keys = equality_columns(found.predicates) if found is not None else None
        if found is None or keys is None or not isinstance(found.outputs[0], InputRef):
            return None
        known = Derivation().of(found.plan).upsert_keys
        return found if any(key <= set(keys) for key in known) else None


def semi_joined(plan: Plan, subquery: Plan, kind: JoinKind, level: int, resolved: ToPlan, place: Place) -> Plan:
    """The rows of `plan` for which the sub-query has a row (SEMI) or none (ANTI)."""
    width = len(plan.columns)
    if not reads_outer(subquery, level):
        below: Plan = existence(subquery)
        return Join(plan, below, kind, None, plan.columns, place=place)
    found = lifted(subquery, level)
    if found is None:
        domain = Domain.of(plan, subquery, level, resolved, place)
        below, condition = domain.joined(domain.applied(subquery), width)
    else:
        places = {i: width + i for i in range(len(found.plan.columns))}
        below, condition = found.plan, _condition(found.predicates, places, level, resolved)
    return Join(plan, below, kind, condition, plan.columns, place=place)


def existence(plan: Plan) -> GroupAggregate:
    """One row if the tree has any."""
    return GroupAggregate(Calc(plan, None, (TRUE,), (_EXISTS,)), (0,), (), (_EXISTS,))


def _mark(plan: Plan, keys: tuple[int, ...]) -> Plan:
    """TRUE beside each distinct row of `keys`."""
    columns = tuple(plain_column(plan.columns[k]) for k in keys)
    distinct = GroupAggregate(plan, keys, (), columns)
    return Calc(distinct, None, (TRUE, *identity(columns)), (_EXISTS, *columns))


def _condition(
    predicates: tuple[Expression, ...], places: dict[int, int], level: int, resolved: ToPlan
) -> Expression | None:
    """The predicates over the columns of the join: those of the sub-query are at `places`."""
    moved = (shift_inputs(p, places) for p in predicates)
    return conjunction(replace_outer(p, level, resolved) for p in moved)


def left_join(plan: Plan, right: Plan, condition: Expression | None, place: Place) -> Plan:
    padded = tuple(Column(c.name, c.type.with_nullable(True), c.lost) for c in right.columns)
    join = Join(plan, right, JoinKind.LEFT, condition, (*plan.columns, *padded), place=place)
    settled, _ = settle_joins(join, None)
    return settled
