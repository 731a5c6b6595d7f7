"""The life of a job, event by event. A small driver answers for the shell; every test reads like its story."""

from __future__ import annotations

import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import JobState
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.job_settings import RestartSettings, RestartStrategy
from runtime.jobmanager import job_events as j
from runtime.jobmanager.job import RUN_AGAIN, JobCore
from runtime.jobmanager.job_states import JOB_TRANSITIONS
from runtime.jobmanager.region_restarts import CANCELLATION_TIMEOUT_MS
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.messages import Failure, TaskState
from tests.support import graphs

JOB = JobId("f" * 32)
LOST = Failure("connection lost", "external", True)
GONE = "TaskManager tm is lost: the connection was closed"
WRONG = Failure("malformed record", "user", False)
DELAY_MS = 1_000
RESTARTS = RestartSettings(RestartStrategy.FIXED_DELAY, attempts=3, delay_ms=DELAY_MS)
PIPELINE = graphs.graph(
    graphs.vertex(0, graphs.generator(), parallelism=2),
    graphs.vertex(1, graphs.sink(), parallelism=2),
    edges=(graphs.edge(0, 1),),
)
QUERY = graphs.graph(graphs.vertex(0, graphs.values(1), graphs.collect()), is_query=True)


class Story:
    """A JobCore; `send` returns the names of the commands, RecordState as its state, notes for the history left out."""

    def __init__(self, graph: JobGraph = PIPELINE, restart: RestartSettings = RESTARTS) -> None:
        self.core = JobCore(JOB, graph, restart)
        self.generation = 0
        self.now_ms = 0
        self.request = 0
        self.commands: list[j.JobCommand] = []

    def send(self, event: j.JobEvent) -> list[str]:
        self.commands = self.core.handle(event, self.now_ms)
        shown = [c for c in self.commands if not isinstance(c, j.RecordFailure)]
        return [c.state.value if isinstance(c, j.RecordState) else type(c).__name__ for c in shown]

    def grant(self) -> list[str]:
        """What the generation has asked for."""
        return self.send(j.SlotsGranted(self.slots(), self.request))

    def attempts(self) -> list[AttemptId]:
        assert self.core.execution is not None
        return list(self.core.execution.attempts)

    def slots(self) -> dict[str, tuple[SlotInfo, ...]]:
        g = self.generation
        return {
            "default": tuple(
                SlotInfo(SlotId(f"tm/{i}/{g}"), TaskManagerId("tm"), "host", 1, 0, 0)
                for i in range(self.core.graph.slot_count)
            )
        }

    def prepare(self, stopped: bool = False) -> list[str]:
        self.generation += 1
        shown = self.send(j.GenerationPrepared(self.generation, stopped))
        self.request = next((c.number for c in self.commands if isinstance(c, j.RequestSlots)), self.request)
        return shown

    def recover_all(self) -> list[str]:
        commands: list[str] = []
        for attempt in self.attempts():
            commands += self.send(j.TaskChanged(attempt, TaskState.INITIALIZING))
            commands += self.send(j.TaskRecovered(attempt, {"sink": {attempt.subtask_index: 4}}))
        return commands

    def all(self, state: TaskState) -> list[str]:
        return [command for a in self.attempts() for command in self.send(j.TaskChanged(a, state))]

    def run(self) -> None:
        """From preparation to running tasks."""
        self.prepare()
        self.grant()
        self.recover_all()
        self.all(TaskState.RUNNING)

    def advance(self, ms: int) -> list[str]:
        self.now_ms += ms
        return self.send(j.Ticked())


def running(graph: JobGraph = PIPELINE, restart: RestartSettings = RESTARTS) -> Story:
    story = Story(graph, restart)
    story.send(j.Started())
    story.run()
    return story


