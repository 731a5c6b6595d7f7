"""Operations: submitted statements, their states, and the pages of their results.

A result is read by token. Token n is answered by a page that announces n + 1; the last page is kept, so that a client
whose connection broke asks again and gets the same rows. Older pages are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec
import pyarrow as pa

from planner.ir.operators import Schema
from runtime.api import JobClient, JobId, ResultPage
from server.errors import TokenAheadError, TokenPassedError
from server.statements.result import StatementResult


class OperationStatus(StrEnum):
    """States of an operation, with the names of Flink's SQL gateway."""

    INITIALIZED = "INITIALIZED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"

    @property
    def terminal(self) -> bool:
        return self not in (OperationStatus.INITIALIZED, OperationStatus.PENDING, OperationStatus.RUNNING)


class Page(msgspec.Struct, frozen=True):
    """Rows under one token. `ended`: no page follows and `rows` is empty. `row_kinds` None = all inserts."""

    token: int
    rows: pa.RecordBatch
    row_kinds: pa.Int8Array | None
    ended: bool


class RowSource(Protocol):
    """Where the rows of a result come from, by a sequence number of its own."""

    async def read(self, sequence: int, rows_max: int, wait_ms: int) -> ResultPage: ...


class StoredRows:
    """Rows that are there already: DDL, SHOW, EXPLAIN, the job id of an INSERT."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    async def read(self, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
        piece = self._rows.slice(sequence, rows_max)
        following = sequence + piece.num_rows
        return ResultPage(sequence, following, piece, None, following >= self._rows.num_rows)


class QueryRows:
    """Rows of a running SELECT, pulled from its job."""

    def __init__(self, jobs: JobClient, job_id: JobId) -> None:
        self._jobs = jobs
        self._job_id = job_id

    async def read(self, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
        return await self._jobs.fetch(self._job_id, sequence, rows_max, wait_ms)


class ResultCursor:
    """Tokens over a source of rows. Fetches of one result are served one after the other."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._lock = asyncio.Lock()
        self._next_token = 0
        self._sequence = 0
        self._previous: Page | None = None
        self._source_ended = False

    @property
    def ended(self) -> bool:
        """Every row has been handed out (the end itself may not have been)."""
        return self._source_ended

    async def fetch(self, token: int, rows_max: int, wait_ms: int) -> Page:
        """The page of `token`: the one that follows, or the last one again. Raises what the source raises."""
        async with self._lock:
            previous = self._previous
            if previous is not None and token == previous.token:
                return previous
            if token != self._next_token or (previous is not None and previous.ended):
                raise self._wrong_token(token)
            page = await self._read(token, rows_max, wait_ms)
            self._previous = page
            self._next_token = token + 1
            return page

    async def _read(self, token: int, rows_max: int, wait_ms: int) -> Page:
        if self._source_ended:
            assert self._previous is not None
            return Page(token, self._previous.rows.slice(0, 0), None, True)
        result = await self._source.read(self._sequence, rows_max, wait_ms)
        self._sequence = result.next_sequence
        self._source_ended = result.ended
        return Page(token, result.rows, result.row_kinds, result.ended and result.rows.num_rows == 0)

    def _wrong_token(self, token: int) -> TokenPassedError | TokenAheadError:
        previous = self._previous
        if previous is None:
            expected = f"{self._next_token}"
        elif previous.ended:
            expected = f"{previous.token}"
        else:
            expected = f"{self._next_token} or {previous.token}"
        message = f"Expecting token to be {expected}, but found {token}."
        if token < self._next_token:
            return TokenPassedError(message, hint="Only the last page is kept: ask for its token or for nextResultUri.")
        return TokenAheadError(message, hint="Follow nextResultUri of the last page.")


class Operation:
    """One submitted statement. Owned by its session; changed only on the server's event loop."""

    def __init__(self, handle: str, statement: str, zone: str, clock: Callable[[], float]) -> None:
        self.handle = handle
        self.statement = statement
        self.zone = zone
        self.status = OperationStatus.RUNNING
        """RUNNING from the first moment: dbt's adapter polls only while it reads exactly this word."""
        self.result: StatementResult | None = None
        self.cursor: ResultCursor | None = None
        self.error: Exception | None = None
        self.notices: list[str] = []
        """What the user should know; shown with the first page."""
        self.task: asyncio.Task[None] | None = None
        self.done = asyncio.Event()
        self._clock = clock
        self.last_fetch_s = clock()

    @property
    def query_job(self) -> JobId | None:
        """The job of a SELECT that may still be running."""
        if self.result is None or not self.result.is_query or self.cursor is None or self.cursor.ended:
            return None
        return self.result.job_id

    @property
    def schema(self) -> Schema:
        assert self.result is not None
        return self.result.schema

    def touch(self) -> None:
        """Somebody reads the result."""
        self.last_fetch_s = self._clock()

    def finish(self, result: StatementResult, jobs: JobClient) -> None:
        """The statement did what it says: its result can be fetched."""
        self.result = result
        if result.is_query:
            assert result.job_id is not None
            self.cursor = ResultCursor(QueryRows(jobs, result.job_id))
        else:
            self.cursor = ResultCursor(StoredRows(result.rows))
        self._end(OperationStatus.FINISHED)

    def fail(self, error: Exception) -> None:
        """The statement, or the reading of its result, failed: every later fetch says so."""
        self.error = error
        self._end(OperationStatus.ERROR)

    def cancelled(self) -> None:
        self._end(OperationStatus.CANCELED)

    def _end(self, status: OperationStatus) -> None:
        self.status = status
        self.touch()
        self.done.set()
