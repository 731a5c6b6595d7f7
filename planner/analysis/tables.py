"""Binding of CREATE TABLE: column types, computed columns, watermark, primary key."""

from __future__ import annotations

import msgspec

from planner.analysis.coercion import cast_to
from planner.analysis.data_types import bind_type
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.like import Inherited, inherited, moved_computed, moved_watermark, with_type
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.analysis.type_rules import plain
from planner.catalog import (
    Catalog,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKey,
    TableColumn,
    TableEntry,
    Watermark,
)
from planner.errors import SqlError, SqlState, did_you_mean, not_supported
from planner.ir.types import DataType, TimeAttribute, TypeRoot
from planner.sql import statements as st
from planner.sql.nodes import TypeNode

ROWTIME_PRECISION = 3


def bind_create_table(statement: st.CreateTable, catalog: Catalog) -> TableEntry:
    """The table's definition. Connector and options are checked where the table is used."""
    base = inherited(statement.like, catalog)
    if not statement.columns and not base.columns:
        raise SqlError(SqlState.INVALID_DEFINITION, "the table has no columns", span=statement.name.span)
    _check_unique(statement.columns, {c.name for c in base.columns})
    _check_overwriting(statement, base)
    key_names = frozenset(statement.primary_key.columns) if statement.primary_key is not None else frozenset()
    declared = [_not_null_key(c, key_names) for c in base.columns if not isinstance(c, ComputedColumn)]
    declared += [_declared(c, key_names) for c in statement.columns if not _is_computed(c)]
    source_row = [c for c in declared if isinstance(c, PhysicalColumn)]
    metadata = [c for c in declared if isinstance(c, MetadataColumn)]
    named = [(c.name, c.type) for c in source_row] + [(c.name, c.type) for c in metadata]
    columns = _all_columns(statement, base, {c.name: c for c in declared}, named)
    watermark = None
    if statement.watermark is not None:
        columns = [_unmarked(c) for c in columns]
        columns, watermark = _watermark(statement.watermark, columns, statement)
    elif base.watermark is not None and base.source is not None and statement.like is not None:
        positions = {c.name: i for i, c in enumerate(columns)}
        watermark = moved_watermark(base.watermark, base.source, positions, statement.like.span)
    primary_key = _primary_key(statement.primary_key, columns) or base.primary_key
    options = {**base.options, **{item.key: item.value for item in statement.options}}
    return TableEntry(tuple(columns), options, watermark, primary_key, statement.comment)


def _all_columns(
    statement: st.CreateTable,
    base: Inherited,
    declared: dict[str, PhysicalColumn | MetadataColumn],
    source_row: list[tuple[str, DataType]],
) -> list[TableColumn]:
    """The source's columns, then the statement's, each in its order."""
    scope = _scope([(name, plain(type_)) for name, type_ in source_row])
    positions = {name: i for i, (name, _) in enumerate(source_row)}
    columns: list[TableColumn] = []
    for inherited_column in base.columns:
        if isinstance(inherited_column, ComputedColumn):
            assert base.source is not None
            assert statement.like is not None
            span = statement.like.span
            columns.append(moved_computed(inherited_column, base.source, positions, span))
        else:
            columns.append(declared[inherited_column.name])
    for column in statement.columns:
        if isinstance(column, st.ComputedColumnSyntax):
            columns.append(_computed(column, scope, statement))
        else:
            columns.append(declared[column.name])
    return columns


def _check_overwriting(statement: st.CreateTable, base: Inherited) -> None:
    """What LIKE brings may be given again only under OVERWRITING."""
    if statement.like is None:
        return
    if base.primary_key is not None and statement.primary_key is not None:
        message = "the table LIKE copies has a primary key already"
        hint = "Add EXCLUDING CONSTRAINTS."
        raise SqlError(SqlState.INVALID_DEFINITION, message, span=statement.primary_key.span, hint=hint)
    if base.watermark is not None and statement.watermark is not None and "WATERMARKS" not in base.overwrites:
        message = "the table LIKE copies has a watermark already"
        hint = "Add OVERWRITING WATERMARKS."
        raise SqlError(SqlState.INVALID_DEFINITION, message, span=statement.watermark.span, hint=hint)
    twice = [item for item in statement.options if item.key in base.options]
    if twice and "OPTIONS" not in base.overwrites:
        message = f"the table LIKE copies has the option '{twice[0].key}' already"
        hint = "Add OVERWRITING OPTIONS."
        raise SqlError(SqlState.INVALID_DEFINITION, message, span=twice[0].span, hint=hint)


def _not_null_key(
    column: PhysicalColumn | MetadataColumn, key_names: frozenset[str]
) -> PhysicalColumn | MetadataColumn:
    if isinstance(column, PhysicalColumn) and column.name in key_names:
        return msgspec.structs.replace(column, type=column.type.with_nullable(False))
    return column


def _unmarked(column: TableColumn) -> TableColumn:
    return with_type(column, column.type.with_time_attribute(None)) if column.type.is_rowtime else column


def _is_computed(column: st.ColumnSyntax) -> bool:
    return isinstance(column, st.ComputedColumnSyntax)


