"""Expressions above GROUP BY: group keys, aggregate calls, and what is computed from them."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from planner.analysis import functions, type_rules
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.scope import Scope
from planner.errors import SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, canonical
from planner.ir.operators import AggregateFunction
from planner.ir.types import DataType, TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of


class BoundAggregate(msgspec.Struct, frozen=True):
    """One aggregate call over expressions of the aggregate's input."""

    function: AggregateFunction
    argument: Expression | None
    filter: Expression | None
    type: DataType
    text: str

    def identity(self) -> tuple[str, str, str]:
        argument = canonical(self.argument) if self.argument is not None else ""
        return self.function.value, argument, canonical(self.filter) if self.filter is not None else ""


class GroupedBinder(ExpressionBinder):
    """Binds over the row (keys…, aggregates…) that the aggregate puts out.

    An expression equal to a group key becomes that key's column. Aggregate calls are collected in `aggregates`
    (equal ones once). Any other column is an error.
    """

    def __init__(self, scope: Scope, script: str, keys: tuple[Expression, ...]) -> None:
        super().__init__(scope, script)
        self.keys = {canonical(key): i for i, key in enumerate(keys)}
        self.key_expressions = keys
        self.aggregates: list[BoundAggregate] = []
        self._input = ExpressionBinder(scope, script, "an aggregate's argument")

    def bind(self, node: exp.Expr) -> Expression:
        if isinstance(node, nodes.FunctionCall) and node.args["name"].upper() in functions.AGGREGATE_NAMES:
            return self._aggregate(node)
        if not contains_aggregate(node):
            key = self._as_key(node)
            if key is not None:
                return key
        if isinstance(node, nodes.NamePath):
            raise self._ungrouped(node)
        return super().bind(node)

    def _as_key(self, node: exp.Expr) -> Expression | None:
        index = self.keys.get(canonical(self._input.bind(node)))
        return None if index is None else InputRef(index, self.key_expressions[index].type)

    def _ungrouped(self, node: nodes.NamePath) -> SqlError:
        name = ".".join(i.this for i in node.args["expressions"])
        return SqlError(
            SqlState.GROUPING_ERROR,
            f"column `{name}` is neither in GROUP BY nor inside an aggregate",
            span=span_of(node),
        )

    def _aggregate(self, node: nodes.FunctionCall) -> Expression:
        name = node.args["name"].upper()
        if node.args.get("distinct"):
            raise not_supported(f"{name}(DISTINCT …)", span_of(node))
        filter_node = node.args.get("filter")
        condition = self._input.condition(filter_node, "FILTER") if filter_node is not None else None
        argument = self._argument(node, name)
        function = AggregateFunction.COUNT_STAR if argument is None else AggregateFunction(name)
        type_ = _result_type(function, argument, condition is not None, node)
        bound = BoundAggregate(function, argument, condition, type_, self.text_of(node))
        for i, known in enumerate(self.aggregates):
            if known.identity() == bound.identity():
                return InputRef(len(self.key_expressions) + i, known.type)
        self.aggregates.append(bound)
        return InputRef(len(self.key_expressions) + len(self.aggregates) - 1, type_)

    def _argument(self, node: nodes.FunctionCall, name: str) -> Expression | None:
        arguments = node.args.get("expressions") or []
        if node.args.get("star"):
            if name != "COUNT":
                raise SqlError(SqlState.UNDEFINED_FUNCTION, f"{name}(*) is no aggregate", span=span_of(node))
            return None
        if len(arguments) != 1:
            message = f"{name} takes one argument, not {len(arguments)}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(node))
        argument = self._input.bind(arguments[0])
        if argument.type.root is TypeRoot.NULL:
            message = f"the type of {name}'s argument NULL is unknown"
            hint = "Give it a type: CAST(NULL AS INT)."
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node), hint=hint)
        return argument


_ORDERED_ROOTS = frozenset(
    {
        *t.NUMERIC_ROOTS,
        TypeRoot.BOOLEAN,
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    }
)


def _result_type(
    function: AggregateFunction, argument: Expression | None, is_filtered: bool, node: exp.Expr
) -> DataType:
    if argument is None or function is AggregateFunction.COUNT:
        return t.BIGINT.with_nullable(False)
    nullable = argument.type.nullable or is_filtered
    is_minmax = function in (AggregateFunction.MIN, AggregateFunction.MAX)
    fits = argument.type.root in _ORDERED_ROOTS if is_minmax else argument.type.is_numeric
    if not fits:
        message = f"{function.value} does not take {type_rules.plain(argument.type).with_nullable(True).sql()}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node))
    if is_minmax:
        return type_rules.plain(argument.type).with_nullable(nullable)
    if function is AggregateFunction.SUM:
        result = type_rules.sum_type(argument.type)
        # A DECIMAL sum above 38 digits is NULL.
        return result.with_nullable(nullable or result.root is TypeRoot.DECIMAL)
    result = type_rules.average_type(argument.type)
    return result.with_nullable(nullable or result.root is TypeRoot.DECIMAL)


def contains_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate call stands in the expression."""
    return any(
        isinstance(n, nodes.FunctionCall) and n.args["name"].upper() in functions.AGGREGATE_NAMES for n in node.walk()
    )
