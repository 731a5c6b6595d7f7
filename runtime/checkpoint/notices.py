"""What a task tells the state of its operators about checkpoints."""

from __future__ import annotations

from collections.abc import Callable


class CheckpointNotices:
    """One per task, used in its thread."""

    def __init__(self) -> None:
        self._full_id: int | None = None
        self._listeners: list[Callable[[int], None]] = []

    def at_barrier(self, checkpoint_id: int, *, full: bool, committed_id: int = 0) -> None:
        """The operators' snapshots for this checkpoint are taken next. `full`: they must name no file of an earlier
        one (a savepoint); `committed_id`: the latest durable checkpoint when the barrier was made, 0 = none."""
        if committed_id:
            self.committed(committed_id)
        self._full_id = checkpoint_id if full else None

    def is_full(self, checkpoint_id: int) -> bool:
        return self._full_id == checkpoint_id

    def listen(self, committed: Callable[[int], None]) -> None:
        """Have `committed` called with the id of each checkpoint that has become durable."""
        self._listeners.append(committed)

    def committed(self, checkpoint_id: int) -> None:
        """The pointer of the job has moved to this checkpoint: its files stay while a later one names them. The same
        may be told more than once."""
        for listener in self._listeners:
            listener(checkpoint_id)
