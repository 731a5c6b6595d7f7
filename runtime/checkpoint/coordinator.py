"""The checkpoint coordinator of one generation of a job: decides when barriers leave, what a checkpoint is made of and
when its sinks commit. Pure: events and a time in, commands out; the shell performs the commands in the given order.

    idle ─trigger─► acknowledging ─all acks─► storing ─pointer moved─► committing ─all sinks committed─► idle

One checkpoint is in flight at a time, and it ends with the commit of every sink: an epoch is never sealed before the
previous one is resolved. The id is durable (`ReserveCheckpointId`) before any barrier leaves, so ids grow over all
crashes. Moving the pointer is the commit point: `SendCommit` follows `CheckpointStored` and nothing else. A checkpoint
that is being stored cannot time out, because its outcome is not ours to decide any more.

Ends of input: a task that has reported its end gets barriers directly, also in the middle of a checkpoint (the barrier
could not reach it through its ended channels). Its last snapshot is marked *finished*; once that is committed the task
is done and its snapshot is carried into every later checkpoint. When every task left has ended, a final checkpoint is
taken at once.

Savepoints are checkpoints with a copy for the user (`SavepointWanted`), taken as soon as the coordinator is idle. One
without stop moves no pointer and commits nothing: its epochs stay pending until the next checkpoint. One that stops the
job is the pointer before its sinks commit and ends the coordinator; without drain its barriers tell the sources to
wait for the outcome, with drain the sources end first (what is due fires) and the final checkpoint is the savepoint.
A savepoint that fails leaves the job running, but for a drain, which nothing but a restart can take back.

When a region of the job restarts (`TasksLost`), a checkpoint that still collects acks is given up, without being
counted as a failure. One that is being stored is awaited: only its outcome says what the region restores. One that
commits does not wait for lost sinks: their recovery commits what it holds. Until `TasksReplaced` nothing is triggered.
A stop that is past its commit point, and a drain, need a restart of the whole job instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId
from runtime.job_settings import CheckpointSettings
from runtime.protocol.messages import Failure


class TaskRole(msgspec.Struct, frozen=True):
    """What the coordinator knows of a task. `injects`: it has no input edge, barriers start there. `commits`: it has a
    sink and answers every commit."""

    attempt: AttemptId
    injects: bool
    commits: bool


SinkOwner = tuple[str, int]
"""Sink operator uid and owner number."""


# ---------------------------------------------------------------------------------------------------------- events


class Ticked(msgspec.Struct, frozen=True):
    """`deadline_ms` has been reached."""


class SubtaskAcked(msgspec.Struct, frozen=True):
    attempt: AttemptId
    checkpoint_id: int
    snapshot: SubtaskSnapshot


class SubtaskDeclined(msgspec.Struct, frozen=True):
    attempt: AttemptId
    checkpoint_id: int
    failure: Failure


class SubtaskCommitted(msgspec.Struct, frozen=True):
    attempt: AttemptId
    checkpoint_id: int


class SavepointWanted(msgspec.Struct, frozen=True):
    """A user asks for a savepoint below `directory`; `stop` ends the job with it, `drain` after all that is due."""

    trigger_id: str
    directory: str
    stop: bool = False
    drain: bool = False


class TaskInputsEnded(msgspec.Struct, frozen=True):
    attempt: AttemptId


class TaskFinished(msgspec.Struct, frozen=True):
    attempt: AttemptId


class CheckpointWanted(msgspec.Struct, frozen=True):
    """A sink passed its soft limit."""

    attempt: AttemptId


class CheckpointStored(msgspec.Struct, frozen=True):
    """The manifest is durable and the pointer has moved."""

    checkpoint_id: int


class StoreFailed(msgspec.Struct, frozen=True):
    """The pointer has certainly not moved."""

    checkpoint_id: int
    failure: Failure


class TasksLost(msgspec.Struct, frozen=True):
    """These attempts have ended or are being ended, and new ones will take their places: all tasks of a region."""

    attempts: tuple[AttemptId, ...]


class TasksReplaced(msgspec.Struct, frozen=True):
    """The new attempts have restored the latest committed checkpoint, their sinks have resolved what it holds, and
    they run. Each takes the place of the attempt of the same vertex and subtask."""

    roles: tuple[TaskRole, ...]


CoordinatorEvent = (
    Ticked
    | SubtaskAcked
    | SubtaskDeclined
    | SubtaskCommitted
    | TaskInputsEnded
    | TaskFinished
    | CheckpointWanted
    | SavepointWanted
    | CheckpointStored
    | StoreFailed
    | TasksLost
    | TasksReplaced
)


# -------------------------------------------------------------------------------------------------------- commands


class ReserveCheckpointId(msgspec.Struct, frozen=True):
    """Make `next checkpoint id = checkpoint_id + 1` durable before going on to the next command."""

    checkpoint_id: int


class SendBarriers(msgspec.Struct, frozen=True):
    """`stop`: sources give nothing after the barrier until they hear of the checkpoint's commit or abort.
    `aligned_timeout_ms`: how long a task waits for the barriers of its other inputs before they overtake what is in
    flight (0 = not at all, None = for ever: savepoints are aligned)."""

    checkpoint_id: int
    attempts: tuple[AttemptId, ...]
    stop: bool = False
    aligned_timeout_ms: int | None = None


class EndSources(msgspec.Struct, frozen=True):
    """Sources end as if their input had (drain)."""


class StoreCheckpoint(msgspec.Struct, frozen=True):
    """Verify the files, write the manifest, move the pointer; answer with CheckpointStored or StoreFailed. `floors`:
    per sink owner the highest epoch whose commit was acknowledged. With a `savepoint` everything is copied to it
    first, and the pointer moves only if it stops the job."""

    checkpoint_id: int
    snapshots: tuple[SubtaskSnapshot, ...]
    floors: dict[SinkOwner, int]
    triggered_at_ms: int
    savepoint: SavepointWanted | None = None


class SendCommit(msgspec.Struct, frozen=True):
    checkpoint_id: int


class SendAbort(msgspec.Struct, frozen=True):
    checkpoint_id: int
    reason: str


class CheckpointCompleted(msgspec.Struct, frozen=True):
    """Every sink has committed: older checkpoints may be removed."""

    checkpoint_id: int
    duration_ms: int


class SavepointTaken(msgspec.Struct, frozen=True):
    """The savepoint is complete; one that stops the job: its sinks have committed, the tasks end by themselves."""

    wanted: SavepointWanted


class SavepointFailed(msgspec.Struct, frozen=True):
    trigger_id: str
    failure: Failure


class FailJob(msgspec.Struct, frozen=True):
    failure: Failure


class Ignored(msgspec.Struct, frozen=True):
    """The event was late, doubled or not of this generation: nothing changed."""

    reason: str


CoordinatorCommand = (
    ReserveCheckpointId
    | SendBarriers
    | EndSources
    | StoreCheckpoint
    | SendCommit
    | SendAbort
    | CheckpointCompleted
    | SavepointTaken
    | SavepointFailed
    | FailJob
    | Ignored
)


class Phase(StrEnum):
    IDLE = "idle"
    ACKNOWLEDGING = "acknowledging"
    STORING = "storing"
    COMMITTING = "committing"
    STOPPED = "stopped"


class CoordinatorCounts(msgspec.Struct):
    """Checkpoints of this generation."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0


