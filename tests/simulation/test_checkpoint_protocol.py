"""Coordinator, manifests and recovery in one thread from one seed: a whole exactly-once job with crashes at any step,
aborted checkpoints, changing parallelism, zombies that commit late, and users who stop the job with a savepoint (with
or without drain) and start it again. What the outside sees must be every number once.

Rows travel through queues between source and sink subtasks; messages between JobManager and tasks arrive after random
delays, in order per task. Durable things (manifests, pointer, epochs, markers, output) survive a crash, nothing else.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import msgspec
import pytest

from connectors.api import Committable, OwnerState, Split, SplitState
from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.checkpoint import coordinator as c
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord, decode_manifest, encode_manifest
from runtime.checkpoint.recovery import plan_restore
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot, SubtaskSnapshot
from runtime.ids import AttemptId, JobId
from runtime.job_settings import CheckpointSettings
from runtime.protocol.messages import Failure
from tests.support import graphs

JOB = JobId("5" * 32)
SPLITS, ROWS = 3, 40
SETTINGS = CheckpointSettings(interval_ms=20, timeout_ms=100, tolerable_failures=1_000)
STEPS_MAX = 60_000
SOURCE, SINK = 0, 1

Item = int | tuple[str, int]
"""A number, ("barrier", id) or ("end", 0)."""


def job(sources: int, sinks: int) -> JobGraph:
    return graphs.graph(
        graphs.vertex(SOURCE, graphs.generator(), parallelism=sources),
        graphs.vertex(SINK, graphs.sink(), parallelism=sinks),
        edges=(graphs.edge(SOURCE, SINK, EdgeKind.HASH),),
    )


class Durable:
    """What survives."""

    def __init__(self) -> None:
        self.next_id = 1
        self.pointer: bytes | None = None
        self.epochs: dict[str, list[int]] = {}
        self.markers: dict[int, int] = {}
        self.output: Counter[int] = Counter()
        self.owner_count = 0
        self.generation = 0
        self.stopped_by: c.SavepointWanted | None = None
        """The savepoint that is the pointer and has ended the job; the next generation is another job's first."""
        self.stops = 0

    def commit(self, owner: int, epochs: list[Committable]) -> None:
        """One transaction: rows and marker together."""
        for epoch in epochs:
            self.output.update(self.epochs[epoch.data.decode()])
        self.markers[owner] = max([self.markers.get(owner, 0), *(epoch.checkpoint_id for epoch in epochs)])


class SourceTask:
    def __init__(self, world: World, attempt: AttemptId, restore: OperatorRestore, finished: bool) -> None:
        self.world, self.attempt = world, attempt
        self.states = {s.split.id: s for s in restore.splits}
        self.ended = finished
        self.announced = False
        self.stop_id = 0
        if not restore.splits and world.fresh:
            self.states = {
                f"{n}": SplitState(Split(f"{n}", b""), b"0")
                for n in range(SPLITS)
                if n % world.parallelism[SOURCE] == attempt.subtask_index
            }

    def step(self) -> None:
        if self.stop_id:
            return
        todo = [s for s in self.states.values() if int(s.position or b"0") < ROWS]
        if todo and not self.ended:
            state = self.world.rng.choice(todo)
            row = int(state.position or b"0")
            self.states[state.split.id] = msgspec.structs.replace(state, position=str(row + 1).encode())
            number = int(state.split.id) * ROWS + row
            self.world.channel(self.attempt, number % self.world.parallelism[SINK]).append(number)
        elif not self.announced:
            self.ended = self.announced = True
            for sink in range(self.world.parallelism[SINK]):
                self.world.channel(self.attempt, sink).append(("end", 0))
            self.world.tell(self.attempt, c.TaskInputsEnded(self.attempt))

    def barrier(self, number: int, stop: bool = False) -> None:
        if stop:
            self.stop_id = number
        if not self.announced:
            for sink in range(self.world.parallelism[SINK]):
                self.world.channel(self.attempt, sink).append(("barrier", -number if stop else number))
        operator = OperatorSnapshot("source", tuple(self.states.values()))
        self.world.acknowledge(self.attempt, number, operator, self.announced)

    def commit(self, number: int) -> None:
        pass

    def aborted(self, number: int) -> None:
        if self.stop_id == number:
            self.stop_id = 0


