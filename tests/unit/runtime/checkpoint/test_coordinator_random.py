"""The checkpoint coordinator under events in any order: what must hold whatever the tasks, the store and the user do.

A state machine plays everybody around the coordinator: tasks that answer, decline, end, finish and die, late, doubled
and out of order, a store that succeeds or fails, users that ask for savepoints, and time.
"""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from connectors.api import Committable
from runtime.checkpoint import coordination as c
from runtime.checkpoint.coordinator import CheckpointCoordinator
from runtime.checkpoint.snapshot import OperatorSnapshot, SubtaskSnapshot
from runtime.ids import AttemptId, JobId
from runtime.job_settings import CheckpointSettings
from runtime.protocol.messages import Failure

JOB = JobId("0" * 32)
FAILURE = Failure("no", "external", True)


class CoordinatorMachine(RuleBasedStateMachine):
    """Sources are vertex 0, sinks vertex 1. `asked`: (attempt, id) whose barrier has left, directly or through the
    sources; what a task has been asked it may answer at any time from then on, also much too late."""

    @initialize(
        sources=st.integers(1, 3),
        sinks=st.integers(0, 2),
        concurrent=st.integers(1, 3),
        interval_ms=st.sampled_from([0, 1000]),
        pause_ms=st.sampled_from([0, 700]),
        tolerable=st.sampled_from([0, 2, 100, 100]),
    )
    def begin(self, sources: int, sinks: int, concurrent: int, interval_ms: int, pause_ms: int, tolerable: int) -> None:
        self.now_ms = 0
        self.settings = CheckpointSettings(
            interval_ms=interval_ms,
            timeout_ms=3000,
            min_pause_ms=pause_ms,
            tolerable_failures=tolerable,
            concurrent_max=concurrent,
        )
        places = [(0, i) for i in range(sources)] + [(1, i) for i in range(sinks)]
        self.roles = {p: c.TaskRole(AttemptId(JOB, 1, *p, 0), injects=p[0] == 0, commits=p[0] == 1) for p in places}
        self.coordinator = CheckpointCoordinator(self.settings, self.roles.values(), 1, {}, 0)
        self.asked: list[tuple[AttemptId, int]] = []
        self.past: list[c.CoordinatorEvent] = []
        self.ended: set[AttemptId] = set()
        self.lost: set[tuple[int, int]] = set()
        self.storing: c.StoreCheckpoint | None = None
        self.stored_id = 0
        self.commits: list[int] = []
        self.reserved = 0
        self.aborted: set[int] = set()
        self.last_end_ms = 0
        self.asked_for: set[str] = set()
        self.answered: set[str] = set()
        self.failed = False
        self.stopped = False

    # ------------------------------------------------------------------------------------------------------ driving

    def send(self, event: c.CoordinatorEvent) -> None:
        for command in self.coordinator.handle(event, self.now_ms):
            assert not (self.failed or self.stopped) or isinstance(command, c.Ignored | c.SavepointFailed)
            self.perform(command)
        self.coordinator.validate()

    def perform(self, command: c.CoordinatorCommand) -> None:
        match command:
            case c.ReserveCheckpointId(checkpoint_id=number):
                assert number == self.reserved + 1, "ids grow by one and are never used again"
                assert not self.lost, "nothing is triggered while tasks are missing"
                self.reserved = number
            case c.SendBarriers(checkpoint_id=number, attempts=attempts):
                assert number <= self.reserved, "a barrier left before its id was durable"
                live = {role.attempt for role in self.roles.values()}
                assert set(attempts) <= live
                asked = attempts if number < self.reserved or not attempts else live
                self.asked += [(attempt, number) for attempt in sorted(asked) if (attempt, number) not in self.asked]
            case c.StoreCheckpoint(checkpoint_id=number, snapshots=snapshots):
                assert self.storing is None, "two stores at a time"
                assert number > self.stored_id, "the pointer would go back"
                found = sorted((s.vertex_id, s.subtask_index) for s in snapshots)
                assert found == sorted(self.roles), "a snapshot of every place, once"
                self.storing = command
            case c.SendCommit(checkpoint_id=number):
                assert number == self.stored_id, "commit without, or of another than, what the pointer says"
                self.commits.append(number)
            case c.SendAbort(checkpoint_id=number):
                assert number not in self.commits, "given up after its commit"
                self.aborted.add(number)
            case c.DiscardSnapshots(checkpoint_id=number):
                assert number not in self.commits, "files of a committed checkpoint discarded"
            case c.CheckpointCompleted(checkpoint_id=number):
                assert number in self.commits
            case c.SavepointTaken(wanted=wanted):
                self.answer(wanted.trigger_id)
                self.stopped = wanted.stop
            case c.SavepointFailed(trigger_id=trigger_id):
                self.answer(trigger_id)
            case c.FailJob():
                self.failed = True
            case c.EndSources() | c.Ignored():
                pass

    def answer(self, trigger_id: str) -> None:
        assert trigger_id in self.asked_for
        assert trigger_id not in self.answered, "a savepoint answered twice"
        self.answered.add(trigger_id)

    def snapshot(self, attempt: AttemptId, number: int) -> SubtaskSnapshot:
        operators = (OperatorSnapshot("o", committables=(Committable(attempt.subtask_index, number, "i", b"", 1, 1),)),)
        finished = attempt in self.ended
        return SubtaskSnapshot(attempt.vertex_id, "v", attempt.subtask_index, 1, operators, finished=finished)

    # ------------------------------------------------------------------------------------------------------- events

    @rule(ms=st.sampled_from([1, 300, 1000, 1000, 1000, 5000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.send(c.Ticked())

    @rule()
    def timer(self) -> None:
        """The shell waits exactly until the deadline; ticking there must not leave it in the past."""
        deadline_ms = self.coordinator.deadline_ms
        if deadline_ms is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.send(c.Ticked())
            again = self.coordinator.deadline_ms
            assert again is None or again > self.now_ms, "the timer would spin"

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def task_answers(self, data: st.DataObject) -> None:
        attempt, number = data.draw(st.sampled_from(self.asked))
        event = c.SubtaskAcked(attempt, number, self.snapshot(attempt, number))
        self.past.append(event)
        self.send(event)

    @precondition(lambda self: self.reserved)
    @rule(back=st.integers(0, 2))
    def everybody_answers(self, back: int) -> None:
        for attempt, number in list(self.asked):
            if number == self.reserved - back:
                self.send(c.SubtaskAcked(attempt, number, self.snapshot(attempt, number)))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def task_declines(self, data: st.DataObject) -> None:
        attempt, number = data.draw(st.sampled_from(self.asked))
        self.send(c.SubtaskDeclined(attempt, number, FAILURE))

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def sink_commits(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.roles)))
        event = c.SubtaskCommitted(self.roles[place].attempt, data.draw(st.sampled_from(self.commits)))
        self.past.append(event)
        self.send(event)

    @precondition(lambda self: self.commits)
    @rule()
    def all_sinks_commit(self) -> None:
        for role in list(self.roles.values()):
            self.send(c.SubtaskCommitted(role.attempt, self.commits[-1]))

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def message_comes_again(self, data: st.DataObject) -> None:
        self.send(data.draw(st.sampled_from(self.past)))

    @precondition(lambda self: self.storing is not None)
    @rule(succeeds=st.sampled_from([True, True, True, False]))
    def store_ends(self, succeeds: bool) -> None:
        assert self.storing is not None
        stored, self.storing = self.storing, None
        if not succeeds:
            self.send(c.StoreFailed(stored.checkpoint_id, FAILURE))
            return
        if stored.savepoint is None or stored.savepoint.stop:
            self.stored_id = stored.checkpoint_id
        self.send(c.CheckpointStored(stored.checkpoint_id))

    @rule(data=st.data())
    def input_ends(self, data: st.DataObject) -> None:
        attempt = self.roles[data.draw(st.sampled_from(sorted(self.roles)))].attempt
        self.ended.add(attempt)
        self.send(c.TaskInputsEnded(attempt))

    @rule(data=st.data())
    def task_wants_a_checkpoint(self, data: st.DataObject) -> None:
        self.send(c.CheckpointWanted(self.roles[data.draw(st.sampled_from(sorted(self.roles)))].attempt))

    @rule(kind=st.sampled_from([*["go on"] * 4, "stop", "drain"]))
    def user_wants_a_savepoint(self, kind: str) -> None:
        trigger_id = str(len(self.asked_for))
        self.asked_for.add(trigger_id)
        self.send(c.SavepointWanted(trigger_id, "/sp", stop=kind != "go on", drain=kind == "drain"))

    @rule(data=st.data())
    def tasks_are_lost(self, data: st.DataObject) -> None:
        places = data.draw(st.sets(st.sampled_from(sorted(self.roles)), min_size=1))
        self.lost |= places
        self.send(c.TasksLost(tuple(self.roles[place].attempt for place in sorted(places))))

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def tasks_are_replaced(self, data: st.DataObject) -> None:
        places = data.draw(st.sets(st.sampled_from(sorted(self.lost)), min_size=1))
        for place in places:
            attempt = self.roles[place].attempt
            fresh = msgspec.structs.replace(attempt, number=attempt.number + 1)
            self.roles[place] = msgspec.structs.replace(self.roles[place], attempt=fresh)
        self.lost -= places
        self.send(c.TasksReplaced(tuple(self.roles[place] for place in sorted(places))))

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """Whatever is in flight has a timer, waits for the store, or for tasks that are being replaced."""
        if self.failed or self.stopped or self.lost or self.storing is not None:
            return
        in_flight = set(range(1, self.reserved + 1)) - self.aborted - set(self.commits)
        if self.asked_for - self.answered and in_flight:
            assert self.coordinator.deadline_ms is not None


CoordinatorMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCoordinator = CoordinatorMachine.TestCase
