"""The JobManager: metadata store, TaskManager endpoint, slots and one JobMaster per job; implements `JobClient`."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from connectors.errors import ConnectorError
from planner.ir.job_graph import JobGraph
from runtime.api import (
    ClusterOverview,
    JobFailedError,
    JobState,
    JobStatus,
    MetadataStore,
    ResultLostError,
    ResultPage,
    SavepointEntry,
    SavepointRefusedError,
    SavepointRequest,
    SavepointStatus,
    SubmissionRefusedError,
    TaskManagerStatus,
    UnknownJobError,
    UnknownSavepointError,
)
from runtime.checkpoint.files import LocationError, absolute, normalized
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import CheckpointStore
from runtime.clock import wall_clock_ms
from runtime.config import JobManagerSettings
from runtime.ids import JobId
from runtime.job_settings import SAVEPOINT_DIRECTORY, SettingError, parse_job_settings
from runtime.jobmanager import job_events as events
from runtime.jobmanager.endpoint import TaskManagerEndpoint, bind_rpc
from runtime.jobmanager.job_master import JobMaster
from runtime.jobmanager.preparation import check_savepoint, check_submission
from runtime.jobmanager.rescaling import check_slots
from runtime.jobmanager.savepoints import dispose_savepoint
from runtime.jobmanager.services import HelperThread, Services
from runtime.jobmanager.slot_pool import SlotPool
from runtime.jobmanager.takeover import end_job, load_jobs
from runtime.metadata.jobs import JobRecord, JobRecords, NamespaceTakenError
from runtime.metadata.lease import LeaderStore
from runtime.metadata.store import SqliteMetadataStore
from runtime.operators.expressions.context import UnsupportedExpression
from runtime.protocol.messages import Failure

_log = logging.getLogger(__name__)

STORE_FILE = "metadata.sqlite"
CHECKPOINTS = "checkpoints"
ENDED_JOBS_KEPT = 200
END_WAIT_MS = 2_000
"""How long a fetch that found no process waits for the word on how the query ended."""

_LOST = Failure("the result of the query was lost: the JobManager was restarted", "external", False, "Run it again.")


class JobManager:
    """Create with `start`. All methods belong to one event loop; records and files are written on helper threads."""

    def __init__(
        self, settings: JobManagerSettings, store: LeaderStore, may_lead: Callable[[], bool] = lambda: True
    ) -> None:
        self._settings = settings
        self._store = store
        self._records = JobRecords(store)
        self._thread = HelperThread("job-records")
        directory = settings.checkpoint_directory or str(Path(settings.data_directory) / CHECKPOINTS)
        self._masters: dict[JobId, JobMaster] = {}
        self._pool = SlotPool(self._masters)
        checkpoints = CheckpointStore(absolute(directory), self._records.check_leader)
        self._services = Services(self._records, checkpoints, self._pool, self._on_lost_leadership)
        self._ended: dict[JobId, JobStatus] = {}
        """Jobs that had ended before this JobManager started."""
        self._leadership_lost = asyncio.Event()
        self._endpoint = TaskManagerEndpoint(
            self._pool, store.leader_token, settings.heartbeat_interval_ms, settings.heartbeat_timeout_ms, may_lead
        )
        self._pool.connect(self._endpoint)

    @classmethod
    async def start(cls, settings: JobManagerSettings) -> JobManager:
        """The only JobManager of its data directory: takes the lease, opens the port, and goes on with every job that
        had not ended. Raises OSError when the port is taken."""
        listener = bind_rpc(settings.rpc_host, settings.rpc_port)
        try:
            path = Path(settings.data_directory) / STORE_FILE
            store = await asyncio.to_thread(SqliteMetadataStore, path)
        except BaseException:
            listener.close()
            raise
        return await cls(settings, store).lead(listener)

    async def lead(self, listener: socket.socket) -> JobManager:
        """Accepts TaskManagers at the socket, and goes on with every job that had not ended."""
        await self._endpoint.start(listener)
        await self._take_over_jobs()
        return self

    @property
    def rpc_port(self) -> int:
        return self._endpoint.port

    @property
    def metadata(self) -> MetadataStore:
        """Shared with the server: catalog and sessions live beside the jobs, under the same lease."""
        return self._store

    async def lost_leadership(self) -> None:
        """Returns when another JobManager has taken over: this process must end."""
        await self._leadership_lost.wait()

    async def stop(self) -> None:
        """Suspend all jobs and close. Their records say that they live: the next start goes on with them."""
        await asyncio.gather(*(master.suspend() for master in self._masters.values()))
        await self._endpoint.stop()
        self._thread.close()
        await asyncio.to_thread(self._store.close)

    # ----------------------------------------------------------------------------------------------------- JobClient

    async def submit(self, graph: JobGraph) -> JobId:
        settings = {**self._settings.job_defaults, **graph.settings}
        graph = msgspec.structs.replace(graph, settings=settings)
        try:
            parsed = parse_job_settings(settings)
            await self._thread.run(check_submission, graph, parsed)
        except SettingError as error:
            raise SubmissionRefusedError(str(error)) from error
        except ConnectorError as error:
            raise SubmissionRefusedError(error.message, error.hint) from error
        except UnsupportedExpression as error:
            raise SubmissionRefusedError(str(error), expression=error.text) from error
        job_id = JobId(uuid.uuid4().hex)
        now_ms = wall_clock_ms()
        state = JobState.INITIALIZING
        record = JobRecord(job_id, graph.name, state, graph.is_query, now_ms, state_timestamps_ms={state.value: now_ms})
        if parsed.recovery.path and not graph.is_query:
            try:
                record = await self._thread.run(check_savepoint, self._records, graph, parsed.recovery, record)
            except (RestoreRefusedError, NamespaceTakenError) as error:
                raise SubmissionRefusedError(str(error), getattr(error, "hint", "")) from error
        await self._thread.run(self._records.create, record, graph)
        self._forget_old_jobs()
        master = JobMaster(self._services, record, graph, parsed)
        self._masters[job_id] = master
        master.start()
        return job_id

    async def cancel(self, job_id: JobId) -> None:
        master = self._masters.get(job_id)
        if master is not None:
            master.post(events.CancelRequested())
        elif job_id not in self._ended:
            raise UnknownJobError(job_id)

    async def trigger_savepoint(self, job_id: JobId, request: SavepointRequest) -> str:
        master = self._running_master(await self.status(job_id))
        directory = request.directory or parse_job_settings(master.graph.settings).savepoint_directory
        if not directory:
            raise SavepointRefusedError(
                "no directory for the savepoint is given",
                f"Name one, or SET '{SAVEPOINT_DIRECTORY}' = '/…' (before the job's INSERT: for that job).",
            )
        try:
            directory = normalized(directory)
        except LocationError as error:
            raise SavepointRefusedError(str(error), "Name a directory that every process can reach.") from error
        return master.savepoints.trigger(msgspec.structs.replace(request, directory=directory))

    async def savepoint(self, job_id: JobId, trigger_id: str, wait_ms: int = 0) -> SavepointStatus:
        master = self._masters.get(job_id)
        if master is None:
            await self.status(job_id)
            raise UnknownSavepointError(trigger_id)
        return await master.savepoints.status(trigger_id, wait_ms)

    async def savepoints(self, job_id: JobId) -> list[SavepointEntry]:
        await self.status(job_id)
        return await self._thread.run(self._records.savepoints, job_id)

    async def dispose_savepoint(self, location: str) -> None:
        await asyncio.to_thread(dispose_savepoint, self._records, self._services.store, location)

    async def graph(self, job_id: JobId) -> JobGraph:
        master = self._masters.get(job_id)
        if master is None or master.status().state.terminal:
            raise UnknownJobError(job_id)
        return master.graph

    async def rescale(self, job_id: JobId, graph: JobGraph) -> None:
        master = self._masters.get(job_id)
        if master is None or master.status().state.terminal:
            raise UnknownJobError(job_id)
        await check_slots(master, graph, lambda: self._pool.slots_free_for(job_id))
        await master.rescale(graph)

    def _running_master(self, status: JobStatus) -> JobMaster:
        master = self._masters.get(status.job_id)
        if master is None or status.state.terminal:
            raise SavepointRefusedError(f"job {status.job_id} has ended ({status.state})")
        if status.is_query:
            raise SavepointRefusedError("a SELECT has no savepoints: its rows are gone once they are shown")
        return master

    async def status(self, job_id: JobId) -> JobStatus:
        master = self._masters.get(job_id)
        if master is not None:
            return master.status()
        if job_id in self._ended:
            return self._ended[job_id]
        raise UnknownJobError(job_id)

    async def jobs(self) -> list[JobStatus]:
        known = [*(master.status() for master in self._masters.values()), *self._ended.values()]
        return sorted(known, key=lambda status: (status.start_ms, status.job_id), reverse=True)

    async def wait(self, job_id: JobId, timeout_ms: int) -> JobStatus:
        master = self._masters.get(job_id)
        if master is not None:
            await master.wait_ended(timeout_ms)
        return await self.status(job_id)

    async def fetch(self, job_id: JobId, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
        master = self._masters.get(job_id)
        if master is None:
            status = await self.status(job_id)
            raise ResultLostError((status.failure or _LOST).message)
        if master.result is None:
            raise ResultLostError(f"job {job_id} is not a query")
        lost: ResultLostError | None = None
        try:
            page = await master.result.fetch(sequence, rows_max, wait_ms)
            if page is not None:
                return page
        except ResultLostError as error:
            lost = error
        await master.wait_ended(END_WAIT_MS)
        status = master.status()
        if status.state is JobState.FAILED and status.failure is not None:
            raise JobFailedError(status.failure)
        raise lost or ResultLostError(f"the query was ended ({status.state})")

    async def overview(self) -> ClusterOverview:
        states = Counter(status.state.value for status in await self.jobs())
        return ClusterOverview(
            task_managers=len(self._endpoint.task_managers),
            slots_total=self._pool.slots_total,
            slots_available=self._pool.slots_free,
            jobs_by_state=dict(states),
        )

    async def task_managers(self) -> list[TaskManagerStatus]:
        return [self._pool.status(task_manager) for task_manager in self._endpoint.task_managers]

    # --------------------------------------------------------------------------------------------------------- private

    async def _take_over_jobs(self) -> None:
        living, self._ended = await self._thread.run(load_jobs, self._records, self._services.store, ENDED_JOBS_KEPT)
        for record in living:
            try:
                graph = await self._thread.run(self._records.graph, record.job_id)
                settings = parse_job_settings(graph.settings)
            except (KeyError, ValueError) as error:
                failure = Failure(f"the job cannot be read: {error}", "internal", False)
                self._ended[record.job_id] = await self._thread.run(end_job, self._records, record, failure)
                continue
            if record.is_query:
                self._ended[record.job_id] = await self._thread.run(end_job, self._records, record, _LOST)
                await self._thread.run(self._services.store.drop_job, record.job_id)
                continue
            master = JobMaster(self._services, record, graph, settings)
            self._masters[record.job_id] = master
            ending = record.state if record.state in (JobState.CANCELLING, JobState.FAILING) else None
            _log.info("job %s (%s): taken over in state %s", record.job_id, record.name, record.state)
            master.start(ending)

    def _forget_old_jobs(self) -> None:
        """Ended jobs keep no more than a place in the history."""
        ended = [master for master in self._masters.values() if master.status().state.terminal]
        for master in ended[:-ENDED_JOBS_KEPT]:
            del self._masters[master.job_id]

    def _on_lost_leadership(self) -> None:
        _log.error("another JobManager has taken over, or this one cannot write any more")
        self._leadership_lost.set()
