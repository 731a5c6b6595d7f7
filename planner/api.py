"""The planner's front door: SQL text in, plain frozen data out. No I/O, no clock, no state.

The way of a statement: `split` → `parse` → `bind_table` / `bind_view` for definitions, or `compile_job` /
`explain` for data. Everything that is wrong with the SQL is raised as `planner.errors.SqlError`, before
anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from planner.catalog import Catalog, ObjectPath, TableEntry, ViewEntry
from planner.ir.job_graph import JobGraph
from planner.ir.operators import ChangelogMode, Schema
from planner.sql.splitter import SplitResult
from planner.sql.statements import (
    CreateTable,
    CreateView,
    Explain,
    Insert,
    Name,
    Select,
    Statement,
    StatementSet,
)


class CompiledJob(msgspec.Struct, frozen=True):
    """A statement that became a job.

    result: the columns a SELECT shows, under the names the user gave; None for INSERT and statement sets.
    changelog: kinds of change a SELECT's result carries. sinks: the tables written, in script order.
    warnings: what the user should know but need not act on.
    """

    job_graph: JobGraph
    result: Schema | None
    changelog: ChangelogMode
    sinks: tuple[ObjectPath, ...]
    warnings: tuple[str, ...] = ()


def split(sql: str) -> SplitResult:
    """Cuts a script into statements (statement sets kept whole) and says whether its end is unfinished.

    Never raises: the shell calls it on every key press of Enter.
    """


def parse(sql: str) -> list[Statement]:
    """All statements of a script, in order; `[]` for an empty text or comments alone."""


def resolve(name: Name, catalog: Catalog) -> ObjectPath:
    """The full path of a name, by the current catalog and database; the object need not exist."""


def bind_table(statement: CreateTable, catalog: Catalog, settings: Mapping[str, str]) -> TableEntry:
    """The definition to store for a CREATE TABLE; does not look whether the name is taken."""


def bind_view(statement: CreateView, catalog: Catalog, settings: Mapping[str, str]) -> ViewEntry:
    """The definition to store for a CREATE VIEW; does not look whether the name is taken."""


def compile_job(
    statement: Insert | StatementSet | Select, catalog: Catalog, settings: Mapping[str, str]
) -> CompiledJob:
    """The JobGraph of a statement. `settings` are the session's effective settings under Flink's keys."""


def combine_inserts(inserts: list[Insert]) -> StatementSet:
    """The statement set that a client collected by BEGIN STATEMENT SET; INSERT…; …; END."""


def explain(statement: Explain, catalog: Catalog, settings: Mapping[str, str]) -> str:
    """The text EXPLAIN prints."""


def show_create_table(path: ObjectPath, entry: TableEntry) -> str:
    """The CREATE TABLE text that would make `entry`, as Flink prints it."""


def show_create_view(path: ObjectPath, entry: ViewEntry) -> str:
    """The CREATE VIEW text that would make `entry`."""


def describe(
    entry: TableEntry | ViewEntry,
) -> list[tuple[str, str, bool, str | None, str | None, str | None]]:
    """Rows of DESCRIBE: name, type, null, key, extras, watermark."""


def function_names() -> list[str]:
    """Names of all built-in functions, lower case, sorted."""
