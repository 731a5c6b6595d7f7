"""Takes references to the query around out of a sub-query's tree, so that it can be joined with that query.

    SELECT MAX(v) FROM t WHERE t.k = o.a   →   SELECT MAX(v), k FROM t GROUP BY k, joined where k = o.a

Two ways. *Lifting* moves predicates on columns of the query around up to the join; an aggregate or a Top-N on the way
takes the columns that such an equality reads as further keys. Where that is not possible, the sub-query is computed
*per domain row*: for each distinct row of the columns that it reads of the query around.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from planner.analysis import type_rules
from planner.analysis.outer import outer_references, replace_outer
from planner.errors import SqlError, not_supported
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal, input_indexes, shift_inputs, substitute
from planner.ir.operators import AggregateFunction, JoinKind
from planner.logical.expressions import conjunction, identity
from planner.logical.join_conditions import retyped
from planner.logical.joins import calc_columns, settle_joins
from planner.logical.nodes import (
    Calc,
    Column,
    Deduplicate,
    GroupAggregate,
    Join,
    OverRank,
    Place,
    Plan,
    Rank,
    SetOperation,
    UnionAll,
    Values,
    inputs_of,
)

TRUE = Literal(True, t.BOOLEAN.with_nullable(False))
_COMPARISONS = frozenset({"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "IS_NOT_DISTINCT_FROM"})
_EQUALITIES = frozenset({"EQ", "IS_NOT_DISTINCT_FROM"})
_COUNTS = frozenset({AggregateFunction.COUNT, AggregateFunction.COUNT_STAR})


class Decorrelated(msgspec.Struct, frozen=True):
    """A sub-query that can stand on its own. `outputs` are its columns and `predicates` what must hold of a row of it
    beside a row of the query around; both read the columns of `plan` and references to that query."""

    plan: Plan
    outputs: tuple[Expression, ...]
    predicates: tuple[Expression, ...]


class _CannotLift(Exception):
    """Predicates cannot be moved above this node."""


def reads_outer(plan: Plan, level: int) -> bool:
    """Whether anything in the tree refers to the query of `level`."""
    if any(outer_references(e, level) for e in _expressions(plan)):
        return True
    return any(reads_outer(i, level) for i in inputs_of(plan))


def outer_columns(plan: Plan, level: int) -> frozenset[InputRef]:
    """All that is read of the query of `level` in the tree."""
    found = frozenset[InputRef]().union(*(outer_references(e, level) for e in _expressions(plan)))
    return found.union(*(outer_columns(i, level) for i in inputs_of(plan)))


def _expressions(plan: Plan) -> list[Expression]:
    match plan:
        case Calc():
            return [*plan.projections, *([plan.condition] if plan.condition is not None else [])]
        case Values():
            return [e for row in plan.rows for e in row]
        case _:
            condition = getattr(plan, "condition", None)
            return [condition] if condition is not None else []


def one_row() -> Plan:
    """What a query without FROM reads."""
    zero = Literal(0, t.INT.with_nullable(False))
    return Values(((zero,),), (Column("ZERO", zero.type),))


def conjuncts(condition: Expression | None) -> tuple[Expression, ...]:
    if condition is None:
        return ()
    return condition.args if isinstance(condition, Call) and condition.function == "AND" else (condition,)


# -- lifting ------------------------------------------------------------------------------------------


def lifted(plan: Plan, level: int) -> Decorrelated | None:
    """The tree with its predicates on the query of `level` lifted; None if they cannot be. Of a global aggregate groups
    of nothing are not there."""
    try:
        return _lift_aggregate(plan, level) if isinstance(plan, GroupAggregate) else _lifted(plan, level)
    except _CannotLift:
        return None


def _lifted(plan: Plan, level: int) -> Decorrelated:
    if not reads_outer(plan, level):
        return Decorrelated(plan, identity(plan.columns), ())
    match plan:
        case Calc():
            return _lift_calc(plan, level)
        case Values(rows=((*row,),)):
            return Decorrelated(one_row(), tuple(row), ())
        case Join(kind=JoinKind.INNER):
            return _lift_join(plan, level)
        case GroupAggregate(keys=keys) if keys:
            return _lift_aggregate(plan, level)
        case Rank() | OverRank():
            return _lift_rank(plan, level)
        case Deduplicate():
            return _lift_deduplication(plan, level)
        case _:
            raise _CannotLift


def _lift_calc(plan: Calc, level: int) -> Decorrelated:
    below = _lifted(plan.input, level)
    local: list[Expression] = []
    above = list(below.predicates)
    for part in conjuncts(plan.condition):
        part = substitute(part, below.outputs)
        (above if outer_references(part, level) else local).append(part)
    needed = _Needed(below.plan, level)
    outputs: list[Expression] = []
    for column, projection in zip(plan.columns, plan.projections, strict=True):
        value = substitute(projection, below.outputs)
        is_read_here = not outer_references(value, level)
        outputs.append(needed.column(value, column) if is_read_here else needed.inputs(value))
    predicates = tuple(needed.predicate(part) for part in above)
    if not needed.projections:
        needed.column(TRUE, Column("$row", TRUE.type))
    calc = Calc(below.plan, conjunction(local), tuple(needed.projections), tuple(needed.columns))
    return Decorrelated(calc, tuple(outputs), predicates)


class _Needed:
    """The columns of a calc that is made anew, over `below`."""

    def __init__(self, below: Plan, level: int) -> None:
        self._below = below
        self._level = level
        self.projections: list[Expression] = []
        self.columns: list[Column] = []

    def column(self, value: Expression, column: Column | None = None) -> Expression:
        """A column for `value`."""
        if column is None and value in self.projections:
            index = self.projections.index(value)
            return InputRef(index, self.columns[index].type)
        if column is None:
            column = self._below.columns[value.index] if isinstance(value, InputRef) else None
        self.projections.append(value)
        name = f"$c{len(self.columns)}"
        self.columns.append(column if column is not None else Column(name, value.type))
        return InputRef(len(self.columns) - 1, self.columns[-1].type)

    def inputs(self, value: Expression) -> Expression:
        """`value` over columns of the calc instead of those below it."""
        match value:
            case InputRef():
                return self.column(value)
            case Call():
                return msgspec.structs.replace(value, args=tuple(self.inputs(a) for a in value.args))
            case _:
                return value

    def predicate(self, part: Expression) -> Expression:
        """The same for a predicate; a side of a comparison that reads nothing of the query around becomes one column,
        so that an equality can be a key."""
        if not isinstance(part, Call) or part.function not in _COMPARISONS:
            return self.inputs(part)
        sides = (
            self.column(side) if input_indexes(side) and not outer_references(side, self._level) else self.inputs(side)
            for side in part.args
        )
        return msgspec.structs.replace(part, args=tuple(sides))


def _lift_join(plan: Join, level: int) -> Decorrelated:
    left, right = _lifted(plan.left, level), _lifted(plan.right, level)
    width = len(left.plan.columns)

    def moved(expression: Expression) -> Expression:
        return shift_inputs(expression, {i: i + width for i in input_indexes(expression)})

    outputs = (*left.outputs, *(moved(e) for e in right.outputs))
    parts = [substitute(part, outputs) for part in _join_conditions(plan)]
    parts += [*left.predicates, *(moved(p) for p in right.predicates)]
    local = [part for part in parts if not outer_references(part, level)]
    above = tuple(part for part in parts if outer_references(part, level))
    columns = (*left.plan.columns, *right.plan.columns)
    join = Join(left.plan, right.plan, JoinKind.INNER, conjunction(local), columns, place=plan.place)
    return Decorrelated(join, outputs, above)


def _join_conditions(plan: Join) -> list[Expression]:
    """All that the join asks for, over left and right columns."""
    conditions = list(conjuncts(plan.condition))
    width = len(plan.left.columns)
    for left, right, is_null_safe in zip(plan.left_keys, plan.right_keys, plan.null_safe, strict=True):
        sides = (InputRef(left, plan.left.columns[left].type), InputRef(width + right, plan.right.columns[right].type))
        conditions.append(equality(*sides, is_null_safe))
    return conditions


def equality(left: Expression, right: Expression, is_null_safe: bool) -> Expression:
    """`left = right` for two values of one type; NULLs are equal if `is_null_safe`."""
    if is_null_safe:
        return Call("IS_NOT_DISTINCT_FROM", (left, right), t.BOOLEAN.with_nullable(False))
    return Call("EQ", (left, right), t.BOOLEAN.with_nullable(left.type.nullable or right.type.nullable))


class _Keys(msgspec.Struct, frozen=True):
    """The columns that equalities with the query around read, and the equalities."""

    columns: tuple[int, ...]
    predicates: tuple[Expression, ...]

    def moved(self, mapping: dict[int, int]) -> tuple[Expression, ...]:
        return tuple(shift_inputs(p, mapping) for p in self.predicates)


def equality_columns(predicates: tuple[Expression, ...]) -> tuple[int, ...] | None:
    """The columns that all the predicates compare with values of the query around; None if they do anything else."""
    try:
        return _keys(predicates).columns
    except _CannotLift:
        return None


def _keys(predicates: tuple[Expression, ...]) -> _Keys:
    columns: list[int] = []
    for predicate in predicates:
        if not isinstance(predicate, Call) or predicate.function not in _EQUALITIES:
            raise _CannotLift
        columns_read = [side.index for side in predicate.args if isinstance(side, InputRef)]
        if len(columns_read) != 1 or any(input_indexes(s) for s in predicate.args if not isinstance(s, InputRef)):
            raise _CannotLift
        columns.append(columns_read[0])
    return _Keys(tuple(dict.fromkeys(columns)), predicates)


def _plain_columns(outputs: tuple[Expression, ...], wanted: set[int]) -> dict[int, int]:
    """Where the columns of `wanted` are now."""
    found: dict[int, int] = {}
    for index in wanted:
        output = outputs[index]
        if not isinstance(output, InputRef):
            raise _CannotLift
        found[index] = output.index
    return found


def _lift_aggregate(plan: GroupAggregate, level: int) -> Decorrelated:
    below = _lifted(plan.input, level)
    keys = _keys(below.predicates)
    read = {i for call in plan.aggregates for i in (call.argument, call.filter) if i is not None}
    places = _plain_columns(below.outputs, read | set(plan.keys))
    own_keys = [places[k] for k in plan.keys]
    new_keys = [k for k in keys.columns if k not in own_keys]
    calls = tuple(
        msgspec.structs.replace(
            call,
            argument=places[call.argument] if call.argument is not None else None,
            filter=places[call.filter] if call.filter is not None else None,
        )
        for call in plan.aggregates
    )
    width = len(own_keys)
    columns = (
        *plan.columns[:width],
        *(plain_column(below.plan.columns[k]) for k in new_keys),
        *plan.columns[width:],
    )
    node = msgspec.structs.replace(
        plan, input=below.plan, keys=(*own_keys, *new_keys), aggregates=calls, columns=columns
    )
    kept = [*range(width), *range(width + len(new_keys), len(columns))]
    outputs = tuple(InputRef(i, columns[i].type) for i in kept)
    return Decorrelated(node, outputs, keys.moved({k: i for i, k in enumerate(node.keys)}))


def plain_column(column: Column) -> Column:
    """The column without its mark."""
    return Column(column.name, type_rules.plain(column.type), column.lost)


def _lift_rank(plan: Rank | OverRank, level: int) -> Decorrelated:
    below = _lifted(plan.input, level)
    keys = _keys(below.predicates)
    width = len(plan.input.columns)
    places = _plain_columns(below.outputs, set(range(width)))
    own_keys = [places[k] for k in plan.keys]
    order = tuple(msgspec.structs.replace(key, index=places[key.index]) for key in plan.order)
    columns = (*below.plan.columns, *plan.columns[width:])
    node = msgspec.structs.replace(
        plan,
        input=below.plan,
        keys=(*own_keys, *(k for k in keys.columns if k not in own_keys)),
        order=order,
        columns=columns,
    )
    kept = [places[i] for i in range(width)]
    kept += range(len(below.plan.columns), len(columns))
    return Decorrelated(node, tuple(InputRef(i, columns[i].type) for i in kept), keys.predicates)


def _lift_deduplication(plan: Deduplicate, level: int) -> Decorrelated:
    below = _lifted(plan.input, level)
    keys = _keys(below.predicates)
    places = _plain_columns(below.outputs, set(range(len(plan.columns))))
    own_keys = [places[k] for k in plan.keys]
    node = msgspec.structs.replace(
        plan,
        input=below.plan,
        keys=(*own_keys, *(k for k in keys.columns if k not in own_keys)),
        time=places[plan.time],
        columns=below.plan.columns,
    )
    return Decorrelated(node, below.outputs, keys.predicates)


def _name_of(outer: Plan, read: Expression, index: int) -> str:
    """What EXPLAIN calls a column of the query around."""
    return f"outer.{outer.columns[read.index].name if isinstance(read, InputRef) else index}"


# -- per domain row -----------------------------------------------------------------------------------


class Domain:
    """The distinct rows of the columns that a sub-query reads of the query of `level`."""

    def __init__(
        self, outer: Plan, read: tuple[Expression, ...], columns: tuple[InputRef, ...], level: int, place: Place
    ) -> None:
        """`columns` as the sub-query refers to them, `read` what they are over `outer`; `place` is the sub-query's."""
        names = tuple(plain_column(Column(_name_of(outer, e, i), e.type)) for i, e in enumerate(read))
        calc = Calc(outer, None, read, names)
        self.plan = GroupAggregate(calc, tuple(range(len(read))), (), names)
        self.width = len(read)
        self._read = read
        self._level = level
        self._place = place
        self._positions = {column.index: i for i, column in enumerate(columns)}

    @staticmethod
    def of(
        outer: Plan, subquery: Plan, level: int, resolved: Callable[[Expression], Expression], place: Place
    ) -> Domain:
        """What `subquery` reads of `outer`; `resolved` says what its references are there."""
        read = tuple(sorted(outer_columns(subquery, level), key=lambda column: column.index))
        return Domain(outer, tuple(resolved(column) for column in read), read, level, place)

    def joined(self, below: Plan, width: int) -> tuple[Plan, Expression | None]:
        """A tree per domain row, and the condition that joins it with the `width` columns of the query around."""
        behind = self.columns_behind(width + len(below.columns) - self.width)
        return below, conjunction(equality(a, b, is_null_safe=True) for a, b in zip(self._read, behind, strict=True))

    def applied(self, plan: Plan) -> Plan:
        """The tree per domain row, whose columns are the last ones."""
        if not reads_outer(plan, self._level):
            columns = (*plan.columns, *self.plan.columns)
            return Join(plan, self.plan, JoinKind.INNER, None, columns)
        match plan:
            case Calc():
                below = self.applied(plan.input)
                return self._calc(below, plan.condition, plan.projections, plan.columns)
            case Values():
                rows = [self._calc(self.plan, None, row, plan.columns) for row in plan.rows]
                return rows[0] if len(rows) == 1 else UnionAll(tuple(rows), rows[0].columns)
            case UnionAll():
                inputs = tuple(self.applied(i) for i in plan.inputs)
                return UnionAll(inputs, (*plan.columns, *self.plan.columns))
            case SetOperation():
                left, right = self.applied(plan.left), self.applied(plan.right)
                return SetOperation(left, right, plan.kind, (*plan.columns, *self.plan.columns))
            case Join():
                return self._join(plan)
            case GroupAggregate():
                grouped = self.grouped(plan)
                return grouped if plan.keys else self._with_empty_groups(grouped, plan)
            case Rank() | OverRank():
                return self._rank(plan)
            case _:
                raise self._refused(_NAMES.get(type(plan).__name__, "this"))

    def _refused(self, node: str) -> SqlError:
        message = f"a sub-query that reads the query around it below {node}"
        return not_supported(message, self._place.span, "Write it as a join.").located(self._place.script)

    def columns_behind(self, width: int) -> tuple[InputRef, ...]:
        return tuple(InputRef(width + i, c.type) for i, c in enumerate(self.plan.columns))

    def _calc(
        self,
        below: Plan,
        condition: Expression | None,
        projections: tuple[Expression, ...],
        columns: tuple[Column, ...],
    ) -> Plan:
        behind = self.columns_behind(len(below.columns) - self.width)

        def local(expression: Expression) -> Expression:
            return replace_outer(expression, self._level, lambda column: behind[self._positions[column.index]])

        # Here, because what stands above may be no join: the equalities with the domain become keys of its join.
        joined, kept = settle_joins(below, local(condition) if condition is not None else None)
        values = tuple(retyped(value, joined.columns) for value in (*(local(p) for p in projections), *behind))
        named = (*columns, *self.plan.columns)
        return Calc(joined, kept, values, calc_columns(named, values, joined))

    def grouped(self, plan: GroupAggregate) -> Plan:
        """The aggregate by domain row; empty groups are not there."""
        below = self.applied(plan.input)
        behind = self.columns_behind(len(below.columns) - self.width)
        width = len(plan.keys)
        columns = (*plan.columns[:width], *self.plan.columns, *plan.columns[width:])
        keys = (*plan.keys, *(c.index for c in behind))
        node = msgspec.structs.replace(plan, input=below, keys=keys, columns=columns)
        order = [*range(width), *range(width + self.width, len(columns)), *range(width, width + self.width)]
        return reordered(node, order)

    def _with_empty_groups(self, grouped: Plan, plan: GroupAggregate) -> Plan:
        """A row for each domain row: over nothing, COUNT is 0 and the others NULL."""
        width = len(plan.columns)
        pairs = [
            (column, InputRef(self.width + width + i, column.type)) for i, column in enumerate(self.columns_behind(0))
        ]
        condition = conjunction(equality(a, b, is_null_safe=True) for a, b in pairs)
        padded = tuple(Column(c.name, c.type.with_nullable(True), c.lost) for c in grouped.columns)
        join = Join(self.plan, grouped, JoinKind.LEFT, condition, (*self.plan.columns, *padded))
        values = tuple(over_nothing(plan, i, InputRef(self.width + i, padded[i].type)) for i in range(width))
        return Calc(join, None, (*values, *self.columns_behind(0)), (*plan.columns, *self.plan.columns))

    def _rank(self, plan: Rank | OverRank) -> Plan:
        below = self.applied(plan.input)
        width = len(plan.input.columns)
        behind = self.columns_behind(width)
        columns = (*below.columns, *plan.columns[width:])
        keys = (*plan.keys, *(c.index for c in behind))
        node = msgspec.structs.replace(plan, input=below, keys=keys, columns=columns)
        order = [*range(width), *range(len(below.columns), len(columns)), *(c.index for c in behind)]
        return reordered(node, order)

    def _join(self, plan: Join) -> Plan:
        left = self.applied(plan.left)
        is_right_correlated = reads_outer(plan.right, self._level)
        if plan.kind.is_right_outer:
            raise self._refused("a RIGHT or FULL JOIN")
        right = self.applied(plan.right) if is_right_correlated else plan.right
        left_width, right_width = len(plan.left.columns), len(plan.right.columns)
        behind = self.columns_behind(left_width)
        mapping = {i: i if i < left_width else i + self.width for i in range(left_width + right_width)}
        conditions = [
            replace_outer(shift_inputs(c, mapping), self._level, lambda column: behind[self._positions[column.index]])
            for c in _join_conditions(plan)
        ]
        if is_right_correlated:
            other = self.columns_behind(left_width + self.width + right_width)
            conditions += [equality(a, b, is_null_safe=True) for a, b in zip(behind, other, strict=True)]
        condition = conjunction(conditions)
        if not plan.kind.keeps_right:
            return Join(left, right, plan.kind, condition, (*plan.columns, *self.plan.columns), place=plan.place)
        nullable = plan.kind.is_left_outer
        right_columns = tuple(
            Column(c.name, c.type.with_nullable(c.type.nullable or nullable), c.lost) for c in right.columns
        )
        join = Join(left, right, plan.kind, condition, (*left.columns, *right_columns), place=plan.place)
        first_right = left_width + self.width
        order = [*range(left_width), *range(first_right, first_right + right_width)]
        return reordered(join, [*order, *range(left_width, first_right)])


_NAMES = {
    "WindowTableFunction": "a window table function",
    "WindowAggregate": "a window aggregation",
    "IntervalJoin": "an interval join",
    "TemporalJoin": "a temporal join",
    "WindowJoin": "a window join",
    "LookupJoin": "a lookup join",
    "AsOfJoin": "a temporal join",
    "WindowRank": "a window Top-N",
    "Deduplicate": "a deduplication",
    "Unnest": "UNNEST",
    "Expand": "GROUPING SETS",
}


def reordered(plan: Plan, order: list[int]) -> Plan:
    """The columns of `order`."""
    columns = tuple(plan.columns[i] for i in order)
    return Calc(plan, None, tuple(InputRef(i, plan.columns[i].type) for i in order), columns)


def over_nothing(plan: GroupAggregate, index: int, padded: Expression) -> Expression:
    """Column `index` of a global aggregate where `padded` is NULL because there was no group: COUNT is 0 there."""
    type_ = plan.columns[index].type
    if plan.aggregates[index - len(plan.keys)].function not in _COUNTS:
        return padded
    return Call("COALESCE", (padded, Literal(0, type_)), type_)
