"""Consumers by assignment: they fetch what is there, as columns, and tell ends of partitions from errors.

Two roads behind one protocol: librdkafka called directly (`connectors.kafka.native`), and confluent-kafka's objects
where that is not possible or a table reads what only they have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.api import Int64Array
from connectors.kafka.client import Settings, consumer, native_consumer
from connectors.kafka.native.consumer import Batch, NativeConsumer
from connectors.kafka.records import NativeRecords, ObjectRecords, Records

# Larger pieces are slower: thousands of message objects no longer fit the processor's cache.
PIECE_MESSAGES_MAX = 1_000

_PASSING = frozenset({
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError._MSG_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
})  # fmt: skip
"""Conditions the client repairs by itself; they may show up as events of a partition."""

_log = logging.getLogger("connectors.kafka")


class End(NamedTuple):
    """The end of a partition was met: everything below `offset` was read or skipped."""

    topic: str
    partition: int
    offset: int


class PartitionError(Exception):
    """Reading a partition failed for good."""

    def __init__(self, topic: str, partition: int, error: KafkaError) -> None:
        super().__init__(topic, partition, error)
        self.topic, self.partition, self.error = topic, partition, error


class Fetched(NamedTuple):
    records: Records | None
    ends: Sequence[End]


class Fetcher(Protocol):
    """One thread; `high_watermark` may be asked by any. Client errors are KafkaExceptions."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these too, each from its offset."""

    def unassign(self, partitions: list[TopicPartition]) -> None: ...

    def fetch(self, rows_max: int, bytes_max: int, timeout_ms: int) -> Fetched:
        """What is there, up to the limits; waits only when there is nothing at all. Raises PartitionError."""

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Publish group offsets; nobody waits for the answer."""

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The partition's end as last heard of; None when it is not known."""

    def close(self) -> None: ...


def fetcher(client: dict[str, str], own: Settings, on_error: Callable[[KafkaError], None], *, objects: bool) -> Fetcher:
    """`objects`: the table reads what only message objects have. `on_error` gets the client's own errors."""
    native = None if objects else native_consumer(client, own, on_error)
    if native is not None:
        return NativeFetcher(native)
    return ObjectFetcher(consumer(client, own, on_error))


class NativeFetcher:
    def __init__(self, reader: NativeConsumer) -> None:
        self._reader = reader
        self._bytes_per_message = 200.0

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._reader.assign(partitions)

    def unassign(self, partitions: list[TopicPartition]) -> None:
        self._reader.unassign(partitions)

    def fetch(self, rows_max: int, bytes_max: int, timeout_ms: int) -> Fetched:
        batch = self._reader.consume(int(min(rows_max, max(1.0, bytes_max / self._bytes_per_message))), timeout_ms)
        if batch is None:
            return Fetched(None, ())
        try:
            chosen: Int64Array | None = None
            ends: tuple[End, ...] = ()
            if batch.errors.any():
                chosen = np.flatnonzero(batch.errors == 0)
                ends = tuple(_ends(batch))
        except BaseException:
            batch.close()
            raise
        records = NativeRecords(batch, chosen)
        if records.count == 0:
            records.close()
            return Fetched(None, ends)
        self._bytes_per_message = max(1.0, records.byte_size / records.count)
        return Fetched(records, ends)

    def commit(self, offsets: list[TopicPartition]) -> None:
        self._reader.commit(offsets)

    def high_watermark(self, topic: str, partition: int) -> int | None:
        return self._reader.high_watermark(topic, partition)

    def close(self) -> None:
        self._reader.close()


def _ends(batch: Batch) -> Iterable[End]:
    """Ends of partitions among a batch's messages. Raises PartitionError."""
    for index in np.flatnonzero(batch.errors).tolist():
        code = int(batch.errors[index])
        if code == KafkaError._PARTITION_EOF:
            yield End(batch.topic_name(index), int(batch.partitions[index]), int(batch.offsets[index]))
        elif code not in _PASSING:
            error = KafkaError(code, batch.error_text(index))
            raise PartitionError(batch.topic_name(index), int(batch.partitions[index]), error)


class ObjectFetcher:
    def __init__(self, reader: Consumer) -> None:
        self._reader = reader
        self._assigned = False
        self._bytes_per_message = 200.0

    def assign(self, partitions: list[TopicPartition]) -> None:
        if self._assigned:
            self._reader.incremental_assign(partitions)
        else:
            self._reader.assign(partitions)
            self._assigned = True

    def unassign(self, partitions: list[TopicPartition]) -> None:
        self._reader.incremental_unassign(partitions)

    def fetch(self, rows_max: int, bytes_max: int, timeout_ms: int) -> Fetched:
        reader = self._reader
        fetched: list[Message] = []
        ends: list[End] = []
        rows_left, bytes_left = rows_max, float(bytes_max)
        while rows_left > 0 and bytes_left > 0:
            piece = int(min(PIECE_MESSAGES_MAX, rows_left, max(1.0, bytes_left / self._bytes_per_message)))
            got = reader.consume(piece, 0)
            if not got and not fetched and timeout_ms > 0:
                first = reader.poll(timeout_ms / 1000)
                if first is not None:
                    got = [first, *reader.consume(piece - 1, 0)] if piece > 1 else [first]
            errors = list(map(Message.error, got))
            # Never compare a KafkaError with None by value: the client's comparison raises from C.
            good = _without_events(got, errors, ends) if any(errors) else got
            if good:
                size = sum(map(len, good))
                self._bytes_per_message = max(1.0, size / len(good))
                bytes_left -= size
                fetched += good
            rows_left -= len(got)
            if len(got) < piece:
                break
        return Fetched(ObjectRecords(fetched, int(bytes_max - bytes_left)) if fetched else None, ends)

    def commit(self, offsets: list[TopicPartition]) -> None:
        self._reader.commit(offsets=offsets, asynchronous=True)

    def high_watermark(self, topic: str, partition: int) -> int | None:
        try:
            _, high = self._reader.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
        except (KafkaException, RuntimeError):
            return None  # Not fetched yet, or the reader was closed meanwhile.
        return high

    def close(self) -> None:
        self._reader.close()


def _without_events(messages: Sequence[Message], errors: Sequence[KafkaError | None], ends: list[End]) -> list[Message]:
    """The records; ends of partitions go to `ends`. Raises PartitionError."""
    good = []
    for message, error in zip(messages, errors, strict=True):
        if error is None:
            good.append(message)
            continue
        topic, partition, offset = message.topic() or "", message.partition(), message.offset()
        if error.code() == KafkaError._PARTITION_EOF:
            if partition is not None and offset is not None:
                ends.append(End(topic, partition, offset))
        elif not (error.retriable() or error.code() in _PASSING):
            raise PartitionError(topic, -1 if partition is None else partition, error)
    return good
