"""Making epochs visible exactly once: fence, marker, short transactions. The rules are in `protocol`.

Normal commit and recovery are the same code: the records of sealed epochs are produced from their files together
with a marker record, in one transaction of the owner's transactional id. Nothing is ever aborted and repeated on a
doubt: any failure ends this process's part, and whoever comes next reads the marker and decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from connectors.api import CheckpointFiles, Int64Array
from connectors.errors import ConnectorError, ErrorDomain, OptionError
from connectors.kafka.client import REQUEST_TIMEOUT_S, Settings, consumer, failed, kafka_error, producer
from connectors.kafka.commits import MarkerScan, may_repeat
from connectors.kafka.epoch_file import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE, read_epoch, reference
from connectors.kafka.native.producer import RECORDS_PER_CALL_MAX as RECORDS_PER_BATCH_CALL_MAX
from connectors.kafka.native.producer import BatchSender, Messages, batch_sender, messages_of
from connectors.kafka.properties import PREFIX
from connectors.kafka.protocol import Marker, Redo, marker_for
from connectors.kafka.rounds import Rounds, linger_ms, running_sizes

RECORDS_PER_CALL_MAX = 1_000
QUEUED_RECORDS_MAX = 200_000
"""Below the client's default limit: its queue is never full, so records need not be offered twice."""
QUEUE_FULL_WAIT_S = 0.01
"""Where `queue.buffering.max.messages` is lower: how long to wait before the rest is offered again."""

T = TypeVar("T")


def transactional_id(namespace: str, owner: int) -> str:
    return f"{namespace}-{owner}"


def marker_topic(namespace: str) -> str:
    return f"__headrace_{namespace}_eos"


class OwnerTransactions:
    """The transactions of one owner, by one producer instance. Used by one thread at a time.

    After any failure the instance is unusable: it has no way to know what the broker did."""

    def __init__(
        self, client: Mapping[str, str], namespace: str, owner: int, topic: str, transaction_timeout_ms: int
    ) -> None:
        self.owner = owner
        self._id = transactional_id(namespace, owner)
        self._topic = topic
        self._marker_topic = marker_topic(namespace)
        self._timeout_s = transaction_timeout_ms / 1000
        # An epoch that takes longer than this is committed in parts, well before the broker gives the transaction up.
        self._part_s = self._timeout_s / 3
        self._broken = False
        self._producer = producer(
            {"linger.ms": str(linger_ms(transaction_timeout_ms)), **client},
            {"transactional.id": self._id, "transaction.timeout.ms": transaction_timeout_ms},
        )
        self._sender = batch_sender(self._producer, topic)
        self._rounds = Rounds(self._producer, client)

    def fence(self) -> None:
        """After this no older instance of the id can commit, and all its earlier commits are visible."""
        self._call(lambda: self._producer.init_transactions(REQUEST_TIMEOUT_S), "fencing")

    def publish(self, epochs: Sequence[Redo], files: CheckpointFiles, *, verify: bool) -> Marker:
        """Make `epochs` (oldest first) visible with their marker; returns the marker."""
        self._begin()
        for epoch in epochs:
            self._publish_epoch(epoch, files, verify)
        marker = marker_for(epochs, reference(epochs[-1].committable).crc32)
        self._commit(marker)
        return marker

    def write_marker(self, marker: Marker) -> None:
        """A transaction of the marker alone: the birth marker."""
        self._begin()
        self._commit(marker)

    def close(self) -> None:
        """Drop the client at once, without waiting for a broker. What is uncommitted is aborted by whoever fences the
        id next, or by time. Idempotent."""
        if hasattr(self, "_producer"):
            if self._sender is not None:
                self._sender.close()
                self._sender = None
            self._producer.purge()
            del self._producer  # ends its threads and connections; nothing else does

    def _publish_epoch(self, epoch: Redo, files: CheckpointFiles, verify: bool) -> None:
        committable, to_skip, sent = epoch.committable, epoch.skip, epoch.skip
        for records in read_epoch(committable, files, verify=verify):
            if to_skip >= records.num_rows:
                to_skip -= records.num_rows
                continue
            rest = records.slice(to_skip)
            to_skip = 0
            self._send(rest)
            sent += rest.num_rows
            if time.monotonic() - self._began > self._part_s:
                crc32 = reference(committable).crc32
                part = Marker(committable.checkpoint_id, committable.incarnation, sent, committable.record_count, crc32)
                self._commit(part)
                self._begin()

    def _begin(self) -> None:
        if self._broken:
            raise ConnectorError(
                f"transactional id {self._id} failed before and must be fenced anew",
                domain=ErrorDomain.INTERNAL,
                retry=True,
            )
        self._call(self._producer.begin_transaction, "beginning a transaction")
        self._rounds.begin()
        self._began = time.monotonic()

    def _commit(self, marker: Marker) -> None:
        value = msgspec.json.encode(marker)
        self._call(lambda: self._offer(self._marker_topic, value, str(self.owner).encode()), "writing the marker")
        self._call(lambda: self._producer.commit_transaction(self._timeout_s), "committing")

    def _offer(self, topic: str, value: bytes, key: bytes) -> None:
        self._producer.produce(topic, value, key, 0)

    def _send(self, records: pa.RecordBatch) -> None:
        try:
            send_records(self._producer, self._topic, records, sender=self._sender, rounds=self._rounds)
        except (KafkaException, ConnectorError) as error:
            self._broken = True
            if isinstance(error, KafkaException):
                raise failed(kafka_error(error), f"producing to topic {self._topic}") from error
            raise

    def _call(self, call: Callable[[], T], doing: str) -> T:
        """Retriable = the same call again (the client resumes it); anything else ends this instance."""
        deadline = time.monotonic() + self._timeout_s + REQUEST_TIMEOUT_S
        while True:
            try:
                return call()
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                reason = kafka_error(error)
                overdue = time.monotonic() >= deadline
                if may_repeat(retriable=reason.retriable(), fatal=reason.fatal(), overdue=overdue):
                    continue
                self._broken = True
                if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    raise transaction_timeout_too_long(self._timeout_s * 1000, None) from error
                raise failed(reason, f"{doing} (transactional id {self._id})") from error


