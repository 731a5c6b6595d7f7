"""Comparison: =, <>, <, … over mixed numeric types and times, IS [NOT] DISTINCT FROM, IN, GREATEST, LEAST, NULLIF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions import decimals
from runtime.operators.expressions.arithmetic import is_floating, to_number
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.calendar import to_wall_clock, units_of
from runtime.operators.expressions.casts import cast_kernel
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.vectors import (
    FALSE,
    as_array,
    both_valid,
    choose,
    from_booleans,
    length_of,
    null_where,
    scalar_of,
    validity,
)

_ARROW: dict[str, Kernel] = {
    "EQ": pc.equal,
    "NEQ": pc.not_equal,
    "LT": pc.less,
    "LTE": pc.less_equal,
    "GT": pc.greater,
    "GTE": pc.greater_equal,
}
_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda a, b: a == b,
    "NEQ": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LTE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GTE": lambda a, b: a >= b,
}
_TIMES = frozenset({TypeRoot.DATE, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_NESTED = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET})


def comparator(operator: str, left: DataType, right: DataType, context: EvaluationContext) -> Kernel:
    """The kernel of `left operator right` for these types."""
    if TypeRoot.DECIMAL in (left.root, right.root) and not (is_floating(left) or is_floating(right)):
        return _by_keys(operator, decimals.compare_keys)
    if left.is_numeric and right.is_numeric and to_arrow(left) != to_arrow(right):
        common = _common_number(left, right)
        return lambda a, b: _ARROW[operator](to_number(a, common), to_number(b, common))
    if left.root in _TIMES and right.root in _TIMES and to_arrow(left) != to_arrow(right):
        return _times(operator, left, right, context)
    if left.root in _NESTED:
        return _nested(operator)
    if to_arrow(left) != to_arrow(right) and left.is_character != right.is_character:
        return _implicit(operator, left, right, context)
    return _ARROW[operator]


def _common_number(left: DataType, right: DataType) -> ArrowType:
    if is_floating(left) or is_floating(right):
        both_float = TypeRoot.DOUBLE not in (left.root, right.root) and TypeRoot.DECIMAL not in (left.root, right.root)
        return pa.float32() if both_float else pa.float64()
    return max(to_arrow(left), to_arrow(right), key=lambda t: t.bit_width)


def _by_keys(operator: str, keys: Callable[[Vector, Vector], tuple[Any, Any]]) -> Kernel:
    """Compare what `keys` makes of the operands, in numpy."""
    compare = _NUMPY[operator]

    def kernel(left: Vector, right: Vector) -> Vector:
        a, b = keys(left, right)
        verdict = np.asarray(compare(a, b), np.bool_)
        return from_booleans(verdict, both_valid(validity(left), validity(right)), length_of(left, right))

    return kernel


def _times(operator: str, left: DataType, right: DataType, context: EvaluationContext) -> Kernel:
    """Dates and timestamps of different kinds or precisions, by seconds and the fraction (no unit overflows)."""
    same_kind = left.root is right.root
    plain = [_as_plain(t) if same_kind else t for t in (left, right)]
    read_left, read_right = to_wall_clock(plain[0], context), to_wall_clock(plain[1], context)
    units_left, units_right = units_of(left), units_of(right)

    def keys(a: Vector, b: Vector) -> tuple[Any, Any]:
        x, y = read_left(a), read_right(b)
        coarse, fine = min(units_left, units_right), max(units_left, units_right)
        factor = fine // coarse
        limit = (2**63 - 1) // factor
        if units_left < units_right:
            return np.clip(x, -limit, limit) * factor, y
        return x, np.clip(y, -limit, limit) * factor

    return _by_keys(operator, keys)


def _as_plain(t: DataType) -> DataType:
    return DataType(TypeRoot.TIMESTAMP, t.nullable, precision=t.precision) if t.root is TypeRoot.TIMESTAMP_LTZ else t


def _nested(operator: str) -> Kernel:
    """Equality of ARRAY, MAP and ROW values: element by element (a row-wise comparison; rare)."""
    wanted = operator == "EQ"

    def kernel(left: Vector, right: Vector) -> Vector:
        length = length_of(left, right)
        pairs = zip(as_array(left, length).to_pylist(), as_array(right, length).to_pylist(), strict=True)
        answers = [None if a is None or b is None else (a == b) == wanted for a, b in pairs]
        return pa.array(answers, pa.bool_())

    return kernel


def _implicit(operator: str, left: DataType, right: DataType, context: EvaluationContext) -> Kernel:
    """Text against another type: the text is cast to that type; what does not parse is NULL."""
    if left.is_character:
        parse, inner = cast_kernel(left, right, context, strict=False), comparator(operator, right, right, context)
        return lambda a, b: inner(parse(a), b)
    parse, inner = cast_kernel(right, left, context, strict=False), comparator(operator, left, left, context)
    return lambda a, b: inner(a, parse(b))


def _compare(call: Call, context: EvaluationContext) -> Kernel:
    left, right = call.args
    return comparator(call.function, left.type, right.type, context)


def _distinct(call: Call, context: EvaluationContext) -> Kernel:
    equal = comparator("EQ", call.args[0].type, call.args[1].type, context)
    negate = call.function == "IS_DISTINCT_FROM"

    def kernel(left: Vector, right: Vector) -> Vector:
        same = pc.fill_null(equal(left, right), FALSE)
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        answer = pc.or_(same, both_null)
        return pc.invert(answer) if negate else answer

    return kernel


_HASHABLE = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT, TypeRoot.CHAR,
                       TypeRoot.VARCHAR, TypeRoot.DATE})  # fmt: skip


def _in(call: Call, context: EvaluationContext) -> Kernel:
    """value IN (list): TRUE if equal to one, else NULL if anything is NULL, else FALSE."""
    value, *items = call.args
    literals = [item for item in items if _is_plain_item(item, value)]
    if len(items) > 2 and value.type.root in _HASHABLE and len(literals) == len(items):
        known = pa.array([scalar_of(literal).as_py() for literal in literals], to_arrow(value.type))

        def by_hash(vector: Vector, *_: Vector) -> Vector:
            return null_where(pc.is_null(vector), pc.is_in(vector, value_set=known))

        return by_hash
    comparators = [comparator("EQ", value.type, item.type, context) for item in items]

    def kernel(vector: Vector, *list_: Vector) -> Vector:
        answer = comparators[0](vector, list_[0])
        for compare, item in zip(comparators[1:], list_[1:], strict=True):
            answer = pc.or_kleene(answer, compare(vector, item))
        return as_array(answer, length_of(vector, *list_))

    return kernel


def _is_plain_item(item: Expression, value: Expression) -> TypeGuard[Literal]:
    return isinstance(item, Literal) and item.value is not None and to_arrow(item.type) == to_arrow(value.type)


def _extreme(call: Call, context: EvaluationContext) -> Kernel:
    """GREATEST and LEAST: NULL if any argument is NULL; a NaN that comes later is the greatest."""
    better = comparator("GT" if call.function == "GREATEST" else "LT", call.type, call.type, context)
    casts = [cast_kernel(argument.type, call.type, context, strict=False) for argument in call.args]
    floating, greatest = is_floating(call.type), call.function == "GREATEST"

    def kernel(*vectors: Vector) -> Vector:
        length = length_of(*vectors)
        values = [as_array(cast(vector), length) for cast, vector in zip(casts, vectors, strict=True)]
        best = values[0]
        for value in values[1:]:
            takes = better(value, best)
            if floating:
                nan = pc.is_nan(value if greatest else best)
                takes = pc.or_kleene(takes, nan)
            best = null_where(pc.is_null(value), choose(takes, value, best))
        missing = pc.is_null(values[0])
        for value in values[1:]:
            missing = pc.or_(missing, pc.is_null(value))
        return null_where(missing, best)

    return kernel


def _nullif(call: Call, context: EvaluationContext) -> Kernel:
    equal = comparator("EQ", call.args[0].type, call.args[1].type, context)
    cast = cast_kernel(call.args[0].type, call.type, context, strict=False)

    def kernel(left: Vector, right: Vector) -> Vector:
        same = pc.fill_null(equal(left, right), FALSE)
        return null_where(same, as_array(cast(left), length_of(left, right)))

    return kernel


KERNELS: dict[str, Builder] = {
    **dict.fromkeys(_ARROW, _compare),
    "IS_DISTINCT_FROM": _distinct,
    "IS_NOT_DISTINCT_FROM": _distinct,
    "IN": _in,
    "GREATEST": _extreme,
    "LEAST": _extreme,
    "NULLIF": _nullif,
}
