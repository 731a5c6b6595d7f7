"""One job: its cores run as an actor. Events arrive in one queue; one task handles them and performs the commands in
order, so a durable effect is done before what depends on it. Work that takes long runs beside it and answers with an
event."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

import msgspec

from connectors.errors import ConnectorError
from planner.ir.job_graph import JobGraph
from runtime.api import JobState, JobStatus, RescaleRefusedError, StaleLeaderError
from runtime.checkpoint import coordination as checkpoints
from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import JobId
from runtime.job_settings import JobSettings
from runtime.jobmanager import job_events as events
from runtime.jobmanager.checkpoint_history import CheckpointHistory
from runtime.jobmanager.checkpointing import Checkpointing, Generation, acknowledgement, checkpoint_config
from runtime.jobmanager.job import JobCore
from runtime.jobmanager.job_page import JobPage
from runtime.jobmanager.preparation import (
    Outside,
    Restored,
    SourceSplits,
    begin_generation,
    keeps_checkpoints,
    mark_stopped,
    restore,
)
from runtime.jobmanager.query_result import QueryResult
from runtime.jobmanager.rescaling import rescale
from runtime.jobmanager.running_generation import RunningGeneration, Threads
from runtime.jobmanager.savepoints import SavepointOperations
from runtime.jobmanager.services import Background, HelperThread, Services
from runtime.metadata.jobs import JobRecord, NamespaceTakenError
from runtime.protocol import messages
from runtime.protocol.messages import Failure, Message, TaskMetrics, TaskState
from runtime.taskmanager.failures import failure_of

_log = logging.getLogger(__name__)

FENCE_ATTEMPTS = 5
FENCE_RETRY_S = 2.0
_Event = events.JobEvent | tuple[int, checkpoints.CoordinatorEvent]
"""Coordinator events carry their generation: those of an ended one are dropped."""


class JobMaster:
    """The shell of one job. All methods belong to the event loop."""

    def __init__(self, services: Services, record: JobRecord, graph: JobGraph, settings: JobSettings) -> None:
        self.record = record
        self.graph = graph
        self._services = services
        self._settings = settings
        self._core = JobCore(record.job_id, graph, settings.restart, prefers_homes=settings.recovery.from_local)
        self._restarts_before = record.restarts
        self._queue: asyncio.Queue[_Event] = asyncio.Queue()
        self._durable = HelperThread("records")
        self._outside_thread = HelperThread("outside")
        self._threads = Threads(self._durable, self._outside_thread)
        self._outside = Outside(graph, record.job_id, services.records)
        self._prepared: tuple[Restored, dict[str, SourceSplits]] | None = None
        self._running: RunningGeneration | None = None
        self._history = CheckpointHistory()
        self._damaged_files: set[str] = set()
        """Files of checkpoints that tasks have found damaged."""
        self._page = JobPage(self._core)
        self.savepoints = SavepointOperations()
        self._background = Background()
        self._is_rescaling = False
        self._actor: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self.result = QueryResult(graph, self.post) if graph.is_query else None

    @property
    def checkpointing(self) -> Checkpointing | None:
        """While all tasks run."""
        return self._running.checkpoints if self._running is not None else None

    @property
    def job_id(self) -> JobId:
        return self.record.job_id

    # -------------------------------------------------------------------------------------------------- from outside

    def start(self, ending: JobState | None = None) -> None:
        """`ending`: an earlier JobManager was cancelling or failing the job."""
        self.post(events.Started(ending))
        self._actor = asyncio.get_running_loop().create_task(self._run())

    def post(self, event: events.JobEvent) -> None:
        self._queue.put_nowait(event)

    async def wait_ended(self, timeout_ms: int) -> None:
        """Returns when the job is terminal, or the time is over."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._ended.wait()
        except TimeoutError:
            pass  # The caller looks at the status.

    async def suspend(self) -> None:
        """Give the slots back and stop; the next JobManager goes on with the job, unless it has ended."""
        if self._ended.is_set():
            return
        self.post(events.Suspended())
        if self._actor is not None:
            await asyncio.gather(self._actor, return_exceptions=True)
        self._stop()

    async def rescale(self, graph: JobGraph) -> None:
        """See `rescaling.rescale`."""
        if self._is_rescaling:
            raise RescaleRefusedError("the job is being rescaled already")
        self._is_rescaling = True
        try:
            await rescale(self, self._services, self._durable, self._settings.checkpoint.timeout_ms, graph)
        finally:
            self._is_rescaling = False

    def go_on_with(self, graph: JobGraph) -> None:
        """Another graph, durable already: the job restarts with it."""
        self.post(events.GraphReplaced(graph))

    def receive(self, message: Message) -> None:
        """A slot's message about this job. What is of another generation is dropped by the cores."""
        match message:
            case messages.TaskStateChanged(attempt=attempt, state=state, failure=failure):
                if failure is not None and failure.damaged_file:
                    self._damaged_files.add(failure.damaged_file)
                self.post(events.TaskChanged(attempt, state, failure))
                if state is TaskState.FINISHED:
                    self._queue.put_nowait((attempt.generation, checkpoints.TaskFinished(attempt)))
            case messages.TaskInitialized(attempt=attempt, markers=markers):
                self.post(events.TaskRecovered(attempt, markers))
            case messages.LimitReached(attempt=attempt):
                self.post(events.LimitSatisfied(attempt))
            case messages.CheckpointAcknowledged(attempt=attempt):
                self._queue.put_nowait((attempt.generation, acknowledgement(message)))
            case messages.CheckpointDeclined(attempt=attempt, checkpoint_id=number, failure=failure):
                self._queue.put_nowait((attempt.generation, checkpoints.SubtaskDeclined(attempt, number, failure)))
            case messages.CheckpointCommitted(attempt=attempt, checkpoint_id=number):
                self._queue.put_nowait((attempt.generation, checkpoints.SubtaskCommitted(attempt, number)))
            case messages.InputsEnded(attempt=attempt):
                self._queue.put_nowait((attempt.generation, checkpoints.TaskInputsEnded(attempt)))
            case messages.CheckpointRequested(attempt=attempt):
                self._queue.put_nowait((attempt.generation, checkpoints.CheckpointWanted(attempt)))
            case _:
                _log.warning("job %s: unexpected %s", self.job_id, type(message).__name__)

    def report(self, metrics: TaskMetrics) -> None:
        """Figures of one task; kept after the job has ended."""
        self._page.report(metrics)

    def status(self) -> JobStatus:
        config = checkpoint_config(self.graph, self.record, self._settings, self._services.store)
        status = self._page.status(self.record, self._history.summary())
        return msgspec.structs.replace(status, checkpoint_config=config)

    # --------------------------------------------------------------------------------------------------------- actor

    async def _run(self) -> None:
        try:
            while not (self._core.state.terminal or self._core.state is JobState.SUSPENDED):
                event = await self._next_event()
                if isinstance(event, tuple):
                    generation, checkpoint_event = event
                    coordinator = self.checkpointing
                    if coordinator is not None and generation == self.record.generation:
                        await coordinator.handle(checkpoint_event)
                    continue
                if isinstance(event, events.GraphReplaced):
                    self.graph = event.graph
                    self._outside.replace_graph(event.graph)
                for command in self._core.handle(event, monotonic_ms()):
                    await self._perform(command)
                if isinstance(event, events.Suspended):
                    break
        except StaleLeaderError:
            self._services.lost_leadership()
        except Exception as error:
            _log.exception("job %s: the job's actor failed", self.job_id)
            await self._abandon(failure_of(error))

    async def _abandon(self, failure: Failure) -> None:
        """A broken invariant ends this job, not the JobManager. Its checkpoints stay."""
        try:
            self._core.abandon(failure)
            await self._record_state(events.RecordState(JobState.FAILED, failure))
        except Exception:
            _log.exception("job %s: its end could not be recorded", self.job_id)
            self._services.lost_leadership()

    async def _next_event(self) -> _Event:
        """The next from the queue, or a tick of whichever timer is due first."""
        timers: list[tuple[int, _Event]] = []
        if self._core.deadline_ms is not None:
            timers.append((self._core.deadline_ms, events.Ticked()))
        if self.checkpointing is not None and self.checkpointing.deadline_ms is not None:
            timers.append((self.checkpointing.deadline_ms, (self.record.generation, checkpoints.Ticked())))
        if self.result is not None and self.result.deadline_ms is not None:
            timers.append((self.result.deadline_ms, self.result.idle_event))
        if not timers:
            return await self._queue.get()
        due_ms, tick = min(timers, key=lambda timer: timer[0])
        try:
            async with asyncio.timeout(max(0, due_ms - monotonic_ms()) / 1000):
                return await self._queue.get()
        except TimeoutError:
            return tick

    async def _perform(self, command: events.JobCommand) -> None:
        match command:
            case events.RecordState():
                await self._record_state(command)
            case events.RecordFailure():
                self._page.failed(command, self.graph)
            case events.PrepareGeneration():
                await self._begin_generation()
            case events.RequestSlots():
                self._services.slots.request_slots(self.job_id, command)
            case events.WithdrawRequest(number=number):
                self._services.slots.withdraw_request(self.job_id, number)
            case events.EndSlots(slots=slots):
                self._services.slots.return_slots(self.job_id, slots)
            case events.DeployTasks():
                self._deploy(command)
            case events.StartTasks():
                await self._start_tasks(command)
            case events.ReleaseSlots():
                self._end_generation()
            case events.ReportRestart():
                self._page.restarted(command)
            case events.FenceSinks():
                self._background.spawn(self._fence())
            case events.LoseTasks() | events.PrepareRegion() | events.EndSources() | events.CancelTasks():
                if self._running is not None:
                    await self._running.perform(command, self._background, self.record, self.graph)
            case _ as unknown:
                assert_never(unknown)

    async def _record_state(self, command: events.RecordState) -> None:
        now_ms = wall_clock_ms()
        state = command.state
        _log.info("job %s (%s): %s → %s", self.job_id, self.record.name, self.record.state, state)
        self.record = msgspec.structs.replace(
            self.record,
            state=state,
            state_timestamps_ms={**self.record.state_timestamps_ms, state.value: now_ms},
            end_ms=now_ms if state.terminal else -1,
            failure=command.failure or self.record.failure,
            restarts=self._restarts_before + self._core.failover.restarts,
        )
        if command.failure is not None:
            _log.warning("job %s: %s", self.job_id, command.failure.message)
            _log.debug("job %s: %s", self.job_id, command.failure.detail)
        await self._durable.run(self._services.records.update, self.record)
        if state.terminal:
            await self._finish()

    async def _finish(self) -> None:
        """Terminal: the last status is kept, names are free again, checkpoints of a job that failed stay."""
        self._end_generation()
        records, store = self._services.records, self._services.store
        if self._core.state is JobState.FINISHED:
            await self._durable.run(mark_stopped, records, self.job_id)
        self.savepoints.job_ended(self._core.state, self._core.failure or self.record.failure)
        await self._durable.run(records.set_history, self.status())
        for namespace in self.record.namespaces.values():
            await self._durable.run(records.release_namespace, namespace, self.job_id)
        if not keeps_checkpoints(self._core.state, self.graph, self._settings):
            await self._durable.run(store.drop_job, self.job_id)
        self._stop()
        self._ended.set()

    def _stop(self) -> None:
        self._end_generation()
        self._background.cancel()
        self._durable.close()
        self._closing = asyncio.get_running_loop().create_task(self._threads.close_outside(self._outside))

    # -------------------------------------------------------------------------------------------------- a generation

    async def _begin_generation(self) -> None:
        """The record changes here, in the actor, so that no other change of it can be lost; the rest runs beside."""
        try:
            self.record = await self._durable.run(begin_generation, self._services.records, self.record, self.graph)
        except (ConnectorError, NamespaceTakenError) as error:
            self.post(events.PreparationFailed(failure_of(error)))
        else:
            self._background.spawn(self._prepare())

    async def _prepare(self) -> None:
        records, store = self._services.records, self._services.store
        try:
            restored = await self._durable.run(
                restore, records, store, self.record, self.graph, frozenset(self._damaged_files)
            )
            splits = await self._outside_thread.run(self._outside.prepare, self.record, restored)
        except StaleLeaderError:
            self._services.lost_leadership()
            return
        except Exception as error:
            self.post(events.PreparationFailed(failure_of(error)))
            return
        self._prepared = (restored, splits)
        if restored.choice is not None:
            chosen = restored.choice.chosen
            location = store.location(self.job_id, chosen.pointer)
            self._history.restored(chosen.manifest, location, restored.stopped_with)
        self.post(events.GenerationPrepared(self.record.generation, bool(restored.stopped_with)))

    def _deploy(self, command: events.DeployTasks) -> None:
        execution = self._core.execution
        assert execution is not None
        assert self._prepared is not None
        if command.number == 0:
            restored, splits = self._prepared
            self._running = RunningGeneration(
                self._services,
                self._settings,
                Generation(self.record, restored, execution, f"{self.job_id}-g{self.record.generation}"),
                splits,
                self._outside,
                self._threads,
                self._history,
                self.savepoints,
                self._damaged_files,
                self._queue.put_nowait,
            )
        assert self._running is not None
        self._page.deployed(command.attempts)
        self._running.deploy(command.attempts, command.number)

    async def _start_tasks(self, command: events.StartTasks) -> None:
        assert self._running is not None
        if command.number:
            await self._running.start_region(command, self.record)
            return
        self.record = await self._running.start(command, self.record)
        if self.result is not None and self._running.checkpoints is not None:
            assert self._core.execution is not None
            self.result.started(self._core.execution)

    def _end_generation(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None
        self.savepoints.generation_ended()
        if self.result is not None:
            self.result.stopped()
        self._services.slots.release_slots(self.job_id)

    async def _fence(self) -> None:
        """A broker that does not answer holds the end up for some seconds, not for ever: what stays open then ends by
        its own transaction time-out."""
        for attempt in range(FENCE_ATTEMPTS if self.record.generation > 0 else 0):
            try:
                await self._outside_thread.run(self._outside.fence, self.record)
                break
            except StaleLeaderError:
                self._services.lost_leadership()
                return
            except Exception as error:
                _log.warning("job %s: fencing its sinks, attempt %d: %s", self.job_id, attempt + 1, error)
                await asyncio.sleep(FENCE_RETRY_S)
        self.post(events.SinksFenced())
