"""The closed union of statements: what `planner.api.parse` returns.

Match exhaustively on `Statement`. Every statement carries its text and the span of it in the submitted script.
Queries and expressions stay unbound syntax trees that only the planner looks into; all else is plain data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from planner.errors import Span

if TYPE_CHECKING:
    from sqlglot import exp


class Name(msgspec.Struct, frozen=True):
    """An identifier path as written, `a`, `a.b` or `a.b.c`, without quotes."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)


class OptionItem(msgspec.Struct, frozen=True):
    """One `'key' = 'value'` of a WITH clause or an OPTIONS hint."""

    key: str
    value: str
    span: Span


class Hint(msgspec.Struct, frozen=True):
    """One hint behind SELECT: upper-case `name`, and in brackets quoted options or names."""

    name: str
    options: tuple[OptionItem, ...]
    names: tuple[Name, ...]
    span: Span


class Expr(msgspec.Struct, frozen=True):
    """An unbound scalar expression and its text."""

    tree: exp.Expr
    text: str
    span: Span


class TypeSyntax(msgspec.Struct, frozen=True):
    """An unbound data type."""

    tree: exp.Expr
    span: Span


class Query(msgspec.Struct, frozen=True):
    """An unbound query: SELECT, set operation, VALUES or WITH; `text` is what the user wrote."""

    tree: exp.Expr
    text: str
    span: Span


class StatementSource(msgspec.Struct, frozen=True):
    """The submitted script, a statement's text and its place in the script."""

    script: str
    text: str
    span: Span


class StatementBase(msgspec.Struct, frozen=True, kw_only=True):
    """What every statement has."""

    source: StatementSource

    @property
    def text(self) -> str:
        return self.source.text


# -- definitions -----------------------------------------------------------------------------------


class PhysicalColumnSyntax(msgspec.Struct, frozen=True):
    name: str
    span: Span
    type: TypeSyntax
    is_not_null: bool
    is_primary_key: bool
    comment: str | None


class ComputedColumnSyntax(msgspec.Struct, frozen=True):
    name: str
    span: Span
    expression: Expr
    comment: str | None


class MetadataColumnSyntax(msgspec.Struct, frozen=True):
    """`name TYPE METADATA [FROM 'key'] [VIRTUAL]`; without FROM the key is the column's name."""

    name: str
    span: Span
    type: TypeSyntax
    is_not_null: bool
    key: str
    is_virtual: bool
    comment: str | None


ColumnSyntax = PhysicalColumnSyntax | ComputedColumnSyntax | MetadataColumnSyntax


class WatermarkSyntax(msgspec.Struct, frozen=True):
    column: Name
    expression: Expr
    span: Span


class PrimaryKeySyntax(msgspec.Struct, frozen=True):
    name: str | None
    columns: tuple[str, ...]
    column_spans: tuple[Span, ...]
    span: Span
    is_enforced: bool


class LikeSyntax(msgspec.Struct, frozen=True):
    """`LIKE source (INCLUDING | EXCLUDING | OVERWRITING what, …)`; options as pairs of upper-case words."""

    source: Name
    options: tuple[tuple[str, str], ...]
    span: Span


class CreateTable(StatementBase, frozen=True, kw_only=True):
    name: Name
    columns: tuple[ColumnSyntax, ...]
    watermark: WatermarkSyntax | None
    primary_key: PrimaryKeySyntax | None
    options: tuple[OptionItem, ...]
    comment: str | None
    like: LikeSyntax | None
    is_temporary: bool
    if_not_exists: bool


class DropTable(StatementBase, frozen=True, kw_only=True):
    name: Name
    is_temporary: bool
    if_exists: bool


class CreateView(StatementBase, frozen=True, kw_only=True):
    """`or_alter` is not part of the dialect; `columns` is empty where the query names them."""

    name: Name
    columns: tuple[str, ...]
    query: Query
    comment: str | None
    is_temporary: bool
    if_not_exists: bool


class DropView(StatementBase, frozen=True, kw_only=True):
    name: Name
    is_temporary: bool
    if_exists: bool


# -- data ------------------------------------------------------------------------------------------


class ConflictClause(msgspec.Struct, frozen=True):
    """`ON CONFLICT DO NOTHING | ERROR | DEDUPLICATE`; `action` is the upper-case word."""

    action: str
    span: Span


class Insert(StatementBase, frozen=True, kw_only=True):
    """`INSERT INTO target [(columns)] query [ON CONFLICT DO action]`; `options` come from `/*+ OPTIONS(…) */` behind
    the target."""

    target: Name
    columns: tuple[Name, ...]
    query: Query
    options: tuple[OptionItem, ...]
    conflict: ConflictClause | None = None


