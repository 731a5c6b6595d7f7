"""The records of one poll as columns, whichever road they came by.

`ObjectRecords` looks into the message objects of confluent-kafka; `NativeRecords` reads librdkafka's memory, which is
valid until `close`. Only the former has what needs an object: headers, leader epochs, kinds of timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from connectors.api import Int64Array
from connectors.kafka.native.consumer import Batch
from connectors.kafka.native.memory import joined_lines

BoolArray = npt.NDArray[np.bool_]

OBJECTS_ONLY = frozenset({"headers", "leader-epoch", "timestamp-type"})
"""Metadata keys that only `ObjectRecords` has."""


class Texts(Protocol):
    """The keys, or the values, of some records."""

    @property
    def absent(self) -> BoolArray:
        """Which records have none."""

    def lines(self, chosen: Int64Array) -> tuple[memoryview, Int64Array]:
        """Those of the chosen records (all present) in one buffer, each followed by a newline, and where each begins
        (one entry more)."""


class Records(Protocol):
    """Row i of every column is record i."""

    count: int
    byte_size: int
    partitions: Int64Array
    offsets: Int64Array
    values: Texts

    def keys(self) -> Texts: ...

    def topic(self, index: int) -> str: ...

    def topics(self) -> Iterator[tuple[str, BoolArray]]:
        """Each topic and which records are its own."""

    def timestamps_ms(self, chosen: Int64Array) -> Int64Array: ...

    def messages(self, chosen: Int64Array) -> Sequence[Message]:
        """The objects, where there are any."""

    def close(self) -> None:
        """Nothing of the records is asked for any more."""


class _ObjectTexts:
    def __init__(self, texts: list[bytes | None]) -> None:
        self._texts = texts
        self.absent = np.zeros(len(texts), np.bool_)
        if None in texts:
            self.absent = np.fromiter((text is None for text in texts), np.bool_, len(texts))

    def lines(self, chosen: Int64Array) -> tuple[memoryview, Int64Array]:
        texts = cast("list[bytes]", self._texts)
        if len(chosen) < len(texts) or bool((np.diff(chosen) < 0).any()):
            texts = [texts[i] for i in chosen.tolist()]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1, out=offsets[1:])
        return memoryview(b"\n".join(texts) + b"\n" if texts else b""), offsets


class ObjectRecords:
    """Records that are Python objects: their columns are pulled out one by one."""

    def __init__(self, messages: list[Message], byte_size: int) -> None:
        self._messages = messages
        self.count = len(messages)
        self.byte_size = byte_size
        self.partitions = np.fromiter(map(Message.partition, messages), np.int64, self.count)
        self.offsets = np.fromiter(map(Message.offset, messages), np.int64, self.count)
        self.values: Texts = _ObjectTexts(list(map(Message.value, messages)))

    def keys(self) -> Texts:
        return _ObjectTexts(list(map(Message.key, self._messages)))

    def topic(self, index: int) -> str:
        return self._messages[index].topic() or ""

    def topics(self) -> Iterator[tuple[str, BoolArray]]:
        names = [message.topic() or "" for message in self._messages]
        for name in set(names):
            yield name, np.fromiter((name == other for other in names), np.bool_, self.count)

    def timestamps_ms(self, chosen: Int64Array) -> Int64Array:
        return np.fromiter((self._messages[i].timestamp()[1] for i in chosen.tolist()), np.int64, len(chosen))

    def messages(self, chosen: Int64Array) -> Sequence[Message]:
        return [self._messages[i] for i in chosen.tolist()]

    def close(self) -> None:
        """The objects go when nobody holds them."""


class _NativeTexts:
    def __init__(self, addresses: Int64Array, sizes: Int64Array) -> None:
        self._addresses, self._sizes = addresses, sizes
        self.absent = addresses == 0

    def lines(self, chosen: Int64Array) -> tuple[memoryview, Int64Array]:
        data, offsets = joined_lines(self._addresses[chosen], self._sizes[chosen])
        return memoryview(cast(Any, data)), offsets


class NativeRecords:
    """The `chosen` messages of a batch; closing the records closes the batch."""

    def __init__(self, batch: Batch, chosen: Int64Array | None) -> None:
        every: Any = slice(None) if chosen is None else chosen
        self._batch = batch
        self._every = every
        self._numbers = np.arange(batch.count) if chosen is None else chosen
        self.count = len(self._numbers)
        self.partitions = batch.partitions[every]
        self.offsets = batch.offsets[every]
        sizes = batch.value_bytes[every]
        self.byte_size = int(sizes.sum())
        self.values: Texts = _NativeTexts(batch.value_addresses[every], sizes)

    def keys(self) -> Texts:
        addresses, sizes = self._batch.keys()
        return _NativeTexts(addresses[self._every], sizes[self._every])

    def topic(self, index: int) -> str:
        return self._batch.topic_name(int(self._numbers[index]))

    def topics(self) -> Iterator[tuple[str, BoolArray]]:
        handles = self._batch.topics[self._every]
        left = np.ones(self.count, np.bool_)
        while left.any():
            first = int(left.argmax())
            own = handles == handles[first]
            yield self.topic(first), own
            left &= ~own

    def timestamps_ms(self, chosen: Int64Array) -> Int64Array:
        return self._batch.timestamps_ms(self._numbers[chosen])

    def messages(self, chosen: Int64Array) -> Sequence[Message]:
        raise NotImplementedError("these records are no objects")

    def close(self) -> None:
        self._batch.close()
