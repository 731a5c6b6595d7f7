"""What `CREATE TABLE … LIKE source (…)` takes over from its source.

Rules of Flink's LIKE clause: everything is included unless excluded; options of the new table win over the source's;
of other parts given twice, the new table's wins only under OVERWRITING.
"""

from __future__ import annotations

import msgspec

from planner.analysis.names import lookup
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
from planner.errors import Span, SqlError, SqlState
from planner.ir.expressions import shift_inputs
from planner.ir.types import DataType
from planner.sql import statements as st

_PARTS = ("CONSTRAINTS", "GENERATED", "METADATA", "OPTIONS", "WATERMARKS", "PARTITIONS", "DISTRIBUTION")


class Inherited(msgspec.Struct, frozen=True):
    """The source's parts that are taken over. Expressions still refer to the source's own rows.

    `source` is None where there is no LIKE clause. `overwrites` names the parts the new table may define again.
    """

    source: TableEntry | None = None
    columns: tuple[TableColumn, ...] = ()
    options: dict[str, str] = {}
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    overwrites: frozenset[str] = frozenset()


def inherited(like: st.LikeSyntax | None, catalog: Catalog) -> Inherited:
    """What the clause selects. Raises SqlError for an unknown source, a view, or contradicting options."""
    if like is None:
        return Inherited()
    path, source = lookup(like.source.parts, like.source.span, catalog)
    if not isinstance(source, TableEntry):
        message = f"`{path.name}` is a view: LIKE takes a table"
        raise SqlError(SqlState.WRONG_OBJECT_TYPE, message, span=like.source.span)
    modes = _modes(like)
    is_included = {part: mode != "EXCLUDING" for part, mode in modes.items()}
    columns: list[TableColumn] = []
    for column in source.columns:
        match column:
            case PhysicalColumn():
                keep = True
            case ComputedColumn():
                keep = is_included["GENERATED"]
            case MetadataColumn():
                keep = is_included["METADATA"]
        if keep:
            columns.append(column if is_included["WATERMARKS"] else _without_mark(column))
    return Inherited(
        source=source,
        columns=tuple(columns),
        options=source.options if is_included["OPTIONS"] else {},
        watermark=source.watermark if is_included["WATERMARKS"] else None,
        primary_key=source.primary_key if is_included["CONSTRAINTS"] else None,
        overwrites=frozenset(part for part, mode in modes.items() if mode == "OVERWRITING"),
    )


def _modes(like: st.LikeSyntax) -> dict[str, str]:
    modes = dict.fromkeys(_PARTS, "INCLUDING") | {"OPTIONS": "OVERWRITING"}
    for mode, what in like.options:
        if what == "ALL":
            if mode == "OVERWRITING":
                message = "LIKE knows INCLUDING ALL and EXCLUDING ALL only"
                raise SqlError(SqlState.SYNTAX_ERROR, message, span=like.span)
            modes = dict.fromkeys(_PARTS, mode) | {"OPTIONS": "OVERWRITING" if mode == "INCLUDING" else mode}
    for mode, what in like.options:
        if what != "ALL":
            modes[what] = mode
    return modes


def _without_mark(column: TableColumn) -> TableColumn:
    return with_type(column, column.type.with_time_attribute(None)) if column.type.is_rowtime else column


def with_type(column: TableColumn, type_: DataType) -> TableColumn:
    """The column with another type."""
    return msgspec.structs.replace(column, type=type_)


def moved_computed(column: ComputedColumn, source: TableEntry, positions: dict[str, int], span: Span) -> TableColumn:
    """A computed column of the source over the new table's source row; `positions` are that row's names."""
    names = [c.name for c in source.physical] + [c.name for c in source.metadata]
    mapping = _mapping(names, positions, column.name, span)
    return msgspec.structs.replace(column, expression=shift_inputs(column.expression, mapping))


def moved_watermark(watermark: Watermark, source: TableEntry, positions: dict[str, int], span: Span) -> Watermark:
    """The source's watermark over the new table's columns."""
    mapping = _mapping([c.name for c in source.columns], positions, "the watermark", span)
    return msgspec.structs.replace(watermark, expression=shift_inputs(watermark.expression, mapping))


class _Positions(dict[int, int]):
    """Positions by old index; a missing one is an error that names the user of the column."""

    def __init__(self, names: list[str], user: str, span: Span) -> None:
        super().__init__()
        self.names, self.user, self.span = names, user, span

    def __missing__(self, index: int) -> int:
        message = f"{self.user} of LIKE needs the column `{self.names[index]}`, which is excluded"
        raise SqlError(SqlState.INVALID_DEFINITION, message, span=self.span)


def _mapping(names: list[str], positions: dict[str, int], user: str, span: Span) -> dict[int, int]:
    mapping = _Positions(names, user, span)
    mapping.update({i: positions[name] for i, name in enumerate(names) if name in positions})
    return mapping
