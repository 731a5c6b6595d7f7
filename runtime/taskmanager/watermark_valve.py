"""Event time of a task with inputs: the minimum over its active channels. Pure.

As Flink's StatusWatermarkValve: an idle channel leaves the minimum; one that becomes active again counts once it has
caught up with what was already sent, so the task's watermark never falls; when the last active channel becomes idle,
the highest watermark of the idle ones is sent before the status. An ended channel leaves for good.
"""

from __future__ import annotations

from runtime.elements import MIN_WATERMARK_MS, Watermark, WatermarkStatus

Output = list[Watermark | WatermarkStatus]


class _Channel:
    def __init__(self) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.idle = False
        self.aligned = True
        self.ended = False


class WatermarkValve:
    """`watermark_ms` is the last one sent."""

    def __init__(self, channel_count: int) -> None:
        self._channels = [_Channel() for _ in range(channel_count)]
        self.watermark_ms = MIN_WATERMARK_MS
        self._idle = False

    def on_watermark(self, index: int, timestamp_ms: int) -> Output:
        channel = self._channels[index]
        if channel.ended or channel.idle or timestamp_ms <= channel.watermark_ms:
            return []
        channel.watermark_ms = timestamp_ms
        if timestamp_ms >= self.watermark_ms:
            channel.aligned = True
        return self._advance_to_minimum()

    def on_status(self, index: int, idle: bool) -> Output:
        channel = self._channels[index]
        if channel.ended or channel.idle == idle:
            return []
        channel.idle = idle
        if idle:
            channel.aligned = False
            return self._after_leaving(channel)
        channel.aligned = channel.watermark_ms >= self.watermark_ms
        if self._idle:
            self._idle = False
            return [WatermarkStatus(False)]
        return []

    def on_ended(self, index: int) -> Output:
        """Ended channels leave the minimum. The end of the last one is the task's business (MAX, when draining)."""
        channel = self._channels[index]
        if channel.ended:
            return []
        channel.ended = True
        was_active = not channel.idle
        channel.aligned = False
        return self._after_leaving(channel) if was_active else []

    def _after_leaving(self, channel: _Channel) -> Output:
        rest = [c for c in self._channels if not c.ended]
        if any(not c.idle for c in rest):
            return self._advance_to_minimum()
        if not rest or self._idle:
            return []
        output: Output = []
        if channel.watermark_ms == self.watermark_ms or channel.ended:
            output += self._advance(max(c.watermark_ms for c in rest))
        self._idle = True
        return [*output, WatermarkStatus(True)]

    def _advance_to_minimum(self) -> Output:
        aligned = [c.watermark_ms for c in self._channels if c.aligned and not c.ended]
        return list(self._advance(min(aligned))) if aligned else []

    def _advance(self, timestamp_ms: int) -> list[Watermark]:
        if timestamp_ms <= self.watermark_ms:
            return []
        self.watermark_ms = timestamp_ms
        return [Watermark(timestamp_ms)]