def test_from_start_to_finish() -> None:
    story = Story()
    assert story.send(j.Started()) == ["PrepareGeneration"]
    assert story.prepare() == ["CREATED", "RequestSlots"]
    assert story.send(j.SlotsShort(2)) == []
    assert story.core.slots_missing == 2
    assert story.core.execution is not None
    assert story.core.execution.counts(0) == {"SCHEDULED": 2}
    assert story.grant() == ["RUNNING", "DeployTasks"]
    assert story.core.slots_missing == 0
    assert story.recover_all() == ["StartTasks"]
    assert story.all(TaskState.RUNNING) == []
    assert story.all(TaskState.FINISHED) == ["ReleaseSlots", "FenceSinks"]
    assert story.core.state is JobState.RUNNING
    assert story.send(j.SinksFenced()) == ["FINISHED"]


def test_a_job_that_a_savepoint_has_stopped_only_recovers_and_ends() -> None:
    """A failure between the pointer's move and the end of all tasks: the sinks commit, nothing is read."""
    story = running()
    story.send(j.TaskChanged(story.attempts()[0], TaskState.FAILED, LOST))
    assert story.advance(DELAY_MS) == ["PrepareGeneration"]
    assert story.prepare(stopped=True) == ["CREATED", "RequestSlots"]
    story.grant()
    assert story.recover_all() == ["ReleaseSlots", "FenceSinks"]
    assert story.send(j.SinksFenced()) == ["FINISHED"]


def test_a_failure_while_a_stopped_job_recovers_is_tried_again() -> None:
    story = Story()
    story.send(j.Started())
    story.prepare(stopped=True)
    story.grant()
    assert story.send(j.TaskChanged(story.attempts()[0], TaskState.FAILED, LOST)) == ["RESTARTING", "ReleaseSlots"]
    story.advance(DELAY_MS)
    story.prepare(stopped=True)
    story.grant()
    assert story.recover_all() == ["ReleaseSlots", "FenceSinks"]


def test_sources_start_only_when_every_task_has_recovered() -> None:
    story = Story()
    story.send(j.Started())
    story.prepare()
    story.grant()
    first, *rest = story.attempts()
    assert story.send(j.TaskRecovered(first, {})) == []
    assert story.send(j.TaskRecovered(first, {})) == []
    assert [story.send(j.TaskRecovered(a, {"sink": {a.subtask_index: 7}})) for a in rest] == [[], [], ["StartTasks"]]


def test_a_failure_restarts_the_whole_job_in_a_new_generation() -> None:
    story = running()
    old = story.attempts()
    assert story.send(j.TaskChanged(old[0], TaskState.FAILED, LOST)) == ["RESTARTING", "ReleaseSlots"]
    # What the dying tasks still say, and a slot's end, count no second time.
    assert story.send(j.TaskChanged(old[1], TaskState.FAILED, LOST)) == []
    assert story.send(j.SlotGone(SlotId("tm/0/1"), "killed")) == []
    assert story.core.failover.restarts == 1
    assert story.advance(DELAY_MS - 1) == []
    assert story.advance(1) == ["PrepareGeneration"]
    assert story.advance(DELAY_MS) == []
    assert story.prepare() == ["CREATED", "RequestSlots"]
    assert story.grant() == ["RUNNING", "DeployTasks"]
    assert [a.number for a in story.attempts()] == [1, 1, 1, 1]
    # Stale attempts change nothing.
    assert story.send(j.TaskChanged(old[0], TaskState.FAILED, LOST)) == []
    assert story.send(j.TaskRecovered(old[0], {})) == []
    assert story.recover_all() == ["StartTasks"]
    assert story.core.failure == LOST


def test_the_loss_of_a_slot_fails_its_tasks() -> None:
    story = running()
    assert story.send(j.SlotGone(SlotId("tm/9/1"), "killed")) == []
    assert story.send(j.SlotGone(SlotId("tm/1/1"), "killed by SIGKILL")) == ["RESTARTING", "ReleaseSlots"]
    assert story.core.failure is not None
    assert "killed by SIGKILL" in story.core.failure.message


def test_the_loss_of_a_slot_whose_tasks_have_finished_is_nothing() -> None:
    story = running()
    assert story.core.execution is not None
    for attempt in story.core.execution.attempts_in(SlotId("tm/1/1")):
        story.send(j.TaskChanged(attempt, TaskState.FINISHED))
    assert story.send(j.SlotGone(SlotId("tm/1/1"), "killed")) == []


