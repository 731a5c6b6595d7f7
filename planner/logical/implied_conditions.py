"""What the equalities of a join say of one side beyond what was written.

a.k = b.k AND a.k > 3           →   b.k > 3: a row of b that fails it has no partner
a.k = c.k AND b.k = c.k         →   a.k = b.k, where (a, b) is the left side: no cross join there
"""

from __future__ import annotations

from planner.analysis import type_rules
from planner.analysis.operators import boolean_type
from planner.ir.expressions import Call, Expression, InputRef, canonical, input_indexes, shift_inputs
from planner.ir.types import TypeRoot
from planner.logical.expressions import is_deterministic
from planner.logical.join_conditions import may_raise, reads_outer_query

_INEXACT = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
"""0.0 and -0.0 are equal keys, and not the same value."""


class Implications:
    """Of the conjuncts that decide on partners in a join; `width`: how many columns are the left side's."""

    def __init__(self, conditions: list[Expression], width: int) -> None:
        self._width = width
        self._pairs: list[tuple[InputRef, InputRef]] = []
        self._equal: list[tuple[InputRef, InputRef]] = []
        for part in conditions:
            pair = self._pair(part)
            if pair is not None:
                self._pairs.append(pair)
                # NULLs that are taken for equal say nothing of a plain equality.
                self._equal += [pair] if isinstance(part, Call) and part.function == "EQ" else []

    def _pair(self, part: Expression) -> tuple[InputRef, InputRef] | None:
        """The two columns that the conjunct makes equal, the left side's first."""
        match part:
            case Call(function="EQ" | "IS_NOT_DISTINCT_FROM", args=(InputRef() as a, InputRef() as b)):
                left, right = (a, b) if a.index < b.index else (b, a)
                is_of_both = left.index < self._width <= right.index
                is_exact = type_rules.same_but_nullability(a.type, b.type) and a.type.root not in _INEXACT
                return (left, right) if is_of_both and is_exact else None
            case _:
                return None

    def on_right(self, left_conditions: list[Expression], known: list[Expression]) -> list[Expression]:
        """What conditions on left columns say of right ones, without what is known."""
        return _carried(left_conditions, {left.index: right.index for left, right in reversed(self._pairs)}, known)

    def on_left(self, right_conditions: list[Expression], known: list[Expression]) -> list[Expression]:
        return _carried(right_conditions, {right.index: left.index for left, right in reversed(self._pairs)}, known)

    def left_equalities(self) -> list[Expression]:
        """Equalities of left columns that have one right column in common."""
        return _equalities([(right, left) for left, right in self._equal])

    def right_equalities(self) -> list[Expression]:
        return _equalities(self._equal)


def _carried(conditions: list[Expression], mapping: dict[int, int], known: list[Expression]) -> list[Expression]:
    found: list[Expression] = []
    texts = {canonical(part) for part in known}
    for part in conditions:
        read = input_indexes(part)
        is_movable = is_deterministic(part) and not may_raise(part) and not reads_outer_query(part)
        if not read or not is_movable or not all(i in mapping for i in read):
            continue
        moved = shift_inputs(part, {i: mapping[i] for i in read})
        if canonical(moved) not in texts:
            texts.add(canonical(moved))
            found.append(moved)
    return found


def _equalities(pairs: list[tuple[InputRef, InputRef]]) -> list[Expression]:
    """Of second columns that are paired with the same first one."""
    first_of: dict[int, InputRef] = {}
    found: list[Expression] = []
    for shared, column in pairs:
        earlier = first_of.setdefault(shared.index, column)
        if earlier.index != column.index:
            found.append(Call("EQ", (earlier, column), boolean_type(earlier, column)))
    return found
