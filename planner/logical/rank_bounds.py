"""What a condition says about a rank: the range of ranks that it lets through."""

from __future__ import annotations

import math
from decimal import Decimal

import msgspec

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, input_indexes
from planner.ir.types import TypeRoot
from planner.logical.rules.fold_literals import fold

_SWAPPED = {"EQ": "EQ", "LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}
_NEGATED = {"NEQ": "EQ", "LT": "GTE", "LTE": "GT", "GT": "LTE", "GTE": "LT", "AND": "OR", "OR": "AND"}
_BIGINT_DIGITS = 19
RANK_TYPE = t.BIGINT.with_nullable(False)
NO_BOUND = 2**63 - 1
"""The last rank of a Top-N that lets all ranks through, where that is possible."""


class RankRange(msgspec.Struct, frozen=True):
    """Ranks `first`..`last`, inclusive; `last` None = no upper bound, below `first` = no rank at all. `is_exact`: the
    condition lets through every rank of the range, so it need not be asked again."""

    first: int = 1
    last: int | None = None
    is_exact: bool = True

    def both(self, other: RankRange) -> RankRange:
        """What passes both conditions."""
        bounds = [r.last for r in (self, other) if r.last is not None]
        return RankRange(max(self.first, other.first), min(bounds, default=None), self.is_exact and other.is_exact)

    def either(self, other: RankRange) -> RankRange:
        """The smallest range around what passes one of two conditions."""
        low, high = sorted((self, other), key=lambda r: r.first)
        last = None if low.last is None or high.last is None else max(low.last, high.last)
        has_gap = low.last is not None and high.first > low.last + 1
        return RankRange(low.first, last, self.is_exact and other.is_exact and not has_gap)


def rank_range(condition: Expression, rank: int) -> RankRange | None:
    """The range of a condition that reads column `rank` alone; None if it says nothing that could be used."""
    condition = fold(condition)
    if not isinstance(condition, Call) or input_indexes(condition) != {rank}:
        return None
    match condition:
        case Call(function="NOT", args=(operand,)):
            opposite = _opposite(operand)
            return rank_range(opposite, rank) if opposite is not None else None
        case Call(function="AND" | "OR" as function, args=args):
            parts = [rank_range(a, rank) for a in args]
            if function == "AND":
                return _all_of(parts)
            known = [p for p in parts if p is not None]
            return _any_of(known) if len(known) == len(parts) else None
        case Call(function="IN", args=(operand, *items)) if _is_rank(operand):
            values = [_number(i) for i in items]
            return _any_of([_compared("EQ", v) for v in values if v is not None]) if None not in values else None
        case Call(function=function, args=(left, right)) if function in _SWAPPED:
            if _is_rank(right):
                left, right, function = right, left, _SWAPPED[function]
            value = _number(right)
            return _compared(function, value) if _is_rank(left) and value is not None else None
        case _:
            return None


def _opposite(condition: Expression) -> Expression | None:
    """NOT of a condition, without NOT: of ranks, which are never NULL or NaN."""
    match condition:
        case Call(function="NOT", args=(operand,)):
            return operand
        case Call(function="AND" | "OR", args=args):
            parts: list[Expression] = [Call("NOT", (part,), condition.type) for part in args]
            return msgspec.structs.replace(condition, function=_NEGATED[condition.function], args=tuple(parts))
        case Call(function=function) if function in _NEGATED:
            return msgspec.structs.replace(condition, function=_NEGATED[function])
        case _:
            return None


def _all_of(parts: list[RankRange | None]) -> RankRange | None:
    """Parts that say nothing stay to be asked: the range is not exact then."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    found = known[0]
    for part in known[1:]:
        found = found.both(part)
    return found if len(known) == len(parts) else msgspec.structs.replace(found, is_exact=False)


def _any_of(parts: list[RankRange]) -> RankRange:
    """Sorted, so that ranges that touch one another grow together."""
    found, *others = sorted(parts, key=lambda p: p.first)
    for part in others:
        found = found.either(part)
    return found


def _compared(function: str, value: Decimal) -> RankRange:
    match function:
        case "LT":
            return RankRange(last=math.ceil(value) - 1)
        case "LTE":
            return RankRange(last=math.floor(value))
        case "GT":
            return RankRange(max(1, math.floor(value) + 1))
        case "GTE":
            return RankRange(max(1, math.ceil(value)))
        case _:
            is_rank = value == value.to_integral_value() and value >= 1
            return RankRange(int(value), int(value)) if is_rank else RankRange(last=0)


def _is_rank(expression: Expression) -> bool:
    """The column itself, or a cast of it that changes no rank."""
    if isinstance(expression, Call) and expression.function == "CAST":
        type_ = expression.type
        keeps = type_.root in (TypeRoot.BIGINT, TypeRoot.DOUBLE)
        if type_.root is TypeRoot.DECIMAL:
            keeps = (type_.precision or 0) - (type_.scale or 0) >= _BIGINT_DIGITS
        return keeps and _is_rank(expression.args[0])
    return isinstance(expression, InputRef)


def _number(expression: Expression) -> Decimal | None:
    """The value of a constant; None if it is none, or NULL, or no number."""
    if not isinstance(expression, Literal) or not expression.type.is_numeric:
        return None
    if isinstance(expression.value, bool) or not isinstance(expression.value, int | float | str):
        return None
    value = Decimal(expression.value)
    return value if value.is_finite() else None