def test_restarts_end_and_the_sinks_are_fenced_before_failed() -> None:
    story = running(restart=RestartSettings(RestartStrategy.FIXED_DELAY, attempts=1, delay_ms=DELAY_MS))
    assert story.send(j.GenerationFailed(LOST)) == ["RESTARTING", "ReleaseSlots"]
    assert story.advance(DELAY_MS) == ["PrepareGeneration"]
    assert story.send(j.PreparationFailed(LOST)) == ["FAILING", "ReleaseSlots", "FenceSinks"]
    assert story.send(j.CancelRequested()) == []
    assert story.send(j.SinksFenced()) == ["FAILED"]
    assert story.core.failure == LOST


def test_a_failed_preparation_is_tried_again() -> None:
    story = Story()
    story.send(j.Started())
    assert story.send(j.PreparationFailed(LOST)) == ["RESTARTING", "ReleaseSlots"]
    assert story.advance(DELAY_MS) == ["PrepareGeneration"]
    assert story.send(j.PreparationFailed(LOST)) == ["RESTARTING", "ReleaseSlots"]
    assert story.advance(DELAY_MS) == ["PrepareGeneration"]
    assert story.prepare() == ["CREATED", "RequestSlots"]
    assert story.core.failover.restarts == 2


def test_an_error_of_the_user_fails_at_once() -> None:
    story = running()
    commands = story.send(j.TaskChanged(story.attempts()[0], TaskState.FAILED, WRONG))
    assert commands == ["FAILING", "ReleaseSlots", "FenceSinks"]
    assert story.send(j.SinksFenced()) == ["FAILED"]
    assert story.core.failure == WRONG


def test_cancel_waits_for_the_tasks_then_fences() -> None:
    story = running()
    assert story.send(j.CancelRequested()) == ["CANCELLING", "CancelTasks"]
    assert story.send(j.CancelRequested()) == []
    first, *rest = story.attempts()
    commands = [command for a in rest for command in story.send(j.TaskChanged(a, TaskState.CANCELED))]
    assert commands == []
    assert story.send(j.TaskChanged(first, TaskState.FAILED, LOST)) == ["ReleaseSlots", "FenceSinks"]
    assert story.send(j.SinksFenced()) == ["CANCELED"]
    assert story.send(j.CancelRequested()) == []


def test_cancel_does_not_wait_for_ever_nor_for_a_dead_slot() -> None:
    story = running()
    story.send(j.CancelRequested())
    assert story.send(j.SlotGone(SlotId("tm/0/1"), "killed")) == []
    assert story.send(j.SlotGone(SlotId("tm/1/1"), "killed")) == ["ReleaseSlots", "FenceSinks"]
    story = running()
    story.send(j.CancelRequested())
    assert story.advance(CANCELLATION_TIMEOUT_MS) == ["ReleaseSlots", "FenceSinks"]


@pytest.mark.parametrize("when", ["initializing", "waiting", "restarting"])
def test_cancel_without_tasks(when: str) -> None:
    story = Story()
    story.send(j.Started())
    if when == "waiting":
        story.prepare()
    elif when == "restarting":
        story.send(j.PreparationFailed(LOST))
    assert story.send(j.CancelRequested()) == ["CANCELLING", "ReleaseSlots", "FenceSinks"]
    # Late news of the start that was under way.
    assert story.send(j.GenerationPrepared(1)) == []
    assert story.send(j.SlotsGranted({})) == []
    assert story.advance(DELAY_MS) == []
    assert story.send(j.SinksFenced()) == ["CANCELED"]


