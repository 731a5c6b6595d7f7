"""Checkpoints of one task, from its barriers' side: which channels wait, when the snapshot is taken, and what is in
flight then. Pure.

Aligned: a channel that has delivered the barrier waits until the others have; an ended channel counts as aligned; a
newer barrier gives up the older alignment; ids at or below the last one done or given up are late and ignored. When
every input has ended the barrier comes from the JobManager, or from an upstream task that had ended too.

Unaligned: a barrier that may overtake is *announced* when it joins its channel's queue. Once its time-out is over, on
whatever channel, nothing waits any more: the snapshot is taken at once, and what each other channel still has before
the barrier (queued, or arriving until the barrier does) is recorded as in flight. The checkpoint of the task is
complete when the last barrier has arrived.
"""

from __future__ import annotations

import msgspec

from runtime.elements import Barrier


class BlockChannel(msgspec.Struct, frozen=True):
    """Leave the channel's elements queued."""

    channel: int


class UnblockChannel(msgspec.Struct, frozen=True):
    channel: int


class OvertakeChannel(msgspec.Struct, frozen=True):
    """Record what is queued on the channel before the barrier, which leaves the queue; if the barrier has not arrived,
    record everything queued and what arrives until it does."""

    channel: int
    checkpoint_id: int


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Snapshot, then send the barrier on; its time-out is what is left of it. Aligned, all barriers are there
    (`alignment_ms` since the first one). Unaligned, the barrier overtakes the task's own output, and
    `CompleteRecording` follows."""

    barrier: Barrier
    alignment_ms: float
    is_unaligned: bool = False


class CompleteRecording(msgspec.Struct, frozen=True):
    """The last barrier has arrived: what was recorded is all that is in flight. `alignment_ms` since the first one."""

    checkpoint_id: int
    alignment_ms: float


class DropRecording(msgspec.Struct, frozen=True):
    """The checkpoint is given up: record no more and forget what was recorded."""

    checkpoint_id: int


AlignerCommand = BlockChannel | UnblockChannel | OvertakeChannel | TakeSnapshot | CompleteRecording | DropRecording


class BarrierAligner:
    """A task without inputs (a source) has `channel_count` 0 and is triggered. Times are the task's own, in ms."""

    def __init__(self, channel_count: int) -> None:
        self._channel_count = channel_count
        self._ended: set[int] = set()
        self._ending: set[int] = set()
        """Channels whose end is in their queue: nothing arrives on them but barriers."""
        self._received: set[int] = set()
        self._announced: set[int] = set()
        self._current: Barrier | None = None
        self._started_ms = 0.0
        self._deadline_ms: float | None = None
        self._recording: int | None = None
        """The checkpoint whose snapshot is taken while barriers are still to come, and on which channels."""
        self._missing: set[int] = set()
        self._floor = 0

    @property
    def aligning(self) -> bool:
        return self._current is not None

    @property
    def all_ended(self) -> bool:
        return len(self._ended) == self._channel_count

    @property
    def deadline_ms(self) -> float | None:
        """When `on_time` is to be called."""
        return self._deadline_ms if self._current is not None else None

    def on_announced(self, channel: int, barrier: Barrier, now_ms: float) -> list[AlignerCommand]:
        """A barrier has joined a channel's queue. It may also be taken from there before this is said."""
        if barrier.checkpoint_id == self._recording:
            return self._on_arrived(channel, now_ms)
        if barrier.aligned_timeout_ms is None or barrier.checkpoint_id <= self._floor or not self._channel_count:
            return []
        if channel in self._ended:
            return self.on_trigger(barrier)
        commands = self._begin(barrier, now_ms)
        if self._current is None or barrier.checkpoint_id < self._current.checkpoint_id:
            return commands
        self._announced.add(channel)
        return commands + self.on_time(now_ms)

    def on_barrier(self, channel: int, barrier: Barrier, now_ms: float) -> list[AlignerCommand]:
        """A barrier is taken from a channel: all before it is processed."""
        if barrier.checkpoint_id == self._recording:
            return self._on_arrived(channel, now_ms)
        if barrier.checkpoint_id <= self._floor:
            return []
        if channel in self._ended:
            return self.on_trigger(barrier)
        commands = self._begin(barrier, now_ms)
        if self._current is None or barrier.checkpoint_id < self._current.checkpoint_id:
            return commands
        self._received.add(channel)
        return commands + (self._complete(now_ms) or self.on_time(now_ms) or [BlockChannel(channel)])

    def on_end_announced(self, channel: int, now_ms: float) -> list[AlignerCommand]:
        """The end of a channel has joined its queue: no recording waits for its barrier."""
        self._ending.add(channel)
        return self._on_arrived(channel, now_ms)

    def on_ended(self, channel: int, now_ms: float) -> list[AlignerCommand]:
        """The channel has ended: no alignment waits for it."""
        self._ended.add(channel)
        commands = self._on_arrived(channel, now_ms)
        return commands + (self._complete(now_ms) if self._current is not None else [])

    def on_trigger(self, barrier: Barrier) -> list[AlignerCommand]:
        """A barrier that is in no channel: for sources, and for tasks whose inputs have all ended."""
        if not self.all_ended or barrier.checkpoint_id <= self._floor:
            return []
        self._floor = barrier.checkpoint_id
        if barrier.aligned_timeout_ms is None or barrier.aligned_timeout_ms > 0:
            return [TakeSnapshot(barrier, 0.0)]
        return [TakeSnapshot(barrier, 0.0, True), CompleteRecording(barrier.checkpoint_id, 0.0)]

    def on_time(self, now_ms: float) -> list[AlignerCommand]:
        """The time-out may be over."""
        deadline_ms = self.deadline_ms
        return self._overtake(now_ms) if deadline_ms is not None and deadline_ms <= now_ms else []

    def on_aborted(self, checkpoint_id: int) -> list[AlignerCommand]:
        """The checkpoint failed elsewhere: give it up, also if its barrier has not come yet."""
        commands: list[AlignerCommand] = []
        if self._current is not None and self._current.checkpoint_id <= checkpoint_id:
            commands += self._give_up()
        self._floor = max(self._floor, checkpoint_id)
        return commands + self._drop_recording(checkpoint_id)

    def _begin(self, barrier: Barrier, now_ms: float) -> list[AlignerCommand]:
        """The alignment of this barrier, unless a newer one is under way."""
        commands: list[AlignerCommand] = []
        if self._current is not None and barrier.checkpoint_id > self._current.checkpoint_id:
            commands += self._give_up()
        if self._current is None:
            commands += self._drop_recording(barrier.checkpoint_id)
            self._current, self._started_ms, self._deadline_ms = barrier, now_ms, None
        if barrier.checkpoint_id == self._current.checkpoint_id and barrier.aligned_timeout_ms is not None:
            deadline_ms = now_ms + barrier.aligned_timeout_ms
            self._deadline_ms = deadline_ms if self._deadline_ms is None else min(self._deadline_ms, deadline_ms)
        return commands

    def _complete(self, now_ms: float) -> list[AlignerCommand]:
        assert self._current is not None
        if len(self._received | self._ended) < self._channel_count:
            return []
        barrier, alignment_ms = self._current, now_ms - self._started_ms
        if self._deadline_ms is not None:
            if self._deadline_ms <= now_ms:
                return self._overtake(now_ms)
            barrier = msgspec.structs.replace(barrier, aligned_timeout_ms=self._deadline_ms - now_ms)
        return [*self._give_up(), TakeSnapshot(barrier, alignment_ms)]

    def _overtake(self, now_ms: float) -> list[AlignerCommand]:
        """From aligned to unaligned."""
        assert self._current is not None
        barrier = msgspec.structs.replace(self._current, aligned_timeout_ms=0.0)
        others = [c for c in range(self._channel_count) if c not in self._received and c not in self._ended]
        self._missing = set(others) - self._announced - self._ending
        unblocked = self._give_up()
        self._recording = barrier.checkpoint_id
        return [
            *unblocked,
            *(OvertakeChannel(channel, barrier.checkpoint_id) for channel in others),
            TakeSnapshot(barrier, now_ms - self._started_ms, True),
            *self._recorded(now_ms),
        ]

    def _on_arrived(self, channel: int, now_ms: float) -> list[AlignerCommand]:
        """Nothing more is to be recorded on the channel."""
        if self._recording is None:
            return []
        self._missing.discard(channel)
        return self._recorded(now_ms)

    def _recorded(self, now_ms: float) -> list[AlignerCommand]:
        if self._recording is None or self._missing:
            return []
        checkpoint_id, self._recording = self._recording, None
        return [CompleteRecording(checkpoint_id, now_ms - self._started_ms)]

    def _drop_recording(self, checkpoint_id: int) -> list[AlignerCommand]:
        if self._recording is None or self._recording > checkpoint_id:
            return []
        dropped, self._recording = self._recording, None
        self._missing.clear()
        return [DropRecording(dropped)]

    def _give_up(self) -> list[AlignerCommand]:
        """Ends the current alignment; its id is used up."""
        assert self._current is not None
        self._floor = self._current.checkpoint_id
        waiting = sorted(self._received - self._ended)
        self._current = self._deadline_ms = None
        self._received.clear()
        self._announced.clear()
        return [UnblockChannel(channel) for channel in waiting]
