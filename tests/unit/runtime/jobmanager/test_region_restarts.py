"""Failures that concern a part of a job, event by event. The shell is a driver that answers when it is told to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import JobState
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.jobmanager import job_events as j
from runtime.jobmanager.job import JobCore
from runtime.jobmanager.region_restarts import CANCELLATION_TIMEOUT_MS
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.messages import Failure, TaskState
from tests.support import graphs

JOB = JobId("f" * 32)
LOST = Failure("connection lost", "external", True)
WRONG = Failure("malformed record", "user", False)
DELAY_MS = 1_000
RESTARTS = RestartSettings(RestartStrategy.FIXED_DELAY, attempts=3, delay_ms=DELAY_MS)

FORWARD = graphs.graph(
    graphs.vertex(0, graphs.generator(), parallelism=2),
    graphs.vertex(1, graphs.sink(), parallelism=2),
    edges=(graphs.edge(0, 1, EdgeKind.FORWARD),),
)
"""Two regions, each in a slot of its own."""
STATEMENTS = graphs.graph(
    graphs.vertex(0, graphs.generator("source-a"), parallelism=2),
    graphs.vertex(1, graphs.sink("a"), parallelism=2),
    graphs.vertex(2, graphs.generator("source-b")),
    graphs.vertex(3, graphs.sink("b")),
    edges=(graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(2, 3, EdgeKind.SINGLE)),
)
"""Two regions: A has tasks in slots 0 and 1, B in slot 0 only."""


def slot(name: str) -> SlotInfo:
    return SlotInfo(SlotId(name), TaskManagerId(name.split("/")[0]), "host", 1, 0, 0)


class Story:
    """A job that runs. `send` returns the commands as short texts."""

    def __init__(self, graph: JobGraph, *, prefers_homes: bool = False) -> None:
        self.core = JobCore(JOB, graph, RESTARTS, prefers_homes=prefers_homes)
        self.now_ms = 0
        self.commands: list[j.JobCommand] = []
        self.send(j.Started())
        self.send(j.GenerationPrepared(1))
        slots = tuple(slot(f"tm{i}/{i}/1") for i in range(graph.slot_count))
        self.send(j.SlotsGranted({"default": slots}, self.request.number))
        self.recover(self.attempts())
        self.run(self.attempts())

    def send(self, event: j.JobEvent) -> list[str]:
        self.commands = self.core.handle(event, self.now_ms)
        return [_text(c) for c in self.commands]

    def advance(self, ms: int) -> list[str]:
        self.now_ms += ms
        return self.send(j.Ticked())

    def down_ms(self) -> int | None:
        since_ms = self.core.down_since_ms
        return None if since_ms is None else self.now_ms - since_ms

    @property
    def request(self) -> j.RequestSlots:
        return next(c for c in self.commands if isinstance(c, j.RequestSlots))

    def attempts(self, *vertices: int) -> list[AttemptId]:
        assert self.core.execution is not None
        return [a for a in self.core.execution.attempts if not vertices or a.vertex_id in vertices]

    def at(self, vertex: int, index: int) -> AttemptId:
        assert self.core.execution is not None
        return self.core.execution.attempt(vertex, index)

    def say(self, attempts: list[AttemptId], state: TaskState) -> list[str]:
        return [text for a in attempts for text in self.send(j.TaskChanged(a, state))]

    def recover(self, attempts: list[AttemptId], marker: int = 4) -> list[str]:
        found: list[str] = []
        for attempt in attempts:
            found += self.send(j.TaskChanged(attempt, TaskState.INITIALIZING))
            found += self.send(j.TaskRecovered(attempt, {"sink": {attempt.subtask_index: marker}}))
        return found

    def run(self, attempts: list[AttemptId]) -> list[str]:
        return self.say(attempts, TaskState.RUNNING)


def _text(command: j.JobCommand) -> str:
    match command:
        case j.RecordState(state=state):
            return state.value
        case j.RecordFailure(concurrent=concurrent):
            return "concurrent" if concurrent else "note"
        case j.LoseTasks() | j.CancelTasks() | j.DeployTasks() | j.StartTasks() | j.EndSources():
            tasks = " ".join(f"{a.vertex_id}.{a.subtask_index}" for a in command.attempts)
            return f"{type(command).__name__} {tasks}"
        case j.EndSlots(slots=slots):
            return "EndSlots " + " ".join(s.slot_id for s in slots)
        case j.RequestSlots(group_sizes=sizes):
            return f"RequestSlots {sum(sizes.values())}"
        case j.ReportRestart(duration_ms=duration_ms, tasks=tasks_count):
            return f"ReportRestart {tasks_count} in {duration_ms}"
        case _:
            return type(command).__name__


def test_the_death_of_a_slot_restarts_its_region_and_no_other() -> None:
    story = Story(FORWARD)
    others = story.attempts()[0::2]
    assert story.send(j.SlotGone(SlotId("tm1/1/1"), "killed")) == ["note", "RESTARTING", "LoseTasks 0.1 1.1"]
    assert story.down_ms() == 0
    assert story.advance(DELAY_MS - 1) == []
    assert story.advance(1) == ["PrepareRegion"]
    assert story.send(j.RegionPrepared(2)) == ["RequestSlots 1"]
    assert story.send(j.SlotsShort(1, 2)) == []
    assert story.core.slots_missing == 1
    assert story.send(j.SlotsGranted({"default": (slot("tm0/2/1"),)}, 2)) == ["RUNNING", "DeployTasks 0.1 1.1"]
    assert story.core.slots_missing == 0
    # The same generation, another attempt; the others are who they were.
    assert [(a.generation, a.number) for a in (story.at(0, 1), story.at(1, 1))] == [(1, 1), (1, 1)]
    assert story.attempts()[0::2] == others
    assert story.recover([story.at(0, 1), story.at(1, 1)]) == ["StartTasks 0.1 1.1"]
    story.now_ms += 500
    assert story.run([story.at(0, 1), story.at(1, 1)]) == ["ReportRestart 2 in 1500"]
    assert story.down_ms() is None
    assert (story.core.failover.restarts, story.core.full_restarts) == (1, 0)


def test_a_failed_task_takes_its_region_along_and_slots_of_its_own_end() -> None:
    story = Story(FORWARD)
    commands = story.send(j.TaskChanged(story.at(1, 0), TaskState.FAILED, LOST))
    assert commands == ["note", "RESTARTING", "LoseTasks 0.0 1.0", "EndSlots tm0/0/1"]
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    assert story.send(j.RegionPrepared(2)) == ["RequestSlots 1"]


def test_a_slot_with_tasks_of_another_region_stays_and_gets_the_new_attempts() -> None:
    story = Story(STATEMENTS)
    b = story.attempts(2, 3)
    commands = story.send(j.TaskChanged(story.at(0, 1), TaskState.FAILED, LOST))
    # Slot 1 has tasks of A only, slot 0 holds B.
    lost = "LoseTasks 0.0 0.1 1.0 1.1"
    assert commands == ["note", "RESTARTING", lost, "EndSlots tm1/1/1", "CancelTasks 0.0 1.0"]
    # The delay passes before the tasks have ended.
    assert story.advance(DELAY_MS) == []
    # What a task that is to be replaced says is noted, and no more.
    assert story.send(j.TaskChanged(story.at(0, 0), TaskState.FAILED, LOST)) == ["concurrent"]
    assert story.send(j.TaskChanged(story.at(1, 0), TaskState.CANCELED)) == ["PrepareRegion"]
    assert story.send(j.RegionPrepared(2)) == ["RequestSlots 1"]
    grant = j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2)
    assert story.send(grant) == ["RUNNING", "DeployTasks 0.0 0.1 1.0 1.1"]
    assert story.core.execution is not None
    assert [story.core.execution.slot(story.at(0, i)).slot_id for i in range(2)] == ["tm0/0/1", "tm1/1/2"]
    assert story.attempts(2, 3) == b
    assert story.recover(story.attempts(0, 1)) == ["StartTasks 0.0 0.1 1.0 1.1"]


def test_a_region_whose_slots_all_stay_needs_none() -> None:
    story = Story(STATEMENTS)
    failed = story.send(j.TaskChanged(story.at(3, 0), TaskState.FAILED, LOST))
    assert failed == ["note", "RESTARTING", "LoseTasks 2.0 3.0", "CancelTasks 2.0"]
    assert story.send(j.TaskChanged(story.at(2, 0), TaskState.CANCELED)) == []
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    assert story.send(j.RegionPrepared(2)) == ["RUNNING", "DeployTasks 2.0 3.0"]


def test_a_slot_of_several_regions_restarts_them_all() -> None:
    story = Story(STATEMENTS)
    assert story.send(j.SlotGone(SlotId("tm0/0/1"), "killed")) == ["note", "RESTARTING", "ReleaseSlots"]
    assert story.core.full_restarts == 1
    story = Story(STATEMENTS)
    assert story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))[2:] == [
        "LoseTasks 0.0 0.1 1.0 1.1",
        "CancelTasks 0.0 1.0",
    ]


def test_old_attempts_are_not_heard_any_more() -> None:
    story = Story(FORWARD)
    old = story.at(0, 1)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    story.advance(DELAY_MS)
    story.send(j.RegionPrepared(2))
    story.send(j.SlotsGranted({"default": (slot("tm0/2/1"),)}, 2))
    for event in (
        j.TaskChanged(old, TaskState.FAILED, LOST),
        j.TaskChanged(old, TaskState.FINISHED),
        j.TaskRecovered(old, {"sink": {1: 99}}),
        j.LimitSatisfied(old),
    ):
        assert story.send(event) == []
    assert story.recover([story.at(0, 1), story.at(1, 1)]) == ["StartTasks 0.1 1.1"]
    start = story.commands[0]
    assert isinstance(start, j.StartTasks)
    assert start.markers == {"sink": {1: 4}}


@pytest.mark.parametrize("phase", ["waiting", "preparing", "scheduled", "recovering", "started"])
def test_a_second_failure_begins_the_restart_again(phase: str) -> None:
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    phases = ["waiting", "preparing", "scheduled", "recovering", "started"]
    steps: list[Callable[[], list[str]]] = [
        lambda: story.advance(DELAY_MS),
        lambda: story.send(j.RegionPrepared(2)),
        lambda: story.send(j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2)),
        lambda: story.recover([story.at(0, 1), story.at(1, 1)]),
    ]
    for step in steps[: phases.index(phase)]:
        step()
    if phase in ("recovering", "started"):
        commands = story.send(j.TaskChanged(story.at(0, 1), TaskState.FAILED, LOST))
        assert commands == ["note", "RESTARTING", "LoseTasks 0.1 1.1", "EndSlots tm1/1/2"]
    else:
        # Nothing of the region runs: what fails now is the job itself.
        assert story.send(j.GenerationFailed(LOST)) == ["note", "RESTARTING", "ReleaseSlots"]
        return
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    # What belongs to the first one comes too late.
    assert story.send(j.RegionPrepared(2)) == []
    late = j.SlotsGranted({"default": (slot("tm9/9/9"),)}, 2)
    assert story.send(late) == ["EndSlots tm9/9/9"]
    assert story.send(j.RegionPrepared(3)) == ["RequestSlots 1"]
    story.send(j.SlotsGranted({"default": (slot("tm1/1/3"),)}, 3))
    assert story.at(0, 1).number == 2
    assert story.recover([story.at(0, 1), story.at(1, 1)]) == ["StartTasks 0.1 1.1"]
    # From the first failure on.
    assert story.run([story.at(0, 1), story.at(1, 1)])[-1].startswith("ReportRestart 2 in 2000")


def test_two_regions_restart_beside_each_other() -> None:
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    # All tasks are down now, but each region goes its own way.
    assert story.send(j.SlotGone(SlotId("tm0/0/1"), "killed")) == ["note", "RESTARTING", "LoseTasks 0.0 1.0"]
    assert story.send(j.RegionPrepared(2)) == ["RequestSlots 1"]
    assert story.send(j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2)) == ["DeployTasks 0.1 1.1"]
    assert story.core.state is JobState.RESTARTING
    assert story.recover([story.at(0, 1), story.at(1, 1)]) == ["StartTasks 0.1 1.1"]
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    story.send(j.RegionPrepared(3))
    assert story.send(j.SlotsGranted({"default": (slot("tm0/0/2"),)}, 3)) == ["RUNNING", "DeployTasks 0.0 1.0"]


def test_failures_of_one_cause_count_once() -> None:
    """A TaskManager dies: one slot after the other is reported."""
    story = Story(FORWARD)
    for name in ("tm0/0/1", "tm1/1/1"):
        assert story.send(j.SlotGone(SlotId(name), "the TaskManager is gone"))[:2] == ["note", "RESTARTING"]
    assert story.core.failover.restarts == 1
    assert story.advance(DELAY_MS) == ["PrepareRegion", "PrepareRegion"]


def test_a_kept_slot_that_dies_while_its_tasks_are_cancelled_is_replaced() -> None:
    story = Story(STATEMENTS)
    story.send(j.TaskChanged(story.at(3, 0), TaskState.FAILED, LOST))
    # Task 2.0 is being cancelled in slot 0, where A runs as well: both need one new slot, so they go on together.
    assert story.send(j.SlotGone(SlotId("tm0/0/1"), "killed")) == ["note", "RESTARTING", "ReleaseSlots"]


def test_restarts_that_lose_the_slot_they_share_become_one() -> None:
    graph = graphs.graph(
        *STATEMENTS.vertices,
        graphs.vertex(4, graphs.generator("source-c"), parallelism=2),
        edges=STATEMENTS.edges,
    )
    story = Story(graph)
    story.send(j.TaskChanged(story.at(3, 0), TaskState.FAILED, LOST))
    story.send(j.TaskChanged(story.at(4, 0), TaskState.FAILED, LOST))
    story.send(j.TaskChanged(story.at(2, 0), TaskState.CANCELED))
    assert story.advance(DELAY_MS) == ["PrepareRegion", "PrepareRegion"]
    # Slot 0 holds A as well, and is what both were to go back to.
    commands = story.send(j.SlotGone(SlotId("tm0/0/1"), "killed"))
    assert commands == [
        "note",
        "RESTARTING",
        "LoseTasks 0.0 0.1 1.0 1.1 2.0 3.0 4.0",
        "CancelTasks 0.1 1.1",
    ]
    story.say([story.at(0, 1), story.at(1, 1)], TaskState.CANCELED)
    assert story.advance(DELAY_MS) == ["PrepareRegion"]
    assert story.send(j.RegionPrepared(4)) == ["RequestSlots 1"]
    assert story.send(j.RegionPrepared(3)) == []


def test_tasks_that_do_not_end_restart_the_whole_job() -> None:
    story = Story(STATEMENTS)
    story.send(j.TaskChanged(story.at(3, 0), TaskState.FAILED, LOST))
    assert story.advance(DELAY_MS) == []
    assert story.core.deadline_ms == CANCELLATION_TIMEOUT_MS
    assert story.advance(CANCELLATION_TIMEOUT_MS - DELAY_MS) == ["note", "RESTARTING", "ReleaseSlots"]


def test_what_a_region_cannot_restore_the_whole_job_may() -> None:
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    story.advance(DELAY_MS)
    damaged = Failure("checkpoint 3 is damaged", "external", True)
    assert story.send(j.RegionPreparationFailed(2, damaged)) == ["note", "RESTARTING", "ReleaseSlots"]
    assert story.send(j.RegionPreparationFailed(2, damaged)) == []


def test_a_job_that_a_savepoint_has_stopped_meanwhile_starts_as_a_whole() -> None:
    """Its pointer says that it is over: no region may read on."""
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    story.advance(DELAY_MS)
    assert story.send(j.RegionPrepared(2, stopped=True)) == ["RESTARTING", "ReleaseSlots", "PrepareGeneration"]
    assert story.core.failover.restarts == 1


def test_finished_tasks_of_a_region_are_restored_with_it_and_finished_regions_are_left_alone() -> None:
    story = Story(FORWARD)
    story.say([story.at(0, 0), story.at(1, 0), story.at(0, 1)], TaskState.FINISHED)
    # Region 0 is over. Region 1 is all that is left: the whole job starts again, as it always did.
    assert story.send(j.SlotGone(SlotId("tm0/0/1"), "killed")) == []
    story = Story(STATEMENTS)
    story.say([story.at(0, 0), story.at(0, 1)], TaskState.FINISHED)
    commands = story.send(j.TaskChanged(story.at(1, 1), TaskState.FAILED, LOST))
    assert commands[2:] == ["LoseTasks 0.0 0.1 1.0 1.1", "EndSlots tm1/1/1", "CancelTasks 1.0"]
    story.send(j.TaskChanged(story.at(1, 0), TaskState.CANCELED))
    story.advance(DELAY_MS)
    story.send(j.RegionPrepared(2))
    deploy = story.send(j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2))
    assert deploy[-1] == "DeployTasks 0.0 0.1 1.0 1.1"


def test_the_end_waits_for_the_region_that_restarts() -> None:
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    assert story.say([story.at(0, 0), story.at(1, 0)], TaskState.FINISHED) == []
    story.advance(DELAY_MS)
    story.send(j.RegionPrepared(2))
    story.send(j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2))
    story.recover([story.at(0, 1), story.at(1, 1)])
    ended = story.say([story.at(0, 1), story.at(1, 1)], TaskState.RUNNING)
    ended += story.say([story.at(0, 1), story.at(1, 1)], TaskState.FINISHED)
    assert ended[-2:] == ["ReleaseSlots", "FenceSinks"]


@pytest.mark.parametrize("step", ["waiting", "preparing", "scheduled", "recovering"])
def test_cancel_while_a_region_restarts(step: str) -> None:
    story = Story(FORWARD)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    if step != "waiting":
        story.advance(DELAY_MS)
    if step in ("scheduled", "recovering"):
        story.send(j.RegionPrepared(2))
    if step == "recovering":
        story.send(j.SlotsGranted({"default": (slot("tm1/1/2"),)}, 2))
    running = story.attempts() if step == "recovering" else [story.at(0, 0), story.at(1, 0)]
    cancelled = "CancelTasks 0.0 1.0 0.1 1.1" if step == "recovering" else "CancelTasks 0.0 1.0"
    assert story.send(j.CancelRequested()) == ["CANCELLING", cancelled]
    # News of the restart come too late.
    assert story.send(j.RegionPrepared(2)) == []
    assert story.send(j.SlotsGranted({"default": (slot("tm5/5/5"),)}, 2)) == ["EndSlots tm5/5/5"]
    assert story.say(running, TaskState.CANCELED) == ["ReleaseSlots", "FenceSinks"]
    assert story.send(j.SinksFenced()) == ["CANCELED"]


def test_an_error_of_the_user_in_one_region_fails_the_job() -> None:
    story = Story(FORWARD)
    commands = story.send(j.TaskChanged(story.at(0, 0), TaskState.FAILED, WRONG))
    assert commands == ["note", "FAILING", "ReleaseSlots", "FenceSinks"]


def test_restarts_of_regions_are_limited_like_those_of_the_job() -> None:
    story = Story(FORWARD)
    for number in range(2, 5):
        story.send(j.SlotGone(SlotId(f"tm1/1/{number - 1}"), "killed"))
        story.advance(DELAY_MS)
        story.send(j.RegionPrepared(number))
        story.send(j.SlotsGranted({"default": (slot(f"tm1/1/{number}"),)}, number))
        story.recover([story.at(0, 1), story.at(1, 1)])
    assert story.send(j.SlotGone(SlotId("tm1/1/4"), "killed")) == ["note", "FAILING", "ReleaseSlots", "FenceSinks"]


def test_slots_are_asked_for_where_the_files_are() -> None:
    story = Story(FORWARD, prefers_homes=True)
    story.send(j.SlotGone(SlotId("tm1/1/1"), "killed"))
    story.advance(DELAY_MS)
    story.send(j.RegionPrepared(2))
    assert story.request.preferred == {"default": (TaskManagerId("tm1"),)}
    story.send(j.GenerationFailed(LOST))
    story.advance(DELAY_MS)
    story.send(j.GenerationPrepared(2))
    assert story.request.preferred == {"default": (TaskManagerId("tm0"), TaskManagerId("tm1"))}


def test_another_graph_begins_a_generation_and_counts_as_no_failure() -> None:
    story = Story(FORWARD)
    wider = graphs.graph(
        graphs.vertex(0, graphs.generator(), parallelism=3),
        graphs.vertex(1, graphs.sink(), parallelism=3),
        edges=(graphs.edge(0, 1, EdgeKind.FORWARD),),
    )
    assert story.send(j.GraphReplaced(wider)) == ["RESTARTING", "ReleaseSlots", "PrepareGeneration"]
    # Its slots end one after the other, and their tasks lose each other: nothing for the history of failures.
    assert story.send(j.TaskChanged(story.at(0, 0), TaskState.FAILED, LOST)) == []
    # Replaced once more while the first is being prepared: what was prepared is of no use.
    assert story.send(j.GraphReplaced(FORWARD)) == []
    assert story.send(j.GenerationPrepared(2)) == ["PrepareGeneration"]
    assert story.send(j.GenerationPrepared(3)) == ["CREATED", "RequestSlots 2"]
    assert story.core.failover.restarts == 0


def test_a_slot_that_a_finished_task_is_to_return_to_stays() -> None:
    """Task 0.1 has finished, but its region restarts; 2.1 is alone in their slot and fails as well."""
    graph = graphs.graph(
        graphs.vertex(0, graphs.generator("source-a"), parallelism=2),
        graphs.vertex(1, graphs.sink("a")),
        graphs.vertex(2, graphs.generator("source-b"), parallelism=2),
        edges=(graphs.edge(0, 1, EdgeKind.SINGLE),),
    )
    story = Story(graph)
    story.say([story.at(0, 1)], TaskState.FINISHED)
    story.send(j.TaskChanged(story.at(1, 0), TaskState.FAILED, LOST))
    failed = story.send(j.TaskChanged(story.at(2, 1), TaskState.FAILED, LOST))
    assert failed == ["note", "RESTARTING", "LoseTasks 2.1"]
    story.say([story.at(0, 0)], TaskState.CANCELED)
    assert story.advance(DELAY_MS) == ["PrepareRegion", "PrepareRegion"]
    assert story.send(j.RegionPrepared(2)) == ["DeployTasks 0.0 0.1 1.0"]
    assert story.send(j.RegionPrepared(3)) == ["RUNNING", "DeployTasks 2.1"]
