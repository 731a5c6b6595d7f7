"""The life of one job: states, generations, failures and endings. Pure: events and a time in, commands out.

A *generation* is one start of the whole job:

    prepare (durable generation, splits, sink targets) → ask slots → deploy → every task initialized → go

A failure of any task ends the generation: its slots are given back (their processes end) and, after the restart delay,
the next generation begins from the latest committed checkpoint. Every end passes the fence: a job with sinks reports
FINISHED, CANCELED or FAILED only after its transactional ids are fenced.

A job that a savepoint has stopped is over once the pointer says so. If a failure comes before its tasks have ended, the
next generation only recovers (the sinks commit what the savepoint holds) and the job is FINISHED without reading on.
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.api import JobState
from runtime.ids import AttemptId, JobId, SlotId
from runtime.job_settings import RestartSettings
from runtime.jobmanager.execution_graph import ExecutionGraph, group_sizes
from runtime.jobmanager.failover import Failover
from runtime.jobmanager.scheduler import GroupSlots
from runtime.protocol.messages import Failure, TaskState

_ABORTS = frozenset({JobState.FAILING, JobState.CANCELLING, JobState.SUSPENDED})

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.INITIALIZING: frozenset({JobState.CREATED, JobState.RESTARTING}) | _ABORTS,
    JobState.CREATED: frozenset({JobState.RUNNING, JobState.RESTARTING}) | _ABORTS,
    JobState.RUNNING: frozenset({JobState.FINISHED, JobState.RESTARTING}) | _ABORTS,
    JobState.RESTARTING: frozenset({JobState.CREATED, JobState.RESTARTING}) | _ABORTS,
    JobState.FAILING: frozenset({JobState.FAILED}),
    JobState.CANCELLING: frozenset({JobState.CANCELED}),
    JobState.SUSPENDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELED: frozenset(),
    JobState.FINISHED: frozenset(),
}
"""Legal moves. SUSPENDED is of this JobManager only: the next one starts the job again."""

CANCELLATION_TIMEOUT_MS = 45_000
"""A TaskManager ends slots whose tasks do not end; this is for one that does not answer either."""

HISTORY_LENGTH = 20
"""States an illegal transition is reported with."""

LOST_RESULT = Failure("the result of the query is lost: its slot ended before the rows were fetched", "internal", False)


class IllegalTransitionError(Exception):
    """A broken invariant; carries the job's history."""


# ---------------------------------------------------------------------------------------------------------- events


class Started(msgspec.Struct, frozen=True):
    """First event. `ending` is set for a job that an earlier JobManager was cancelling or failing."""

    ending: JobState | None = None


class Ticked(msgspec.Struct, frozen=True):
    """`deadline_ms` has been reached."""


class GenerationPrepared(msgspec.Struct, frozen=True):
    """`stopped`: what it restores is the savepoint that ended the job."""

    generation: int
    stopped: bool = False


class PreparationFailed(msgspec.Struct, frozen=True):
    failure: Failure


class SlotsGranted(msgspec.Struct, frozen=True):
    slots: GroupSlots


class SlotsShort(msgspec.Struct, frozen=True):
    missing: int


class SlotGone(msgspec.Struct, frozen=True):
    slot_id: SlotId
    reason: str


class TaskChanged(msgspec.Struct, frozen=True):
    attempt: AttemptId
    state: TaskState
    failure: Failure | None = None


class TaskRecovered(msgspec.Struct, frozen=True):
    """The task is initialized. `markers`: sink uid → owner → checkpoint id."""

    attempt: AttemptId
    markers: dict[str, dict[int, int]]


class GenerationFailed(msgspec.Struct, frozen=True):
    """Something that concerns the whole job went wrong (a checkpoint, split discovery)."""

    failure: Failure


class LimitSatisfied(msgspec.Struct, frozen=True):
    attempt: AttemptId


class CancelRequested(msgspec.Struct, frozen=True):
    failure: Failure | None = None
    """Why, when it was not the user."""