def test_a_satisfied_limit_ends_the_sources_that_nobody_else_reads() -> None:
    """Three sources: into a LIMIT, into it and past it, past it."""
    graph = graphs.graph(
        *(graphs.vertex(i, graphs.generator(f"source-{i}")) for i in range(3)),
        graphs.vertex(3, graphs.limit(7), graphs.sink("limited")),
        graphs.vertex(4, graphs.sink("all")),
        edges=tuple(graphs.edge(a, b, EdgeKind.SINGLE) for a, b in ((0, 3), (1, 3), (1, 4), (2, 4))),
    )
    story = running(graph)
    limit = next(a for a in story.attempts() if a.vertex_id == 3)
    assert story.send(j.LimitSatisfied(limit)) == ["EndSources"]
    (command,) = story.commands
    assert isinstance(command, j.EndSources)
    assert [a.vertex_id for a in command.attempts] == [0]
    # A restart goes back to where it may not have been satisfied; if it is, its task says so again.
    story.send(j.GenerationFailed(LOST))
    story.advance(DELAY_MS)
    story.prepare()
    story.grant()
    assert story.recover_all() == ["StartTasks"]
    story.send(j.GenerationFailed(LOST))
    story.advance(DELAY_MS)
    story.prepare()
    story.grant()
    limit = next(a for a in story.attempts() if a.vertex_id == 3)
    assert story.send(j.LimitSatisfied(limit)) == ["EndSources"]
    assert story.recover_all() == ["StartTasks", "EndSources"]


def test_a_query_keeps_its_slot_until_the_result_is_read() -> None:
    story = running(QUERY)
    assert story.all(TaskState.FINISHED) == []
    assert story.send(j.ResultDrained()) == ["ReleaseSlots", "FenceSinks"]
    assert story.send(j.SinksFenced()) == ["FINISHED"]


def test_a_query_whose_slot_dies_before_the_result_is_read_fails() -> None:
    story = running(QUERY)
    story.all(TaskState.FINISHED)
    assert story.send(j.SlotGone(SlotId("tm/0/1"), GONE)) == ["FAILING", "ReleaseSlots", "FenceSinks"]
    message = f"the result of the query is lost before its rows were fetched: {GONE}"
    assert story.core.failure == Failure(message, "external", True, RUN_AGAIN)


def test_a_query_is_not_restarted() -> None:
    """Whoever reads it is told whose fault it is and what to do."""
    story = running(QUERY)
    assert story.send(j.SlotGone(SlotId("tm/0/1"), GONE)) == ["FAILING", "ReleaseSlots", "FenceSinks"]
    assert story.core.failure == Failure(GONE, "external", True, RUN_AGAIN)


@pytest.mark.parametrize(
    ("failure", "hint"),
    [
        (Failure("a peer is lost", "external", True), RUN_AGAIN),
        (Failure("no broker", "external", True, "Start one."), f"Start one. {RUN_AGAIN}"),
        (Failure("division by zero", "user", False, "Use NULLIF."), "Use NULLIF."),
    ],
)
def test_a_query_is_worth_another_try_where_a_restart_would_be(failure: Failure, hint: str) -> None:
    story = running(QUERY)
    story.send(j.GenerationFailed(failure))
    expected = Failure(failure.message, failure.domain, failure.retry, hint)
    assert story.core.failure == expected
    assert [c.failure for c in story.commands if isinstance(c, j.RecordFailure)] == [expected]


def test_suspension_is_not_an_end() -> None:
    story = running()
    assert story.send(j.Suspended()) == ["SUSPENDED", "ReleaseSlots"]
    assert not story.core.state.terminal
    assert story.send(j.CancelRequested()) == []


@pytest.mark.parametrize(("ending", "end"), [(JobState.CANCELLING, "CANCELED"), (JobState.FAILING, "FAILED")])
def test_a_job_that_was_ending_is_ended_by_the_next_job_manager(ending: JobState, end: str) -> None:
    story = Story()
    assert story.send(j.Started(ending)) == [ending.value, "FenceSinks"]
    assert story.send(j.Suspended()) == ["ReleaseSlots"]
    assert story.core.state is ending
    assert story.send(j.SinksFenced()) == [end]


def test_a_task_that_ends_unasked_is_a_failure() -> None:
    story = running()
    commands = story.send(j.TaskChanged(story.attempts()[0], TaskState.CANCELED))
    assert commands == ["RESTARTING", "ReleaseSlots"]


def test_terminal_states_have_no_way_out() -> None:
    for state in JobState:
        assert state.terminal == (JOB_TRANSITIONS[state] == frozenset() and state is not JobState.SUSPENDED)
