"""The checkpoint coordinator of one generation of a job: decides when barriers leave, what a checkpoint is made of and
when its sinks commit. Pure: events and a time in, commands out; the shell performs the commands in the given order.

    trigger ─► acknowledging ─all acks─► storing ─pointer moved─► committing ─all sinks committed─► completed
                     └─time-out, decline, failed store, lost task─► given up

As many checkpoints are in flight as the settings allow, one for a job whose sinks commit: an epoch is never sealed
before the previous one is resolved. They are stored one after the other; one that overtakes an older one makes it
superfluous. Savepoints and the final checkpoint are taken alone. The id is durable (`ReserveCheckpointId`) before any
barrier leaves, so ids grow over all crashes. Moving the pointer is the commit point: `SendCommit` follows
`CheckpointStored` and nothing else.

The next checkpoint is due an interval after the last was triggered, and not before the pause after the last one ended.
Failures count towards the tolerable ones when a task declines, a time-out passes or storing fails (as in Flink), not
when a region restarts, a newer checkpoint overtakes or a savepoint fails; a stored checkpoint sets the count back.

Ends of input: a task that has reported its end gets barriers directly, also in the middle of a checkpoint (the barrier
could not reach it through its ended channels). Its last snapshot is marked *finished*; once that is committed the task
is done and its snapshot is carried into every later checkpoint. When every task left has ended, a final checkpoint is
taken at once.

Savepoints are checkpoints with a copy for the user (`SavepointWanted`), taken as soon as nothing is in flight. One
without stop moves no pointer and commits nothing: its epochs stay pending until the next checkpoint. One that stops the
job is the pointer before its sinks commit and ends the coordinator; without drain its barriers tell the sources to
wait for the outcome, with drain the sources end first (what is due fires) and the final checkpoint is the savepoint.
A savepoint that fails leaves the job running, but for a drain, which nothing but a restart can take back.

When a region of the job restarts (`TasksLost`), a checkpoint that still collects acks is given up. One that is being
stored is awaited: only its outcome says what the region restores. One that commits does not wait for lost sinks: their
recovery commits what it holds. Until `TasksReplaced` nothing is triggered. A stop that is past its commit point, and a
drain, need a restart of the whole job instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import assert_never

import msgspec

from runtime.checkpoint.coordination import (
    CheckpointCompleted,
    CheckpointStored,
    CheckpointWanted,
    CoordinatorCommand,
    CoordinatorEvent,
    DiscardSnapshots,
    EndSources,
    FailJob,
    Ignored,
    ReserveCheckpointId,
    SavepointFailed,
    SavepointTaken,
    SavepointWanted,
    SendAbort,
    SendBarriers,
    SendCommit,
    SinkOwner,
    StoreCheckpoint,
    StoreFailed,
    SubtaskAcked,
    SubtaskCommitted,
    SubtaskDeclined,
    TaskFinished,
    TaskInputsEnded,
    TaskRole,
    TasksLost,
    TasksReplaced,
    Ticked,
)
from runtime.checkpoint.pending import PendingCheckpoint, Phase
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId
from runtime.job_settings import CheckpointSettings
from runtime.protocol.messages import Failure

GIVEN_UP_REMEMBERED = 1_000
"""Ids of checkpoints whose late acks are recognised: what they wrote is removed."""


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
        self._pending: dict[int, PendingCheckpoint] = {}
        """In order of their ids."""
        self._stopped = False
        self._ended: set[AttemptId] = set()
        self._done: dict[AttemptId, SubtaskSnapshot] = {}
        """Tasks whose finished snapshot is committed."""
        self._finished: set[AttemptId] = set()
        self._lost: set[AttemptId] = set()
        """Attempts whose successors are not there yet."""
        self._given_up: deque[int] = deque(maxlen=GIVEN_UP_REMEMBERED)
        self._wanted = False
        self._failures = 0
        self._savepoints: deque[SavepointWanted] = deque()
        self._stopping: SavepointWanted | None = None
        """Accepted and not yet failed: nothing else is accepted any more."""
        self._stopping_since_ms = now_ms
        self._periodic_from_ms = now_ms
        self._last_end_ms = now_ms

    @property
    def in_progress(self) -> int:
        """Checkpoints in flight."""
        return len(self._pending)

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = no timer."""
        if self._stopped:
            return None
        overdue = (checkpoint.deadline_ms(self._settings.timeout_ms) for checkpoint in self._pending.values())
        due = [deadline_ms for deadline_ms in overdue if deadline_ms is not None]
        if _drains(self._stopping) and not self._pending:
            due.append(self._stopping_since_ms + self._settings.timeout_ms)
        elif self._settings.interval_ms and self._takes_another():
            due.append(self._periodic_due_ms)
        return min(due, default=None)

    def handle(self, event: CoordinatorEvent, now_ms: int) -> list[CoordinatorCommand]:
        """Never raises for what a peer may send at a wrong time; that gives `Ignored`."""
        if self._stopped:
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
        assert all(number < self._next_id for number in self._pending), "an id that was not reserved"
        assert list(self._pending) == sorted(self._pending)
        assert set(self._done) <= set(self._tasks)
        assert not self._lost & (set(self._done) | self._ended | self._finished)
        if self._stopped:
            return
        assert len(self._pending) <= self._settings.concurrent_max
        assert len(self._pending) == 1 or not any(c.savepoint for c in self._pending.values()), "not taken alone"
        phases = [checkpoint.phase for checkpoint in self._pending.values()]
        assert phases.count(Phase.STORING) <= 1, "pointers move one after the other"
        assert Phase.ACKNOWLEDGED not in phases or Phase.STORING in phases, "nobody will store it"
        for checkpoint in self._pending.values():
            assert not (self._lost and checkpoint.can_be_given_up), "lost tasks cannot acknowledge"
            if checkpoint.phase is Phase.ACKNOWLEDGING:
                assert self._unacked(checkpoint), "every ack is in, yet the checkpoint waits"
            if checkpoint.phase is Phase.COMMITTING:
                assert self._uncommitted(checkpoint), "every sink has committed, yet the checkpoint waits"

    # ------------------------------------------------------------------------------------------------ triggering

    def _knows(self, attempt: AttemptId) -> bool:
        return attempt in self._tasks and attempt not in self._lost

    def _live(self) -> set[AttemptId]:
        return set(self._tasks) - set(self._done) - self._lost

    def _final_due(self) -> bool:
        live = self._live()
        return bool(live) and live <= self._ended

    def _takes_another(self) -> bool:
        """Whether a checkpoint that nobody asked for may be triggered: it would take no place from one that counts
        for more."""
        if self._lost or self._stopping is not None or self._savepoints or self._final_due() or not self._live():
            return False
        if len(self._pending) >= self._settings.concurrent_max:
            return False
        return not any(checkpoint.savepoint for checkpoint in self._pending.values())

    @property
    def _periodic_due_ms(self) -> int:
        settings = self._settings
        return max(self._periodic_from_ms + settings.interval_ms, self._last_end_ms + settings.min_pause_ms)

    def _on_ticked(self, now_ms: int) -> list[CoordinatorCommand]:
        timeout_ms = self._settings.timeout_ms
        if _drains(self._stopping) and not self._pending and now_ms >= self._stopping_since_ms + timeout_ms:
            return self._fail(Failure(f"the job had not drained within {timeout_ms} ms", "external", True))
        commands: list[CoordinatorCommand] = []
        for checkpoint in list(self._pending.values()):
            deadline_ms = checkpoint.deadline_ms(timeout_ms)
            if not self._stopped and deadline_ms is not None and now_ms >= deadline_ms:
                commands += self._expired(checkpoint, now_ms)
        return commands + self._trigger_if_due(now_ms)

    def _expired(self, checkpoint: PendingCheckpoint, now_ms: int) -> list[CoordinatorCommand]:
        number, timeout_ms = checkpoint.checkpoint_id, self._settings.timeout_ms
        if checkpoint.phase is Phase.COMMITTING:
            waiting = ", ".join(str(attempt) for attempt in sorted(self._uncommitted(checkpoint)))
            message = f"checkpoint {number}: no commit within {timeout_ms} ms from {waiting}"
            return self._fail(Failure(message, "external", True))
        missing = len(self._unacked(checkpoint))
        reason = f"checkpoint {number}: {missing} tasks had not answered within {timeout_ms} ms"
        return self._give_up(checkpoint, Failure(reason, "external", True), now_ms)

    def _trigger_if_due(self, now_ms: int) -> list[CoordinatorCommand]:
        if self._stopped or self._lost or not self._live():
            return []
        if _drains(self._stopping):
            return self._trigger(self._stopping, now_ms) if self._final_due() and not self._pending else []
        if self._savepoints:
            return self._trigger(self._savepoints.popleft(), now_ms) if not self._pending else []
        if self._final_due():
            if self._pending:
                return []
        elif not self._takes_another() or not (self._wanted or self._is_periodic_due(now_ms)):
            return []
        self._periodic_from_ms = now_ms
        self._wanted = False
        return self._trigger(None, now_ms)

    def _is_periodic_due(self, now_ms: int) -> bool:
        return self._settings.interval_ms > 0 and now_ms >= self._periodic_due_ms

    def _trigger(self, savepoint: SavepointWanted | None, now_ms: int) -> list[CoordinatorCommand]:
        number = self._next_id
        self._next_id += 1
        direct = {a for a in self._live() if self._tasks[a].injects or a in self._ended}
        checkpoint = PendingCheckpoint(number, now_ms, savepoint, direct)
        self._pending[number] = checkpoint
        return [ReserveCheckpointId(number, savepoint), self._barriers(checkpoint, direct)]

    def _barriers(self, checkpoint: PendingCheckpoint, attempts: set[AttemptId]) -> SendBarriers:
        is_savepoint = checkpoint.savepoint is not None
        return SendBarriers(
            checkpoint.checkpoint_id,
            tuple(sorted(attempts)),
            stop=checkpoint.stops,
            full=is_savepoint,
            aligned_timeout_ms=None if is_savepoint else self._settings.aligned_timeout_ms,
        )

    def _on_savepoint_wanted(self, event: SavepointWanted, now_ms: int) -> list[CoordinatorCommand]:
        if self._stopping is not None:
            return [SavepointFailed(event.trigger_id, _refused("the job is being stopped already"))]
        if len(self._done) == len(self._tasks):
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
        if any(checkpoint.waits_for_ack(event.attempt) for checkpoint in self._pending.values()):
            return [Ignored("the checkpoint wanted is under way")]
        self._wanted = True
        return self._trigger_if_due(now_ms)

    def _on_inputs_ended(self, event: TaskInputsEnded, now_ms: int) -> list[CoordinatorCommand]:
        if not self._knows(event.attempt):
            return [Ignored("end of an unknown task")]
        if event.attempt in self._ended:
            return [Ignored("doubled end of a task")]
        self._ended.add(event.attempt)
        barriers: list[CoordinatorCommand] = []
        for checkpoint in self._pending.values():
            waits = event.attempt not in self._done and checkpoint.waits_for_ack(event.attempt)
            if waits and event.attempt not in checkpoint.barrier_sent:
                checkpoint.barrier_sent.add(event.attempt)
                barriers.append(self._barriers(checkpoint, {event.attempt}))
        return barriers or self._trigger_if_due(now_ms)

    def _on_finished(self, event: TaskFinished, now_ms: int) -> list[CoordinatorCommand]:
        if not self._knows(event.attempt):
            return [Ignored("finish of an unknown task")]
        self._finished.add(event.attempt)
        return self._complete_committed(now_ms)

    # ----------------------------------------------------------------------------------------------------- answers

    def _unacked(self, checkpoint: PendingCheckpoint) -> set[AttemptId]:
        return self._live() - set(checkpoint.acks)

    def _on_acked(self, event: SubtaskAcked, now_ms: int) -> list[CoordinatorCommand]:
        number = event.checkpoint_id
        if number in self._given_up:
            return [Ignored(f"late ack of checkpoint {number}"), DiscardSnapshots(number, (event.snapshot,))]
        if not self._knows(event.attempt):
            return [Ignored("ack of an unknown task")]
        if number >= self._next_id:
            return [Ignored(f"ack of checkpoint {number}, which was never triggered")]
        checkpoint = self._pending.get(number)
        if checkpoint is not None and (event.attempt in checkpoint.acks or event.attempt in self._done):
            return [Ignored(f"doubled ack of checkpoint {number}")]
        if checkpoint is None or checkpoint.phase is not Phase.ACKNOWLEDGING:
            return [Ignored(f"late ack of checkpoint {number}")]
        checkpoint.acks[event.attempt] = event.snapshot
        return self._store_acknowledged(now_ms)

    def _store_acknowledged(self, now_ms: int) -> list[CoordinatorCommand]:
        """The oldest checkpoint that all have acknowledged is stored, unless one is being stored already."""
        for checkpoint in self._pending.values():
            if checkpoint.phase is Phase.ACKNOWLEDGING and not self._unacked(checkpoint):
                checkpoint.enter(Phase.ACKNOWLEDGED, now_ms)
        if any(checkpoint.phase is Phase.STORING for checkpoint in self._pending.values()):
            return []
        for checkpoint in self._pending.values():
            if checkpoint.phase is Phase.ACKNOWLEDGED:
                checkpoint.enter(Phase.STORING, now_ms)
                return [
                    StoreCheckpoint(
                        checkpoint.checkpoint_id,
                        checkpoint.snapshots(self._done),
                        dict(self._floors),
                        checkpoint.triggered_at_ms,
                        checkpoint.savepoint,
                    )
                ]
        return []

    def _on_declined(self, event: SubtaskDeclined, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.ACKNOWLEDGING:
            return [Ignored(f"late decline of checkpoint {event.checkpoint_id}")]
        if not self._knows(event.attempt):
            return [Ignored("decline of an unknown task")]
        reason = f"checkpoint {event.checkpoint_id} was declined by {event.attempt}: {event.failure.message}"
        return self._give_up(checkpoint, msgspec.structs.replace(event.failure, message=reason), now_ms)

    def _on_stored(self, event: CheckpointStored, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        self._failures = 0
        if checkpoint.stops and self._lost:
            return self._fail(_lost_while_stopping())
        if checkpoint.savepoint is not None and not checkpoint.stops:
            self._end(checkpoint, now_ms)
            copied = DiscardSnapshots(checkpoint.checkpoint_id, tuple(checkpoint.acks.values()))
            return [SavepointTaken(checkpoint.savepoint), copied, *self._trigger_if_due(now_ms)]
        checkpoint.enter(Phase.COMMITTING, now_ms)
        commands: list[CoordinatorCommand] = [SendCommit(checkpoint.checkpoint_id)]
        for older in list(self._pending.values()):
            if older.checkpoint_id < checkpoint.checkpoint_id and older.can_be_given_up:
                commands.append(self._drop(older, f"checkpoint {checkpoint.checkpoint_id} has overtaken it", now_ms))
        return commands + self._complete_committed(now_ms)

    def _on_store_failed(self, event: StoreFailed, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        return self._give_up(checkpoint, event.failure, now_ms)

    # ----------------------------------------------------------------------------------------------------- commits

    def _uncommitted(self, checkpoint: PendingCheckpoint) -> set[AttemptId]:
        sinks = {attempt for attempt in checkpoint.acks if self._knows(attempt) and self._tasks[attempt].commits}
        return sinks - checkpoint.committed - self._finished

    def _on_committed(self, event: SubtaskCommitted, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.COMMITTING:
            return [Ignored(f"late commit of checkpoint {event.checkpoint_id}")]
        if event.attempt not in self._uncommitted(checkpoint):
            return [Ignored(f"doubled or unknown commit of checkpoint {event.checkpoint_id}")]
        checkpoint.committed.add(event.attempt)
        return self._complete_committed(now_ms)

    def _complete_committed(self, now_ms: int) -> list[CoordinatorCommand]:
        """Ends every checkpoint that no sink owes a commit. A task that is done by it leaves the ones after it."""
        commands: list[CoordinatorCommand] = []
        for checkpoint in list(self._pending.values()):
            if checkpoint.phase is Phase.COMMITTING and not self._uncommitted(checkpoint):
                commands += self._complete(checkpoint, now_ms)
        if self._stopped:
            return commands
        return [*commands, *self._store_acknowledged(now_ms), *self._trigger_if_due(now_ms)]

    def _complete(self, checkpoint: PendingCheckpoint, now_ms: int) -> list[CoordinatorCommand]:
        for snapshot in checkpoint.acks.values():
            for operator in snapshot.operators:
                for committable in operator.committables:
                    owner = (operator.uid, committable.owner)
                    self._floors[owner] = max(self._floors.get(owner, 0), committable.checkpoint_id)
        finished = {a: s for a, s in checkpoint.acks.items() if s.finished and self._knows(a)}
        self._done.update({a: _without_committables(s) for a, s in finished.items()})
        self._end(checkpoint, now_ms)
        completed = CheckpointCompleted(checkpoint.checkpoint_id, now_ms - checkpoint.triggered_at_ms)
        if checkpoint.savepoint is None:
            return [completed]
        self._stopped = True
        return [completed, SavepointTaken(checkpoint.savepoint)]

    # --------------------------------------------------------------------------------------------------- giving up

    def _give_up(self, checkpoint: PendingCheckpoint, failure: Failure, now_ms: int) -> list[CoordinatorCommand]:
        abort: list[CoordinatorCommand] = [self._drop(checkpoint, failure.message, now_ms)]
        if checkpoint.savepoint is not None:
            return abort + self._savepoint_failed(checkpoint.savepoint, failure, now_ms)
        self._failures += 1
        if self._failures > self._settings.tolerable_failures:
            return abort + self._fail(failure)
        return [*abort, *self._store_acknowledged(now_ms), *self._trigger_if_due(now_ms)]

    def _drop(self, checkpoint: PendingCheckpoint, reason: str, now_ms: int) -> SendAbort:
        self._given_up.append(checkpoint.checkpoint_id)
        self._end(checkpoint, now_ms)
        return SendAbort(checkpoint.checkpoint_id, reason, tuple(checkpoint.acks.values()))

    def _end(self, checkpoint: PendingCheckpoint, now_ms: int) -> None:
        del self._pending[checkpoint.checkpoint_id]
        self._last_end_ms = now_ms

    def _savepoint_failed(self, savepoint: SavepointWanted, failure: Failure, now_ms: int) -> list[CoordinatorCommand]:
        """The user hears of it; the job goes on, unless its sources have ended for it."""
        failed: list[CoordinatorCommand] = [SavepointFailed(savepoint.trigger_id, failure)]
        if savepoint.drain:
            return failed + self._fail(msgspec.structs.replace(failure, retry=True))
        if savepoint is self._stopping:
            self._stopping = None
        return failed + self._trigger_if_due(now_ms)

    def _fail(self, failure: Failure) -> list[CoordinatorCommand]:
        self._stopped = True
        self._pending.clear()
        return [FailJob(failure)]

    # --------------------------------------------------------------------------------------------- region restarts

    def _on_tasks_lost(self, event: TasksLost, now_ms: int) -> list[CoordinatorCommand]:
        lost = {attempt for attempt in event.attempts if self._knows(attempt)}
        if not lost:
            return [Ignored("loss of unknown tasks, or a doubled one")]
        self._lost |= lost
        self._ended -= lost
        self._finished -= lost
        for attempt in lost:
            self._done.pop(attempt, None)
        commands: list[CoordinatorCommand] = []
        if any(checkpoint.phase is Phase.COMMITTING and checkpoint.stops for checkpoint in self._pending.values()):
            return self._fail(_lost_while_stopping())
        failed = self._stopping if _drains(self._stopping) else None
        for checkpoint in [c for c in self._pending.values() if c.can_be_given_up]:
            number = checkpoint.checkpoint_id
            commands.append(self._drop(checkpoint, f"checkpoint {number}: tasks that take part in it restart", now_ms))
            failed = checkpoint.savepoint or failed
        if failed is not None and not self._pending:
            return commands + self._savepoint_failed(failed, _lost_while_stopping(), now_ms)
        return commands + self._complete_committed(now_ms)

    def _on_tasks_replaced(self, event: TasksReplaced, now_ms: int) -> list[CoordinatorCommand]:
        places = {(role.attempt.vertex_id, role.attempt.subtask_index) for role in event.roles}
        gone = {attempt for attempt in self._tasks if (attempt.vertex_id, attempt.subtask_index) in places}
        if len(gone) < len(event.roles) or not gone <= self._lost:
            return [Ignored("replacement of tasks that are not lost")]
        self._tasks = {attempt: role for attempt, role in self._tasks.items() if attempt not in gone}
        self._tasks.update({role.attempt: role for role in event.roles})
        self._lost -= gone
        if self._lost:
            return []
        again: list[CoordinatorCommand] = [EndSources()] if _drains(self._stopping) else []
        return again + self._trigger_if_due(now_ms)


def _drains(wanted: SavepointWanted | None) -> bool:
    return wanted is not None and wanted.drain


def _refused(reason: str) -> Failure:
    return Failure(f"no savepoint can be taken: {reason}", "user", False)


def _lost_while_stopping() -> Failure:
    return Failure("tasks of the job had to be restarted meanwhile", "external", True)


def _without_committables(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
    operators = tuple(msgspec.structs.replace(operator, committables=()) for operator in snapshot.operators)
    return msgspec.structs.replace(snapshot, operators=operators)
