"""The shell of one generation's checkpoint coordinator, as `runtime.jobmanager.checkpointing`, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.checkpoint import coordination as c
from runtime.checkpoint.coordinator import CheckpointCoordinator
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer, SinkRecord, VertexRecord
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.checkpoint.store import DamagedCheckpointError
from runtime.ids import AttemptId
from runtime.jobmanager import job_events as core
from runtime.jobmanager.preparation import Restored
from runtime.jobmanager.restore_choice import RetainedCheckpoint
from runtime.metadata.jobs import PointerConflictError
from runtime.protocol import messages as m
from tests.simulation.kernel import Signal, Steps, Violation
from tests.simulation.task import is_sink

if TYPE_CHECKING:
    from tests.simulation.jobmanager import Job


def role_of(graph: JobGraph, attempt: AttemptId) -> c.TaskRole:
    vertex = graph.vertex(attempt.vertex_id)
    return c.TaskRole(attempt, not graph.inputs(vertex.id), any(is_sink(o.uid) for o in vertex.operators))


class Checkpoints:
    def __init__(self, job: Job, next_id: int, restored: Restored) -> None:
        self._job = job
        self._kernel = job.kernel
        self._records = job.manager.records
        self._store = job.manager.store
        self._generation = job.record.generation
        execution = job.core.execution
        assert execution is not None
        self._execution = execution
        self._restored = restored
        self._pointer = restored.pointer
        self._retained = [] if restored.choice is None else [*restored.choice.earlier, restored.choice.chosen]
        self._known_files: set[str] = set().union(*(retained.manifest.paths for retained in self._retained))
        self._triggered: set[int] = set()
        self._storing = 0
        self._settled = Signal()
        self.closed = False
        self.core = CheckpointCoordinator(
            job.world.checkpoint,
            [role_of(job.graph, attempt) for attempt in execution.attempts],
            next_id,
            dict(restored.plan.floors),
            job.kernel.now_ms,
        )

    def handle(self, event: c.CoordinatorEvent) -> Steps:
        if self._kernel.recording:
            self._kernel.log(self._job.manager, f"coordinator: {event}"[:300])
        commands = self.core.handle(event, self._kernel.now_ms)
        self.core.validate()
        for command in commands:
            yield self._kernel.below(2)
            yield from self._perform(command)

    def settled(self) -> Steps:
        """Returns when the pointer is not being moved any more."""
        while self._storing:
            yield (self._settled, 3)

    def _perform(self, command: c.CoordinatorCommand) -> Steps:
        job, checks = self._job, self._job.world.checks
        match command:
            case c.ReserveCheckpointId(checkpoint_id=number):
                self._records.set_next_checkpoint_id(job.record.job_id, number + 1)
                yield None
            case c.SendBarriers():
                if command.checkpoint_id not in self._triggered:
                    self._triggered.add(command.checkpoint_id)
                    checks.triggered(job.manager.token, job.record.job_id, command.checkpoint_id)
                self._send_barriers(command)
            case c.EndSources():
                self._broadcast(m.EndSources)
            case c.StoreCheckpoint():
                checks.acknowledged(job.manager.token, job.record.job_id, self._generation, command)
                moves = command.savepoint is None or command.savepoint.stop
                self._storing += moves
                job.manager.run(self._store_checkpoint(command, moves))
            case c.SendCommit(checkpoint_id=number):
                self._broadcast(m.CommitCheckpoint, number)
            case c.SendAbort(checkpoint_id=number, reason=reason, snapshots=snapshots):
                self._kernel.log(job.manager, f"checkpoint {number} is given up: {reason}")
                job.manager.run(self._discard(number, snapshots, with_manifest=True))
                self._broadcast(m.AbortCheckpoint, number)
            case c.DiscardSnapshots(checkpoint_id=number, snapshots=snapshots):
                job.manager.run(self._discard(number, snapshots))
            case c.CheckpointCompleted():
                keep = job.world.checkpoint.retained_count
                dropped, self._retained = self._retained[:-keep], self._retained[-keep:]
                if dropped:
                    self._known_files = set().union(*(retained.manifest.paths for retained in self._retained))
                    retained = [each.manifest for each in self._retained]
                    job.manager.run(self._remove([each.manifest for each in dropped], retained))
            case c.FailJob(failure=failure):
                job.post(core.GenerationFailed(failure))
            case _:
                pass

    def _send_barriers(self, command: c.SendBarriers) -> None:
        manager, job_id = self._job.manager, self._job.record.job_id
        for slot in self._execution.slots:
            here = tuple(a for a in command.attempts if self._execution.slot(a).slot_id == slot.slot_id)
            if here:
                trigger = m.TriggerCheckpoint(
                    slot.slot_id,
                    job_id,
                    self._generation,
                    command.checkpoint_id,
                    here,
                    stop=command.stop,
                    aligned_timeout_ms=command.aligned_timeout_ms,
                    full=command.full,
                    committed_id=command.committed_id,
                )
                manager.send(slot, trigger)

    def _broadcast(self, kind: Any, *arguments: Any) -> None:
        for slot in self._execution.slots:
            message = kind(slot.slot_id, self._job.record.job_id, self._generation, *arguments)
            self._job.manager.send(slot, message)

    # ------------------------------------------------------------------------------------------------------ storing

    def _store_checkpoint(self, command: c.StoreCheckpoint, moves: bool) -> Steps:
        """Beside the actor; what moves the pointer in the durable thread."""
        try:
            yield from self._store_whole(command)
        except (OSError, DamagedCheckpointError) as error:
            failure = m.Failure(f"not stored: {error!r}", "external", True)
            self._job.post((self._generation, c.StoreFailed(command.checkpoint_id, failure)))
        self._storing -= moves
        self._settled.notify()

    def _store_whole(self, command: c.StoreCheckpoint) -> Steps:
        manifest, location, wanted = self._manifest(command), "", command.savepoint
        savepoints = self._job.world.savepoints
        yield None
        try:
            if wanted is not None:
                location = yield from self._copy(manifest, wanted)
            if self.closed:
                savepoints.pop(location, None)
                return
            if wanted is None or wanted.stop:
                self._pointer = yield from self._job.durably(self._store_durably(manifest, self._pointer, location))
                own = msgspec.structs.replace(self._pointer, earlier=(), stopped_with="")
                self._retained.append(RetainedCheckpoint(own, manifest))
                self._known_files = self._known_files | manifest.paths
        except (OSError, DamagedCheckpointError):
            savepoints.pop(location, None)
            raise
        self._job.post((self._generation, c.CheckpointStored(command.checkpoint_id)))

    def _copy(self, manifest: CheckpointManifest, wanted: c.SavepointWanted) -> Steps:
        job, copies = self._job, {}
        location = f"savepoint-{wanted.trigger_id}-{manifest.checkpoint_id}"
        for path in sorted(manifest.paths):
            yield 0
            copies[path] = job.world.files.read(job.directory + path)
        job.manager.view.check_leader()
        job.world.savepoints[location] = (manifest, copies)
        return location

    def _store_durably(self, manifest: CheckpointManifest, old: CheckpointPointer | None, location: str) -> Steps:
        """Files looked at → manifest durable → pointer moved."""
        job = self._job
        if job.world.store_fails():
            raise OSError("the store cannot be reached")
        yield None
        self.check_files(manifest)
        path = f"{job.directory}g{manifest.generation}/chk-{manifest.checkpoint_id}/manifest"
        job.manager.view.check_leader()
        begun = job.world.files.create(path, job.manager)
        yield None
        job.world.files.discard(begun)
        job.manager.view.check_leader()
        pointer = msgspec.structs.replace(
            self._store.write(manifest),
            stopped_with=location,
            earlier=tuple(retained.pointer for retained in self._retained),
        )
        yield None
        try:
            self._records.move_pointer(job.record.job_id, old, pointer)
        except PointerConflictError as error:
            raise Violation("the pointer was moved by somebody else who leads") from error
        yield None
        return pointer

    def check_files(self, manifest: CheckpointManifest) -> None:
        fresh = [handle for handle in manifest.files if handle.path not in self._known_files]
        self._store.check(manifest.job_id, fresh)

    def _remove(self, dropped: list[CheckpointManifest], retained: list[CheckpointManifest]) -> Steps:
        def remove(manifest: CheckpointManifest) -> Steps:
            self._store.remove(manifest, retained)
            yield from self._job.delete_noted()

        for manifest in dropped:
            if self.closed:
                return
            yield from self._job.durably(remove(manifest))

    def _discard(self, number: int, snapshots: tuple[SubtaskSnapshot, ...], *, with_manifest: bool = False) -> Steps:
        def discard() -> Steps:
            manifest_id = number if with_manifest else None
            record = self._job.record
            self._store.discard(record.job_id, record.generation, manifest_id, snapshots, self._known_files)
            yield from self._job.delete_noted()

        if not self.closed:
            yield from self._job.durably(discard())

    def _manifest(self, command: c.StoreCheckpoint) -> CheckpointManifest:
        record, graph = self._job.record, self._job.graph
        return CheckpointManifest(
            record.job_id,
            record.generation,
            command.checkpoint_id,
            f"{record.job_id[:8]}-g{record.generation}",
            self._pointer.checkpoint_id if self._pointer is not None else 0,
            self._restored.plan.checkpoint_id,
            "",
            0,
            tuple(
                VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
                for v in graph.vertices
            ),
            command.snapshots,
            tuple(
                SinkRecord(
                    uid,
                    namespace,
                    record.owner_counts[uid],
                    {owner: floor for (sink, owner), floor in command.floors.items() if sink == uid},
                )
                for uid, namespace in record.namespaces.items()
            ),
            drained=command.savepoint is not None and command.savepoint.drain,
        )
