"""Sub-queries in expressions: IN, EXISTS, ANY, ALL and scalar ones, as values and as conditions of a filter.

As a condition of WHERE or HAVING, [NOT] IN and [NOT] EXISTS are a semi or an anti join. Anywhere else a sub-query is a
value that a LEFT JOIN brings: a row of aggregates, or a mark that there is a row.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlglot import exp

from planner.analysis import operators, type_rules
from planner.analysis.aggregates import ORDERED_ROOTS
from planner.analysis.binder import Binder
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.outer import FIRST_PART, OuterNames, as_outer, part, replace_outer
from planner.analysis.query_nodes import has_subquery, listed_values
from planner.errors import Span, SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, substitute
from planner.ir.operators import AggregateCall, AggregateFunction, JoinKind
from planner.logical.build_parts import Parts, ToPlan, semi_joined
from planner.logical.decorrelate import TRUE, outer_columns, reads_outer
from planner.logical.expressions import conjunction, identity
from planner.logical.joins import settle_joins
from planner.logical.nodes import Calc, Column, GroupAggregate, Place, Plan, Rank, Values
from planner.sql import nodes
from planner.sql.nodes import span_of

BuildQuery = Callable[[nodes.QueryNode, OuterNames], Plan]
"""The tree of a sub-query that sees the given names of the query around it."""

_BOOLEAN = t.BOOLEAN.with_nullable(False)
_FALSE = Literal(False, _BOOLEAN)
_UNKNOWN = Literal(None, t.BOOLEAN)
_COUNT = t.BIGINT.with_nullable(False)
_TEXT_LENGTH_MAX = 60


class SingleRow(msgspec.Struct, frozen=True):
    """A tree that is one row of `values` over the columns of `aggregate` (None: over nothing), which is there where
    `condition` is TRUE."""

    aggregate: GroupAggregate | None
    values: tuple[Expression, ...]
    condition: Expression | None


def single_row(plan: Plan) -> SingleRow | None:
    match plan:
        case GroupAggregate(keys=()):
            return SingleRow(plan, identity(plan.columns), None)
        case Values(rows=(row,)):
            return SingleRow(None, row, None)
        case Calc():
            below = single_row(plan.input)
            if below is None:
                return None
            values = tuple(substitute(p, below.values) for p in plan.projections)
            condition = substitute(plan.condition, below.values) if plan.condition is not None else None
            return SingleRow(below.aggregate, values, conjunction((below.condition, condition)))
        case _:
            return None


class Test(msgspec.Struct, frozen=True):
    """A semi or anti join with a sub-query."""

    plan: Plan
    kind: JoinKind
    place: Place

    def needs_parts(self, level: int) -> bool:
        return any(column.index >= FIRST_PART for column in outer_columns(self.plan, level))


class Filter(msgspec.Struct, frozen=True):
    """WHERE or HAVING: conditions without sub-queries, semi and anti joins, and conditions over parts."""

    plain: tuple[Expression, ...] = ()
    tests: tuple[Test, ...] = ()
    rest: tuple[Expression, ...] = ()

    @property
    def condition(self) -> Expression | None:
        """All of it, where there are no sub-queries."""
        return conjunction(self.plain)


class SubqueryBinder:
    """Binds the sub-queries of one text."""

    def __init__(self, build: BuildQuery, script: str) -> None:
        self._build = build
        self._script = script

    # -- values -------------------------------------------------------------------------------------

    def value(self, parts: Parts, node: exp.Expr, binder: Binder) -> Expression:
        """What the sub-query is in an expression."""
        plan = self._tree(parts, node, binder)
        match node:
            case nodes.ScalarQuery():
                return self._scalar(parts, node, plan)
            case nodes.ExistsTest():
                return self._exists(parts, node, plan)
            case nodes.InQuery():
                return self._contained(parts, node, binder, plan)
            case nodes.QuantifiedTest() if _is_membership(node):
                found = self._contained(parts, node, binder, plan)
                return operators.negation(found) if node.args["quantifier"] == "ALL" else found
            case _:
                return self._quantified(parts, node, binder, plan)

    def _tree(self, parts: Parts, node: exp.Expr, binder: Binder) -> Plan:
        query = node.args.get("query") or node.this
        assert isinstance(query, nodes.QueryNode)
        return self._build(query, OuterNames(binder, parts.level))

    def _scalar(self, parts: Parts, node: exp.Expr, plan: Plan) -> Expression:
        span = span_of(node)
        _expect_width(plan, 1, span, "a sub-query that stands for a value")
        row = single_row(plan)
        if row is not None:
            values, condition = _in_block(parts, row, span)
            return values[0] if condition is None else operators.case([(condition, values[0])], None, span)
        if isinstance(plan, Rank) and plan.first == plan.last and not plan.keys and not reads_outer(plan, parts.level):
            return parts.row(plan, span)
        column = plan.columns[0]
        if column.type.root is t.TypeRoot.NULL:
            message = f"the type of the column `{column.name}` is unknown: it is NULL throughout"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span, hint="Give it a type: CAST(NULL AS INT).")
        type_ = type_rules.plain(column.type)
        call = AggregateCall(AggregateFunction.SINGLE_VALUE, 0, type_, type_.with_nullable(True))
        # The runtime names the sub-query by its column where it has too many rows.
        text = " ".join(self._script[span.start : span.end].split())
        shown = text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}…"
        aggregate = GroupAggregate(plan, (), (call,), (Column(shown, call.type),))
        return parts.aggregate(aggregate, span)[0]

    def _exists(self, parts: Parts, node: exp.Expr, plan: Plan) -> Expression:
        row = single_row(plan)
        if row is None:
            return parts.marker(_without_shape(plan), span_of(node))
        if row.condition is None:
            return TRUE
        _, condition = _in_block(parts, row, span_of(node))
        assert condition is not None
        return Call("IS_TRUE", (condition,), _BOOLEAN)

    def _contained(self, parts: Parts, node: exp.Expr, binder: Binder, plan: Plan) -> Expression:
        """IN as a value: NULL where no row is equal, but one might be if NULL were known."""
        span = span_of(node)
        operands = self._operands(node, binder, plan)
        row = single_row(plan)
        if row is not None:
            values, condition = _in_block(parts, row, span)
            equal = [operators.comparison("=", x, y, span) for x, y in zip(operands, values, strict=True)]
            if condition is not None:
                equal.insert(0, Call("IS_TRUE", (condition,), _BOOLEAN))
            return operators.logical("AND", tuple(equal))
        equalities = _equalities(parts, operands, plan, span)
        found = parts.marker(_matching(plan, equalities), span)
        if id(node) in parts.free_of_unknown or not any(e.type.nullable for e in equalities):
            return found
        if len(operands) > 1:
            unknown = parts.marker(_matching(plan, [_is_not_false(e) for e in equalities]), span)
        else:
            unknown = self._unknown(parts, operands[0], plan, span)
        return operators.case([(found, TRUE), (unknown, _UNKNOWN)], _FALSE, span)

    def _unknown(self, parts: Parts, operand: Expression, plan: Plan, span: Span) -> Expression:
        """Whether `operand` IN a sub-query in which it is not found is NULL."""
        reasons: list[Expression] = []
        column = InputRef(0, plan.columns[0].type)
        if column.type.nullable:
            reasons.append(parts.marker(_matching(plan, [Call("IS_NULL", (column,), _BOOLEAN)]), span))
        if operand.type.nullable:
            is_null = Call("IS_NULL", (operand,), _BOOLEAN)
            reasons.append(operators.logical("AND", (is_null, parts.marker(_without_shape(plan), span))))
        return operators.logical("OR", tuple(reasons))

    def _operands(self, node: exp.Expr, binder: Binder, plan: Plan) -> list[Expression]:
        operands = [binder.bind(e) for e in _row_of(node.this)]
        what = "IN" if isinstance(node, nodes.InQuery) else node.args["quantifier"]
        _expect_width(plan, len(operands), span_of(node), f"the sub-query of {what}")
        return operands

    def _quantified(self, parts: Parts, node: exp.Expr, binder: Binder, plan: Plan) -> Expression:
        """`x > ANY (…)` by the smallest and greatest value there, the number of rows and that of values."""
        span, operator = span_of(node), node.args["operator"]
        is_all = node.args["quantifier"] == "ALL"
        (operand,) = self._operands(node, binder, plan)
        type_ = type_rules.plain(plan.columns[0].type)
        if type_.root not in ORDERED_ROOTS:
            message = f"{operator} {node.args['quantifier']} does not take {type_.with_nullable(True).sql()}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
        extreme = type_.with_nullable(True)
        calls = (
            AggregateCall(AggregateFunction.MIN, 0, type_, extreme),
            AggregateCall(AggregateFunction.MAX, 0, type_, extreme),
            AggregateCall(AggregateFunction.COUNT_STAR, None, None, _COUNT),
            AggregateCall(AggregateFunction.COUNT, 0, type_, _COUNT),
        )
        columns = tuple(Column(n, c.type) for n, c in zip(("$min", "$max", "$rows", "$values"), calls, strict=True))
        low, high, rows, values = parts.aggregate(GroupAggregate(plan, (), calls, columns), span)
        with_low, with_high = (operators.comparison(operator, operand, e, span) for e in (low, high))
        match operator:
            case "=" | "<>":
                test = operators.logical("AND" if is_all else "OR", (with_low, with_high))
            case ">" | ">=":
                test = with_high if is_all else with_low
            case _:
                test = with_low if is_all else with_high
        is_empty = operators.comparison("=", rows, Literal(0, _COUNT), span)
        decided = Call("IS_FALSE" if is_all else "IS_TRUE", (test,), _BOOLEAN)
        has_null = operators.comparison(">", rows, values, span)
        answer = Literal(not is_all, _BOOLEAN)
        branches = [(is_empty, Literal(is_all, _BOOLEAN)), (decided, answer), (has_null, _UNKNOWN)]
        return operators.case(list(branches), test, span)

    # -- filters ------------------------------------------------------------------------------------

    def filter(self, node: exp.Expr, binder: ExpressionBinder, parts: Parts, where: str) -> Filter:
        """The clause `where`, bound; `parts` are `binder`'s block."""
        if not has_subquery(node):
            return Filter((binder.condition(node, where),))
        plain: list[Expression] = []
        tests: list[Test] = []
        rest: list[Expression] = []
        for term in _terms(node):
            if not has_subquery(term):
                plain.append(binder.condition(term, where))
                continue
            found = self._test(term, binder, parts)
            if isinstance(found, Test):
                tests.append(found)
                continue
            if found is None:
                parts.free_of_unknown |= _free_of_unknown(term)
                found = binder.condition(term, where)
            rest.append(found)
        return Filter(tuple(plain), tuple(tests), tuple(rest))

    def _test(self, term: exp.Expr, binder: ExpressionBinder, parts: Parts) -> Test | Expression | None:
        """The term as a semi or anti join; as a value where its sub-query is one row; None if it is something else."""
        node, is_negated = term, False
        while isinstance(node, exp.Not):
            node, is_negated = node.this, not is_negated
        is_listed = isinstance(node, nodes.InQuery) and listed_values(node) is not None
        if is_listed or not (isinstance(node, nodes.ExistsTest | nodes.InQuery) or _is_membership(node)):
            return None
        if isinstance(node, nodes.QuantifiedTest) and node.args["quantifier"] == "ALL":
            is_negated = not is_negated
        plan = self._tree(parts, node, binder)
        is_exists = isinstance(node, nodes.ExistsTest)
        if single_row(plan) is not None:
            value = self._exists(parts, node, plan) if is_exists else self._contained(parts, node, binder, plan)
            return operators.negation(value) if is_negated else value
        if is_exists:
            tested = _without_shape(plan)
        else:
            operands = self._operands(node, binder, plan)
            equalities = _equalities(parts, operands, plan, span_of(node))
            tested = _matching(plan, [_is_not_false(e) for e in equalities] if is_negated else equalities)
        kind = JoinKind.ANTI if is_negated else JoinKind.SEMI
        return Test(tested, kind, Place(self._script, span_of(node)))


