"""The life of one job: generations, failures and endings. Pure: events and a time in, commands out.

A *generation* is one start of the whole job:

    prepare (durable generation, splits, sink targets) → ask slots → deploy → every task initialized → go

A failure restarts the pipelined regions that it hits, within the generation (`region_restarts`), if that leaves others
running. Else the generation ends: its slots are given back (their processes end) and, after the restart delay, the next
one begins from the latest committed checkpoint. So it does for a failure before the first go, for one that concerns the
whole job, and when what a region would restore is the savepoint that has stopped the job. Every end passes the fence: a
job with sinks reports FINISHED, CANCELED or FAILED only after its transactional ids are fenced.

A job that a savepoint has stopped is over once the pointer says so. If a failure comes before its tasks have ended, the
next generation only recovers (the sinks commit what the savepoint holds) and the job is FINISHED without reading on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.api import JobState
from runtime.checkpoint.numbering import add_markers
from runtime.ids import AttemptId, JobId
from runtime.job_settings import RestartSettings
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.failover import Failover
from runtime.jobmanager.job_events import (
    CancelRequested,
    CancelTasks,
    DeployTasks,
    EndSlots,
    EndSources,
    GenerationFailed,
    GenerationPrepared,
    GraphReplaced,
    JobCommand,
    JobEvent,
    LimitSatisfied,
    PreparationFailed,
    PrepareGeneration,
    RecordFailure,
    RegionPreparationFailed,
    RegionPrepared,
    ReleaseSlots,
    ReportRestart,
    ResultDrained,
    SinksFenced,
    SlotGone,
    SlotsGranted,
    SlotsShort,
    Started,
    StartTasks,
    Suspended,
    TaskChanged,
    TaskRecovered,
    Ticked,
)
from runtime.jobmanager.job_states import JobStates
from runtime.jobmanager.region_restarts import CANCELLATION_TIMEOUT_MS, RegionRestarts
from runtime.jobmanager.regions import sources_done
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.messages import Failure, TaskState

RUN_AGAIN = "Run the SELECT again: a query is not restarted. The job of an INSERT is, from its latest checkpoint."


class JobCore(JobStates):
    """See the module. One instance per job and JobManager. RESTARTING: some tasks are not deployed because of a
    failure; others may run."""

    def __init__(
        self, job_id: JobId, graph: JobGraph, restart: RestartSettings, *, prefers_homes: bool = False
    ) -> None:
        """`prefers_homes`: a restarted task is best where it was before."""
        super().__init__(job_id)
        self.graph = graph
        self.execution: ExecutionGraph | None = None
        self.slots_missing = 0
        self.full_restarts = 0
        """Restarts of the whole job."""
        self.failover = Failover(restart, seed=int(job_id[:8], 16))
        self._regions = RegionRestarts(graph, prefers_homes=prefers_homes)
        self._request = 0
        """Number of the generation's request for slots."""
        self._markers: dict[str, dict[int, int]] = {}
        self._recovered: set[AttemptId] = set()
        self._deployed = False
        """Tasks of the generation are in slots."""
        self._started = False
        """They have been told to go."""
        self._preparing: JobGraph | None = None
        """What the generation to come is of, while it is being prepared."""
        self._limits: set[int] = set()
        """Vertices whose LIMIT is satisfied."""
        self._stopped = False
        self._drained = not graph.is_query
        self._down_since_ms: int | None = None
        self._is_replaced = False
        """The generation was ended for a new graph: its tasks fail because others end, which is no failure."""
        """When the generation before ended; None once all tasks of this one run."""
        self._restart_at_ms: int | None = None
        self._cancel_by_ms: int | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = no timer."""
        due = (self._restart_at_ms, self._cancel_by_ms, self._regions.deadline_ms)
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    @property
    def down_since_ms(self) -> int | None:
        """Since when not all tasks have been running, because of a failure; None when they are."""
        return self._down_since_ms if self._down_since_ms is not None else self._regions.down_since_ms

    def handle(self, event: JobEvent, now_ms: int) -> list[JobCommand]:
        """Late and foreign events give no commands."""
        if self.state.terminal or self.state is JobState.SUSPENDED:
            return []
        match event:
            case TaskChanged():
                return self._on_task_changed(event, now_ms)
            case TaskRecovered():
                return self._on_recovered(event)
            case SlotGone():
                return self._on_slot_gone(event, now_ms)
            case SlotsShort(missing=missing):
                self.slots_missing = missing if self.state in (JobState.CREATED, JobState.RESTARTING) else 0
                return []
            case SlotsGranted():
                return self._on_slots(event)
            case Ticked():
                return self._on_ticked(now_ms)
            case Started(ending=ending):
                return self._on_started(ending)
            case GenerationPrepared(generation=generation, stopped=stopped):
                return self._on_prepared(generation, stopped)
            case PreparationFailed(failure=failure) | GenerationFailed(failure=failure):
                return self._on_failure(failure, now_ms)
            case RegionPrepared(number=number, stopped=stopped):
                return self._on_region_prepared(number, stopped)
            case RegionPreparationFailed(number=number, failure=failure):
                return self._on_failure(failure, now_ms) if self._regions.keys(number) else []
            case LimitSatisfied(attempt=attempt):
                return self._on_limit(attempt)
            case GraphReplaced(graph=graph):
                return self._on_graph_replaced(graph, now_ms)
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

    # --------------------------------------------------------------------------------------------------- starting

    def _on_started(self, ending: JobState | None) -> list[JobCommand]:
        match ending:
            case None:
                return [self._prepare()]
            case JobState.CANCELLING:
                return [*self._move(JobState.CANCELLING), *self._fence(JobState.CANCELED)]
            case _:
                return [*self._move(JobState.FAILING), *self._fence(JobState.FAILED)]

    def _prepare(self) -> PrepareGeneration:
        self._restart_at_ms = None
        self._preparing = self.graph
        return PrepareGeneration()

    def _on_prepared(self, generation: int, stopped: bool) -> list[JobCommand]:
        if self._preparing is None or self.state not in (JobState.INITIALIZING, JobState.RESTARTING):
            return []
        if self._preparing is not self.graph:
            return [self._prepare()]
        self._preparing = None
        self._is_replaced = False
        self._stopped = stopped
        self.execution = ExecutionGraph(self.graph, self.job_id, generation)
        self.execution.move_all(TaskState.SCHEDULED)
        self._regions.begin_generation(self.graph)
        self._markers = {}
        self._recovered = set()
        request = self._regions.request_all(self.graph)
        self._request = request.number
        return [*self._move(JobState.CREATED), request]

    def _on_slots(self, event: SlotsGranted) -> list[JobCommand]:
        execution = self.execution
        self.slots_missing = 0
        if execution is not None and self._deployed:
            deploy = self._regions.on_granted(execution, event.number, event.slots)
            return [*self._settle(), *deploy]
        if execution is None or self.state is not JobState.CREATED or event.number != self._request:
            unused = tuple(slot for found in event.slots.values() for slot in found)
            return [EndSlots(unused)] if unused else []
        execution.assign(event.slots)
        execution.move_all(TaskState.DEPLOYING)
        self._deployed = True
        self._regions.remember_homes(execution)
        return [*self._move(JobState.RUNNING), DeployTasks(execution.attempts)]

    def _settle(self) -> list[JobCommand]:
        """Once every task is deployed the job is RUNNING again."""
        is_back = self.state is JobState.RESTARTING and self._deployed and not self._regions.is_pending
        return self._move(JobState.RUNNING) if is_back else []

    def _on_region_prepared(self, number: int, stopped: bool) -> list[JobCommand]:
        if not self._deployed or self.execution is None or not self._regions.keys(number):
            return []
        if stopped:
            self._down_since_ms = self.down_since_ms
            self.full_restarts += 1
            return [*self._move(JobState.RESTARTING), *self._end_generation(), self._prepare()]
        commands = self._regions.on_prepared(self.execution, number)
        return [*self._settle(), *commands]

    def _on_recovered(self, event: TaskRecovered) -> list[JobCommand]:
        execution = self.execution
        running = self._deployed and self.state in (JobState.RUNNING, JobState.RESTARTING)
        if execution is None or not execution.knows(event.attempt) or not running:
            return []
        if self._started:
            start = self._regions.on_recovered(execution, event.attempt, event.markers)
            return [start, *self._end_sources(start.attempts)] if start is not None else []
        self._recovered.add(event.attempt)
        add_markers(self._markers, event.markers)
        if len(self._recovered) < len(execution.attempts):
            return []
        self._started = True
        if self._stopped:
            execution.move_all(TaskState.FINISHED)
            return self._finish_if_done()
        return [StartTasks(execution.attempts, self._markers), *self._end_sources(execution.attempts)]

    # ----------------------------------------------------------------------------------------------------- running

    def _on_task_changed(self, event: TaskChanged, now_ms: int) -> list[JobCommand]:
        execution, attempt, state = self.execution, event.attempt, event.state
        if execution is None or not execution.knows(attempt) or not execution.move(attempt, state):
            return []
        match state:
            case TaskState.FAILED | TaskState.CANCELED if self.state is JobState.CANCELLING:
                return self._finish_if_done()
            case TaskState.CANCELED if not self._deployed or self._regions.is_ending(attempt):
                return self._regions.on_task_ended(execution, attempt, now_ms)
            case TaskState.FAILED | TaskState.CANCELED:
                how = "failed without a reason" if state is TaskState.FAILED else "ended unasked"
                failure = event.failure or Failure(f"task {attempt} {how}", "internal", True)
                slot = execution.slot_at(execution.place(attempt.key))
                return self._on_tasks_failed((attempt,), failure, slot, now_ms)
            case TaskState.FINISHED if self._deployed:
                ended = self._regions.on_task_ended(execution, attempt, now_ms)
                return [*ended, *self._report_running(now_ms), *self._finish_if_done()]
            case TaskState.RUNNING if self._deployed:
                return self._report_running(now_ms)
            case _:
                return []

    def _report_running(self, now_ms: int) -> list[JobCommand]:
        assert self.execution is not None
        reports = self._regions.on_running(self.execution, now_ms)
        if self._down_since_ms is None or not self.execution.all_in(TaskState.RUNNING, TaskState.FINISHED):
            return reports
        since_ms, self._down_since_ms = self._down_since_ms, None
        tasks = len(self.execution.attempts)
        return [*reports, ReportRestart(now_ms - since_ms, tasks, tasks)]

    def _on_slot_gone(self, event: SlotGone, now_ms: int) -> list[JobCommand]:
        execution = self.execution
        attempts = execution.attempts_in(event.slot_id) if execution is not None and self._deployed else ()
        if execution is None or not attempts:
            return []
        slot = execution.slot(attempts[0])
        (place,) = execution.places_in(event.slot_id)
        execution.unassign(place)
        unfinished = [a for a in attempts if execution.state(a) is not TaskState.FINISHED]
        for attempt in unfinished:
            execution.move(attempt, TaskState.CANCELED if self.state is JobState.CANCELLING else TaskState.FAILED)
        if self.state is JobState.CANCELLING:
            return self._finish_if_done()
        if unfinished:
            failure = Failure(event.reason, "external", True)
            joins = self._regions.lost_place(execution, place)
            return self._on_tasks_failed(unfinished, failure, slot, now_ms, joins=joins)
        lost = f"the result of the query is lost before its rows were fetched: {event.reason}"
        return [] if self._drained else self._on_failure(Failure(lost, "external", True), now_ms)

    def _finish_if_done(self) -> list[JobCommand]:
        """After the end of a task."""
        if self.state is JobState.CANCELLING and self.execution is not None and self.execution.all_ended:
            return [] if self._end_state is not None else self._cancelled()
        done = self.execution is not None and self.execution.all_in(TaskState.FINISHED)
        if self.state is not JobState.RUNNING or not done or not self._drained or self.is_ending:
            return []
        return [*self._end_generation(), *self._fence(JobState.FINISHED)]

    def _on_limit(self, attempt: AttemptId) -> list[JobCommand]:
        execution = self.execution
        if execution is None or not execution.knows(attempt) or self._regions.is_ending(attempt):
            return []
        before = sources_done(self.graph, self._limits)
        self._limits.add(attempt.vertex_id)
        return self._end_sources([a for a in execution.attempts if a.vertex_id not in before])

    def _end_sources(self, attempts: Iterable[AttemptId]) -> list[JobCommand]:
        """Those of the given tasks whose rows nobody needs."""
        done = sources_done(self.graph, self._limits) if self._limits else frozenset()
        sources = tuple(attempt for attempt in attempts if attempt.vertex_id in done)
        return [EndSources(sources)] if sources else []

    # ------------------------------------------------------------------------------------------- failing, restarting

    def _on_tasks_failed(
        self,
        attempts: Sequence[AttemptId],
        failure: Failure,
        slot: SlotInfo | None,
        now_ms: int,
        *,
        joins: bool = False,
    ) -> list[JobCommand]:
        """These have ended. Of those that are to be replaced anyway only a note is taken, unless it `joins` their
        restarts."""
        execution = self.execution
        assert execution is not None
        failing = [attempt for attempt in attempts if joins or not self._regions.is_ending(attempt)]
        note = RecordFailure(failure, (failing or attempts)[0], slot, concurrent=not failing)
        ended = [a for a in attempts if a not in failing]
        if (failing and not self._started) or self.graph.is_query or self._stopped:
            return self._on_failure(failure, now_ms, note)
        commands: list[JobCommand] = [note]
        if failing:
            keys = self._regions.affected(execution, failing)
            if execution.unfinished <= keys:
                return self._on_failure(failure, now_ms, note)
            restart_at_ms = self.failover.restart_at_ms(failure, now_ms)
            if restart_at_ms is None:
                return self._give_up(failure, note)
            self.failure = failure
            self._limits -= {vertex_id for vertex_id, _ in keys}
            commands += self._move(JobState.RESTARTING, failure)
            commands += self._regions.begin(execution, keys, restart_at_ms, now_ms)
        return [*commands, *(c for a in ended for c in self._regions.on_task_ended(execution, a, now_ms))]

    def _on_failure(self, failure: Failure, now_ms: int, note: RecordFailure | None = None) -> list[JobCommand]:
        """The whole job ends or restarts. `note`: what is known of the failure."""
        if self.is_ending:
            return []
        if self.graph.is_query and failure.retry:
            hints = (failure.hint, RUN_AGAIN)
            failure = msgspec.structs.replace(failure, hint=" ".join(hint for hint in hints if hint))
        note = RecordFailure(failure) if note is None else msgspec.structs.replace(note, failure=failure)
        if self._restart_at_ms is not None or (self._preparing is not None and note.attempt is not None):
            return [] if self._is_replaced else [msgspec.structs.replace(note, concurrent=True)]
        restart_at_ms = None if self.graph.is_query else self.failover.restart_at_ms(failure, now_ms)
        if restart_at_ms is None:
            return self._give_up(failure, note)
        self.failure = failure
        self.full_restarts += 1
        self._restart_at_ms = restart_at_ms
        since_ms = self.down_since_ms
        self._down_since_ms = now_ms if since_ms is None else since_ms
        return [note, *self._move(JobState.RESTARTING, failure), *self._end_generation()]

    def _give_up(self, failure: Failure, note: RecordFailure) -> list[JobCommand]:
        self.failure = failure
        move = self._move(JobState.FAILING, failure)
        return [note, *move, *self._end_generation(), *self._fence(JobState.FAILED)]

    def _on_graph_replaced(self, graph: JobGraph, now_ms: int) -> list[JobCommand]:
        if self.is_ending:
            return []
        self.graph = graph
        if self._preparing is not None or self._restart_at_ms is not None:
            return []  # The next preparation takes it.
        self._down_since_ms = now_ms
        self._is_replaced = True
        return [*self._move(JobState.RESTARTING), *self._end_generation(), self._prepare()]

    def _end_generation(self) -> list[JobCommand]:
        self._deployed = self._started = False
        self._preparing = None
        self._limits.clear()
        self._regions.clear()
        self.slots_missing = 0
        return [ReleaseSlots()]

    def _on_ticked(self, now_ms: int) -> list[JobCommand]:
        if self._cancel_by_ms is not None:
            return self._cancelled() if now_ms >= self._cancel_by_ms else []
        if self._restart_at_ms is not None:
            return [self._prepare()] if now_ms >= self._restart_at_ms else []
        if self.execution is None or not self._deployed:
            return []
        commands = self._regions.on_ticked(self.execution, now_ms)
        if commands is None:
            return self._on_failure(Failure("tasks of a region did not end when cancelled", "internal", True), now_ms)
        return commands

    # ------------------------------------------------------------------------------------------------------- ending

    def _on_cancel(self, failure: Failure | None, now_ms: int) -> list[JobCommand]:
        if self.is_ending:
            return []
        self.failure = failure or self.failure
        self._restart_at_ms = self._preparing = None
        self._regions.clear()
        move = self._move(JobState.CANCELLING, failure)
        running = self.execution.cancel_all() if self.execution is not None and self._deployed else ()
        if not running:
            return [*move, *self._cancelled()]
        self._cancel_by_ms = now_ms + CANCELLATION_TIMEOUT_MS
        return [*move, CancelTasks(running)]

    def _cancelled(self) -> list[JobCommand]:
        self._cancel_by_ms = None
        if self.execution is not None:
            self.execution.move_all(TaskState.CANCELED)
        return [*self._end_generation(), *self._fence(JobState.CANCELED)]
