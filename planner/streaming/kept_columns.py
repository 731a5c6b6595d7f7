"""Which expressions give a column's value unmistakably, so that they are as good as the column in a key."""

from __future__ import annotations

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef


def kept_column(expression: Expression) -> int | None:
    """The input column whose value the expression gives, unmistakably: the column itself or a cast that loses nothing,
    so that it is as good as the column in a key."""
    match expression:
        case InputRef(index=index):
            return index
        case Call(function="CAST", args=(operand,)) if _is_lossless(operand.type, expression.type):
            return kept_column(operand)
        case _:
            return None


def _is_lossless(source: t.DataType, target: t.DataType) -> bool:
    if source.is_integer and target.is_integer:
        return t.INTEGER_BITS[source.root] <= t.INTEGER_BITS[target.root]
    if source.is_character and target.is_character:
        return target.root is t.TypeRoot.VARCHAR and (source.length or 0) <= (target.length or 0)
    if source.is_integer and target.root is t.TypeRoot.VARCHAR:
        return target.length == t.STRING_LENGTH
    if source.root is target.root and source.is_timestamp:
        return (source.precision or 0) <= (target.precision or 0)
    return source.with_nullable(True).sql() == target.with_nullable(True).sql()
