"""Aligned checkpoints of one task: which channels wait, and when all barriers are there. Pure.

Rules: a channel that has delivered the barrier waits until the others have; an ended channel counts as aligned; a
newer barrier gives up the older alignment; ids at or below the last one done or given up are late and ignored. When
every input has ended the barrier comes from the JobManager, or from an upstream task that had ended too.
"""

from __future__ import annotations

import msgspec

from runtime.elements import Barrier


class BlockChannel(msgspec.Struct, frozen=True):
    """Leave the channel's elements queued."""

    channel: int


class UnblockChannel(msgspec.Struct, frozen=True):
    channel: int


class TakeSnapshot(msgspec.Struct, frozen=True):
    """All barriers are there: snapshot, then send the barrier on. `alignment_ms` since the first one."""

    barrier: Barrier
    alignment_ms: float


AlignerCommand = BlockChannel | UnblockChannel | TakeSnapshot


class BarrierAligner:
    """A task without inputs (a source) has `channel_count` 0 and is triggered."""

    def __init__(self, channel_count: int) -> None:
        self._channel_count = channel_count
        self._ended: set[int] = set()
        self._received: set[int] = set()
        self._current: Barrier | None = None
        self._started_ms = 0.0
        self._floor = 0

    @property
    def aligning(self) -> bool:
        return self._current is not None

    @property
    def all_ended(self) -> bool:
        return len(self._ended) == self._channel_count

    def on_barrier(self, channel: int, barrier: Barrier, now_ms: float) -> list[AlignerCommand]:
        """A barrier arrived on a channel."""
        if barrier.checkpoint_id <= self._floor:
            return []
        if channel in self._ended:
            return self.on_trigger(barrier)
        commands: list[AlignerCommand] = []
        if self._current is not None and barrier.checkpoint_id > self._current.checkpoint_id:
            commands += self._give_up()
        if self._current is None:
            self._current, self._started_ms = barrier, now_ms
        if barrier.checkpoint_id < self._current.checkpoint_id:
            return commands
        self._received.add(channel)
        return commands + (self._complete(now_ms) or [BlockChannel(channel)])

    def on_ended(self, channel: int, now_ms: float) -> list[AlignerCommand]:
        """The channel has ended: no alignment waits for it."""
        self._ended.add(channel)
        return self._complete(now_ms) if self._current is not None else []

    def on_trigger(self, barrier: Barrier) -> list[AlignerCommand]:
        """A barrier that is in no channel: for sources, and for tasks whose inputs have all ended."""
        if not self.all_ended or barrier.checkpoint_id <= self._floor:
            return []
        self._floor = barrier.checkpoint_id
        return [TakeSnapshot(barrier, 0.0)]

    def on_aborted(self, checkpoint_id: int) -> list[AlignerCommand]:
        """The checkpoint failed elsewhere: give it up, also if its barrier has not come yet."""
        commands: list[AlignerCommand] = []
        if self._current is not None and self._current.checkpoint_id <= checkpoint_id:
            commands = self._give_up()
        self._floor = max(self._floor, checkpoint_id)
        return commands

    def _complete(self, now_ms: float) -> list[AlignerCommand]:
        assert self._current is not None
        if len(self._received | self._ended) < self._channel_count:
            return []
        barrier, alignment_ms = self._current, now_ms - self._started_ms
        return [*self._give_up(), TakeSnapshot(barrier, alignment_ms)]

    def _give_up(self) -> list[AlignerCommand]:
        """Ends the current alignment; its id is used up."""
        assert self._current is not None
        self._floor = self._current.checkpoint_id
        waiting = sorted(self._received - self._ended)
        self._current = None
        self._received.clear()
        return [UnblockChannel(channel) for channel in waiting]
