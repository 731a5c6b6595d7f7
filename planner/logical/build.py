"""From query syntax to the relational tree: names and types are settled here, nothing is optimised."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.coercion import cast_to
from planner.analysis.expressions import ExpressionBinder, lost_reason
from planner.analysis.grouping import GroupedBinder, contains_aggregate
from planner.analysis.grouping_sets import read_grouping_sets
from planner.analysis.scope import Scope
from planner.errors import Span, SqlError, SqlState, did_you_mean, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal
from planner.logical.aggregates import build_aggregate, distinct, key_types, remap, window_keys
from planner.logical.build_from import FromBuilder, relation_name, renamed
from planner.logical.expressions import identity
from planner.logical.joins import settle_joins
from planner.logical.nodes import (
    Calc,
    Column,
    GroupAggregate,
    Limit,
    Plan,
    UnionAll,
    Values,
    WindowTableFunction,
    inputs_of,
)
from planner.settings import parse_duration_ms
from planner.sql import nodes
from planner.sql.nodes import span_of
from planner.sql.statements import OptionItem


class PlanBuilder(FromBuilder):
    """Builds the trees of one text."""

    # -- queries ------------------------------------------------------------------------------------

    def query(self, node: nodes.QueryNode, is_top: bool = False) -> Plan:
        """The plan of a query. LIMIT ends the job, so it may stand at the top only."""
        builder = PlanBuilder(self.catalog, self.script, self.ctes, self.views, self.proctime_functions)
        for cte in node.args.get("ctes") or []:
            plan = builder.query(cte.this)
            builder.ctes[cte.args["name"].this] = renamed(plan, cte.args.get("columns") or [])
        plan = builder._body(node.this, is_top)
        if is_top:
            self._check_aggregated(plan)
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is None and offset is None:
            return plan
        place = limit if limit is not None else offset
        assert place is not None
        if limit is None:
            raise not_supported("OFFSET without LIMIT", span_of(place))
        if not is_top:
            raise not_supported("LIMIT in a sub-query", span_of(place))
        skipped = int(offset.this) if offset is not None else 0
        return Limit(plan, int(limit.this), skipped, plan.columns)

    def _check_aggregated(self, plan: Plan) -> None:
        """Over processing time a window function alone means nothing: a row is in a window when it is counted."""
        if isinstance(plan, WindowTableFunction) and plan.window.time_type.is_proctime:
            raise not_supported(
                f"{plan.window.kind.value} over processing time without an aggregation",
                self.proctime_functions.get(id(plan)),
                hint="GROUP BY window_start, window_end; or use a column with a WATERMARK.",
            )
        for below in inputs_of(plan):
            self._check_aggregated(below)

    def _body(self, node: exp.Expr, is_top: bool) -> Plan:
        match node:
            case nodes.QueryNode():
                return self.query(node, is_top)
            case nodes.UnionAllQuery():
                return self._union(node)
            case nodes.ValuesQuery():
                return self._values(node)
            case nodes.SelectQuery():
                return self._select(node)
            case _:
                raise AssertionError(f"no query: {type(node).__name__}")

    def _union(self, node: nodes.UnionAllQuery) -> Plan:
        branches = node.args["expressions"]
        plans = [self._body(branch, False) for branch in branches]
        width = len(plans[0].columns)
        for branch, plan in zip(branches, plans, strict=True):
            if len(plan.columns) != width:
                message = f"UNION ALL of {width} and {len(plan.columns)} columns"
                raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(branch))
        columns = tuple(self._union_column(plans, i, node) for i in range(width))
        return UnionAll(tuple(_converted(plan, columns) for plan in plans), columns)

    def _union_column(self, plans: list[Plan], index: int, node: exp.Expr) -> Column:
        candidates = [plan.columns[index] for plan in plans]
        common = type_rules.common_type([c.type for c in candidates])
        if common is None:
            listed = ", ".join(type_rules.plain(c.type).with_nullable(True).sql() for c in candidates)
            message = f"column {index + 1} of UNION ALL has types without a common one: {listed}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node))
        if common.root is t.TypeRoot.NULL:
            raise self._untyped(candidates[0].name, span_of(node))
        marks = {c.type.time_attribute for c in candidates}
        same = all(type_rules.same_but_nullability(c.type, common) for c in candidates)
        if len(marks) == 1 and same:
            mark = marks.pop()
            lost = "" if mark is not None else candidates[0].lost
            return Column(candidates[0].name, common.with_time_attribute(mark), lost)
        lost = next((c.lost for c in candidates if c.lost), "")
        if not lost and len(marks) > 1:
            lost = "branches of UNION ALL disagreed on it"
        return Column(candidates[0].name, common, lost)

    def _untyped(self, name: str, span: Span) -> SqlError:
        return SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"the type of the column `{name}` is unknown: it is NULL throughout",
            span=span,
            hint="Give it a type: CAST(NULL AS INT).",
        )

    def _values(self, node: nodes.ValuesQuery) -> Plan:
        binder = ExpressionBinder(Scope(()), self.script, "VALUES")
        rows = [tuple(binder.bind(e) for e in row.expressions) for row in node.args["rows"]]
        width = len(rows[0])
        for row_node, row in zip(node.args["rows"], rows, strict=True):
            if len(row) != width:
                message = f"the rows of VALUES have {width} and {len(row)} columns"
                raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(row_node))
        types: list[t.DataType] = []
        for i in range(width):
            common = type_rules.common_type([row[i].type for row in rows])
            if common is None:
                message = f"column {i + 1} of VALUES has types without a common one"
                raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node))
            types.append(common)
        converted = tuple(tuple(cast_to(e, types[i]) for i, e in enumerate(row)) for row in rows)
        return Values(converted, tuple(Column(f"EXPR${i}", type_) for i, type_ in enumerate(types)))

    # -- SELECT -------------------------------------------------------------------------------------

    def _select(self, node: nodes.SelectQuery) -> Plan:
        plan = self._select_all(node)
        if node.args.get("distinct"):
            plan = distinct(plan, span_of(node))
        hint: tuple[OptionItem, ...] = node.args.get("state_ttl") or ()
        return self._with_state_ttl(plan, node, hint) if hint else plan

    def _with_state_ttl(self, plan: Plan, node: nodes.SelectQuery, hint: tuple[OptionItem, ...]) -> Plan:
        """The plan with the hint's time to live in the aggregates of this SELECT, whose one input it names."""
        from_ = node.args.get("from_")
        name = relation_name(from_) if from_ is not None else ""
        ttl_ms = 0
        for item in hint:
            if item.key != name:
                message = f"STATE_TTL names `{item.key}`, which is not in FROM"
                raise SqlError(SqlState.UNDEFINED_TABLE, message, span=item.span, hint=did_you_mean(item.key, [name]))
            try:
                ttl_ms = parse_duration_ms("STATE_TTL", item.value)
            except SqlError as e:
                e.span = item.span
                raise
        items: list[nodes.SelectItem] = node.args["expressions"]
        is_grouped = bool(node.args.get("group")) or node.args.get("having") is not None
        is_grouped = is_grouped or any(contains_aggregate(item.this) for item in items)
        kept = with_state_ttl(plan, ttl_ms, int(is_grouped) + int(bool(node.args.get("distinct"))))
        if kept is plan:
            message = "STATE_TTL in a SELECT without an aggregation that keeps state for ever"
            raise not_supported(message, hint[0].span, "It belongs into the SELECT with GROUP BY or DISTINCT.")
        return kept

    def _select_all(self, node: nodes.SelectQuery) -> Plan:
        from_ = node.args.get("from_")
        plan: Plan | None = None
        scope = Scope(())
        if from_ is not None:
            source = self.from_clause(from_)
            plan, scope = source.plan, source.scope
        where = node.args.get("where")
        condition = None
        if where is not None:
            condition = ExpressionBinder(scope, self.script, "WHERE").condition(where, "WHERE")
        if plan is not None:
            plan, condition = settle_joins(plan, condition)
            scope = scope.with_columns(plan.columns)
        items: list[nodes.SelectItem] = node.args["expressions"]
        having = node.args.get("having")
        is_grouped = bool(node.args.get("group")) or having is not None
        if is_grouped or any(contains_aggregate(item.this) for item in items):
            return self._grouped(node, plan if plan is not None else _one_row(), scope, condition)
        projections, columns = self._projections(items, ExpressionBinder(scope, self.script, "SELECT"))
        if plan is None:
            values = Values((projections,), columns)
            return Calc(values, condition, identity(columns), columns) if condition is not None else values
        return Calc(plan, condition, projections, columns)

    def _projections(
        self, items: list[nodes.SelectItem], binder: ExpressionBinder
    ) -> tuple[tuple[Expression, ...], tuple[Column, ...]]:
        projections: list[Expression] = []
        columns: list[Column] = []
        for item in items:
            if isinstance(item.this, nodes.AllColumns):
                if not binder.scope.relations:
                    raise SqlError(SqlState.SYNTAX_ERROR, "* needs a FROM clause", span=span_of(item))
                for column in binder.scope.star(item.this.args.get("expressions") or []):
                    projections.append(column.value)
                    columns.append(Column(column.name, column.value.type, column.lost))
                continue
            expression = binder.bind(item.this)
            name = _item_name(item, len(columns))
            lost = lost_reason(expression, binder.text_of(item.this), binder.scope)
            projections.append(expression)
            columns.append(Column(name, expression.type, lost))
        return tuple(projections), tuple(columns)

    def _grouped(self, node: nodes.SelectQuery, plan: Plan, scope: Scope, condition: Expression | None) -> Plan:
        items: list[nodes.SelectItem] = node.args["expressions"]
        key_nodes: list[exp.Expr] = node.args.get("group") or []
        aliases = frozenset(i.args["alias"].this for i in items if i.args.get("alias") is not None)
        sets = read_grouping_sets(key_nodes, scope, self.script, aliases)
        if condition is not None:
            plan = Calc(plan, condition, identity(plan.columns), plan.columns)
        window = window_keys(plan, sets)
        binder = GroupedBinder(scope, self.script, sets, key_types(sets, window))
        bound: list[tuple[str, Expression]] = []
        for item in items:
            if isinstance(item.this, nodes.AllColumns):
                message = "* cannot stand beside GROUP BY or aggregates"
                raise SqlError(SqlState.GROUPING_ERROR, message, span=span_of(item))
            bound.append((_item_name(item, len(bound)), binder.bind(item.this)))
        having_node = node.args.get("having")
        having = binder.condition(having_node, "HAVING") if having_node is not None else None
        span = span_of(key_nodes[0] if key_nodes else _first_aggregate(node))
        aggregate, mapping = build_aggregate(plan, sets, window, tuple(binder.aggregates), span)
        projections = tuple(remap(e, mapping) for _, e in bound)
        columns = tuple(Column(name, e.type, binder.lost_reason(e)) for name, e in bound)
        return Calc(aggregate, remap(having, mapping) if having is not None else None, projections, columns)