def filtered(plan: Plan, bound: Filter, parts: Parts, to_plan: ToPlan) -> tuple[Plan, Expression | None]:
    """The tree with the sub-queries of a filter on top, its own columns first, and the condition that is left."""

    def local(expression: Expression) -> Expression:
        return substitute(to_plan(expression), identity(plan.columns))

    condition = conjunction(local(e) for e in bound.plain)
    if not bound.tests and not parts:
        return settle_joins(plan, condition)
    if condition is not None:
        plan = Calc(plan, condition, identity(plan.columns), plan.columns)
    late = [test for test in bound.tests if test.needs_parts(parts.level)]
    for test in bound.tests:
        if test not in late:
            plan = semi_joined(plan, test.plan, test.kind, parts.level, local, test.place)
    plan, resolved = parts.attached(plan, to_plan)
    for test in late:
        plan = semi_joined(plan, test.plan, test.kind, parts.level, resolved, test.place)
    return settle_joins(plan, conjunction(resolved(e) for e in bound.rest))


def _in_block(parts: Parts, row: SingleRow, span: Span) -> tuple[tuple[Expression, ...], Expression | None]:
    """A single row and its condition as expressions of the block around."""
    columns = parts.aggregate(row.aggregate, span) if row.aggregate is not None else ()

    def here(column: InputRef) -> Expression:
        return part(column.index - FIRST_PART, column.type) if column.index >= FIRST_PART else column

    def moved(expression: Expression) -> Expression:
        return replace_outer(substitute(expression, columns), parts.level, here)

    condition = moved(row.condition) if row.condition is not None else None
    return tuple(moved(v) for v in row.values), condition


