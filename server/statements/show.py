"""SHOW …: what is there, under the column names Flink's clients rely on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from planner.catalog import ObjectPath, TableEntry, ViewEntry
from planner.errors import SqlError, SqlState
from planner.ir import types as t
from planner.sql.statements import (
    LikeFilter,
    Name,
    ShowCatalogs,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowFunctions,
    ShowJobs,
    ShowTables,
    ShowViews,
)
from runtime.api import JobState, JobStatus
from server.lazy_planner import planner_api
from server.secrets import masked, masked_sql
from server.statements.context import StatementContext, kind_of, unknown
from server.statements.describe import described
from server.statements.result import StatementResult, rows, texts

JOB_COLUMNS = (
    ("job id", t.STRING),
    ("job name", t.STRING),
    ("status", t.STRING),
    ("start time", t.timestamp_ltz(6)),
)


async def show_tables(statement: ShowTables, context: StatementContext) -> StatementResult:
    catalog, database = _database(statement.database, context)
    return texts("table name", _kept(context.catalog.names(catalog, database), statement.like))


async def show_views(statement: ShowViews, context: StatementContext) -> StatementResult:
    catalog, database = _database(statement.database, context)
    views = [
        name
        for name in context.catalog.names(catalog, database)
        if isinstance(context.catalog.lookup(ObjectPath(catalog, database, name)), ViewEntry)
    ]
    return texts("view name", _kept(views, statement.like))


async def show_catalogs(statement: ShowCatalogs, context: StatementContext) -> StatementResult:
    return texts("catalog name", _kept(sorted(context.catalog.catalogs()), statement.like))


async def show_databases(statement: ShowDatabases, context: StatementContext) -> StatementResult:
    catalog = context.catalog
    name = str(statement.catalog) if statement.catalog is not None else catalog.current_catalog
    if statement.catalog is not None and name not in catalog.catalogs():
        raise unknown("catalog", name, catalog.catalogs(), statement.catalog)
    return texts("database name", _kept(sorted(catalog.databases(name)), statement.like))


async def show_current_catalog(context: StatementContext) -> StatementResult:
    return texts("current catalog name", [context.catalog.current_catalog])


async def show_current_database(context: StatementContext) -> StatementResult:
    return texts("current database name", [context.catalog.current_database])


async def show_functions(statement: ShowFunctions, context: StatementContext) -> StatementResult:
    names = [] if statement.is_user_only else sorted(planner_api.function_names())
    return texts("function name", _kept(names, statement.like))


async def show_jobs(statement: ShowJobs, context: StatementContext) -> StatementResult:
    return jobs_table(await context.jobs.jobs(), context.notices)


async def show_create(statement: ShowCreateTable, context: StatementContext) -> StatementResult:
    path, entry = context.existing(statement.name)
    if isinstance(entry, ViewEntry) is not statement.is_view:
        raise SqlError(
            SqlState.WRONG_OBJECT_TYPE,
            f"'{path}' is a {kind_of(entry)}",
            span=statement.name.span,
            hint=f"Write SHOW CREATE {kind_of(entry).upper()}.",
        )
    if isinstance(entry, TableEntry):
        shown = msgspec.structs.replace(entry, options=masked(entry.options))
        return texts("result", [planner_api.show_create_table(path, shown)])
    return texts("result", [masked_sql(planner_api.show_create_view(path, entry))])


async def show_columns(statement: ShowColumns, context: StatementContext) -> StatementResult:
    _, entry = context.existing(statement.name)
    return described(entry, lambda name: _matches(name, statement.like))


def jobs_table(jobs: Sequence[JobStatus], notices: list[str]) -> StatementResult:
    """Jobs as SHOW JOBS and DESCRIBE JOB show them; what a job waits for, and why it restarts or has failed, are
    notices, since the columns are Flink's."""
    notices.extend(f"Job {j.job_id} waits for {j.slots_missing} more slots." for j in jobs if j.slots_missing)
    for job in jobs:
        if job.failure is not None and job.state in (JobState.RESTARTING, JobState.FAILING, JobState.FAILED):
            notices.append(f"Job {job.job_id} is {job.state.value}: {job.failure.message}")
    return rows(JOB_COLUMNS, [[j.job_id, masked_sql(j.name), j.state.value, j.start_ms * 1000] for j in jobs])


def _database(name: Name | None, context: StatementContext) -> tuple[str, str]:
    catalog = context.catalog
    if name is None:
        return catalog.current_catalog, catalog.current_database
    *in_catalog, database = name.parts
    catalog_name = in_catalog[0] if in_catalog else catalog.current_catalog
    if catalog_name not in catalog.catalogs():
        raise unknown("catalog", catalog_name, catalog.catalogs(), name)
    if database not in catalog.databases(catalog_name):
        raise unknown("database", f"{catalog_name}.{database}", catalog.databases(catalog_name), name)
    return catalog_name, database


def _kept(names: Iterable[str], like: LikeFilter | None) -> list[str]:
    return [name for name in names if _matches(name, like)]


def _matches(name: str, like: LikeFilter | None) -> bool:
    if like is None:
        return True
    pattern = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in like.pattern)
    return (re.fullmatch(pattern, name, re.DOTALL) is not None) is not like.is_negated
