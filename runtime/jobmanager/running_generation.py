"""The tasks of one generation as the job's shell deals with them: deployment, start, and restarts of regions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.api import StaleLeaderError
from runtime.checkpoint import coordination as checkpoints
from runtime.checkpoint.numbering import first_checkpoint_id, is_ahead
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.ids import AttemptId, JobId, SlotId
from runtime.job_settings import JobSettings
from runtime.jobmanager import job_events as events
from runtime.jobmanager.checkpoint_history import CheckpointHistory
from runtime.jobmanager.checkpointing import Checkpointing, Generation, task_role
from runtime.jobmanager.deployment import DeploymentPlan, deployments
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.preparation import Outside, Restored, SourceSplits, refuse_rewind, restore_again, sinks_of
from runtime.jobmanager.restore_choice import output_would_repeat
from runtime.jobmanager.savepoints import SavepointOperations
from runtime.jobmanager.scheduler import SlotInfo
from runtime.jobmanager.services import Background, HelperThread, Services
from runtime.jobmanager.split_assigner import SplitAssigner
from runtime.metadata.jobs import JobRecord
from runtime.protocol.messages import CancelTasks, EndSources, Failure, StartTasks, ToSlot
from runtime.taskmanager.failures import failure_of

_log = logging.getLogger(__name__)


class Threads(msgspec.Struct, frozen=True):
    """A job's: for its records and files, and for the systems that it reads and writes."""

    durable: HelperThread
    outside: HelperThread

    async def close_outside(self, outside: Outside) -> None:
        try:
            await self.outside.run(outside.close)
        except Exception as error:
            _log.warning("closing a source's enumerator: %s", error)
        self.outside.close()


Poster = Callable[[events.JobEvent | tuple[int, checkpoints.CoordinatorEvent]], None]
"""The job's queue. Coordinator events carry their generation."""


