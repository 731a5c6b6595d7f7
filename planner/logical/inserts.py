"""INSERT: fitting a query's columns to a table's."""

from __future__ import annotations

import msgspec

from planner.analysis import type_rules
from planner.analysis.coercion import cast_to
from planner.analysis.literals import null_literal
from planner.analysis.names import lookup, unlike
from planner.catalog import (
    Catalog,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableCapabilities,
    TableColumn,
    TableEntry,
    ViewEntry,
)
from planner.errors import Span, SqlError, SqlState, did_you_mean
from planner.ir.expressions import Expression, InputRef, Literal
from planner.ir.operators import ConflictAction
from planner.ir.types import DataType, TypeRoot
from planner.logical.build import PlanBuilder
from planner.logical.build_from import check_metadata, resolve_table
from planner.logical.expressions import identity
from planner.logical.nodes import Calc, Column, Place, Plan, ResultSink, TableSink, Values
from planner.sql import nodes
from planner.sql import statements as st

PersistedColumn = PhysicalColumn | MetadataColumn


def build_insert(statement: st.Insert, catalog: Catalog) -> TableSink:
    """The tree of an INSERT: by position, or by the column list, with implicit casts to the table's types."""
    builder = PlanBuilder(catalog, statement.source.script)
    path, entry = lookup(statement.target.parts, statement.target.span, catalog)
    if isinstance(entry, ViewEntry):
        message = f"`{path.name}` is a view: rows go into tables only"
        raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=statement.target.span)
    options, capabilities = resolve_table(catalog, path, entry, statement.options, statement.target.span)
    check_metadata(entry, capabilities, statement.target.span, for_writing=True)
    if not capabilities.is_sink:
        reason = capabilities.sink_refusal or f"the connector '{options['connector']}' is a source only"
        message = f"`{path.name}` cannot be written: {reason}"
        raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=statement.target.span)
    assert isinstance(statement.query.tree, nodes.QueryNode)
    query = builder.query(statement.query.tree, is_top=True)
    persisted = persisted_columns(entry)
    targets = _targets(statement, entry, persisted)
    if len(query.columns) != len(targets):
        raise _count_mismatch(statement, query, targets)
    written = written_columns(entry, capabilities)
    fitted = _fitted(statement, query, written, targets)
    columns = tuple(Column(c.name, type_rules.plain(c.type)) for c in written)
    conflict: ConflictAction | None = None
    if statement.conflict is not None:
        conflict = ConflictAction(statement.conflict.action)
    if statement.conflict is not None and entry.primary_key is None:
        message = f"ON CONFLICT needs a primary key, and `{path.name}` has none"
        raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=statement.conflict.span)
    place = Place(statement.source.script, statement.target.span)
    return TableSink(fitted, path, entry, options, capabilities, columns, conflict, place)


def build_select(statement: st.Select, catalog: Catalog) -> ResultSink:
    """The tree of a SELECT that a client reads."""
    assert isinstance(statement.query.tree, nodes.QueryNode)
    plan = PlanBuilder(catalog, statement.source.script).query(statement.query.tree, is_top=True)
    check_typed(plan.columns, statement.query.span)
    names: list[str] = []
    for column in plan.columns:
        names.append(unlike(column.name, set(names)))
    columns = tuple(Column(name, c.type, c.lost) for name, c in zip(names, plan.columns, strict=True))
    return ResultSink(plan, columns)


def check_typed(columns: tuple[Column, ...], span: Span) -> None:
    """Refuses columns of which only NULL is known."""
    for column in columns:
        if column.type.root is TypeRoot.NULL:
            message = f"the type of the column `{column.name}` is unknown: it is NULL throughout"
            hint = "Give it a type: CAST(NULL AS INT)."
            raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=span, hint=hint)


def persisted_columns(entry: TableEntry) -> tuple[PersistedColumn, ...]:
    """What an INSERT fills: physical and non-virtual metadata columns, in their order."""
    kept: list[PersistedColumn] = []
    for column in entry.columns:
        match column:
            case PhysicalColumn():
                kept.append(column)
            case MetadataColumn(is_virtual=False):
                kept.append(column)
            case _:
                pass
    return tuple(kept)


def written_columns(entry: TableEntry, capabilities: TableCapabilities) -> tuple[PersistedColumn, ...]:
    """The row a connector is given: physical columns, then metadata columns in the connector's own types."""
    metadata = [
        msgspec.structs.replace(c, type=capabilities.metadata[c.key].type.with_nullable(c.type.nullable))
        for c in entry.metadata
        if not c.is_virtual
    ]
    return (*entry.physical, *metadata)


