"""From query syntax to the relational tree: names and types are settled here, nothing is optimised."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.coercion import cast_to
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import InputRef
from planner.ir.operators import SetOperationKind
from planner.logical.aggregates import distinct
from planner.logical.build_from import renamed
from planner.logical.build_ranks import SortKeys
from planner.logical.build_select import Ordered, SelectBuilder
from planner.logical.decorrelate import reordered
from planner.logical.expressions import identity
from planner.logical.nodes import (
    Calc,
    Column,
    Limit,
    Place,
    Plan,
    SetOperation,
    Sort,
    UnionAll,
    Values,
    WindowTableFunction,
    inputs_of,
)
from planner.logical.ranks import limited
from planner.sql import nodes
from planner.sql.nodes import span_of

_CAST_HINT = "CAST it to the type of the others."
_SET_KINDS = {
    "INTERSECT": SetOperationKind.INTERSECT,
    "INTERSECT ALL": SetOperationKind.INTERSECT_ALL,
    "EXCEPT": SetOperationKind.EXCEPT,
    "EXCEPT ALL": SetOperationKind.EXCEPT_ALL,
}


class PlanBuilder(SelectBuilder):
    """Builds the trees of one text, top down: a query and its set operations here; a query block in SelectBuilder
    (`build_select.py`); its FROM in FromBuilder (`build_from.py`), joins in `build_joins.py`, UNNEST and LATERAL in
    files of their names. Sub-queries (`build_subqueries.py`) and ranks (`build_ranks.py`) in expressions are put below
    their block by `build_parts.py`; `decorrelate.py` takes their references to the query around away."""

    # -- queries ------------------------------------------------------------------------------------

    def query(self, node: nodes.QueryNode, is_top: bool = False) -> Plan:
        """The plan of a query. ORDER BY without LIMIT means nothing but at the top."""
        builder = type(self)(self.catalog, self.script, self.ctes, self.views, self.proctime_functions, self.outer)
        for cte in node.args.get("ctes") or []:
            plan = builder.query(cte.this)
            builder.ctes[cte.args["name"].this] = renamed(plan, cte.args.get("columns") or [])
        order: list[nodes.OrderItem] = node.args.get("order") or []
        limit, offset = node.args.get("limit"), node.args.get("offset")
        is_last = is_top and not order and limit is None
        ordered = builder._body(node.this, order, is_last)
        if is_top:
            self._check_aggregated(ordered.plan)
        if limit is None and offset is not None:
            raise not_supported("OFFSET without LIMIT", span_of(offset), "Say how many rows are wanted: LIMIT.")
        plan = ordered.plan
        if ordered.order and (is_top or limit is not None):
            place = Place(self.script, Span(span_of(order[0]).start, span_of(order[-1]).end))
            plan = Sort(plan, ordered.order, plan.columns, place)
        if limit is not None:
            bounded = Limit(plan, int(limit.this), int(offset.this) if offset is not None else 0, plan.columns)
            plan = bounded if is_top else limited(bounded)
        return plan if ordered.width == len(plan.columns) else reordered(plan, list(range(ordered.width)))

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

    def _body(self, node: exp.Expr, order: list[nodes.OrderItem], is_top: bool) -> Ordered:
        match node:
            case nodes.SelectQuery():
                return self._select(node, order)
            case nodes.QueryNode():
                plan = self.query(node, is_top)
            case nodes.UnionAllQuery():
                plan = self._union(node.expressions, "UNION ALL")
            case nodes.SetQuery():
                plan = self._set_operation(node)
            case nodes.ValuesQuery():
                plan = self._values(node)
            case _:
                raise AssertionError(f"no query: {type(node).__name__}")
        return self._ordered(plan, order)

    def _branch(self, node: exp.Expr) -> Plan:
        return self._body(node, [], is_top=False).plan

    def _ordered(self, plan: Plan, order: list[nodes.OrderItem]) -> Ordered:
        """ORDER BY behind what is no SELECT: it knows the result's columns only, by name or position."""
        if not order:
            return Ordered(plan, (), len(plan.columns))
        scope = Scope((Relation((), tuple(ScopeColumn(c.name, c.type, c.lost) for c in plan.columns)),))
        keys = SortKeys(list(identity(plan.columns)), takes_further=True)
        binder = ExpressionBinder(scope, self.script, "ORDER BY of a set operation", self.outer)
        for item in order:
            keys.add(item, binder)
        if keys.further:
            columns = tuple(Column(f"$order{i}", e.type) for i, e in enumerate(keys.further))
            plan = Calc(plan, None, tuple(keys.values), (*plan.columns, *columns))
        return Ordered(plan, tuple(keys.keys), len(scope.columns))

    # -- set operations -----------------------------------------------------------------------------

    def _union(self, branches: list[exp.Expr], what: str) -> Plan:
        plans = self._branches(branches, what)
        columns = tuple(self._union_column(plans, i, branches, what) for i in range(len(plans[0].columns)))
        return UnionAll(tuple(_converted(plan, columns) for plan in plans), columns)

    def _branches(self, branches: list[exp.Expr], what: str) -> list[Plan]:
        """The sides of a set operation, which have the same number of columns."""
        plans = [self._branch(branch) for branch in branches]
        width = len(plans[0].columns)
        for branch, plan in zip(branches, plans, strict=True):
            if len(plan.columns) != width:
                message = f"{what} of {width} and {len(plan.columns)} columns"
                raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(branch))
        return plans

    def _set_operation(self, node: nodes.SetQuery) -> Plan:
        kind: str = node.args["kind"]
        branches = [node.this, node.args["expression"]]
        if kind == "UNION":
            return distinct(self._union(branches, "UNION"), span_of(node), "UNION")
        what = f"{kind} ALL" if node.args.get("all") else kind
        plans = self._branches(branches, what)
        columns: list[Column] = []
        for i, column in enumerate(plans[0].columns):
            common = self._common_type(plans, i, branches, what)
            was_time = column.type.time_attribute is not None
            columns.append(
                Column(column.name, common, f"{what} made an ordinary value of it" if was_time else column.lost)
            )
        left, right = (_converted(plan, tuple(columns)) for plan in plans)
        return SetOperation(left, right, _SET_KINDS[what], tuple(columns))

    def _common_type(self, plans: list[Plan], index: int, branches: list[exp.Expr], what: str) -> t.DataType:
        types = [plan.columns[index].type for plan in plans]
        common = type_rules.common_type(types)
        width = len(plans[0].columns)
        if common is None:
            first = _first_apart(types)
            listed = ", ".join(type_rules.plain(type_).with_nullable(True).sql() for type_ in types[: first + 1])
            message = f"column {index + 1} of {what} has types without a common one: {listed}"
            span = _column_span(branches[first], index, width)
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span, hint=_CAST_HINT)
        if common.root is t.TypeRoot.NULL:
            raise self._untyped(plans[0].columns[index].name, _column_span(branches[0], index, width))
        return common

    def _union_column(self, plans: list[Plan], index: int, branches: list[exp.Expr], what: str) -> Column:
        candidates = [plan.columns[index] for plan in plans]
        common = self._common_type(plans, index, branches, what)
        marks = {c.type.time_attribute for c in candidates}
        same = all(type_rules.same_but_nullability(c.type, common) for c in candidates)
        if len(marks) == 1 and same:
            mark = marks.pop()
            lost = "" if mark is not None else candidates[0].lost
            return Column(candidates[0].name, common.with_time_attribute(mark), lost)
        lost = next((c.lost for c in candidates if c.lost), "")
        if not lost and len(marks) > 1:
            lost = f"branches of {what} disagreed on it"
        return Column(candidates[0].name, common, lost)

    def _untyped(self, name: str, span: Span) -> SqlError:
        return SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"the type of the column `{name}` is unknown: it is NULL throughout",
            span=span,
            hint="Give it a type: CAST(NULL AS INT).",
        )

    def _values(self, node: nodes.ValuesQuery) -> Plan:
        binder = ExpressionBinder(Scope(()), self.script, "VALUES", self.outer)
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
                column = [row[i].type for row in rows]
                message = f"column {i + 1} of VALUES has types without a common one"
                span = span_of(node.args["rows"][_first_apart(column)].expressions[i])
                raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span, hint=_CAST_HINT)
            types.append(common)
        converted = tuple(tuple(cast_to(e, types[i]) for i, e in enumerate(row)) for row in rows)
        return Values(converted, tuple(Column(f"EXPR${i}", type_) for i, type_ in enumerate(types)))


