"""The arguments of TUMBLE as a table function, positional or named."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from planner.analysis.expressions import ExpressionBinder
from planner.analysis.scope import Scope
from planner.errors import Span, SqlError, SqlState, did_you_mean, not_supported
from planner.ir.expressions import Literal
from planner.ir.types import TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of

_PARAMETERS = ("DATA", "TIMECOL", "SIZE", "OFFSET")
_REFUSED = ("HOP", "CUMULATE", "SESSION")
_FORM = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND [, offset])"


class TumbleArguments(msgspec.Struct, frozen=True):
    """The call's parts, still syntax but for the intervals (milliseconds)."""

    table: exp.Expr
    time_column: exp.Identifier
    size_ms: int
    offset_ms: int


def tumble_arguments(call: nodes.TableFunctionCall, script: str) -> TumbleArguments:
    """Checks the call's shape. Raises SqlError, by name for window functions that are not built yet."""
    name = call.args["name"].this.upper()
    span = span_of(call.args["name"])
    if name in _REFUSED:
        raise not_supported(f"the window function {name}", span, hint="TUMBLE is there.")
    if name != "TUMBLE":
        hint = did_you_mean(name, ("TUMBLE",))
        raise SqlError(SqlState.UNDEFINED_FUNCTION, f"no table function `{name}`", span=span, hint=hint)
    arguments = _by_name(call)
    for parameter in _PARAMETERS[:3]:
        if parameter not in arguments:
            message = f"TUMBLE misses its argument {parameter}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(call), hint=f"Write {_FORM}.")
    table = arguments["DATA"]
    if not isinstance(table, nodes.TableArgument):
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            "TUMBLE's first argument is a table",
            span=span_of(table),
            hint="Write TABLE before its name: TUMBLE(TABLE t, …).",
        )
    time_column = _time_column(arguments["TIMECOL"])
    size_ms = _interval_ms(arguments["SIZE"], "size", script)
    if size_ms <= 0:
        message = "the size of a window must be above zero"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(arguments["SIZE"]))
    offset_ms = 0
    if "OFFSET" in arguments:
        offset_ms = _interval_ms(arguments["OFFSET"], "offset", script)
        if abs(offset_ms) >= size_ms:
            message = "the offset of a window must be smaller than its size"
            raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(arguments["OFFSET"]))
    return TumbleArguments(table.this, time_column, size_ms, offset_ms)


def _by_name(call: nodes.TableFunctionCall) -> dict[str, exp.Expr]:
    given: list[exp.Expr] = call.args.get("expressions") or []
    arguments: dict[str, exp.Expr] = {}
    is_named = any(isinstance(a, nodes.NamedArgument) for a in given)
    for position, argument in enumerate(given):
        if isinstance(argument, nodes.NamedArgument):
            name = argument.args["name"].this.upper()
            value = argument.this
        elif is_named:
            message = "named and positional arguments cannot be mixed"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument))
        elif position < len(_PARAMETERS):
            name, value = _PARAMETERS[position], argument
        else:
            message = f"TUMBLE takes at most {len(_PARAMETERS)} arguments"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument), hint=f"Write {_FORM}.")
        if name not in _PARAMETERS:
            hint = did_you_mean(name, _PARAMETERS) or f"The names are {', '.join(_PARAMETERS)}."
            message = f"TUMBLE has no argument {name}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument), hint=hint)
        if name in arguments:
            message = f"the argument {name} is given twice"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument))
        arguments[name] = value
    return arguments


def _time_column(node: exp.Expr) -> exp.Identifier:
    if not isinstance(node, nodes.Descriptor):
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            "TUMBLE's second argument names the time column",
            span=span_of(node),
            hint="Write DESCRIPTOR(column).",
        )
    columns: list[exp.Identifier] = node.args["expressions"]
    if len(columns) != 1:
        message = "TUMBLE takes exactly one time column"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node))
    return columns[0]


def _interval_ms(node: exp.Expr, what: str, script: str) -> int:
    span: Span = span_of(node)
    value = ExpressionBinder(Scope(()), script, "a window's size").bind(node)
    if isinstance(value, Literal) and value.type.root is TypeRoot.INTERVAL_YEAR_MONTH:
        raise not_supported(f"months and years as a window's {what}", span, hint="Use days.")
    if not (isinstance(value, Literal) and value.type.root is TypeRoot.INTERVAL_DAY_TIME):
        message = f"the {what} of a window is a constant interval, as INTERVAL '10' SECOND"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span)
    assert isinstance(value.value, int)
    return value.value
