"""Function calls: which registry row a call means, and the type of its result."""

from __future__ import annotations

from collections.abc import Callable

from planner.analysis import operators, type_rules
from planner.analysis.coercion import cast_to, to_common_type
from planner.analysis.literals import null_literal, text_literal
from planner.errors import Span, SqlError, SqlState, nearest_name
from planner.ir import functions as registry
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, Literal
from planner.ir.functions import Family, FunctionRow, Nullability, Result
from planner.ir.types import DataType, TimeAttribute, TypeRoot

REFUSED_AGGREGATES = frozenset(
    """
    COLLECT ARRAY_AGG JSON_OBJECTAGG JSON_ARRAYAGG APPROX_COUNT_DISTINCT PERCENTILE SINGLE_VALUE INTERSECTION
    """.split()
)
AGGREGATE_NAMES = REFUSED_AGGREGATES | frozenset(
    """
    COUNT SUM MIN MAX AVG STDDEV_POP STDDEV_SAMP STDDEV VAR_POP VAR_SAMP VARIANCE FIRST_VALUE LAST_VALUE LISTAGG
    """.split()
)
"""Calls of these names are aggregates; those in REFUSED_AGGREGATES are recognised to be refused by name."""
GROUPING_NAMES = frozenset({"GROUPING", "GROUPING_ID", "GROUP_ID"})
"""Functions that tell the grouping sets of GROUP BY apart."""
REFUSED_WINDOW_FUNCTIONS = frozenset(
    """
    ROW_NUMBER RANK DENSE_RANK PERCENT_RANK CUME_DIST NTILE LEAD LAG
    """.split()
)
_GROUP_WINDOW_KINDS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_GROUP_WINDOW_FUNCTIONS = frozenset(
    f"{kind}{suffix}" for kind in _GROUP_WINDOW_KINDS for suffix in ("", "_START", "_END", "_ROWTIME", "_PROCTIME")
)
_TABLE_FUNCTION_FORMS = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
}

_UNIT_FUNCTIONS = {
    **{unit: unit for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFYEAR": "DOY",
    "DAYOFMONTH": "DAY",
    "DAYOFWEEK": "DOW",
}
"""`YEAR(x)` is EXTRACT(YEAR FROM x), and so on."""

_OPERATOR_NAMES = frozenset(
    {r.name for r in registry.OPERATORS if not r.name.isidentifier()} | {"AND", "OR", "NOT", "IN", "LIKE"}
)
_SYNTAX_ONLY = frozenset({"CASE", "CAST", "TRY_CAST", "ITEM"})
FUNCTION_NAMES = tuple(
    sorted(
        (set(registry.BY_NAME) - _OPERATOR_NAMES - _SYNTAX_ONLY)
        | (AGGREGATE_NAMES - REFUSED_AGGREGATES)
        | GROUPING_NAMES
        | {"CAST", "TRY_CAST", *_UNIT_FUNCTIONS}
    )
)

_NULL_OF_FAMILY: dict[Family, DataType] = {
    Family.BOOLEAN: t.BOOLEAN,
    Family.NUMERIC: t.INT,
    Family.INTEGER: t.INT,
    Family.CHARACTER: t.STRING,
    Family.BINARY: t.BYTES,
    Family.DATE: t.DATE,
    Family.TIME: t.time(0),
    Family.TIMESTAMP: t.timestamp(3),
    Family.DATETIME: t.timestamp(3),
    Family.INTERVAL: t.INTERVAL_DAY_TIME,
}

_FAMILY_CHECKS: dict[Family, Callable[[DataType], bool]] = {
    Family.ANY: lambda _: True,
    Family.BOOLEAN: lambda x: x.root is TypeRoot.BOOLEAN,
    Family.NUMERIC: lambda x: x.is_numeric,
    Family.INTEGER: lambda x: x.is_integer,
    Family.CHARACTER: lambda x: x.is_character,
    Family.BINARY: lambda x: x.is_binary,
    Family.DATE: lambda x: x.root is TypeRoot.DATE,
    Family.TIME: lambda x: x.root is TypeRoot.TIME,
    Family.TIMESTAMP: lambda x: x.is_timestamp,
    Family.DATETIME: type_rules.is_datetime,
    Family.INTERVAL: type_rules.is_interval,
    Family.ARRAY: lambda x: x.root is TypeRoot.ARRAY,
    Family.MAP: lambda x: x.root is TypeRoot.MAP,
    Family.ROW: lambda x: x.root is TypeRoot.ROW,
    Family.COMPARABLE: lambda x: x.root not in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET),
}


