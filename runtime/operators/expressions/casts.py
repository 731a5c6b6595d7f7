"""CAST and TRY_CAST: which kernel turns a source type into a target type.

`cast_kernel` is also what other families use to bring operands to a common type. A text that does not parse gives
NULL; a strict cast then raises for it. Number to number never fails: integers wrap, floats saturate, decimals that do
not fit become NULL, as in Flink.
"""

from __future__ import annotations

import numpy as np

from planner.ir.expressions import Call
from planner.ir.types import STRING_LENGTH, DataType, TypeRoot, to_arrow
from runtime.operators.expressions import decimals
from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.casts_nested import nested_cast, nested_to_text
from runtime.operators.expressions.casts_text import parser, to_text
from runtime.operators.expressions.casts_time import time_cast
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import as_array, from_booleans, from_raw, length_of, raw, validity

_TIMES = frozenset({TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_NESTED = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET})
_INTERVALS = frozenset({TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.INTERVAL_DAY_TIME})


def cast_kernel(source: DataType, target: DataType, context: EvaluationContext, *, strict: bool) -> Kernel:
    """The kernel of CAST (`strict`) or TRY_CAST from one type to another. Raises UnsupportedExpression for a pair
    that Flink does not cast."""
    t = to_arrow(target)
    if source.root is TypeRoot.NULL:
        return lambda vector: pa.nulls(length_of(vector), t)
    if source.is_character:
        return _from_text(source, target, context, strict)
    if target.is_character:
        return _fit_text(_text_of(source, context), target)
    if source.root in _NESTED:
        return nested_cast(source, target, context, strict)
    if source.root in _TIMES and target.root in _TIMES:
        return time_cast(source, target, context, strict=strict)
    if source.is_binary and target.is_binary:
        return _fit_bytes(lambda vector: vector, source, target)
    if source.root is TypeRoot.BOOLEAN or source.is_numeric or source.root in _INTERVALS:
        return _from_number(source, target)
    raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")


def _text_of(source: DataType, context: EvaluationContext) -> Kernel:
    if source.root in _NESTED:
        return nested_to_text(source, lambda inner: _text_of(inner, context))
    return to_text(source, context)


def _from_text(source: DataType, target: DataType, context: EvaluationContext, strict: bool) -> Kernel:
    if target.is_character:
        return _fit_text(lambda vector: vector, target, source)
    if target.is_binary:
        return _fit_bytes(lambda vector: pc.cast(vector, pa.binary()), None, target)
    parse = parser(target, context)
    if parse is None:
        raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")
    if not strict:
        return parse
    name = target.with_nullable(True).sql()

    def kernel(vector: Vector) -> Vector:
        result = parse(vector)
        array = as_array(vector, len(result))
        if result.null_count > array.null_count:
            bad = pc.and_(pc.is_valid(array), pc.is_null(result))
            raise EvaluationFailure(f"cannot parse {array.filter(bad)[0].as_py()!r} as {name}")
        return result

    return kernel


def _fit_text(text: Kernel, target: DataType, source: DataType | None = None) -> Kernel:
    """Text cut to the target's length; CHAR(n) is filled with blanks."""
    length = target.length
    if length is None or length == STRING_LENGTH:
        return text
    pad = target.root is TypeRoot.CHAR
    if source is not None and source.length is not None and source.length <= length and not pad:
        return text
    if source is not None and pad and source.root is TypeRoot.CHAR and source.length == length:
        return text

    def kernel(vector: Vector) -> Vector:
        cut = pc.utf8_slice_codeunits(text(vector), 0, length)
        return pc.utf8_rpad(cut, length) if pad else cut

    return kernel


def _fit_bytes(convert: Kernel, source: DataType | None, target: DataType) -> Kernel:
    """Bytes cut to the target's length; BINARY(n) is filled with zeros."""
    length = target.length
    if length is None or length == STRING_LENGTH:
        return convert
    pad = target.root is TypeRoot.BINARY

    def fit(value: bytes) -> bytes:
        return value[:length].ljust(length, b"\0") if pad else value[:length]

    by_value = per_distinct(fit, pa.binary())

    def kernel(vector: Vector) -> Vector:
        data = as_array(convert(vector), length_of(vector))
        lengths = pc.min_max(pc.binary_length(data)).as_py()
        if lengths["max"] is None or (lengths["max"] <= length and (not pad or lengths["min"] == length)):
            return data
        return by_value(data)

    return kernel


