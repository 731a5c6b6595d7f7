"""Reads partitions by assignment: batches of messages become one buffer, one decode, one record batch per split.

Nothing here is done per message in Python beyond the client's own message objects: values, offsets and partitions
are pulled out column by column, and everything after that is arrays. Positions are offsets, never counts: control
records, aborted transactions and compaction leave gaps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors import registry
from connectors.api import (
    Decoder,
    Int64Array,
    Messages,
    MetadataField,
    ReaderContext,
    SplitBatch,
    SplitState,
)
from connectors.arrow import rows_without_columns
from connectors.errors import ConnectorError, ErrorDomain, RecordError
from connectors.kafka.client import Settings, consumer, failed, kafka_error
from connectors.kafka.metadata import metadata_array
from connectors.kafka.options import FORMAT_METADATA, FormatOptions, SourceOptions
from connectors.kafka.splits import PartitionSplit, next_offset, partition_split, position
from planner.ir.types import ChangelogMode, Field, to_arrow

# Larger pieces are slower: thousands of message objects no longer fit the processor's cache.
PIECE_MESSAGES_MAX = 1_000

RECORDS_SKIPPED = "numRecordsSkipped"
"""Counter: records the format left out because it ignores parse errors."""
TOMBSTONES_SKIPPED = "numTombstonesSkipped"
"""Counter: records without a value."""

UPDATE_AFTER_KIND, DELETE_KIND = 2, 3

_FOREVER = np.iinfo(np.int64).max


class _Slot:
    """A split while it is read. `offset` is the next one to read."""

    def __init__(self, state: SplitState) -> None:
        self.state = state
        self.split: PartitionSplit = partition_split(state.split)
        self.offset = next_offset(state)
        self.end = _FOREVER if self.split.end is None else self.split.end
        self.done = state.done
        self.counters = dict(state.counters)

    def count(self, counter: str, amount: int) -> None:
        if amount:
            self.counters[counter] = self.counters.get(counter, 0) + amount

    def snapshot(self) -> SplitState:
        return SplitState(
            self.state.split, position(self.offset), self.done, dict(self.counters), self.state.watermark_ms
        )


class _Run(NamedTuple):
    """The messages of one poll that become rows, sorted by slot (stable): row i of the arrays and `values` is
    `messages[order[i]]`; a value is None in an upsert table only. The messages themselves stay where they are: most
    columns never look at them again."""

    messages: list[Message]
    order: npt.NDArray[np.int64]
    values: list[bytes | None]
    offsets: Int64Array
    slots: npt.NDArray[np.int64]


class _Values(NamedTuple):
    """Rows of a run's values (None: no column is asked for), each row's message (None: row i is message i), kinds."""

    batch: pa.RecordBatch | None
    kept: Int64Array | None
    kinds: npt.NDArray[np.int8] | None


class _Decoded(NamedTuple):
    """As _Values, with all columns."""

    batch: pa.RecordBatch
    kept: Int64Array | None
    kinds: npt.NDArray[np.int8] | None


class PartitionReader:
    """The SourceReader of a Kafka table."""

    def __init__(self, options: SourceOptions, columns: tuple[Field, ...], context: ReaderContext) -> None:
        self._options = options
        self._context = context
        self._rows = _Rows(options, columns, context)
        self._consumer: Consumer | None = None
        self._slots: list[_Slot] = []
        self._index: dict[tuple[str, int], int] = {}
        self._topics: set[str] = set()
        self._just_done: list[int] = []
        self._ends_reached: list[Message] = []
        self._fatal: KafkaError | None = None
        self._bytes_per_message = 200.0
        self._event_time_lag_ms = 0.0

    # ---- the protocol

    def add_splits(self, splits: list[SplitState]) -> None:
        fresh = []
        for state in splits:
            slot = _Slot(state)
            number = len(self._slots)
            self._slots.append(slot)
            if slot.done:
                continue
            if slot.offset >= slot.end:
                self._finish(number)
                continue
            self._index[(slot.split.topic, slot.split.partition)] = number
            self._topics.add(slot.split.topic)
            fresh.append(TopicPartition(slot.split.topic, slot.split.partition, slot.offset))
        if not fresh:
            return
        try:
            if self._consumer is None:
                self._consumer = self._new_consumer()
                self._consumer.assign(fresh)
            else:
                self._consumer.incremental_assign(fresh)
        except KafkaException as error:
            raise failed(kafka_error(error), f"assigning partitions of {self._options.identifier}") from error

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        messages = self._fetch(timeout_ms) if self._index else []
        if self._fatal is not None:
            raise failed(self._fatal, f"reading {self._options.identifier}")
        batches = self._batches(self._run(messages)) if messages else {}
        self._pass_ends()
        if self._just_done:
            for number in self._just_done:
                slot = self._slots[number]
                last = batches.get(number) or SplitBatch(slot.state.split.id, self._rows.empty())
                batches[number] = msgspec.structs.replace(last, done=True)
            self._just_done.clear()
        return list(batches.values())

    def snapshot(self) -> list[SplitState]:
        return [slot.snapshot() for slot in self._slots]

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        options = self._options
        if self._consumer is None or options.group_id is None or not options.commit_group_offsets:
            return
        offsets = []
        for state in states:
            split = partition_split(state.split)
            offsets.append(TopicPartition(split.topic, split.partition, next_offset(state)))
        if offsets:
            # Published for lag tools only, so nobody waits for the answer: the checkpoint owns the positions.
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def gauges(self) -> Mapping[str, float]:
        return {"pendingRecords": self._pending(), "currentFetchEventTimeLag": self._event_time_lag_ms}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # ---- fetching

    def _new_consumer(self) -> Consumer:
        options = self._options

        def on_error(error: KafkaError) -> None:
            if error.fatal() or error.code() in _ENDING:
                self._fatal = error

        group_id = options.group_id or f"headrace-{options.identifier}"
        own: Settings = {"group.id": group_id, "isolation.level": options.isolation_level}
        return consumer(options.client, own, on_error)

    def _fetch(self, timeout_ms: int) -> list[Message]:
        """What is there, up to the context's limits; waits only when there is nothing at all."""
        reader, context = self._consumer, self._context
        assert reader is not None
        fetched: list[Message] = []
        rows_left, bytes_left = context.rows_max, float(context.bytes_max)
        while rows_left > 0 and bytes_left > 0:
            piece = int(min(PIECE_MESSAGES_MAX, rows_left, max(1.0, bytes_left / self._bytes_per_message)))
            got = reader.consume(piece, 0)
            if not got and not fetched and timeout_ms > 0:
                first = reader.poll(timeout_ms / 1000)
                if first is not None:
                    got = [first, *reader.consume(piece - 1, 0)] if piece > 1 else [first]
            errors = list(map(Message.error, got))
            # Never compare a KafkaError with None by value: the client's comparison raises from C.
            good = self._without_events(got, errors) if any(errors) else got
            if good:
                size = sum(map(len, good))
                self._bytes_per_message = max(1.0, size / len(good))
                bytes_left -= size
                fetched += good
            rows_left -= len(got)
            if len(got) < piece:
                break
        return fetched

    def _without_events(self, messages: Sequence[Message], errors: Sequence[KafkaError | None]) -> list[Message]:
        """Handles ends of partitions and errors among the messages; returns the records."""
        good = []
        for message, error in zip(messages, errors, strict=True):
            if error is None:
                good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends_reached.append(message)
            elif not (error.retriable() or error.code() in _PASSING):
                raise self._read_error(message, error)
        return good

    def _pass_ends(self) -> None:
        """Moves positions to the ends of partitions met by this poll, after its records were taken: whatever lies
        between the last record and the end (control records, aborted ones) is behind us."""
        for message in self._ends_reached:
            number = self._index.get(_place(message))
            offset = message.offset()
            if number is None or offset is None:
                continue
            slot = self._slots[number]
            slot.offset = max(slot.offset, min(offset, slot.end))
            if slot.offset >= slot.end:
                self._finish(number)
        self._ends_reached.clear()

    def _read_error(self, message: Message, error: KafkaError) -> ConnectorError:
        topic, partition = _place(message)
        where = f"reading topic {topic}, partition {partition}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            number = self._index.get((topic, partition))
            at = "" if number is None else f" {self._slots[number].offset}"
            return ConnectorError(
                f"{where}: offset{at} is not in the log any more (or not yet): {error.str()}",
                domain=ErrorDomain.EXTERNAL,
                retry=False,
                hint="Records were deleted before they were read (retention, or the topic was made anew). "
                "Start the job from offsets that exist.",
            )
        return failed(error, where)

    def _finish(self, number: int) -> None:
        slot = self._slots[number]
        if slot.done:
            return
        slot.done = True
        self._just_done.append(number)
        if self._index.pop((slot.split.topic, slot.split.partition), None) is not None:
            assert self._consumer is not None
            self._consumer.incremental_unassign([TopicPartition(slot.split.topic, slot.split.partition)])

    def _pending(self) -> float:
        reader = self._consumer
        if reader is None:
            return 0.0
        pending = 0
        for (topic, partition), number in list(self._index.items()):
            try:
                _, high = reader.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
            except (KafkaException, RuntimeError):
                continue  # Not fetched yet, or the reader was closed meanwhile.
            slot = self._slots[number]
            pending += max(0, min(high, slot.end) - slot.offset)
        return float(pending)

    # ---- from messages to rows

    def _run(self, messages: list[Message]) -> _Run:
        """Sorts by split, moves positions, and leaves out tombstones and what lies beyond bounded ends."""
        count = len(messages)
        slots = self._slot_numbers(messages)
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        ends = np.array([-1, *(slot.end for slot in self._slots)], np.int64)
        wanted = offsets < ends[slots + 1]
        for number in np.unique(slots[~wanted]) if not wanted.all() else ():
            if number >= 0:
                self._slots[number].offset = self._slots[number].end
                self._finish(int(number))
        values: list[bytes | None] = list(map(Message.value, messages))
        null_count = 0 if self._options.upsert else values.count(None)
        if null_count:
            nulls = np.fromiter((value is None for value in values), np.bool_, count) & wanted
            for number, amount in enumerate(np.bincount(slots[nulls], minlength=len(self._slots))):
                self._slots[number].count(TOMBSTONES_SKIPPED, int(amount))
        for number in np.unique(slots[wanted]):
            slot = self._slots[number]
            slot.offset = max(slot.offset, int(offsets[wanted & (slots == number)][-1]) + 1)
            if slot.offset >= slot.end:
                self._finish(int(number))
        if null_count:
            wanted &= ~np.fromiter((value is None for value in values), np.bool_, count)
        order = np.flatnonzero(wanted)
        if count > 1 and (np.diff(slots) < 0).any():
            order = order[np.argsort(slots[order], kind="stable")]
        if len(order) < count or (np.diff(order) < 0).any():
            values = [values[i] for i in order.tolist()]
            offsets, slots = offsets[order], slots[order]
        return _Run(messages, order, values, offsets, slots)

    def _slot_numbers(self, messages: list[Message]) -> npt.NDArray[np.int64]:
        """Per message its slot, -1 for a partition that is no longer read."""
        partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        if len(self._topics) == 1:
            (topic,) = self._topics
            table = np.full(int(partitions.max()) + 1, -1, np.int64)
            for number in range(len(table)):
                table[number] = self._index.get((topic, number), -1)
            return table[partitions]
        return np.fromiter((self._index.get(_place(m), -1) for m in messages), np.int64, len(messages))

    def _batches(self, run: _Run) -> dict[int, SplitBatch]:
        count = len(run.order)
        if count == 0:
            return {}
        stamp = run.messages[-1].timestamp()[1]
        self._event_time_lag_ms = max(0.0, time.time() * 1000 - stamp)
        batch, kept, kinds = self._rows.rows(run)
        row_kinds: Any = None if kinds is None else pa.array(kinds)
        starts = np.flatnonzero(np.diff(run.slots, prepend=-1))
        bounds = np.append(starts, count)
        row_bounds = bounds if kept is None else np.searchsorted(kept, bounds)
        decoded_bounds = bounds if kept is None else np.searchsorted(np.unique(kept), bounds)
        batches = {}
        for i, number in enumerate(run.slots[starts]):
            slot = self._slots[number]
            first, row_count = int(row_bounds[i]), int(row_bounds[i + 1] - row_bounds[i])
            decoded = int(decoded_bounds[i + 1] - decoded_bounds[i])
            slot.count(RECORDS_SKIPPED, int(bounds[i + 1] - bounds[i]) - decoded)
            if row_count:
                rows = batch.slice(first, row_count)
                changes = None if row_kinds is None else row_kinds.slice(first, row_count)
                batches[int(number)] = SplitBatch(slot.state.split.id, rows, row_kinds=changes)
        return batches


