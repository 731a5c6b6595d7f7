"""From query syntax to the relational tree: names and types are settled here, nothing is optimised."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.coercion import cast_to
from planner.analysis.expressions import ExpressionBinder, lost_reason
from planner.analysis.grouping import GroupedBinder, contains_aggregate
from planner.analysis.grouping_sets import read_grouping_sets
from planner.analysis.names import lookup
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.analysis.windows import window_arguments
from planner.catalog import Catalog, ObjectPath, TableCapabilities, TableEntry, ViewEntry
from planner.errors import Span, SqlError, SqlState, did_you_mean, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal
from planner.logical.aggregates import build_aggregate, distinct, key_types, remap, window_keys
from planner.logical.expressions import identity
from planner.logical.nodes import (
    Calc,
    Column,
    GroupAggregate,
    Limit,
    Plan,
    Scan,
    UnionAll,
    Values,
    Window,
    WindowKind,
    WindowTableFunction,
    inputs_of,
)
from planner.logical.windows import window_table_function
from planner.settings import parse_duration_ms
from planner.sql import nodes
from planner.sql.nodes import span_of
from planner.sql.parser import parse_script
from planner.sql.statements import OptionItem, Select

_VIEW_DEPTH_MAX = 32


class SessionNames:
    """A catalog seen with other current names, as a view's query needs it."""

    def __init__(self, catalog: Catalog, current_catalog: str, current_database: str) -> None:
        self.base = catalog
        self.current_catalog = current_catalog
        self.current_database = current_database
        self.lookup = catalog.lookup
        self.names = catalog.names
        self.databases = catalog.databases
        self.catalogs = catalog.catalogs
        self.capabilities = catalog.capabilities