class CheckpointCoordinator:
    """See the module. `next_checkpoint_id` is above every id and marker of the past; `floors` come from recovery."""

    def __init__(
        self,
        settings: CheckpointSettings,
        tasks: Iterable[TaskRole],
        next_checkpoint_id: int,
        floors: dict[SinkOwner, int],
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._tasks = {task.attempt: task for task in tasks}
        self._next_id = next_checkpoint_id
        self._floors = dict(floors)
        self._phase = Phase.IDLE
        self._ended: set[AttemptId] = set()
        self._done: dict[AttemptId, SubtaskSnapshot] = {}
        """Tasks whose finished snapshot is committed."""
        self._finished: set[AttemptId] = set()
        self._lost: set[AttemptId] = set()
        """Attempts whose successors are not there yet."""
        self._wanted = False
        self._failures = 0
        self._current_id = 0
        self._savepoint: SavepointWanted | None = None
        """The one in flight."""
        self._savepoints: deque[SavepointWanted] = deque()
        self._stopping: SavepointWanted | None = None
        """Accepted and not yet failed: nothing else is accepted any more."""
        self._stopping_since_ms = now_ms
        self._periodic_from_ms = now_ms
        self._triggered_at_ms = now_ms
        self._phase_since_ms = now_ms
        self._barrier_sent: set[AttemptId] = set()
        self._acks: dict[AttemptId, SubtaskSnapshot] = {}
        self._committed: set[AttemptId] = set()
        self.counts = CoordinatorCounts()

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = no timer."""
        match self._phase:
            case Phase.ACKNOWLEDGING | Phase.COMMITTING:
                return self._phase_since_ms + self._settings.timeout_ms
            case Phase.STORING | Phase.STOPPED:
                return None
            case Phase.IDLE:
                if _drains(self._stopping):
                    return self._stopping_since_ms + self._settings.timeout_ms
                if self._settings.interval_ms == 0 or self._lost or len(self._done) == len(self._tasks):
                    return None
                return max(
                    self._periodic_from_ms + self._settings.interval_ms,
                    self._phase_since_ms + self._settings.min_pause_ms,
                )
            case _ as unknown:
                assert_never(unknown)

    def handle(self, event: CoordinatorEvent, now_ms: int) -> list[CoordinatorCommand]:
        """Never raises for what a peer may send at a wrong time; that gives `Ignored`."""
        if self._phase is Phase.STOPPED:
            if isinstance(event, SavepointWanted):
                return [SavepointFailed(event.trigger_id, _refused("the job is ending"))]
            return [Ignored("the coordinator has stopped")]
        match event:
            case Ticked():
                return self._on_ticked(now_ms)
            case SubtaskAcked():
                return self._on_acked(event, now_ms)
            case SubtaskDeclined():
                return self._on_declined(event, now_ms)
            case SubtaskCommitted():
                return self._on_committed(event, now_ms)
            case TaskInputsEnded():
                return self._on_inputs_ended(event, now_ms)
            case TaskFinished():
                return self._on_finished(event, now_ms)
            case CheckpointWanted():
                return self._on_wanted(event, now_ms)
            case SavepointWanted():
                return self._on_savepoint_wanted(event, now_ms)
            case CheckpointStored():
                return self._on_stored(event, now_ms)
            case StoreFailed():
                return self._on_store_failed(event, now_ms)
            case TasksLost():
                return self._on_tasks_lost(event, now_ms)
            case TasksReplaced():
                return self._on_tasks_replaced(event, now_ms)
            case _ as unknown:
                assert_never(unknown)

    def validate(self) -> None:
        """Invariants; tests call it after each event."""
        assert self._current_id < self._next_id
        assert set(self._done) <= set(self._tasks)
        assert not self._lost & (set(self._done) | self._ended | self._finished)
        assert not (self._lost and self._phase is Phase.ACKNOWLEDGING), "lost tasks cannot acknowledge"
        if self._phase is Phase.ACKNOWLEDGING:
            assert self._live() - set(self._acks), "every ack is in, yet the checkpoint waits"
        if self._phase is Phase.COMMITTING:
            assert self._uncommitted(), "every sink has committed, yet the checkpoint waits"
        assert not set(self._acks) & set(self._done)

    # ------------------------------------------------------------------------------------------------ triggering

    def _live(self) -> set[AttemptId]:
        return set(self._tasks) - set(self._done) - self._lost

    def _knows(self, attempt: AttemptId) -> bool:
        return attempt in self._tasks and attempt not in self._lost

    def _final_due(self) -> bool:
        live = self._live()
        return bool(live) and live <= self._ended

    def _on_ticked(self, now_ms: int) -> list[CoordinatorCommand]:
        deadline_ms = self.deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return []
        match self._phase:
            case Phase.IDLE if _drains(self._stopping):
                waited_ms = self._settings.timeout_ms
                return self._fail(Failure(f"the job had not drained within {waited_ms} ms", "external", True))
            case Phase.IDLE:
                return self._trigger_if_due(now_ms)
            case Phase.ACKNOWLEDGING:
                missing = len(self._live()) - len(self._acks)
                waited_ms = self._settings.timeout_ms
                reason = f"checkpoint {self._current_id}: {missing} tasks had not answered within {waited_ms} ms"
                return self._abort(reason, Failure(reason, "external", True), now_ms)
            case _:
                waiting = ", ".join(str(a) for a in sorted(self._uncommitted()))
                waited_ms = self._settings.timeout_ms
                message = f"checkpoint {self._current_id}: no commit within {waited_ms} ms from {waiting}"
                return self._fail(Failure(message, "external", True))

    def _trigger_if_due(self, now_ms: int) -> list[CoordinatorCommand]:
        live = self._live()
        if self._phase is not Phase.IDLE or self._lost or not live:
            return []
        if _drains(self._stopping):
            if not self._final_due():
                return []
            self._savepoint = self._stopping
        elif self._savepoints:
            self._savepoint = self._savepoints.popleft()
        else:
            deadline_ms = self.deadline_ms
            if not (self._final_due() or self._wanted or (deadline_ms is not None and now_ms >= deadline_ms)):
                return []
            self._periodic_from_ms = now_ms
            self._wanted = False
        return self._trigger(live, now_ms)

    def _trigger(self, live: set[AttemptId], now_ms: int) -> list[CoordinatorCommand]:
        self._current_id = self._next_id
        self._next_id += 1
        self._triggered_at_ms = now_ms
        self._acks = {}
        self._committed = set()
        self._enter(Phase.ACKNOWLEDGING, now_ms)
        self.counts.triggered += 1
        self._barrier_sent = {a for a in live if self._tasks[a].injects or a in self._ended}
        return [
            ReserveCheckpointId(self._current_id),
            self._barriers(self._barrier_sent),
        ]

    def _barriers(self, attempts: set[AttemptId]) -> SendBarriers:
        savepoint = self._savepoint
        return SendBarriers(
            self._current_id,
            tuple(sorted(attempts)),
            stop=savepoint is not None and savepoint.stop,
            aligned_timeout_ms=self._settings.aligned_timeout_ms if savepoint is None else None,
        )

    def _on_savepoint_wanted(self, event: SavepointWanted, now_ms: int) -> list[CoordinatorCommand]:
        if self._stopping is not None:
            return [SavepointFailed(event.trigger_id, _refused("the job is being stopped already"))]
        if not self._live():
            return [SavepointFailed(event.trigger_id, _refused("the job is ending"))]
        if not event.stop:
            self._savepoints.append(event)
            return self._trigger_if_due(now_ms)
        self._stopping, self._stopping_since_ms = event, now_ms
        dropped = [SavepointFailed(s.trigger_id, _refused("the job is being stopped")) for s in self._savepoints]
        self._savepoints.clear()
        if event.drain:
            return [*dropped, EndSources(), *self._trigger_if_due(now_ms)]
        self._savepoints.append(event)
        return [*dropped, *self._trigger_if_due(now_ms)]

    def _on_wanted(self, event: CheckpointWanted, now_ms: int) -> list[CoordinatorCommand]:
        if event.attempt not in self._live():
            return [Ignored("checkpoint wanted by a task that has ended or is unknown")]
        if self._phase is Phase.ACKNOWLEDGING and event.attempt not in self._acks:
            return [Ignored("the checkpoint wanted is under way")]
        self._wanted = True
        return self._trigger_if_due(now_ms)

    def _on_inputs_ended(self, event: TaskInputsEnded, now_ms: int) -> list[CoordinatorCommand]:
        if not self._knows(event.attempt):
            return [Ignored("end of an unknown task")]
        if event.attempt in self._ended:
            return [Ignored("doubled end of a task")]
        self._ended.add(event.attempt)
        waits = self._phase is Phase.ACKNOWLEDGING and event.attempt in self._live() - set(self._acks)
        if waits and event.attempt not in self._barrier_sent:
            self._barrier_sent.add(event.attempt)
            return [self._barriers({event.attempt})]
        return self._trigger_if_due(now_ms)

    def _on_finished(self, event: TaskFinished, now_ms: int) -> list[CoordinatorCommand]:
        if not self._knows(event.attempt):
            return [Ignored("finish of an unknown task")]
        self._finished.add(event.attempt)
        if self._phase is Phase.COMMITTING and not self._uncommitted():
            return self._complete(now_ms)
        return []

    # ----------------------------------------------------------------------------------------------------- answers

    def _on_acked(self, event: SubtaskAcked, now_ms: int) -> list[CoordinatorCommand]:
        if not self._knows(event.attempt):
            return [Ignored("ack of an unknown task")]
        if event.checkpoint_id != self._current_id or self._phase is not Phase.ACKNOWLEDGING:
            return [Ignored(f"late ack of checkpoint {event.checkpoint_id}")]
        if event.attempt in self._acks or event.attempt in self._done:
            return [Ignored(f"doubled ack of checkpoint {event.checkpoint_id}")]
        self._acks[event.attempt] = event.snapshot
        if self._live() - set(self._acks):
            return []
        self._enter(Phase.STORING, now_ms)
        snapshots = sorted((*self._acks.values(), *self._done.values()), key=lambda s: (s.vertex_id, s.subtask_index))
        floors = dict(self._floors)
        return [StoreCheckpoint(self._current_id, tuple(snapshots), floors, self._triggered_at_ms, self._savepoint)]

    def _on_declined(self, event: SubtaskDeclined, now_ms: int) -> list[CoordinatorCommand]:
        if event.checkpoint_id != self._current_id or self._phase is not Phase.ACKNOWLEDGING:
            return [Ignored(f"late decline of checkpoint {event.checkpoint_id}")]
        reason = f"checkpoint {event.checkpoint_id} was declined by {event.attempt}: {event.failure.message}"
        return self._abort(reason, msgspec.structs.replace(event.failure, message=reason), now_ms)

    def _on_stored(self, event: CheckpointStored, now_ms: int) -> list[CoordinatorCommand]:
        if event.checkpoint_id != self._current_id or self._phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        self._failures = 0
        savepoint = self._savepoint
        if savepoint is not None and savepoint.stop and self._lost:
            return self._fail(_lost_while_stopping())
        if savepoint is not None and not savepoint.stop:
            self._savepoint = None
            self._acks = {}
            self.counts.completed += 1
            self._enter(Phase.IDLE, now_ms)
            return [SavepointTaken(savepoint), *self._trigger_if_due(now_ms)]
        self._enter(Phase.COMMITTING, now_ms)
        commit: list[CoordinatorCommand] = [SendCommit(self._current_id)]
        return commit if self._uncommitted() else commit + self._complete(now_ms)

    def _on_store_failed(self, event: StoreFailed, now_ms: int) -> list[CoordinatorCommand]:
        if event.checkpoint_id != self._current_id or self._phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        return self._abort(event.failure.message, event.failure, now_ms)

    # ----------------------------------------------------------------------------------------------------- commits

    def _uncommitted(self) -> set[AttemptId]:
        sinks = {attempt for attempt in self._acks if self._knows(attempt) and self._tasks[attempt].commits}
        return sinks - self._committed - self._finished

    def _on_committed(self, event: SubtaskCommitted, now_ms: int) -> list[CoordinatorCommand]:
        if event.checkpoint_id != self._current_id or self._phase is not Phase.COMMITTING:
            return [Ignored(f"late commit of checkpoint {event.checkpoint_id}")]
        if event.attempt not in self._uncommitted():
            return [Ignored(f"doubled or unknown commit of checkpoint {event.checkpoint_id}")]
        self._committed.add(event.attempt)
        return [] if self._uncommitted() else self._complete(now_ms)

    def _complete(self, now_ms: int) -> list[CoordinatorCommand]:
        for snapshot in self._acks.values():
            for operator in snapshot.operators:
                for committable in operator.committables:
                    owner = (operator.uid, committable.owner)
                    self._floors[owner] = max(self._floors.get(owner, 0), committable.checkpoint_id)
        finished = {a: s for a, s in self._acks.items() if s.finished and self._knows(a)}
        self._done.update({a: _without_committables(s) for a, s in finished.items()})
        self._acks = {}
        self.counts.completed += 1
        completed = CheckpointCompleted(self._current_id, now_ms - self._triggered_at_ms)
        if self._savepoint is not None:
            self._enter(Phase.STOPPED, now_ms)
            return [completed, SavepointTaken(self._savepoint)]
        self._enter(Phase.IDLE, now_ms)
        return [completed, *self._trigger_if_due(now_ms)]

    # ------------------------------------------------------------------------------------------------ region restarts

    def _on_tasks_lost(self, event: TasksLost, now_ms: int) -> list[CoordinatorCommand]:
        lost = {attempt for attempt in event.attempts if self._knows(attempt)}
        if not lost:
            return [Ignored("loss of unknown tasks, or a doubled one")]
        self._lost |= lost
        self._ended -= lost
        self._finished -= lost
        for attempt in lost:
            self._done.pop(attempt, None)
        stops = self._savepoint is not None and self._savepoint.stop
        match self._phase:
            case Phase.ACKNOWLEDGING:
                reason = f"checkpoint {self._current_id}: tasks that take part in it restart"
                return self._abort(reason, Failure(reason, "external", True), now_ms, counts=False)
            case Phase.COMMITTING if stops:
                return self._fail(_lost_while_stopping())
            case Phase.COMMITTING:
                return [] if self._uncommitted() else self._complete(now_ms)
            case Phase.IDLE if _drains(self._stopping):
                return self._fail(_lost_while_stopping())
            case _:
                return []

    def _on_tasks_replaced(self, event: TasksReplaced, now_ms: int) -> list[CoordinatorCommand]:
        places = {(role.attempt.vertex_id, role.attempt.subtask_index) for role in event.roles}
        gone = {attempt for attempt in self._tasks if (attempt.vertex_id, attempt.subtask_index) in places}
        if len(gone) < len(event.roles) or not gone <= self._lost:
            return [Ignored("replacement of tasks that are not lost")]
        self._tasks = {attempt: role for attempt, role in self._tasks.items() if attempt not in gone}
        self._tasks.update({role.attempt: role for role in event.roles})
        self._lost -= gone
        return self._trigger_if_due(now_ms)

    def _abort(self, reason: str, failure: Failure, now_ms: int, *, counts: bool = True) -> list[CoordinatorCommand]:
        self.counts.failed += 1
        self._acks = {}
        self._enter(Phase.IDLE, now_ms)
        abort: list[CoordinatorCommand] = [SendAbort(self._current_id, reason)]
        if self._savepoint is not None:
            return [*abort, *self._give_up_savepoint(self._savepoint, failure, now_ms)]
        if not counts:
            return abort + self._trigger_if_due(now_ms)
        self._failures += 1
        if self._failures > self._settings.tolerable_failures:
            return abort + self._fail(failure)
        return abort + self._trigger_if_due(now_ms)

    def _give_up_savepoint(self, savepoint: SavepointWanted, failure: Failure, now_ms: int) -> list[CoordinatorCommand]:
        """The user hears of it; the job goes on, unless its sources have ended for it."""
        failed: list[CoordinatorCommand] = [SavepointFailed(savepoint.trigger_id, failure)]
        self._savepoint = None
        if savepoint.drain:
            return failed + self._fail(msgspec.structs.replace(failure, retry=True))
        if savepoint is self._stopping:
            self._stopping = None
        return failed + self._trigger_if_due(now_ms)

    def _fail(self, failure: Failure) -> list[CoordinatorCommand]:
        self._phase = Phase.STOPPED
        return [FailJob(failure)]

    def _enter(self, phase: Phase, now_ms: int) -> None:
        self._phase = phase
        self._phase_since_ms = now_ms


def _drains(wanted: SavepointWanted | None) -> bool:
    return wanted is not None and wanted.drain


def _refused(reason: str) -> Failure:
    return Failure(f"no savepoint can be taken: {reason}", "user", False)


def _lost_while_stopping() -> Failure:
    return Failure("tasks of the job ended while it was being stopped", "external", True)


def _without_committables(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
    operators = tuple(msgspec.structs.replace(operator, committables=()) for operator in snapshot.operators)
    return msgspec.structs.replace(snapshot, operators=operators)
