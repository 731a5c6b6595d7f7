"""UNNEST in FROM: one row per element of an array, a map or a multiset of the tables to its left."""

from __future__ import annotations

from sqlglot import exp

from planner.analysis import type_rules
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.errors import Span, SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, input_indexes, shift_inputs
from planner.ir.types import DataType, TypeRoot
from planner.logical.build_joins import MakeBinder, Source, refuse_duplicate_names
from planner.logical.expressions import identity
from planner.logical.nodes import Calc, Column, Plan, Unnest, Values
from planner.sql import nodes
from planner.sql.nodes import span_of

_COLLECTIONS = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET)


def unnest_alone(node: nodes.UnnestTable, binder: MakeBinder) -> Source:
    """`FROM UNNEST(…)` without a table before it."""
    try:
        collection = _collection(node, Scope(()), binder)
    except SqlError as e:
        if e.sqlstate == SqlState.UNDEFINED_COLUMN:
            e.hint = "UNNEST reads columns of the tables to its left."
        raise
    values = Values(((collection,),), (Column("UNNEST", collection.type),))
    return _unnested(Source(values, Scope(())), InputRef(0, collection.type), node, is_outer=False)


def join_unnest(left: Source, node: nodes.JoinTable, binder: MakeBinder) -> Source:
    """`left [CROSS | INNER | LEFT] JOIN UNNEST(…)` and `left, UNNEST(…)`."""
    right: nodes.UnnestTable = node.args["expression"]
    is_outer = node.args["kind"] == "LEFT"
    _check_join(node)
    collection = _collection(right, left.scope, binder)
    on = node.args.get("on")
    if not is_outer or on is None:
        source = _unnested(left, collection, right, is_outer)
        if on is None:
            return source
        condition = binder(source.scope, "ON").condition(on, "ON")
        columns = source.plan.columns
        return Source(Calc(source.plan, condition, identity(columns), columns), source.scope)
    # Within ON an element's columns are as they are; above, they may be missing.
    inner = _unnested(left, collection, right, is_outer=False)
    condition = binder(inner.scope, "ON").condition(on, "ON")
    return _unnested(left, collection, right, is_outer=True, condition=condition)


def _check_join(node: nodes.JoinTable) -> None:
    kind: str = node.args["kind"]
    place = span_of(node.args["expression"])
    if kind in ("RIGHT", "FULL"):
        hint = "An UNNEST belongs to the row on its left: CROSS JOIN UNNEST, or LEFT JOIN UNNEST … ON TRUE."
        raise not_supported(f"{kind} JOIN UNNEST", place, hint)
    if node.args.get("natural") or node.args.get("using"):
        hint = "Write CROSS JOIN UNNEST(…) AS t (…) and compare in WHERE."
        raise not_supported("NATURAL and USING with UNNEST", place, hint)


def _collection(node: nodes.UnnestTable, scope: Scope, binder: MakeBinder) -> Expression:
    collection = binder(scope, "UNNEST").bind(node.this)
    if collection.type.root not in _COLLECTIONS:
        message = f"UNNEST needs an ARRAY, MAP or MULTISET, not {type_rules.plain(collection.type).sql()}"
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span_of(node.this))
    return collection


def _unnested(
    left: Source, collection: Expression, node: nodes.UnnestTable, is_outer: bool, condition: Expression | None = None
) -> Source:
    """`left` with the elements of `collection`, which reads its columns; a computed one is not in the result."""
    elements = _element_columns(collection.type, bool(node.args.get("ordinality")), is_outer)
    names, qualifier = _names(node, [c.name for c in elements])
    elements = tuple(Column(name, c.type) for name, c in zip(names, elements, strict=True))
    if qualifier:
        refuse_duplicate_names(left.scope, [*qualifier], span_of(node))
    plan: Plan = left.plan
    width = len(left.scope.columns)
    kept = plan.columns[:width]
    index = collection.index if isinstance(collection, InputRef) else len(plan.columns)
    if not isinstance(collection, InputRef):
        computed = (*plan.columns, Column("UNNEST", collection.type))
        plan = Calc(plan, None, (*identity(plan.columns), collection), computed)
    below = plan.columns
    if condition is not None and len(below) > width:
        condition = shift_inputs(condition, {i: i + (i >= width) for i in input_indexes(condition)})
    plan = Unnest(plan, index, bool(node.args.get("ordinality")), is_outer, (*below, *elements), condition)
    if len(below) > width:
        shown = (*identity(kept), *(InputRef(len(below) + i, c.type) for i, c in enumerate(elements)))
        plan = Calc(plan, None, shown, (*kept, *elements))
    relation = Relation(qualifier, tuple(ScopeColumn(c.name, c.type) for c in elements), width)
    visible = None
    if left.scope.visible is not None:
        visible = (*left.scope.visible, *Scope((relation,)).visible_columns)
    return Source(plan, Scope((*left.scope.relations, relation), visible))


def _element_columns(collection: DataType, with_ordinality: bool, is_outer: bool) -> tuple[Column, ...]:
    """The columns of an element, under the names they have without an alias."""
    element = collection.element
    assert element is not None
    columns: list[Column]
    if collection.root is TypeRoot.MAP:
        assert collection.key is not None
        columns = [Column("KEY", collection.key), Column("VALUE", element)]
    elif element.root is TypeRoot.ROW:
        # An element that is NULL gives a row of NULLs.
        fields = element.fields
        columns = [Column(f.name, f.type.with_nullable(f.type.nullable or element.nullable)) for f in fields]
    else:
        columns = [Column("EXPR$0", element)]
    if with_ordinality:
        columns.append(Column("ORDINALITY", t.INT.with_nullable(False)))
    if is_outer:
        columns = [Column(c.name, c.type.with_nullable(True)) for c in columns]
    return tuple(columns)


def _names(node: nodes.UnnestTable, names: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The element's column names and the qualifier that `AS t (a, b)` gives; `AS t` also names a single column."""
    alias: nodes.TableAlias | None = node.args.get("alias")
    if alias is None:
        return names, ()
    qualifier: str = alias.args["name"].this
    given: list[exp.Identifier] = alias.args.get("columns") or []
    if not given:
        return ([qualifier] if len(names) == 1 else names), (qualifier,)
    if len(given) != len(names):
        message = f"{len(given)} names for {len(names)} column{'s' * (len(names) > 1)} of UNNEST"
        hint = f"Without names: {', '.join(names)}."
        place = Span(span_of(given[0]).start, span_of(given[-1]).end)
        raise SqlError(SqlState.SYNTAX_ERROR, message, span=place, hint=hint)
    seen: set[str] = set()
    for name in given:
        if name.this in seen:
            raise SqlError(SqlState.DUPLICATE_COLUMN, f"`{name.this}` is given twice", span=span_of(name))
        seen.add(name.this)
    return [name.this for name in given], (qualifier,)
