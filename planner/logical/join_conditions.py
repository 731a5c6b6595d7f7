"""Conditions of joins: their conjuncts, what is an equality of both sides, and what a row of NULLs would fail."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from planner.analysis import type_rules
from planner.ir import functions as registry
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, canonical, input_indexes, shift_inputs, walk
from planner.ir.functions import Nullability, cast_can_raise
from planner.ir.types import DataType, TypeRoot
from planner.logical.expressions import conjunction, identity, is_deterministic
from planner.logical.nodes import Calc, Column, Plan
from planner.logical.rules.fold_literals import fold

_EQUALITIES = {"EQ": False, "IS_NOT_DISTINCT_FROM": True}
"""Functions that may become join keys, and whether NULL equals NULL there."""


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The operands of AND, in order, their constant parts computed."""
    return [] if condition is None else _operands(fold(condition))


def _operands(condition: Expression) -> list[Expression]:
    if isinstance(condition, Call) and condition.function == "AND":
        return [part for operand in condition.args for part in _operands(operand)]
    is_true = isinstance(condition, Literal) and condition.value is True
    return [] if is_true else [condition]


def retyped(expression: Expression, columns: tuple[Column, ...]) -> Expression:
    """The expression with each column's type as `columns` have it."""
    match expression:
        case InputRef(index=index):
            return InputRef(index, columns[index].type)
        case Call(args=args):
            return msgspec.structs.replace(expression, args=tuple(retyped(a, columns) for a in args))
        case _:
            return expression


def may_raise(expression: Expression) -> bool:
    """Whether evaluating it may fail on a value, so that what stands before it must keep doing so."""
    return any(_call_may_raise(e) for e in walk(expression) if isinstance(e, Call))


def _call_may_raise(call: Call) -> bool:
    if call.function == "CAST":
        source, target = call.args[0].type, call.type
        is_nested = bool(source.fields or source.element is not None)
        return is_nested or cast_can_raise(source, target) or (target.is_timestamp and (target.precision or 0) > 6)
    row = registry.BY_ID.get(call.function)
    return row is not None and row.can_raise


def reads_outer_query(expression: Expression) -> bool:
    """Whether it holds a call that is no function: a column of the query around, until that is taken away."""
    return any(isinstance(e, Call) and e.function not in registry.BY_ID for e in walk(expression))


# -- rows of NULLs ------------------------------------------------------------------------------------


def rejects_nulls(condition: Expression, columns: frozenset[int]) -> bool:
    """Whether the condition cannot be TRUE where all `columns` are NULL."""
    match condition:
        case Literal(value=value):
            return value is not True
        case Call(function="AND", args=args):
            return any(rejects_nulls(a, columns) for a in args)
        case Call(function="OR", args=args):
            return all(rejects_nulls(a, columns) for a in args)
        case Call(function="IS_NOT_NULL" | "IS_FALSE", args=(operand,)):
            return _is_null(operand, columns)
        case Call(function="IS_TRUE", args=(operand,)):
            return rejects_nulls(operand, columns)
        case _:
            return _is_null(condition, columns)


def _is_null(expression: Expression, columns: frozenset[int]) -> bool:
    """Whether the expression is NULL where all `columns` are."""
    match expression:
        case InputRef(index=index):
            return index in columns
        case Literal(value=value):
            return value is None
        case Call(function="AND" | "OR"):
            return False
        case Call(function="CAST" | "TRY_CAST", args=(operand,)):
            return _is_null(operand, columns)
        case Call(function="IN", args=(tested, *_)):
            return _is_null(tested, columns)
        case Call(function=function, args=args):
            row = registry.BY_ID.get(function)
            is_strict = row is not None and row.nullability is Nullability.ANY_ARGUMENT and not row.lazy
            return is_strict and any(_is_null(a, columns) for a in args)


# -- equalities ---------------------------------------------------------------------------------------


class EquiKeys(msgspec.Struct, frozen=True):
    """The equalities of a join condition as columns of both sides. `left` and `right` may have got columns at their
    ends that compute a key; `rest` reads the widened sides."""

    left: Plan
    right: Plan
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    rest: Expression | None


class _Equality(msgspec.Struct, frozen=True):
    """`right` reads the right side's own indexes."""

    left: Expression
    right: Expression
    null_safe: bool


def equi_keys(left: Plan, right: Plan, condition: Iterable[Expression]) -> EquiKeys:
    """Takes the equalities out of the conjuncts, which read left, then right columns."""
    width = len(left.columns)
    equalities: list[_Equality] = []
    rest: list[Expression] = []
    for part in condition:
        equality = _equality(part, width)
        if equality is None:
            rest.append(part)
            continue
        guarded = _guarded(equality, rest, width)
        if guarded not in equalities:
            equalities.append(guarded)
    wide_left, left_keys = _with_keys(left, [e.left for e in equalities])
    wide_right, right_keys = _with_keys(right, [e.right for e in equalities])
    moved = {i: i for i in range(width)}
    moved |= {width + i: len(wide_left.columns) + i for i in range(len(right.columns))}
    return EquiKeys(
        left=wide_left,
        right=wide_right,
        left_keys=left_keys,
        right_keys=right_keys,
        null_safe=tuple(e.null_safe for e in equalities),
        rest=conjunction(shift_inputs(part, moved) for part in rest),
    )


def _equality(part: Expression, width: int) -> _Equality | None:
    part = _null_safe_form(part) or part
    if not isinstance(part, Call) or part.function not in _EQUALITIES or not is_deterministic(part):
        return None
    if reads_outer_query(part):
        return None
    first, second = part.args
    if _side(first, width) == 1 and _side(second, width) == 0:
        first, second = second, first
    if _side(first, width) != 0 or _side(second, width) != 1 or not _are_alike(first.type, second.type):
        return None
    second = shift_inputs(second, {i: i - width for i in input_indexes(second)})
    return _Equality(first, second, _EQUALITIES[part.function])


def _null_safe_form(part: Expression) -> Call | None:
    """`a = b OR (a IS NULL AND b IS NULL)` as IS NOT DISTINCT FROM."""
    match part:
        case Call(
            function="OR",
            args=(
                Call(function="EQ", args=(a, b)),
                Call(
                    function="AND",
                    args=(Call(function="IS_NULL", args=(c,)), Call(function="IS_NULL", args=(d,))),
                ),
            ),
        ) if sorted(map(canonical, (a, b))) == sorted(map(canonical, (c, d))):
            return Call("IS_NOT_DISTINCT_FROM", (a, b), t.BOOLEAN.with_nullable(False))
        case _:
            return None


def _side(expression: Expression, width: int) -> int | None:
    """0: reads left columns only, 1: right ones only; None: both or none."""
    sides = {int(i >= width) for i in input_indexes(expression)}
    return sides.pop() if len(sides) == 1 else None


def _are_alike(a: DataType, b: DataType) -> bool:
    """Whether equal values of both have equal hashes."""
    if a.root in (TypeRoot.MAP, TypeRoot.MULTISET) or b.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        return False
    if (a.is_character and b.is_character) or (a.is_binary and b.is_binary):
        return True
    return type_rules.same_but_nullability(a, b)


def _guarded(equality: _Equality, before: list[Expression], width: int) -> _Equality:
    """A key that may fail to be computed is so only where the conjuncts before it let it: they stay in the condition,
    so a key of NULL changes nothing."""
    left, right = equality.left, equality.right
    if may_raise(left):
        left = _if(conjunction(p for p in before if _side(p, width) == 0), left)
    if may_raise(right):
        own = [p for p in before if _side(p, width) == 1]
        moved = (shift_inputs(p, {i: i - width for i in input_indexes(p)}) for p in own)
        right = _if(conjunction(moved), right)
    return _Equality(left, right, equality.null_safe)


def _if(condition: Expression | None, value: Expression) -> Expression:
    if condition is None or not is_deterministic(condition):
        return value
    type_ = type_rules.plain(value.type).with_nullable(True)
    return Call("CASE", (condition, value, Literal(None, type_)), type_)


def _with_keys(side: Plan, keys: list[Expression]) -> tuple[Plan, tuple[int, ...]]:
    """The side with a column for each computed key, and where all the keys are."""
    computed: list[Expression] = []
    positions: list[int] = []
    for key in keys:
        if isinstance(key, InputRef):
            positions.append(key.index)
            continue
        if key not in computed:
            computed.append(key)
        positions.append(len(side.columns) + computed.index(key))
    if not computed:
        return side, tuple(positions)
    columns = tuple(Column(f"$key{i}", key.type) for i, key in enumerate(computed))
    wide = Calc(side, None, (*identity(side.columns), *computed), (*side.columns, *columns))
    return wide, tuple(positions)
