"""A JobManager: the shells of `JobMaster`, `RunningGeneration` and `SlotPool` in virtual time around the real cores.

Commands are performed one per step, so a crash or a pause can come between any two. What the real JobManager does in
the job's *durable* thread runs here in one fiber, in order; the real store and the real choice of what is restored
run on the model's files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.api import Split, SplitState
from planner.ir.job_graph import JobGraph, Vertex
from runtime.api import JobState, StaleLeaderError
from runtime.checkpoint import coordination as c
from runtime.checkpoint.numbering import first_checkpoint_id, is_ahead
from runtime.checkpoint.recovery import RestorePlan, spread_splits
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import DamagedCheckpointError
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager import job_events as core
from runtime.jobmanager import scheduler as slots
from runtime.jobmanager.deployment import DeploymentPlan, deployments
from runtime.jobmanager.job import JobCore
from runtime.jobmanager.preparation import Restored, restore, restore_again
from runtime.metadata.jobs import JobRecord, JobRecords
from runtime.protocol import messages as m
from tests.simulation.broker import Busy
from tests.simulation.checkpoints import Checkpoints, role_of
from tests.simulation.kernel import Kernel, Link, Process, Signal, Steps
from tests.simulation.sink import transactional_id
from tests.simulation.store import LeaderView, Store
from tests.simulation.task import is_sink, is_source

if TYPE_CHECKING:
    from tests.simulation.cluster import World
    from tests.simulation.taskmanager import TaskManager

ERRORS = (OSError, DamagedCheckpointError, RestoreRefusedError)


def failure_of(error: Exception) -> m.Failure:
    return m.Failure(str(error), getattr(error, "domain", "external"), getattr(error, "retry", True))


class JobManager(Process):
    """`token` is its leader token. Paused or cut off it may wake up as one that leads no longer."""

    def __init__(self, kernel: Kernel, world: World) -> None:
        world.metadata.leader_token += 1
        self.token = world.metadata.leader_token
        super().__init__(kernel, f"jm{self.token}")
        self.world = world
        self.view = LeaderView(world.metadata, self.token)
        self.records = JobRecords(self.view)
        self.store = Store(world.files, self)
        self.scheduler = slots.Scheduler()
        self._links: dict[str, Link] = {}
        self._slots: dict[str, list[SlotId]] = {}
        self.job: Job | None = None
        for record in self.records.all():
            if not record.state.terminal:
                self._resume(record)

    def _resume(self, record: JobRecord) -> None:
        ending = record.state if record.state in (JobState.CANCELLING, JobState.FAILING) else None
        self.job = Job(self, record)
        self.job.post(core.Started(ending))

    def submit(self, record: JobRecord) -> None:
        self.records.update(record)
        self._resume(record)

    def run(self, steps: Steps) -> None:
        """A fiber that ends this JobManager when it does not lead any more."""
        self.start(self._while_leading(steps))

    def _while_leading(self, steps: Steps) -> Steps:
        try:
            yield from steps
        except StaleLeaderError:
            self.lost_leadership()
            yield None

    def lost_leadership(self) -> None:
        self.kernel.log(self, "does not lead any more")
        self.kill()

    # ------------------------------------------------------------------------------------------------- TaskManagers

    def accept(self, link: Link, manager: TaskManager) -> None:
        name = manager.name
        link.receive[0] = manager.from_job_manager
        link.receive[1] = lambda message: self._received(name, link, message)
        link.lost[1] = lambda _: self._forget(name, link)
        self.kernel.at(self.kernel.delay(), self, self._register, (name, link, manager))

    def _register(self, registration: tuple[str, Link, TaskManager]) -> None:
        name, link, manager = registration
        old = self._links.get(name)
        if old is not None:
            old.close(self)
            self._forget(name, old)
        self._links[name] = link
        self._slots[name] = []
        self.kernel.at(self.kernel.delay(), manager, manager.registered, link)

    def _forget(self, name: str, link: Link) -> None:
        if self._links.get(name) is not link:
            return
        del self._links[name]
        for slot_id in self._slots.pop(name):
            self.schedule(slots.SlotRemoved(slot_id), f"{name} is gone")

    def _received(self, name: str, link: Link, message: Any) -> None:
        if self._links.get(name) is not link:
            return
        if isinstance(message, tuple):
            kind, slot_id = message
            if kind == "slot":
                self._slots[name].append(slot_id)
                self.schedule(slots.SlotAdded(slots.SlotInfo(slot_id, TaskManagerId(name), "", 0, 0, 0)))
            else:
                self.schedule(slots.SlotRemoved(slot_id), "its process has ended")
        elif self.job is not None and message.attempt.job_id == self.job.record.job_id:
            self.job.receive(message)

    def schedule(self, event: slots.SchedulerEvent, reason: str = "") -> None:
        for command in self.scheduler.handle(event):
            if isinstance(command, slots.EndSlot):
                self.send(command.slot, m.ReleaseSlot(command.slot.slot_id))
            elif self.job is not None and command.job_id == self.job.record.job_id:
                match command:
                    case slots.GrantSlots(slots=granted, number=number):
                        self.job.post(core.SlotsGranted(granted, number))
                    case slots.ReportMissing(missing=missing, number=number):
                        self.job.post(core.SlotsShort(missing, number))
                    case slots.ReportSlotLost(slot_id=slot_id):
                        self.job.post(core.SlotGone(slot_id, reason))
        self.scheduler.validate()

    def send(self, slot: slots.SlotInfo, message: Any) -> None:
        link = self._links.get(slot.task_manager_id)
        if link is not None:
            link.send(self, message)


class Job:
    """The actor of one job and its durable thread."""

    def __init__(self, manager: JobManager, record: JobRecord) -> None:
        self.manager = manager
        self.world, self.kernel = manager.world, manager.kernel
        self.record = record
        self.directory = f"{record.job_id}/"
        self.graph: JobGraph = self.world.graph_of(record.job_id)
        self.core = JobCore(record.job_id, self.graph, self.world.restart)
        self.checkpoints: Checkpoints | None = None
        self._queue: deque[Any] = deque()
        self._signal = Signal()
        self._durable: deque[Steps] = deque()
        self._durable_signal = Signal()
        self._restored: dict[int, Restored] = {}
        """By number of the restart: 0 = the generation's."""
        self._given: dict[str, list[tuple[SplitState, ...]]] = {}
        manager.run(self._act())
        manager.run(self._work_durably())

    def post(self, event: Any) -> None:
        self._queue.append(event)
        self._signal.notify()

    def receive(self, message: Any) -> None:
        generation = message.attempt.generation
        match message:
            case m.TaskStateChanged(attempt=attempt, state=state, failure=failure):
                self.post(core.TaskChanged(attempt, state, failure))
                if state is m.TaskState.FINISHED:
                    self.post((generation, c.TaskFinished(attempt)))
            case m.TaskInitialized(attempt=attempt, markers=markers):
                self.post(core.TaskRecovered(attempt, markers))
            case m.CheckpointAcknowledged(attempt=attempt, checkpoint_id=number, snapshot=snapshot):
                self.post((generation, c.SubtaskAcked(attempt, number, snapshot)))
            case m.CheckpointDeclined(attempt=attempt, checkpoint_id=number, failure=failure):
                self.post((generation, c.SubtaskDeclined(attempt, number, failure)))
            case m.CheckpointCommitted(attempt=attempt, checkpoint_id=number):
                self.post((generation, c.SubtaskCommitted(attempt, number)))
            case m.InputsEnded(attempt=attempt):
                self.post((generation, c.TaskInputsEnded(attempt)))

    def want_savepoint(self, wanted: c.SavepointWanted) -> None:
        if self.checkpoints is not None:
            self.post((self.record.generation, wanted))

    # -------------------------------------------------------------------------------------------------------- actor

    def _act(self) -> Steps:
        while not (self.core.state.terminal or self.core.state is JobState.SUSPENDED):
            event = yield from self._next_event()
            if isinstance(event, tuple):
                generation, checkpoint_event = event
                if self.checkpoints is not None and generation == self.record.generation:
                    yield from self.checkpoints.handle(checkpoint_event)
                continue
            if self.kernel.recording:
                self.kernel.log(self.manager, f"job: {event}"[:300])
            for command in self.core.handle(event, self.kernel.now_ms):
                yield self.kernel.below(2)
                yield from self._perform(command)

    def _next_event(self) -> Steps:
        while not self._queue:
            timers: list[tuple[int, Any]] = []
            if self.core.deadline_ms is not None:
                timers.append((self.core.deadline_ms, core.Ticked()))
            if self.checkpoints is not None and self.checkpoints.core.deadline_ms is not None:
                timers.append((self.checkpoints.core.deadline_ms, (self.record.generation, c.Ticked())))
            if not timers:
                yield self._signal
                continue
            due_ms, tick = min(timers, key=lambda timer: timer[0])
            if due_ms <= self.kernel.now_ms:
                return tick
            yield (self._signal, due_ms - self.kernel.now_ms)
        return self._queue.popleft()

    def durably(self, work: Steps) -> Steps:
        """In the durable thread, behind what is waiting there. Returns what it returns, raises what it raises."""
        done = Signal()
        outcome: list[tuple[Any, Exception | None]] = []

        def perform() -> Steps:
            try:
                outcome.append(((yield from work), None))
            except (StaleLeaderError, *ERRORS) as error:
                outcome.append((None, error))
            done.notify()

        self._durable.append(perform())
        self._durable_signal.notify()
        yield done
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def _work_durably(self) -> Steps:
        while True:
            while self._durable:
                yield from self._durable.popleft()
            yield self._durable_signal

    def delete_noted(self) -> Steps:
        """What the store has deleted, file by file."""
        for path in self.manager.store.deletions(self.record.job_id):
            yield 0
            self.manager.view.check_leader()
            self.world.files.delete(path)

    def _perform(self, command: core.JobCommand) -> Steps:
        match command:
            case core.RecordState():
                yield from self._record_state(command)
            case core.PrepareGeneration():
                yield from self._begin_generation()
            case core.RequestSlots(number=number, group_sizes=sizes, preferred=preferred):
                self.manager.schedule(slots.SlotsRequested(self.record.job_id, sizes, number, preferred))
            case core.WithdrawRequest(number=number):
                self.manager.schedule(slots.RequestWithdrawn(self.record.job_id, number))
            case core.EndSlots(slots=ended):
                ids = tuple(slot.slot_id for slot in ended)
                self.manager.schedule(slots.SlotsReturned(self.record.job_id, ids))
            case core.DeployTasks(attempts=attempts, number=number):
                self._deploy(attempts, number)
            case core.StartTasks(number=0):
                yield from self._start(command)
            case core.StartTasks():
                yield from self._start_region(command)
            case core.LoseTasks(attempts=attempts):
                if self.checkpoints is not None:
                    yield from self.checkpoints.handle(c.TasksLost(attempts))
            case core.PrepareRegion(number=number):
                self.manager.run(self._prepare_region(number, self.record.generation))
            case core.EndSources(attempts=attempts):
                self._send_to(attempts, m.EndSources)
            case core.CancelTasks(attempts=attempts):
                self._send_to(attempts, m.CancelTasks)
            case core.ReleaseSlots():
                self._end_generation()
            case core.FenceSinks():
                self.manager.run(self._fence())
            case core.RecordFailure() | core.ReportRestart():
                pass
            case _:
                raise AssertionError(command)

    def _send_to(self, attempts: Sequence[AttemptId], kind: Any) -> None:
        """One message to each slot that has some of them."""
        execution = self.core.execution
        assert execution is not None
        here: dict[SlotId, list[AttemptId]] = {}
        infos: dict[SlotId, slots.SlotInfo] = {}
        for attempt in attempts:
            slot = execution.slot_at(execution.place(attempt.key))
            if slot is not None:
                infos[slot.slot_id] = slot
                here.setdefault(slot.slot_id, []).append(attempt)
        for slot_id, found in here.items():
            message = kind(slot_id, self.record.job_id, self.record.generation, tuple(found))
            self.manager.send(infos[slot_id], message)

    def _record_state(self, command: core.RecordState) -> Steps:
        self.record = msgspec.structs.replace(self.record, state=command.state)
        self.kernel.log(self.manager, f"job is {command.state} {command.failure.message if command.failure else ''}")
        self.manager.records.update(self.record)
        if not command.state.terminal:
            return
        self.world.checks.ended(self.record, command)
        self._end_generation()
        yield None
        if command.state is JobState.FINISHED:
            self.manager.store.drop_job(self.record.job_id)
            yield from self.delete_noted()

    # -------------------------------------------------------------------------------------------------- a generation

    def _begin_generation(self) -> Steps:
        counts = dict(self.record.owner_counts)
        namespaces = dict(self.record.namespaces)
        for vertex in self.graph.vertices:
            for uid in (operator.uid for operator in vertex.operators if is_sink(operator.uid)):
                counts[uid] = max(counts.get(uid, 0), vertex.parallelism)
                namespaces.setdefault(uid, f"ns-{uid}")
        self.record = msgspec.structs.replace(
            self.record, generation=self.record.generation + 1, namespaces=namespaces, owner_counts=counts
        )
        self.manager.records.update(self.record)
        self.world.checks.begun(self.record, self.graph)
        self.manager.run(self._prepare())
        yield None

    def _prepare(self) -> Steps:
        record = self.record
        try:
            restored = yield from self.durably(self._restore(record))
        except ERRORS as error:
            self.post(core.PreparationFailed(failure_of(error)))
            return
        yield None
        self._restored = {0: restored}
        self.post(core.GenerationPrepared(record.generation, bool(restored.stopped_with)))

    def _restore(self, record: JobRecord) -> Steps:
        """The pointer is read, what it names is looked at, what nothing names is swept."""
        manager, job_id = self.manager, record.job_id
        yield None
        if manager.records.pointer(job_id) is None and record.origin is not None:
            yield from self._adopt(record)
        listed = self.world.files.list(self.directory)
        restored = restore(manager.records, manager.store, record, self.graph)
        yield from self.delete_noted()
        self.world.checks.prepared(record, 0, restored, listed)
        return restored

    def _adopt(self, record: JobRecord) -> Steps:
        """The savepoint becomes the new job's first checkpoint."""
        origin = record.origin
        assert origin is not None
        manifest, copies = self.world.savepoints[origin.path]
        manager, files = self.manager, self.world.files
        for path, content in copies.items():
            if files.find(self.directory + path) is None:
                manager.view.check_leader()
                files.write(self.directory + path, manager, content)
                yield 0
        adopted = msgspec.structs.replace(manifest, job_id=record.job_id, generation=0)
        manager.view.check_leader()
        pointer = manager.store.write_again(adopted)
        yield None
        manager.records.move_pointer(record.job_id, None, pointer)

    def _deploy(self, attempts: Sequence[AttemptId], number: int) -> None:
        execution, restored, record = self.core.execution, self._restored[number], self.record
        assert execution is not None
        incarnation = f"{record.job_id[:8]}-g{record.generation}"
        plan = DeploymentPlan(self.directory, incarnation, record.namespaces, {}, restored.plan)
        infos = {slot.slot_id: slot for slot in execution.slots}
        for deployment in deployments(execution, plan, attempts):
            self.manager.send(infos[deployment.slot_id], deployment)

    def _start(self, command: core.StartTasks) -> Steps:
        restored, records = self._restored[0], self.manager.records
        restored_id, highest = restored.plan.checkpoint_id, _highest(command.markers)
        if self.record.marker_floor is None:
            self.record = msgspec.structs.replace(self.record, marker_floor=highest)
            records.update(self.record)
            yield None
        if self._is_ahead(command, restored):
            return
        reserved = records.next_checkpoint_id(self.record.job_id)
        next_id = first_checkpoint_id(reserved, restored_id, highest)
        records.set_next_checkpoint_id(self.record.job_id, next_id)
        yield None
        self.checkpoints = Checkpoints(self, next_id, restored)
        self._given = {
            uid: _fresh_splits(self.world, uid, vertex, restored.plan) for uid, vertex in _sources_of(self.graph)
        }
        self._go(command.attempts, restored)

    def _is_ahead(self, command: core.StartTasks, restored: Restored) -> bool:
        ahead = is_ahead(_highest(command.markers), restored.plan.checkpoint_id, self.record.marker_floor)
        if ahead:
            self.post(core.GenerationFailed(m.Failure("a marker is ahead of the checkpoint", "user", False)))
        return ahead

    def _go(self, attempts: Sequence[AttemptId], restored: Restored) -> None:
        """Source tasks hear of their splits, then all may go."""
        execution = self.core.execution
        assert execution is not None
        for uid, vertex in _sources_of(self.graph):
            known = {state.split.id for state in restored.plan.known_splits.get(uid, ())}
            for index in range(vertex.parallelism):
                attempt = execution.attempt(vertex.id, index)
                if attempt in attempts:
                    slot = execution.slot(attempt)
                    given = tuple(s for s in self._given[uid][index] if s.split.id not in known)
                    self.manager.send(slot, m.AssignSplits(slot.slot_id, attempt, uid, given, True))
        self._send_to(attempts, m.StartTasks)
        self.world.checks.go(attempts)

    def _end_generation(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.closed = True
        self.checkpoints = None
        self.manager.schedule(slots.SlotsReleased(self.record.job_id))

    # ------------------------------------------------------------------------------------------ restarts of regions

    def _prepare_region(self, number: int, generation: int) -> Steps:
        """A checkpoint that is being stored may be the one to restore, so its outcome is awaited."""
        checkpoints, record = self.checkpoints, self.record
        if checkpoints is not None:
            yield from checkpoints.settled()
        try:
            restored = yield from self.durably(self._restore_again(record, number))
        except ERRORS as error:
            self.post(core.RegionPreparationFailed(number, failure_of(error)))
            return
        self._restored[number] = restored
        self.post(core.RegionPrepared(number, bool(restored.stopped_with)))

    def _restore_again(self, record: JobRecord, number: int) -> Steps:
        yield None
        manager = self.manager
        restored = restore_again(manager.records, manager.store, record, self.graph, self._restored[0])
        self.world.checks.prepared(record, number, restored, [])
        return restored

    def _start_region(self, command: core.StartTasks) -> Steps:
        restored = self._restored.pop(command.number)
        if self._is_ahead(command, restored):
            return
        if self.checkpoints is not None:
            roles = tuple(role_of(self.graph, attempt) for attempt in command.attempts)
            yield from self.checkpoints.handle(c.TasksReplaced(roles))
        self._go(command.attempts, restored)

    # -------------------------------------------------------------------------------------------------------- the end

    def _fence(self) -> Steps:
        for uid, count in self.record.owner_counts.items():
            for owner in range(count):
                while True:
                    yield None
                    try:
                        self.world.broker.initialize(transactional_id(self.record.namespaces[uid], owner))
                        break
                    except Busy:
                        yield 3
        self.post(core.SinksFenced())


def _highest(markers: dict[str, dict[int, int]]) -> int:
    return max((marker for owners in markers.values() for marker in owners.values()), default=0)


def _fresh_splits(world: World, uid: str, vertex: Vertex, plan: RestorePlan) -> list[tuple[SplitState, ...]]:
    known = plan.known_splits.get(uid, ())
    ids = {state.split.id for state in known}
    found = [SplitState(Split(str(split), b"")) for split in world.splits_of(uid)]
    fresh = [state for state in found if state.split.id not in ids]
    return spread_splits(fresh, vertex.parallelism, first=len(known))


def _sources_of(graph: JobGraph) -> list[tuple[str, Vertex]]:
    return [(o.uid, vertex) for vertex in graph.vertices for o in vertex.operators if is_source(o.uid)]


def new_job(number: int, **fields: Any) -> JobRecord:
    return JobRecord(JobId(f"{number:08x}".ljust(32, "0")), "simulated", JobState.INITIALIZING, False, 0, **fields)