def _check_unique(columns: tuple[st.ColumnSyntax, ...], inherited_names: set[str]) -> None:
    seen = set(inherited_names)
    for column in columns:
        if column.name in seen:
            message = f"the column `{column.name}` is declared twice"
            raise SqlError(SqlState.DUPLICATE_COLUMN, message, span=column.span)
        seen.add(column.name)


def _scope(columns: list[tuple[str, DataType]]) -> Scope:
    return Scope((Relation((), tuple(ScopeColumn(name, type_) for name, type_ in columns)),))


def _declared(column: st.ColumnSyntax, key_names: frozenset[str]) -> PhysicalColumn | MetadataColumn:
    assert not isinstance(column, st.ComputedColumnSyntax)
    assert isinstance(column.type.tree, TypeNode)
    type_ = bind_type(column.type.tree)
    if type_.root is TypeRoot.NULL:
        raise not_supported("a column of type NULL", column.type.span)
    if isinstance(column, st.MetadataColumnSyntax):
        return MetadataColumn(column.name, type_, column.key, column.is_virtual, column.comment)
    if column.name in key_names:
        # A primary key makes its columns NOT NULL.
        type_ = type_.with_nullable(False)
    return PhysicalColumn(column.name, type_, column.comment)


def _computed(column: st.ComputedColumnSyntax, scope: Scope, statement: st.CreateTable) -> ComputedColumn:
    binder = ExpressionBinder(scope, statement.source.script, "a computed column")
    try:
        expression = binder.bind(column.expression.tree)
    except SqlError as e:
        computed = {c.name for c in statement.columns if _is_computed(c)}
        if e.sqlstate == SqlState.UNDEFINED_COLUMN and any(f"`{name}`" in e.message for name in computed):
            e.hint = "A computed column cannot use other computed columns."
        raise
    if expression.type.root is TypeRoot.NULL:
        message = f"the type of the computed column `{column.name}` is unknown"
        hint = "Give it a type: CAST(NULL AS INT)."
        raise SqlError(SqlState.DATATYPE_MISMATCH, message, span=column.expression.span, hint=hint)
    return ComputedColumn(column.name, expression.type, expression, column.expression.text, column.comment)


def _watermark(
    syntax: st.WatermarkSyntax, columns: list[TableColumn], statement: st.CreateTable
) -> tuple[list[TableColumn], Watermark]:
    """The columns with the rowtime mark set, and the watermark itself."""
    if len(syntax.column.parts) > 1:
        raise not_supported("a field of a ROW as time attribute", syntax.column.span)
    name = syntax.column.parts[0]
    names = [c.name for c in columns]
    if name not in names:
        raise SqlError(
            SqlState.UNDEFINED_COLUMN,
            f"no column `{name}` to take the watermark from",
            span=syntax.column.span,
            hint=did_you_mean(name, names),
        )
    index = names.index(name)
    type_ = columns[index].type
    if not type_.is_timestamp or (type_.precision or 0) > ROWTIME_PRECISION:
        raise SqlError(
            SqlState.INVALID_DEFINITION,
            f"a time attribute is TIMESTAMP(p) or TIMESTAMP_LTZ(p) with p up to {ROWTIME_PRECISION}, "
            f"and `{name}` is {plain(type_).sql()}",
            span=syntax.column.span,
            hint=f"Declare it as TIMESTAMP({ROWTIME_PRECISION}), or add a computed column that casts it.",
        )
    scope = _scope([(c.name, plain(c.type)) for c in columns])
    binder = ExpressionBinder(scope, statement.source.script, "a watermark")
    expression = binder.bind(syntax.expression.tree)
    if not expression.type.is_timestamp:
        raise SqlError(
            SqlState.INVALID_DEFINITION,
            f"the watermark must be TIMESTAMP or TIMESTAMP_LTZ, and this is {expression.type.sql()}",
            span=syntax.expression.span,
        )
    wanted = DataType(expression.type.root, precision=ROWTIME_PRECISION)
    expression = cast_to(expression, wanted, syntax.expression.text)
    marked = list(columns)
    marked[index] = with_type(columns[index], type_.with_time_attribute(TimeAttribute.ROWTIME))
    return marked, Watermark(name, expression, syntax.expression.text)


def _primary_key(syntax: st.PrimaryKeySyntax | None, columns: list[TableColumn]) -> PrimaryKey | None:
    if syntax is None:
        return None
    if syntax.is_enforced:
        raise SqlError(
            SqlState.INVALID_DEFINITION,
            "a primary key cannot be enforced: the data is not ours",
            span=syntax.span,
            hint="Write PRIMARY KEY (…) NOT ENFORCED.",
        )
    by_name = {c.name: c for c in columns}
    for i, (name, span) in enumerate(zip(syntax.columns, syntax.column_spans, strict=True)):
        column = by_name.get(name)
        if column is None:
            hint = did_you_mean(name, by_name)
            raise SqlError(SqlState.UNDEFINED_COLUMN, f"no column `{name}`", span=span, hint=hint)
        if name in syntax.columns[:i]:
            raise SqlError(SqlState.DUPLICATE_COLUMN, f"`{name}` stands in the key twice", span=span)
        if not isinstance(column, PhysicalColumn):
            message = f"`{name}` cannot be part of the key: it is not a physical column"
            raise SqlError(SqlState.INVALID_DEFINITION, message, span=span)
    return PrimaryKey(syntax.name or "PK_" + "_".join(syntax.columns), syntax.columns)
