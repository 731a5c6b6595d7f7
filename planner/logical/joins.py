"""What a Join becomes: interval, window, temporal, lookup or regular join.

It is settled when FROM and WHERE of a SELECT are bound and nothing above is: a regular join makes ordinary values of
time attributes, and what reads them must know. The conditions of WHERE and ON go where they belong:

    WHERE a.x > 1 AND a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR   over   a, b
      →   IntervalJoin(k = k, 0 <= b.t - a.t <= 1 h) over Filter(x > 1) over a, and b

* A condition on one side goes below that side, where this changes nothing: never below the side that is padded with
  NULLs (WHERE), nor below the side that is kept (ON).
* WHERE that no row of NULLs passes makes an inner join of an outer one.
* What may fail on a value stays behind everything that stands before it.
* Filters of a SELECT reach the joins of its sub-queries, too; such a join may become another kind then, but the types
  of its columns stay.
"""

from __future__ import annotations

import msgspec

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, input_indexes, shift_inputs, substitute
from planner.ir.operators import JoinKind
from planner.logical.expressions import conjunction, identity, is_deterministic
from planner.logical.implied_conditions import Implications
from planner.logical.join_conditions import (
    EquiKeys,
    conjuncts,
    equi_keys,
    may_raise,
    reads_outer_query,
    rejects_nulls,
    retyped,
)
from planner.logical.nodes import AsOfJoin, Calc, Column, Join, Plan, Unnest
from planner.logical.ranks import settled_ranks
from planner.logical.rules.interval_join import interval_join
from planner.logical.rules.temporal_join import as_of_join
from planner.logical.rules.window_join import window_join

REGULAR_JOIN_LOSES = "a regular join made an ordinary value of it"

_Conditions = list[Expression]
_NOTHING = range(0)


def settle_joins(plan: Plan, where: Expression | None) -> tuple[Plan, Expression | None]:
    """The FROM tree with its joins settled, and what is left of WHERE. Number, names and order of columns stay; time
    attributes may have become ordinary columns, so their types must be read anew. May be called again."""
    if not _has_join(plan):
        return plan, where
    settled, rest = _settled(plan, conjuncts(where))
    return settled, conjunction(rest)


def _has_join(plan: Plan) -> bool:
    match plan:
        case Join() | AsOfJoin() | Unnest():
            return True
        case Calc():
            return _has_join(plan.input)
        case _:
            return False


def _settled(plan: Plan, where: _Conditions) -> tuple[Plan, _Conditions]:
    """The plan with as much of `where` in it as can be, and the rest over its new columns."""
    match plan:
        case Join():
            return _join(plan, where)
        case AsOfJoin():
            return _as_of(plan, where)
        case Unnest() if _has_join(plan):
            return _unnest(plan, where)
        case Calc() if _has_join(plan):
            return _calc(plan, where)
        case _:
            return plan, where


def filtered(plan: Plan, conditions: _Conditions) -> Plan:
    """The plan with a filter above, if there is one; it may bound a rank below."""
    if not conditions:
        return plan
    condition = conjunction(retyped(part, plan.columns) for part in conditions)
    return settled_ranks(Calc(plan, condition, identity(plan.columns), plan.columns))


def _side(plan: Plan, conditions: _Conditions) -> Plan:
    settled, rest = _settled(plan, conditions)
    return filtered(settled, rest)


# -- what stands between joins ------------------------------------------------------------------------


def _calc(plan: Calc, where: _Conditions) -> tuple[Plan, _Conditions]:
    """Its own filter comes first; conditions on columns that are other values each time stay above."""
    below: _Conditions = conjuncts(plan.condition)
    kept: _Conditions = []
    for part in where:
        read = [plan.projections[i] for i in input_indexes(part)]
        can_pass = _may_move(part) and all(is_deterministic(e) for e in read)
        moved = substitute(part, plan.projections)
        if can_pass and not (kept and may_raise(moved)):
            below.append(moved)
        else:
            kept.append(part)
    settled, rest = _settled(plan.input, below)
    projections = tuple(retyped(p, settled.columns) for p in plan.projections)
    columns = calc_columns(plan.columns, projections, settled)
    condition = conjunction(retyped(part, settled.columns) for part in rest)
    calc = Calc(settled, condition, projections, columns)
    return calc, [retyped(part, columns) for part in kept]


