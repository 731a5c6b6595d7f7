"""The planner's front door: SQL text in, plain frozen data out. No I/O, no clock, no state.

The way of a statement: `split` → `parse` → `bind_table` / `bind_view` for definitions, or `compile_job` /
`explain` for data. Everything that is wrong with the SQL is raised as `planner.errors.SqlError`, before
anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from planner import render
from planner.analysis.functions import FUNCTION_NAMES
from planner.analysis.names import full_path
from planner.analysis.tables import bind_create_table
from planner.analysis.type_rules import plain
from planner.catalog import Catalog, ObjectPath, TableEntry, ViewColumn, ViewEntry
from planner.errors import Span, SqlError, SqlState
from planner.explain import explain_text
from planner.ir.job_graph import JobGraph
from planner.ir.operators import ChangelogMode, Column, Schema
from planner.logical.build import PlanBuilder
from planner.logical.inserts import build_insert, build_select, check_typed
from planner.logical.nodes import Plan, ResultSink, TableSink
from planner.logical.optimize import optimize
from planner.origin import RecordedCatalog, RecordingCatalog, decode_origin
from planner.physical.build_job_graph import build_job_graph
from planner.settings import PlannerSettings, read_settings
from planner.sql import statements as st
from planner.sql.nodes import QueryNode
from planner.sql.parser import parse_script, too_deep
from planner.sql.splitter import SplitResult, split_statements
from planner.streaming.demand import Streaming

T = TypeVar("T")


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
    return split_statements(sql)


def parse(sql: str) -> list[st.Statement]:
    """All statements of a script, in order; `[]` for an empty text or comments alone."""
    return parse_script(sql)


def resolve(name: st.Name, catalog: Catalog) -> ObjectPath:
    """The full path of a name, by the current catalog and database; the object need not exist."""
    return full_path(name.parts, catalog)


def bind_table(statement: st.CreateTable, catalog: Catalog, settings: Mapping[str, str]) -> TableEntry:
    """The definition to store for a CREATE TABLE; does not look whether the name is taken."""
    return _locating(statement, lambda: bind_create_table(statement, catalog))


def bind_view(statement: st.CreateView, catalog: Catalog, settings: Mapping[str, str]) -> ViewEntry:
    """The definition to store for a CREATE VIEW; does not look whether the name is taken."""
    return _locating(statement, lambda: _bind_view(statement, catalog))


def _bind_view(statement: st.CreateView, catalog: Catalog) -> ViewEntry:
    tree = statement.query.tree
    assert isinstance(tree, QueryNode)
    plan = PlanBuilder(catalog, statement.source.script).query(tree)
    check_typed(plan.columns, statement.query.span)
    names = statement.columns or tuple(c.name for c in plan.columns)
    if len(names) != len(plan.columns):
        message = f"the view names {len(names)} columns, its query has {len(plan.columns)}"
        raise SqlError(SqlState.INVALID_DEFINITION, message, span=statement.name.span)
    for i, name in enumerate(names):
        if name in names[:i]:
            message = f"the view's column `{name}` exists twice"
            hint = "Give one of them an alias."
            raise SqlError(SqlState.DUPLICATE_COLUMN, message, span=statement.query.span, hint=hint)
    columns = tuple(ViewColumn(n, c.type) for n, c in zip(names, plan.columns, strict=True))
    return ViewEntry(
        query=statement.query.text,
        catalog=catalog.current_catalog,
        database=catalog.current_database,
        columns=columns,
        comment=statement.comment,
    )


def compile_job(
    statement: st.Insert | st.StatementSet | st.Select, catalog: Catalog, settings: Mapping[str, str]
) -> CompiledJob:
    """The JobGraph of a statement. `settings` are the session's effective settings under Flink's keys."""
    recording = RecordingCatalog(catalog)
    job = _locating(statement, lambda: _compile(statement, recording, settings).job)
    match statement:
        case st.Insert():
            origin = recording.origin([statement.text])
        case st.StatementSet(inserts=inserts):
            origin = recording.origin([insert.text for insert in inserts])
        case _:
            return job
    graph = msgspec.structs.replace(job.job_graph, origin=origin)
    return msgspec.structs.replace(job, job_graph=graph)


def recompile(graph: JobGraph, changes: Mapping[str, str]) -> JobGraph:
    """The job of `graph` compiled again from what it was compiled from, with changed settings (Flink's keys). Raises
    SqlError for a setting that does not fit, OriginFormatError when another version compiled the job."""
    origin = decode_origin(graph.origin)
    inserts = [statement for text in origin.inserts for statement in parse(text) if isinstance(statement, st.Insert)]
    settings = {**graph.settings, **changes}
    again = _compile(combine_inserts(inserts), RecordedCatalog(origin), settings).job.job_graph
    return msgspec.structs.replace(again, name=graph.name, origin=graph.origin)


class _Compilation(NamedTuple):
    """A job with the trees it came from."""

    bound: tuple[Plan, ...]
    optimised: tuple[Plan, ...]
    streaming: Streaming
    job: CompiledJob


def _compile(
    statement: st.Insert | st.StatementSet | st.Select, catalog: Catalog, settings: Mapping[str, str]
) -> _Compilation:
    own: PlannerSettings = read_settings(settings)
    bound = _bound(statement, catalog)
    optimised = optimize(bound, own)
    streaming = Streaming(optimised, own)
    graph = build_job_graph(optimised, streaming, own, settings)
    result: Schema | None = None
    changelog = ChangelogMode.INSERT_ONLY
    paths: list[ObjectPath] = []
    for sink in optimised:
        match sink:
            case TableSink():
                paths.append(sink.path)
            case ResultSink():
                result = Schema(tuple(Column(c.name, plain(c.type)) for c in sink.columns))
                changelog = streaming.of(sink).changelog.mode
            case _:
                raise AssertionError(f"{type(sink).__name__} is no sink")
    return _Compilation(bound, optimised, streaming, CompiledJob(graph, result, changelog, tuple(paths)))


def _bound(statement: st.Insert | st.StatementSet | st.Select, catalog: Catalog) -> tuple[Plan, ...]:
    match statement:
        case st.Insert():
            return (build_insert(statement, catalog),)
        case st.Select():
            return (build_select(statement, catalog),)
        case st.StatementSet(inserts=inserts):
            return tuple(_bound_insert(insert, catalog) for insert in inserts)


def _bound_insert(insert: st.Insert, catalog: Catalog) -> Plan:
    """Located by itself: INSERTs of a collected statement set come from different texts."""
    return _locating(insert, lambda: build_insert(insert, catalog))


def combine_inserts(inserts: list[st.Insert]) -> st.StatementSet:
    """The statement set that a client collected by BEGIN STATEMENT SET; INSERT…; …; END."""
    if not inserts:
        raise SqlError(SqlState.SYNTAX_ERROR, "a statement set needs at least one INSERT INTO")
    text = ";\n".join(i.text for i in inserts)
    return st.StatementSet(source=st.StatementSource(text, text, Span(0, len(text))), inserts=tuple(inserts))


def explain(statement: st.Explain, catalog: Catalog, settings: Mapping[str, str]) -> str:
    """The text EXPLAIN prints."""
    if "JSON_EXECUTION_PLAN" in statement.details:
        raise SqlError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "not supported yet: EXPLAIN JSON_EXECUTION_PLAN",
            span=statement.source.span,
            text=statement.source.script,
        )
    compilation = _locating(statement, lambda: _compile(statement.statement, catalog, settings))
    return explain_text(compilation.bound, compilation.optimised, compilation.streaming, compilation.job.job_graph)


def show_create_table(path: ObjectPath, entry: TableEntry) -> str:
    """The CREATE TABLE text that would make `entry`, as Flink prints it."""
    return render.create_table(path, entry)


def show_create_view(path: ObjectPath, entry: ViewEntry) -> str:
    """The CREATE VIEW text that would make `entry`."""
    return render.create_view(path, entry)


def describe(entry: TableEntry | ViewEntry) -> list[render.DescribeRow]:
    """Rows of DESCRIBE: name, type, null, key, extras, watermark."""
    return render.describe(entry)


def function_names() -> list[str]:
    """Names of all built-in functions, lower case, sorted."""
    return [name.lower() for name in FUNCTION_NAMES]


def _locating(statement: st.StatementBase, work: Callable[[], T]) -> T:
    """Runs a phase; errors without a place get the statement's, all get the text they point into."""
    try:
        return work()
    except SqlError as e:
        if e.span is None:
            e.span = statement.source.span
        raise e.located(statement.source.script) from e.__cause__
    except RecursionError:
        raise too_deep(statement.source.span, statement.source.script) from None
