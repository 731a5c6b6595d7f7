"""Typing of operators: arithmetic, comparison, logic, text."""

from __future__ import annotations

from planner.analysis import type_rules
from planner.analysis.coercion import cast_to, to_common_type
from planner.analysis.literals import null_literal
from planner.errors import Span, SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Call, Expression
from planner.ir.types import DataType, TypeRoot

_ARITHMETIC_IDS = {"+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "DIVIDE", "%": "MODULO"}
_COMPARISON_IDS = {"=": "EQ", "<>": "NEQ", "<": "LT", "<=": "LTE", ">": "GT", ">=": "GTE"}
_APPROXIMATE_ROOTS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_MULTIPLE_ROOTS = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET})


def boolean_type(*arguments: Expression) -> DataType:
    """BOOLEAN, nullable if an argument is."""
    return t.BOOLEAN.with_nullable(any(a.type.nullable for a in arguments))


def expect_boolean(expression: Expression, span: Span, where: str) -> Expression:
    """`expression` for a place that wants a condition."""
    if expression.type.root is TypeRoot.NULL:
        return null_literal(t.BOOLEAN)
    if expression.type.root is not TypeRoot.BOOLEAN:
        raise SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"{where} needs a BOOLEAN, not {type_rules.plain(expression.type).sql()}",
            span=span,
        )
    return expression


def _mismatch(operator: str, left: Expression, right: Expression, span: Span, hint: str = "") -> SqlError:
    types = f"{_shown(left)} {operator} {_shown(right)}"
    return SqlError(SqlState.DATATYPE_MISMATCH, f"cannot apply {operator}: {types}", span=span, hint=hint)


def _shown(expression: Expression) -> str:
    return type_rules.plain(expression.type).with_nullable(True).sql()


# -- arithmetic ---------------------------------------------------------------------------------------


def arithmetic(operator: str, left: Expression, right: Expression, span: Span, text: str) -> Expression:
    """`left operator right` for numbers, and dates and intervals where that means something."""
    if left.type.root is TypeRoot.NULL and right.type.root is TypeRoot.NULL:
        left, right = null_literal(t.INT), null_literal(t.INT)
    elif left.type.root is TypeRoot.NULL:
        left = null_literal(_null_partner(right.type))
    elif right.type.root is TypeRoot.NULL:
        right = null_literal(_null_partner(left.type))
    if left.type.is_numeric and right.type.is_numeric:
        if operator == "%" and {left.type.root, right.type.root} & _APPROXIMATE_ROOTS:
            hint = "% takes whole numbers and DECIMAL; use CAST."
            raise _mismatch(operator, left, right, span, hint)
        return _numeric(operator, left, right, text)
    temporal = _temporal(operator, left, right, text)
    if temporal is not None:
        return temporal
    hint = ""
    if left.type.is_character or right.type.is_character:
        hint = "Text is joined with || and turned into numbers with CAST."
    elif type_rules.is_datetime(left.type) and type_rules.is_datetime(right.type) and operator == "-":
        hint = "The distance of two times is TIMESTAMPDIFF(unit, from, to)."
    elif type_rules.is_datetime(left.type) or type_rules.is_datetime(right.type):
        hint = "Add an interval, as in ts + INTERVAL '1' HOUR."
    raise _mismatch(operator, left, right, span, hint)


def _null_partner(other: DataType) -> DataType:
    return t.INTERVAL_DAY_TIME if type_rules.is_datetime(other) else other


def _numeric(operator: str, left: Expression, right: Expression, text: str) -> Expression:
    nullable = left.type.nullable or right.type.nullable
    function = _ARITHMETIC_IDS[operator]
    common = type_rules.common_numeric(left.type, right.type)
    if common.root is TypeRoot.DECIMAL:
        a, b = type_rules.as_decimal(left.type), type_rules.as_decimal(right.type)
        result = type_rules.decimal_arithmetic(operator, a, b)
        # A result above 38 digits is NULL, not an error.
        overflows = result.precision == type_rules.DECIMAL_PRECISION_MAX
        result = result.with_nullable(nullable or overflows)
        call = Call(function, (cast_to(left, a), cast_to(right, b)), result, text)
        has_scale = bool(a.scale or b.scale)
        return call if operator != "%" or has_scale else cast_to(call, right.type)
    arguments = (cast_to(left, common), cast_to(right, common))
    result = common.with_nullable(nullable)
    call = Call(function, arguments, result, text)
    if operator == "%":
        # MOD has its second argument's type; the value always fits, being smaller than that argument.
        return cast_to(call, right.type)
    if left.type.root is TypeRoot.FLOAT and common.root is TypeRoot.DOUBLE and right.type.root is TypeRoot.DOUBLE:
        # Flink gives two approximate numbers the type of the first.
        return cast_to(call, t.FLOAT)
    return call


