"""LATERAL (query) in FROM: a sub-query that reads the tables to its left, as a join with what it is for each of them.

FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 2) AS t
  →   a JOIN (the first 2 rows of b per k) ON b.k = a.k
"""

from __future__ import annotations

from collections.abc import Callable

from planner.analysis.outer import replace_outer
from planner.analysis.scope import Relation, Scope
from planner.errors import not_supported
from planner.ir.expressions import Expression, InputRef, input_indexes, shift_inputs, substitute
from planner.ir.operators import JoinKind
from planner.logical.build_joins import MakeBinder, Source, join_scope, joined, kind_of, place_of
from planner.logical.decorrelate import Domain, lifted, over_nothing, reads_outer
from planner.logical.expressions import conjunction, identity
from planner.logical.nodes import Calc, Column, GroupAggregate, Join, Place, Plan, inputs_of
from planner.sql import nodes
from planner.sql.nodes import span_of


def join_lateral(
    left: Source, query: Plan, relation: Relation, node: nodes.JoinTable, binder: MakeBinder, level: int
) -> Source:
    """`left` with the rows of `query`, in which $OUTER of `level` reads the columns of `left`."""
    right = Source(query, Scope((relation,)))
    if not reads_outer(query, level):
        return joined(left, right, node, binder)
    kind = kind_of(node)
    _check(node)
    condition, scope = join_scope(left.scope, right.scope, node, binder)
    columns = tuple(
        Column(below.name, column.type, column.lost)
        for below, column in zip((*left.plan.columns, *query.columns), scope.columns, strict=True)
    )
    empty = _empty_group_join(left.plan, query, place_of(node, binder), level)
    if empty is not None and (condition is None or kind is JoinKind.INNER):
        join, outputs = empty
        if condition is not None:
            condition = substitute(condition, (*identity(left.plan.columns), *outputs))
        return Source(Calc(join, condition, (*identity(left.plan.columns), *outputs), columns), scope)
    width = len(left.plan.columns)
    at_query = Place(place_of(node, binder).script, span_of(node.args["expression"]))
    below, on, outputs = _lifted_join(left.plan, query, kind, level) or _domain_join(left.plan, query, at_query, level)
    if condition is not None:
        condition = substitute(condition, (*identity(left.plan.columns), *outputs))
    padded = kind is JoinKind.LEFT
    passed = tuple(Column(c.name, c.type.with_nullable(c.type.nullable or padded), c.lost) for c in below.columns)
    join = Join(
        left.plan,
        below,
        kind,
        conjunction((on, condition)),
        (*left.plan.columns, *passed),
        place=place_of(node, binder),
    )
    shown = tuple(_retyped(o, columns[width + i]) for i, o in enumerate(outputs))
    return Source(Calc(join, None, (*identity(left.plan.columns), *shown), columns), scope)


def _retyped(output: Expression, column: Column) -> Expression:
    return InputRef(output.index, column.type) if isinstance(output, InputRef) else output


def _check(node: nodes.JoinTable) -> None:
    kind: str = node.args["kind"]
    place = span_of(node.args["expression"])
    if kind in ("RIGHT", "FULL"):
        hint = "It belongs to the row on its left: CROSS JOIN LATERAL, or LEFT JOIN LATERAL … ON TRUE."
        raise not_supported(f"{kind} JOIN LATERAL", place, hint)
    if node.args.get("natural") or node.args.get("using"):
        raise not_supported("NATURAL and USING with LATERAL", place, "Compare in ON or WHERE.")


def _empty_group_join(left: Plan, query: Plan, place: Place, level: int) -> tuple[Plan, tuple[Expression, ...]] | None:
    """A query of an aggregate without GROUP BY, which has one row for each of the left side: where the join finds
    none, its counts are 0 and the rest is NULL. With the query's columns over the join."""
    projections: tuple[Expression, ...] = identity(query.columns)
    while isinstance(query, Calc) and query.condition is None:
        projections = tuple(substitute(p, query.projections) for p in projections)
        query = query.input
    if not isinstance(query, GroupAggregate) or query.keys:
        return None
    found = lifted(query, level)
    if found is None:
        return None
    width = len(left.columns)
    padded = tuple(Column(c.name, c.type.with_nullable(True), c.lost) for c in found.plan.columns)
    of_join = _over_join(left, level)
    on = conjunction(of_join(p) for p in found.predicates)
    join = Join(left, found.plan, JoinKind.LEFT, on, (*left.columns, *padded), place=place)
    values: list[Expression] = []
    for i, output in enumerate(found.outputs):
        assert isinstance(output, InputRef)
        values.append(over_nothing(query, i, InputRef(width + output.index, padded[output.index].type)))
    return join, tuple(_of_left(substitute(p, tuple(values)), left, level) for p in projections)


def _of_left(expression: Expression, left: Plan, level: int) -> Expression:
    """The expression with $OUTER as columns of the left side."""
    return replace_outer(expression, level, lambda column: InputRef(column.index, left.columns[column.index].type))


def _over_join(left: Plan, level: int) -> Callable[[Expression], Expression]:
    """From an expression over the right side and $OUTER to one over the join."""
    width = len(left.columns)

    def moved(expression: Expression) -> Expression:
        own = shift_inputs(expression, {i: i + width for i in input_indexes(expression)})
        return _of_left(own, left, level)

    return moved


_Joinable = tuple[Plan, Expression | None, tuple[Expression, ...]]
"""What is joined with the left side, on which condition, and the query's columns over both."""


def _lifted_join(left: Plan, query: Plan, kind: JoinKind, level: int) -> _Joinable | None:
    """The query without its conditions on the left side, which become the join's."""
    if _has_empty_group(query):
        return None  # It has a row where nothing matches, which the join would not give.
    found = lifted(query, level)
    if found is None:
        return None
    if kind is JoinKind.LEFT and not all(isinstance(o, InputRef) for o in found.outputs):
        return None  # A computed column must be NULL where nothing matches.
    of_join = _over_join(left, level)
    return found.plan, conjunction(of_join(p) for p in found.predicates), tuple(of_join(o) for o in found.outputs)


def _has_empty_group(plan: Plan) -> bool:
    """Whether an aggregate without GROUP BY is in the query: it has a row over nothing, too."""
    if isinstance(plan, GroupAggregate) and not plan.keys:
        return True
    return any(_has_empty_group(below) for below in inputs_of(plan))


def _domain_join(left: Plan, query: Plan, place: Place, level: int) -> _Joinable:
    """The query for each distinct row of what it reads of the left side."""
    width = len(left.columns)

    def of_left(column: Expression) -> Expression:
        assert isinstance(column, InputRef)
        return InputRef(column.index, left.columns[column.index].type)

    domain = Domain.of(left, query, level, of_left, place)
    below, condition = domain.joined(domain.applied(query), width)
    return below, condition, tuple(InputRef(width + i, c.type) for i, c in enumerate(query.columns))