class PlanBuilder:
    """Builds the trees of one text. `ctes` are the WITH items in reach, `views` the views being expanded."""

    def __init__(
        self,
        catalog: Catalog,
        script: str,
        ctes: Mapping[str, Plan] | None = None,
        views: tuple[ObjectPath, ...] = (),
        proctime_functions: dict[int, Span] | None = None,
    ) -> None:
        self.catalog = catalog
        self.script = script
        self.ctes = dict(ctes or {})
        self.views = views
        # Windows over processing time by identity, and their places: an aggregation must take them in.
        self.proctime_functions = proctime_functions if proctime_functions is not None else {}

    # -- queries ------------------------------------------------------------------------------------

    def query(self, node: nodes.QueryNode, is_top: bool = False) -> Plan:
        """The plan of a query. LIMIT ends the job, so it may stand at the top only."""
        builder = PlanBuilder(self.catalog, self.script, self.ctes, self.views, self.proctime_functions)
        for cte in node.args.get("ctes") or []:
            plan = builder.query(cte.this)
            builder.ctes[cte.args["name"].this] = _renamed(plan, cte.args.get("columns") or [])
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
        name = _relation_name(from_) if from_ is not None else ""
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
            plan, relation = self._table(from_)
            scope = Scope((relation,))
        where = node.args.get("where")
        condition = None
        if where is not None:
            condition = ExpressionBinder(scope, self.script, "WHERE").condition(where, "WHERE")
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
                for index, column in binder.scope.star(item.this.args.get("expressions") or []):
                    projections.append(InputRef(index, column.type))
                    columns.append(Column(column.name, column.type, column.lost))
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

    # -- FROM ---------------------------------------------------------------------------------------

    def _table(self, node: exp.Expr) -> tuple[Plan, Relation]:
        qualifier: tuple[str, ...] = ()
        match node:
            case nodes.TableName():
                plan, qualifier = self._table_name(node)
            case nodes.DerivedTable():
                plan = self.query(node.this)
            case nodes.TableFunctionCall():
                plan = self._window_function(node)
            case _:
                raise AssertionError(f"no table: {type(node).__name__}")
        alias = node.args.get("alias")
        if alias is not None:
            qualifier = (alias.args["name"].this,)
            plan = _renamed(plan, alias.args.get("columns") or [])
        columns = tuple(ScopeColumn(c.name, c.type, c.lost) for c in plan.columns)
        return plan, Relation(qualifier, columns)

    def _table_name(self, node: nodes.TableName) -> tuple[Plan, tuple[str, ...]]:
        identifiers = node.this.args["expressions"]
        parts = tuple(i.this for i in identifiers)
        span = span_of(node.this)
        options: tuple[OptionItem, ...] = node.args.get("options") or ()
        if len(parts) == 1 and parts[0] in self.ctes:
            if options:
                raise SqlError(SqlState.WRONG_OBJECT_TYPE, "OPTIONS belong to tables", span=options[0].span)
            return self.ctes[parts[0]], parts
        if len(parts) > 3:
            raise SqlError(SqlState.SYNTAX_ERROR, "a table's name has at most three parts", span=span)
        path, entry = lookup(parts, span, self.catalog)
        if isinstance(entry, ViewEntry):
            if options:
                message = f"`{path.name}` is a view: OPTIONS belong to tables"
                raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=options[0].span)
            return self._view(path, entry, span), (path.catalog, path.database, path.name)
        merged, capabilities = resolve_table(self.catalog, path, entry, options, span)
        if not capabilities.is_source:
            reason = capabilities.source_refusal or f"the connector '{entry.connector}' is a sink only"
            message = f"`{path.name}` cannot be read: {reason}"
            raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=span)
        check_metadata(entry, capabilities, span, for_writing=False)
        columns = tuple(Column(c.name, c.type) for c in entry.columns)
        kept = tuple(range(len(columns)))
        scan = Scan(path, entry, merged, capabilities, kept, columns)
        return scan, (path.catalog, path.database, path.name)

    def _view(self, path: ObjectPath, entry: ViewEntry, span: Span) -> Plan:
        if path in self.views or len(self.views) >= _VIEW_DEPTH_MAX:
            message = f"the view `{path.name}` reads itself"
            raise SqlError(SqlState.INVALID_DEFINITION, message, span=span)
        names = SessionNames(self.catalog, entry.catalog, entry.database)
        builder = PlanBuilder(names, entry.query, None, (*self.views, path))
        try:
            statement = parse_script(entry.query)[0]
            assert isinstance(statement, Select)
            plan = builder.query(_query_node(statement.query.tree))
        except SqlError as e:
            # The place is in the view's text, which the user did not send: point at the view's name instead.
            message = f"in the view `{path.name}`: {e.message}"
            raise SqlError(e.sqlstate, message, span=span, hint=e.hint, text=self.script) from None
        for function in builder.proctime_functions:
            self.proctime_functions[function] = span
        if len(plan.columns) != len(entry.columns):
            message = f"the view `{path.name}` no longer fits the tables it reads: create it again"
            raise SqlError(SqlState.INVALID_DEFINITION, message, span=span)
        return rename_columns(plan, tuple(c.name for c in entry.columns))

    def _window_function(self, node: nodes.TableFunctionCall) -> Plan:
        arguments = window_arguments(node, self.script)
        source = arguments.table
        if isinstance(source, nodes.NamePath):
            plan, _ = self._table_name(nodes.TableName(this=source))
        else:
            plan, _ = self._table(source)
        column = arguments.time_column
        names = [c.name for c in plan.columns]
        if column.this not in names:
            raise SqlError(
                SqlState.UNDEFINED_COLUMN,
                f"no column `{column.this}` in the table given to {arguments.function}",
                span=span_of(column),
                hint=did_you_mean(column.this, names),
            )
        index = names.index(column.this)
        chosen = plan.columns[index]
        if chosen.type.time_attribute is None:
            raise _no_time_attribute(chosen, span_of(column))
        window = Window(
            kind=WindowKind(arguments.function),
            time_index=None if chosen.type.is_proctime else index,
            time_type=chosen.type,
            size_ms=arguments.size_ms,
            step_ms=arguments.step_ms,
            offset_ms=arguments.offset_ms,
        )
        function = window_table_function(plan, window, index)
        if chosen.type.is_proctime:
            self.proctime_functions[id(function)] = span_of(node.args["name"])
        return function


def _no_time_attribute(column: Column, span: Span) -> SqlError:
    hint = column.lost and f"It was one until {column.lost}."
    hint = hint or "Event time comes from WATERMARK FOR in the table's definition."
    message = f"`{column.name}` is no time attribute, and a window needs one"
    return SqlError(SqlState.WINDOWING_ERROR, message, span=span, hint=hint)


