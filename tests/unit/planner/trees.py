"""Syntax trees as fully bracketed text."""

from __future__ import annotations

from sqlglot import exp

from planner.sql import nodes
from planner.sql.statements import Select

_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Or: "OR",
    exp.And: "AND",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
}


def tree_text(statement: Select) -> str:
    """The first select item."""
    query = statement.query.tree
    return show(query.this.args["expressions"][0].this)


def show(node: exp.Expr) -> str:
    if type(node) in _SYMBOLS:
        return f"({show(node.this)} {_SYMBOLS[type(node)]} {show(node.args['expression'])})"
    match node:
        case exp.Not():
            return f"(NOT {show(node.this)})"
        case exp.Neg():
            return f"(- {show(node.this)})"
        case nodes.IsTest():
            negated = "NOT " if node.args.get("negated") else ""
            return f"({show(node.this)} IS {negated}{node.args['test']})"
        case nodes.DistinctTest():
            negated = "NOT " if node.args.get("negated") else ""
            return f"({show(node.this)} IS {negated}DISTINCT FROM {show(node.args['expression'])})"
        case exp.Between():
            return f"({show(node.this)} BETWEEN {show(node.args['low'])} AND {show(node.args['high'])})"
        case exp.In():
            return f"({show(node.this)} IN ({', '.join(show(e) for e in node.args['expressions'])}))"
        case nodes.LikeTest():
            return f"({show(node.this)} LIKE {show(node.args['expression'])})"
        case nodes.NamePath():
            return ".".join(i.this for i in node.args["expressions"])
        case nodes.ItemAccess():
            return f"{show(node.this)}[{show(node.args['index'])}]"
        case nodes.FieldAccess():
            return f"({show(node.this)}).{node.args['name'].this}"
        case exp.Literal():
            return str(node.this)
        case exp.Case():
            branches = " ".join(f"WHEN {show(i.this)} THEN {show(i.args['true'])}" for i in node.args["ifs"])
            return f"CASE {branches} END"
        case _:
            return type(node).__name__
