"""From expression syntax to typed IR. The list of accepted nodes is closed: any other is an internal error.

One binder serves one place of a query (a WHERE, a select list, …) and knows the scope there.
`planner.analysis.grouping` derives the binder for expressions above GROUP BY.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from planner.analysis import call_nodes, leaves, operator_nodes, operators, query_nodes
from planner.analysis.binder import Binder, Block
from planner.analysis.outer import OuterNames
from planner.analysis.scope import Scope
from planner.errors import SqlError, SqlState
from planner.ir.expressions import Expression, InputRef, walk
from planner.sql import nodes
from planner.sql.nodes import span_of

_Handler = Callable[[Binder, exp.Expr], Expression]
_HANDLERS: dict[type[exp.Expr], _Handler] = {
    nodes.NamePath: leaves.bind_path,
    exp.Literal: leaves.bind_literal,
    exp.Null: leaves.bind_null,
    exp.Boolean: leaves.bind_boolean,
    exp.HexString: leaves.bind_hex_string,
    nodes.TemporalLiteral: leaves.bind_temporal,
    nodes.IntervalLiteral: leaves.bind_interval,
    nodes.UnitWord: leaves.bind_unit,
    nodes.AllColumns: leaves.bind_refused_leaf,
    nodes.TableArgument: leaves.bind_refused_leaf,
    nodes.Descriptor: leaves.bind_refused_leaf,
    exp.Tuple: leaves.bind_refused_leaf,
    exp.And: operator_nodes.bind_logical,
    exp.Or: operator_nodes.bind_logical,
    exp.Not: operator_nodes.bind_not,
    **dict.fromkeys(operator_nodes.COMPARISONS, operator_nodes.bind_comparison),
    **dict.fromkeys(operator_nodes.ARITHMETIC, operator_nodes.bind_arithmetic),
    exp.DPipe: operator_nodes.bind_concatenation,
    exp.Neg: operator_nodes.bind_negate,
    nodes.IsTest: operator_nodes.bind_is_test,
    nodes.DistinctTest: operator_nodes.bind_distinct_test,
    nodes.LikeTest: operator_nodes.bind_like,
    exp.Between: operator_nodes.bind_between,
    exp.In: operator_nodes.bind_in,
    nodes.ScalarQuery: query_nodes.bind_subquery,
    nodes.ExistsTest: query_nodes.bind_subquery,
    nodes.InQuery: query_nodes.bind_in_query,
    nodes.QuantifiedTest: query_nodes.bind_subquery,
    nodes.OverCall: query_nodes.bind_over,
    exp.Case: operator_nodes.bind_case,
    nodes.FieldAccess: operator_nodes.bind_field,
    nodes.ItemAccess: operator_nodes.bind_item,
    nodes.FunctionCall: call_nodes.bind_call,
    exp.Cast: call_nodes.bind_cast,
    exp.TryCast: call_nodes.bind_cast,
    exp.Extract: call_nodes.bind_extract,
    nodes.TimeRounding: call_nodes.bind_rounding,
    nodes.TrimCall: call_nodes.bind_trim,
    nodes.JsonValueCall: call_nodes.bind_json_value,
}


class ExpressionBinder:
    """Binds expressions against `scope`. `script` is the text that spans point into; `outer` and `block` as in Binder.
    `aliases` are names that mean an expression and hide columns (those of SELECT, in ORDER BY and QUALIFY); one that
    two items have means None."""

    def __init__(
        self,
        scope: Scope,
        script: str,
        aggregates_refused_in: str = "",
        outer: OuterNames | None = None,
        block: Block | None = None,
    ) -> None:
        self.scope = scope
        self.script = script
        self.aggregates_refused_in = aggregates_refused_in
        self.outer = outer
        self.block = block
        self.aliases: dict[str, Expression | None] = {}

    def bind(self, node: exp.Expr) -> Expression:
        if self.aliases and isinstance(node, nodes.NamePath):
            alias = self.alias(node)
            if alias is not None:
                return alias
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise AssertionError(f"the binder does not know the node {type(node).__name__}")
        return handler(self, node)

    def alias(self, node: nodes.NamePath) -> Expression | None:
        """What the name means as an alias; one with a qualifier is a column's."""
        parts = node.args["expressions"]
        if len(parts) != 1 or parts[0].this not in self.aliases:
            return None
        value = self.aliases[parts[0].this]
        if value is None:
            message = f"`{parts[0].this}` is ambiguous: several items of SELECT have this name"
            hint = "Give one of them another name."
            raise SqlError(SqlState.AMBIGUOUS_COLUMN, message, span=span_of(node), hint=hint)
        return value

    def condition(self, node: exp.Expr, where: str) -> Expression:
        """A BOOLEAN expression; `where` names its clause."""
        return operators.expect_boolean(self.bind(node), span_of(node), where)

    def text_of(self, node: exp.Expr) -> str:
        span = span_of(node)
        return self.script[span.start : span.end]


def lost_reason(expression: Expression, text: str, scope: Scope) -> str:
    """Why the result of `expression` is no time attribute though it reads one; empty otherwise."""
    if isinstance(expression, InputRef):
        return scope.columns[expression.index].lost
    for part in walk(expression):
        if isinstance(part, InputRef):
            column = scope.columns[part.index]
            if column.type.time_attribute is not None:
                return f"the expression {text} made an ordinary value of `{column.name}`"
    return ""
