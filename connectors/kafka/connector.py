"""The `kafka` connector's front door. Validates options; clients are loaded only by what really connects."""

from __future__ import annotations

from collections.abc import Mapping

from connectors import registry
from connectors.api import (
    ReaderContext,
    SinkConnector,
    SinkContext,
    SinkWriter,
    SourceConnector,
    SourceReader,
    SplitEnumerator,
    TableDefinition,
)
from connectors.kafka.options import (
    FORMAT_METADATA,
    BoundedMode,
    SinkOptions,
    SourceOptions,
    sink_options,
    source_options,
)
from planner.ir.types import BIGINT, BYTES, INT, STRING, ChangelogMode, DataType, Field, map_of, timestamp_ltz

_HEADERS = map_of(STRING.with_nullable(False), BYTES.with_nullable(False)).with_nullable(False)

READABLE_METADATA: Mapping[str, DataType] = {
    "topic": STRING.with_nullable(False),
    "partition": INT.with_nullable(False),
    "offset": BIGINT.with_nullable(False),
    "leader-epoch": INT,
    "timestamp": timestamp_ltz(3).with_nullable(False),
    "timestamp-type": STRING.with_nullable(False),
    "headers": _HEADERS,
}
WRITABLE_METADATA: Mapping[str, DataType] = {
    "timestamp": timestamp_ltz(3).with_nullable(False),
    "headers": _HEADERS,
}


class KafkaSource:
    """A table read from topics."""

    def __init__(self, options: SourceOptions, columns: tuple[Field, ...]) -> None:
        self._options = options
        self._columns = columns

    @property
    def bounded(self) -> bool:
        return self._options.bounded is not BoundedMode.UNBOUNDED

    @property
    def changelog(self) -> ChangelogMode:
        return self._options.changelog

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        value = self._options.value
        of_format = registry.format(value.name).metadata_types(value.options)
        return {**{FORMAT_METADATA + key: t for key, t in of_format.items()}, **READABLE_METADATA}

    def enumerator(self) -> SplitEnumerator:
        from connectors.kafka.admin import PartitionEnumerator

        return PartitionEnumerator(self._options)

    def reader(self, context: ReaderContext) -> SourceReader:
        from connectors.kafka.source import PartitionReader

        return PartitionReader(self._options, self._columns, context)


class KafkaSink:
    """A table written to one topic."""

    def __init__(self, options: SinkOptions, columns: tuple[Field, ...]) -> None:
        self._options = options
        self._columns = columns

    @property
    def delivery_guarantee(self) -> str:
        return self._options.guarantee.value

    @property
    def committing(self) -> bool:
        return self._options.committing

    @property
    def transactional_id_prefix(self) -> str | None:
        return self._options.transactional_id_prefix

    @property
    def changelog(self) -> ChangelogMode:
        return self._options.changelog

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        return WRITABLE_METADATA

    def prepare(self, namespace: str) -> None:
        from connectors.kafka import target

        target.prepare(self._options, namespace)

    def fence(self, namespace: str, owner_count: int) -> None:
        from connectors.kafka import target

        target.fence(self._options, namespace, owner_count)

    def writer(self, context: SinkContext) -> SinkWriter:
        from connectors.kafka.sink import DirectWriter, ExactlyOnceWriter

        kind = ExactlyOnceWriter if self.committing else DirectWriter
        return kind(self._options, self._columns, context)


class KafkaConnector:
    @property
    def name(self) -> str:
        return "kafka"

    def source(self, table: TableDefinition) -> SourceConnector:
        return KafkaSource(source_options(table), table.columns)

    def sink(self, table: TableDefinition) -> SinkConnector:
        return KafkaSink(sink_options(table), table.columns)


CONNECTOR = KafkaConnector()