class SinksFenced(msgspec.Struct, frozen=True):
    pass


class ResultDrained(msgspec.Struct, frozen=True):
    """The last page of a query has been fetched."""


class Suspended(msgspec.Struct, frozen=True):
    """The JobManager shuts down."""


JobEvent = (
    Started
    | Ticked
    | GenerationPrepared
    | PreparationFailed
    | SlotsGranted
    | SlotsShort
    | SlotGone
    | TaskChanged
    | TaskRecovered
    | GenerationFailed
    | LimitSatisfied
    | CancelRequested
    | SinksFenced
    | ResultDrained
    | Suspended
)

# -------------------------------------------------------------------------------------------------------- commands


class RecordState(msgspec.Struct, frozen=True):
    """Make the new state durable before going on. `failure` is the reason, if there is one."""

    state: JobState
    failure: Failure | None = None


class PrepareGeneration(msgspec.Struct, frozen=True):
    """Raise the generation durably, then do the blocking work; answer GenerationPrepared or PreparationFailed."""


class RequestSlots(msgspec.Struct, frozen=True):
    group_sizes: dict[str, int]


class DeployTasks(msgspec.Struct, frozen=True):
    pass


class StartTasks(msgspec.Struct, frozen=True):
    """All tasks are initialized: check the markers, start checkpoints, let the sources read."""

    markers: dict[str, dict[int, int]]


class EndSources(msgspec.Struct, frozen=True):
    pass


class CancelTasks(msgspec.Struct, frozen=True):
    pass


class ReleaseSlots(msgspec.Struct, frozen=True):
    """End the generation: no more checkpoints, every slot process of the job ends."""


class FenceSinks(msgspec.Struct, frozen=True):
    """Answer SinksFenced when every transactional id of the job is fenced."""


JobCommand = (
    RecordState
    | PrepareGeneration
    | RequestSlots
    | DeployTasks
    | StartTasks
    | EndSources
    | CancelTasks
    | ReleaseSlots
    | FenceSinks
)