class StatementSet(StatementBase, frozen=True, kw_only=True):
    """`EXECUTE STATEMENT SET BEGIN … END`: several INSERTs that become one job."""

    inserts: tuple[Insert, ...]


class BeginStatementSet(StatementBase, frozen=True, kw_only=True):
    """`BEGIN STATEMENT SET` sent on its own: the session collects INSERTs until `END`."""


class EndStatementSet(StatementBase, frozen=True, kw_only=True):
    """`END` sent on its own."""


class Select(StatementBase, frozen=True, kw_only=True):
    query: Query


class Explain(StatementBase, frozen=True, kw_only=True):
    """`EXPLAIN [details | PLAN FOR] statement`; details are upper-case words such as CHANGELOG_MODE."""

    statement: Insert | StatementSet | Select
    details: tuple[str, ...]


# -- looking around --------------------------------------------------------------------------------


class LikeFilter(msgspec.Struct, frozen=True):
    """`[NOT] LIKE 'pattern'` of a SHOW statement; `%` and `_` as in SQL."""

    pattern: str
    is_negated: bool


class ShowTables(StatementBase, frozen=True, kw_only=True):
    database: Name | None
    like: LikeFilter | None


class ShowViews(StatementBase, frozen=True, kw_only=True):
    database: Name | None
    like: LikeFilter | None


class ShowCatalogs(StatementBase, frozen=True, kw_only=True):
    like: LikeFilter | None


class ShowDatabases(StatementBase, frozen=True, kw_only=True):
    catalog: Name | None
    like: LikeFilter | None


class ShowCurrentCatalog(StatementBase, frozen=True, kw_only=True):
    pass


class ShowCurrentDatabase(StatementBase, frozen=True, kw_only=True):
    pass


class ShowFunctions(StatementBase, frozen=True, kw_only=True):
    """`is_user_only` for SHOW USER FUNCTIONS."""

    is_user_only: bool
    like: LikeFilter | None


class ShowJobs(StatementBase, frozen=True, kw_only=True):
    pass


class ShowCreateTable(StatementBase, frozen=True, kw_only=True):
    """SHOW CREATE TABLE, or SHOW CREATE VIEW with `is_view`."""

    name: Name
    is_view: bool


class ShowColumns(StatementBase, frozen=True, kw_only=True):
    name: Name
    like: LikeFilter | None


class Describe(StatementBase, frozen=True, kw_only=True):
    name: Name


class DescribeJob(StatementBase, frozen=True, kw_only=True):
    job_id: str


# -- session and jobs ------------------------------------------------------------------------------


class UseCatalog(StatementBase, frozen=True, kw_only=True):
    catalog: Name


class UseDatabase(StatementBase, frozen=True, kw_only=True):
    """`USE database` or `USE catalog.database`."""

    database: Name


class Set(StatementBase, frozen=True, kw_only=True):
    """`SET 'key' = 'value'`; a bare SET (key and value None) lists the session's settings."""

    key: str | None
    value: str | None


class Reset(StatementBase, frozen=True, kw_only=True):
    """`RESET 'key'`; a bare RESET (None) resets everything."""

    key: str | None


class StopJob(StatementBase, frozen=True, kw_only=True):
    job_id: str
    with_savepoint: bool
    with_drain: bool


class AlterJob(StatementBase, frozen=True, kw_only=True):
    """`ALTER JOB 'id' SET ('key' = 'value', …)`, or `RESET ('key', …)`: then the options' values are empty."""

    job_id: str
    options: tuple[OptionItem, ...]
    is_reset: bool


class ShowSavepoints(StatementBase, frozen=True, kw_only=True):
    """`SHOW SAVEPOINTS FOR JOB 'id'`."""

    job_id: str


class DropSavepoint(StatementBase, frozen=True, kw_only=True):
    """`DROP SAVEPOINT 'path'`."""

    path: str


Statement = (
    CreateTable
    | DropTable
    | CreateView
    | DropView
    | Insert
    | StatementSet
    | BeginStatementSet
    | EndStatementSet
    | Select
    | Explain
    | ShowTables
    | ShowViews
    | ShowCatalogs
    | ShowDatabases
    | ShowCurrentCatalog
    | ShowCurrentDatabase
    | ShowFunctions
    | ShowJobs
    | ShowCreateTable
    | ShowColumns
    | Describe
    | DescribeJob
    | UseCatalog
    | UseDatabase
    | Set
    | Reset
    | StopJob
    | AlterJob
    | ShowSavepoints
    | DropSavepoint
)
