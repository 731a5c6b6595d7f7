"""Whatever the interleaving of channels: a snapshot holds exactly the rows before the barrier in each of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.elements import Barrier
from runtime.taskmanager.barrier_aligner import (
    AlignerCommand,
    BarrierAligner,
    BlockChannel,
    TakeSnapshot,
    UnblockChannel,
)

ROW, BARRIER = "row", "barrier"


@dataclass
class Consumer:
    """A task over channels of rows and numbered barriers; every channel ends after its last element."""

    channels: list[deque[str]]
    aligner: BarrierAligner = field(init=False)
    blocked: set[int] = field(default_factory=set)
    seen_barriers: list[int] = field(init=False)
    rows: list[int] = field(init=False)
    rows_before: list[list[int]] = field(init=False)
    snapshots: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.channels)
        self.aligner = BarrierAligner(count)
        self.seen_barriers, self.rows = [0] * count, [0] * count
        self.rows_before = []
        for channel in self.channels:
            before, counted = [], 0
            for element in channel:
                if element == ROW:
                    counted += 1
                else:
                    before.append(counted)
            self.rows_before.append([*before, counted])

    def step(self, index: int) -> None:
        channel = self.channels[index]
        if not channel:
            self.perform(self.aligner.on_ended(index, 0.0))
        elif channel.popleft() == ROW:
            self.rows[index] += 1
        else:
            self.seen_barriers[index] += 1
            self.perform(self.aligner.on_barrier(index, Barrier(self.seen_barriers[index], 1), 0.0))

    def perform(self, commands: list[AlignerCommand]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel=channel):
                    self.blocked.add(channel)
                case UnblockChannel(channel=channel):
                    self.blocked.discard(channel)
                case TakeSnapshot(barrier=barrier):
                    self.check(barrier.checkpoint_id)

    def check(self, checkpoint_id: int) -> None:
        """A channel that ended before this barrier has given all its rows."""
        assert checkpoint_id == (self.snapshots[-1] if self.snapshots else 0) + 1
        self.snapshots.append(checkpoint_id)
        for index, before in enumerate(self.rows_before):
            assert self.rows[index] == before[min(checkpoint_id, len(before)) - 1]


channel = st.lists(st.sampled_from([ROW, ROW, BARRIER]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(st.lists(channel, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_snapshots_are_consistent(contents: list[list[str]], random: object) -> None:
    choice = random.choice  # type: ignore[attr-defined]
    barriers = max(content.count(BARRIER) for content in contents)
    consumer = Consumer([deque(content) for content in contents])
    live = set(range(len(contents)))
    while live:
        # A blocked channel always waits for one that is not: nothing can stand still.
        ready = sorted(live - consumer.blocked)
        assert ready
        index = choice(ready)
        if not consumer.channels[index]:
            live.discard(index)
        consumer.step(index)
    assert consumer.snapshots == list(range(1, barriers + 1))
