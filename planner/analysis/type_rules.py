"""Flink's rules for types: what two types have in common, what arithmetic yields, what may be cast to what.

Sources: Flink's `LogicalTypeMerging` (common and aggregate types, DECIMAL arithmetic) and `LogicalTypeCasts`
(implicit and explicit casts), as documented on the "Data Types" page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.ir import types as t
from planner.ir.types import DataType, TypeRoot

DECIMAL_PRECISION_MAX = 38
_DECIMAL_SCALE_KEPT = 6
_INTEGER_DIGITS = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INTEGER: 10, TypeRoot.BIGINT: 19}
_DATETIME_ROOTS = frozenset({TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_INTERVAL_ROOTS = frozenset({TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.INTERVAL_DAY_TIME})


def is_datetime(type_: DataType) -> bool:
    return type_.root in _DATETIME_ROOTS


def is_interval(type_: DataType) -> bool:
    return type_.root in _INTERVAL_ROOTS


def plain(type_: DataType) -> DataType:
    """The type without its time-attribute mark."""
    return type_.with_time_attribute(None)


def same_but_nullability(a: DataType, b: DataType) -> bool:
    """Equality of the outermost types apart from marks and nullability."""
    return plain(a).with_nullable(True) == plain(b).with_nullable(True)


# -- DECIMAL ------------------------------------------------------------------------------------------


def as_decimal(type_: DataType) -> DataType:
    """An integer type as the DECIMAL that holds it; a DECIMAL as it is."""
    if type_.root is TypeRoot.DECIMAL:
        return plain(type_)
    return t.decimal(_INTEGER_DIGITS[type_.root], 0).with_nullable(type_.nullable)


def fit_decimal(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale); beyond 38 digits scale is given up first, but not below 6."""
    if precision <= DECIMAL_PRECISION_MAX:
        return t.decimal(precision, scale)
    integral = precision - scale
    kept = min(scale, _DECIMAL_SCALE_KEPT)
    return t.decimal(DECIMAL_PRECISION_MAX, max(DECIMAL_PRECISION_MAX - integral, kept))


def decimal_arithmetic(operator: str, left: DataType, right: DataType) -> DataType:
    """Result of `+ - * / %` on two DECIMALs."""
    p1, s1 = left.precision or 0, left.scale or 0
    p2, s2 = right.precision or 0, right.scale or 0
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return fit_decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return fit_decimal(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_DECIMAL_SCALE_KEPT, s1 + p2 + 1)
            return fit_decimal(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return fit_decimal(min(p1 - s1, p2 - s2) + scale, scale)


def rounded_decimal(type_: DataType, digits: int) -> DataType:
    """Result of ROUND(DECIMAL, digits)."""
    precision, scale = type_.precision or 0, type_.scale or 0
    if digits >= scale:
        return type_
    if digits < 0:
        return t.decimal(min(DECIMAL_PRECISION_MAX, 1 + precision - scale), 0)
    return t.decimal(min(DECIMAL_PRECISION_MAX, 1 + precision - scale + digits), digits)


# -- common types -------------------------------------------------------------------------------------


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The least type that all values can be cast to implicitly; None if there is none.

    Nullable if any is. NULL literals adapt to the others.
    """
    result = plain(types[0])
    for other in types[1:]:
        merged = _common_of_two(result, plain(other))
        if merged is None:
            return None
        result = merged
    return result


def _common_of_two(a: DataType, b: DataType) -> DataType | None:
    nullable = a.nullable or b.nullable
    if a.root is TypeRoot.NULL:
        return b.with_nullable(True)
    if b.root is TypeRoot.NULL:
        return a.with_nullable(True)
    if a.with_nullable(True) == b.with_nullable(True):
        return a.with_nullable(nullable)
    merged: DataType | None = None
    if a.is_numeric and b.is_numeric:
        merged = common_numeric(a, b)
    elif a.is_character and b.is_character:
        merged = _common_text(a, b, TypeRoot.CHAR, TypeRoot.VARCHAR)
    elif a.is_binary and b.is_binary:
        merged = _common_text(a, b, TypeRoot.BINARY, TypeRoot.VARBINARY)
    elif is_datetime(a) and is_datetime(b):
        merged = _common_datetime(a, b)
    elif a.root is b.root:
        merged = _common_nested(a, b)
    return merged.with_nullable(nullable) if merged is not None else None


def common_numeric(a: DataType, b: DataType) -> DataType:
    """The common type of two numeric types (nullability is the caller's)."""
    roots = {a.root, b.root}
    if TypeRoot.DOUBLE in roots:
        return t.DOUBLE
    if TypeRoot.FLOAT in roots:
        # A DECIMAL does not fit FLOAT's digits; integers are taken along as Flink does.
        return t.DOUBLE if TypeRoot.DECIMAL in roots else t.FLOAT
    if TypeRoot.DECIMAL in roots:
        left, right = as_decimal(a), as_decimal(b)
        scale = max(left.scale or 0, right.scale or 0)
        integral = max((left.precision or 0) - (left.scale or 0), (right.precision or 0) - (right.scale or 0))
        return t.decimal(min(DECIMAL_PRECISION_MAX, integral + scale), scale)
    wider = a if _INTEGER_DIGITS[a.root] >= _INTEGER_DIGITS[b.root] else b
    return wider.with_nullable(True)


def _common_text(a: DataType, b: DataType, fixed: TypeRoot, varying: TypeRoot) -> DataType:
    length = max(a.length or 0, b.length or 0)
    same_fixed = a.root is fixed and b.root is fixed and a.length == b.length
    return DataType(fixed if same_fixed else varying, length=length)


def _common_datetime(a: DataType, b: DataType) -> DataType | None:
    roots = {a.root, b.root}
    if TypeRoot.TIME in roots:
        if roots == {TypeRoot.TIME}:
            return t.time(max(a.precision or 0, b.precision or 0))
        return None
    precision = max(a.precision or 0, b.precision or 0)
    if TypeRoot.TIMESTAMP_LTZ in roots:
        return t.timestamp_ltz(precision)
    return t.timestamp(precision)


def _common_nested(a: DataType, b: DataType) -> DataType | None:
    if a.root is TypeRoot.ROW:
        if len(a.fields) != len(b.fields):
            return None
        merged = [_common_of_two(x.type, y.type) for x, y in zip(a.fields, b.fields, strict=True)]
        if any(m is None for m in merged):
            return None
        pairs = zip(a.fields, merged, strict=True)
        return t.row(*((f.name, m) for f, m in pairs if m is not None))
    if a.element is None or b.element is None:
        return None
    element = _common_of_two(a.element, b.element)
    key = _common_of_two(a.key, b.key) if a.key is not None and b.key is not None else None
    if element is None or (a.root is TypeRoot.MAP and key is None):
        return None
    return DataType(a.root, element=element, key=key)


# -- casts --------------------------------------------------------------------------------------------

_IMPLICIT_INTEGER_ORDER = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
_IMPLICIT_SOURCES: dict[TypeRoot, frozenset[TypeRoot]] = {
    **{root: frozenset(_IMPLICIT_INTEGER_ORDER[: i + 1]) for i, root in enumerate(_IMPLICIT_INTEGER_ORDER)},
    TypeRoot.DECIMAL: frozenset({*_IMPLICIT_INTEGER_ORDER, TypeRoot.DECIMAL}),
    TypeRoot.FLOAT: frozenset({*_IMPLICIT_INTEGER_ORDER, TypeRoot.DECIMAL, TypeRoot.FLOAT}),
    TypeRoot.DOUBLE: frozenset(t.NUMERIC_ROOTS),
    TypeRoot.CHAR: frozenset({TypeRoot.CHAR}),
    TypeRoot.VARCHAR: frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR}),
    TypeRoot.BINARY: frozenset({TypeRoot.BINARY}),
    TypeRoot.VARBINARY: frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY}),
    TypeRoot.DATE: frozenset({TypeRoot.DATE, TypeRoot.TIMESTAMP}),
    TypeRoot.TIME: frozenset({TypeRoot.TIME, TypeRoot.TIMESTAMP}),
    TypeRoot.TIMESTAMP: frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}),
    TypeRoot.TIMESTAMP_LTZ: frozenset({TypeRoot.TIMESTAMP_LTZ, TypeRoot.TIMESTAMP}),
}


