"""Savepoints that users have asked for and that are not taken yet."""

from __future__ import annotations

from collections import deque

from runtime.checkpoint.coordination import CoordinatorCommand, EndSources, SavepointFailed, SavepointWanted
from runtime.protocol.messages import Failure


class SavepointWishes:
    """In the order in which they came. One that stops the job is the last: what waits then is refused."""

    def __init__(self) -> None:
        self._waiting: deque[SavepointWanted] = deque()
        self._stopping: SavepointWanted | None = None
        """Accepted and not yet failed."""
        self.stopping_since_ms = 0

    @property
    def stops(self) -> bool:
        return self._stopping is not None

    @property
    def drain(self) -> SavepointWanted | None:
        """The job's sources end for it; it is to be the final checkpoint."""
        return self._stopping if self._stopping is not None and self._stopping.drain else None

    @property
    def any_waiting(self) -> bool:
        return bool(self._waiting)

    def take(self) -> SavepointWanted:
        """The next one."""
        return self._waiting.popleft()

    def accept(self, wanted: SavepointWanted, *, ending: bool, now_ms: int) -> list[CoordinatorCommand]:
        """`ending`: the job has nothing left to take a savepoint of."""
        if self._stopping is not None:
            return [SavepointFailed(wanted.trigger_id, refusal("the job is being stopped already"))]
        if ending:
            return [SavepointFailed(wanted.trigger_id, refusal("the job is ending"))]
        refused: list[CoordinatorCommand] = []
        if wanted.stop:
            stopped = refusal("the job is being stopped")
            refused += [SavepointFailed(waiting.trigger_id, stopped) for waiting in self._waiting]
            self._waiting.clear()
            self._stopping, self.stopping_since_ms = wanted, now_ms
        if wanted.drain:
            return [*refused, EndSources()]
        self._waiting.append(wanted)
        return refused

    def failed(self, wanted: SavepointWanted) -> None:
        """The job goes on."""
        if wanted is self._stopping:
            self._stopping = None


def refusal(reason: str) -> Failure:
    return Failure(f"no savepoint can be taken: {reason}", "user", False)
