"""SELECT: from FROM and WHERE through GROUP BY and HAVING to the select items, QUALIFY and the keys of ORDER BY."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlglot import exp

from planner.analysis.expressions import ExpressionBinder, lost_reason
from planner.analysis.grouping import GroupedBinder, contains_aggregate
from planner.analysis.grouping_sets import read_grouping_sets
from planner.analysis.names import unlike, without_aliases
from planner.analysis.query_nodes import has_over, has_subquery
from planner.analysis.scope import Scope
from planner.errors import SqlError, SqlState, not_supported
from planner.ir.expressions import Expression, InputRef, substitute
from planner.ir.operators import SortKey
from planner.logical.aggregates import build_aggregate, distinct, key_types, remap, window_keys
from planner.logical.build_from import FromBuilder
from planner.logical.build_parts import Parts, ToPlan
from planner.logical.build_ranks import SortKeys
from planner.logical.build_subqueries import Filter, SubqueryBinder, filtered
from planner.logical.decorrelate import one_row
from planner.logical.expressions import identity
from planner.logical.hints import SelectHints
from planner.logical.nodes import Calc, Column, GroupAggregate, Plan, Values
from planner.logical.ranks import settled_ranks
from planner.sql import nodes
from planner.sql.nodes import span_of


class Ordered(msgspec.Struct, frozen=True):
    """A query's tree before ORDER BY: columns from `width` on are there for sorting only."""

    plan: Plan
    order: tuple[SortKey, ...]
    width: int


class _Input(msgspec.Struct, frozen=True):
    """What select items are computed from: a tree, a filter on it, and how bound expressions read it."""

    plan: Plan
    condition: Expression | None
    to_plan: ToPlan

    def with_filter(self) -> Plan:
        return _filtered(self.plan, self.condition)


class _Items(msgspec.Struct, frozen=True):
    """The select items, bound."""

    values: tuple[Expression, ...]
    columns: tuple[Column, ...]


