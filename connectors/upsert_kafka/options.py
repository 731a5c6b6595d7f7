"""The WITH clause of an `upsert-kafka` table; names and rules are those of Flink's "Upsert Kafka" page."""

from __future__ import annotations

from connectors.api import TableDefinition
from connectors.durations import duration_ms
from connectors.errors import OptionError
from connectors.kafka.options import (
    FormatOptions,
    OptionReader,
    OptionRules,
    PartitionerKind,
    SinkOptions,
    SourceOptions,
    StartupMode,
    checked_sink_options,
    checked_source_options,
)
from connectors.registry import format
from planner.ir.types import ChangelogMode

ROWS_MAX = "sink.buffer-flush.max-rows"
INTERVAL = "sink.buffer-flush.interval"

_RULES = OptionRules(
    known=frozenset({
        "connector", "topic", "topic-pattern", "key.format", "value.format", "key.fields-prefix",
        "value.fields-include", "scan.bounded.mode", "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis",
        "scan.topic-partition-discovery.interval", "scan.parallelism", "scan.slot-sharing-group",
        "scan.watermark.emit.strategy", "scan.watermark.idle-timeout", "sink.delivery-guarantee",
        "sink.transactional-id-prefix", "sink.parallelism", "sink.slot-sharing-group", "sink.write-ahead.soft-limit",
        "sink.write-ahead.hard-limit", ROWS_MAX, INTERVAL,
    }),
    refused={
        "format": "Use 'value.format' and 'key.format'.",
        "key.fields": "The key is the table's primary key; leave the option out.",
        "scan.startup.mode": "An upsert table is always read from its beginning; leave the option out.",
        "scan.startup.specific-offsets": "An upsert table is always read from its beginning; leave the option out.",
        "scan.startup.timestamp-millis": "An upsert table is always read from its beginning; leave the option out.",
        "sink.partitioner": "All records of a key belong into one partition, the one of Kafka's own partitioner.",
        "sink.transaction-naming-strategy": "Transactional ids are stable per sink subtask; leave the option out.",
    },
    value_option="value.format",
)  # fmt: skip


def source_options(table: TableDefinition) -> SourceOptions:
    """Validate a table for reading. Raises OptionError."""
    reader, formats = _opened(table)
    return checked_source_options(reader, table, StartupMode.EARLIEST, formats, ChangelogMode.UPSERT)


def sink_options(table: TableDefinition) -> SinkOptions:
    """Validate a table for writing. Raises OptionError."""
    reader, formats = _opened(table)
    buffering = _buffering(reader)
    return checked_sink_options(reader, table, PartitionerKind.DEFAULT, formats, ChangelogMode.UPSERT, buffering)


def _opened(table: TableDefinition) -> tuple[OptionReader, tuple[FormatOptions, FormatOptions, str]]:
    if not table.primary_key:
        raise OptionError(
            "an upsert-kafka table needs a PRIMARY KEY: its columns are the key of each record, and say which row "
            "a record updates or deletes",
            option="connector",
            hint="Add PRIMARY KEY (…) NOT ENFORCED to the columns, or use 'connector' = 'kafka' for a topic of rows.",
        )
    reader = OptionReader(table, _RULES)
    names = [column.name for column in table.columns]
    value, key, prefix = reader.formats(tuple(names.index(name) for name in table.primary_key))
    if key is None:
        raise OptionError("'key.format' is missing", option="key.format", hint="For example 'key.format' = 'json'.")
    if format(value.name).changelog(value.options) is not ChangelogMode.INSERT_ONLY:
        raise OptionError(
            f"the upsert-kafka connector does not support '{value.name}' as its value format: its messages are "
            "changes, not rows",
            option="value.format",
            hint=f"Read such a topic with 'connector' = 'kafka' and 'format' = '{value.name}'.",
        )
    return reader, (value, key, prefix)


def _buffering(reader: OptionReader) -> tuple[int, int]:
    """Rows and milliseconds; both 0 = off."""
    rows = reader.parsed(ROWS_MAX, _whole_number, 0)
    interval_ms = reader.parsed(INTERVAL, duration_ms, 0)
    if (rows > 0) != (interval_ms > 0):
        missing = INTERVAL if rows > 0 else ROWS_MAX
        raise OptionError(
            f"'{ROWS_MAX}' and '{INTERVAL}' work together: both above zero, or none",
            option=missing,
            hint=f"Set '{missing}', too.",
        )
    return rows, interval_ms


def _whole_number(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError(f"must be a whole number, not '{text}'")
    return int(text)
