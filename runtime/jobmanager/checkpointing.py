"""The shell of the checkpoint coordinator: one generation's barriers, manifests, pointer and retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import assert_never

import msgspec

from connectors.api import CheckpointFiles
from planner.ir import codec
from planner.ir.job_graph import JobGraph
from planner.ir.operators import Sink
from runtime.api import CheckpointSummary, StaleLeaderError
from runtime.checkpoint import coordinator as core
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.identity import operator_record
from runtime.checkpoint.manifest import (
    CheckpointCounts,
    CheckpointManifest,
    CheckpointPointer,
    SinkRecord,
    VertexRecord,
)
from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import AttemptId
from runtime.job_settings import JobSettings
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.preparation import Restored
from runtime.jobmanager.savepoints import SavepointOperations
from runtime.jobmanager.services import HelperThread, Services
from runtime.metadata.jobs import JobRecord
from runtime.protocol.messages import AbortCheckpoint, CommitCheckpoint, EndSources, Failure, TriggerCheckpoint
from runtime.taskmanager.failures import failure_of

_log = logging.getLogger(__name__)


class Generation(msgspec.Struct, frozen=True):
    """What is fixed while a generation runs."""

    record: JobRecord
    restored: Restored
    execution: ExecutionGraph
    incarnation: str

    @property
    def graph(self) -> JobGraph:
        return self.execution.graph


class CheckpointHistory:
    """Figures over all generations of a job; manifests carry them over to the next JobManager."""

    def __init__(self) -> None:
        self.triggered = 0
        self.completed = 0
        self.failed = 0
        self.latest = CheckpointSummary()

    def restored(self, pointer: CheckpointPointer, manifest: CheckpointManifest, files: CheckpointFiles) -> None:
        """A generation starts from this checkpoint: what an earlier JobManager completed is known from it."""
        own = manifest.generation != savepoints.IMPORTED_GENERATION
        if own and self.latest.latest_completed_id < manifest.checkpoint_id:
            self.latest = CheckpointSummary(
                latest_completed_id=manifest.checkpoint_id,
                latest_bytes=manifest.state_bytes,
                latest_path=files.locate(pointer.path),
            )
            counts = manifest.counts
            self.triggered, self.completed, self.failed = counts.triggered, counts.completed, counts.failed
        self.latest = msgspec.structs.replace(self.latest, restored_id=manifest.checkpoint_id)
        if pointer.stopped_with:
            self.savepoint(manifest, pointer.stopped_with)

    def savepoint(self, manifest: CheckpointManifest, location: str) -> None:
        self.latest = msgspec.structs.replace(
            self.latest,
            latest_savepoint_id=manifest.checkpoint_id,
            latest_savepoint_path=location,
            latest_savepoint_at_ms=wall_clock_ms(),
        )

    def summary(self, in_progress: int) -> CheckpointSummary:
        return msgspec.structs.replace(
            self.latest,
            triggered=self.triggered,
            completed=self.completed,
            failed=self.failed,
            in_progress=in_progress,
        )


class Checkpointing:
    """Drives a coordinator. `handle` is called by the job's actor alone; effects that take long run beside it and
    come back through `post`. `durable` is the job's thread for records and files: what an ended generation still
    stores there is finished before the next one reads the pointer."""

    def __init__(
        self,
        services: Services,
        generation: Generation,
        settings: JobSettings,
        next_checkpoint_id: int,
        durable: HelperThread,
        history: CheckpointHistory,
        operations: SavepointOperations,
        post: Callable[[core.CoordinatorEvent], None],
        fail: Callable[[Failure], None],
    ) -> None:
        self._services = services
        self._generation = generation
        self._settings = settings
        self._durable = durable
        self._history = history
        self._operations = operations
        self._locations: dict[str, str] = {}
        """Savepoints of this generation by trigger: their directories."""
        self._closed = False
        self._post = post
        self._fail = fail
        self._pointer = generation.restored.pointer
        manifest = generation.restored.manifest
        self._verified = {handle.path for handle in manifest.files} if manifest is not None else set()
        self._retained = [manifest] if manifest is not None else []
        self._background: set[asyncio.Task[None]] = set()
        self._storing: asyncio.Task[None] | None = None
        """The latest attempt to move the pointer."""
        checkpoint = settings.checkpoint
        if generation.graph.is_query:
            checkpoint = msgspec.structs.replace(checkpoint, interval_ms=0)
        self._core = core.CheckpointCoordinator(
            checkpoint,
            [task_role(generation.graph, attempt) for attempt in generation.execution.attempts],
            next_checkpoint_id,
            dict(generation.restored.plan.floors),
            monotonic_ms(),
        )

    @property
    def deadline_ms(self) -> int | None:
        return self._core.deadline_ms

    @property
    def in_progress(self) -> int:
        return 0 if self._core.phase in (core.Phase.IDLE, core.Phase.STOPPED) else 1

    def close(self) -> None:
        """The generation has ended: what it has not begun to store is not stored any more."""
        self._closed = True

    async def settled(self) -> None:
        """Returns when no store operation that moves the pointer is under way: what the records say of it then is what
        a restarting region restores. After `TasksLost` none begins until `TasksReplaced`."""
        if self._storing is not None:
            await asyncio.wait((self._storing,))

    async def handle(self, event: core.CoordinatorEvent) -> None:
        """One event; its commands are performed in order. Raises StaleLeaderError."""
        for command in self._core.handle(event, monotonic_ms()):
            await self._perform(command)

    async def _perform(self, command: core.CoordinatorCommand) -> None:
        execution = self._generation.execution
        match command:
            case core.ReserveCheckpointId(checkpoint_id=checkpoint_id):
                self._history.triggered += 1
                reserve = self._services.records.set_next_checkpoint_id
                await self._durable.run(reserve, execution.job_id, checkpoint_id + 1)
            case core.SendBarriers():
                self._send_barriers(command)
            case core.EndSources():
                for slot in execution.slots:
                    self._services.slots.send(slot, EndSources(slot.slot_id, execution.job_id, execution.generation))
            case core.StoreCheckpoint():
                storing = self._spawn(self._store(command))
                if command.savepoint is None or command.savepoint.stop:
                    self._storing = storing
            case core.SendCommit(checkpoint_id=checkpoint_id):
                for slot in execution.slots:
                    commit = CommitCheckpoint(slot.slot_id, execution.job_id, execution.generation, checkpoint_id)
                    self._services.slots.send(slot, commit)
            case core.SendAbort(checkpoint_id=checkpoint_id, reason=reason):
                self._history.failed += 1
                _log.warning("job %s: checkpoint %d failed: %s", execution.job_id, checkpoint_id, reason)
                for slot in execution.slots:
                    abort = AbortCheckpoint(slot.slot_id, execution.job_id, execution.generation, checkpoint_id)
                    self._services.slots.send(slot, abort)
            case core.CheckpointCompleted():
                self._completed(command)
            case core.SavepointTaken(wanted=wanted):
                self._savepoint_taken(wanted)
            case core.SavepointFailed(trigger_id=trigger_id, failure=failure):
                _log.warning("job %s: savepoint failed: %s", execution.job_id, failure.message)
                self._operations.failed(trigger_id, failure)
            case core.FailJob(failure=failure):
                self._fail(failure)
            case core.Ignored(reason=reason):
                _log.debug("job %s: %s", execution.job_id, reason)
            case _ as unknown:
                assert_never(unknown)

    def _send_barriers(self, barriers: core.SendBarriers) -> None:
        execution = self._generation.execution
        for slot in execution.slots:
            here = tuple(a for a in barriers.attempts if execution.slot(a).slot_id == slot.slot_id)
            if here:
                trigger = TriggerCheckpoint(
                    slot.slot_id,
                    execution.job_id,
                    execution.generation,
                    barriers.checkpoint_id,
                    here,
                    barriers.stop,
                    barriers.aligned_timeout_ms,
                )
                self._services.slots.send(slot, trigger)

    # ----------------------------------------------------------------------------------------------------- storing

    async def _store(self, command: core.StoreCheckpoint) -> None:
        manifest = self._manifest(command)
        location = ""
        try:
            if command.savepoint is not None:
                target = command.savepoint.directory
                location = await asyncio.to_thread(savepoints.write, self._services.store, manifest, target)
            if self._closed:
                # The next generation may have read the pointer by now: it must not move any more.
                savepoints.discard(location)
                return
            if command.savepoint is not None and not command.savepoint.stop:
                self._savepoint_stored(manifest, command.savepoint, location)
                return
            if not self._generation.graph.is_query:
                # What the job keeps of a savepoint for itself is a checkpoint like any other.
                own = msgspec.structs.replace(manifest, is_savepoint=False)
                self._pointer = await self._durable.run(self._store_durably, own, self._pointer, location)
                self._verified.update(handle.path for handle in manifest.files)
        except StaleLeaderError:
            self._services.lost_leadership()
        except Exception as error:
            if location:
                savepoints.discard(location)
            failure = failure_of(error)
            message = f"checkpoint {command.checkpoint_id} could not be stored: {failure.message}"
            self._post(core.StoreFailed(command.checkpoint_id, msgspec.structs.replace(failure, message=message)))
        else:
            self._retained.append(manifest)
            path = self._pointer.path if self._pointer is not None else ""
            self._history.latest = CheckpointSummary(
                latest_completed_id=manifest.checkpoint_id,
                latest_completed_at_ms=wall_clock_ms(),
                latest_duration_ms=float(monotonic_ms() - command.triggered_at_ms),
                latest_bytes=manifest.state_bytes,
                latest_path=self._services.store.files(manifest.job_id).locate(path) if path else "",
                restored_id=manifest.restored_id,
                latest_savepoint_id=self._history.latest.latest_savepoint_id,
                latest_savepoint_path=self._history.latest.latest_savepoint_path,
                latest_savepoint_at_ms=self._history.latest.latest_savepoint_at_ms,
            )
            if command.savepoint is not None:
                self._note_savepoint(manifest, command.savepoint, location)
            self._post(core.CheckpointStored(command.checkpoint_id))

    def _savepoint_stored(self, manifest: CheckpointManifest, wanted: core.SavepointWanted, location: str) -> None:
        self._note_savepoint(manifest, wanted, location)
        self._post(core.CheckpointStored(manifest.checkpoint_id))

    def _note_savepoint(self, manifest: CheckpointManifest, wanted: core.SavepointWanted, location: str) -> None:
        self._locations[wanted.trigger_id] = location
        self._history.savepoint(manifest, location)
        self._operations.pointed_to(wanted.trigger_id, location)

    def _savepoint_taken(self, wanted: core.SavepointWanted) -> None:
        location = self._locations[wanted.trigger_id]
        _log.info("job %s: savepoint at %s", self._generation.record.job_id, location)
        if not wanted.stop:
            self._history.completed += 1
            self._operations.taken(wanted.trigger_id)

    def _store_durably(
        self, manifest: CheckpointManifest, old: CheckpointPointer | None, stopped_with: str
    ) -> CheckpointPointer:
        """Files verified → manifest durable → pointer moved. When the move itself fails with anything but a refusal,
        the pointer is read back: what it says is the outcome."""
        services = self._services
        services.store.check(manifest.job_id, [s for s in manifest.files if s.path not in self._verified])
        new = msgspec.structs.replace(services.store.write(manifest), stopped_with=stopped_with)
        try:
            services.records.move_pointer(manifest.job_id, old, new)
        except StaleLeaderError:
            raise
        except Exception:
            if services.records.pointer(manifest.job_id) != new:
                raise
        return new

    def _manifest(self, command: core.StoreCheckpoint) -> CheckpointManifest:
        generation = self._generation
        record = generation.record
        return CheckpointManifest(
            job_id=record.job_id,
            generation=record.generation,
            checkpoint_id=command.checkpoint_id,
            incarnation=generation.incarnation,
            parent_id=self._pointer.checkpoint_id if self._pointer is not None else 0,
            restored_id=generation.restored.plan.checkpoint_id,
            graph_digest=codec.digest(generation.graph),
            triggered_at_ms=wall_clock_ms() - (monotonic_ms() - command.triggered_at_ms),
            vertices=tuple(
                VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
                for v in generation.graph.vertices
            ),
            snapshots=command.snapshots,
            sinks=tuple(
                SinkRecord(
                    uid,
                    namespace,
                    record.owner_counts[uid],
                    {owner: floor for (sink, owner), floor in command.floors.items() if sink == uid},
                )
                for uid, namespace in record.namespaces.items()
            ),
            fingerprints=generation.graph.fingerprints,
            counts=CheckpointCounts(self._history.triggered, self._history.completed + 1, self._history.failed),
            operators=tuple(operator_record(o) for v in generation.graph.vertices for o in v.operators),
            is_savepoint=command.savepoint is not None,
            drained=command.savepoint is not None and command.savepoint.drain,
        )

    # --------------------------------------------------------------------------------------------------- retention

    def _completed(self, command: core.CheckpointCompleted) -> None:
        self._history.completed += 1
        _log.info(
            "job %s: checkpoint %d completed in %d ms",
            self._generation.record.job_id,
            command.checkpoint_id,
            command.duration_ms,
        )
        if self._generation.graph.is_query:
            self._retained = []
            return
        keep = self._settings.checkpoint.retained_count
        dropped, self._retained = self._retained[:-keep], self._retained[-keep:]
        if dropped:
            self._spawn(self._remove(dropped, list(self._retained)))

    async def _remove(self, dropped: list[CheckpointManifest], retained: list[CheckpointManifest]) -> None:
        for manifest in dropped:
            try:
                await self._durable.run(self._services.store.remove, manifest, retained)
            except OSError as error:
                # The next generation sweeps what is left.
                _log.warning("checkpoint %d could not be removed: %s", manifest.checkpoint_id, error)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def task_role(graph: JobGraph, attempt: AttemptId) -> core.TaskRole:
    """What the coordinator is told of an attempt."""
    vertex = graph.vertex(attempt.vertex_id)
    return core.TaskRole(
        attempt,
        injects=not graph.inputs(vertex.id),
        commits=any(isinstance(operator, Sink) for operator in vertex.operators),
    )