def passed(column: Column, source: Column) -> Column:
    """The column without its mark, if its source has lost it."""
    if column.type.time_attribute is None or source.type.time_attribute is not None:
        return column
    return Column(column.name, column.type.with_time_attribute(None), source.lost)


def calc_columns(columns: tuple[Column, ...], projections: tuple[Expression, ...], below: Plan) -> tuple[Column, ...]:
    """The columns of a calc over a plan some of whose columns may have lost their marks."""
    return tuple(
        passed(c, below.columns[p.index]) if isinstance(p, InputRef) else c
        for c, p in zip(columns, projections, strict=True)
    )


def _unnest(plan: Unnest, where: _Conditions) -> tuple[Plan, _Conditions]:
    width = len(plan.input.columns)
    pushed, _, kept = _spread(where, range(width), _NOTHING)
    below = _side(plan.input, pushed)
    columns = (*(passed(c, s) for c, s in zip(plan.columns, below.columns, strict=False)), *plan.columns[width:])
    condition = retyped(plan.condition, columns) if plan.condition is not None else None
    unnest = msgspec.structs.replace(plan, input=below, columns=columns, condition=condition)
    return unnest, [retyped(part, columns) for part in kept]


# -- joins --------------------------------------------------------------------------------------------


def _join(join: Join, where: _Conditions) -> tuple[Plan, _Conditions]:
    width, right_width = len(join.left.columns), len(join.right.columns)
    left_columns, right_columns = range(width), range(width, width + right_width)
    kind = _simplified(join.kind, where, width, right_width)
    on = [*(_key_equality(join, i) for i in range(len(join.left_keys))), *conjuncts(join.condition)]
    if kind is JoinKind.INNER:
        on += [part for part in where if not reads_outer_query(part)]
        where = [part for part in where if reads_outer_query(part)]
    keeps_left = kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)
    on_left, on_right, rest = _spread(
        on,
        _NOTHING if keeps_left else left_columns,
        _NOTHING if kind in (JoinKind.RIGHT, JoinKind.FULL) else right_columns,
    )
    where_left, where_right, kept = _spread(
        where,
        left_columns if kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI) else _NOTHING,
        right_columns if kind is JoinKind.RIGHT else _NOTHING,
        is_guarded=bool(on),
    )
    from_left, from_right = [*on_left, *where_left], [*on_right, *where_right]
    implied = Implications(rest, width)
    if not keeps_left:
        from_left += implied.on_left([*from_right, *_reading(rest, right_columns)], from_left)
        from_left += implied.left_equalities() if _has_join(join.left) else []
    if kind not in (JoinKind.RIGHT, JoinKind.FULL):
        from_right += implied.on_right([*on_left, *where_left, *_reading(rest, left_columns)], from_right)
        from_right += implied.right_equalities() if _has_join(join.right) else []
    left = _side(join.left, from_left)
    right = _side(join.right, [_shifted(part, -width) for part in from_right])
    sides = (*left.columns, *right.columns)
    keys = equi_keys(left, right, [retyped(part, sides) for part in rest])
    settled = _classified(join, kind, keys)
    return settled, [retyped(part, settled.columns) for part in kept]


def _simplified(kind: JoinKind, where: _Conditions, width: int, right_width: int) -> JoinKind:
    """The kind, if WHERE lets no padded row pass."""
    left_rejected = any(rejects_nulls(part, frozenset(range(width))) for part in where)
    right_rejected = any(rejects_nulls(part, frozenset(range(width, width + right_width))) for part in where)
    if kind is JoinKind.FULL and left_rejected:
        kind = JoinKind.LEFT
    elif kind is JoinKind.FULL and right_rejected:
        kind = JoinKind.RIGHT
    if (kind is JoinKind.LEFT and right_rejected) or (kind is JoinKind.RIGHT and left_rejected):
        return JoinKind.INNER
    return kind


def _key_equality(join: Join, index: int) -> Expression:
    """A key that was taken out of the condition, as it was."""
    left, right = join.left_keys[index], join.right_keys[index]
    arguments = (
        InputRef(left, join.left.columns[left].type),
        InputRef(len(join.left.columns) + right, join.right.columns[right].type),
    )
    if join.null_safe[index]:
        return Call("IS_NOT_DISTINCT_FROM", arguments, t.BOOLEAN.with_nullable(False))
    return Call("EQ", arguments, t.BOOLEAN.with_nullable(any(a.type.nullable for a in arguments)))


