"""Small helpers over topics for tests: create, fill, read to the end, and look for transactions left open."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

DEADLINE_S = 30.0

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record to send. `timestamp_ms` None = the broker's client stamps it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ReadRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


def unique_name(prefix: str) -> str:
    """A topic (or group, or namespace) name nobody else uses: tests share one broker."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def create_topic(
    bootstrap_servers: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create the topic and return when its partitions have leaders (the broker answers before that)."""
    admin = AdminClient(_settings(bootstrap_servers))
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[topic].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} has no leaders")


def add_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    admin = AdminClient(_settings(bootstrap_servers))
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(DEADLINE_S)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete the topic and return when the broker no longer knows it."""
    admin = AdminClient(_settings(bootstrap_servers))
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while topic in admin.list_topics(timeout=DEADLINE_S).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} is still there")


def produce(bootstrap_servers: str, topic: str, records: Iterable[Record], transactional_id: str | None = None) -> None:
    """Send all, in order per partition, and wait until the broker has them (committed, if an id is given)."""
    settings: dict[str, str | int | float | bool] = {**_settings(bootstrap_servers), "linger.ms": 5}
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer = Producer(settings)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    if transactional_id is not None:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
    for record in records:
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=delivered,
                    timestamp=0 if record.timestamp_ms is None else record.timestamp_ms,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(DEADLINE_S)
    if left or failures:
        raise RuntimeError(f"{left} records not delivered, {failures[:3]}")
    if transactional_id is not None:
        producer.commit_transaction(DEADLINE_S)


def read_topic(bootstrap_servers: str, topic: str, isolation: str = "read_committed") -> list[ReadRecord]:
    """Everything a reader of this isolation level sees now, partition by partition, in offset order."""
    admin = AdminClient(_settings(bootstrap_servers))
    partitions = sorted(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
    settings: dict[str, str | int | float | bool] = {
        **_settings(bootstrap_servers),
        "group.id": unique_name("reader"),
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        "fetch.queue.backoff.ms": 5,
    }
    consumer = Consumer(settings)
    try:
        # Offset 0 instead of "the beginning", which the client takes half a second to look up.
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        return _read_to_end(consumer, partitions)
    finally:
        consumer.close()


def _read_to_end(consumer: Consumer, partitions: Sequence[int]) -> list[ReadRecord]:
    found: dict[int, list[ReadRecord]] = {each: [] for each in partitions}
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < len(partitions):
        first = consumer.poll(0.2)
        for message in [] if first is None else [first, *consumer.consume(1000, 0)]:
            deadline = time.monotonic() + DEADLINE_S
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is None:
                found[partition].append(_read_record(message, partition))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
            else:
                raise KafkaException(error)
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end of partitions {set(partitions) - ended}")
    return [record for each in partitions for record in found[each]]


def _read_record(message: Message, partition: int) -> ReadRecord:
    offset = message.offset()
    assert offset is not None
    headers = cast(Headers, message.headers() or [])
    return ReadRecord(partition, offset, message.key(), message.value(), message.timestamp()[1], headers)


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """Per partition (last stable offset, high watermark): they differ while a transaction is open."""
    admin = AdminClient(_settings(bootstrap_servers))
    partitions = sorted(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
    ends: dict[IsolationLevel, dict[int, int]] = {}
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, each): latest for each in partitions}
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=DEADLINE_S)
        ends[level] = {key.partition: future.result().offset for key, future in futures.items()}
    stable, high = ends[IsolationLevel.READ_COMMITTED], ends[IsolationLevel.READ_UNCOMMITTED]
    return {each: (stable[each], high[each]) for each in partitions}


def open_transactions(bootstrap_servers: str, prefix: str = "") -> list[tuple[str, str]]:
    """(transactional id, state) of each transaction in progress on any broker; its id starts with `prefix`.

    The client library has no ListTransactions, so this speaks the protocol itself (request 66, version 0).
    """
    admin = AdminClient(_settings(bootstrap_servers))
    found: list[tuple[str, str]] = []
    for broker in admin.list_topics(timeout=DEADLINE_S).brokers.values():
        with socket.create_connection((broker.host, broker.port), timeout=DEADLINE_S) as connection:
            found += _list_transactions(connection)
    return sorted(each for each in found if each[0].startswith(prefix))


def _list_transactions(connection: socket.socket) -> list[tuple[str, str]]:
    states = (b"Ongoing", b"PrepareCommit", b"PrepareAbort")
    # Request key, version, correlation id, no client id, no tags.
    header = struct.pack(">hhih", 66, 0, 1, -1) + b"\x00"
    filters = bytes([len(states) + 1]) + b"".join(bytes([len(each) + 1]) + each for each in states)
    body = header + filters + b"\x01\x00"  # no producer id filter, no tags
    connection.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    answer = _Answer(_receive(connection, size)[4 + 1 + 4 :])  # correlation id, tags, throttle time
    error = answer.int16()
    if error != 0:
        raise RuntimeError(f"ListTransactions failed with error {error}")
    for _ in range(answer.length()):  # unknown state filters
        answer.string()
    found = []
    for _ in range(answer.length()):
        transactional_id = answer.string()
        answer.skip(8)  # producer id
        found.append((transactional_id, answer.string()))
        answer.skip(1)  # tags
    return found


class _Answer:
    """Reads the compact types of Kafka's flexible message versions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def skip(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def int16(self) -> int:
        (value,) = struct.unpack(">h", self.skip(2))
        assert isinstance(value, int)
        return value

    def length(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.skip(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - 1

    def string(self) -> str:
        return self.skip(self.length()).decode()


def _receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)


def _settings(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0, "enable.metrics.push": False}