class SinkTask:
    def __init__(self, world: World, attempt: AttemptId, owners: tuple[OwnerState, ...]) -> None:
        self.world, self.attempt = world, attempt
        self.owner = attempt.subtask_index
        self.rows: list[int] = []
        self.pending: list[Committable] = []
        self.blocked: set[int] = set()
        self.ended: set[int] = set()
        self.aligning = 0
        self.stops = False
        self.stop_id = 0
        for state in owners:
            self.recover(state)

    def recover(self, state: OwnerState) -> None:
        """Fence, read the marker, write again exactly what is behind it."""
        durable = self.world.durable
        marker = durable.markers.get(state.owner)
        assert not (marker is None and state.marker_expected), "a marker was lost"
        assert (marker or 0) >= state.floor
        assert (marker or 0) <= self.world.restored_id, "output beyond the restored checkpoint is visible"
        todo = [epoch for epoch in state.pending if epoch.checkpoint_id > (marker or 0)]
        durable.commit(state.owner, todo)

    def step(self) -> None:
        sources = self.world.parallelism[SOURCE]
        ready = [
            s
            for s in range(sources)
            if s not in self.blocked | self.ended and self.world.channels[s, self.attempt.subtask_index]
        ]
        if not ready:
            return
        source = self.world.rng.choice(ready)
        item: Item = self.world.channels[source, self.attempt.subtask_index].popleft()
        if isinstance(item, int):
            self.rows.append(item)
            return
        if item[0] == "end":
            self.ended.add(source)
            if len(self.ended) == sources:
                self.world.tell(self.attempt, c.TaskInputsEnded(self.attempt))
        elif abs(item[1]) >= self.aligning:
            if abs(item[1]) > self.aligning:
                self.blocked = set()
            self.aligning, self.stops = abs(item[1]), item[1] < 0
            self.blocked.add(source)
        if self.blocked and len(self.blocked | self.ended) == sources:
            self.blocked = set()
            self.seal(self.aligning, self.stops)

    def barrier(self, number: int, stop: bool = False) -> None:
        """Directly from the coordinator: every input has ended."""
        if number > self.aligning:
            self.aligning = number
            self.seal(number, stop)

    def aborted(self, number: int) -> None:
        pass

    def seal(self, number: int, stop: bool) -> None:
        self.stop_id = number if stop else 0
        if self.rows:
            name = f"{self.attempt}/{number}"
            self.world.durable.epochs[name] = self.rows
            count = len(self.rows)
            self.pending.append(Committable(self.owner, number, "i", name.encode(), count, count))
            self.rows = []
        operator = OperatorSnapshot("sink", committables=tuple(self.pending))
        finished = len(self.ended) == self.world.parallelism[SOURCE]
        self.world.acknowledge(self.attempt, number, operator, finished)

    def commit(self, number: int) -> None:
        done = [epoch for epoch in self.pending if epoch.checkpoint_id <= number]
        self.world.durable.commit(self.owner, done)
        self.pending = [epoch for epoch in self.pending if epoch.checkpoint_id > number]
        self.world.tell(self.attempt, c.SubtaskCommitted(self.attempt, number))