# Conditions the client repairs by itself; they may show up as events of a partition.
# Told by the client's callback only: nothing would ever come from these partitions, and no message says so.
_ENDING = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
_PASSING = frozenset({
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError._MSG_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
})  # fmt: skip


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition


class _Rows:
    """Decodes messages into the reader's columns: value columns, key columns, metadata columns."""

    def __init__(self, options: SourceOptions, columns: tuple[Field, ...], context: ReaderContext) -> None:
        self._options = options
        self._context = context
        scan = context.scan_columns
        # A column that is in both is read from the value; in an upsert table from the key, which a deletion has, too.
        in_value = set(options.value.columns)
        if options.upsert and options.key is not None:
            in_value -= set(options.key.columns)
        value_columns = [i for i in scan if i in in_value]
        key_columns = [i for i in scan if i not in in_value]
        of_format = [f for f in context.metadata_columns if f.key.startswith(FORMAT_METADATA)]
        # With no value column asked for, one is decoded all the same: a malformed record must not pass unseen.
        probed = value_columns or list(options.value.columns[:1])
        self._value: Decoder | None = None
        if probed or of_format or self._changes_by_format:
            self._value = _decoder(options.value, columns, probed, "", context, _without_prefix(of_format))
        self._key: Decoder | None = None
        if options.key is not None and key_columns:
            self._key = _decoder(options.key, columns, key_columns, options.key_prefix, context)
        self._place_of = {index: (True, n) for n, index in enumerate(value_columns)}
        self._place_of |= {index: (False, n) for n, index in enumerate(key_columns)}
        self._format_metadata = {field.name: len(probed) + n for n, field in enumerate(of_format)}
        types = [to_arrow(columns[i].type) for i in scan]
        types += [to_arrow(field.type) for field in context.metadata_columns]
        self._schema = pa.schema([pa.field(f"c{i}", t) for i, t in enumerate(types)])

    @property
    def _changes_by_format(self) -> bool:
        return self._options.changelog is ChangelogMode.RETRACT

    def empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._schema], schema=self._schema)

    def rows(self, run: _Run) -> _Decoded:
        value, kept, kinds = self._upserts(run) if self._options.upsert else self._values(run, None)
        key: pa.RecordBatch | None = None
        if self._key is not None:
            key, key_rows = self._keys(run)
            if kept is not None:
                key_rows = key_rows[kept]
            if (key_rows == SKIPPED).any():
                good = np.flatnonzero(key_rows != SKIPPED)
                kept = good if kept is None else kept[good]
                key_rows = key_rows[good]
                value = None if value is None else value.take(good)
                kinds = None if kinds is None else kinds[good]
            key = _taken(key, key_rows)
        count = len(run.order) if kept is None else len(kept)
        arrays = self._columns(value, key) + self._metadata(run, kept, value)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else rows_without_columns(count)
        return _Decoded(batch, kept, kinds)

    def _columns(self, value: pa.RecordBatch | None, key: pa.RecordBatch | None) -> list[pa.Array[Any]]:
        arrays: list[pa.Array[Any]] = []
        for index in self._context.scan_columns:
            of_value, column = self._place_of[index]
            batch = value if of_value else key
            assert batch is not None
            arrays.append(batch.column(column))
        return arrays

    def _metadata(self, run: _Run, kept: Int64Array | None, value: pa.RecordBatch | None) -> list[pa.Array[Any]]:
        offsets, messages = run.offsets, self._messages(run, kept)
        if kept is not None:
            offsets = offsets[kept]
        arrays = []
        for field in self._context.metadata_columns:
            column = self._format_metadata.get(field.name)
            if column is None:
                arrays.append(metadata_array(field, messages, offsets, self._context.local_time_zone))
            else:
                assert value is not None
                arrays.append(value.column(column))
        return arrays

    def _messages(self, run: _Run, kept: Int64Array | None) -> list[Message]:
        """The rows' messages, if a metadata column needs more of them than their offsets."""
        fields = self._context.metadata_columns
        if all(field.key == "offset" or field.name in self._format_metadata for field in fields):
            return []
        order = run.order if kept is None else run.order[kept]
        return [run.messages[i] for i in order.tolist()]

    def _values(self, run: _Run, chosen: Int64Array | None) -> _Values:
        """Rows of the messages' values, or of those of the chosen messages; `kept` counts in all messages."""
        if self._value is None:
            return _Values(None, chosen, None)
        values, order = run.values, run.order
        if chosen is not None:
            values, order = [run.values[i] for i in chosen.tolist()], run.order[chosen]
        decoded = self._value.decode(_joined(values, _describer(run, order, "value")))  # type: ignore[arg-type]
        kept = decoded.kept
        if chosen is not None:
            kept = chosen if kept is None else chosen[kept]
        return _Values(decoded.batch, kept, None if decoded.row_kinds is None else decoded.row_kinds.to_numpy())

    def _upserts(self, run: _Run) -> _Values:
        """A value is an upsert, a tombstone a deletion that has its key columns only."""
        deletes = np.fromiter((value is None for value in run.values), np.bool_, len(run.values))
        if not deletes.any():
            value, kept, _ = self._values(run, None)
            return _Values(value, kept, _upsert_kinds(deletes, kept))
        value, kept, _ = self._values(run, np.flatnonzero(~deletes))
        if value is None:
            return _Values(None, None, _upsert_kinds(deletes, None))
        assert kept is not None
        row_of = np.full(len(deletes), ABSENT, np.int64)
        row_of[kept] = np.arange(len(kept))
        every = np.flatnonzero(deletes | (row_of != ABSENT))
        return _Values(_taken(value, row_of[every]), every, _upsert_kinds(deletes, every))

    def _keys(self, run: _Run) -> tuple[pa.RecordBatch, Int64Array]:
        """Rows of the keys, and per message which of them is its own: ABSENT without a key, SKIPPED when it could
        not be decoded and the format ignores that."""
        assert self._key is not None
        keys = [run.messages[i].key() for i in run.order.tolist()]
        present = np.flatnonzero([key is not None for key in keys])
        if self._options.upsert and len(present) < len(keys):
            first = int(np.flatnonzero([key is None for key in keys])[0])
            raise RecordError(
                f"{_describer(run, run.order, 'value')(first)}: the record has no key",
                hint="The key of an upsert-kafka table says which row a record updates or deletes. Read a topic "
                "without keys with 'connector' = 'kafka'.",
            )
        decoded = self._key.decode(
            _joined([k for k in keys if k is not None], _describer(run, run.order[present], "key"))
        )
        row_of = np.full(len(keys), ABSENT, np.int64)
        row_of[present] = SKIPPED
        row_of[present if decoded.kept is None else present[decoded.kept]] = np.arange(decoded.batch.num_rows)
        return decoded.batch, row_of


