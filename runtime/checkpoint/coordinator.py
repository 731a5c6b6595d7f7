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
from runtime.checkpoint.participants import Participants
from runtime.checkpoint.pending import PendingCheckpoint, Phase
from runtime.checkpoint.rhythm import Rhythm
from runtime.checkpoint.wishes import SavepointWishes, refusal
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
        self._tasks = Participants(tasks)
        self._next_id = next_checkpoint_id
        self._floors = dict(floors)
        self._pending: dict[int, PendingCheckpoint] = {}
        """In order of their ids."""
        self._committed_id = 0
        self._stopped = False
        self._given_up: deque[int] = deque(maxlen=GIVEN_UP_REMEMBERED)
        self._failures = 0
        self._savepoints = SavepointWishes()
        self._rhythm = Rhythm(settings, now_ms)

    @property
    def deadline_ms(self) -> int | None:
        """When `Ticked` is due; None = no timer."""
        if self._stopped:
            return None
        due = [checkpoint.deadline_ms(self._settings.timeout_ms) for checkpoint in self._pending.values()]
        if self._savepoints.drain is not None and not self._pending:
            due.append(self._savepoints.stopping_since_ms + self._settings.timeout_ms)
        elif self._takes_another():
            due.append(self._rhythm.due_ms)
        return min((deadline_ms for deadline_ms in due if deadline_ms is not None), default=None)

    def handle(self, event: CoordinatorEvent, now_ms: int) -> list[CoordinatorCommand]:
        """Never raises for what a peer may send at a wrong time; that gives `Ignored`."""
        if self._stopped:
            if isinstance(event, SavepointWanted):
                return [SavepointFailed(event.trigger_id, refusal("the job is ending"))]
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
                answers = self._savepoints.accept(event, ending=self._tasks.all_done, now_ms=now_ms)
                return answers + self._trigger_if_due(now_ms)
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
        self._tasks.validate()
        if self._stopped:
            return
        assert len(self._pending) <= self._settings.concurrent_max
        assert len(self._pending) == 1 or not any(c.savepoint for c in self._pending.values()), "not taken alone"
        phases = [checkpoint.phase for checkpoint in self._pending.values()]
        assert phases.count(Phase.STORING) <= 1, "pointers move one after the other"
        assert Phase.ACKNOWLEDGED not in phases or Phase.STORING in phases, "nobody will store it"
        for checkpoint in self._pending.values():
            assert not (self._tasks.any_lost and checkpoint.can_be_given_up), "lost tasks cannot acknowledge"
            if checkpoint.phase is Phase.ACKNOWLEDGING:
                assert self._tasks.unacknowledged(checkpoint), "every ack is in, yet the checkpoint waits"
            if checkpoint.phase is Phase.COMMITTING:
                assert self._tasks.uncommitted(checkpoint), "every sink has committed, yet the checkpoint waits"

    # ------------------------------------------------------------------------------------------------ triggering

    def _takes_another(self) -> bool:
        """Whether a checkpoint that nobody asked for may be triggered: it would take no place from one that counts
        for more."""
        if (
            self._savepoints.stops
            or self._savepoints.any_waiting
            or len(self._pending) >= self._settings.concurrent_max
        ):
            return False
        if self._tasks.any_lost or self._tasks.final_due or not self._tasks.live:
            return False
        return not any(checkpoint.savepoint for checkpoint in self._pending.values())

    def _on_ticked(self, now_ms: int) -> list[CoordinatorCommand]:
        timeout_ms = self._settings.timeout_ms
        commands: list[CoordinatorCommand] = []
        for checkpoint in list(self._pending.values()):
            deadline_ms = checkpoint.deadline_ms(timeout_ms)
            if not self._stopped and deadline_ms is not None and now_ms >= deadline_ms:
                commands += self._expired(checkpoint, now_ms)
        waits_for_drain = self._savepoints.drain is not None and not self._pending and not self._stopped
        if waits_for_drain and now_ms >= self._savepoints.stopping_since_ms + timeout_ms:
            return commands + self._fail(Failure(f"the job had not drained within {timeout_ms} ms", "external", True))
        return commands + self._trigger_if_due(now_ms)

    def _expired(self, checkpoint: PendingCheckpoint, now_ms: int) -> list[CoordinatorCommand]:
        number, timeout_ms = checkpoint.checkpoint_id, self._settings.timeout_ms
        if checkpoint.phase is Phase.COMMITTING:
            waiting = ", ".join(str(attempt) for attempt in sorted(self._tasks.uncommitted(checkpoint)))
            message = f"checkpoint {number}: no commit within {timeout_ms} ms from {waiting}"
            return self._fail(Failure(message, "external", True))
        missing = len(self._tasks.unacknowledged(checkpoint))
        reason = f"checkpoint {number}: {missing} tasks had not answered within {timeout_ms} ms"
        return self._give_up(checkpoint, Failure(reason, "external", True), now_ms)

    def _trigger_if_due(self, now_ms: int) -> list[CoordinatorCommand]:
        if self._stopped or self._tasks.any_lost or not self._tasks.live:
            return []
        if self._savepoints.drain is not None:
            alone = self._tasks.final_due and not self._pending
            return self._trigger(self._savepoints.drain, now_ms) if alone else []
        if self._savepoints.any_waiting:
            return self._trigger(self._savepoints.take(), now_ms) if not self._pending else []
        if self._tasks.final_due:
            if self._pending:
                return []
        elif not self._takes_another() or not self._rhythm.is_due(now_ms):
            return []
        self._rhythm.triggered(now_ms)
        return self._trigger(None, now_ms)

    def _trigger(self, savepoint: SavepointWanted | None, now_ms: int) -> list[CoordinatorCommand]:
        number = self._next_id
        self._next_id += 1
        direct = self._tasks.triggered_directly()
        aligned_timeout_ms = self._settings.aligned_timeout_ms if savepoint is None else None
        checkpoint = PendingCheckpoint(number, now_ms, savepoint, direct, aligned_timeout_ms, self._committed_id)
        self._pending[number] = checkpoint
        return [ReserveCheckpointId(number, savepoint), checkpoint.barriers(direct)]

    def _on_wanted(self, event: CheckpointWanted, now_ms: int) -> list[CoordinatorCommand]:
        if event.attempt not in self._tasks.live:
            return [Ignored("checkpoint wanted by a task that has ended or is unknown")]
        if any(checkpoint.waits_for_ack(event.attempt) for checkpoint in self._pending.values()):
            return [Ignored("the checkpoint wanted is under way")]
        self._rhythm.want()
        return self._trigger_if_due(now_ms)

    def _on_inputs_ended(self, event: TaskInputsEnded, now_ms: int) -> list[CoordinatorCommand]:
        if not self._tasks.knows(event.attempt):
            return [Ignored("end of an unknown task")]
        if not self._tasks.note_end(event.attempt):
            return [Ignored("doubled end of a task")]
        barriers: list[CoordinatorCommand] = []
        for checkpoint in self._pending.values():
            waits = not self._tasks.is_done(event.attempt) and checkpoint.waits_for_ack(event.attempt)
            if waits and event.attempt not in checkpoint.barrier_sent:
                checkpoint.barrier_sent.add(event.attempt)
                barriers.append(checkpoint.barriers({event.attempt}))
        return barriers or self._trigger_if_due(now_ms)

    def _on_finished(self, event: TaskFinished, now_ms: int) -> list[CoordinatorCommand]:
        if not self._tasks.knows(event.attempt):
            return [Ignored("finish of an unknown task")]
        self._tasks.note_finish(event.attempt)
        return self._complete_committed(now_ms)

    # ----------------------------------------------------------------------------------------------------- answers

    def _on_acked(self, event: SubtaskAcked, now_ms: int) -> list[CoordinatorCommand]:
        number = event.checkpoint_id
        if number in self._given_up:
            return [Ignored(f"late ack of checkpoint {number}"), DiscardSnapshots(number, (event.snapshot,))]
        if not self._tasks.knows(event.attempt):
            return [Ignored("ack of an unknown task")]
        if number >= self._next_id:
            return [Ignored(f"ack of checkpoint {number}, which was never triggered")]
        checkpoint = self._pending.get(number)
        if checkpoint is not None and (event.attempt in checkpoint.acks or self._tasks.is_done(event.attempt)):
            return [Ignored(f"doubled ack of checkpoint {number}")]
        if checkpoint is None or checkpoint.phase is not Phase.ACKNOWLEDGING:
            return [Ignored(f"late ack of checkpoint {number}")]
        checkpoint.acks[event.attempt] = event.snapshot
        return self._store_acknowledged(now_ms)

    def _store_acknowledged(self, now_ms: int) -> list[CoordinatorCommand]:
        """The oldest checkpoint that all have acknowledged is stored, unless one is being stored already."""
        for checkpoint in self._pending.values():
            if checkpoint.phase is Phase.ACKNOWLEDGING and not self._tasks.unacknowledged(checkpoint):
                checkpoint.enter(Phase.ACKNOWLEDGED, now_ms)
        if any(checkpoint.phase is Phase.STORING for checkpoint in self._pending.values()):
            return []
        for checkpoint in self._pending.values():
            if checkpoint.phase is Phase.ACKNOWLEDGED:
                checkpoint.enter(Phase.STORING, now_ms)
                return [
                    StoreCheckpoint(
                        checkpoint.checkpoint_id,
                        self._tasks.snapshots(checkpoint),
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
        if not self._tasks.knows(event.attempt):
            return [Ignored("decline of an unknown task")]
        reason = f"checkpoint {event.checkpoint_id} was declined by {event.attempt}: {event.failure.message}"
        return self._give_up(checkpoint, msgspec.structs.replace(event.failure, message=reason), now_ms)

    def _on_stored(self, event: CheckpointStored, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        self._failures = 0
        if checkpoint.stops and self._tasks.any_lost:
            return self._fail(_lost_while_stopping())
        if checkpoint.savepoint is not None and not checkpoint.stops:
            self._end(checkpoint, now_ms)
            copied = DiscardSnapshots(checkpoint.checkpoint_id, tuple(checkpoint.acks.values()))
            return [SavepointTaken(checkpoint.savepoint), copied, *self._trigger_if_due(now_ms)]
        self._committed_id = checkpoint.checkpoint_id
        checkpoint.enter(Phase.COMMITTING, now_ms)
        commands: list[CoordinatorCommand] = [SendCommit(checkpoint.checkpoint_id)]
        for older in list(self._pending.values()):
            if older.checkpoint_id < checkpoint.checkpoint_id and older.can_be_given_up:
                self._end(older, now_ms, given_up=True)
                commands.append(older.abort(f"checkpoint {checkpoint.checkpoint_id} has overtaken it"))
        return commands + self._complete_committed(now_ms)

    def _on_store_failed(self, event: StoreFailed, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.STORING:
            return [Ignored(f"checkpoint {event.checkpoint_id} is not being stored")]
        return self._give_up(checkpoint, event.failure, now_ms)

    # ----------------------------------------------------------------------------------------------------- commits

    def _on_committed(self, event: SubtaskCommitted, now_ms: int) -> list[CoordinatorCommand]:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or checkpoint.phase is not Phase.COMMITTING:
            return [Ignored(f"late commit of checkpoint {event.checkpoint_id}")]
        if event.attempt not in self._tasks.uncommitted(checkpoint):
            return [Ignored(f"doubled or unknown commit of checkpoint {event.checkpoint_id}")]
        checkpoint.committed.add(event.attempt)
        return self._complete_committed(now_ms)

    def _complete_committed(self, now_ms: int) -> list[CoordinatorCommand]:
        """Ends every checkpoint that no sink owes a commit. A task that is done by it leaves the ones after it."""
        commands: list[CoordinatorCommand] = []
        for checkpoint in list(self._pending.values()):
            if checkpoint.phase is not Phase.COMMITTING or self._tasks.uncommitted(checkpoint):
                continue
            for owner, number in checkpoint.committed_epochs():
                self._floors[owner] = max(self._floors.get(owner, 0), number)
            self._tasks.note_completion(checkpoint)
            self._end(checkpoint, now_ms)
            commands.append(CheckpointCompleted(checkpoint.checkpoint_id, now_ms - checkpoint.triggered_at_ms))
            if checkpoint.savepoint is not None:
                self._stopped = True
                return [*commands, SavepointTaken(checkpoint.savepoint)]
        return [*commands, *self._store_acknowledged(now_ms), *self._trigger_if_due(now_ms)]

    # --------------------------------------------------------------------------------------------------- giving up

    def _give_up(self, checkpoint: PendingCheckpoint, failure: Failure, now_ms: int) -> list[CoordinatorCommand]:
        self._end(checkpoint, now_ms, given_up=True)
        abort: list[CoordinatorCommand] = [checkpoint.abort(failure.message)]
        if checkpoint.savepoint is not None:
            return abort + self._savepoint_failed(checkpoint.savepoint, failure, now_ms)
        self._failures += 1
        if self._failures > self._settings.tolerable_failures:
            return abort + self._fail(failure)
        return [*abort, *self._store_acknowledged(now_ms), *self._trigger_if_due(now_ms)]

    def _end(self, checkpoint: PendingCheckpoint, now_ms: int, *, given_up: bool = False) -> None:
        del self._pending[checkpoint.checkpoint_id]
        self._rhythm.ended(now_ms)
        if given_up:
            self._given_up.append(checkpoint.checkpoint_id)

    def _savepoint_failed(self, savepoint: SavepointWanted, failure: Failure, now_ms: int) -> list[CoordinatorCommand]:
        """The user hears of it; the job goes on, unless its sources have ended for it."""
        failed: list[CoordinatorCommand] = [SavepointFailed(savepoint.trigger_id, failure)]
        if savepoint.drain:
            return failed + self._fail(msgspec.structs.replace(failure, retry=True))
        self._savepoints.failed(savepoint)
        return failed + self._trigger_if_due(now_ms)

    def _fail(self, failure: Failure) -> list[CoordinatorCommand]:
        self._stopped = True
        self._pending.clear()
        return [FailJob(failure)]

    # --------------------------------------------------------------------------------------------- region restarts

    def _on_tasks_lost(self, event: TasksLost, now_ms: int) -> list[CoordinatorCommand]:
        if not self._tasks.lose(event.attempts):
            return [Ignored("loss of unknown tasks, or a doubled one")]
        commands: list[CoordinatorCommand] = []
        if any(checkpoint.phase is Phase.COMMITTING and checkpoint.stops for checkpoint in self._pending.values()):
            return self._fail(_lost_while_stopping())
        failed = self._savepoints.drain
        for checkpoint in [c for c in self._pending.values() if c.can_be_given_up]:
            self._end(checkpoint, now_ms, given_up=True)
            commands.append(checkpoint.abort("tasks that take part in it restart"))
            failed = checkpoint.savepoint or failed
        if failed is not None and not self._pending:
            return commands + self._savepoint_failed(failed, _lost_while_stopping(), now_ms)
        return commands + self._complete_committed(now_ms)

    def _on_tasks_replaced(self, event: TasksReplaced, now_ms: int) -> list[CoordinatorCommand]:
        if not self._tasks.replace(event.roles):
            return [Ignored("replacement of tasks that are not lost")]
        if self._tasks.any_lost:
            return []
        again: list[CoordinatorCommand] = [EndSources()] if self._savepoints.drain is not None else []
        return again + self._trigger_if_due(now_ms)


def _lost_while_stopping() -> Failure:
    return Failure("tasks of the job had to be restarted meanwhile", "external", True)
