"""Event time of one source subtask: the minimum over its active splits. Pure.

A known split that has given no row yet holds the minimum. A split without rows for the idle time-out leaves it until
its next row; an ended split leaves for good. The subtask's watermark never falls. What is to be sent is sent at most
once per interval, of the clock or of event time.
"""

from __future__ import annotations

from runtime.elements import Watermark, WatermarkStatus


class _SplitClock:
    def __init__(self, watermark_ms: int | None) -> None:
        self.watermark_ms = watermark_ms
        self.silent_ms = 0.0
        self.idle = False
        self.ended = False

    @property
    def active(self) -> bool:
        return not self.idle and not self.ended


class SourceWatermarks:
    """`interval_ms` 0: every advance is sent. `idle_timeout_ms` 0: silence never makes a split idle."""

    def __init__(self, interval_ms: int, idle_timeout_ms: int) -> None:
        self._interval_ms = interval_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._splits: dict[str, _SplitClock] = {}
        self.watermark_ms: int | None = None
        self._sent_ms: int | None = None
        self._sent_at_ms: float | None = None
        self._idle = False

    def add_split(self, split_id: str, watermark_ms: int | None, ended: bool) -> None:
        """`watermark_ms`: the split's running maximum from the restored checkpoint."""
        clock = _SplitClock(watermark_ms)
        clock.ended = ended
        self._splits[split_id] = clock

    def split_watermark(self, split_id: str) -> int | None:
        """The split's running maximum."""
        return self._splits[split_id].watermark_ms

    def on_rows(self, split_id: str, maximum_ms: int | None) -> None:
        """Rows came from the split; `maximum_ms` is the highest watermark among them (None: all were NULL)."""
        clock = self._splits[split_id]
        clock.silent_ms, clock.idle = 0.0, False
        if maximum_ms is not None and (clock.watermark_ms is None or maximum_ms > clock.watermark_ms):
            clock.watermark_ms = maximum_ms

    def on_silence(self, split_id: str, duration_ms: float) -> None:
        """The split was polled and had nothing; `duration_ms` since its last poll, waits for credit left out."""
        clock = self._splits[split_id]
        clock.silent_ms += duration_ms
        if self._idle_timeout_ms and clock.silent_ms >= self._idle_timeout_ms:
            clock.idle = True

    def on_ended(self, split_id: str) -> None:
        """The last active split leaves its event time behind: it is that of the subtask until another one comes."""
        clock = self._splits[split_id]
        is_last = clock.active and not any(other.active for other in self._splits.values() if other is not clock)
        clock.ended = True
        if is_last and clock.watermark_ms is not None:
            self.watermark_ms = max(clock.watermark_ms, self.watermark_ms or clock.watermark_ms)

    def minimum_of_others(self, split_id: str) -> int | None:
        """The lowest watermark among the active splits but this one: None when one of them is unknown, the highest
        possible value when there is no other."""
        others = [c.watermark_ms for i, c in self._splits.items() if i != split_id and c.active]
        return _minimum(others) if others else 2**63 - 1

    def status(self) -> list[WatermarkStatus]:
        """A change between idle and active, to be sent before the rows that caused it. No split: idle."""
        idle = True
        for clock in self._splits.values():
            idle = idle and (clock.idle or clock.ended)
        if idle == self._idle:
            return []
        self._idle = idle
        return [WatermarkStatus(idle)]

    def advance(self, now_ms: float, *, at_once: bool = False) -> list[Watermark]:
        """What is to be sent now, behind the rows given out. `at_once`: do not wait for the interval."""
        active = [clock.watermark_ms for clock in self._splits.values() if not (clock.idle or clock.ended)]
        minimum = _minimum(active) if active else None
        if minimum is not None and (self.watermark_ms is None or minimum > self.watermark_ms):
            self.watermark_ms = minimum
        return self._send(now_ms, at_once)

    def sent(self, watermark_ms: int, now_ms: float) -> None:
        """The caller has sent this one itself (between the rows of a batch)."""
        self.watermark_ms = self._sent_ms = watermark_ms
        self._sent_at_ms = now_ms

    def _send(self, now_ms: float, at_once: bool) -> list[Watermark]:
        current = self.watermark_ms
        if current is None or (self._sent_ms is not None and current <= self._sent_ms):
            return []
        due = (
            at_once
            or self._sent_ms is None
            or self._sent_at_ms is None
            or now_ms - self._sent_at_ms >= self._interval_ms
            or current - self._sent_ms > self._interval_ms
        )
        if not due:
            return []
        self._sent_ms, self._sent_at_ms = current, now_ms
        return [Watermark(current)]


def _minimum(watermarks: list[int | None]) -> int | None:
    known = [w for w in watermarks if w is not None]
    return min(known) if len(known) == len(watermarks) else None