def _targets(
    statement: st.Insert, entry: TableEntry, persisted: tuple[PersistedColumn, ...]
) -> tuple[PersistedColumn, ...]:
    if not statement.columns:
        return persisted
    by_name = {c.name: c for c in persisted}
    all_columns: dict[str, TableColumn] = {c.name: c for c in entry.columns}
    targets: list[PersistedColumn] = []
    for name in statement.columns:
        column = by_name.get(name.parts[0])
        if column is None:
            known = all_columns.get(name.parts[0])
            if known is not None:
                kind = "computed" if isinstance(known, ComputedColumn) else "virtual metadata"
                message = f"`{known.name}` is a {kind} column and cannot be written"
                raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=name.span)
            hint = did_you_mean(name.parts[0], by_name)
            message = f"no column `{name.parts[0]}` in `{statement.target}`"
            raise SqlError(SqlState.UNDEFINED_COLUMN, message, span=name.span, hint=hint)
        if column in targets:
            message = f"the column `{column.name}` is named twice"
            raise SqlError(SqlState.DUPLICATE_COLUMN, message, span=name.span)
        targets.append(column)
    for column in persisted:
        if column not in targets and not column.type.nullable:
            message = f"the column `{column.name}` is NOT NULL and gets no value"
            raise SqlError(SqlState.NOT_NULL_VIOLATION, message, span=statement.target.span)
    return tuple(targets)


def _count_mismatch(statement: st.Insert, query: Plan, targets: tuple[PersistedColumn, ...]) -> SqlError:
    given = ", ".join(f"{c.name} {_shown(c.type)}" for c in query.columns)
    wanted = ", ".join(f"{c.name} {_shown(c.type)}" for c in targets)
    return SqlError(
        SqlState.DATATYPE_MISMATCH,
        f"the query has {len(query.columns)} column(s), `{statement.target}` takes {len(targets)}",
        span=statement.query.span,
        hint=f"Query: [{given}]. Table: [{wanted}].",
    )


def _shown(type_: DataType) -> str:
    return type_rules.plain(type_).sql()


def _fitted(
    statement: st.Insert,
    query: Plan,
    written: tuple[PersistedColumn, ...],
    targets: tuple[PersistedColumn, ...],
) -> Plan:
    sources = {column.name: i for i, column in enumerate(targets)}
    projections: list[Expression] = []
    for column in written:
        index = sources.get(column.name)
        if index is None:
            projections.append(null_literal(column.type))
            continue
        projections.append(_stored(statement, query, index, column))
    if tuple(projections) == identity(query.columns):
        return query
    columns = tuple(Column(c.name, p.type) for c, p in zip(written, projections, strict=True))
    return Calc(query, None, tuple(projections), columns)


def _stored(statement: st.Insert, query: Plan, index: int, column: PersistedColumn) -> Expression:
    source = query.columns[index]
    if _is_null_literal(query, index):
        if not column.type.nullable:
            message = f"NULL cannot go into the NOT NULL column `{column.name}`"
            raise SqlError(SqlState.NOT_NULL_VIOLATION, message, span=_item_span(statement, index))
        return null_literal(column.type)
    if not type_rules.can_store(source.type, column.type):
        raise SqlError(
            SqlState.DATATYPE_MISMATCH,
            f"column {index + 1} of the query (`{source.name}` {_shown(source.type)}) does not fit "
            f"`{column.name}` {_shown(column.type)}",
            span=_item_span(statement, index),
            hint=f"Use CAST(… AS {column.type.with_nullable(True).sql()}).",
        )
    reference = InputRef(index, source.type)
    if source.type.root is TypeRoot.NULL:
        return null_literal(column.type)
    if source.type.is_character or source.type.is_binary:
        # Lengths are not enforced on writing (table.exec.sink.type-length-enforcer = IGNORE).
        return reference
    return cast_to(reference, column.type)


def _item_span(statement: st.Insert, index: int) -> Span:
    """The select item of column `index`, where the query is one SELECT without stars; else the query."""
    body = statement.query.tree.this
    if isinstance(body, nodes.SelectQuery):
        items = body.args["expressions"]
        if not any(isinstance(item.this, nodes.AllColumns) for item in items):
            return nodes.span_of(items[index])
    return statement.query.span


def _is_null_literal(query: Plan, index: int) -> bool:
    match query:
        case Calc(projections=projections):
            expression = projections[index]
        case Values(rows=((*row,),)):
            expression = row[index]
        case _:
            return False
    return isinstance(expression, Literal) and expression.value is None