def _temporal(operator: str, left: Expression, right: Expression, text: str) -> Expression | None:
    nullable = left.type.nullable or right.type.nullable
    a, b = left.type, right.type

    def call(function: str, result: DataType) -> Expression:
        return Call(function, (left, right), type_rules.plain(result).with_nullable(nullable), text)

    if type_rules.is_datetime(a) and type_rules.is_interval(b) and operator in "+-":
        return call("PLUS_INTERVAL" if operator == "+" else "MINUS_INTERVAL", a)
    if type_rules.is_interval(a) and type_rules.is_datetime(b) and operator == "+":
        return call("INTERVAL_PLUS", b)
    if type_rules.is_interval(a) and a.root is b.root and operator in "+-":
        return call("ADD_INTERVALS" if operator == "+" else "SUBTRACT_INTERVALS", a)
    if type_rules.is_interval(a) and b.is_numeric and operator == "*":
        return call("INTERVAL_TIMES", a)
    if a.is_numeric and type_rules.is_interval(b) and operator == "*":
        left, right = right, left
        return call("INTERVAL_TIMES", b)
    return None


def negate(operand: Expression, span: Span, text: str) -> Expression:
    if operand.type.root is TypeRoot.NULL:
        return null_literal(t.INT)
    if operand.type.is_numeric:
        return Call("NEGATE", (operand,), type_rules.plain(operand.type), text)
    if type_rules.is_interval(operand.type):
        return Call("NEGATE_INTERVAL", (operand,), operand.type, text)
    message = f"cannot negate {type_rules.plain(operand.type).sql()}"
    raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span)


# -- comparison and logic -----------------------------------------------------------------------------


def comparison(operator: str, left: Expression, right: Expression, span: Span) -> Expression:
    """`left operator right`, both brought to the type they are compared in."""
    left, right = comparable(operator, left, right, span)
    return Call(_COMPARISON_IDS[operator], (left, right), boolean_type(left, right))


def comparable(operator: str, left: Expression, right: Expression, span: Span) -> tuple[Expression, Expression]:
    """The two sides cast to one type; text beside a date or time is read as one."""
    if left.type.root is TypeRoot.NULL and right.type.root is TypeRoot.NULL:
        return null_literal(t.INT), null_literal(t.INT)
    ordered = operator not in ("=", "<>", "IS DISTINCT FROM")
    if ordered and (left.type.root in _MULTIPLE_ROOTS or right.type.root in _MULTIPLE_ROOTS):
        raise _mismatch(operator, left, right, span)
    if left.type.is_character and type_rules.is_datetime(right.type):
        return cast_to(left, right.type), right
    if right.type.is_character and type_rules.is_datetime(left.type):
        return left, cast_to(right, left.type)
    if {left.type.root, right.type.root} == {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}:
        compared = _local if _compares_clocks(operator, left.type, right.type) else _instant
        return compared(left), compared(right)
    if left.type.is_character and right.type.is_character:
        # CHAR and VARCHAR compare as they are.
        return left, right
    common = type_rules.common_type((left.type, right.type))
    if common is None:
        hint = ""
        if left.type.is_character or right.type.is_character:
            hint = "Text is never compared with other types by itself; use CAST."
        raise _mismatch(operator, left, right, span, hint)
    return cast_to(left, common), cast_to(right, common)


def _compares_clocks(operator: str, left: DataType, right: DataType) -> bool:
    """Whether a TIMESTAMP and a TIMESTAMP_LTZ are compared by what clocks show rather than as instants, which differ
    where clocks are changed. As recorded from Flink, odd as it is."""
    is_same_precision = left.precision == right.precision
    match operator:
        case "IS DISTINCT FROM":
            return False
        case "=" | "<>":
            return (left.root is TypeRoot.TIMESTAMP_LTZ) != is_same_precision
        case _:
            return is_same_precision


def _local(value: Expression) -> Expression:
    """What the session's clocks show."""
    return cast_to(value, t.timestamp(_fraction_digits(value.type)))


def _instant(value: Expression) -> Expression:
    """Of what clocks show twice the first, of what they skip the time after."""
    return cast_to(value, t.timestamp_ltz(_fraction_digits(value.type)))


def _fraction_digits(type_: DataType) -> int:
    return type_.precision if type_.precision is not None else 6