def resolve_table(
    catalog: Catalog, path: ObjectPath, entry: TableEntry, hints: tuple[OptionItem, ...], span: Span
) -> tuple[dict[str, str], TableCapabilities]:
    """The table's options with hints merged in, and what its connector can do with them."""
    options = {**entry.options, **{item.key: item.value for item in hints}}
    if not options.get("connector"):
        raise SqlError(
            SqlState.INVALID_DEFINITION,
            f"the table `{path.name}` has no connector",
            span=span,
            hint="Create it with WITH ('connector' = '…').",
        )
    try:
        return options, catalog.capabilities(path, entry, options)
    except SqlError as e:
        if e.span is None:
            named = [item.span for item in hints if f"'{item.key}'" in e.message]
            e.span = named[0] if named else span
        raise


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


def _relation_name(from_: exp.Expr) -> str:
    """What a FROM item is called: its alias, or the last part of its name."""
    alias = from_.args.get("alias")
    if alias is not None:
        return str(alias.args["name"].this)
    return str(from_.this.args["expressions"][-1].this) if isinstance(from_, nodes.TableName) else ""


def _first_aggregate(node: nodes.SelectQuery) -> exp.Expr:
    """What makes a query without GROUP BY an aggregation."""
    candidates = [item.this for item in node.args["expressions"]] + [node.args.get("having")]
    return next((c for c in candidates if c is not None and contains_aggregate(c)), node)


def check_metadata(entry: TableEntry, capabilities: TableCapabilities, span: Span, for_writing: bool) -> None:
    """Every metadata column must be one the connector has, in a type that casts to the declared one."""
    for column in entry.metadata:
        if for_writing and column.is_virtual:
            continue
        key = capabilities.metadata.get(column.key)
        if key is None or (for_writing and not key.is_writable):
            usable = [k for k, v in capabilities.metadata.items() if v.is_writable or not for_writing]
            verb = "written" if for_writing else "read"
            hint = did_you_mean(column.key, usable) or f"There are: {', '.join(usable) or 'none'}."
            if for_writing and key is not None:
                hint = f"Declare `{column.name}` VIRTUAL if it is only read."
            message = f"the connector '{entry.connector}' has no metadata key '{column.key}' that can be {verb}"
            raise SqlError(SqlState.INVALID_DEFINITION, message, span=span, hint=hint)
        if not type_rules.can_cast(key.type, column.type):
            message = f"the metadata column `{column.name}` {column.type.sql()} cannot hold {key.type.sql()}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)


def _query_node(tree: exp.Expr) -> nodes.QueryNode:
    assert isinstance(tree, nodes.QueryNode)
    return tree


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


def _renamed(plan: Plan, names: list[exp.Identifier]) -> Plan:
    """The plan with the column names of `AS t (a, b, …)`."""
    if not names:
        return plan
    if len(names) != len(plan.columns):
        message = f"{len(names)} names for {len(plan.columns)} columns"
        raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(names[0]))
    seen: set[str] = set()
    for name in names:
        if name.this in seen:
            raise SqlError(SqlState.DUPLICATE_COLUMN, f"`{name.this}` is given twice", span=span_of(name))
        seen.add(name.this)
    return rename_columns(plan, tuple(n.this for n in names))


def rename_columns(plan: Plan, names: tuple[str, ...]) -> Plan:
    """A projection that changes names only."""
    if names == tuple(c.name for c in plan.columns):
        return plan
    columns = tuple(Column(n, c.type, c.lost) for n, c in zip(names, plan.columns, strict=True))
    return Calc(plan, None, identity(plan.columns), columns)


def _converted(plan: Plan, columns: tuple[Column, ...]) -> Plan:
    """The plan with its columns cast to the types of `columns`."""
    projections = tuple(cast_to(InputRef(i, c.type), columns[i].type) for i, c in enumerate(plan.columns))
    if all(isinstance(p, InputRef) for p in projections):
        return plan
    named = tuple(Column(c.name, p.type) for c, p in zip(columns, projections, strict=True))
    return Calc(plan, None, projections, named)