def _from_number(source: DataType, target: DataType) -> Kernel:
    """BOOLEAN and numbers to BOOLEAN and numbers; intervals are integers."""
    s, t = to_arrow(source), to_arrow(target)
    if target.root is TypeRoot.BOOLEAN and source.root is not TypeRoot.BOOLEAN:
        return _to_boolean
    if not (target.is_numeric or target.root is TypeRoot.BOOLEAN or target.root in _INTERVALS):
        raise UnsupportedExpression(f"CAST from {source.sql()} to {target.sql()} is not supported")
    if s == t:
        return lambda vector: vector
    if source.root is TypeRoot.BOOLEAN:
        if target.root is TypeRoot.DECIMAL:
            return lambda vector: _decimal_of_integer(pc.cast(vector, pa.int8()), t)
        return lambda vector: pc.cast(vector, t)
    if target.root is TypeRoot.DECIMAL:
        if source.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            return lambda vector: _decimal_of_float(vector, t)
        return lambda vector: _decimal_of_integer(vector, t)
    if source.root is TypeRoot.DECIMAL:
        return lambda vector: _number_of_decimal(vector, t)
    if pa.types.is_floating(s) and pa.types.is_integer(t):
        return lambda vector: _integer_of_float(vector, t)
    return lambda vector: pc.cast(vector, t, safe=False)


def _to_boolean(vector: Vector) -> Vector:
    """A number is TRUE unless it is zero (NaN is TRUE)."""
    values = decimals.unscaled(vector)[0] if pa.types.is_decimal(vector.type) else raw(vector)
    return from_booleans(np.asarray(values != 0, np.bool_), validity(vector), length_of(vector))


def _decimal_of_integer(vector: Vector, t: ArrowType) -> Vector:
    values, valid = decimals.unscaled(vector)
    return decimals.from_unscaled(values, decimals.scale_of(vector.type), valid, t, length_of(vector))


def _number_of_decimal(vector: Vector, t: ArrowType) -> Vector:
    if pa.types.is_floating(t):
        floats, valid = decimals.to_float(vector)
        return from_raw(floats, valid, t, length_of(vector))
    values, valid = decimals.unscaled(vector)
    return decimals.from_unscaled(values, decimals.scale_of(vector.type), valid, t, length_of(vector))


def _integer_of_float(vector: Vector, t: ArrowType) -> Vector:
    """Java's narrowing: truncate, saturate at INT or BIGINT, NaN is 0; TINYINT and SMALLINT take INT's low bits."""
    values = raw(vector).astype(np.float64)
    wide = np.int64 if t.bit_width == 64 else np.int32
    limits = np.iinfo(wide)
    with np.errstate(invalid="ignore"):
        inside = np.clip(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), limits.min, limits.max)
        whole = np.trunc(inside)
        # 2^63 − 1 is no double: what reaches 2^63 saturates by hand.
        result = np.where(whole >= float(limits.max), limits.max, np.where(whole < limits.max, whole, 0).astype(wide))
    return from_raw(decimals.wrap(result.astype(np.int64), t.bit_width), validity(vector), t, length_of(vector))


def _decimal_of_float(vector: Vector, t: ArrowType) -> Vector:
    """Through the shortest decimal text of the DOUBLE, HALF_UP. NaN and infinities are NULL (Flink fails on them)."""
    from decimal import ROUND_HALF_UP, Context, Decimal

    wide, limit, quantum = Context(prec=700), 10**t.precision, Decimal(1).scaleb(-t.scale)

    def convert(value: float) -> Decimal | None:
        if not np.isfinite(value):
            return None
        rounded = Decimal(repr(value)).quantize(quantum, ROUND_HALF_UP, wide)
        return rounded if rounded.scaleb(t.scale, wide).copy_abs() < limit else None

    column = as_array(vector, length_of(vector))
    return per_distinct(convert, t)(column if column.type == pa.float64() else pc.cast(column, pa.float64()))


def _cast(call: Call, context: EvaluationContext) -> Kernel:
    return cast_kernel(call.args[0].type, call.type, context, strict=call.function == "CAST")


KERNELS: dict[str, Builder] = {"CAST": _cast, "TRY_CAST": _cast}
