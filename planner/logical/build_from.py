"""FROM: tables, views, sub-queries and table functions, and what their names mean to the rest of the query."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.names import lookup
from planner.analysis.outer import OuterNames
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.analysis.windows import window_arguments
from planner.catalog import Catalog, ObjectPath, TableCapabilities, TableEntry, ViewEntry
from planner.errors import Span, SqlError, SqlState, did_you_mean, not_supported
from planner.logical.build_joins import Source, as_of_join, joined
from planner.logical.build_lateral import join_lateral
from planner.logical.build_unnest import join_unnest, unnest_alone
from planner.logical.expressions import identity
from planner.logical.hints import SelectHints
from planner.logical.nodes import (
    Calc,
    Column,
    Plan,
    Scan,
    Window,
    WindowKind,
)
from planner.logical.windows import window_table_function
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


class FromBuilder:
    """Builds the trees of FROM in one text. `ctes` are the WITH items in reach, `views` the views being expanded."""

    def __init__(
        self,
        catalog: Catalog,
        script: str,
        ctes: Mapping[str, Plan] | None = None,
        views: tuple[ObjectPath, ...] = (),
        proctime_functions: dict[int, Span] | None = None,
        outer: OuterNames | None = None,
    ) -> None:
        """`outer`: the names of the query around, in a sub-query."""
        self.catalog = catalog
        self.script = script
        self.ctes = dict(ctes or {})
        self.views = views
        self.outer = outer
        # Windows over processing time by identity, and their places: an aggregation must take them in.
        self.proctime_functions = proctime_functions if proctime_functions is not None else {}

    def query(self, node: nodes.QueryNode, is_top: bool = False) -> Plan:
        raise NotImplementedError

    @property
    def _level(self) -> int:
        """How deep the query stands in a nest of sub-queries, from 1."""
        return self.outer.level + 1 if self.outer is not None else 1

    def _subquery(self, node: nodes.QueryNode, outer: OuterNames) -> Plan:
        builder = type(self)(self.catalog, self.script, self.ctes, self.views, self.proctime_functions, outer)
        return builder.query(node)

    # -- FROM ---------------------------------------------------------------------------------------

    def from_clause(self, node: exp.Expr, hints: SelectHints | None = None) -> Source:
        """All of FROM, joins from left to right."""
        hints = hints if hints is not None else SelectHints(())
        first, joins = _spine(node)
        if isinstance(first, nodes.UnnestTable):
            source = unnest_alone(first, self._binder)
        else:
            plan, relation = self._table(first)
            source = Source(plan, Scope((relation,)))
        for join in joins:
            source = self._joined(source, join, hints)
        return source

    def _joined(self, left: Source, node: nodes.JoinTable, hints: SelectHints) -> Source:
        """What is left of a join, joined with what is right of it."""
        right = node.args["expression"]
        if isinstance(right, nodes.UnnestTable):
            return join_unnest(left, node, self._binder)
        if right.args.get("as_of") is not None:
            plan, relation = self._table(right, is_as_of=True)
            version = Source(plan, Scope((relation,)))
            return as_of_join(left, version, node, self._binder, hints.lookup_of(version.scope))
        if right.args.get("lateral"):
            outer = OuterNames(self._binder(left.scope, "LATERAL"), self._level)
            plan, relation = self._named(right, self._subquery(right.this, outer))
            return join_lateral(left, plan, relation, node, self._binder, self._level)
        other = self.from_clause(right, hints)
        source = joined(left, other, node, self._binder)
        return Source(hints.on_join(source.plan, left.scope, other.scope), source.scope)

    def _binder(self, scope: Scope, where: str) -> ExpressionBinder:
        return ExpressionBinder(scope, self.script, where, self.outer)

    def _table(self, node: exp.Expr, is_as_of: bool = False) -> tuple[Plan, Relation]:
        match node:
            case nodes.TableName():
                as_of = node.args.get("as_of")
                if as_of is not None and not is_as_of:
                    hint = "Write it on the right side of a JOIN: it says as of which time that side is read."
                    raise not_supported("FOR SYSTEM_TIME AS OF outside a join", span_of(as_of), hint)
                plan, qualifier = self._table_name(node)
                return self._named(node, plan, qualifier)
            case nodes.DerivedTable():
                return self._named(node, self.query(node.this))
            case nodes.TableFunctionCall():
                return self._named(node, self._window_function(node))
            case _:
                raise AssertionError(f"no table: {type(node).__name__}")

    def _named(self, node: exp.Expr, plan: Plan, qualifier: tuple[str, ...] = ()) -> tuple[Plan, Relation]:
        """The item under its alias, if it has one."""
        alias = node.args.get("alias")
        if alias is not None:
            qualifier = (alias.args["name"].this,)
            plan = renamed(plan, alias.args.get("columns") or [])
            if not alias.args.get("columns") and len(plan.columns) == 1 and _is_values(node):
                # `(VALUES (1), (2)) AS x` calls the column x, too.
                plan = rename_columns(plan, qualifier)
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
        builder = type(self)(names, entry.query, None, (*self.views, path))
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


def _is_values(node: exp.Expr) -> bool:
    """Whether the item is VALUES and nothing else."""
    if not isinstance(node, nodes.DerivedTable):
        return False
    query = node.this
    return isinstance(query.this, nodes.ValuesQuery) and not any(v for k, v in query.args.items() if k != "this")


def _spine(node: exp.Expr) -> tuple[exp.Expr, list[nodes.JoinTable]]:
    """The first table of a part of FROM, and the joins with what follows, from left to right."""
    joins: list[nodes.JoinTable] = []
    while isinstance(node, nodes.JoinTable):
        joins.append(node)
        node = node.this
    return node, joins[::-1]


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


def renamed(plan: Plan, names: list[exp.Identifier]) -> Plan:
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
