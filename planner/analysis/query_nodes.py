"""Binding of sub-queries and OVER, which the query block around takes."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis.binder import Binder, Block
from planner.errors import SqlError, not_supported
from planner.ir.expressions import Expression
from planner.sql import nodes
from planner.sql.nodes import span_of, stamp

_SUBQUERIES = (nodes.ScalarQuery, nodes.ExistsTest, nodes.InQuery, nodes.QuantifiedTest)


def bind_subquery(binder: Binder, node: exp.Expr) -> Expression:
    return _block(binder, node, "a sub-query").subquery(node, binder)


def bind_in_query(binder: Binder, node: exp.Expr) -> Expression:
    values = listed_values(node)
    if values is not None:
        return binder.bind(values)
    return bind_subquery(binder, node)


def bind_over(binder: Binder, node: exp.Expr) -> Expression:
    return _block(binder, node, f"{node.this.args['name'].upper()}() OVER").rank(node, binder)


def _block(binder: Binder, node: exp.Expr, what: str) -> Block:
    if binder.block is None:
        raise _misplaced(binder, node, what)
    return binder.block


def _misplaced(binder: Binder, node: exp.Expr, what: str) -> SqlError:
    place = binder.aggregates_refused_in or "this place"
    hint = "Compute it in a query in FROM, and use its column here."
    if place == "ON":
        hint = f"Of an inner join it may stand in WHERE as well. Else: {hint[0].lower()}{hint[1:]}"
    return not_supported(f"{what} in {place}", span_of(node), hint)


def listed_values(node: exp.Expr) -> exp.In | None:
    """`x IN (VALUES 1, 2)` as `x IN (1, 2)`."""
    query = node.args["query"]
    is_plain = not any(query.args.get(clause) for clause in ("ctes", "order", "limit", "offset"))
    if not is_plain or not isinstance(query.this, nodes.ValuesQuery):
        return None
    rows: list[exp.Tuple] = query.this.args["rows"]
    is_row = isinstance(node.this, exp.Tuple)
    if not is_row and any(len(row.expressions) != 1 for row in rows):
        return None
    items = [row if is_row else row.expressions[0] for row in rows]
    span = span_of(node)
    return stamp(exp.In(this=node.this, expressions=items), span.start, span.end)


def has_subquery(node: exp.Expr) -> bool:
    """Whether a sub-query stands in the expression that is no list of values."""
    return any(isinstance(n, _SUBQUERIES) and not _is_listed(n) for n in walk_block(node))


def _is_listed(node: exp.Expr) -> bool:
    return isinstance(node, nodes.InQuery) and listed_values(node) is not None


def has_over(node: exp.Expr) -> bool:
    return any(isinstance(n, nodes.OverCall) for n in walk_block(node))


def walk_block(node: exp.Expr) -> list[exp.Expr]:
    """The nodes of an expression, without what is inside its sub-queries."""
    return list(node.walk(prune=lambda n: isinstance(n, nodes.QueryNode)))