def bind_call(name: str, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    """The call of the built-in function `name` (any case) with bound arguments."""
    upper = name.upper()
    if upper in _UNIT_FUNCTIONS:
        if len(arguments) != 1:
            message = f"{upper} takes one argument, not {len(arguments)}"
            raise SqlError(SqlState.UNDEFINED_FUNCTION, message, span=span)
        arguments = (text_literal(_UNIT_FUNCTIONS[upper]), *arguments)
        upper = "EXTRACT"
    rows = () if upper in _OPERATOR_NAMES | _SYNTAX_ONLY else registry.BY_NAME.get(upper, ())
    if not rows:
        raise _unknown_function(name, upper, span)
    fitting = [row for row in rows if _takes_count(row, len(arguments))]
    if not fitting:
        raise _wrong_arguments(name, rows, arguments, span)
    for row in fitting:
        if _takes_types(row, arguments):
            return _build(row, _typed_nulls(row, arguments), span, text)
    raise _wrong_arguments(name, rows, arguments, span)


def _unknown_function(name: str, upper: str, span: Span) -> SqlError:
    if upper in REFUSED_WINDOW_FUNCTIONS:
        return SqlError(SqlState.FEATURE_NOT_SUPPORTED, f"not supported yet: OVER windows ({upper})", span=span)
    if upper in _GROUP_WINDOW_FUNCTIONS:
        form = _TABLE_FUNCTION_FORMS.get(upper.partition("_")[0])
        table_function = f"Use the table function: SELECT window_start, window_end, … FROM {form} GROUP BY "
        return SqlError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"not supported yet: the group window function {upper}",
            span=span,
            hint=f"{table_function}window_start, window_end." if form else "TUMBLE, HOP and CUMULATE are there.",
        )
    near = nearest_name(upper, FUNCTION_NAMES)
    return SqlError(
        SqlState.UNDEFINED_FUNCTION,
        f"no function `{name}`",
        span=span,
        hint=f"Did you mean {near}?" if near else "SHOW FUNCTIONS lists the functions there are.",
    )


def _takes_count(row: FunctionRow, count: int) -> bool:
    declared = len(row.arguments)
    if row.variadic:
        return count >= 1
    return declared - row.optional <= count <= declared


def _family(row: FunctionRow, index: int) -> Family:
    return row.arguments[min(index, len(row.arguments) - 1)]


def _takes_types(row: FunctionRow, arguments: tuple[Expression, ...]) -> bool:
    return all(a.type.root is TypeRoot.NULL or _FAMILY_CHECKS[_family(row, i)](a.type) for i, a in enumerate(arguments))


