"""A JobClient without a cluster, and a server around it in a thread."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from planner.ir import types as t
from planner.ir.job_graph import JobGraph
from runtime.api import (
    CheckpointSummary,
    ClusterOverview,
    Failure,
    JobFailedError,
    JobId,
    JobState,
    JobStatus,
    RescaleRefusedError,
    ResultLostError,
    ResultPage,
    SavepointEntry,
    SavepointRefusedError,
    SavepointRequest,
    SavepointState,
    SavepointStatus,
    TaskManagerStatus,
    UnknownJobError,
    UnknownSavepointError,
    VertexStatus,
)
from runtime.metadata.store import SqliteMetadataStore
from server.config import Config, load
from server.http.listener import bind
from server.http.serve import serve


class FakeQuery:
    """The rows of a SELECT: what was put in so far, then an end, a failure, or waiting. Thread-safe by the GIL:
    every change is one assignment."""

    def __init__(self, rows: pa.Table | None = None, kinds: list[int] | None = None, ended: bool = True) -> None:
        self.rows = rows
        self.kinds = kinds
        self.ended = ended
        self.failure: Failure | None = None

    @staticmethod
    def of(types: tuple[t.DataType, ...], rows: list[tuple[Any, ...]], **options: Any) -> FakeQuery:
        schema = t.arrow_schema(types)
        arrays = [pa.array([row[i] for row in rows], type=schema.field(i).type) for i in range(len(types))]
        return FakeQuery(pa.Table.from_arrays(arrays, schema=schema), **options)

    def page(self, graph: JobGraph, sequence: int, rows_max: int) -> ResultPage | None:
        rows = self.rows if self.rows is not None else _result_schema(graph).empty_table()
        piece = rows.slice(sequence, rows_max).combine_chunks()
        following = sequence + piece.num_rows
        if piece.num_rows == 0 and self.failure is not None:
            raise JobFailedError(self.failure)
        if piece.num_rows == 0 and not self.ended:
            return None
        batches = piece.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
        kinds = None if self.kinds is None else pa.array(self.kinds[sequence:following], pa.int8())
        at_end = following >= rows.num_rows and self.ended and self.failure is None
        return ResultPage(sequence, following, batch, kinds, at_end)


def _result_schema(graph: JobGraph) -> pa.Schema:
    collect = graph.vertices[-1].operators[-1]
    return t.arrow_schema(collect.input.types)  # type: ignore[union-attr]


class FakeJobs:
    """Implements `runtime.api.JobClient`. Jobs run until they are cancelled, bounded INSERTs finish at once."""

    def __init__(self) -> None:
        self.graphs: dict[JobId, JobGraph] = {}
        self.states: dict[JobId, JobState] = {}
        self.query = FakeQuery()
        """What the next SELECT answers."""
        self.queries: dict[JobId, FakeQuery] = {}
        self.insert_failure: Failure | None = None
        self.before_submit: Callable[[], None] = lambda: None
        self.slots_total = 2
        self.slots_missing = 0
        self.savepoint_requests: dict[str, SavepointRequest] = {}
        self.savepoint_failure: Failure | None = None
        self.savepoint_in_progress = False
        self.restore_notes: tuple[str, ...] = ()
        self.rescale_refusal = ""
        self.taken: list[SavepointEntry] = []
        self.disposed: list[str] = []

    async def submit(self, graph: JobGraph) -> JobId:
        await asyncio.to_thread(self.before_submit)
        job_id = JobId(uuid.uuid4().hex)
        self.graphs[job_id] = graph
        if graph.is_query:
            self.queries[job_id] = self.query
            self.states[job_id] = JobState.RUNNING
        elif self.insert_failure is not None:
            self.states[job_id] = JobState.FAILED
        else:
            self.states[job_id] = JobState.FINISHED if graph.bounded else JobState.RUNNING
        return job_id

    async def cancel(self, job_id: JobId) -> None:
        if job_id not in self.states:
            raise UnknownJobError(job_id)
        if not self.states[job_id].terminal:
            self.states[job_id] = JobState.CANCELED

    async def trigger_savepoint(self, job_id: JobId, request: SavepointRequest) -> str:
        """Done at once; where `savepoint_failure` is set it fails. `request.directory` must be given."""
        await self.status(job_id)
        if not request.directory:
            raise SavepointRefusedError("no directory for the savepoint is given", "Name one.")
        trigger_id = request.trigger_id or "a" * 32
        self.savepoint_requests[trigger_id] = request
        if self.savepoint_failure is None and request.stop:
            self.states[job_id] = JobState.FINISHED
        return trigger_id

    async def savepoint(self, job_id: JobId, trigger_id: str, wait_ms: int = 0) -> SavepointStatus:
        await self.status(job_id)
        if trigger_id not in self.savepoint_requests:
            raise UnknownSavepointError(trigger_id)
        if self.savepoint_in_progress:
            return SavepointStatus(trigger_id, SavepointState.IN_PROGRESS)
        if self.savepoint_failure is not None:
            return SavepointStatus(trigger_id, SavepointState.FAILED, "", self.savepoint_failure)
        location = f"{self.savepoint_requests[trigger_id].directory}/savepoint-{job_id[:6]}-0123456789ab"
        return SavepointStatus(trigger_id, SavepointState.COMPLETED, location)

    async def savepoints(self, job_id: JobId) -> list[SavepointEntry]:
        await self.status(job_id)
        return self.taken

    async def dispose_savepoint(self, location: str) -> None:
        if location not in [entry.location for entry in self.taken]:
            raise SavepointRefusedError(f"there is no savepoint at {location}", "SHOW SAVEPOINTS.")
        self.disposed.append(location)

    async def graph(self, job_id: JobId) -> JobGraph:
        if (await self.status(job_id)).state.terminal:
            raise UnknownJobError(job_id)
        return self.graphs[job_id]

    async def rescale(self, job_id: JobId, graph: JobGraph) -> None:
        if self.rescale_refusal:
            raise RescaleRefusedError(self.rescale_refusal, "Start more TaskManagers first.")
        self.graphs[job_id] = graph

    async def status(self, job_id: JobId) -> JobStatus:
        if job_id not in self.states:
            raise UnknownJobError(job_id)
        state = self.states[job_id]
        return JobStatus(
            job_id=job_id,
            name=self.graphs[job_id].name,
            state=state,
            start_ms=1_795_966_576_350,
            end_ms=1_795_966_577_000 if state.terminal else -1,
            state_timestamps_ms={state.value: 1_795_966_576_350},
            vertices=tuple(
                VertexStatus(v.id, v.name, v.parallelism, v.max_parallelism, {}) for v in self.graphs[job_id].vertices
            ),
            checkpoints=CheckpointSummary(),
            slots_missing=self.slots_missing,
            failure=self.insert_failure,
            is_query=self.graphs[job_id].is_query,
            restore_notes=self.restore_notes,
        )

    async def jobs(self) -> list[JobStatus]:
        return [await self.status(job_id) for job_id in reversed(self.states)]

    async def wait(self, job_id: JobId, timeout_ms: int) -> JobStatus:
        for _ in range(max(1, timeout_ms // 10)):
            status = await self.status(job_id)
            if status.state.terminal:
                return status
            await asyncio.sleep(0.01)
        return await self.status(job_id)

    async def fetch(self, job_id: JobId, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
        waited_ms = 0
        while True:
            if self.states[job_id] is JobState.CANCELED:
                raise ResultLostError("the query was ended (CANCELED)")
            page = self.queries[job_id].page(self.graphs[job_id], sequence, rows_max)
            if page is not None:
                return page
            if waited_ms >= wait_ms:
                empty = _result_schema(self.graphs[job_id]).empty_table().to_batches()
                rows = empty[0] if empty else pa.RecordBatch.from_pylist([], _result_schema(self.graphs[job_id]))
                return ResultPage(sequence, sequence, rows, None, False)
            await asyncio.sleep(0.01)
            waited_ms += 10

    async def overview(self) -> ClusterOverview:
        states = [state.value for state in self.states.values()]
        return ClusterOverview(1, self.slots_total, self.slots_total, {s: states.count(s) for s in states})

    async def task_managers(self) -> list[TaskManagerStatus]:
        return [TaskManagerStatus("tm-1", "127.0.0.1", 1, self.slots_total, self.slots_total, 1_000, 0)]


class FakeServer:
    """Gateway and HTTP over fake jobs, in a thread of its own; the metadata store is real and outlives `restart`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.jobs = FakeJobs()
        self._folder = folder
        self._config: Config = load(None, {}, {"http.port": "0", "gateway.long-poll-ms": "100", **settings})
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        listener = bind("127.0.0.1", self._port)
        listener.listen()  # Requests of the first moments wait instead of being refused.
        self._port = listener.getsockname()[1]
        self._store = SqliteMetadataStore(self._folder / "metadata.sqlite")
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

        async def run() -> None:
            async def stopped() -> None:
                await self._stop.wait()

            await serve(self._config, self.jobs, self._store, listener, stopped())

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(run()), name="server")
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._store.close()

    def recorded_sessions(self) -> list[str]:
        """Handles of the sessions in the metadata store."""
        return [handle for handle, _ in self._store.items("sessions")]

    def restart(self) -> None:
        """Another process under the same address: sessions come back from the store."""
        self.stop()
        self.start()
