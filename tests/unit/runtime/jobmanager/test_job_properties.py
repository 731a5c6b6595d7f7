"""A JobCore and a Scheduler with slots that die and tasks that fail at any moment: whatever the order, one attempt of a
subtask lives at a time, regions restart as a whole, and once nothing fails any more everything runs."""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import JobState
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.jobmanager import job_events as j
from runtime.jobmanager import scheduler as s
from runtime.jobmanager.job import JobCore
from runtime.jobmanager.regions import regions_of
from runtime.protocol.messages import Failure, TaskState
from tests.support import graphs

JOB = JobId("f" * 32)
LOST = Failure("lost", "external", True)
RESTARTS = RestartSettings(RestartStrategy.FIXED_DELAY, attempts=None, delay_ms=10)
STEPS = 120

GRAPHS = (
    graphs.graph(
        graphs.vertex(0, graphs.generator(), parallelism=3),
        graphs.vertex(1, graphs.sink(), parallelism=3),
        edges=(graphs.edge(0, 1, EdgeKind.FORWARD),),
    ),
    graphs.graph(
        graphs.vertex(0, graphs.generator("source-a"), parallelism=2),
        graphs.vertex(1, graphs.sink("a"), parallelism=3),
        graphs.vertex(2, graphs.generator("source-b"), parallelism=2),
        graphs.vertex(3, graphs.sink("b"), parallelism=2),
        graphs.vertex(4, graphs.generator("source-c"), parallelism=1),
        edges=(graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(2, 3, EdgeKind.FORWARD)),
    ),
)