def _typed_nulls(row: FunctionRow, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """NULL literals get the type the function expects, so that no kernel sees an untyped column."""
    typed: list[Expression] = []
    for i, argument in enumerate(arguments):
        wanted = _NULL_OF_FAMILY.get(_family(row, i))
        is_untyped = argument.type.root is TypeRoot.NULL
        typed.append(null_literal(wanted) if is_untyped and wanted is not None else argument)
    return tuple(typed)


def _wrong_arguments(
    name: str, rows: tuple[FunctionRow, ...], arguments: tuple[Expression, ...], span: Span
) -> SqlError:
    given = ", ".join(type_rules.plain(a.type).with_nullable(True).sql() for a in arguments)
    forms = " or ".join(_signature(name.upper(), row) for row in rows)
    return SqlError(
        SqlState.UNDEFINED_FUNCTION,
        f"no form of {name.upper()} takes ({given})",
        span=span,
        hint=f"It is called as {forms}.",
    )


def _signature(name: str, row: FunctionRow) -> str:
    parts = [f"<{family.value}>" for family in row.arguments]
    required = len(parts) - row.optional
    text = ", ".join(parts[:required])
    for part in parts[required:]:
        text += f"[, {part}" if text else f"[{part}"
    text += "]" * row.optional
    return f"{name}({text}{', …' if row.variadic else ''})"


# -- results ------------------------------------------------------------------------------------------


def _build(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    special = _SPECIAL.get(row.id)
    if special is not None:
        return special(row, arguments, span, text)
    if row.result is Result.COMMON:
        arguments = to_common_type(arguments, span, row.name)
    result = _result_type(row, arguments)
    return Call(row.id, arguments, result.with_nullable(_is_nullable(row, arguments)), text)


def _is_nullable(row: FunctionRow, arguments: tuple[Expression, ...]) -> bool:
    match row.nullability:
        case Nullability.NEVER:
            return False
        case Nullability.ALWAYS:
            return True
        case Nullability.ALL_ARGUMENTS:
            return all(a.type.nullable for a in arguments)
        case _:
            return any(a.type.nullable for a in arguments)


_FIXED_RESULTS: dict[Result, DataType] = {
    Result.BOOLEAN: t.BOOLEAN,
    Result.INT: t.INT,
    Result.BIGINT: t.BIGINT,
    Result.DOUBLE: t.DOUBLE,
    Result.STRING: t.STRING,
    Result.CHAR_36: t.char(36),
    Result.TIMESTAMP_3: t.timestamp(3),
    Result.TIMESTAMP_LTZ_3: t.timestamp_ltz(3),
    Result.PROCTIME: t.timestamp_ltz(3).with_time_attribute(TimeAttribute.PROCTIME),
}


def _result_type(row: FunctionRow, arguments: tuple[Expression, ...]) -> DataType:
    fixed = _FIXED_RESULTS.get(row.result)
    if fixed is not None:
        return fixed
    match row.result:
        case Result.FIRST | Result.COMMON:
            return type_rules.plain(arguments[0].type)
        case Result.SECOND:
            return type_rules.plain(arguments[1].type)
        case Result.VARCHAR_OF_FIRST:
            length = arguments[0].type.length
            return t.varchar(length if length else t.STRING_LENGTH)
        case Result.ROUND:
            return _round_type(arguments)
        case _:
            raise AssertionError(f"the registry row {row.id} has no rule for its result type")


def _round_type(arguments: tuple[Expression, ...]) -> DataType:
    first = type_rules.plain(arguments[0].type)
    if first.root is not TypeRoot.DECIMAL:
        return first
    digits = arguments[1] if len(arguments) > 1 else Literal(0, t.INT)
    if isinstance(digits, Literal) and isinstance(digits.value, int):
        return type_rules.rounded_decimal(first, digits.value)
    return first


_Special = Callable[[FunctionRow, tuple[Expression, ...], Span, str], Expression]


def _with_type(type_of: Callable[[tuple[Expression, ...]], DataType]) -> _Special:
    """A rule that only says the result's type; nullability is the registry's."""

    def build(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
        type_ = type_rules.plain(type_of(arguments))
        return Call(row.id, arguments, type_.with_nullable(_is_nullable(row, arguments)), text)

    return build


def _whole_number(arguments: tuple[Expression, ...]) -> DataType:
    """CEIL and FLOOR drop a DECIMAL's scale."""
    first = arguments[0].type
    return t.decimal(first.precision or 1, 0) if first.root is TypeRoot.DECIMAL else first


def _mod(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    return operators.arithmetic("%", arguments[0], arguments[1], span, text)


def _nullif(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    left, right = operators.comparable("=", arguments[0], arguments[1], span)
    if left is arguments[0]:
        return Call(row.id, (left, right), type_rules.plain(left.type).with_nullable(True), text)
    # The comparison needs another type than the result has.
    condition = operators.comparison("=", arguments[0], arguments[1], span)
    return operators.case([(condition, null_literal(arguments[0].type))], arguments[0], span)


def _if(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    then, otherwise = to_common_type(arguments[1:], span, "IF")
    return Call(row.id, (arguments[0], then, otherwise), type_rules.plain(then.type).with_nullable(True), text)


def _row_constructor(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    fields = ((f"EXPR${i}", type_rules.plain(a.type)) for i, a in enumerate(arguments))
    return Call(row.id, arguments, t.row(*fields).with_nullable(False), text)


def _array_constructor(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    items = to_common_type(arguments, span, "ARRAY")
    element = _element_type(items)
    return Call(row.id, items, t.array(element).with_nullable(False), text)


def _map_constructor(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    if len(arguments) % 2:
        raise SqlError(SqlState.UNDEFINED_FUNCTION, "MAP takes keys and values in pairs", span=span)
    keys = to_common_type(arguments[0::2], span, "MAP keys")
    values = to_common_type(arguments[1::2], span, "MAP values")
    pairs = tuple(e for pair in zip(keys, values, strict=True) for e in pair)
    type_ = t.map_of(_element_type(keys), _element_type(values))
    return Call(row.id, pairs, type_.with_nullable(False), text)


def _element_type(items: tuple[Expression, ...]) -> DataType:
    return type_rules.plain(items[0].type).with_nullable(any(i.type.nullable for i in items))


def _timestampadd(arguments: tuple[Expression, ...]) -> DataType:
    unit, moment = arguments[0], arguments[2].type
    assert isinstance(unit, Literal)
    if moment.root is TypeRoot.DATE and unit.value in ("HOUR", "MINUTE", "SECOND"):
        return t.timestamp(6)
    return moment


def _calendar_unit(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    """EXTRACT, FLOOR and CEIL: a TIME has no date units."""
    unit, moment = arguments
    assert isinstance(unit, Literal)
    if moment.type.root is TypeRoot.TIME and unit.value in _DATE_UNITS:
        message = f"{row.name} cannot take the unit {unit.value} of a TIME"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)
    result = t.BIGINT if row.result is Result.BIGINT else type_rules.plain(moment.type)
    return Call(row.id, arguments, result.with_nullable(moment.type.nullable), text)


_DATE_UNITS = frozenset(
    """
    MILLENNIUM CENTURY DECADE YEAR ISOYEAR QUARTER MONTH WEEK DAY DOW ISODOW DOY EPOCH
    """.split()
)


def _timestampdiff(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    roots = {a.type.root for a in arguments[1:]}
    if roots == {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}:
        message = "TIMESTAMPDIFF does not mix TIMESTAMP and TIMESTAMP_LTZ"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span, hint="CAST one of them to the other type.")
    nullable = any(a.type.nullable for a in arguments)
    return Call(row.id, arguments, t.INT.with_nullable(nullable), text)


def _cardinality(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    if arguments[0].type.root not in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET):
        raise _wrong_arguments("CARDINALITY", (row,), arguments, span)
    return Call(row.id, arguments, t.INT.with_nullable(arguments[0].type.nullable), text)


def _to_timestamp_ltz(row: FunctionRow, arguments: tuple[Expression, ...], span: Span, text: str) -> Expression:
    if len(arguments) > 1 and isinstance(arguments[1], Literal) and arguments[1].value not in (0, 3, None):
        message = "the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)"
        raise SqlError(SqlState.INVALID_PARAMETER, message, span=span)
    return Call(row.id, arguments, t.timestamp_ltz(3), text)


_SPECIAL: dict[str, _Special] = {
    "CEIL": _with_type(_whole_number),
    "FLOOR": _with_type(_whole_number),
    "MOD": _mod,
    "NULLIF": _nullif,
    "IF": _if,
    "ROW": _row_constructor,
    "ARRAY": _array_constructor,
    "MAP": _map_constructor,
    "CARDINALITY": _cardinality,
    "MD5": _with_type(lambda _: t.char(32)),
    "SHA256": _with_type(lambda _: t.char(64)),
    "TO_DATE": _with_type(lambda _: t.DATE),
    "CURRENT_DATE": _with_type(lambda _: t.DATE),
    "EXTRACT": _calendar_unit,
    "FLOOR_TIME": _calendar_unit,
    "CEIL_TIME": _calendar_unit,
    "TIMESTAMPDIFF": _timestampdiff,
    "TIMESTAMPADD": _with_type(_timestampadd),
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
}


def cast_call(operand: Expression, target: DataType, is_try: bool, span: Span, text: str) -> Expression:
    """`CAST(operand AS target)` or TRY_CAST; refused where no such cast exists."""
    if operand.type.root is TypeRoot.NULL:
        return null_literal(target)
    if not type_rules.can_cast(operand.type, target):
        hint = ""
        if operand.type.is_numeric and target.is_timestamp:
            hint = "Use TO_TIMESTAMP_LTZ(number, precision)."
        elif operand.type.is_timestamp and target.is_numeric:
            hint = "Use UNIX_TIMESTAMP or TIMESTAMPDIFF."
        source_text = type_rules.plain(operand.type).with_nullable(True).sql()
        raise SqlError(
            SqlState.CANNOT_COERCE,
            f"cannot cast {source_text} to {target.with_nullable(True).sql()}",
            span=span,
            hint=hint,
        )
    if is_try:
        if type_rules.same_but_nullability(operand.type, target):
            return operand
        return Call("TRY_CAST", (operand,), type_rules.plain(target).with_nullable(True), text)
    if operand.type.time_attribute is not None and type_rules.same_but_nullability(operand.type, target):
        # What a user casts is no time attribute any more, as in Flink: an interval join becomes a regular one so.
        return Call("CAST", (operand,), type_rules.plain(operand.type), text)
    return cast_to(operand, target, text)
