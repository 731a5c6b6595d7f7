"""Aggregate calls: their names, arguments and result types, by Flink's rules."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from planner.analysis import functions, type_rules
from planner.analysis.expressions import ExpressionBinder
from planner.errors import SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, Literal, canonical
from planner.ir.operators import AggregateFunction
from planner.ir.types import DataType, TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of

_ALIASES = {"STDDEV": "STDDEV_SAMP", "VARIANCE": "VAR_SAMP"}
_DISTINCT_CHANGES_NOTHING = frozenset(
    {AggregateFunction.MIN, AggregateFunction.MAX, AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE}
)
_NULL_OVER_ONE_ROW = frozenset({AggregateFunction.STDDEV_SAMP, AggregateFunction.VAR_SAMP})
ORDERED_ROOTS = frozenset(
    {
        *t.NUMERIC_ROOTS,
        TypeRoot.BOOLEAN,
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    }
)
_INDISTINCT_ROOTS = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW})
_HINTS = {
    "COLLECT": "LISTAGG gathers values as text.",
    "ARRAY_AGG": "LISTAGG gathers values as text.",
    "APPROX_COUNT_DISTINCT": "COUNT(DISTINCT x) is exact.",
    "SINGLE_VALUE": "FIRST_VALUE is there.",
}


class BoundAggregate(msgspec.Struct, frozen=True):
    """One aggregate call over expressions of the aggregate's input."""

    function: AggregateFunction
    argument: Expression | None
    filter: Expression | None
    type: DataType
    text: str
    distinct: bool = False
    separator: str = ","

    def identity(self) -> tuple[object, ...]:
        argument = canonical(self.argument) if self.argument is not None else ""
        filter_ = canonical(self.filter) if self.filter is not None else ""
        return self.function, argument, filter_, self.distinct, self.separator

    def over(self, moved: Callable[[Expression], Expression]) -> BoundAggregate:
        """The call with other expressions for its own."""
        argument = moved(self.argument) if self.argument is not None else None
        filter_ = moved(self.filter) if self.filter is not None else None
        return msgspec.structs.replace(self, argument=argument, filter=filter_)


def bind_aggregate(node: nodes.FunctionCall, binder: ExpressionBinder, always_has_rows: bool) -> BoundAggregate:
    """The call with its argument bound by `binder`. Without GROUP BY a group may be empty (`always_has_rows` False), so
    that all but COUNT may be NULL."""
    name = _ALIASES.get(node.args["name"].upper(), node.args["name"].upper())
    span = span_of(node)
    if name in functions.REFUSED_AGGREGATES:
        raise not_supported(f"the aggregate {name}", span, hint=_HINTS.get(name, ""))
    filter_node = node.args.get("filter")
    condition = binder.condition(filter_node, "FILTER") if filter_node is not None else None
    separator = ","
    argument = _argument(node, name, binder)
    if name == "LISTAGG" and len(node.args["expressions"]) == 2:
        separator = _separator(node, binder)
    function = AggregateFunction.COUNT_STAR if argument is None else AggregateFunction(name)
    distinct = bool(node.args.get("distinct")) and function not in _DISTINCT_CHANGES_NOTHING
    if distinct and argument is not None and argument.type.root in _INDISTINCT_ROOTS:
        message = f"{name}(DISTINCT …) does not take {_shown(argument)}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
    if function is AggregateFunction.COUNT and isinstance(argument, Literal) and not distinct:
        # A constant argument is never NULL here: COUNT(1) counts rows.
        function, argument = AggregateFunction.COUNT_STAR, None
    type_ = _result_type(function, argument, node)
    may_be_null = condition is not None or not always_has_rows or function in _NULL_OVER_ONE_ROW
    if function not in (AggregateFunction.COUNT, AggregateFunction.COUNT_STAR) and may_be_null:
        type_ = type_.with_nullable(True)
    return BoundAggregate(function, argument, condition, type_, binder.text_of(node), distinct, separator)


def _argument(node: nodes.FunctionCall, name: str, binder: ExpressionBinder) -> Expression | None:
    arguments = node.args.get("expressions") or []
    if node.args.get("star"):
        if name != "COUNT":
            raise SqlError(SqlState.UNDEFINED_FUNCTION, f"{name}(*) is no aggregate", span=span_of(node))
        return None
    if len(arguments) != 1 and not (name == "LISTAGG" and len(arguments) == 2):
        takes = "one or two arguments" if name == "LISTAGG" else "one argument"
        message = f"{name} takes {takes}, not {len(arguments)}"
        raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(node))
    argument = binder.bind(arguments[0])
    if argument.type.root is TypeRoot.NULL:
        message = f"the type of {name}'s argument NULL is unknown"
        hint = "Give it a type: CAST(NULL AS INT)."
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node), hint=hint)
    return argument


def _separator(node: nodes.FunctionCall, binder: ExpressionBinder) -> str:
    place = node.args["expressions"][1]
    bound = binder.bind(place)
    if not (isinstance(bound, Literal) and isinstance(bound.value, str) and bound.type.is_character):
        message = "LISTAGG's separator is a text literal"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(place), hint="Write LISTAGG(x, '; ').")
    return bound.value


def _shown(argument: Expression) -> str:
    return type_rules.plain(argument.type).with_nullable(True).sql()


def _result_type(function: AggregateFunction, argument: Expression | None, node: nodes.FunctionCall) -> DataType:
    """The type over rows of which none is filtered out; NULL then comes of NULL arguments alone."""
    if argument is None or function is AggregateFunction.COUNT:
        return t.BIGINT.with_nullable(False)
    plain = type_rules.plain(argument.type)
    match function:
        case AggregateFunction.FIRST_VALUE | AggregateFunction.LAST_VALUE:
            return plain
        case AggregateFunction.MIN | AggregateFunction.MAX:
            fits = plain.root in ORDERED_ROOTS
            result = plain
        case AggregateFunction.LISTAGG:
            fits = plain.is_character
            result = plain
        case AggregateFunction.SUM:
            fits = plain.is_numeric
            result = type_rules.sum_type(plain) if fits else plain
        case _:
            # STDDEV_* and VAR_* have AVG's type: Flink computes them by sums in the argument's arithmetic.
            fits = plain.is_numeric
            result = type_rules.average_type(plain) if fits else plain
    if not fits:
        message = f"{function.value} does not take {_shown(argument)}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node))
    # A DECIMAL sum above 38 digits is NULL.
    overflows = result.root is TypeRoot.DECIMAL and function not in (AggregateFunction.MIN, AggregateFunction.MAX)
    return result.with_nullable(argument.type.nullable or overflows)
