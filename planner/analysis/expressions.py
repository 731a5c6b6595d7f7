"""From expression syntax to typed IR. The list of accepted nodes is closed: any other is an internal error.

One binder serves one place of a query (a WHERE, a select list, …) and knows the scope there. `planner.analysis.
grouping` derives the binder for expressions above GROUP BY.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from planner.analysis import functions, operators
from planner.analysis import literals as lit
from planner.analysis.data_types import bind_type
from planner.analysis.scope import Scope, access_field
from planner.errors import SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, walk
from planner.ir.types import TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


class ExpressionBinder:
    """Binds expressions against `scope`. `script` is the text that spans point into."""

    def __init__(self, scope: Scope, script: str, aggregates_refused_in: str = "") -> None:
        self.scope = scope
        self.script = script
        self.aggregates_refused_in = aggregates_refused_in

    def bind(self, node: exp.Expr) -> Expression:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise AssertionError(f"the binder does not know the node {type(node).__name__}")
        return handler(self, node)

    def condition(self, node: exp.Expr, where: str) -> Expression:
        """A BOOLEAN expression; `where` names its clause."""
        return operators.expect_boolean(self.bind(node), span_of(node), where)

    def text_of(self, node: exp.Expr) -> str:
        span = span_of(node)
        return self.script[span.start : span.end]

    # -- leaves -------------------------------------------------------------------------------------

    def _path(self, node: exp.Expr) -> Expression:
        return self.scope.resolve(node.args["expressions"])

    def _literal(self, node: exp.Expr) -> Expression:
        if node.args["is_string"]:
            return lit.text_literal(node.this)
        return lit.number_literal(node.this, span_of(node))

    def _null(self, node: exp.Expr) -> Expression:
        return lit.null_literal(t.BOOLEAN if node.args.get("unknown") else t.NULL)

    def _boolean(self, node: exp.Expr) -> Expression:
        return Literal(bool(node.this), t.BOOLEAN.with_nullable(False))

    def _hex_string(self, node: exp.Expr) -> Expression:
        try:
            value = bytes.fromhex(node.this)
        except ValueError:
            message = f"X'{node.this}' is not an even number of hex digits"
            raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(node)) from None
        return Literal(value.hex(), t.binary(len(value)).with_nullable(False))

    def _temporal(self, node: exp.Expr) -> Expression:
        return lit.temporal_literal(node.args["kind"], node.args["text"], span_of(node))

    def _interval(self, node: exp.Expr) -> Expression:
        args = node.args
        negative = bool(args.get("negative"))
        return lit.interval_literal(args["text"], args["unit"], args.get("to"), negative, span_of(node))

    def _unit(self, node: exp.Expr) -> Expression:
        return lit.text_literal(node.this)

    def _refused_leaf(self, node: exp.Expr) -> Expression:
        raise SqlError(
            SqlState.SYNTAX_ERROR, f"{self.text_of(node)!r} cannot stand in an expression", span=span_of(node)
        )

    # -- operators ----------------------------------------------------------------------------------

    def _logical(self, node: exp.Expr) -> Expression:
        """AND and OR. The left spine is walked in a loop: generated filters have thousands of terms."""
        kind = type(node)
        function = "AND" if kind is exp.And else "OR"
        terms: list[exp.Expr] = []
        cursor = node
        while type(cursor) is kind:
            terms.append(cursor.args["expression"])
            cursor = cursor.this
        terms.append(cursor)
        bound = [self.condition(term, function) for term in reversed(terms)]
        return operators.logical(function, tuple(bound))

    def _not(self, node: exp.Expr) -> Expression:
        return operators.negation(self.condition(node.this, "NOT"))

    def _comparison(self, node: exp.Expr) -> Expression:
        left, right = self._both(node)
        return operators.comparison(_COMPARISONS[type(node)], left, right, span_of(node))

    def _arithmetic(self, node: exp.Expr) -> Expression:
        left, right = self._both(node)
        return operators.arithmetic(_ARITHMETIC[type(node)], left, right, span_of(node), self.text_of(node))

    def _both(self, node: exp.Expr) -> tuple[Expression, Expression]:
        return self.bind(node.this), self.bind(node.args["expression"])

    def _concatenation(self, node: exp.Expr) -> Expression:
        left, right = self._both(node)
        return operators.concatenation(left, right, span_of(node))

    def _negate(self, node: exp.Expr) -> Expression:
        operand = self.bind(node.this)
        if isinstance(operand, Literal):
            folded = lit.negated(operand, span_of(node))
            if folded is not None:
                return folded
        return operators.negate(operand, span_of(node), self.text_of(node))

    def _is_test(self, node: exp.Expr) -> Expression:
        operand = self.bind(node.this)
        test = node.args["test"]
        prefix = "IS_NOT_" if node.args.get("negated") else "IS_"
        if test == "NULL":
            return Call(f"{prefix}NULL", (operand,), t.BOOLEAN.with_nullable(False))
        operand = operators.expect_boolean(operand, span_of(node.this), f"IS {test}")
        # IS UNKNOWN asks a BOOLEAN for NULL.
        function = f"{prefix}NULL" if test == "UNKNOWN" else f"{prefix}{test}"
        return Call(function, (operand,), t.BOOLEAN.with_nullable(False))

    def _distinct_test(self, node: exp.Expr) -> Expression:
        left, right = self._both(node)
        return operators.distinct_test(left, right, bool(node.args.get("negated")), span_of(node))

    def _like(self, node: exp.Expr) -> Expression:
        left, right = self._both(node)
        escape = node.args.get("escape")
        return operators.like(left, right, self.bind(escape) if escape is not None else None, span_of(node))

    def _between(self, node: exp.Expr) -> Expression:
        value, low, high = (self.bind(node.args[k]) for k in ("this", "low", "high"))
        return operators.between(value, low, high, bool(node.args.get("symmetric")), span_of(node))

    def _in(self, node: exp.Expr) -> Expression:
        items = tuple(self.bind(item) for item in node.args["expressions"])
        return operators.membership(self.bind(node.this), items, span_of(node))

    def _case(self, node: exp.Expr) -> Expression:
        operand_node = node.args.get("this")
        operand = self.bind(operand_node) if operand_node is not None else None
        branches: list[tuple[Expression, Expression]] = []
        for branch in node.args["ifs"]:
            if operand is None:
                condition = self.condition(branch.this, "WHEN")
            else:
                condition = operators.comparison("=", operand, self.bind(branch.this), span_of(branch))
            branches.append((condition, self.bind(branch.args["true"])))
        default = node.args.get("default")
        return operators.case(branches, self.bind(default) if default is not None else None, span_of(node))

    # -- access -------------------------------------------------------------------------------------

    def _field(self, node: exp.Expr) -> Expression:
        return access_field(self.bind(node.this), node.args["name"])

    def _item(self, node: exp.Expr) -> Expression:
        operand, index = self.bind(node.this), self.bind(node.args["index"])
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

    # -- calls --------------------------------------------------------------------------------------

    def _call(self, node: exp.Expr) -> Expression:
        name: str = node.args["name"]
        span = span_of(node)
        upper = name.upper()
        if upper in functions.AGGREGATE_NAMES:
            place = self.aggregates_refused_in or "this place"
            raise SqlError(SqlState.GROUPING_ERROR, f"the aggregate {upper} cannot stand in {place}", span=span)
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
            arguments.append(self.bind(argument))
        return functions.bind_call(name, tuple(arguments), span, self.text_of(node))

    def _cast(self, node: exp.Expr) -> Expression:
        operand = self.bind(node.this)
        is_try = isinstance(node, exp.TryCast)
        target = bind_type(node.args["to"])
        return functions.cast_call(operand, target, is_try, span_of(node), self.text_of(node))

    def _extract(self, node: exp.Expr) -> Expression:
        arguments = (self.bind(node.this), self.bind(node.args["expression"]))
        return functions.bind_call("EXTRACT", arguments, span_of(node), self.text_of(node))

    def _rounding(self, node: exp.Expr) -> Expression:
        arguments = (self.bind(node.args["unit"]), self.bind(node.this))
        return functions.bind_call(node.args["function"], arguments, span_of(node), self.text_of(node))

    def _trim(self, node: exp.Expr) -> Expression:
        characters = node.args.get("characters")
        arguments = (
            self.bind(node.this),
            self.bind(characters) if characters is not None else lit.text_literal(" "),
            lit.text_literal(node.args["side"]),
        )
        return functions.bind_call("TRIM", arguments, span_of(node), self.text_of(node))

    def _json_value(self, node: exp.Expr) -> Expression:
        args = node.args
        span = span_of(node)
        path = self.bind(args["path"])
        if not (isinstance(path, Literal) and isinstance(path.value, str)):
            raise not_supported("a JSON path that is no literal", span_of(args["path"]))
        returning = bind_type(args["returning"]) if args.get("returning") is not None else t.STRING
        if returning.root not in _JSON_VALUE_ROOTS:
            message = f"JSON_VALUE returns STRING, BOOLEAN, INT or DOUBLE, not {returning.sql()}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(args["returning"]))
        text = self.bind(args["this"])
        if text.type.root is TypeRoot.NULL:
            text = lit.null_literal(t.STRING)
        arguments = (
            text,
            path,
            lit.text_literal(args["on_empty"]),
            self._json_default(args.get("empty_default"), returning),
            lit.text_literal(args["on_error"]),
            self._json_default(args.get("error_default"), returning),
        )
        if not text.type.is_character:
            message = f"JSON_VALUE reads text, not {text.type.sql()}"
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
        return Call("JSON_VALUE", arguments, returning.with_nullable(True), self.text_of(node))

    def _json_default(self, node: exp.Expr | None, returning: t.DataType) -> Expression:
        if node is None:
            return lit.null_literal(returning)
        default = self.bind(node)
        return functions.cast_call(default, returning, False, span_of(node), self.text_of(node))


_JSON_VALUE_ROOTS = frozenset({TypeRoot.VARCHAR, TypeRoot.BOOLEAN, TypeRoot.INTEGER, TypeRoot.DOUBLE})

_Handler = Callable[[ExpressionBinder, exp.Expr], Expression]
_HANDLERS: dict[type[exp.Expr], _Handler] = {
    nodes.NamePath: ExpressionBinder._path,
    exp.Literal: ExpressionBinder._literal,
    exp.Null: ExpressionBinder._null,
    exp.Boolean: ExpressionBinder._boolean,
    exp.HexString: ExpressionBinder._hex_string,
    nodes.TemporalLiteral: ExpressionBinder._temporal,
    nodes.IntervalLiteral: ExpressionBinder._interval,
    nodes.UnitWord: ExpressionBinder._unit,
    nodes.AllColumns: ExpressionBinder._refused_leaf,
    nodes.TableArgument: ExpressionBinder._refused_leaf,
    nodes.Descriptor: ExpressionBinder._refused_leaf,
    exp.Tuple: ExpressionBinder._refused_leaf,
    exp.And: ExpressionBinder._logical,
    exp.Or: ExpressionBinder._logical,
    exp.Not: ExpressionBinder._not,
    **dict.fromkeys(_COMPARISONS, ExpressionBinder._comparison),
    **dict.fromkeys(_ARITHMETIC, ExpressionBinder._arithmetic),
    exp.DPipe: ExpressionBinder._concatenation,
    exp.Neg: ExpressionBinder._negate,
    nodes.IsTest: ExpressionBinder._is_test,
    nodes.DistinctTest: ExpressionBinder._distinct_test,
    nodes.LikeTest: ExpressionBinder._like,
    exp.Between: ExpressionBinder._between,
    exp.In: ExpressionBinder._in,
    exp.Case: ExpressionBinder._case,
    nodes.FieldAccess: ExpressionBinder._field,
    nodes.ItemAccess: ExpressionBinder._item,
    nodes.FunctionCall: ExpressionBinder._call,
    exp.Cast: ExpressionBinder._cast,
    exp.TryCast: ExpressionBinder._cast,
    exp.Extract: ExpressionBinder._extract,
    nodes.TimeRounding: ExpressionBinder._rounding,
    nodes.TrimCall: ExpressionBinder._trim,
    nodes.JsonValueCall: ExpressionBinder._json_value,
}


def lost_reason(expression: Expression, text: str, scope: Scope) -> str:
    """Why the result of `expression` is no time attribute though it reads one; empty otherwise."""
    if isinstance(expression, InputRef):
        return scope.columns[expression.index].lost
    for part in walk(expression):
        if isinstance(part, InputRef):
            column = scope.columns[part.index]
            if column.type.is_rowtime:
                return f"the expression {text} made an ordinary value of `{column.name}`"
    return ""
