"""Reads partitions by assignment: the records of a poll become one buffer, one decode, one record batch per split.

Everything here is done by columns (`records`). Positions are offsets, never counts: control records, aborted
transactions and compaction leave gaps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.api import Int64Array, ReaderContext, SplitBatch, SplitState
from connectors.errors import ConnectorError, ErrorDomain
from connectors.kafka.client import Settings, failed, kafka_error
from connectors.kafka.fetch import End, Fetched, Fetcher, PartitionError, fetcher
from connectors.kafka.options import SourceOptions
from connectors.kafka.records import OBJECTS_ONLY, Records
from connectors.kafka.rows import RowDecoder, Run
from connectors.kafka.splits import PartitionSplit, next_offset, partition_split, position
from planner.ir.types import Field

RECORDS_SKIPPED = "numRecordsSkipped"
"""Counter: records the format left out because it ignores parse errors."""
TOMBSTONES_SKIPPED = "numTombstonesSkipped"
"""Counter: records without a value."""

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


class PartitionReader:
    """The SourceReader of a Kafka table."""

    def __init__(self, options: SourceOptions, columns: tuple[Field, ...], context: ReaderContext) -> None:
        self._options = options
        self._context = context
        self._rows = RowDecoder(options, columns, context)
        self._fetcher: Fetcher | None = None
        self._slots: list[_Slot] = []
        self._index: dict[tuple[str, int], int] = {}
        self._topics: set[str] = set()
        self._just_done: list[int] = []
        self._fatal: KafkaError | None = None
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
            if self._fetcher is None:
                self._fetcher = self._new_fetcher()
            self._fetcher.assign(fresh)
        except KafkaException as error:
            raise failed(kafka_error(error), f"assigning partitions of {self._options.identifier}") from error

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        batches: dict[int, SplitBatch] = {}
        if self._index:
            records, ends = self._fetch(timeout_ms)
            try:
                if self._fatal is not None:
                    raise failed(self._fatal, f"reading {self._options.identifier}")
                if records is not None:
                    batches = self._batches(self._run(records))
            finally:
                if records is not None:
                    records.close()
            self._pass_ends(ends)
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
        if self._fetcher is None or options.group_id is None or not options.commit_group_offsets:
            return
        offsets = []
        for state in states:
            split = partition_split(state.split)
            offsets.append(TopicPartition(split.topic, split.partition, next_offset(state)))
        if offsets:
            # Published for lag tools only, so nobody waits for the answer: the checkpoint owns the positions.
            self._fetcher.commit(offsets)

    def gauges(self) -> Mapping[str, float]:
        return {"pendingRecords": self._pending(), "currentFetchEventTimeLag": self._event_time_lag_ms}

    def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    # ---- fetching

    def _new_fetcher(self) -> Fetcher:
        options = self._options

        def on_error(error: KafkaError) -> None:
            if error.fatal() or error.code() in _ENDING:
                self._fatal = error

        group_id = options.group_id or f"headrace-{options.identifier}"
        own: Settings = {"group.id": group_id, "isolation.level": options.isolation_level}
        objects = any(field.key in OBJECTS_ONLY for field in self._context.metadata_columns)
        return fetcher(options.client, own, on_error, objects=objects)

    def _fetch(self, timeout_ms: int) -> Fetched:
        assert self._fetcher is not None
        try:
            return self._fetcher.fetch(self._context.rows_max, self._context.bytes_max, timeout_ms)
        except PartitionError as problem:
            raise self._read_error(problem.topic, problem.partition, problem.error) from problem

    def _pass_ends(self, ends: Sequence[End]) -> None:
        """Moves positions to the ends of partitions met by this poll, after its records were taken: whatever lies
        between the last record and the end (control records, aborted ones) is behind us."""
        for topic, partition, offset in ends:
            number = self._index.get((topic, partition))
            if number is None:
                continue
            slot = self._slots[number]
            slot.offset = max(slot.offset, min(offset, slot.end))
            if slot.offset >= slot.end:
                self._finish(number)

    def _read_error(self, topic: str, partition: int, error: KafkaError) -> ConnectorError:
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
            assert self._fetcher is not None
            self._fetcher.unassign([TopicPartition(slot.split.topic, slot.split.partition)])

    def _pending(self) -> float:
        fetching = self._fetcher
        if fetching is None:
            return 0.0
        pending = 0
        for (topic, partition), number in list(self._index.items()):
            high = fetching.high_watermark(topic, partition)
            if high is not None:
                slot = self._slots[number]
                pending += max(0, min(high, slot.end) - slot.offset)
        return float(pending)

    # ---- from records to rows

    def _run(self, records: Records) -> Run:
        """Sorts by split, moves positions, and leaves out tombstones and what lies beyond bounded ends."""
        slots, offsets = self._slot_numbers(records), records.offsets
        ends = np.array([-1, *[slot.end for slot in self._slots]], np.int64)
        wanted = offsets < ends[slots + 1]
        for number in np.unique(slots[~wanted]) if not wanted.all() else ():
            if number >= 0:
                self._slots[number].offset = self._slots[number].end
                self._finish(int(number))
        for number in np.bincount(slots[wanted], minlength=len(self._slots)).nonzero()[0].tolist():
            slot = self._slots[number]
            slot.offset = max(slot.offset, int(offsets[wanted & (slots == number)][-1]) + 1)
            if slot.offset >= slot.end:
                self._finish(number)
        absent = records.values.absent
        if absent.any() and not self._rows.reads_null:
            for number, amount in enumerate(np.bincount(slots[absent & wanted], minlength=len(self._slots)).tolist()):
                self._slots[number].count(TOMBSTONES_SKIPPED, amount)
            wanted = wanted & ~absent
        order = wanted.nonzero()[0]
        slots = slots[order]
        if (slots[1:] < slots[:-1]).any():
            sorting = slots.argsort(kind="stable")
            order, slots = order[sorting], slots[sorting]
        return Run(records, order, offsets[order], slots)

    def _slot_numbers(self, records: Records) -> npt.NDArray[np.int64]:
        """Per record its slot, -1 for a partition that is no longer read."""
        if len(self._topics) == 1:
            (topic,) = self._topics
            return self._slots_of(topic, records.partitions)
        numbers = np.full(records.count, -1, np.int64)
        for topic, own in records.topics():
            numbers[own] = self._slots_of(topic, records.partitions[own])
        return numbers

    def _slots_of(self, topic: str, partitions: Int64Array) -> npt.NDArray[np.int64]:
        table = [self._index.get((topic, number), -1) for number in range(int(partitions.max()) + 1)]
        return np.array(table, np.int64)[partitions]

    def _batches(self, run: Run) -> dict[int, SplitBatch]:
        count = len(run.order)
        if count == 0:
            return {}
        stamp = int(run.records.timestamps_ms(run.order[-1:])[0])
        self._event_time_lag_ms = max(0.0, time.time() * 1000 - stamp)
        batch, kept, kinds = self._rows.rows(run)
        row_kinds: Any = None if kinds is None else pa.array(kinds)
        bounds = np.concatenate(([0], (run.slots[1:] != run.slots[:-1]).nonzero()[0] + 1, [count]))
        row_bounds = bounds if kept is None else np.searchsorted(kept, bounds)
        decoded_bounds = bounds if kept is None else np.searchsorted(np.unique(kept), bounds)
        batches = {}
        for i, number in enumerate(run.slots[bounds[:-1]].tolist()):
            slot = self._slots[number]
            first, row_count = int(row_bounds[i]), int(row_bounds[i + 1] - row_bounds[i])
            decoded = int(decoded_bounds[i + 1] - decoded_bounds[i])
            slot.count(RECORDS_SKIPPED, int(bounds[i + 1] - bounds[i]) - decoded)
            if row_count:
                rows = batch.slice(first, row_count)
                changes = None if row_kinds is None else row_kinds.slice(first, row_count)
                batches[number] = SplitBatch(slot.state.split.id, rows, row_kinds=changes)
        return batches


# Told by the client's callback only: nothing would ever come from these partitions, and no message says so.
_ENDING = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