def _spread(
    conditions: _Conditions, left: range, right: range, is_guarded: bool = False
) -> tuple[_Conditions, _Conditions, _Conditions]:
    """The conditions that read columns of `left` alone, of `right` alone, and the others, all in their order. One that
    may fail goes to a side only if all before it went there; `is_guarded`: there is something before all of them."""
    found: tuple[_Conditions, _Conditions, _Conditions] = ([], [], [])
    for part in conditions:
        read = input_indexes(part)
        place = 2
        if read and _may_move(part):
            place = 0 if all(i in left for i in read) else 1 if all(i in right for i in read) else 2
        if may_raise(part) and (is_guarded or any(found[other] for other in range(3) if other != place)):
            place = 2
        found[place].append(part)
    return found


def _may_move(part: Expression) -> bool:
    """What reads the query around stays in WHERE, where it is looked for."""
    return is_deterministic(part) and not reads_outer_query(part)


def _reading(conditions: _Conditions, columns: range) -> _Conditions:
    """Those that read some of `columns` and no others."""
    return [part for part in conditions if all(i in columns for i in input_indexes(part))]


def _shifted(expression: Expression, by: int) -> Expression:
    return shift_inputs(expression, {i: i + by for i in input_indexes(expression)})


def _classified(join: Join, kind: JoinKind, keys: EquiKeys) -> Plan:
    """The node that a join with known keys becomes, with the columns that `join` has."""
    width = len(join.left.columns)
    left, right = join.columns[:width], join.columns[width:]
    left_columns = _output(left, keys.left.columns, is_padded=kind.is_right_outer)
    right_columns = _output(right, keys.right.columns, is_padded=kind.is_left_outer) if kind.keeps_right else ()
    bare = msgspec.structs.replace(
        join,
        left=keys.left,
        right=keys.right,
        kind=kind,
        condition=keys.rest,
        columns=(*left_columns, *right_columns),
        left_keys=keys.left_keys,
        right_keys=keys.right_keys,
        null_safe=keys.null_safe,
    )
    settled = window_join(bare) or interval_join(bare) or _regular(bare)
    if len(settled.columns) == len(join.columns):
        return settled
    kept = [*range(width), *range(len(left_columns), len(left_columns) + len(right))]
    columns = tuple(settled.columns[i] for i in kept)
    return Calc(settled, None, tuple(InputRef(i, settled.columns[i].type) for i in kept), columns)


def _output(columns: tuple[Column, ...], side: tuple[Column, ...], is_padded: bool) -> tuple[Column, ...]:
    """What a join puts out of a side: the columns it had, and those that compute keys."""
    kept = [passed(column, source) for column, source in zip(columns, side, strict=False)]
    computed = (Column(c.name, c.type.with_nullable(c.type.nullable or is_padded)) for c in side[len(columns) :])
    return (*kept, *computed)


def _regular(join: Join) -> Join:
    """A join whose output has no time attributes: rows come out when their partner does, whatever the watermark."""
    columns = tuple(
        c if c.type.time_attribute is None else Column(c.name, c.type.with_time_attribute(None), REGULAR_JOIN_LOSES)
        for c in join.columns
    )
    return msgspec.structs.replace(join, columns=columns)


def _as_of(join: AsOfJoin, where: _Conditions) -> tuple[Plan, _Conditions]:
    """Conditions on the versions stay in the join: below it they would hide versions that end others."""
    width = len(join.left.columns)
    pushed, _, rest = _spread(where, range(width), _NOTHING, is_guarded=join.condition is not None)
    condition = conjuncts(join.condition)
    if join.kind is JoinKind.INNER:
        condition += [part for part in rest if not reads_outer_query(part)]
        rest = [part for part in rest if reads_outer_query(part)]
    left, right = _side(join.left, pushed), _side(join.right, [])
    sides = (*left.columns, *right.columns)
    bare = msgspec.structs.replace(
        join,
        left=left,
        right=right,
        condition=conjunction(retyped(part, sides) for part in condition),
        columns=tuple(passed(c, s) for c, s in zip(join.columns, sides, strict=True)),
    )
    settled = as_of_join(bare)
    return settled, [retyped(part, settled.columns) for part in rest]
