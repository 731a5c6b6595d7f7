"""The shell of the checkpoint coordinator: one generation's barriers, manifests, pointer and retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import assert_never

import msgspec

from planner.ir import codec
from planner.ir.job_graph import JobGraph
from planner.ir.operators import Sink
from runtime.api import CheckpointConfig, StaleLeaderError
from runtime.checkpoint import coordination as core
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.coordinator import CheckpointCoordinator
from runtime.checkpoint.identity import operator_record
from runtime.checkpoint.manifest import (
    CheckpointCounts,
    CheckpointManifest,
    CheckpointPointer,
    SinkRecord,
    VertexRecord,
)
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore
from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import AttemptId
from runtime.job_settings import DEFAULT_STATE_BACKEND, STATE_BACKEND, CheckpointSettings, JobSettings
from runtime.jobmanager.checkpoint_history import CheckpointHistory
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.preparation import Restored
from runtime.jobmanager.restore_choice import RetainedCheckpoint
from runtime.jobmanager.savepoints import SavepointOperations
from runtime.jobmanager.services import HelperThread, Services
from runtime.metadata.jobs import JobRecord
from runtime.protocol.messages import (
    AbortCheckpoint,
    CheckpointAcknowledged,
    CommitCheckpoint,
    EndSources,
    Failure,
    TaskState,
    TriggerCheckpoint,
)
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
        restored = generation.restored
        self._pointer = restored.pointer
        """As it is in the records; what is restored may be older, if that one is damaged."""
        self._retained = [] if restored.choice is None else [*restored.choice.earlier, restored.choice.chosen]
        """Oldest first."""
        self._known_files: set[str] = set().union(*(retained.manifest.paths for retained in self._retained))
        """Files that retained checkpoints name."""
        self._background: set[asyncio.Task[None]] = set()
        self._storing: asyncio.Task[None] | None = None
        """The latest attempt to move the pointer."""
        self._may_store = asyncio.Event()
        self._may_store.set()
        self._core = CheckpointCoordinator(
            effective_settings(settings, generation.graph, generation.record),
            [task_role(generation.graph, attempt) for attempt in generation.execution.attempts],
            next_checkpoint_id,
            dict(restored.plan.floors),
            monotonic_ms(),
        )

    @property
    def deadline_ms(self) -> int | None:
        return self._core.deadline_ms

    def close(self) -> None:
        """The generation has ended: what it has not begun to store is not stored any more."""
        self._closed = True
        self._history.generation_ended()

    async def settled(self) -> None:
        """Returns when no store operation that moves the pointer is under way: what the records say of it then is what
        a restarting region restores. After `TasksLost` none begins until `TasksReplaced`."""
        if self._storing is not None:
            await asyncio.wait((self._storing,))

    def ask(self) -> None:
        """For a checkpoint soon, in place of a task that would."""
        execution = self._generation.execution
        asking = next((a for a in execution.attempts if execution.state(a) is TaskState.RUNNING), None)
        if asking is not None:
            self._post(core.CheckpointWanted(asking))

    def hold(self) -> None:
        """No store operation begins until `release`."""
        self._may_store.clear()

    def release(self) -> None:
        self._may_store.set()

    async def handle(self, event: core.CoordinatorEvent) -> None:
        """One event; its commands are performed in order. Raises StaleLeaderError."""
        if isinstance(event, core.SubtaskAcked):
            self._history.acknowledged(event, self._known_files)
        for command in self._core.handle(event, monotonic_ms()):
            await self._perform(command)

    async def _perform(self, command: core.CoordinatorCommand) -> None:
        execution = self._generation.execution
        match command:
            case core.ReserveCheckpointId(checkpoint_id=checkpoint_id, savepoint=savepoint):
                self._history.triggered(checkpoint_id, len(execution.attempts), savepoint)
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
                self._history.failed(checkpoint_id, reason)
                self._spawn(self._discard(checkpoint_id, command.snapshots, with_manifest=True))
                _log.warning("job %s: checkpoint %d failed: %s", execution.job_id, checkpoint_id, reason)
                for slot in execution.slots:
                    abort = AbortCheckpoint(slot.slot_id, execution.job_id, execution.generation, checkpoint_id)
                    self._services.slots.send(slot, abort)
            case core.DiscardSnapshots(checkpoint_id=checkpoint_id, snapshots=snapshots):
                self._spawn(self._discard(checkpoint_id, snapshots))
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
                    stop=barriers.stop,
                    full=barriers.full,
                    aligned_timeout_ms=barriers.aligned_timeout_ms,
                    committed_id=barriers.committed_id,
                )
                self._services.slots.send(slot, trigger)

    # ----------------------------------------------------------------------------------------------------- storing

    async def _store(self, command: core.StoreCheckpoint) -> None:
        await self._may_store.wait()
        manifest = self._manifest(command)
        location = ""
        try:
            if command.savepoint is not None:
                target = command.savepoint.directory
                location = await asyncio.to_thread(savepoints.write, self._services.store, manifest, target)
                entry = savepoints.entry(location, manifest, command.savepoint.stop, wall_clock_ms())
                await self._durable.run(self._services.records.add_savepoint, manifest.job_id, entry)
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
        except StaleLeaderError:
            self._services.lost_leadership()
        except Exception as error:
            if location:
                savepoints.discard(location)
            failure = failure_of(error)
            message = f"checkpoint {command.checkpoint_id} could not be stored: {failure.message}"
            self._post(core.StoreFailed(command.checkpoint_id, msgspec.structs.replace(failure, message=message)))
        else:
            self._stored(manifest, monotonic_ms() - command.triggered_at_ms)
            if command.savepoint is not None:
                self._note_savepoint(manifest, command.savepoint, location)
            self._post(core.CheckpointStored(command.checkpoint_id))

    def _stored(self, manifest: CheckpointManifest, duration_ms: int) -> None:
        path = ""
        if self._pointer is not None and not self._generation.graph.is_query:
            own = msgspec.structs.replace(self._pointer, earlier=(), stopped_with="")
            self._retained.append(RetainedCheckpoint(own, manifest))
            self._known_files = self._known_files | manifest.paths
            path = self._services.store.location(manifest.job_id, self._pointer)
        self._history.stored(manifest, path, duration_ms)

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
            self._history.completed()
            self._operations.taken(wanted.trigger_id)

    def _store_durably(
        self, manifest: CheckpointManifest, old: CheckpointPointer | None, stopped_with: str
    ) -> CheckpointPointer:
        """Files looked at → manifest durable → pointer moved. When the move itself fails with anything but a refusal,
        the pointer is read back: what it says is the outcome. Files of earlier checkpoints must be those that the
        retained ones name: others may have been removed already."""
        services = self._services
        fresh = [handle for handle in manifest.files if handle.path not in self._known_files]
        services.store.check(manifest.job_id, fresh)
        new = msgspec.structs.replace(
            services.store.write(manifest),
            stopped_with=stopped_with,
            earlier=tuple(retained.pointer for retained in self._retained),
        )
        try:
            services.records.move_pointer(manifest.job_id, old, new)
        except StaleLeaderError:
            raise
        except Exception:
            if not self._has_moved(new):
                raise
        return new

    def _has_moved(self, new: CheckpointPointer) -> bool:
        try:
            return self._services.records.pointer(self._generation.record.job_id) == new
        except Exception as error:
            raise StaleLeaderError("whether the checkpoint pointer has moved cannot be found out") from error

    def _manifest(self, command: core.StoreCheckpoint) -> CheckpointManifest:
        generation = self._generation
        record = generation.record
        counts = self._history.counts
        return CheckpointManifest(
            job_id=record.job_id,
            generation=record.generation,
            checkpoint_id=command.checkpoint_id,
            incarnation=generation.incarnation,
            parent_id=self._retained[-1].manifest.checkpoint_id if self._retained else 0,
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
            counts=CheckpointCounts(counts.triggered, counts.completed + 1, counts.failed),
            operators=tuple(operator_record(o) for v in generation.graph.vertices for o in v.operators),
            is_savepoint=command.savepoint is not None,
            drained=command.savepoint is not None and command.savepoint.drain,
        )

    # --------------------------------------------------------------------------------------------------- retention

    def _completed(self, command: core.CheckpointCompleted) -> None:
        self._history.completed()
        _log.info(
            "job %s: checkpoint %d completed in %d ms",
            self._generation.record.job_id,
            command.checkpoint_id,
            command.duration_ms,
        )
        keep = self._settings.checkpoint.retained_count
        dropped, self._retained = self._retained[:-keep], self._retained[-keep:]
        if dropped:
            self._known_files = set().union(*(retained.manifest.paths for retained in self._retained))
            self._history.discarded([retained.manifest.checkpoint_id for retained in dropped])
            self._spawn(self._remove([r.manifest for r in dropped], [r.manifest for r in self._retained]))

    async def _remove(self, dropped: list[CheckpointManifest], retained: list[CheckpointManifest]) -> None:
        for manifest in dropped:
            if self._closed:
                return
            try:
                await self._durable.run(self._services.store.remove, manifest, retained)
            except OSError as error:
                # The next generation sweeps what is left.
                _log.warning("checkpoint %d could not be removed: %s", manifest.checkpoint_id, error)
            except StaleLeaderError:
                self._services.lost_leadership()

    async def _discard(
        self, checkpoint_id: int, snapshots: tuple[SubtaskSnapshot, ...], *, with_manifest: bool = False
    ) -> None:
        """Remove what was written for a checkpoint that is none. (After the generation's end the next one sweeps.)"""
        if self._closed:
            return
        record = self._generation.record
        number = checkpoint_id if with_manifest else None
        try:
            await self._durable.run(
                self._services.store.discard, record.job_id, record.generation, number, snapshots, self._known_files
            )
        except OSError as error:
            _log.warning("what checkpoint %d has left could not be removed: %s", checkpoint_id, error)
        except StaleLeaderError:
            self._services.lost_leadership()

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def effective_settings(settings: JobSettings, graph: JobGraph, record: JobRecord) -> CheckpointSettings:
    """What holds for this job. A query is not checkpointed by itself. Where sinks commit, and where barriers may
    overtake, there is one checkpoint at a time, whatever the user has set (as in Flink for the latter)."""
    checkpoint = settings.checkpoint
    alone = bool(record.namespaces) or checkpoint.aligned_timeout_ms is not None
    return msgspec.structs.replace(
        checkpoint,
        interval_ms=0 if graph.is_query else checkpoint.interval_ms,
        concurrent_max=1 if alone else checkpoint.concurrent_max,
    )


def checkpoint_config(
    graph: JobGraph, record: JobRecord, settings: JobSettings, store: CheckpointStore
) -> CheckpointConfig:
    """For the job's page."""
    effective = effective_settings(settings, graph, record)
    return CheckpointConfig(
        interval_ms=effective.interval_ms,
        timeout_ms=effective.timeout_ms,
        min_pause_ms=effective.min_pause_ms,
        concurrent_max=effective.concurrent_max,
        tolerable_failures=effective.tolerable_failures,
        retained_count=effective.retained_count,
        retention=effective.retention.value,
        aligned_timeout_ms=effective.aligned_timeout_ms,
        state_backend=graph.settings.get(STATE_BACKEND, DEFAULT_STATE_BACKEND),
        location=store.uri(record.job_id),
    )


def acknowledgement(message: CheckpointAcknowledged) -> core.SubtaskAcked:
    """A task's message as the coordinator's event."""
    timings = core.SubtaskTimings(message.sync_ms, message.async_ms, message.alignment_ms, message.is_unaligned)
    return core.SubtaskAcked(message.attempt, message.checkpoint_id, message.snapshot, timings)


def task_role(graph: JobGraph, attempt: AttemptId) -> core.TaskRole:
    """What the coordinator is told of an attempt."""
    vertex = graph.vertex(attempt.vertex_id)
    return core.TaskRole(
        attempt,
        injects=not graph.inputs(vertex.id),
        commits=any(isinstance(operator, Sink) for operator in vertex.operators),
    )
