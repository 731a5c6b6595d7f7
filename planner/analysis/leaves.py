"""Binding of names and literals."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import literals as lit
from planner.analysis.binder import Binder
from planner.errors import SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Expression, Literal
from planner.sql.nodes import span_of


def bind_path(binder: Binder, node: exp.Expr) -> Expression:
    """A column, or one of the query around if there is none here."""
    try:
        return binder.scope.resolve(node.args["expressions"])
    except SqlError as unknown:
        if binder.outer is None or unknown.sqlstate != SqlState.UNDEFINED_COLUMN:
            raise
        try:
            return binder.outer.bind(node)
        except SqlError as further:
            is_closer = (
                further.span is not None and unknown.span is not None and further.span.start > unknown.span.start
            )
            if further.sqlstate == SqlState.UNDEFINED_COLUMN and not is_closer:
                raise unknown from None
            raise further from None


def bind_literal(binder: Binder, node: exp.Expr) -> Expression:
    if node.args["is_string"]:
        return lit.text_literal(node.this)
    return lit.number_literal(node.this, span_of(node))


def bind_null(binder: Binder, node: exp.Expr) -> Expression:
    return lit.null_literal(t.BOOLEAN if node.args.get("unknown") else t.NULL)


def bind_boolean(binder: Binder, node: exp.Expr) -> Expression:
    return Literal(bool(node.this), t.BOOLEAN.with_nullable(False))


def bind_hex_string(binder: Binder, node: exp.Expr) -> Expression:
    try:
        value = bytes.fromhex(node.this)
    except ValueError:
        message = f"X'{node.this}' is not an even number of hex digits"
        raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(node)) from None
    return Literal(value.hex(), t.binary(len(value)).with_nullable(False))


def bind_temporal(binder: Binder, node: exp.Expr) -> Expression:
    return lit.temporal_literal(node.args["kind"], node.args["text"], span_of(node))


def bind_interval(binder: Binder, node: exp.Expr) -> Expression:
    args = node.args
    negative = bool(args.get("negative"))
    return lit.interval_literal(args["text"], args["unit"], args.get("to"), negative, span_of(node))


def bind_unit(binder: Binder, node: exp.Expr) -> Expression:
    return lit.text_literal(node.this)


def bind_refused_leaf(binder: Binder, node: exp.Expr) -> Expression:
    raise SqlError(SqlState.SYNTAX_ERROR, f"{binder.text_of(node)!r} cannot stand in an expression", span=span_of(node))
