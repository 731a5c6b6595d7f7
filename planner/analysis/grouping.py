"""Expressions above GROUP BY: group keys, aggregate calls, GROUPING(), and what is computed from them."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import functions, operators
from planner.analysis.aggregates import BoundAggregate, bind_aggregate
from planner.analysis.binder import Block
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.grouping_sets import GroupingSets
from planner.analysis.outer import OuterNames, is_outer
from planner.analysis.query_nodes import has_over, has_subquery, walk_block
from planner.analysis.scope import Scope
from planner.errors import Span, SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal, canonical, walk
from planner.ir.types import DataType
from planner.sql import nodes
from planner.sql.nodes import span_of

_COUNT = t.BIGINT.with_nullable(False)


class GroupedBinder(ExpressionBinder):
    """Binds over the row (keys…, [grouping id,] aggregates…) that the aggregate puts out; the grouping id is there
    where there are several grouping sets.

    `block` takes sub-queries and ranks above the aggregate, `input_block` those in arguments of aggregates.

    An expression equal to a group key becomes that key's column, of the type in `key_types`. Aggregate calls are
    collected in `aggregates` (equal ones once). Any other column is an error.
    """

    def __init__(
        self,
        scope: Scope,
        script: str,
        sets: GroupingSets,
        key_types: tuple[DataType, ...],
        outer: OuterNames | None = None,
        block: Block | None = None,
        input_block: Block | None = None,
    ) -> None:
        super().__init__(scope, script, "", outer, block)
        self.keys = {canonical(key): i for i, key in enumerate(sets.keys)}
        self.key_types = key_types
        self.sets = sets
        self.aggregates: list[BoundAggregate] = []
        self._first_aggregate = len(sets.keys) + (0 if sets.is_single else 1)
        self._input = ExpressionBinder(scope, script, "an aggregate's argument", outer, input_block)

    def lost_reason(self, bound: Expression) -> str:
        """Why the result of `bound` is no time attribute though it comes of one; empty otherwise."""
        if bound.type.time_attribute is not None:
            return ""
        for part in walk(bound):
            if not isinstance(part, InputRef):
                continue
            if part.index < len(self.sets.keys):
                key = self.sets.keys[part.index]
                if isinstance(key, InputRef) and self.scope.columns[key.index].lost:
                    return self.scope.columns[key.index].lost
                if key.type.time_attribute is not None and part.type.time_attribute is None:
                    return "GROUP BY without a window made an ordinary value of it"
            elif part.index >= self._first_aggregate:
                aggregate = self.aggregates[part.index - self._first_aggregate]
                if aggregate.argument is not None and aggregate.argument.type.time_attribute is not None:
                    return f"the aggregate {aggregate.text} made an ordinary value of it"
        return ""

    def bind(self, node: exp.Expr) -> Expression:
        if isinstance(node, nodes.FunctionCall):
            name = node.args["name"].upper()
            if name in functions.AGGREGATE_NAMES:
                return self._aggregate(node)
            if name in functions.GROUPING_NAMES:
                return self._grouping(name, node)
        if isinstance(node, nodes.NamePath) and (alias := self.alias(node)) is not None:
            return alias
        if not contains_aggregate(node) and not has_subquery(node) and not has_over(node) and not self._has_alias(node):
            key = self._as_key(node)
            if key is not None:
                return key
        if isinstance(node, nodes.NamePath):
            raise self._ungrouped(node)
        return super().bind(node)

    def _has_alias(self, node: exp.Expr) -> bool:
        return any(isinstance(n, nodes.NamePath) and self.alias(n) is not None for n in walk_block(node))

    def _as_key(self, node: exp.Expr) -> Expression | None:
        """The key that the expression is; a column of the query around is as good as one."""
        bound = self._input.bind(node)
        index = self.keys.get(canonical(bound))
        if index is None:
            return bound if is_outer(bound) else None
        return InputRef(index, self.key_types[index])

    def _ungrouped(self, node: nodes.NamePath) -> SqlError:
        name = ".".join(i.this for i in node.args["expressions"])
        return SqlError(
            SqlState.GROUPING_ERROR,
            f"column `{name}` is neither in GROUP BY nor inside an aggregate",
            span=span_of(node),
        )

    def _aggregate(self, node: nodes.FunctionCall) -> Expression:
        bound = bind_aggregate(node, self._input, always_has_rows=bool(self.sets.keys))
        for i, known in enumerate(self.aggregates):
            if known.identity() == bound.identity():
                return InputRef(self._first_aggregate + i, known.type)
        self.aggregates.append(bound)
        return InputRef(self._first_aggregate + len(self.aggregates) - 1, bound.type)

    def _grouping(self, name: str, node: nodes.FunctionCall) -> Expression:
        """GROUPING(a, …), GROUPING_ID(a, …) and GROUP_ID(), told by the grouping id."""
        arguments: list[exp.Expr] = node.args.get("expressions") or []
        if (name == "GROUP_ID") != (not arguments) or node.args.get("star"):
            takes = "no arguments" if name == "GROUP_ID" else "group keys"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, f"{name} takes {takes}", span=span_of(node))
        if name == "GROUP_ID":
            return self._by_set(self.sets.repetitions(), span_of(node))
        keys: list[int] = []
        for argument in arguments:
            index = self.keys.get(canonical(self._input.bind(argument)))
            if index is None:
                message = f"{name} takes expressions of GROUP BY"
                raise SqlError(SqlState.GROUPING_ERROR, message, span=span_of(argument))
            keys.append(index)
        values = tuple(self.sets.grouping_value(s, tuple(keys)) for s in self.sets.sets)
        return self._by_set(values, span_of(node))

    def _by_set(self, values: tuple[int, ...], span: Span) -> Expression:
        default = Literal(values[-1], _COUNT)
        id_ = InputRef(len(self.sets.keys), _COUNT)
        branches: list[tuple[Expression, Expression]] = []
        for number, value in zip(self.sets.grouping_ids(), values, strict=True):
            if value != values[-1]:
                is_set = operators.comparison("=", id_, Literal(number, _COUNT), span)
                branches.append((is_set, Literal(value, _COUNT)))
        return operators.case(branches, default, span) if branches else default


def contains_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate call, or a function of the grouping sets, stands in the expression."""
    names = functions.AGGREGATE_NAMES | functions.GROUPING_NAMES
    return any(isinstance(n, nodes.FunctionCall) and n.args["name"].upper() in names for n in walk_block(node))