class RunningGeneration:
    """From deployment to `close`. Belongs to the job's actor, but for `_prepare_region`, which runs beside it."""

    def __init__(
        self,
        services: Services,
        settings: JobSettings,
        generation: Generation,
        splits: dict[str, SourceSplits],
        outside: Outside,
        threads: Threads,
        history: CheckpointHistory,
        savepoints: SavepointOperations,
        damaged_files: Collection[str],
        post: Poster,
    ) -> None:
        """`damaged_files`: those of checkpoints that tasks have found damaged so far; the caller adds to it."""
        self._services = services
        self._settings = settings
        self._generation = generation
        self._threads = threads
        self._history = history
        self._savepoints = savepoints
        self._damaged_files = damaged_files
        self._post = post
        self._restored: dict[int, Restored] = {}
        """What restarts of regions that are under way restore."""
        self.checkpoints: Checkpointing | None = None
        self._splits = SplitAssigner(
            services.slots, generation.execution, splits, outside, threads.outside, fail=self._fail
        )

    @property
    def number(self) -> int:
        return self._generation.execution.generation

    @property
    def _job_id(self) -> JobId:
        return self._generation.execution.job_id

    def deploy(self, attempts: Sequence[AttemptId], restart: int = 0) -> None:
        """All tasks, or those of a restart of regions, with what they restore."""
        generation, execution = self._generation, self._generation.execution
        restored = self._restored[restart] if restart else generation.restored
        namespaces = generation.record.namespaces
        plan = DeploymentPlan(
            restored.checkpoint_directory,
            generation.incarnation,
            {sink.uid: namespaces.get(sink.uid, "") for sink, _ in sinks_of(execution.graph)},
            execution.graph.settings,
            restored.plan,
        )
        slots = {slot.slot_id: slot for slot in execution.slots}
        for deployment in deployments(execution, plan, attempts):
            self._services.slots.send(slots[deployment.slot_id], deployment)

    # ------------------------------------------------------------------------------------------------------- start

    async def start(self, command: events.StartTasks, record: JobRecord) -> JobRecord:
        """All tasks of the generation are initialized. Returns the record, which may have changed."""
        restored = self._generation.restored
        restored_id = restored.plan.checkpoint_id
        highest = _highest(command.markers)
        records = self._services.records
        try:
            refuse_rewind(record, highest, restored_id)
        except RestoreRefusedError as error:
            self._fail(failure_of(error))
            return record
        if record.marker_floor is None:
            record = msgspec.structs.replace(record, marker_floor=highest)
            await self._threads.durable.run(records.update, record)
        if not self._check_markers(command, restored, record):
            return record
        reserved = await self._threads.durable.run(records.next_checkpoint_id, self._job_id)
        next_id = first_checkpoint_id(reserved, restored_id, highest)
        await self._threads.durable.run(records.set_next_checkpoint_id, self._job_id, next_id)
        number = self.number
        self.checkpoints = Checkpointing(
            self._services,
            self._generation,
            self._settings,
            next_id,
            self._threads.durable,
            self._history,
            self._savepoints,
            post=lambda event: self._post((number, event)),
            fail=self._fail,
        )
        self._savepoints.generation_started(lambda wanted: self._post((number, wanted)))
        self._go(command.attempts, restored)
        self._splits.start_discovery()
        return record

    def _check_markers(self, command: events.StartTasks, restored: Restored, record: JobRecord) -> bool:
        """A marker above the restored checkpoint means that output beyond it is already visible: going on would repeat
        it. Markers that earlier jobs left under the same namespace do not count, but ids begin above them. Where a
        damaged checkpoint is the reason, the user may have accepted the repetition."""
        restored_id, highest = restored.plan.checkpoint_id, _highest(command.markers)
        if not is_ahead(highest, restored_id, record.marker_floor):
            return True
        if restored.choice is None or not restored.choice.damage:
            self._fail(_marker_ahead(highest, restored_id))
            return False
        location = self._services.store.location(self._job_id, restored.choice.chosen.pointer)
        refusal = output_would_repeat(restored.choice.damage, highest, restored_id, location)
        if self._settings.recovery.accept_duplicates:
            _log.warning("job %s: %s; accepted by the job's settings", self._job_id, refusal)
            return True
        self._fail(failure_of(refusal))
        return False

    def _go(self, attempts: Collection[AttemptId], restored: Restored) -> None:
        self._splits.assign(attempts, restored.plan)
        self._send_to(attempts, lambda slot, here: StartTasks(slot.slot_id, self._job_id, self.number, here))

    # ----------------------------------------------------------------------------------------- restarts of regions

    async def _lose(self, attempts: Sequence[AttemptId]) -> None:
        self._splits.lost(attempts)
        if self.checkpoints is not None:
            await self.checkpoints.handle(checkpoints.TasksLost(tuple(attempts)))

    async def _prepare_region(self, restart: int, record: JobRecord, graph: JobGraph) -> None:
        """Answers with an event. A checkpoint that is being stored may be the one to restore, so its outcome is
        awaited."""
        try:
            if self.checkpoints is not None:
                await self.checkpoints.settled()
            restored = await self._threads.durable.run(
                restore_again,
                self._services.records,
                self._services.store,
                record,
                graph,
                self._generation.restored,
                frozenset(self._damaged_files),
            )
        except StaleLeaderError:
            self._services.lost_leadership()
            return
        except Exception as error:
            self._post(events.RegionPreparationFailed(restart, failure_of(error)))
            return
        self._restored[restart] = restored
        self._post(events.RegionPrepared(restart, bool(restored.stopped_with)))

    async def start_region(self, command: events.StartTasks, record: JobRecord) -> None:
        """All tasks of the regions are initialized: their sinks have committed what the checkpoint holds."""
        restored = self._restored.pop(command.number)
        if not self._check_markers(command, restored, record):
            return
        if self.checkpoints is not None:
            roles = tuple(task_role(self._generation.graph, attempt) for attempt in command.attempts)
            await self.checkpoints.handle(checkpoints.TasksReplaced(roles))
        self._go(command.attempts, restored)

    # -------------------------------------------------------------------------------------------------------- slots

    async def perform(
        self,
        command: events.LoseTasks | events.PrepareRegion | events.EndSources | events.CancelTasks,
        background: Background,
        record: JobRecord,
        graph: JobGraph,
    ) -> None:
        match command:
            case events.LoseTasks(attempts=attempts):
                await self._lose(attempts)
            case events.PrepareRegion(number=restart):
                background.spawn(self._prepare_region(restart, record, graph))
            case events.EndSources(attempts=attempts):
                self._send_to(attempts, lambda slot, here: EndSources(slot.slot_id, self._job_id, self.number, here))
            case events.CancelTasks(attempts=attempts):
                self._send_to(attempts, lambda slot, here: CancelTasks(slot.slot_id, self._job_id, self.number, here))

    def _send_to(
        self, attempts: Collection[AttemptId], message: Callable[[SlotInfo, tuple[AttemptId, ...]], ToSlot]
    ) -> None:
        """One message to each slot that has some of them."""
        execution: ExecutionGraph = self._generation.execution
        slots: dict[SlotId, SlotInfo] = {}
        here: dict[SlotId, list[AttemptId]] = {}
        for attempt in attempts:
            slot = execution.slot_at(execution.place(attempt.key))
            if slot is not None:
                slots[slot.slot_id] = slot
                here.setdefault(slot.slot_id, []).append(attempt)
        for slot_id, slot in slots.items():
            self._services.slots.send(slot, message(slot, tuple(here[slot_id])))

    def close(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.close()
        self._splits.stop()

    def _fail(self, failure: Failure) -> None:
        self._post(events.GenerationFailed(failure))


def _highest(markers: dict[str, dict[int, int]]) -> int:
    return max((marker for owners in markers.values() for marker in owners.values()), default=0)


def _marker_ahead(marker: int, restored_id: int) -> Failure:
    return Failure(
        f"the sink has committed up to checkpoint {marker}, but the job would go on from checkpoint {restored_id}: "
        "its output would be repeated",
        "user",
        retry=False,
        hint="Another job wrote under the same transactional id prefix, or the job's checkpoints were replaced.",
    )