class SelectBuilder(FromBuilder):
    """Builds the trees of SELECTs in one text."""

    # -- sub-queries --------------------------------------------------------------------------------

    @property
    def _subqueries(self) -> SubqueryBinder:
        return SubqueryBinder(self._subquery, self.script)

    def _parts(self, takes_ranks: bool = True) -> Parts:
        return Parts(self._level, self.script, self._subqueries.value, takes_ranks)

    # -- SELECT -------------------------------------------------------------------------------------

    def _select(self, node: nodes.SelectQuery, order: list[nodes.OrderItem]) -> Ordered:
        hints = SelectHints(node.args.get("hints") or ())
        ordered = self._select_all(node, order, hints)
        plan = ordered.plan
        if node.args.get("distinct"):
            plan = distinct(plan, span_of(node))
        plan = self._with_state_ttl(plan, node, hints)
        hints.check()
        return msgspec.structs.replace(ordered, plan=plan)

    def _with_state_ttl(self, plan: Plan, node: nodes.SelectQuery, hints: SelectHints) -> Plan:
        """The plan with the hint's time to live in the aggregates of this SELECT, if its one table is named."""
        ttl_ms = hints.ttl_of_only_table()
        if ttl_ms is None:
            return plan
        kept = with_state_ttl(plan, ttl_ms, int(_is_grouped(node)) + int(bool(node.args.get("distinct"))))
        if kept is plan:
            message = "STATE_TTL in a SELECT without an aggregation that keeps state for ever"
            raise not_supported(message, hints.ttl_span, "It belongs into the SELECT with GROUP BY or DISTINCT.")
        return kept

    def _select_all(self, node: nodes.SelectQuery, order: list[nodes.OrderItem], hints: SelectHints) -> Ordered:
        from_ = node.args.get("from_")
        if from_ is None and not _has_parts(node, order):
            return self._select_constants(node, order)
        plan, scope = one_row(), Scope(())
        if from_ is not None:
            source = self.from_clause(from_, hints)
            hints.see(source.scope)
            plan, scope = source.plan, source.scope
        plan, condition = self._where(node, plan, scope)
        if from_ is not None:
            hints.see_settled(source.plan, plan)
            scope = scope.with_columns(plan.columns)
        if _is_grouped(node):
            return self._grouped(node, order, _filtered(plan, condition), scope)
        parts = self._parts()
        binder = ExpressionBinder(scope, self.script, "SELECT", self.outer, parts)
        items = self._items(node.args["expressions"], binder)
        return self._finished(node, order, binder, items, lambda: _Input(plan, condition, _as_it_is))

    def _where(self, node: nodes.SelectQuery, plan: Plan, scope: Scope) -> tuple[Plan, Expression | None]:
        """FROM with the joins that WHERE makes, and what is left of WHERE."""
        where = node.args.get("where")
        parts = self._parts(takes_ranks=False)
        bound = Filter()
        if where is not None:
            binder = ExpressionBinder(scope, self.script, "WHERE", self.outer, parts)
            with without_aliases("WHERE", _aliases(node.args["expressions"]), self.script):
                bound = self._subqueries.filter(where, binder, parts, "WHERE")
        return _kept(*filtered(plan, bound, parts, _as_it_is), len(plan.columns))

    def _select_constants(self, node: nodes.SelectQuery, order: list[nodes.OrderItem]) -> Ordered:
        """SELECT without FROM: one row."""
        scope = Scope(())
        where = node.args.get("where")
        condition = None
        if where is not None:
            condition = ExpressionBinder(scope, self.script, "WHERE", self.outer).condition(where, "WHERE")
        if _is_grouped(node):
            return self._grouped(node, order, _filtered(one_row(), condition), scope)
        binder = ExpressionBinder(scope, self.script, "SELECT", self.outer)
        items = self._items(node.args["expressions"], binder)
        keys = _sort_keys(node, order, binder, items)
        values = Values((tuple(keys.values),), _named(items.columns, keys.values))
        return Ordered(_filtered(values, condition), tuple(keys.keys), len(items.columns))

    def _items(self, items: list[nodes.SelectItem], binder: ExpressionBinder) -> _Items:
        values: list[Expression] = []
        columns: list[Column] = []
        for item in items:
            if isinstance(item.this, nodes.AllColumns):
                if not binder.scope.relations:
                    raise SqlError(SqlState.SYNTAX_ERROR, "* needs a FROM clause", span=span_of(item))
                for column in binder.scope.star(item.this.args.get("expressions") or []):
                    values.append(column.value)
                    name = unlike(column.name, {c.name for c in columns})
                    columns.append(Column(name, column.value.type, column.lost))
                continue
            with without_aliases("Another item", _aliases(items), self.script):
                expression = binder.bind(item.this)
            lost = lost_reason(expression, binder.text_of(item.this), binder.scope)
            columns.append(Column(_item_name(item, len(columns)), expression.type, lost))
            values.append(expression)
        return _Items(tuple(values), tuple(columns))

    def _grouped(self, node: nodes.SelectQuery, order: list[nodes.OrderItem], plan: Plan, scope: Scope) -> Ordered:
        items: list[nodes.SelectItem] = node.args["expressions"]
        key_nodes: list[exp.Expr] = node.args.get("group") or []
        sets = read_grouping_sets(key_nodes, scope, self.script, _aliases(items))
        window = window_keys(plan, sets)
        parts, input_parts = self._parts(), self._parts(takes_ranks=False)
        binder = GroupedBinder(scope, self.script, sets, key_types(sets, window), self.outer, parts, input_parts)
        bound = self._grouped_items(items, binder)
        having_parts, having = self._parts(takes_ranks=False), Filter()
        if node.args.get("having") is not None:
            binder.block = having_parts
            with without_aliases("HAVING", _aliases(items), self.script):
                having = self._subqueries.filter(node.args["having"], binder, having_parts, "HAVING")
            binder.block = parts

        def aggregated() -> _Input:
            span = span_of(key_nodes[0] if key_nodes else _first_aggregate(node))
            below, calls = plan, tuple(binder.aggregates)
            if input_parts and window is not None:
                hint = "Compute it in a query in FROM, and use its column here."
                raise not_supported("a sub-query in an aggregate over windows", span, hint)
            if input_parts:
                below, resolved = input_parts.attached(plan, _as_it_is)
                calls = tuple(call.over(resolved) for call in calls)
            aggregate, mapping = build_aggregate(below, sets, window, calls, span)

            def to_plan(expression: Expression) -> Expression:
                return remap(expression, mapping)

            kept = _kept(*filtered(aggregate, having, having_parts, to_plan), len(aggregate.columns))
            return _Input(*kept, to_plan)

        return self._finished(node, order, binder, bound, aggregated)

    def _grouped_items(self, items: list[nodes.SelectItem], binder: GroupedBinder) -> _Items:
        values: list[Expression] = []
        columns: list[Column] = []
        for item in items:
            if isinstance(item.this, nodes.AllColumns):
                message = "* cannot stand beside GROUP BY or aggregates"
                raise SqlError(SqlState.GROUPING_ERROR, message, span=span_of(item))
            with without_aliases("Another item", _aliases(items), self.script):
                values.append(binder.bind(item.this))
            name = _item_name(item, len(columns))
            columns.append(Column(name, values[-1].type, binder.lost_reason(values[-1])))
        return _Items(tuple(values), tuple(columns))

    def _finished(
        self,
        node: nodes.SelectQuery,
        order: list[nodes.OrderItem],
        binder: ExpressionBinder,
        items: _Items,
        build_input: Callable[[], _Input],
    ) -> Ordered:
        """Select items over what they are computed from, which is built when all of them are bound."""
        keys = _sort_keys(node, order, binder, items)
        qualify = self._qualify(node, binder, items)
        below = build_input()
        plan, condition, resolved = below.plan, below.condition, below.to_plan
        parts = binder.block
        assert isinstance(parts, Parts)
        if parts:
            plan, resolved = parts.attached(below.with_filter(), below.to_plan)
            condition = None
        if qualify is not None:
            plan = settled_ranks(_filtered(plan, substitute(resolved(qualify), identity(plan.columns))))
        values = [substitute(resolved(e), identity(plan.columns)) for e in keys.values]
        columns = _named(items.columns, values, plan)
        return Ordered(Calc(plan, condition, tuple(values), columns), tuple(keys.keys), len(items.columns))

    def _qualify(self, node: nodes.SelectQuery, binder: ExpressionBinder, items: _Items) -> Expression | None:
        qualify = node.args.get("qualify")
        if qualify is None:
            return None
        binder.aliases = _alias_values(node, items)
        condition = binder.condition(qualify, "QUALIFY")
        assert isinstance(binder.block, Parts)
        if not binder.block.has_ranks:
            message = "QUALIFY filters by a rank, and there is none"
            raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(qualify), hint="Use WHERE or HAVING.")
        return condition


