"""The result of a SELECT on its way from the slot to the client: the JobManager only says where it is and keeps the
last page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa

from planner.ir.job_graph import JobGraph
from planner.ir.operators import Collect
from planner.ir.types import arrow_schema
from runtime.api import ResultLostError, ResultPage
from runtime.clock import monotonic_ms
from runtime.exchange.fetch import fetch
from runtime.ids import AttemptId
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.job_events import CancelRequested, JobEvent, ResultDrained
from runtime.protocol.messages import Failure

IDLE_TIMEOUT_MS = 600_000
"""A query that nobody fetches from is cancelled."""


class QueryResult:
    """Belongs to one query's job."""

    def __init__(self, graph: JobGraph, post: Callable[[JobEvent], None]) -> None:
        self._vertex_id, collect = next(
            (vertex.id, operator)
            for vertex in graph.vertices
            for operator in vertex.operators
            if isinstance(operator, Collect)
        )
        self._schema = arrow_schema(collect.input.types)
        self._post = post
        self._source: tuple[tuple[str, int], AttemptId] | None = None
        self._changed = asyncio.Event()
        self._last_page: ResultPage | None = None
        self._fetched_at_ms = monotonic_ms()
        self._idle_reported = False

    @property
    def deadline_ms(self) -> int | None:
        """When `idle_event` is due."""
        return None if self._idle_reported else self._fetched_at_ms + IDLE_TIMEOUT_MS

    @property
    def idle_event(self) -> CancelRequested:
        self._idle_reported = True
        minutes = IDLE_TIMEOUT_MS // 60_000
        return CancelRequested(Failure(f"nobody fetched the query's result for {minutes} minutes", "user", False))

    def started(self, execution: ExecutionGraph) -> None:
        attempt = execution.attempt(self._vertex_id, 0)
        slot = execution.slot(attempt)
        self._source = ((slot.host, slot.data_port), attempt)
        self._changed.set()

    def stopped(self) -> None:
        """No page can be fetched any more, except the last one if it was fetched before."""
        self._source = None
        self._changed.set()

    async def fetch(self, sequence: int, rows_max: int, wait_ms: int) -> ResultPage | None:
        """The page from `sequence` on; an empty one when the query has not started within `wait_ms`; None when the
        query has ended (the caller knows how). Raises ResultLostError when the page is no longer kept or the process
        that held it does not answer."""
        self._fetched_at_ms = monotonic_ms()
        if self._last_page is not None:
            return self._from_last_page(self._last_page, sequence)
        if not self._changed.is_set():
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return ResultPage(sequence, sequence, self._empty(), None, ended=False)
        if self._source is None:
            return None
        address, attempt = self._source
        page = await fetch(address, attempt, sequence, rows_max, wait_ms)
        if page.ended and self._last_page is None:
            self._last_page = page
            self._post(ResultDrained())
        return page

    def _from_last_page(self, last: ResultPage, sequence: int) -> ResultPage:
        if sequence == last.sequence:
            return last
        if sequence == last.next_sequence:
            return ResultPage(sequence, sequence, self._empty(), None, ended=True)
        raise ResultLostError(f"rows from {sequence} on were already fetched and are no longer kept")

    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self._schema)
