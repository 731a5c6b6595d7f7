"""Writers: rows to records, and records to Kafka under one of three guarantees.

* exactly-once: the task thread appends records to the epoch's write-ahead file; the commit thread produces sealed
  epochs, each with its marker in one transaction (`transactions`). At-least-once of an upsert table is written so,
  too: a stalled attempt that wakes up must not put an old value over a newer one, and transactions fence it;
* at-least-once otherwise: records are sent at once, in rounds (`round_sender`), and the barrier waits until the broker
  has acknowledged all of them;
* none: records are sent at once, nobody waits.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from connectors import registry
from connectors.api import Committable, Encoder, Int64Array, OwnerState, SinkContext
from connectors.arrow import text_buffers
from connectors.errors import ConnectorError, ErrorDomain, OptionError
from connectors.kafka.client import LINGER_MS, REQUEST_TIMEOUT_S, admin_client, failed, kafka_error, producer
from connectors.kafka.commits import PendingEpochs, Publish, SinkRecovery
from connectors.kafka.epoch_file import EpochFileWriter, record_schema
from connectors.kafka.options import DeliveryGuarantee, FormatOptions, SinkOptions
from connectors.kafka.partitioner import Partitioner, murmur2
from connectors.kafka.properties import PREFIX
from connectors.kafka.round_sender import RoundSender
from connectors.kafka.rounds import linger_ms
from connectors.kafka.target import partition_count
from connectors.kafka.transactions import OwnerTransactions, fence_all, read_markers, send_records
from connectors.kafka.upserts import UpsertBuffer, last_per_key, removals
from planner.ir.types import ChangelogMode, Field

if TYPE_CHECKING:
    Array = pa.Array[Any]

MESSAGE_BYTES_MAX_DEFAULT = 1_000_000
PARTITION_REFRESH_S = 300.0
FLUSH_STEP_S = 0.5
DELIVERY_TIMEOUT_MS = 300_000


class RecordBuilder:
    """Turns rows into record batches (see `epoch_file`)."""

    def __init__(self, options: SinkOptions, columns: tuple[Field, ...], context: SinkContext) -> None:
        self._column_count = len(columns)
        self._value_columns = list(options.value.columns)
        self._value = _encoder(options.value, columns, "", context)
        self._key_columns = [] if options.key is None else list(options.key.columns)
        self._key = None if options.key is None else _encoder(options.key, columns, options.key_prefix, context)
        keys = [field.key for field in context.metadata_columns]
        self._timestamp = len(columns) + keys.index("timestamp") if "timestamp" in keys else None
        self._headers = len(columns) + keys.index("headers") if "headers" in keys else None
        self._options = options
        self._subtask_index = context.subtask_index
        self._partitioner: Partitioner | None = None
        self._bytes_max = int(options.client.get("message.max.bytes", MESSAGE_BYTES_MAX_DEFAULT))
        self.schema = record_schema(
            keys=self._key is not None,
            timestamps=self._timestamp is not None,
            headers=self._headers is not None,
        )

    def use_partitions(self, count: int) -> None:
        if self._partitioner is None:
            self._partitioner = Partitioner(self._options.partitioner, self._subtask_index, count)
        # A topic never loses partitions; a smaller answer comes from a broker that is behind.
        self._partitioner.partition_count = max(count, self._partitioner.partition_count)

    def records(self, batch: pa.RecordBatch, row_kinds: Array | None) -> pa.RecordBatch:
        """One record per row; in an upsert table one per key, that of its last row."""
        if (
            self._options.changelog is ChangelogMode.INSERT_ONLY
            and row_kinds is not None
            and row_kinds.to_numpy().any()
        ):
            raise ConnectorError(
                f"table {self._options.identifier} takes inserted rows only, not updates or deletions",
                domain=ErrorDomain.INTERNAL,
                retry=False,
            )
        assert self._partitioner is not None
        keys: Array | None = None
        if self._key is not None:
            keys = self._key.encode(_columns(batch, self._key_columns))
        hashes = None
        if self._options.upsert:
            assert keys is not None
            if keys.null_count == 0:
                hashes = murmur2(keys)
            last = last_per_key(keys, hashes)
            if last is not None:
                batch, keys = batch.take(last), keys.take(last)
                hashes = None if hashes is None else hashes[last]
                row_kinds = None if row_kinds is None else row_kinds.take(last)
        count = batch.num_rows
        partitions = self._partitioner.partitions(keys, count, hashes)
        values = self._values(batch, row_kinds)
        self._check_sizes(values, keys)
        absent = pa.nulls(count)
        arrays: list[Array] = [
            pa.array(partitions),
            absent if keys is None else keys.cast(pa.binary()),
            values.cast(pa.binary()),
            absent if self._timestamp is None else _milliseconds(batch.column(self._timestamp)),
            absent if self._headers is None else batch.column(self._headers).cast(self.schema.field(4).type),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, batch: pa.RecordBatch, row_kinds: Array | None) -> Array:
        columns = _columns(batch, self._value_columns)
        if not self._options.upsert:
            return self._value.encode(columns, row_kinds)  # type: ignore[arg-type]
        values: Array = self._value.encode(columns)
        removed = removals(row_kinds, batch.num_rows)
        if not removed.any():
            return values
        written: Array = pc.if_else(pa.array(removed), pa.scalar(None, values.type), values)
        return written

    def _check_sizes(self, values: Array, keys: Array | None) -> None:
        """A record the client would refuse must fail now: once it is part of a checkpoint it blocks the sink."""
        sizes = _lengths(values)
        if keys is not None:
            sizes = sizes + _lengths(keys)
        largest = int(sizes.max())
        if largest > self._bytes_max - 512:  # the batch around it has headers, too
            raise ConnectorError(
                f"a record of {largest} bytes for topic {self._options.topic} is larger than the "
                f"{self._bytes_max} bytes a request may have",
                domain=ErrorDomain.USER,
                retry=False,
                hint="Raise 'properties.max.request.size' (and max.message.bytes of the topic).",
            )


def _encoder(form: FormatOptions, columns: tuple[Field, ...], prefix: str, context: SinkContext) -> Encoder:
    fields = tuple(
        Field(columns[i].name.removeprefix(prefix), columns[i].type, columns[i].description) for i in form.columns
    )
    return registry.format(form.name).encoder(fields, form.options, context.local_time_zone)


def _columns(batch: pa.RecordBatch, indexes: list[int]) -> pa.RecordBatch:
    arrays = [batch.column(i) for i in indexes]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(indexes))])


def _lengths(values: Array) -> Int64Array:
    offsets, _ = text_buffers(values)
    return (offsets[1:] - offsets[:-1]).astype(np.int64)


def _milliseconds(column: Array) -> Array:
    return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def _current_partition_count(options: SinkOptions) -> int:
    try:
        return partition_count(admin_client(options.client), options.topic)
    except KafkaException as error:
        raise failed(kafka_error(error), f"looking for topic {options.topic}") from error


class ExactlyOnceWriter:
    """SinkWriter of the exactly-once guarantee. The lock guards what task and commit thread share."""

    def __init__(self, options: SinkOptions, columns: tuple[Field, ...], context: SinkContext) -> None:
        self._options = options
        self._context = context
        self._builder = RecordBuilder(options, columns, context)
        self._buffer: UpsertBuffer | None = None
        if options.buffer_rows_max:
            self._buffer = UpsertBuffer(options.buffer_rows_max, options.buffer_interval_ms)
        self._transactions: OwnerTransactions | None = None
        self._lock = threading.Lock()
        self._epochs = PendingEpochs()
        self._sequence = 0
        self._partitions_seen = 0
        self._partitions_asked_at = time.monotonic()
        self._committed_records = 0
        self._file = self._new_file()

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        context = self._context
        recovery = SinkRecovery(context.subtask_index, owners, context.restored_checkpoint_id, context.incarnation)
        self._builder.use_partitions(_current_partition_count(self._options))
        opened = {owner: self._open(owner) for owner in recovery.owners}
        try:
            self._recover(recovery, opened)
        except BaseException:
            for transactions in opened.values():
                transactions.close()
            raise
        self._transactions = opened.pop(context.subtask_index)
        for transactions in opened.values():
            transactions.close()
        self._epochs = PendingEpochs(recovery.epochs)
        return recovery.found

    def _recover(self, recovery: SinkRecovery, opened: dict[int, OwnerTransactions]) -> None:
        fence_all(list(opened.values()))
        # Read only now: a marker read before the fence may be overtaken by a commit of an older attempt.
        wait_s = self._options.transaction_timeout_ms / 1000 + REQUEST_TIMEOUT_S
        markers = read_markers(self._options.client, self._context.namespace, wait_s, self._context.check)
        for step in recovery.resolve(markers):
            if isinstance(step, Publish):
                opened[step.owner].publish(step.epochs, self._context.files, verify=True)
            else:
                opened[step.owner].write_marker(step.marker)

    def _open(self, owner: int) -> OwnerTransactions:
        options = self._options
        return OwnerTransactions(
            options.client, self._context.namespace, owner, options.topic, options.transaction_timeout_ms
        )

    def write(self, batch: pa.RecordBatch, row_kinds: Array | None) -> None:
        if self._buffer is not None and batch.num_rows:
            due = self._buffer.add(batch, row_kinds)
            if due is None:
                return
            batch, row_kinds = due
        self._append(batch, row_kinds)

    def _append(self, batch: pa.RecordBatch, row_kinds: Array | None) -> None:
        if batch.num_rows == 0:
            return
        self._file.write(self._builder.records(batch, row_kinds))
        size = self._file.byte_size
        if size > self._options.hard_limit_bytes:
            raise ConnectorError(
                f"table {self._options.identifier}: {size} bytes were written since the last checkpoint, more than "
                f"'sink.write-ahead.hard-limit' of {self._options.hard_limit_bytes}",
                domain=ErrorDomain.EXTERNAL,
                retry=True,
                hint="Checkpoints do not complete, or too seldom: lower execution.checkpointing.interval, look at "
                "failed checkpoints, or raise the limit.",
            )

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        held = self._buffer.drain() if self._buffer is not None else None
        if held is not None:
            self._append(*held)
        sealed = self._file.seal(self._options.topic)
        if sealed is not None:
            committable = Committable(
                owner=self._context.subtask_index,
                checkpoint_id=checkpoint_id,
                incarnation=self._context.incarnation,
                data=sealed.encode(),
                record_count=self._file.record_count,
                byte_size=self._file.byte_size,
                file=sealed.file,
            )
            with self._lock:
                self._epochs.seal(committable)
            self._file = self._new_file()
        with self._lock:
            if self._partitions_seen:
                # Between epochs only: within one a key keeps its partition.
                self._builder.use_partitions(self._partitions_seen)
            return self._epochs.pending

    def commit(self, checkpoint_id: int) -> None:
        with self._lock:
            due = self._epochs.due(checkpoint_id)
        if not due:
            return
        assert self._transactions is not None
        self._transactions.publish(due, self._context.files, verify=False)
        with self._lock:
            unneeded = self._epochs.committed(due)
            self._committed_records += sum(each.committable.record_count for each in due)
        with contextlib.suppress(OSError):  # The next generation sweeps what nobody needs.
            for old in unneeded:
                self._context.files.delete(old.file)
        self._refresh_partitions()

    def _refresh_partitions(self) -> None:
        if time.monotonic() - self._partitions_asked_at < PARTITION_REFRESH_S:
            return
        self._partitions_asked_at = time.monotonic()
        count = _current_partition_count(self._options)
        with self._lock:
            self._partitions_seen = count

    def checkpoint_wanted(self) -> bool:
        return self._file.byte_size > self._options.soft_limit_bytes

    def gauges(self) -> Mapping[str, float]:
        with self._lock:
            pending = self._epochs.pending
            return {
                "pendingEpochs": float(len(pending)),
                "writeAheadBytes": float(self._file.byte_size + sum(each.byte_size for each in pending)),
                "numRecordsCommitted": float(self._committed_records),
            }

    def close(self) -> None:
        self._file.discard()
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None

    def _new_file(self) -> EpochFileWriter:
        context = self._context
        name = f"{context.namespace}-{context.subtask_index}-{context.attempt}-{self._sequence}.arrow"
        self._sequence += 1
        return EpochFileWriter(context.files, name, self._builder.schema)


class DirectWriter:
    """SinkWriter of at-least-once and of none: records go to the broker as they come."""

    def __init__(self, options: SinkOptions, columns: tuple[Field, ...], context: SinkContext) -> None:
        self._options = options
        self._builder = RecordBuilder(options, columns, context)
        self._failure: KafkaError | None = None
        self._wait_for_all = options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        self._sender: RoundSender | None = None
        client = options.client
        if self._wait_for_all and client.get("acks", "all").strip() in ("all", "-1"):
            # Idempotent while the broker's acknowledgements allow it: retries neither reorder nor double within a run.
            timeout_ms = _number(client, "message.timeout.ms", "delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
            round_ms = linger_ms(int(timeout_ms) or DELIVERY_TIMEOUT_MS)
            self._producer = producer(client, {"enable.idempotence": True, "linger.ms": round_ms})
            linger = _number(client, "linger.ms", "queue.buffering.max.ms", LINGER_MS)
            self._sender = RoundSender(self._producer, options.topic, client, linger, context.check)
        else:
            self._producer = producer(client, {"enable.idempotence": False})

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        self._builder.use_partitions(_current_partition_count(self._options))
        return {}

    def write(self, batch: pa.RecordBatch, row_kinds: Array | None) -> None:
        records = self._builder.records(batch, row_kinds) if batch.num_rows else None
        if self._sender is not None:
            if records is not None:
                self._sender.put(records)
            return
        if records is not None:
            try:
                send_records(self._producer, self._options.topic, records, self._delivered)
            except KafkaException as error:
                raise failed(kafka_error(error), f"producing to topic {self._options.topic}") from error
        self._producer.poll(0)
        self._raise_failure()

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        if self._sender is not None:
            self._sender.flush()
        elif self._wait_for_all:
            # Ends: each record is delivered or fails after the client's delivery time-out.
            while self._producer.flush(FLUSH_STEP_S):
                self._raise_failure()
        self._raise_failure()
        return ()

    def commit(self, checkpoint_id: int) -> None:
        """Nothing is held back, so nothing is left to do."""

    def checkpoint_wanted(self) -> bool:
        return False

    def gauges(self) -> Mapping[str, float]:
        sender = self._sender  # Another thread asks.
        if sender is not None:
            return {"recordsInFlight": float(sender.record_count)}
        return {"recordsInFlight": float(len(self._producer)) if hasattr(self, "_producer") else 0.0}

    def close(self) -> None:
        """Records of at-least-once that are still on their way belong to no checkpoint and will be sent again."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if hasattr(self, "_producer"):
            if not self._wait_for_all:
                self._producer.flush(REQUEST_TIMEOUT_S)
            self._producer.purge()
            del self._producer  # ends its threads and connections; nothing else does

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise failed(self._failure, f"delivering records to topic {self._options.topic}")


def _number(client: Mapping[str, str], name: str, other_name: str, default: float) -> float:
    """A setting of the client that has two names."""
    found = name if name in client else other_name
    try:
        number = float(client.get(found, default))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"'{PREFIX}{found}' must be a number, not '{client[found]}'", option=PREFIX + found)
    return number
