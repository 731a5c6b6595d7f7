"""The SQL gateway without HTTP: sessions, operations, and the life of a statement from text to result pages.

Everything runs on the server's event loop; planner work and writes to the metadata store go to threads. Statements of
one session run one after the other; waiting for a job (`table.dml-sync`) and reading results hold nobody up.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from planner.errors import SqlError
from planner.sql import statements as s
from runtime.api import (
    JobClient,
    JobFailedError,
    JobId,
    JobState,
    JobStatus,
    MetadataStore,
    ResultLostError,
    UnknownJobError,
)
from server import completion
from server.catalog.store import CatalogStore
from server.errors import OperationStateError, ResultUnavailableError, UnsupportedRequestError
from server.lazy_planner import planner_api
from server.operations import Operation, OperationStatus, Page
from server.secrets import masked
from server.sessions import OperationRecord, Session, SessionManager
from server.settings import effective, zone_name
from server.statements import dispatch
from server.statements.context import StatementContext
from server.statements.result import StatementResult, job_started

logger = logging.getLogger(__name__)

_CHANGES_SESSION = dispatch.CONFIGURING | s.BeginStatementSet | s.EndStatementSet | s.Insert
_JOB_WAIT_MS = 10_000


class GatewaySettings(msgspec.Struct, frozen=True):
    """Limits and times of the gateway."""

    long_poll_ms: int = 250
    """How long a fetch is held when there is nothing new."""
    rows_max: int = 5_000
    """Rows of a result page."""
    session_idle_s: float = 600.0
    """A session without a request for so long is closed; its INSERT jobs run on."""
    query_idle_s: float = 600.0
    """A SELECT whose result nobody reads for so long is cancelled."""
    sessions_max: int = 1_000
    check_interval_s: float = 5.0


class Gateway:
    """What the HTTP routes call. `job_defaults` are the server's settings below what sessions set."""

    def __init__(
        self,
        jobs: JobClient,
        metadata: MetadataStore,
        settings: GatewaySettings,
        job_defaults: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.jobs = jobs
        self._clock = clock
        self._job_defaults = dict(job_defaults)
        self._shared = CatalogStore(metadata)
        self._sessions = SessionManager(metadata, self._shared, _parse_inserts, clock, settings.sessions_max)
        self._caretaker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Brings back sessions and operations, and starts to look for idle ones."""
        for session, handle, record in await asyncio.to_thread(self._sessions.restore):
            session.add_operation(self._restored(handle, record, session))
        self._caretaker = asyncio.create_task(self._take_care())

    async def stop(self) -> None:
        """Ends the caretaker and every running statement, and cancels the jobs of SELECTs: their rows have no reader
        after this. Sessions stay recorded."""
        if self._caretaker is not None:
            self._caretaker.cancel()
        for session in self._sessions.all():
            for operation in list(session.operations.values()):
                if operation.task is not None:
                    operation.task.cancel()
                await self._cancel_query(operation)

    # -- sessions

    async def open_session(self, name: str, properties: Mapping[str, str]) -> str:
        return (await self._sessions.open(name, properties)).handle

    def session(self, handle: str) -> Session:
        """The session, touched; raises UnknownSessionError."""
        return self._sessions.get(handle)

    def properties(self, handle: str) -> dict[str, str]:
        """All effective settings of a session, secrets masked."""
        return masked(self._job_defaults | self._sessions.get(handle).properties)

    async def close_session(self, handle: str) -> None:
        await self._end_session(self._sessions.get(handle))

    async def configure(self, handle: str, statement_text: str) -> None:
        """Runs a statement that configures the session; refuses any other."""
        session = self._sessions.get(handle)
        statement = await dispatch.parse_one(statement_text)
        if not isinstance(statement, dispatch.CONFIGURING):
            raise UnsupportedRequestError(
                f"Unsupported statement for configuring session:{statement_text}",
                hint="configure-session takes SET, RESET, USE, CREATE and DROP; submit others as statements.",
            )
        await self._run(session, statement, {}, [])

    def complete(self, handle: str, statement_text: str, position: int) -> list[str]:
        """Candidates for the word at `position` (in characters)."""
        return completion.candidates(statement_text, position, self._sessions.get(handle).catalog)

    # -- operations

    def submit(self, handle: str, statement_text: str, execution_config: Mapping[str, str]) -> str:
        """Starts a statement; every error shows when its result is fetched."""
        session = self._sessions.get(handle)
        zone = self._zone(session, execution_config)
        operation = Operation(str(uuid.uuid4()), statement_text, zone, self._clock)
        session.add_operation(operation)
        operation.task = asyncio.create_task(self._execute(session, operation, execution_config))
        return operation.handle

    def status(self, session_handle: str, handle: str) -> OperationStatus:
        return self._sessions.get(session_handle).operation(handle).status

    async def cancel(self, session_handle: str, handle: str) -> OperationStatus:
        """Ends a statement that has not finished. A SELECT has finished when its job runs: close it instead."""
        operation = self._sessions.get(session_handle).operation(handle)
        if operation.status.terminal:
            raise OperationStateError(
                f"Failed to convert the Operation Status from {operation.status} to CANCELED for {handle}.",
                hint="Close the operation to end a running query.",
            )
        assert operation.task is not None
        operation.task.cancel()
        operation.cancelled()
        return operation.status

    async def close(self, session_handle: str, handle: str) -> None:
        """Forgets an operation and cancels the job of a SELECT; an INSERT's job runs on. Idempotent."""
        session = self._sessions.get(session_handle)
        operation = session.operations.pop(handle, None)
        if operation is not None:
            await self._end_operation(operation)
            if operation.result is not None and operation.result.job_id is not None:
                await self._sessions.forget_operation(handle)

    async def fetch(self, session_handle: str, handle: str, token: int, rows_max: int) -> tuple[Operation, Page | None]:
        """The page under `token`, waiting a little for rows; None: the statement is still at work, ask again."""
        operation = self._sessions.get(session_handle).operation(handle)
        operation.touch()
        if not operation.status.terminal:
            await _wait(operation.done, self.settings.long_poll_ms)
        if not operation.status.terminal:
            return operation, None
        if operation.status is OperationStatus.CANCELED:
            raise OperationStateError(f"Can not fetch results from the {handle} in CANCELED status.")
        if operation.error is not None:
            raise operation.error
        assert operation.cursor is not None
        try:
            page = await operation.cursor.fetch(token, rows_max, self.settings.long_poll_ms)
        except JobFailedError as error:
            operation.fail(error)
            raise
        except (ResultLostError, UnknownJobError) as error:
            lost = _result_lost(str(error) if isinstance(error, ResultLostError) else "its job is gone")
            operation.fail(lost)
            raise lost from error
        finally:
            operation.touch()
        return operation, page

    # -- the life of a statement

    async def _execute(self, session: Session, operation: Operation, config: Mapping[str, str]) -> None:
        """The task of an operation: its outcome is left in the operation, never raised."""
        try:
            statement = await dispatch.parse_one(operation.statement)
            result, settings = await self._run(session, statement, config, operation.notices)
            if result.job_id is not None:
                awaits = not result.is_query and settings["table.dml-sync"].strip().lower() == "true"
                record = OperationRecord(session.handle, operation.statement, result.job_id, result.is_query, awaits)
                await self._sessions.persist_operation(operation.handle, record)
                if awaits:
                    await self._wait_for_job(result.job_id)
            operation.finish(result, self.jobs)
        except asyncio.CancelledError:
            operation.cancelled()
        except Exception as error:
            if not isinstance(error, (SqlError, JobFailedError, OperationStateError)):
                logger.exception("statement failed: %s", operation.handle)
            operation.fail(error)

    async def _run(
        self, session: Session, statement: s.Statement, config: Mapping[str, str], notices: list[str]
    ) -> tuple[StatementResult, dict[str, str]]:
        async with session.lock:
            is_setting = isinstance(statement, s.Set | s.Reset)
            settings = {} if is_setting else effective(self._job_defaults, session.properties, config)
            context = StatementContext(session, self.jobs, settings, self._job_defaults, notices)
            result = await dispatch.run(statement, context)
            if isinstance(statement, _CHANGES_SESSION):
                await self._sessions.persist(session)
            return result, settings

    async def _wait_for_job(self, job_id: JobId) -> None:
        """Returns when the job has finished; raises JobFailedError, or OperationStateError when it was cancelled."""
        status: JobStatus = await self.jobs.wait(job_id, _JOB_WAIT_MS)
        while not status.state.terminal:
            status = await self.jobs.wait(job_id, _JOB_WAIT_MS)
        if status.state is JobState.FAILED and status.failure is not None:
            raise JobFailedError(status.failure)
        if status.state is not JobState.FINISHED:
            raise OperationStateError(f"job {job_id} was cancelled")

    # -- ends

    async def _end_session(self, session: Session) -> None:
        for operation in list(session.operations.values()):
            await self._end_operation(operation)
        await self._sessions.remove(session)

    async def _end_operation(self, operation: Operation) -> None:
        if not operation.status.terminal and operation.task is not None:
            operation.task.cancel()
            operation.cancelled()
        await self._cancel_query(operation)

    async def _cancel_query(self, operation: Operation) -> None:
        """Ends the job of a SELECT whose rows nobody will read."""
        job_id = operation.query_job
        if job_id is None:
            return
        try:
            await self.jobs.cancel(job_id)
        except UnknownJobError:
            pass  # Ended and forgotten already.

    async def _take_care(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_s)
            try:
                await self.end_idle()
            except Exception:
                logger.exception("cannot end idle sessions and queries")

    async def end_idle(self) -> None:
        """Closes sessions and cancels queries that nobody has asked for lately."""
        for session in self._sessions.idle(self.settings.session_idle_s):
            if all(o.status.terminal for o in session.operations.values()):
                logger.info("session %s expired", session.handle)
                await self._end_session(session)
        limit_s = self.settings.query_idle_s
        for session in self._sessions.all():
            for operation in session.operations.values():
                if operation.query_job is not None and self._clock() - operation.last_fetch_s > limit_s:
                    await self._cancel_query(operation)
                    operation.fail(
                        ResultUnavailableError(
                            f"the query was cancelled: nobody read its result for {limit_s:.0f} s",
                            hint="Run it again; INSERT INTO a table keeps a result without a reader.",
                        )
                    )

    # -- small parts

    def _restored(self, handle: str, record: OperationRecord, session: Session) -> Operation:
        operation = Operation(handle, record.statement, self._zone(session), self._clock)
        if record.is_query:
            operation.fail(_result_lost("the server was restarted"))
        elif record.awaits_job:
            operation.task = asyncio.create_task(self._resume(operation, record.job_id))
        else:
            operation.finish(job_started(record.job_id), self.jobs)
        return operation

    async def _resume(self, operation: Operation, job_id: JobId) -> None:
        """Goes on waiting for the job of a synchronous INSERT, as before the restart."""
        try:
            await self._wait_for_job(job_id)
            operation.finish(job_started(job_id), self.jobs)
        except asyncio.CancelledError:
            operation.cancelled()
        except Exception as error:
            operation.fail(error)

    def _zone(self, session: Session, config: Mapping[str, str] = MappingProxyType({})) -> str:
        """The zone TIMESTAMP_LTZ is shown in. A statement under a bad setting is refused for it, with a message."""
        key = "table.local-time-zone"
        layers = (config, session.properties, self._job_defaults)
        return zone_name(next((layer[key] for layer in layers if key in layer), "UTC")) or "UTC"


def _result_lost(reason: str) -> ResultUnavailableError:
    return ResultUnavailableError(f"the result of this query is gone: {reason}", hint="Run the statement again.")


def _parse_inserts(text: str) -> list[s.Insert]:
    return [statement for statement in planner_api.parse(text) if isinstance(statement, s.Insert)]


async def _wait(event: asyncio.Event, timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        pass  # Still at work: the caller says so.