class JobCore:
    """See the module. One instance per job and JobManager."""

    def __init__(self, job_id: JobId, graph: JobGraph, restart: RestartSettings) -> None:
        self.graph = graph
        self.job_id = job_id
        self.state = JobState.INITIALIZING
        self.execution: ExecutionGraph | None = None
        self.slots_missing = 0
        self.restarts = 0
        self.failure: Failure | None = None
        self._failover = Failover(restart, seed=int(job_id[:8], 16))
        self._history = deque([JobState.INITIALIZING], maxlen=HISTORY_LENGTH)
        self._markers: dict[str, dict[int, int]] = {}
        self._recovered: set[AttemptId] = set()
        self._limit_reached = False
        self._stopped = False
        self._drained = not graph.is_query
        self._end_state: JobState | None = None
        """Set while the fence of an ending job is under way."""
        self._restart_at_ms: int | None = None
        self._cancel_by_ms: int | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = no timer."""
        return self._restart_at_ms if self._restart_at_ms is not None else self._cancel_by_ms

    def handle(self, event: JobEvent, now_ms: int) -> list[JobCommand]:
        """Late and foreign events give no commands."""
        if self.state.terminal or self.state is JobState.SUSPENDED:
            return []
        match event:
            case Started(ending=ending):
                return self._on_started(ending)
            case Ticked():
                return self._on_ticked(now_ms)
            case GenerationPrepared(generation=generation, stopped=stopped):
                return self._on_prepared(generation, stopped)
            case PreparationFailed(failure=failure) | GenerationFailed(failure=failure):
                return self._on_failure(failure, now_ms)
            case SlotsShort(missing=missing):
                self.slots_missing = missing if self.state is JobState.CREATED else 0
                return []
            case SlotsGranted(slots=slots):
                return self._on_slots(slots)
            case SlotGone():
                return self._on_slot_gone(event, now_ms)
            case TaskChanged():
                return self._on_task_changed(event, now_ms)
            case TaskRecovered():
                return self._on_recovered(event)
            case LimitSatisfied(attempt=attempt):
                return self._on_limit(attempt)
            case CancelRequested(failure=failure):
                return self._on_cancel(failure, now_ms)
            case SinksFenced():
                return self._on_fenced()
            case ResultDrained():
                self._drained = True
                return self._finish_if_done()
            case Suspended():
                return self._on_suspended()
            case _ as unknown:
                assert_never(unknown)

    def abandon(self, failure: Failure) -> None:
        """FAILED from any state, for a shell that cannot go on."""
        self.failure = failure
        self.state = JobState.FAILED

    # --------------------------------------------------------------------------------------------------- starting

    def _on_started(self, ending: JobState | None) -> list[JobCommand]:
        match ending:
            case None:
                return [PrepareGeneration()]
            case JobState.CANCELLING:
                return [*self._move(JobState.CANCELLING), *self._fence(JobState.CANCELED)]
            case _:
                return [*self._move(JobState.FAILING), *self._fence(JobState.FAILED)]

    def _on_prepared(self, generation: int, stopped: bool) -> list[JobCommand]:
        if self.state not in (JobState.INITIALIZING, JobState.RESTARTING):
            return []
        self._stopped = stopped
        self.execution = ExecutionGraph(self.graph, self.job_id, generation)
        self.execution.move_all(TaskState.SCHEDULED)
        self._markers = {}
        self._recovered = set()
        return [*self._move(JobState.CREATED), RequestSlots(group_sizes(self.graph))]

    def _on_slots(self, slots: GroupSlots) -> list[JobCommand]:
        if self.state is not JobState.CREATED or self.execution is None:
            return [ReleaseSlots()]
        self.slots_missing = 0
        self.execution.assign(slots)
        self.execution.move_all(TaskState.DEPLOYING)
        return [*self._move(JobState.RUNNING), DeployTasks()]

    def _on_recovered(self, event: TaskRecovered) -> list[JobCommand]:
        execution = self.execution
        if execution is None or not execution.knows(event.attempt) or self.state is not JobState.RUNNING:
            return []
        if event.attempt in self._recovered:
            return []
        self._recovered.add(event.attempt)
        for uid, markers in event.markers.items():
            self._markers.setdefault(uid, {}).update(markers)
        if len(self._recovered) < len(execution.attempts):
            return []
        if self._stopped:
            execution.move_all(TaskState.FINISHED)
            return self._finish_if_done()
        start: list[JobCommand] = [StartTasks(self._markers)]
        return [*start, EndSources()] if self._limit_reached else start

    # ----------------------------------------------------------------------------------------------------- running

    def _on_task_changed(self, event: TaskChanged, now_ms: int) -> list[JobCommand]:
        execution = self.execution
        if execution is None or not execution.knows(event.attempt) or not execution.move(event.attempt, event.state):
            return []
        match event.state:
            case TaskState.FAILED:
                failure = event.failure or Failure(f"task {event.attempt} failed without a reason", "internal", True)
                return self._on_failure(failure, now_ms)
            case TaskState.CANCELED if self.state is JobState.RUNNING:
                return self._on_failure(Failure(f"task {event.attempt} ended unasked", "internal", True), now_ms)
            case TaskState.FINISHED | TaskState.CANCELED:
                return self._after_task_end()
            case _:
                return []

    def _on_slot_gone(self, event: SlotGone, now_ms: int) -> list[JobCommand]:
        if self.execution is None:
            return []
        attempts = self.execution.attempts_in(event.slot_id)
        if not attempts:
            return []
        unfinished = [a for a in attempts if self.execution.state(a) is not TaskState.FINISHED]
        if self.state is JobState.CANCELLING:
            for attempt in unfinished:
                self.execution.move(attempt, TaskState.CANCELED)
            return self._after_task_end()
        for attempt in unfinished:
            self.execution.move(attempt, TaskState.FAILED)
        if unfinished:
            return self._on_failure(Failure(f"slot {event.slot_id} is gone: {event.reason}", "internal", True), now_ms)
        return [] if self._drained else self._on_failure(LOST_RESULT, now_ms)

    def _after_task_end(self) -> list[JobCommand]:
        assert self.execution is not None
        if self.state is JobState.CANCELLING and self.execution.all_ended:
            return self._cancelled()
        return self._finish_if_done()

    def _finish_if_done(self) -> list[JobCommand]:
        done = self.execution is not None and self.execution.all_in(TaskState.FINISHED)
        if self.state is not JobState.RUNNING or not done or not self._drained or self._end_state is not None:
            return []
        return [ReleaseSlots(), *self._fence(JobState.FINISHED)]

    def _on_limit(self, attempt: AttemptId) -> list[JobCommand]:
        if self.execution is None or not self.execution.knows(attempt) or self._limit_reached:
            return []
        self._limit_reached = True
        return [EndSources()]

    # ------------------------------------------------------------------------------------------- failing, restarting

    def _on_failure(self, failure: Failure, now_ms: int) -> list[JobCommand]:
        if self._end_state is not None or self.state in (JobState.RESTARTING, JobState.FAILING, JobState.CANCELLING):
            preparing = self.state is JobState.RESTARTING and self._restart_at_ms is None
            if not preparing:
                return []
        self.failure = failure
        self.slots_missing = 0
        delay_ms = None if self.graph.is_query else self._failover.restart_delay_ms(failure, now_ms)
        if delay_ms is None:
            return [*self._move(JobState.FAILING, failure), ReleaseSlots(), *self._fence(JobState.FAILED)]
        self.restarts += 1
        self._restart_at_ms = now_ms + delay_ms
        return [*self._move(JobState.RESTARTING, failure), ReleaseSlots()]

    def _on_ticked(self, now_ms: int) -> list[JobCommand]:
        deadline_ms = self.deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return []
        if self._restart_at_ms is not None:
            self._restart_at_ms = None
            return [PrepareGeneration()]
        return self._cancelled()

    # ------------------------------------------------------------------------------------------------------- ending

    def _on_cancel(self, failure: Failure | None, now_ms: int) -> list[JobCommand]:
        if self._end_state is not None or self.state in (JobState.CANCELLING, JobState.FAILING):
            return []
        self.failure = failure or self.failure
        self._restart_at_ms = None
        deployed = self.state is JobState.RUNNING and self.execution is not None and not self.execution.all_ended
        move = self._move(JobState.CANCELLING, failure)
        if not deployed:
            return [*move, *self._cancelled()]
        assert self.execution is not None
        self.execution.move_all(TaskState.CANCELING)
        self._cancel_by_ms = now_ms + CANCELLATION_TIMEOUT_MS
        return [*move, CancelTasks()]

    def _on_suspended(self) -> list[JobCommand]:
        """A job that is ending stays recorded as such, so that the next JobManager ends it and does not start it."""
        ending = self.state in (JobState.CANCELLING, JobState.FAILING)
        return [ReleaseSlots()] if ending else [*self._move(JobState.SUSPENDED), ReleaseSlots()]

    def _cancelled(self) -> list[JobCommand]:
        self._cancel_by_ms = None
        if self.execution is not None:
            self.execution.move_all(TaskState.CANCELED)
        return [ReleaseSlots(), *self._fence(JobState.CANCELED)]

    def _fence(self, end_state: JobState) -> list[JobCommand]:
        self._end_state = end_state
        return [FenceSinks()]

    def _on_fenced(self) -> list[JobCommand]:
        if self._end_state is None:
            return []
        return self._move(self._end_state, self.failure if self._end_state is JobState.FAILED else None)

    def _move(self, state: JobState, failure: Failure | None = None) -> list[JobCommand]:
        if state not in JOB_TRANSITIONS[self.state]:
            path = " → ".join(self._history)
            raise IllegalTransitionError(f"job {self.job_id}: {path} → {state} is not legal")
        self._history.append(state)
        self.state = state
        return [RecordState(state, failure)]
