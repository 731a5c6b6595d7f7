"""A checkpoint between its barriers and its end: who has answered, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from runtime.checkpoint.coordination import SavepointWanted, SendAbort, SendBarriers, SinkOwner
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId


class Phase(StrEnum):
    """ACKNOWLEDGED: complete, but another checkpoint is being stored; pointers move one after the other."""

    ACKNOWLEDGING = "acknowledging"
    ACKNOWLEDGED = "acknowledged"
    STORING = "storing"
    COMMITTING = "committing"


class PendingCheckpoint:
    """The coordinator's notes on one checkpoint. `savepoint`: the user's wish that it fulfils; `aligned_timeout_ms` and
    `committed_id` are for its barriers."""

    def __init__(
        self,
        checkpoint_id: int,
        triggered_at_ms: int,
        savepoint: SavepointWanted | None,
        barrier_sent: set[AttemptId],
        aligned_timeout_ms: int | None,
        committed_id: int,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.triggered_at_ms = triggered_at_ms
        self.savepoint = savepoint
        self.barrier_sent = barrier_sent
        """Tasks whose barrier came from here, not through their inputs."""
        self._aligned_timeout_ms = aligned_timeout_ms
        self._committed_id = committed_id
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

    def barriers(self, attempts: set[AttemptId]) -> SendBarriers:
        return SendBarriers(
            self.checkpoint_id,
            tuple(sorted(attempts)),
            stop=self.stops,
            full=self.savepoint is not None,
            aligned_timeout_ms=self._aligned_timeout_ms,
            committed_id=self._committed_id,
        )

    def committed_epochs(self) -> Iterator[tuple[SinkOwner, int]]:
        """Every epoch in it, with its owner: all committed once it is completed."""
        for snapshot in self.acks.values():
            for operator in snapshot.operators:
                for committable in operator.committables:
                    yield (operator.uid, committable.owner), committable.checkpoint_id

    def abort(self, reason: str) -> SendAbort:
        return SendAbort(self.checkpoint_id, reason, tuple(self.acks.values()))
