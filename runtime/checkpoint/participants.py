"""The tasks of one generation as the checkpoint coordinator sees them: who takes part, who has ended, who is gone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from runtime.checkpoint.coordination import TaskRole
from runtime.checkpoint.pending import PendingCheckpoint
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId


class Participants:
    """A task *has ended* when it has seen the end of its inputs; it is *done* when a snapshot taken after that is
    committed, and its snapshot is part of every later checkpoint; it is *finished* when it says that it has stopped.
    A *lost* one will be replaced by a new attempt."""

    def __init__(self, tasks: Iterable[TaskRole]) -> None:
        self._tasks = {task.attempt: task for task in tasks}
        self._ended: set[AttemptId] = set()
        self._done: dict[AttemptId, SubtaskSnapshot] = {}
        self._finished: set[AttemptId] = set()
        self._lost: set[AttemptId] = set()

    @property
    def live(self) -> set[AttemptId]:
        """Those that a new checkpoint would ask."""
        return set(self._tasks) - set(self._done) - self._lost

    @property
    def any_lost(self) -> bool:
        return bool(self._lost)

    @property
    def all_done(self) -> bool:
        return len(self._done) == len(self._tasks)

    @property
    def final_due(self) -> bool:
        """There are live ones, and all of them have ended: nothing more will come."""
        live = self.live
        return bool(live) and live <= self._ended

    def knows(self, attempt: AttemptId) -> bool:
        return attempt in self._tasks and attempt not in self._lost

    def is_done(self, attempt: AttemptId) -> bool:
        return attempt in self._done

    def triggered_directly(self) -> set[AttemptId]:
        """Live ones that no barrier reaches through an input."""
        return {attempt for attempt in self.live if self._tasks[attempt].injects or attempt in self._ended}

    def note_end(self, attempt: AttemptId) -> bool:
        """False: it was known."""
        known = attempt in self._ended
        self._ended.add(attempt)
        return not known

    def note_finish(self, attempt: AttemptId) -> None:
        self._finished.add(attempt)

    # ------------------------------------------------------------------------------------------------ a checkpoint

    def unacknowledged(self, checkpoint: PendingCheckpoint) -> set[AttemptId]:
        return self.live - set(checkpoint.acks)

    def uncommitted(self, checkpoint: PendingCheckpoint) -> set[AttemptId]:
        """Sinks that owe a commit. What a lost one owes its recovery commits."""
        sinks = {attempt for attempt in checkpoint.acks if self.knows(attempt) and self._tasks[attempt].commits}
        return sinks - checkpoint.committed - self._finished

    def snapshots(self, checkpoint: PendingCheckpoint) -> tuple[SubtaskSnapshot, ...]:
        """The checkpoint's content; tasks that are done are in it with what they left."""
        merged = {**checkpoint.acks, **self._done}
        return tuple(sorted(merged.values(), key=lambda s: (s.vertex_id, s.subtask_index)))

    def note_completion(self, checkpoint: PendingCheckpoint) -> None:
        """It is committed: those whose last snapshot it holds are done. Their epochs are committed, and what was in
        flight behind them is their consumers' affair, so that later checkpoints do not name either any more."""
        for attempt, snapshot in checkpoint.acks.items():
            if snapshot.finished and self.knows(attempt):
                operators = tuple(msgspec.structs.replace(o, committables=()) for o in snapshot.operators)
                self._done[attempt] = msgspec.structs.replace(snapshot, operators=operators, in_flight=())

    # --------------------------------------------------------------------------------------------- region restarts

    def lose(self, attempts: Iterable[AttemptId]) -> bool:
        """False: none of them was known."""
        lost = {attempt for attempt in attempts if self.knows(attempt)}
        self._lost |= lost
        self._ended -= lost
        self._finished -= lost
        for attempt in lost:
            self._done.pop(attempt, None)
        return bool(lost)

    def replace(self, roles: Iterable[TaskRole]) -> bool:
        """False, and nothing is changed, unless each takes the place of a lost one."""
        fresh = {(role.attempt.vertex_id, role.attempt.subtask_index): role for role in roles}
        gone = {attempt for attempt in self._tasks if (attempt.vertex_id, attempt.subtask_index) in fresh}
        if len(gone) < len(fresh) or not gone <= self._lost:
            return False
        self._tasks = {attempt: role for attempt, role in self._tasks.items() if attempt not in gone}
        self._tasks.update({role.attempt: role for role in fresh.values()})
        self._lost -= gone
        return True

    def validate(self) -> None:
        """Invariants."""
        assert set(self._done) | self._ended | self._finished | self._lost <= set(self._tasks)
        assert not self._lost & (set(self._done) | self._ended | self._finished)
