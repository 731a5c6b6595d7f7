"""Binding of operators, CASE, and access to parts of a value."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import literals as lit
from planner.analysis import operators
from planner.analysis.binder import Binder
from planner.analysis.scope import access_field
from planner.errors import SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import TypeRoot
from planner.sql.nodes import span_of

ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def bind_logical(binder: Binder, node: exp.Expr) -> Expression:
    """AND and OR. The left spine is walked in a loop: generated filters have thousands of terms."""
    kind = type(node)
    function = "AND" if kind is exp.And else "OR"
    terms: list[exp.Expr] = []
    cursor = node
    while type(cursor) is kind:
        terms.append(cursor.args["expression"])
        cursor = cursor.this
    terms.append(cursor)
    bound = [binder.condition(term, function) for term in reversed(terms)]
    return operators.logical(function, tuple(bound))


def bind_not(binder: Binder, node: exp.Expr) -> Expression:
    return operators.negation(binder.condition(node.this, "NOT"))


def bind_comparison(binder: Binder, node: exp.Expr) -> Expression:
    left, right = _both(binder, node)
    return operators.comparison(COMPARISONS[type(node)], left, right, span_of(node))


def bind_arithmetic(binder: Binder, node: exp.Expr) -> Expression:
    left, right = _both(binder, node)
    return operators.arithmetic(ARITHMETIC[type(node)], left, right, span_of(node), binder.text_of(node))


def _both(binder: Binder, node: exp.Expr) -> tuple[Expression, Expression]:
    return binder.bind(node.this), binder.bind(node.args["expression"])


def bind_concatenation(binder: Binder, node: exp.Expr) -> Expression:
    left, right = _both(binder, node)
    return operators.concatenation(left, right, span_of(node))


def bind_negate(binder: Binder, node: exp.Expr) -> Expression:
    operand = binder.bind(node.this)
    if isinstance(operand, Literal):
        folded = lit.negated(operand, span_of(node))
        if folded is not None:
            return folded
    return operators.negate(operand, span_of(node), binder.text_of(node))


def bind_is_test(binder: Binder, node: exp.Expr) -> Expression:
    operand = binder.bind(node.this)
    test = node.args["test"]
    prefix = "IS_NOT_" if node.args.get("negated") else "IS_"
    if test == "NULL":
        return Call(f"{prefix}NULL", (operand,), t.BOOLEAN.with_nullable(False))
    operand = operators.expect_boolean(operand, span_of(node.this), f"IS {test}")
    # IS UNKNOWN asks a BOOLEAN for NULL.
    function = f"{prefix}NULL" if test == "UNKNOWN" else f"{prefix}{test}"
    return Call(function, (operand,), t.BOOLEAN.with_nullable(False))


def bind_distinct_test(binder: Binder, node: exp.Expr) -> Expression:
    left, right = _both(binder, node)
    return operators.distinct_test(left, right, bool(node.args.get("negated")), span_of(node))


def bind_like(binder: Binder, node: exp.Expr) -> Expression:
    left, right = _both(binder, node)
    escape = node.args.get("escape")
    return operators.like(left, right, binder.bind(escape) if escape is not None else None, span_of(node))


def bind_between(binder: Binder, node: exp.Expr) -> Expression:
    value, low, high = (binder.bind(node.args[k]) for k in ("this", "low", "high"))
    return operators.between(value, low, high, bool(node.args.get("symmetric")), span_of(node))


def bind_in(binder: Binder, node: exp.Expr) -> Expression:
    items: list[exp.Expr] = node.args["expressions"]
    if isinstance(node.this, exp.Tuple):
        return _row_membership(binder, node.this, items)
    return operators.membership(binder.bind(node.this), tuple(binder.bind(item) for item in items), span_of(node))


def _row_membership(binder: Binder, row: exp.Tuple, items: list[exp.Expr]) -> Expression:
    """`(a, b) IN ((1, 2), (3, 4))`: equal to one of the rows, column by column."""
    values = [binder.bind(value) for value in row.expressions]
    equalities: list[Expression] = []
    for item in items:
        if not isinstance(item, exp.Tuple) or len(item.expressions) != len(values):
            message = f"IN compares rows of {len(values)} columns"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(item))
        pairs = zip(values, item.expressions, strict=True)
        compared = tuple(operators.comparison("=", value, binder.bind(e), span_of(e)) for value, e in pairs)
        equalities.append(operators.logical("AND", compared))
    return operators.logical("OR", tuple(equalities))


def bind_case(binder: Binder, node: exp.Expr) -> Expression:
    operand_node = node.args.get("this")
    operand = binder.bind(operand_node) if operand_node is not None else None
    branches: list[tuple[Expression, Expression]] = []
    for branch in node.args["ifs"]:
        if operand is None:
            condition = binder.condition(branch.this, "WHEN")
        else:
            condition = operators.comparison("=", operand, binder.bind(branch.this), span_of(branch))
        branches.append((condition, binder.bind(branch.args["true"])))
    default = node.args.get("default")
    return operators.case(branches, binder.bind(default) if default is not None else None, span_of(node))


def bind_field(binder: Binder, node: exp.Expr) -> Expression:
    return access_field(binder.bind(node.this), node.args["name"])


def bind_item(binder: Binder, node: exp.Expr) -> Expression:
    operand, index = binder.bind(node.this), binder.bind(node.args["index"])
    span = span_of(node)
    if operand.type.root is TypeRoot.ARRAY and operand.type.element is not None:
        if not (index.type.is_integer or index.type.root is TypeRoot.NULL):
            message = f"an ARRAY's index is a whole number, not {index.type.sql()}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
        if isinstance(index, Literal) and isinstance(index.value, int) and index.value < 1:
            message = f"an ARRAY's first index is 1, not {index.value}"
            raise SqlError(SqlState.INVALID_PARAMETER, message, span=span)
        return Call("ITEM_ARRAY", (operand, index), operand.type.element.with_nullable(True))
    if operand.type.root is TypeRoot.MAP and operand.type.key is not None and operand.type.element:
        _, key = operators.comparable("=", lit.null_literal(operand.type.key), index, span)
        return Call("ITEM_MAP", (operand, key), operand.type.element.with_nullable(True))
    message = f"[ ] wants an ARRAY or a MAP, not {operand.type.sql()}"
    raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