ABSENT, SKIPPED = -1, -2


def _taken(batch: pa.RecordBatch, rows: Int64Array) -> pa.RecordBatch:
    """The rows in this order; NULLs for a negative one."""
    if len(rows) == batch.num_rows and bool((rows == np.arange(len(rows))).all()):
        return batch
    return batch.take(pa.array(rows, pa.int64(), mask=rows < 0))


def _upsert_kinds(deletes: npt.NDArray[np.bool_], kept: Int64Array | None) -> npt.NDArray[np.int8]:
    return np.where(deletes if kept is None else deletes[kept], DELETE_KIND, UPDATE_AFTER_KIND).astype(np.int8)


def _without_prefix(fields: list[MetadataField]) -> tuple[MetadataField, ...]:
    return tuple(MetadataField(f.name, f.key.removeprefix(FORMAT_METADATA), f.type) for f in fields)


def _decoder(
    form: FormatOptions,
    columns: tuple[Field, ...],
    indexes: Iterable[int],
    prefix: str,
    context: ReaderContext,
    metadata: tuple[MetadataField, ...] = (),
) -> Decoder:
    fields = tuple(
        Field(columns[i].name.removeprefix(prefix), columns[i].type, columns[i].description) for i in indexes
    )
    return registry.format(form.name).decoder(fields, form.options, context.local_time_zone, metadata)


def _joined(values: list[bytes], describe: Callable[[int], str]) -> Messages:
    """One buffer, each value followed by a newline."""
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1, out=offsets[1:])
    data = b"\n".join(values) + b"\n" if values else b""
    return Messages(memoryview(data), offsets, describe)


def _describer(run: _Run, order: npt.NDArray[np.int64], part: str) -> Callable[[int], str]:
    suffix = "" if part == "value" else f" ({part})"

    def describe(index: int) -> str:
        message = run.messages[int(order[index])]
        topic, partition = _place(message)
        return f"topic {topic}, partition {partition}, offset {message.offset()}{suffix}"

    return describe
