"""What a statement's handler may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from planner.catalog import CatalogEntry, ObjectPath, ViewEntry
from planner.errors import Span, SqlError, SqlState, did_you_mean
from planner.ir.job_graph import JobGraph
from planner.sql.statements import Name, StatementSource
from runtime.api import JobClient, JobId, SubmissionRefusedError
from server.catalog.session_catalog import SessionCatalog
from server.lazy_planner import planner_api
from server.sessions import Session

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class StatementContext:
    """`settings` are the effective ones with effect; `server_defaults` what holds below the session; `notices`
    collects what the user should know."""

    session: Session
    jobs: JobClient
    settings: dict[str, str]
    server_defaults: dict[str, str]
    notices: list[str] = field(default_factory=list)

    @property
    def catalog(self) -> SessionCatalog:
        return self.session.catalog

    def resolve(self, name: Name) -> ObjectPath:
        """The full path; raises SqlError where the catalog or the database does not exist."""
        path = planner_api.resolve(name, self.catalog)
        if path.catalog not in self.catalog.catalogs():
            raise unknown("catalog", path.catalog, self.catalog.catalogs(), name)
        if path.database not in self.catalog.databases(path.catalog):
            raise unknown("database", path.database, self.catalog.databases(path.catalog), name)
        return path

    async def submit(self, graph: JobGraph, source: StatementSource) -> JobId:
        """Starts the job. Cancelled half way, it takes the job back: none may run unknown to everyone. A refused
        expression is shown at its place in `source`."""
        submission = asyncio.ensure_future(self.jobs.submit(graph))
        try:
            job_id = await asyncio.shield(submission)
            self.notices.extend((await self.jobs.status(job_id)).restore_notes)
            return job_id
        except asyncio.CancelledError:
            await self.jobs.cancel(await submission)
            raise
        except SubmissionRefusedError as error:
            raise _refused(error, source) from error

    def existing(self, name: Name) -> tuple[ObjectPath, CatalogEntry]:
        """The definition under a name; raises SqlError with the nearest one if there is none."""
        path = self.resolve(name)
        entry = self.catalog.lookup(path)
        if entry is None:
            raise unknown("table", str(path), self.catalog.names(path.catalog, path.database), name)
        return path, entry


def _refused(error: SubmissionRefusedError, source: StatementSource) -> SqlError:
    if not error.expression:
        return SqlError(SqlState.INVALID_PARAMETER, str(error), hint=error.hint)
    start = source.script.find(error.expression, source.span.start, source.span.end)
    span = source.span if start < 0 else Span(start, start + len(error.expression))
    return SqlError(SqlState.FEATURE_NOT_SUPPORTED, f"`{error.expression}` cannot run: {error}", span=span)


def unknown(kind: str, shown: str, candidates: object, name: Name) -> SqlError:
    """The refusal of a name that is not there."""
    states = {"catalog": SqlState.UNDEFINED_OBJECT, "database": SqlState.UNDEFINED_DATABASE}
    known = [str(c) for c in candidates] if isinstance(candidates, (list, tuple)) else []
    return SqlError(
        states.get(kind, SqlState.UNDEFINED_TABLE),
        f"{kind} '{shown}' does not exist",
        span=name.span,
        hint=did_you_mean(name.parts[-1], known),
    )


def kind_of(entry: CatalogEntry) -> str:
    return "view" if isinstance(entry, ViewEntry) else "table"


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs planner work, or a write to the metadata store, off the event loop: it may take a while."""
    return await asyncio.to_thread(function, *args, **kwargs)
