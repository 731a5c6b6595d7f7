"""A checkpoint between its barriers and its end: who has answered, and how far it is."""

from __future__ import annotations

from enum import StrEnum

from runtime.checkpoint.coordination import SavepointWanted
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId


class Phase(StrEnum):
    """ACKNOWLEDGED: complete, but another checkpoint is being stored; pointers move one after the other."""

    ACKNOWLEDGING = "acknowledging"
    ACKNOWLEDGED = "acknowledged"
    STORING = "storing"
    COMMITTING = "committing"


class PendingCheckpoint:
    """The coordinator's notes on one checkpoint. `savepoint`: the user's wish that it fulfils."""

    def __init__(
        self, checkpoint_id: int, triggered_at_ms: int, savepoint: SavepointWanted | None, barrier_sent: set[AttemptId]
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.triggered_at_ms = triggered_at_ms
        self.savepoint = savepoint
        self.barrier_sent = barrier_sent
        """Tasks whose barrier came from here, not through their inputs."""
        self.phase = Phase.ACKNOWLEDGING
        self.phase_since_ms = triggered_at_ms
        self.acks: dict[AttemptId, SubtaskSnapshot] = {}
        self.committed: set[AttemptId] = set()

    @property
    def can_be_given_up(self) -> bool:
        """Nothing durable says that it exists, and nothing will."""
        return self.phase in (Phase.ACKNOWLEDGING, Phase.ACKNOWLEDGED)

    @property
    def stops(self) -> bool:
        """The job ends with it."""
        return self.savepoint is not None and self.savepoint.stop

    def waits_for_ack(self, attempt: AttemptId) -> bool:
        return self.phase is Phase.ACKNOWLEDGING and attempt not in self.acks

    def enter(self, phase: Phase, now_ms: int) -> None:
        self.phase = phase
        self.phase_since_ms = now_ms

    def deadline_ms(self, timeout_ms: int) -> int | None:
        """When it has taken too long. One that waits for its turn or is being stored cannot: its outcome is not the
        coordinator's to decide."""
        return self.phase_since_ms + timeout_ms if self.phase in (Phase.ACKNOWLEDGING, Phase.COMMITTING) else None

    def snapshots(self, done: dict[AttemptId, SubtaskSnapshot]) -> tuple[SubtaskSnapshot, ...]:
        """The checkpoint's content; tasks that were done before are in it with what they left."""
        merged = {**self.acks, **done}
        return tuple(sorted(merged.values(), key=lambda s: (s.vertex_id, s.subtask_index)))