def _one_row() -> Plan:
    """What a query without FROM aggregates."""
    zero = Literal(0, t.INT.with_nullable(False))
    return Values(((zero,),), (Column("ZERO", zero.type),))


def with_state_ttl(plan: Plan, ttl_ms: int, aggregate_count: int) -> Plan:
    """The plan with a time to live in its uppermost unbounded aggregates, at most `aggregate_count` of them."""
    match plan:
        case Calc() if aggregate_count:
            below = with_state_ttl(plan.input, ttl_ms, aggregate_count)
            return plan if below is plan.input else msgspec.structs.replace(plan, input=below)
        case GroupAggregate() if aggregate_count:
            below = with_state_ttl(plan.input, ttl_ms, aggregate_count - 1)
            return msgspec.structs.replace(plan, input=below, state_ttl_ms=ttl_ms)
        case _:
            return plan


def _first_aggregate(node: nodes.SelectQuery) -> exp.Expr:
    """What makes a query without GROUP BY an aggregation."""
    candidates = [item.this for item in node.args["expressions"]] + [node.args.get("having")]
    return next((c for c in candidates if c is not None and contains_aggregate(c)), node)


def _item_name(item: nodes.SelectItem, position: int) -> str:
    """The alias, the column's or field's own name, or EXPR$position."""
    alias = item.args.get("alias")
    if alias is not None:
        return str(alias.this)
    if isinstance(item.this, nodes.NamePath):
        return str(item.this.args["expressions"][-1].this)
    if isinstance(item.this, nodes.FieldAccess):
        return str(item.this.args["name"].this)
    return f"EXPR${position}"


def _converted(plan: Plan, columns: tuple[Column, ...]) -> Plan:
    """The plan with its columns cast to the types of `columns`."""
    projections = tuple(cast_to(InputRef(i, c.type), columns[i].type) for i, c in enumerate(plan.columns))
    if all(isinstance(p, InputRef) for p in projections):
        return plan
    named = tuple(Column(c.name, p.type) for c, p in zip(columns, projections, strict=True))
    return Calc(plan, None, projections, named)
