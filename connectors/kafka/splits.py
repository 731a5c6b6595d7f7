"""A split is one partition of one topic with concrete start and (bounded) end offsets."""

from __future__ import annotations

import msgspec

from connectors.api import Split, SplitState


class PartitionSplit(msgspec.Struct, frozen=True):
    """Records `start <= offset < end` of a partition; `end` None = unbounded.

    Offsets are concrete numbers, resolved once when the split is discovered: reading it again from the start gives
    the same rows, whatever the start-up mode was."""

    topic: str
    partition: int
    start: int
    end: int | None = None

    def split(self) -> Split:
        return Split(split_id(self.topic, self.partition), msgspec.json.encode(self))


def split_id(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def partition_split(split: Split) -> PartitionSplit:
    return msgspec.json.decode(split.data, type=PartitionSplit)


def next_offset(state: SplitState) -> int:
    """The offset a reader starts at."""
    return partition_split(state.split).start if state.position is None else int(state.position)


def position(offset: int) -> bytes:
    """The recorded position `next offset to read`."""
    return b"%d" % offset
