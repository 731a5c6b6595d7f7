"""Joins of FROM: what is in reach on both sides, and the conditions of ON, USING and NATURAL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from sqlglot import exp

from planner.analysis import operators, type_rules
from planner.analysis.coercion import to_common_type
from planner.analysis.expressions import ExpressionBinder, lost_reason
from planner.analysis.scope import Relation, Scope, ScopeColumn, VisibleColumn, retyped
from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir.expressions import Call, Expression, InputRef, input_indexes, shift_inputs
from planner.ir.operators import JoinKind
from planner.logical.expressions import conjunction, identity
from planner.logical.nodes import AsOfJoin, Calc, Column, Join, Place, Plan
from planner.sql import nodes
from planner.sql.nodes import span_of, stamp

_KINDS = {
    "INNER": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
    "CROSS": JoinKind.INNER,
    "COMMA": JoinKind.INNER,
}


MakeBinder = Callable[[Scope, str], ExpressionBinder]
"""From what is in reach, and the name of the clause, to a binder."""


class Source(msgspec.Struct, frozen=True):
    """FROM, or a part of it: its tree, and what names mean above it. The scope's columns are the tree's."""

    plan: Plan
    scope: Scope


def place_of(node: nodes.JoinTable, binder: MakeBinder) -> Place:
    return Place(binder(Scope(()), "FROM").script, span_of(node))


def kind_of(node: nodes.JoinTable) -> JoinKind:
    return _KINDS[node.args["kind"]]


def joined(left: Source, right: Source, node: nodes.JoinTable, binder: MakeBinder) -> Source:
    """Both sides joined as `node` says; all of ON, USING or NATURAL is in the join's condition."""
    kind = kind_of(node)
    condition, scope = join_scope(left.scope, right.scope, node, binder)
    columns = _columns(left.plan, right.plan, scope)
    plan = Join(left.plan, right.plan, kind, condition, columns, place=place_of(node, binder))
    return Source(plan, scope)


def as_of_join(
    left: Source,
    right: Source,
    node: nodes.JoinTable,
    binder: MakeBinder,
    lookup_hint: tuple[tuple[str, str], ...] = (),
) -> Source:
    """`left JOIN table FOR SYSTEM_TIME AS OF time ON …`; a time that is no column of the left side becomes one."""
    table: exp.Expr = node.args["expression"]
    time_node: exp.Expr = table.args["as_of"]
    _check_as_of(node, span_of(time_node))
    of_left = binder(left.scope, "FOR SYSTEM_TIME AS OF")
    time = of_left.bind(time_node)
    _check_time(time, time_node, of_left)
    condition, scope = join_scope(left.scope, right.scope, node, binder)
    shown = _columns(left.plan, right.plan, scope)
    place = place_of(node, binder)
    if isinstance(time, InputRef):
        plan: Plan = AsOfJoin(left.plan, right.plan, kind_of(node), condition, time.index, shown, place, lookup_hint)
        return Source(plan, scope)
    width = len(left.plan.columns)
    time_column = Column("PROCTIME", time.type)
    timed = Calc(left.plan, None, (*identity(left.plan.columns), time), (*left.plan.columns, time_column))
    if condition is not None:
        condition = shift_inputs(condition, {i: i + (i >= width) for i in input_indexes(condition)})
    columns = (*shown[:width], time_column, *shown[width:])
    plan = AsOfJoin(timed, right.plan, kind_of(node), condition, width, columns, place, lookup_hint)
    kept = tuple(e for i, e in enumerate(identity(columns)) if i != width)
    return Source(Calc(plan, None, kept, shown), scope)


def _check_as_of(node: nodes.JoinTable, place: Span) -> None:
    kind: str = node.args["kind"]
    if kind in ("RIGHT", "FULL"):
        hint = "The version belongs to the row on the left: INNER and LEFT JOIN are possible."
        raise not_supported(f"{kind} JOIN FOR SYSTEM_TIME AS OF", place, hint)
    if kind in ("COMMA", "CROSS"):
        hint = "Write JOIN … FOR SYSTEM_TIME AS OF … ON with the key of the versioned table."
        raise not_supported("FOR SYSTEM_TIME AS OF without ON", place, hint)


def _check_time(time: Expression, node: exp.Expr, binder: ExpressionBinder) -> None:
    """The time is a time attribute: a column of the left side, or PROCTIME()."""
    if isinstance(time, InputRef) and time.type.time_attribute is not None:
        return
    if time.type.is_proctime:
        return
    text = binder.text_of(node)
    lost = lost_reason(time, text, binder.scope)
    message = f"FOR SYSTEM_TIME AS OF needs a time attribute of the left side, and `{text}` is none"
    hint = f"It was one until {lost}." if lost else "Take a column with a WATERMARK, or one defined AS PROCTIME()."
    raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node), hint=hint)


