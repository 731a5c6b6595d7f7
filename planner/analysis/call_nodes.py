"""Binding of function calls and of the calls with a grammar of their own."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import functions
from planner.analysis import literals as lit
from planner.analysis.binder import Binder
from planner.analysis.data_types import bind_type
from planner.errors import SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of

_JSON_VALUE_ROOTS = frozenset({TypeRoot.VARCHAR, TypeRoot.BOOLEAN, TypeRoot.INTEGER, TypeRoot.DOUBLE})


def bind_call(binder: Binder, node: exp.Expr) -> Expression:
    name: str = node.args["name"]
    span = span_of(node)
    upper = name.upper()
    if upper in functions.AGGREGATE_NAMES:
        place = binder.aggregates_refused_in or "this place"
        raise SqlError(SqlState.GROUPING_ERROR, f"the aggregate {upper} cannot stand in {place}", span=span)
    if upper in functions.GROUPING_NAMES:
        message = f"{upper} belongs to a query with GROUP BY, above its groups"
        raise SqlError(SqlState.GROUPING_ERROR, message, span=span)
    if node.args.get("star"):
        raise SqlError(SqlState.UNDEFINED_FUNCTION, f"{upper}(*) is no function", span=span)
    if node.args.get("distinct") or node.args.get("filter") is not None:
        clause = "DISTINCT" if node.args.get("distinct") else "FILTER"
        message = f"{clause} belongs to aggregates, and `{name}` is none"
        raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=span)
    arguments: list[Expression] = []
    for argument in node.args.get("expressions") or []:
        if isinstance(argument, nodes.NamedArgument):
            raise not_supported("named arguments of a scalar function", span_of(argument))
        arguments.append(binder.bind(argument))
    return functions.bind_call(name, tuple(arguments), span, binder.text_of(node))


def bind_cast(binder: Binder, node: exp.Expr) -> Expression:
    operand = binder.bind(node.this)
    is_try = isinstance(node, exp.TryCast)
    target = bind_type(node.args["to"])
    return functions.cast_call(operand, target, is_try, span_of(node), binder.text_of(node))


def bind_extract(binder: Binder, node: exp.Expr) -> Expression:
    arguments = (binder.bind(node.this), binder.bind(node.args["expression"]))
    return functions.bind_call("EXTRACT", arguments, span_of(node), binder.text_of(node))


def bind_rounding(binder: Binder, node: exp.Expr) -> Expression:
    arguments = (binder.bind(node.args["unit"]), binder.bind(node.this))
    return functions.bind_call(node.args["function"], arguments, span_of(node), binder.text_of(node))


def bind_trim(binder: Binder, node: exp.Expr) -> Expression:
    characters = node.args.get("characters")
    arguments = (
        binder.bind(node.this),
        binder.bind(characters) if characters is not None else lit.text_literal(" "),
        lit.text_literal(node.args["side"]),
    )
    return functions.bind_call("TRIM", arguments, span_of(node), binder.text_of(node))


def bind_json_value(binder: Binder, node: exp.Expr) -> Expression:
    args = node.args
    span = span_of(node)
    path = binder.bind(args["path"])
    if not (isinstance(path, Literal) and isinstance(path.value, str)):
        raise not_supported("a JSON path that is no literal", span_of(args["path"]))
    returning = bind_type(args["returning"]) if args.get("returning") is not None else t.STRING
    if returning.root not in _JSON_VALUE_ROOTS:
        message = f"JSON_VALUE returns STRING, BOOLEAN, INT or DOUBLE, not {returning.sql()}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(args["returning"]))
    text = binder.bind(args["this"])
    if text.type.root is TypeRoot.NULL:
        text = lit.null_literal(t.STRING)
    arguments = (
        text,
        path,
        lit.text_literal(args["on_empty"]),
        _json_default(binder, args.get("empty_default"), returning),
        lit.text_literal(args["on_error"]),
        _json_default(binder, args.get("error_default"), returning),
    )
    if not text.type.is_character:
        message = f"JSON_VALUE reads text, not {text.type.sql()}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
    return Call("JSON_VALUE", arguments, returning.with_nullable(True), binder.text_of(node))


def _json_default(binder: Binder, node: exp.Expr | None, returning: t.DataType) -> Expression:
    if node is None:
        return lit.null_literal(returning)
    default = binder.bind(node)
    return functions.cast_call(default, returning, False, span_of(node), binder.text_of(node))