class World:
    """One generation. `run` gives True when every task has finished, False after a crash."""

    def __init__(self, durable: Durable, rng: random.Random, crash_share: float) -> None:
        self.durable, self.rng, self.crash_share = durable, rng, crash_share
        durable.generation += 1
        self.parallelism = {SOURCE: rng.randint(1, 3), SINK: rng.randint(1, 4)}
        durable.owner_count = max(durable.owner_count, self.parallelism[SINK])
        self.graph = job(self.parallelism[SOURCE], self.parallelism[SINK])
        manifest = decode_manifest(durable.pointer) if durable.pointer is not None else None
        if manifest is not None and durable.stopped_by is not None:
            if durable.stopped_by.drain:
                open_again = tuple(msgspec.structs.replace(s, finished=False) for s in manifest.snapshots)
                manifest = msgspec.structs.replace(manifest, snapshots=open_again)
                durable.pointer = encode_manifest(manifest)
            durable.stopped_by = None
        self.fresh = manifest is None
        plan = plan_restore(self.graph, manifest, {"sink": durable.owner_count})
        self.restored_id = plan.checkpoint_id
        self.now_ms = 0
        self.channels: dict[tuple[int, int], deque[Item]] = {
            (i, j): deque() for i in range(self.parallelism[SOURCE]) for j in range(self.parallelism[SINK])
        }
        self.up: dict[AttemptId, deque[c.CoordinatorEvent]] = {}
        self.down: dict[AttemptId, deque[tuple[str, int]]] = {}
        self.wishes = 0
        self.storing: deque[c.StoreCheckpoint] = deque()
        self.tasks: dict[AttemptId, SourceTask | SinkTask] = {}
        attempts = [
            AttemptId(JOB, durable.generation, v, i, durable.generation - 1)
            for v in (0, 1)
            for i in range(self.parallelism[v])
        ]
        for attempt in attempts:
            self.up[attempt], self.down[attempt] = deque(), deque()
            (restore,) = plan.operators[attempt.vertex_id, attempt.subtask_index]
            key = (attempt.vertex_id, attempt.subtask_index)
            self.tasks[attempt] = (
                SourceTask(self, attempt, restore, key in plan.finished)
                if attempt.vertex_id == SOURCE
                else SinkTask(self, attempt, restore.owners)
            )
        self.finishing: dict[AttemptId, int] = {}
        self.finished: set[AttemptId] = set()
        first = max(durable.next_id, self.restored_id + 1, 1 + max(durable.markers.values(), default=0))
        durable.next_id = first
        roles = [c.TaskRole(a, a.vertex_id == SOURCE, a.vertex_id == SINK) for a in attempts]
        self.coordinator = c.CheckpointCoordinator(SETTINGS, roles, first, plan.floors, 0)

    def channel(self, source: AttemptId, sink: int) -> deque[Item]:
        return self.channels[source.subtask_index, sink]

    def tell(self, attempt: AttemptId, event: c.CoordinatorEvent) -> None:
        self.up[attempt].append(event)

    def acknowledge(self, attempt: AttemptId, number: int, operator: OperatorSnapshot, finished: bool) -> None:
        if self.rng.random() < 0.05:
            self.tell(attempt, c.SubtaskDeclined(attempt, number, Failure("disk is full", "external", True)))
            return
        vertex = self.graph.vertex(attempt.vertex_id)
        snapshot = SubtaskSnapshot(
            vertex.id, vertex.uid, attempt.subtask_index, vertex.parallelism, (operator,), finished
        )
        if finished:
            self.finishing[attempt] = number
        self.tell(attempt, c.SubtaskAcked(attempt, number, snapshot))

    def run(self) -> bool:
        crash_at = self.rng.randint(1, 1500) if self.rng.random() < self.crash_share else STEPS_MAX
        for step in range(STEPS_MAX):
            if len(self.finished) == len(self.tasks):
                return True
            if step == crash_at:
                self.zombies()
                return False
            self.step()
        raise AssertionError(f"no end in sight: {self.coordinator.phase}, {len(self.finished)} finished")

    def step(self) -> None:
        self.now_ms += self.rng.randint(0, 1)
        attempt = self.rng.choice(list(self.tasks))
        match self.rng.randrange(5):
            case 0 | 1:
                if attempt not in self.finished:
                    self.tasks[attempt].step()
            case 2:
                if self.down[attempt]:
                    self.deliver(attempt)
            case 3:
                if self.up[attempt]:
                    self.handle(self.up[attempt].popleft())
            case _:
                if self.rng.random() < 0.01:
                    self.wishes += 1
                    stop = self.durable.stops < 4 and self.rng.random() < 0.5
                    drain = stop and self.rng.random() < 0.5
                    self.handle(c.SavepointWanted(str(self.wishes), "/sp", stop, drain))
                elif self.storing and self.rng.random() < 0.5:
                    self.store(self.storing.popleft())
                else:
                    self.handle(c.Ticked())

    def deliver(self, attempt: AttemptId) -> None:
        kind, number = self.down[attempt].popleft()
        if attempt in self.finished:
            return
        task = self.tasks[attempt]
        match kind:
            case "barrier" | "stop-barrier":
                task.barrier(number, kind == "stop-barrier")
                return
            case "abort":
                task.aborted(number)
                return
            case "end":
                assert isinstance(task, SourceTask)
                task.ended = True
                return
        task.commit(number)
        if self.finishing.get(attempt) == number or task.stop_id == number:
            assert not isinstance(task, SinkTask) or not task.rows, "rows behind the end"
            self.finished.add(attempt)
            self.tell(attempt, c.TaskFinished(attempt))

    def handle(self, event: c.CoordinatorEvent) -> None:
        for command in self.coordinator.handle(event, self.now_ms):
            match command:
                case c.ReserveCheckpointId(checkpoint_id=number):
                    assert number >= self.durable.next_id, "an id was used twice"
                    self.durable.next_id = number + 1
                case c.SendBarriers(checkpoint_id=number, attempts=attempts, stop=stop):
                    for attempt in attempts:
                        self.down[attempt].append(("stop-barrier" if stop else "barrier", number))
                case c.EndSources():
                    for attempt in self.tasks:
                        if attempt.vertex_id == SOURCE:
                            self.down[attempt].append(("end", 0))
                case c.SendAbort(checkpoint_id=number):
                    for attempt in self.tasks:
                        self.down[attempt].append(("abort", number))
                case c.StoreCheckpoint():
                    self.storing.append(command)
                case c.SendCommit(checkpoint_id=number):
                    for attempt in self.tasks:
                        self.down[attempt].append(("commit", number))
                case c.FailJob():
                    raise Crashed
                case _:
                    pass
        self.coordinator.validate()

    def store(self, command: c.StoreCheckpoint) -> None:
        if self.rng.random() < 0.05:
            self.handle(c.StoreFailed(command.checkpoint_id, Failure("disk is full", "external", True)))
            return
        floors = {owner: floor for (_, owner), floor in command.floors.items()}
        manifest = CheckpointManifest(
            JOB,
            self.durable.generation,
            command.checkpoint_id,
            "i",
            0,
            self.restored_id,
            "",
            0,
            tuple(
                VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
                for v in self.graph.vertices
            ),
            command.snapshots,
            (SinkRecord("sink", "ns", self.durable.owner_count, floors),),
        )
        if command.savepoint is None or command.savepoint.stop:
            assert self.durable.stopped_by is None, "a job went on after it had been stopped"
            self.durable.pointer = encode_manifest(manifest)
            self.durable.stopped_by = command.savepoint
            self.durable.stops += command.savepoint is not None
        if self.rng.random() > 0.1:
            self.handle(c.CheckpointStored(command.checkpoint_id))
        else:
            # The JobManager dies between the pointer and the commits.
            raise Crashed

    def zombies(self) -> None:
        """Tasks of the dead generation may still act on a COMMIT that was on its way, until they are fenced."""
        for attempt, messages in self.down.items():
            if attempt.vertex_id == SINK and messages and messages[0][0] == "commit" and self.rng.random() < 0.7:
                self.tasks[attempt].commit(messages[0][1])


class Crashed(Exception):
    """The generation is over."""


def generation(durable: Durable, rng: random.Random, crash_share: float) -> bool:
    world = World(durable, rng, crash_share)
    for owner in range(durable.owner_count):
        durable.markers.setdefault(owner, 0)  # The first marker of an owner, written by its recovery.
    try:
        return world.run()
    except Crashed:
        world.zombies()
        return False


@pytest.mark.parametrize("seed", range(40))
def test_every_number_is_visible_once(seed: int) -> None:
    rng = random.Random(seed)
    durable = Durable()
    while not generation(durable, rng, crash_share=0.8 if durable.generation < 12 else 0.0) or durable.stopped_by:
        assert durable.generation < 60
    assert durable.output == Counter(range(SPLITS * ROWS))