def _columns(left: Plan, right: Plan, scope: Scope) -> tuple[Column, ...]:
    """The columns of a join under the names they have below."""
    return tuple(
        Column(below.name, column.type, column.lost)
        for below, column in zip((*left.columns, *right.columns), scope.columns, strict=True)
    )


def join_scope(left: Scope, right: Scope, node: nodes.JoinTable, binder: MakeBinder) -> tuple[Expression | None, Scope]:
    """The condition, over the left columns and then the right ones, and what is in reach above the join."""
    kind = kind_of(node)
    refuse_duplicate_names(left, right.relation_names, span_of(node.args["expression"]))
    offset = len(left.columns)
    moved = _moved(right, offset)
    below = (*left.visible_columns, *moved.visible_columns)
    has_merged = left.visible is not None or right.visible is not None
    both = Scope((*left.relations, *moved.relations), below if has_merged else None)
    columns = (*_padded(left.columns, kind.is_right_outer), *_padded(right.columns, kind.is_left_outer))
    above = both.with_columns(columns)
    names = _merged_names(left, right, node)
    if not names:
        on = node.args.get("on")
        condition = binder(both, "ON").condition(on, "ON") if on is not None else None
        return condition, above
    equalities: list[Expression] = []
    merged: list[VisibleColumn] = []
    for name in names:
        a, b = left.resolve([name]), _shifted(right.resolve([name]), offset)
        equalities.append(operators.comparison("=", a, b, span_of(name)))
        merged.append(_merged_column(name, kind, (retyped(a, columns), retyped(b, columns)), columns))
    taken = {name.this for name in names}
    rest = (v for v in above.visible_columns if v.name not in taken)
    return conjunction(equalities), Scope(above.relations, (*merged, *rest))


def refuse_duplicate_names(left: Scope, right: list[str], place: Span) -> None:
    """Each table of FROM needs a name of its own."""
    taken = set(left.relation_names)
    for name in right:
        if name in taken:
            message = f"two tables of FROM are called `{name}`"
            hint = "Give one of them another name with AS."
            raise SqlError(SqlState.DUPLICATE_ALIAS, message, span=place, hint=hint)


def _merged_names(left: Scope, right: Scope, node: nodes.JoinTable) -> list[exp.Identifier]:
    """The columns of USING, or those that NATURAL finds on both sides, in the order of the left one."""
    if not node.args.get("natural"):
        using: list[exp.Identifier] = node.args.get("using") or []
        seen: set[str] = set()
        for name in using:
            if name.this in seen:
                message = f"`{name.this}` is twice in USING"
                raise SqlError(SqlState.DUPLICATE_COLUMN, message, span=span_of(name))
            seen.add(name.this)
        return using
    common = {v.name for v in right.visible_columns}
    place = node.args["expression"]
    named = dict.fromkeys(v.name for v in left.visible_columns if v.name in common)
    return [stamp(exp.Identifier(this=name), span_of(place).start, span_of(place).end) for name in named]


def _moved(scope: Scope, offset: int) -> Scope:
    """The right side's names, behind `offset` columns of the left one."""
    relations = tuple(
        Relation(relation.qualifier, relation.columns, relation.first_index + offset) for relation in scope.relations
    )
    if scope.visible is None:
        return Scope(relations)
    visible = tuple(VisibleColumn(v.name, _shifted(v.value, offset), v.lost) for v in scope.visible)
    return Scope(relations, visible)


def _shifted(expression: Expression, offset: int) -> Expression:
    return shift_inputs(expression, {i: i + offset for i in input_indexes(expression)})


def _padded(columns: tuple[ScopeColumn, ...], is_padded: bool) -> tuple[ScopeColumn, ...]:
    """The columns of one side; nullable if the other side's rows may lack a partner here."""
    if not is_padded:
        return columns
    return tuple(ScopeColumn(c.name, c.type.with_nullable(True), c.lost) for c in columns)


def _merged_column(
    name: exp.Identifier, kind: JoinKind, sides: tuple[Expression, Expression], columns: Sequence[ScopeColumn]
) -> VisibleColumn:
    """The one column that USING makes of two: the side that has a value in every row, or the first that has one."""
    a, b = to_common_type(sides, span_of(name), "USING")
    match kind:
        case JoinKind.FULL:
            nullable = a.type.nullable and b.type.nullable
            value: Expression = Call("COALESCE", (a, b), type_rules.plain(a.type).with_nullable(nullable))
        case JoinKind.RIGHT:
            value = b
        case JoinKind.INNER if a.type.nullable and not b.type.nullable:
            value = b
        case _:
            value = a
    lost = columns[value.index].lost if isinstance(value, InputRef) else ""
    return VisibleColumn(name.this, value, lost)