def fence_all(opened: Sequence[OwnerTransactions]) -> None:
    """Fence several ids at once: behind an open or just ended transaction the client waits half a second each."""
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(opened)))) as pool:
        for fenced in [pool.submit(each.fence) for each in opened]:
            fenced.result()


def transaction_timeout_too_long(timeout_ms: float, broker_max_ms: int | None) -> OptionError:
    option = PREFIX + "transaction.timeout.ms"
    limit = "" if broker_max_ms is None else f" of {broker_max_ms}"
    return OptionError(
        f"'{option}' is {int(timeout_ms)}, above the broker's maximum{limit}",
        option=option,
        hint="Lower it, or raise transaction.max.timeout.ms on the broker.",
    )


def send_records(
    client: Producer,
    topic: str,
    records: pa.RecordBatch,
    on_delivery: Any = None,
    sender: BatchSender | None = None,
    rounds: Rounds | None = None,
) -> None:
    """Hand a record batch (see `epoch_file`) to the client, partition by partition, each in order.

    Waits while the client's queue is long, or as `rounds` say. Raises when a record is refused; later failures are
    reported by the transaction's commit or by `on_delivery`. With a `sender` no record becomes a Python object, unless
    records have what its call cannot carry: timestamps, headers."""
    partitions = records.column(PARTITION).to_numpy()
    order = order_by_partition(partitions)
    stamps, headers = records.column(TIMESTAMP), records.column(HEADERS)
    one_by_one = stamps.null_count < len(stamps) or headers.null_count < len(headers)
    messages: Messages | None = None
    if sender is not None and on_delivery is None and not one_by_one:
        keys = records.column(KEY)
        # Pointers are moved, not texts.
        messages = messages_of(records.column(VALUE), keys if keys.null_count < len(keys) else None, order)
    elif order is not None:
        records = records.take(order)
    sizes = None
    if rounds is not None:
        sizes = running_sizes(records.column(VALUE), records.column(KEY), order if messages is not None else None)
    step = RECORDS_PER_CALL_MAX if messages is None else RECORDS_PER_BATCH_CALL_MAX
    for low, high, partition in _pieces(partitions if order is None else partitions[order], step, rounds, sizes):
        while len(client) > QUEUED_RECORDS_MAX:
            client.flush(QUEUE_FULL_WAIT_S)
        if messages is not None and sender is not None:
            _send_columns(client, sender, topic, messages[low:high], partition)
        elif one_by_one:
            _send_each(client, topic, records.slice(low, high - low), partition, on_delivery)
        else:
            _send_batch(client, topic, records.slice(low, high - low), partition, on_delivery)


def order_by_partition(partitions: npt.NDArray[np.int32]) -> npt.NDArray[np.int64] | None:
    """The records in order of partition, those of one in their order; None: they are."""
    if not (partitions[1:] < partitions[:-1]).any():
        return None
    # Short integers are sorted by radix.
    narrow = partitions.astype(np.int16) if int(partitions.max()) < 32_768 else partitions
    return narrow.argsort(kind="stable")


def _pieces(
    partitions: npt.NDArray[np.int32], step: int, rounds: Rounds | None, sizes: Int64Array | None
) -> Iterator[tuple[int, int, int]]:
    """Stretches of one partition each and that partition, of at most `step` records, as the client is to get them."""
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        low, partition = start, int(partitions[start])
        while low < end:
            high = min(end, low + step)
            if rounds is not None and sizes is not None:
                high = low + rounds.take(partition, sizes, low, high)
            yield low, high, partition
            low = high


def _send_columns(client: Producer, sender: BatchSender, topic: str, messages: Messages, partition: int) -> None:
    while True:
        taken, code = sender.send(messages, partition)
        if taken == len(messages):
            return
        if code != KafkaError._QUEUE_FULL:
            raise failed(KafkaError(code), f"producing to topic {topic}, partition {partition}")
        messages = messages[taken:]
        client.flush(QUEUE_FULL_WAIT_S)


