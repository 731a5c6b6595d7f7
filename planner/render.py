"""Definitions as text: SHOW CREATE TABLE and VIEW, DESCRIBE."""

from __future__ import annotations

from planner.analysis.type_rules import plain
from planner.catalog import (
    ComputedColumn,
    MetadataColumn,
    ObjectPath,
    PhysicalColumn,
    TableColumn,
    TableEntry,
    ViewEntry,
)

DescribeRow = tuple[str, str, bool, str | None, str | None, str | None]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def create_table(path: ObjectPath, entry: TableEntry) -> str:
    """See `planner.api.show_create_table`."""
    lines = [_column_line(c) for c in entry.columns]
    if entry.watermark is not None:
        lines.append(f"WATERMARK FOR {quoted(entry.watermark.column)} AS {entry.watermark.text}")
    if entry.primary_key is not None:
        columns = ", ".join(quoted(c) for c in entry.primary_key.columns)
        lines.append(f"CONSTRAINT {quoted(entry.primary_key.name)} PRIMARY KEY ({columns}) NOT ENFORCED")
    text = f"CREATE TABLE {path.quoted()} (\n" + ",\n".join(f"  {line}" for line in lines) + "\n)\n"
    if entry.comment is not None:
        text += f"COMMENT {text_literal(entry.comment)}\n"
    if entry.options:
        options = (f"  {text_literal(k)} = {text_literal(v)}" for k, v in entry.options.items())
        text += "WITH (\n" + ",\n".join(options) + "\n)\n"
    return text


def _column_line(column: TableColumn) -> str:
    name = quoted(column.name)
    match column:
        case PhysicalColumn(type=type_):
            line = f"{name} {type_.sql()}"
        case ComputedColumn(text=text):
            line = f"{name} AS {text}"
        case MetadataColumn(type=type_, key=key, is_virtual=is_virtual):
            source = "" if key == column.name else f" FROM {text_literal(key)}"
            line = f"{name} {type_.sql()} METADATA{source}{' VIRTUAL' if is_virtual else ''}"
    return line if column.comment is None else f"{line} COMMENT {text_literal(column.comment)}"


def create_view(path: ObjectPath, entry: ViewEntry) -> str:
    """See `planner.api.show_create_view`."""
    columns = ",\n".join(f"  {quoted(c.name)}" for c in entry.columns)
    comment = f"COMMENT {text_literal(entry.comment)}\n" if entry.comment is not None else ""
    return f"CREATE VIEW {path.quoted()} (\n{columns}\n)\n{comment}AS {entry.query}\n"


def describe(entry: TableEntry | ViewEntry) -> list[DescribeRow]:
    """See `planner.api.describe`."""
    if isinstance(entry, ViewEntry):
        return [
            (c.name, c.type.with_nullable(True).summary(), c.type.nullable, None, None, None) for c in entry.columns
        ]
    return [_describe_column(c, entry) for c in entry.columns]


def _describe_column(column: TableColumn, entry: TableEntry) -> DescribeRow:
    key = extras = watermark = None
    if entry.primary_key is not None and column.name in entry.primary_key.columns:
        key = f"PRI({', '.join(entry.primary_key.columns)})"
    match column:
        case ComputedColumn(text=text):
            extras = f"AS {text}"
        case MetadataColumn(key=metadata_key, is_virtual=is_virtual):
            source = "" if metadata_key == column.name else f" FROM {text_literal(metadata_key)}"
            extras = f"METADATA{source}{' VIRTUAL' if is_virtual else ''}"
        case PhysicalColumn():
            pass
    if entry.watermark is not None and entry.watermark.column == column.name:
        watermark = entry.watermark.text
    type_text = column.type.with_nullable(True).summary()
    return column.name, type_text, plain(column.type).nullable, key, extras, watermark
