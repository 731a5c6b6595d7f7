"""One job: its cores run as an actor. Events arrive in one queue; one task handles them and performs the commands in
order, so a durable effect is done before what depends on it. Work that takes long runs beside it and answers with an
event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import assert_never

import msgspec

from connectors.errors import ConnectorError
from planner.ir.job_graph import JobGraph
from runtime.api import JobState, JobStatus, StaleLeaderError, VertexStatus
from runtime.checkpoint import coordination as checkpoints
from runtime.checkpoint.recovery import RestoreRefusedError
from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import AttemptId, JobId
from runtime.job_settings import JobSettings
from runtime.jobmanager import job as core
from runtime.jobmanager.checkpoint_history import CheckpointHistory
from runtime.jobmanager.checkpointing import Checkpointing, Generation, acknowledgement
from runtime.jobmanager.deployment import DeploymentPlan, deployments
from runtime.jobmanager.preparation import (
    Outside,
    Restored,
    SourceSplits,
    begin_generation,
    keeps_checkpoints,
    mark_stopped,
    refuse_rewind,
    restore,
    sinks_of,
)
from runtime.jobmanager.query_result import QueryResult
from runtime.jobmanager.restore_choice import output_would_repeat
from runtime.jobmanager.savepoints import SavepointOperations
from runtime.jobmanager.services import HelperThread, Services
from runtime.jobmanager.split_assigner import SplitAssigner
from runtime.metadata.jobs import JobRecord, NamespaceTakenError
from runtime.protocol import messages
from runtime.protocol.messages import Failure, Message, TaskMetrics, TaskState
from runtime.taskmanager.failures import failure_of

_log = logging.getLogger(__name__)

FENCE_ATTEMPTS = 5
FENCE_RETRY_S = 2.0
_Event = core.JobEvent | tuple[int, checkpoints.CoordinatorEvent]
"""Coordinator events carry their generation: those of an ended one are dropped."""


class JobMaster:
    """The shell of one job. All methods belong to the event loop."""

    def __init__(self, services: Services, record: JobRecord, graph: JobGraph, settings: JobSettings) -> None:
        self.record = record
        self.graph = graph
        self._services = services
        self._settings = settings
        self._core = core.JobCore(record.job_id, graph, settings.restart)
        self._queue: asyncio.Queue[_Event] = asyncio.Queue()
        self._durable = HelperThread("records")
        self._outside_thread = HelperThread("outside")
        self._outside = Outside(graph, record.job_id, services.records)
        self._prepared: tuple[Restored, dict[str, SourceSplits]] | None = None
        self._generation: Generation | None = None
        self._checkpoints: Checkpointing | None = None
        self._history = CheckpointHistory()
        self._damaged_files: set[str] = set()
        """Files of checkpoints that tasks have found damaged."""
        self.savepoints = SavepointOperations()
        self._metrics: dict[AttemptId, TaskMetrics] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._splits: SplitAssigner | None = None
        self._actor: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self.result = QueryResult(graph, self.post) if graph.is_query else None

    @property
    def job_id(self) -> JobId:
        return self.record.job_id

    # -------------------------------------------------------------------------------------------------- from outside

    def start(self, ending: JobState | None = None) -> None:
        """`ending`: an earlier JobManager was cancelling or failing the job."""
        self.post(core.Started(ending))
        self._actor = asyncio.get_running_loop().create_task(self._run())

    def post(self, event: core.JobEvent) -> None:
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
        self.post(core.Suspended())
        if self._actor is not None:
            await asyncio.gather(self._actor, return_exceptions=True)
        self._stop()

    def receive(self, message: Message) -> None:
        """A slot's message about this job. What is of another generation is dropped by the cores."""
        match message:
            case messages.TaskStateChanged(attempt=attempt, state=state, failure=failure):
                if failure is not None and failure.damaged_file:
                    self._damaged_files.add(failure.damaged_file)
                self.post(core.TaskChanged(attempt, state, failure))
                if state is TaskState.FINISHED:
                    self._queue.put_nowait((attempt.generation, checkpoints.TaskFinished(attempt)))
            case messages.TaskInitialized(attempt=attempt, markers=markers):
                self.post(core.TaskRecovered(attempt, markers))
            case messages.LimitReached(attempt=attempt):
                self.post(core.LimitSatisfied(attempt))
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
        if metrics.attempt.generation == self.record.generation:
            self._metrics[metrics.attempt] = metrics

    def status(self) -> JobStatus:
        execution = self._core.execution
        return JobStatus(
            job_id=self.job_id,
            name=self.record.name,
            state=self._core.state,
            start_ms=self.record.submitted_at_ms,
            end_ms=self.record.end_ms,
            state_timestamps_ms=self.record.state_timestamps_ms,
            vertices=tuple(
                VertexStatus(
                    v.id,
                    v.name,
                    v.parallelism,
                    v.max_parallelism,
                    execution.counts(v.id) if execution else {TaskState.CREATED.value: v.parallelism},
                    tuple(metrics for attempt, metrics in sorted(self._metrics.items()) if attempt.vertex_id == v.id),
                )
                for v in self.graph.vertices
            ),
            checkpoints=self._history.summary(),
            restarts=self.record.restarts,
            slots_missing=self._core.slots_missing,
            failure=self._core.failure or self.record.failure,
            generation=self.record.generation,
            is_query=self.graph.is_query,
            restore_notes=self.record.restore_notes,
        )

    # --------------------------------------------------------------------------------------------------------- actor

    async def _run(self) -> None:
        try:
            while not (self._core.state.terminal or self._core.state is JobState.SUSPENDED):
                event = await self._next_event()
                if isinstance(event, tuple):
                    generation, checkpoint_event = event
                    if self._checkpoints is not None and generation == self.record.generation:
                        await self._checkpoints.handle(checkpoint_event)
                    continue
                for command in self._core.handle(event, monotonic_ms()):
                    await self._perform(command)
                if isinstance(event, core.Suspended):
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
            await self._record_state(core.RecordState(JobState.FAILED, failure))
        except Exception:
            _log.exception("job %s: its end could not be recorded", self.job_id)
            self._services.lost_leadership()

    async def _next_event(self) -> _Event:
        """The next from the queue, or a tick of whichever timer is due first."""
        timers: list[tuple[int, _Event]] = []
        if self._core.deadline_ms is not None:
            timers.append((self._core.deadline_ms, core.Ticked()))
        if self._checkpoints is not None and self._checkpoints.deadline_ms is not None:
            timers.append((self._checkpoints.deadline_ms, (self.record.generation, checkpoints.Ticked())))
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

    async def _perform(self, command: core.JobCommand) -> None:
        match command:
            case core.RecordState():
                await self._record_state(command)
            case core.PrepareGeneration():
                await self._begin_generation()
            case core.RequestSlots(group_sizes=sizes):
                self._services.slots.request_slots(self.job_id, sizes)
            case core.DeployTasks():
                self._deploy()
            case core.StartTasks(markers=markers):
                await self._start_tasks(markers)
            case core.EndSources():
                self._send_to_slots(messages.EndSources)
            case core.CancelTasks():
                self._send_to_slots(messages.CancelTasks)
            case core.ReleaseSlots():
                self._end_generation()
            case core.FenceSinks():
                self._spawn(self._fence())
            case _ as unknown:
                assert_never(unknown)

    async def _record_state(self, command: core.RecordState) -> None:
        now_ms = wall_clock_ms()
        state = command.state
        _log.info("job %s (%s): %s → %s", self.job_id, self.record.name, self.record.state, state)
        self.record = msgspec.structs.replace(
            self.record,
            state=state,
            state_timestamps_ms={**self.record.state_timestamps_ms, state.value: now_ms},
            end_ms=now_ms if state.terminal else -1,
            failure=command.failure or self.record.failure,
            restarts=self.record.restarts + (1 if state is JobState.RESTARTING else 0),
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
        for task in self._background:
            task.cancel()
        self._durable.close()
        self._closing = asyncio.get_running_loop().create_task(self._close_outside())

    async def _close_outside(self) -> None:
        try:
            await self._outside_thread.run(self._outside.close)
        except Exception as error:
            _log.warning("job %s: closing a source's enumerator: %s", self.job_id, error)
        self._outside_thread.close()

    # -------------------------------------------------------------------------------------------------- a generation

    async def _begin_generation(self) -> None:
        """The record changes here, in the actor, so that no other change of it can be lost; the rest runs beside."""
        try:
            self.record = await self._durable.run(begin_generation, self._services.records, self.record, self.graph)
        except (ConnectorError, NamespaceTakenError) as error:
            self.post(core.PreparationFailed(failure_of(error)))
        else:
            self._spawn(self._prepare())

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
            self.post(core.PreparationFailed(failure_of(error)))
            return
        self._prepared = (restored, splits)
        if restored.choice is not None:
            chosen = restored.choice.chosen
            location = store.location(self.job_id, chosen.pointer)
            self._history.restored(chosen.manifest, location, restored.stopped_with)
        self.post(core.GenerationPrepared(self.record.generation, bool(restored.stopped_with)))

    def _deploy(self) -> None:
        execution = self._core.execution
        assert execution is not None
        assert self._prepared is not None
        restored, _ = self._prepared
        self._metrics = {}
        self._generation = Generation(self.record, restored, execution, f"{self.job_id}-g{self.record.generation}")
        plan = DeploymentPlan(
            restored.checkpoint_directory,
            self._generation.incarnation,
            {sink.uid: self.record.namespaces.get(sink.uid, "") for sink, _ in sinks_of(self.graph)},
            self.graph.settings,
            restored.plan,
        )
        slots = {slot.slot_id: slot for slot in execution.slots}
        for deployment in deployments(execution, plan):
            self._services.slots.send(slots[deployment.slot_id], deployment)

    async def _start_tasks(self, markers: dict[str, dict[int, int]]) -> None:
        """All tasks are initialized. A marker above the restored checkpoint means that output beyond it is already
        visible: going on would repeat it. Markers that earlier jobs left under the same namespace do not count, but
        ids begin above them."""
        generation, prepared = self._generation, self._prepared
        assert generation is not None
        assert prepared is not None
        restored_id = generation.restored.plan.checkpoint_id
        highest = max((m for owners in markers.values() for m in owners.values()), default=0)
        records = self._services.records
        try:
            refuse_rewind(self.record, highest, restored_id)
        except RestoreRefusedError as error:
            self.post(core.GenerationFailed(failure_of(error)))
            return
        if self.record.marker_floor is None:
            self.record = msgspec.structs.replace(self.record, marker_floor=highest)
            await self._durable.run(records.update, self.record)
        if not self._check_markers(highest, generation.restored):
            return
        next_id = max(await self._durable.run(records.next_checkpoint_id, self.job_id), restored_id + 1, highest + 1)
        await self._durable.run(records.set_next_checkpoint_id, self.job_id, next_id)
        number = self.record.generation
        self._checkpoints = Checkpointing(
            self._services,
            generation,
            self._settings,
            next_id,
            self._durable,
            self._history,
            self.savepoints,
            post=lambda event: self._queue.put_nowait((number, event)),
            fail=lambda failure: self.post(core.GenerationFailed(failure)),
        )
        self.savepoints.generation_started(lambda wanted: self._queue.put_nowait((number, wanted)))
        self._splits = SplitAssigner(
            self._services.slots,
            generation.execution,
            prepared[1],
            self._outside,
            self._outside_thread,
            fail=lambda failure: self.post(core.GenerationFailed(failure)),
        )
        self._splits.assign_first()
        self._send_to_slots(messages.StartTasks)
        self._splits.start_discovery()
        if self.result is not None:
            self.result.started(generation.execution)

    def _check_markers(self, highest: int, restored: Restored) -> bool:
        restored_id = restored.plan.checkpoint_id
        if highest <= max(restored_id, self.record.marker_floor or 0):
            return True
        if restored.choice is None or not restored.choice.damage:
            self.post(core.GenerationFailed(_marker_ahead(highest, restored_id)))
            return False
        location = self._services.store.location(self.job_id, restored.choice.chosen.pointer)
        refusal = output_would_repeat(restored.choice.damage, highest, restored_id, location)
        if self._settings.recovery.accept_duplicates:
            _log.warning("job %s: %s; accepted by the job's settings", self.job_id, refusal)
            return True
        self.post(core.GenerationFailed(failure_of(refusal)))
        return False

    def _end_generation(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._checkpoints = None
        self.savepoints.generation_ended()
        self._generation = None
        if self._splits is not None:
            self._splits.stop()
            self._splits = None
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
            except Exception as error:
                _log.warning("job %s: fencing its sinks, attempt %d: %s", self.job_id, attempt + 1, error)
                await asyncio.sleep(FENCE_RETRY_S)
        self.post(core.SinksFenced())

    def _send_to_slots(
        self, kind: type[messages.StartTasks] | type[messages.EndSources] | type[messages.CancelTasks]
    ) -> None:
        execution = self._core.execution
        for slot in execution.slots if execution is not None else ():
            self._services.slots.send(slot, kind(slot.slot_id, self.job_id, self.record.generation))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _marker_ahead(marker: int, restored_id: int) -> Failure:
    return Failure(
        f"the sink has committed up to checkpoint {marker}, but the job would go on from checkpoint {restored_id}: "
        "its output would be repeated",
        "user",
        retry=False,
        hint="Another job wrote under the same transactional id prefix, or the job's checkpoints were replaced.",
    )