def _first_apart(types: list[t.DataType]) -> int:
    """Of types without a common one: the first that has none with those before it."""
    return next(i for i in range(1, len(types)) if type_rules.common_type(types[: i + 1]) is None)


def _column_span(node: exp.Expr, index: int, width: int) -> Span:
    """Where a query's text says what its column is: the item of SELECT or of the first row, else all of the query."""
    match node:
        case nodes.QueryNode():
            return _column_span(node.this, index, width)
        case nodes.UnionAllQuery():
            return _column_span(node.expressions[0], index, width)
        case nodes.SetQuery():
            return _column_span(node.this, index, width)
        case nodes.SelectQuery() if len(node.expressions) == width:
            return span_of(node.expressions[index])
        case nodes.ValuesQuery():
            return span_of(node.args["rows"][0].expressions[index])
        case _:
            return span_of(node)


def _converted(plan: Plan, columns: tuple[Column, ...]) -> Plan:
    """The plan with its columns cast to the types of `columns`."""
    projections = tuple(cast_to(InputRef(i, c.type), columns[i].type) for i, c in enumerate(plan.columns))
    if all(isinstance(p, InputRef) for p in projections):
        return plan
    named = tuple(Column(c.name, p.type) for c, p in zip(columns, projections, strict=True))
    return Calc(plan, None, projections, named)