def _as_it_is(expression: Expression) -> Expression:
    return expression


def _kept(plan: Plan, condition: Expression | None, width: int) -> tuple[Plan, Expression | None]:
    """A filtered tree with its first `width` columns; ranks that the filter bounds are settled."""
    if len(plan.columns) > width:
        columns = plan.columns[:width]
        return settled_ranks(Calc(plan, condition, identity(columns), columns)), None
    if condition is None:
        return plan, None
    whole = _filtered(plan, condition)
    settled = settled_ranks(whole)
    return (plan, condition) if settled is whole else (settled, None)


def _filtered(plan: Plan, condition: Expression | None) -> Plan:
    return plan if condition is None else Calc(plan, condition, identity(plan.columns), plan.columns)


def _is_grouped(node: nodes.SelectQuery) -> bool:
    if node.args.get("group") or node.args.get("having") is not None:
        return True
    return any(contains_aggregate(item.this) for item in node.args["expressions"])


def _has_parts(node: nodes.SelectQuery, order: list[nodes.OrderItem]) -> bool:
    """Whether a sub-query or a rank stands in the SELECT."""
    expressions = [item.this for item in (*node.args["expressions"], *order)]
    expressions += [e for e in (node.args.get(c) for c in ("where", "having", "qualify")) if e is not None]
    return any(has_subquery(e) or has_over(e) for e in expressions)


def _sort_keys(
    node: nodes.SelectQuery, order: list[nodes.OrderItem], binder: ExpressionBinder, items: _Items
) -> SortKeys:
    keys = SortKeys(list(items.values), takes_further=not node.args.get("distinct"))
    binder.aliases = _item_values(node, items)
    for item in order:
        keys.add(item, binder)
    binder.aliases = {}
    return keys


def _alias_values(node: nodes.SelectQuery, items: _Items) -> dict[str, Expression | None]:
    """What the aliases of SELECT mean."""
    names = _aliases(node.args["expressions"])
    return _meanings([(c.name, v) for c, v in zip(items.columns, items.values, strict=True) if c.name in names])


def _item_values(node: nodes.SelectQuery, items: _Items) -> dict[str, Expression | None]:
    """What names mean in ORDER BY: items of SELECT, by alias or, as in Flink, by the name of the column they are."""
    select: list[nodes.SelectItem] = node.args["expressions"]
    if any(isinstance(item.this, nodes.AllColumns) for item in select):
        return _alias_values(node, items)
    names = [_item_name(item, i) for i, item in enumerate(select)]
    return _meanings(list(zip(names, items.values, strict=True)))


def _meanings(named: list[tuple[str, Expression]]) -> dict[str, Expression | None]:
    """None for a name that two different values have."""
    meanings: dict[str, Expression | None] = {}
    for name, value in named:
        meanings[name] = value if meanings.get(name, value) == value else None
    return meanings


def _aliases(items: list[nodes.SelectItem]) -> frozenset[str]:
    return frozenset(item.args["alias"].this for item in items if item.args.get("alias") is not None)


def _named(columns: tuple[Column, ...], values: list[Expression], plan: Plan | None = None) -> tuple[Column, ...]:
    """Names for values, of which those beyond `columns` are sort keys."""
    named: list[Column] = []
    for i, value in enumerate(values):
        name, lost = (columns[i].name, columns[i].lost) if i < len(columns) else (f"$order{i}", "")
        if plan is not None and isinstance(value, InputRef):
            lost = plan.columns[value.index].lost or lost
        named.append(Column(name, value.type, lost))
    return tuple(named)


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
    """The alias, the name of the column or of a field of one, or EXPR$position."""
    alias = item.args.get("alias")
    if alias is not None:
        return str(alias.this)
    if isinstance(item.this, nodes.NamePath):
        return str(item.this.args["expressions"][-1].this)
    return f"EXPR${position}"