def distinct_test(left: Expression, right: Expression, is_negated: bool, span: Span) -> Expression:
    left, right = comparable("IS DISTINCT FROM", left, right, span)
    function = "IS_NOT_DISTINCT_FROM" if is_negated else "IS_DISTINCT_FROM"
    return Call(function, (left, right), t.BOOLEAN.with_nullable(False))


def logical(function: str, operands: tuple[Expression, ...]) -> Expression:
    """AND or OR of all operands, in their order; operands of the same function are taken in."""
    flat: list[Expression] = []
    for operand in operands:
        if isinstance(operand, Call) and operand.function == function:
            flat.extend(operand.args)
        else:
            flat.append(operand)
    if len(flat) == 1:
        return flat[0]
    return Call(function, tuple(flat), boolean_type(*flat))


def negation(operand: Expression) -> Expression:
    return Call("NOT", (operand,), boolean_type(operand))


def membership(value: Expression, items: tuple[Expression, ...], span: Span) -> Expression:
    """`value IN (items)`."""
    if all(e.type.root is TypeRoot.NULL for e in (value, *items)):
        value = null_literal(t.INT)
    if value.type.is_character and all(i.type.is_character or i.type.root is TypeRoot.NULL for i in items):
        arguments = (value, *(cast_to(i, t.STRING) if i.type.root is TypeRoot.NULL else i for i in items))
        return Call("IN", arguments, boolean_type(*arguments))
    if type_rules.is_datetime(value.type):
        items = tuple(cast_to(i, value.type) if i.type.is_character else i for i in items)
        if value.type.root is TypeRoot.TIMESTAMP:
            # As Flink: wall clocks are looked for among wall clocks.
            items = tuple(_local(i) if i.type.root is TypeRoot.TIMESTAMP_LTZ else i for i in items)
    arguments = to_common_type((value, *items), span, "IN")
    return Call("IN", arguments, boolean_type(*arguments))


def between(value: Expression, low: Expression, high: Expression, symmetric: bool, span: Span) -> Expression:
    """`value BETWEEN low AND high`, as two comparisons; SYMMETRIC also takes the bounds swapped."""

    def within(a: Expression, b: Expression) -> Expression:
        return logical("AND", (comparison(">=", value, a, span), comparison("<=", value, b, span)))

    if not symmetric:
        return within(low, high)
    return logical("OR", (within(low, high), within(high, low)))


def case(branches: list[tuple[Expression, Expression]], default: Expression | None, span: Span) -> Expression:
    """CASE over (condition, value) pairs; without ELSE the default is NULL."""
    default = default if default is not None else null_literal()
    values = to_common_type([value for _, value in branches] + [default], span, "CASE")
    nullable = any(v.type.nullable for v in values)
    arguments: list[Expression] = []
    for (condition, _), value in zip(branches, values, strict=False):
        arguments += [condition, value]
    arguments.append(values[-1])
    return Call("CASE", tuple(arguments), type_rules.plain(values[0].type).with_nullable(nullable))


# -- text ---------------------------------------------------------------------------------------------


def concatenation(left: Expression, right: Expression, span: Span) -> Expression:
    """`left || right`: CHAR(n) || CHAR(m) is CHAR(n + m), otherwise VARCHAR of the summed length."""
    left = cast_to(left, t.STRING) if left.type.root is TypeRoot.NULL else left
    right = cast_to(right, t.STRING) if right.type.root is TypeRoot.NULL else right
    if not (left.type.is_character and right.type.is_character):
        raise _mismatch("||", left, right, span, "Turn the other side into text with CAST(… AS STRING).")
    nullable = left.type.nullable or right.type.nullable
    length = min((left.type.length or 0) + (right.type.length or 0), t.STRING_LENGTH)
    both_fixed = left.type.root is TypeRoot.CHAR and right.type.root is TypeRoot.CHAR
    result = t.char(length) if both_fixed else t.varchar(length)
    return Call("CONCAT_OPERATOR", (left, right), result.with_nullable(nullable))


def like(value: Expression, pattern: Expression, escape: Expression | None, span: Span) -> Expression:
    arguments = [value, pattern] + ([escape] if escape is not None else [])
    arguments = [cast_to(a, t.STRING) if a.type.root is TypeRoot.NULL else a for a in arguments]
    for argument in arguments:
        if not argument.type.is_character:
            raise _mismatch("LIKE", value, pattern, span, "LIKE compares text; use CAST(… AS STRING).")
    return Call("LIKE", tuple(arguments), boolean_type(*arguments))