class World:
    """What the shell, the TaskManagers and time do. `events` of the shell arrive in order; so do those of one slot."""

    def __init__(self, graph: JobGraph, random: Random) -> None:
        self.graph = graph
        self.random = random
        self.regions = regions_of(graph)
        self.core = JobCore(JOB, graph, RESTARTS, prefers_homes=random.random() < 0.5)
        self.scheduler = s.Scheduler()
        self.now_ms = 0
        self.generation = 0
        self.inbox: deque[j.JobEvent] = deque()
        self.said: dict[SlotId, deque[j.JobEvent]] = {}
        """What slots have said and nobody has heard."""
        self.alive: dict[AttemptId, SlotId] = {}
        self.cancelling: set[AttemptId] = set()
        self.slots = 0
        self.numbers: dict[tuple[int, int], tuple[int, int]] = {}
        for _ in range(graph.slot_count + 1):
            self.add_slot()
        self.inbox.append(j.Started())

    # ------------------------------------------------------------------------------------------------- what happens

    def add_slot(self) -> None:
        self.slots += 1
        name = SlotId(f"tm{self.slots % 2}/{self.slots}")
        info = s.SlotInfo(name, TaskManagerId(f"tm{self.slots % 2}"), "host", 1, 0, 0)
        self.said[name] = deque()
        self.schedule(s.SlotAdded(info))

    def kill_slot(self, name: SlotId) -> None:
        self.end_slot(name)
        self.schedule(s.SlotRemoved(name))

    def end_slot(self, name: SlotId) -> None:
        """Its tasks end unheard, its successor starts."""
        self.alive = {attempt: slot for attempt, slot in self.alive.items() if slot != name}
        self.said.pop(name, None)
        self.add_slot()

    def end_task(self, attempt: AttemptId, state: TaskState) -> None:
        name = self.alive.pop(attempt)
        self.cancelling.discard(attempt)
        self.said[name].append(j.TaskChanged(attempt, state, LOST if state is TaskState.FAILED else None))

    def step(self, *, failures: bool) -> bool:
        """Something that may happen now; False: nothing may but the passing of time."""
        choices = [lambda: self.handle(self.inbox.popleft())] if self.inbox else []
        for name in [name for name, said in self.said.items() if said]:
            choices.append(lambda name=name: self.handle(self.said[name].popleft()))  # type: ignore[misc]
        for attempt in sorted(self.cancelling & self.alive.keys()):
            choices.append(lambda attempt=attempt: self.end_task(attempt, TaskState.CANCELED))  # type: ignore[misc]
        if choices and not (failures and self.random.random() < 0.15):
            self.random.choice(choices)()
            return True
        return failures and self.fail()

    def fail(self) -> bool:
        kind = self.random.random()
        if kind < 0.35 and self.said:
            self.kill_slot(self.random.choice(sorted(self.said)))
        elif kind < 0.8 and self.alive:
            attempt = self.random.choice(sorted(self.alive))
            self.end_task(attempt, TaskState.FAILED if self.random.random() < 0.9 else TaskState.FINISHED)
        elif kind < 0.85:
            self.inbox.append(j.GenerationFailed(LOST))
        else:
            return False
        return True

    def pass_time(self) -> bool:
        due_ms = self.core.deadline_ms
        if due_ms is None:
            return False
        self.now_ms = max(self.now_ms, due_ms)
        self.handle(j.Ticked())
        return True

    # --------------------------------------------------------------------------------------------------- the shell

    def handle(self, event: j.JobEvent) -> None:
        for command in self.core.handle(event, self.now_ms):
            self.perform(command)
        self.check()

    def schedule(self, event: s.SchedulerEvent) -> None:
        for command in self.scheduler.handle(event):
            match command:
                case s.GrantSlots(slots=slots, number=number):
                    self.inbox.append(j.SlotsGranted(slots, number))
                case s.ReportMissing(missing=missing, number=number):
                    self.inbox.append(j.SlotsShort(missing, number))
                case s.ReportSlotLost(slot_id=name):
                    self.inbox.append(j.SlotGone(name, "killed"))
                case s.EndSlot(slot=slot):
                    self.end_slot(slot.slot_id)
        self.scheduler.validate()

    def perform(self, command: j.JobCommand) -> None:
        match command:
            case j.PrepareGeneration():
                self.generation += 1
                failed = self.random.random() < 0.1
                self.inbox.append(j.PreparationFailed(LOST) if failed else j.GenerationPrepared(self.generation))
            case j.PrepareRegion(number=number):
                failed = self.random.random() < 0.05
                self.inbox.append(j.RegionPreparationFailed(number, LOST) if failed else j.RegionPrepared(number))
            case j.RequestSlots(number=number, group_sizes=sizes, preferred=preferred):
                self.schedule(s.SlotsRequested(JOB, sizes, number, preferred))
            case j.WithdrawRequest(number=number):
                self.schedule(s.RequestWithdrawn(JOB, number))
            case j.EndSlots(slots=slots):
                self.schedule(s.SlotsReturned(JOB, tuple(slot.slot_id for slot in slots)))
            case j.ReleaseSlots():
                self.schedule(s.SlotsReleased(JOB))
            case j.LoseTasks(attempts=attempts):
                keys = {attempt.key for attempt in attempts}
                assert all(self.regions[key] <= keys for key in keys), "a part of a region restarts"
            case j.DeployTasks(attempts=attempts):
                self.deploy(attempts)
            case j.StartTasks(attempts=attempts):
                for attempt in attempts:
                    if attempt in self.alive:
                        self.said[self.alive[attempt]].append(j.TaskChanged(attempt, TaskState.RUNNING))
            case j.CancelTasks(attempts=attempts):
                self.cancelling.update(attempts)

    def deploy(self, attempts: tuple[AttemptId, ...]) -> None:
        assert self.core.execution is not None
        keys = {attempt.key for attempt in attempts}
        assert all(self.regions[key] <= keys for key in keys), "a region is deployed in parts"
        for attempt in attempts:
            name = self.core.execution.slot(attempt).slot_id
            assert self.numbers.get(attempt.key, (0, -1)) < (attempt.generation, attempt.number)
            self.numbers[attempt.key] = (attempt.generation, attempt.number)
            if name in self.said:
                self.alive[attempt] = name
                self.said[name].append(j.TaskChanged(attempt, TaskState.INITIALIZING))
                self.said[name].append(j.TaskRecovered(attempt, {}))

    def check(self) -> None:
        keys = [attempt.key for attempt in self.alive]
        assert len(keys) == len(set(keys)), "two attempts of a subtask live"
        if self.core.execution is not None:
            places = self.core.execution.homes
            used = [self.core.execution.slot_at(place) for place in places]
            assert len({slot.slot_id for slot in used if slot is not None}) == len(used), "two places share a slot"


@settings(max_examples=250, deadline=None)
@given(graph=st.sampled_from(GRAPHS), seed=st.integers(0, 2**32))
def test_whatever_fails_in_whatever_order_it_runs_again(graph: JobGraph, seed: int) -> None:
    world = World(graph, Random(seed))
    for _ in range(STEPS):
        if not world.step(failures=True):
            world.pass_time()
    for _ in range(2_000):
        if not (world.step(failures=False) or world.pass_time()):
            break
    core = world.core
    assert core.execution is not None
    assert core.state in (JobState.RUNNING, JobState.FINISHED), core.state
    assert not core.execution.unfinished - {attempt.key for attempt in world.alive}, "a task is missing"
    assert core.execution.all_in(TaskState.RUNNING, TaskState.FINISHED)
    assert core.down_since_ms is None
    # Nothing is held that no task needs.
    held = (
        {core.execution.slot(a).slot_id for a in core.execution.attempts} if core.state is JobState.RUNNING else set()
    )
    assert world.scheduler.slots_total - world.scheduler.slots_free == len(held)
