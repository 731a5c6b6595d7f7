"""Finding the splits of a table: topics, partitions, and where each begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from connectors.api import Split
from connectors.errors import ConnectorError, ErrorDomain
from connectors.kafka.client import (
    REQUEST_TIMEOUT_S,
    admin_client,
    consumer,
    failed,
    kafka_error,
    missing_topic,
)
from connectors.kafka.options import BoundedMode, OffsetReset, SourceOptions, StartupMode
from connectors.kafka.splits import PartitionSplit, split_id

Place = tuple[str, int]
"""Topic and partition."""


class PartitionEnumerator:
    """The SplitEnumerator of a Kafka table. Connects at the first `discover`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: AdminClient | None = None

    @property
    def discovery_interval_ms(self) -> int:
        bounded = self._options.bounded is not BoundedMode.UNBOUNDED
        return 0 if bounded else self._options.discovery_interval_ms

    def discover(self, known: frozenset[str]) -> list[Split]:
        admin = self._admin
        if admin is None:
            admin = self._admin = admin_client(self._options.client)
        try:
            places = [place for place in self._places(admin) if split_id(*place) not in known]
            if not places:
                return []
            offsets = _Offsets(admin, self._options)
            starts = self._starts(offsets, places) if not known else offsets.earliest(places)
            ends = self._ends(offsets, places)
        except KafkaException as error:
            raise failed(kafka_error(error), f"looking for partitions of {self._described()}") from error
        splits = []
        for topic, partition in places:
            place = (topic, partition)
            if ends is not None and place not in ends:
                continue  # Bounded by specific offsets that do not name this partition: nothing of it is read.
            end = None if ends is None else ends[place]
            start = starts[place] if end is None else min(starts[place], end)
            splits.append(PartitionSplit(topic, partition, start, end).split())
        return splits

    def close(self) -> None:
        self._admin = None

    def _described(self) -> str:
        pattern = self._options.topic_pattern
        if pattern is not None:
            return f"topics like '{pattern}'"
        return "topic " + ", ".join(self._options.topics)

    def _places(self, admin: AdminClient) -> list[Place]:
        options = self._options
        # All topics, not the wanted ones: asking for a topic by name may create it on the broker.
        listed = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        if options.topic_pattern is None:
            for topic in options.topics:
                if topic not in listed:
                    raise missing_topic(topic)
            found = {topic: listed[topic] for topic in options.topics}
        else:
            pattern = re.compile(options.topic_pattern)
            # Names with two underscores are internal topics of brokers and tools, ours included.
            found = {n: t for n, t in listed.items() if pattern.fullmatch(n) and not n.startswith("__")}
        for topic, metadata in found.items():
            if metadata.error is not None:
                raise failed(metadata.error, f"looking for topic {topic}")
        return [(topic, number) for topic in sorted(found) for number in sorted(found[topic].partitions)]

    def _starts(self, offsets: _Offsets, places: list[Place]) -> dict[Place, int]:
        options = self._options
        match options.startup:
            case StartupMode.EARLIEST:
                return offsets.earliest(places)
            case StartupMode.LATEST:
                return offsets.latest(places)
            case StartupMode.TIMESTAMP:
                return offsets.at_timestamp(places, options.startup_timestamp_ms)
            case StartupMode.GROUP_OFFSETS:
                return self._committed_or_reset(offsets, places, options.offset_reset)
            case StartupMode.SPECIFIC_OFFSETS:
                given = {p: options.startup_offsets[p[1]] for p in places if p[1] in options.startup_offsets}
                rest = [place for place in places if place not in given]
                if not rest:
                    return given
                if options.group_id is None:
                    return given | offsets.earliest(rest)
                return given | self._committed_or_reset(offsets, rest, OffsetReset.EARLIEST)

    def _committed_or_reset(self, offsets: _Offsets, places: list[Place], reset: OffsetReset) -> dict[Place, int]:
        committed = offsets.committed(places)
        missing = [place for place in places if place not in committed]
        if not missing:
            return committed
        if reset is OffsetReset.EARLIEST:
            return committed | offsets.earliest(missing)
        if reset is OffsetReset.LATEST:
            return committed | offsets.latest(missing)
        raise _no_committed_offset(self._options.group_id, missing[0])

    def _ends(self, offsets: _Offsets, places: list[Place]) -> dict[Place, int] | None:
        options = self._options
        match options.bounded:
            case BoundedMode.UNBOUNDED:
                return None
            case BoundedMode.LATEST:
                return offsets.latest(places)
            case BoundedMode.TIMESTAMP:
                return offsets.at_timestamp(places, options.bounded_timestamp_ms)
            case BoundedMode.SPECIFIC_OFFSETS:
                return {p: options.bounded_offsets[p[1]] for p in places if p[1] in options.bounded_offsets}
            case BoundedMode.GROUP_OFFSETS:
                committed = offsets.committed(places)
                for place in places:
                    if place not in committed:
                        raise _no_committed_offset(options.group_id, place)
                return committed


def _no_committed_offset(group_id: str | None, place: Place) -> ConnectorError:
    return ConnectorError(
        f"group '{group_id}' has no committed offset for topic {place[0]}, partition {place[1]}",
        domain=ErrorDomain.USER,
        retry=False,
        hint="Set 'properties.auto.offset.reset' to 'earliest' or 'latest', or choose another start-up mode.",
    )


class _Offsets:
    """Asks the broker for offsets, all partitions in one request."""

    def __init__(self, admin: AdminClient, options: SourceOptions) -> None:
        self._admin = admin
        self._options = options
        committed_only = options.isolation_level == "read_committed"
        # To a read-committed reader the log ends at the last stable offset, not at the high watermark.
        self._level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._listed(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._listed(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at_timestamp(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int]:
        """The first offset at or after the time; the end where there is none."""
        found = self._listed(places, OffsetSpec.for_timestamp(timestamp_ms))
        none = [place for place, offset in found.items() if offset < 0]
        return found | self.latest(none) if none else found

    def committed(self, places: Iterable[Place]) -> dict[Place, int]:
        """The group's committed offsets; partitions without one are left out."""
        assert self._options.group_id is not None
        reader = consumer(self._options.client, {"isolation.level": self._options.isolation_level})
        try:
            asked = [TopicPartition(topic, partition) for topic, partition in places]
            found = reader.committed(asked, timeout=REQUEST_TIMEOUT_S)
        finally:
            reader.close()
        for each in found:
            if each.error is not None:
                raise failed(each.error, f"reading committed offsets of group '{self._options.group_id}'")
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _listed(self, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, int]:
        asked: Mapping[TopicPartition, OffsetSpec] = {TopicPartition(t, p): spec for t, p in places}
        futures = self._admin.list_offsets(dict(asked), isolation_level=self._level, request_timeout=REQUEST_TIMEOUT_S)
        return {(key.topic, key.partition): future.result().offset for key, future in futures.items()}
