"""The arguments of window table functions, positional or named. Order and checks are Flink's."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from planner.analysis.expressions import ExpressionBinder
from planner.analysis.scope import Scope
from planner.errors import SqlError, SqlState, did_you_mean, not_supported
from planner.ir.expressions import Literal
from planner.ir.types import TypeRoot
from planner.sql import nodes
from planner.sql.nodes import span_of

_PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
}
_FORMS = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND [, offset])",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND [, offset]): slide, then size",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR [, offset]): step, then size",
}
_REFUSED = ("SESSION",)


class WindowArguments(msgspec.Struct, frozen=True):
    """The call's parts, still syntax but for the intervals (milliseconds); `step_ms` is HOP's slide, CUMULATE's step
    and TUMBLE's size."""

    function: str
    table: exp.Expr
    time_column: exp.Identifier
    size_ms: int
    step_ms: int
    offset_ms: int


def window_arguments(call: nodes.TableFunctionCall, script: str) -> WindowArguments:
    """Checks the call's shape and its intervals. Raises SqlError, by name for functions that are not built."""
    name = call.args["name"].this.upper()
    span = span_of(call.args["name"])
    if name in _REFUSED:
        raise not_supported(f"the window function {name}", span, hint="TUMBLE, HOP and CUMULATE are there.")
    if name not in _PARAMETERS:
        hint = did_you_mean(name, tuple(_PARAMETERS))
        raise SqlError(SqlState.UNDEFINED_FUNCTION, f"no table function `{name}`", span=span, hint=hint)
    arguments = _by_name(call, name)
    for parameter in _PARAMETERS[name][:-1]:
        if parameter not in arguments:
            message = f"{name} misses its argument {parameter}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(call), hint=f"Write {_FORMS[name]}.")
    table = arguments["DATA"]
    if not isinstance(table, nodes.TableArgument):
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            f"{name}'s first argument is a table",
            span=span_of(table),
            hint=f"Write TABLE before its name: {name}(TABLE t, …).",
        )
    clause = table.args.get("clause")
    if clause is not None:
        hint = f"{name} cuts by time alone: name other keys in GROUP BY, beside window_start and window_end."
        raise not_supported(f"{clause.this} of a table argument", span_of(clause), hint)
    time_column = _time_column(arguments["TIMECOL"], name)
    size_ms = _positive_ms(arguments["SIZE"], "size", script)
    step_ms = _step_ms(name, arguments, size_ms, script)
    offset_ms = 0
    if "OFFSET" in arguments:
        offset_ms = _interval_ms(arguments["OFFSET"], "offset", script)
        if name == "TUMBLE" and abs(offset_ms) >= size_ms:
            message = "the offset of a window must be smaller than its size"
            raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(arguments["OFFSET"]))
    return WindowArguments(name, table.this, time_column, size_ms, step_ms, offset_ms)


def _step_ms(name: str, arguments: dict[str, exp.Expr], size_ms: int, script: str) -> int:
    """HOP's slide or CUMULATE's step, of which the size must be a multiple."""
    parameter = _PARAMETERS[name][2]
    if parameter == "SIZE":
        return size_ms
    what = parameter.lower()
    step_ms = _positive_ms(arguments[parameter], what, script)
    if size_ms % step_ms:
        raise SqlError(
            SqlState.WINDOWING_ERROR,
            f"the size of a {name} window must be a whole multiple of its {what}, but got size "
            f"{duration_text(size_ms)} and {what} {duration_text(step_ms)}",
            span=span_of(arguments["SIZE"]),
            hint=f"The {what} comes first, then the size." if size_ms < step_ms else "",
        )
    return step_ms


def duration_text(ms: int) -> str:
    """The duration in its largest whole unit: `90 s`, `2 h`."""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms and ms % factor == 0:
            return f"{ms // factor} {unit}"
    return f"{ms} ms"


def _by_name(call: nodes.TableFunctionCall, function: str) -> dict[str, exp.Expr]:
    given: list[exp.Expr] = call.args.get("expressions") or []
    parameters = _PARAMETERS[function]
    arguments: dict[str, exp.Expr] = {}
    is_named = any(isinstance(a, nodes.NamedArgument) for a in given)
    for position, argument in enumerate(given):
        if isinstance(argument, nodes.NamedArgument):
            name = argument.args["name"].this.upper()
            value = argument.this
        elif is_named:
            message = "named and positional arguments cannot be mixed"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument))
        elif position < len(parameters):
            name, value = parameters[position], argument
        else:
            message = f"{function} takes at most {len(parameters)} arguments"
            hint = f"Write {_FORMS[function]}."
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument), hint=hint)
        if name not in parameters:
            hint = did_you_mean(name, parameters) or f"The names are {', '.join(parameters)}."
            message = f"{function} has no argument {name}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument), hint=hint)
        if name in arguments:
            message = f"the argument {name} is given twice"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span_of(argument))
        arguments[name] = value
    return arguments


def _time_column(node: exp.Expr, function: str) -> exp.Identifier:
    if not isinstance(node, nodes.Descriptor):
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            f"{function}'s second argument names the time column",
            span=span_of(node),
            hint="Write DESCRIPTOR(column).",
        )
    columns: list[exp.Identifier] = node.args["expressions"]
    if len(columns) != 1:
        message = f"{function} takes exactly one time column"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node))
    return columns[0]


def _positive_ms(node: exp.Expr, what: str, script: str) -> int:
    value = _interval_ms(node, what, script)
    if value <= 0:
        message = f"the {what} of a window must be positive, but got {duration_text(value)}"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node))
    return value


def _interval_ms(node: exp.Expr, what: str, script: str) -> int:
    span = span_of(node)
    value = ExpressionBinder(Scope(()), script, f"a window's {what}").bind(node)
    if isinstance(value, Literal) and value.type.root is TypeRoot.INTERVAL_YEAR_MONTH:
        raise not_supported(f"months and years as a window's {what}", span, hint="Use days.")
    if not (isinstance(value, Literal) and value.type.root is TypeRoot.INTERVAL_DAY_TIME):
        message = f"the {what} of a window is a constant interval, as INTERVAL '10' SECOND"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span)
    assert isinstance(value.value, int)
    return value.value