def _send_each(client: Producer, topic: str, records: pa.RecordBatch, partition: int, on_delivery: Any) -> None:
    """Timestamps and headers: the client's batch calls can carry neither."""
    columns = [records.column(index).to_pylist() for index in (VALUE, KEY, TIMESTAMP, HEADERS)]
    for value, key, stamp, headers in zip(*columns, strict=True):
        _send_one(client, topic, value, key, partition, on_delivery, stamp or 0, headers or [])


def _send_one(
    client: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    partition: int,
    on_delivery: Any,
    timestamp_ms: int,
    headers: Any,
) -> None:
    while True:
        try:
            client.produce(
                topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp_ms, headers=headers
            )
            return
        except BufferError:
            client.flush(QUEUE_FULL_WAIT_S)


def _send_batch(client: Producer, topic: str, records: pa.RecordBatch, partition: int, on_delivery: Any) -> None:
    messages: list[dict[str, Any]]
    values, keys = records.column(VALUE).to_pylist(), records.column(KEY)
    if keys.null_count == len(values):
        messages = [{"value": value} for value in values]
    else:
        messages = [{"value": value, "key": key} for value, key in zip(values, keys.to_pylist(), strict=True)]
    while True:
        # The partition must be an argument: one inside a message is ignored without a word.
        accepted = client.produce_batch(topic, messages, partition, on_delivery=on_delivery)
        if accepted == len(messages):
            return
        messages = _not_queued(messages, accepted, topic, partition)
        client.flush(QUEUE_FULL_WAIT_S)


def _not_queued(messages: list[dict[str, Any]], accepted: int, topic: str, partition: int) -> list[dict[str, Any]]:
    """The messages that found the client's queue full. From the first of them on it takes none, so they are the last
    ones and order is kept. Raises ConnectorError for any other refusal."""
    errors = [message.get("_error") for message in messages]
    other = next((error for error in errors if error is not None and error.code() != KafkaError._QUEUE_FULL), None)
    if other is not None:
        raise failed(other, f"producing to topic {topic}, partition {partition}")
    # By identity: comparing a KafkaError with None leaves a stray exception behind.
    if any((error is not None) != (i >= accepted) for i, error in enumerate(errors)):
        raise ConnectorError(
            f"Kafka's client took {accepted} of {len(messages)} records for topic {topic} and does not say which",
            domain=ErrorDomain.INTERNAL,
            retry=True,
        )
    return [{name: value for name, value in message.items() if name != "_error"} for message in messages[accepted:]]


def read_markers(
    client: Mapping[str, str], namespace: str, timeout_s: float, check: Callable[[], None] = lambda: None
) -> dict[int, Marker]:
    """The newest marker of every owner. Call it after fencing the owners one is interested in.

    Reads up to the high watermark taken now, not merely to the last stable offset: behind another owner's open
    transaction there may be newer markers. Waits for such a transaction to end; `check` raises when that is of no use
    any more: the other owner may itself be waiting to be started again."""
    topic = marker_topic(namespace)
    doing = f"reading markers of {topic}"
    place = TopicPartition(topic, 0)
    try:
        probe = _marker_reader(client, namespace, "read_uncommitted")
        try:
            low, high = probe.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
        finally:
            probe.close()
        if low >= high:
            return {}
        reader = _marker_reader(client, namespace, "read_committed")
        try:
            # A number, not "the beginning": the client takes half a second to look that up.
            reader.assign([TopicPartition(topic, 0, low)])
            return _markers_below(reader, high, timeout_s, doing, check)
        finally:
            reader.close()
    except KafkaException as error:
        raise failed(kafka_error(error), doing) from error


def _marker_reader(client: Mapping[str, str], namespace: str, isolation_level: str) -> Consumer:
    own: Settings = {
        "group.id": f"{namespace}-markers",
        "isolation.level": isolation_level,
        # Compaction may remove the first record between looking and reading.
        "auto.offset.reset": "earliest",
    }
    return consumer(client, own)


def _markers_below(
    reader: Consumer, high: int, timeout_s: float, doing: str, check: Callable[[], None]
) -> dict[int, Marker]:
    scan = MarkerScan(high)
    deadline = time.monotonic() + timeout_s
    while not scan.complete:
        check()
        if time.monotonic() > deadline:
            raise ConnectorError(
                f"{doing}: no progress beyond offset {scan.position} of {high} in {timeout_s:.0f} s; "
                "a transaction of another owner is still open",
                domain=ErrorDomain.EXTERNAL,
                retry=True,
            )
        first = reader.poll(0.1)
        for message in [] if first is None else [first, *reader.consume(500, 0)]:
            error = message.error()
            if error is None:
                scan.reached(_offset(message) + 1)
                key, value = message.key(), message.value()
                if key is not None and value is not None:
                    scan.add(_offset(message), int(key), msgspec.json.decode(value, type=Marker))
            elif error.code() == KafkaError._PARTITION_EOF:
                scan.reached(_offset(message))
            elif not error.retriable():
                raise failed(error, doing)
    return scan.markers


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
