"""ROW_NUMBER, RANK and DENSE_RANK OVER (…), and the sort keys of ORDER BY."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.binder import Binder
from planner.errors import Span, SqlError, SqlState
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal, canonical
from planner.ir.operators import RankFunction, SortKey
from planner.ir.types import DataType, TypeRoot
from planner.logical.expressions import identity
from planner.logical.nodes import Calc, Column, OverRank, Place, Plan
from planner.sql.nodes import span_of

_UNORDERED_ROOTS = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.MULTISET})


class BoundOrder(msgspec.Struct, frozen=True):
    """One item of ORDER BY."""

    value: Expression
    is_descending: bool
    nulls_first: bool


class BoundRank(msgspec.Struct, frozen=True):
    """A rank over expressions of its query block."""

    function: RankFunction
    keys: tuple[Expression, ...]
    order: tuple[BoundOrder, ...]
    place: Place

    @property
    def type(self) -> DataType:
        return t.BIGINT.with_nullable(False)

    def identity(self) -> tuple[object, ...]:
        """Equal for ranks that are the same in every row."""
        order = tuple((canonical(o.value), o.is_descending, o.nulls_first) for o in self.order)
        return self.function, tuple(canonical(k) for k in self.keys), order


def bind_rank(node: exp.Expr, binder: Binder, script: str) -> BoundRank:
    call = node.this
    function = RankFunction(call.args["name"].upper())
    clauses = ("expressions", "star", "distinct", "filter")
    if any(call.args.get(clause) for clause in clauses):
        raise SqlError(SqlState.UNDEFINED_FUNCTION, f"{function.value} takes no arguments", span=span_of(call))
    order = tuple(bind_order(item, binder) for item in node.args.get("order") or [])
    if not any(not isinstance(item.value, Literal) for item in order):
        message = f"{function.value}() OVER needs an ORDER BY that tells rows apart"
        raise SqlError(SqlState.WINDOWING_ERROR, message, span=span_of(node))
    keys = tuple(binder.bind(key) for key in node.args.get("partition") or [])
    return BoundRank(function, keys, order, Place(script, span_of(node)))


def bind_order(item: exp.Expr, binder: Binder) -> BoundOrder:
    return ordered_by(binder.bind(item.this), item)


def ordered_by(value: Expression, item: exp.Expr) -> BoundOrder:
    """The item with its value bound. NULL is the smallest value where nothing else is said."""
    if value.type.root in _UNORDERED_ROOTS:
        shown = type_rules.plain(value.type).with_nullable(True).sql()
        message = f"ORDER BY does not take {shown}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(item.this))
    is_descending = bool(item.args.get("descending"))
    nulls_first = item.args.get("nulls_first")
    return BoundOrder(value, is_descending, nulls_first if nulls_first is not None else not is_descending)


def put_rank(plan: Plan, rank: BoundRank, resolved: Callable[[Expression], Expression]) -> tuple[Plan, Expression]:
    """The tree with the rank as its last column."""
    values = [*identity(plan.columns)]
    columns = [*plan.columns]

    def column(expression: Expression) -> int:
        value = resolved(expression)
        if value not in values:
            values.append(value)
            columns.append(Column(f"$k{len(columns)}", value.type))
        return values.index(value)

    keys = tuple(dict.fromkeys(column(k) for k in rank.keys if not isinstance(k, Literal)))
    order = tuple(
        SortKey(column(o.value), o.is_descending, o.nulls_first) for o in rank.order if not isinstance(o.value, Literal)
    )
    if len(columns) > len(plan.columns):
        plan = Calc(plan, None, tuple(values), tuple(columns))
    columns.append(Column(f"${rank.function.value.lower()}", rank.type))
    over = OverRank(plan, rank.function, keys, order, tuple(columns), rank.place)
    return over, InputRef(len(columns) - 1, rank.type)


class SortKeys:
    """ORDER BY over the select items: each key is one of them or a further column, which is dropped after sorting."""

    def __init__(self, selected: list[Expression], takes_further: bool) -> None:
        self._selected = len(selected)
        self._takes_further = takes_further
        self.values = list(selected)
        self.keys: list[SortKey] = []

    def add(self, item: exp.Expr, binder: Binder) -> None:
        ordinal = _ordinal(item.this)
        if ordinal is not None:
            if not 1 <= ordinal <= self._selected:
                message = f"ORDER BY {ordinal} of a query with {self._selected} column(s)"
                raise SqlError(SqlState.SYNTAX_ERROR, message, span=span_of(item.this))
            bound = ordered_by(self.values[ordinal - 1], item)
        else:
            bound = bind_order(item, binder)
            if isinstance(bound.value, Literal):
                return  # The same in every row.
        index = self._index(bound.value, span_of(item.this)) if ordinal is None else ordinal - 1
        self.keys.append(SortKey(index, bound.is_descending, bound.nulls_first))

    @property
    def further(self) -> list[Expression]:
        return self.values[self._selected :]

    def _index(self, value: Expression, span: Span) -> int:
        text = canonical(value)
        for i, known in enumerate(self.values):
            if canonical(known) == text:
                return i
        if not self._takes_further:
            message = "ORDER BY of SELECT DISTINCT takes what is selected"
            raise SqlError(SqlState.GROUPING_ERROR, message, span=span)
        self.values.append(value)
        return len(self.values) - 1


def _ordinal(node: exp.Expr) -> int | None:
    """A whole number as an item of ORDER BY names a column by its position."""
    is_number = isinstance(node, exp.Literal) and not node.args["is_string"] and str(node.this).isdigit()
    return int(node.this) if is_number else None
