"""When the next checkpoint that nobody asked for is due."""

from __future__ import annotations

from runtime.job_settings import CheckpointSettings


class Rhythm:
    """An interval after the last one was triggered, but not before the pause after the last one ended; at once if a
    task wants one."""

    def __init__(self, settings: CheckpointSettings, now_ms: int) -> None:
        self._interval_ms = settings.interval_ms
        self._min_pause_ms = settings.min_pause_ms
        self._triggered_at_ms = now_ms
        self._ended_at_ms = now_ms
        self._wanted = False

    @property
    def due_ms(self) -> int | None:
        """None: there are no periodic checkpoints."""
        if self._interval_ms == 0:
            return None
        return max(self._triggered_at_ms + self._interval_ms, self._ended_at_ms + self._min_pause_ms)

    def is_due(self, now_ms: int) -> bool:
        due_ms = self.due_ms
        return self._wanted or (due_ms is not None and now_ms >= due_ms)

    def want(self) -> None:
        self._wanted = True

    def triggered(self, now_ms: int) -> None:
        """Savepoints do not count."""
        self._triggered_at_ms = now_ms
        self._wanted = False

    def ended(self, now_ms: int) -> None:
        """Any checkpoint or savepoint, however it ended."""
        self._ended_at_ms = now_ms