def can_store(source: DataType, target: DataType) -> bool:
    """Whether a query's column may be written to a sink column of type `target` without a CAST.

    Nullability is checked at run time (`table.exec.sink.not-null-enforcer`), so it does not count here.
    """
    if source.root is TypeRoot.NULL:
        return True
    allowed = _IMPLICIT_SOURCES.get(target.root)
    if allowed is not None:
        return source.root in allowed
    return _nested_pairwise(source, target, can_store)


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether CAST(source AS target) exists at all."""
    if source.root is TypeRoot.NULL:
        return True
    if target.is_character or source.is_character:
        return _can_cast_text(source, target)
    if source.is_numeric:
        return target.is_numeric or target.root is TypeRoot.BOOLEAN
    if source.root is TypeRoot.BOOLEAN:
        return target.is_numeric or target.root is TypeRoot.BOOLEAN
    if source.is_binary:
        return target.is_binary
    if is_datetime(source):
        return _can_cast_datetime(source, target)
    if is_interval(source):
        return target.root is source.root or target.is_integer
    return _nested_pairwise(source, target, can_cast)


def _can_cast_text(source: DataType, target: DataType) -> bool:
    if source.is_character:
        nested = target.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET)
        return not nested and not is_interval(target) and target.root is not TypeRoot.NULL
    return True


def _can_cast_datetime(source: DataType, target: DataType) -> bool:
    if not is_datetime(target):
        return False
    pair = {source.root, target.root}
    return pair != {TypeRoot.DATE, TypeRoot.TIME}


def _nested_pairwise(source: DataType, target: DataType, rule: Callable[[DataType, DataType], bool]) -> bool:
    """Whether `rule` holds for the members of two ROW, ARRAY, MAP or MULTISET types of one shape."""
    if source.root is not target.root:
        return False
    if source.root is TypeRoot.ROW:
        if len(source.fields) != len(target.fields):
            return False
        return all(rule(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True))
    members = [(source.element, target.element), (source.key, target.key)]
    return all(rule(a, b) for a, b in members if a is not None and b is not None)


# -- aggregates ---------------------------------------------------------------------------------------


def sum_type(argument: DataType) -> DataType:
    """SUM keeps the argument's type (and wraps) but for DECIMAL(p, s), which becomes DECIMAL(38, s)."""
    if argument.root is TypeRoot.DECIMAL:
        return t.decimal(DECIMAL_PRECISION_MAX, argument.scale or 0)
    return plain(argument)


def average_type(argument: DataType) -> DataType:
    """AVG keeps the argument's type, truncated; DECIMAL(p, s) becomes DECIMAL(38, max(6, s))."""
    if argument.root is TypeRoot.DECIMAL:
        return t.decimal(DECIMAL_PRECISION_MAX, max(_DECIMAL_SCALE_KEPT, argument.scale or 0))
    return plain(argument)