def _equalities(parts: Parts, operands: list[Expression], plan: Plan, span: Span) -> list[Expression]:
    """`operand = column` for each column of the sub-query, over its columns."""
    pairs = zip(operands, identity(plan.columns), strict=True)
    return [operators.comparison("=", as_outer(x, parts.level), y, span) for x, y in pairs]


def _matching(plan: Plan, conditions: list[Expression]) -> Plan:
    """The rows of a sub-query that meet all conditions."""
    return Calc(plan, conjunction(conditions), identity(plan.columns), plan.columns)


def _is_not_false(equality: Expression) -> Expression:
    """For NOT IN: a row that might be equal excludes as well as one that is."""
    return Call("IS_NOT_FALSE", (equality,), _BOOLEAN) if equality.type.nullable else equality


def _without_shape(plan: Plan) -> Plan:
    """A smaller tree that has a row if and only if `plan` has one."""
    match plan:
        case Calc(condition=None):
            return _without_shape(plan.input)
        case GroupAggregate(keys=keys) if keys:
            return _without_shape(plan.input)
        case Rank(keys=(), first=1):
            return _without_shape(plan.input)
        case _:
            return plan


def _row_of(node: exp.Expr) -> list[exp.Expr]:
    """The columns of `(a, b)` or `ROW(a, b)`; anything else is one column."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, nodes.FunctionCall) and node.args["name"].upper() == "ROW":
        return list(node.args.get("expressions") or [])
    return [node]


def _is_membership(node: exp.Expr) -> bool:
    """`= ANY` is IN, `<> ALL` is NOT IN."""
    if not isinstance(node, nodes.QuantifiedTest):
        return False
    return (node.args["operator"], node.args["quantifier"]) in (("=", "ANY"), ("<>", "ALL"))


def _expect_width(plan: Plan, width: int, span: Span, what: str) -> None:
    if len(plan.columns) != width:
        message = f"{what} must have {width} column(s), not {len(plan.columns)}"
        raise SqlError(SqlState.SYNTAX_ERROR, message, span=span)


def _terms(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a conjunction, in their order."""
    terms: list[exp.Expr] = []
    while isinstance(node, exp.And):
        terms.append(node.args["expression"])
        node = node.this
    return [node, *reversed(terms)]


def _free_of_unknown(node: exp.Expr) -> frozenset[int]:
    """The nodes below AND and OR, where a condition that is not TRUE is the same as a FALSE one."""
    if isinstance(node, exp.And | exp.Or):
        return _free_of_unknown(node.this) | _free_of_unknown(node.args["expression"])
    return frozenset((id(node),))
