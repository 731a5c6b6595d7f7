"""WITH options of a kafka table: what is accepted, and how each mistake is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from connectors import registry
from connectors.api import TableDefinition
from connectors.errors import OptionError
from connectors.kafka.options import (
    BoundedMode,
    DeliveryGuarantee,
    OffsetReset,
    PartitionerKind,
    StartupMode,
    sink_options,
    source_options,
)
from planner.ir.types import BIGINT, STRING, Field

COLUMNS = (Field("k_id", BIGINT), Field("name", STRING), Field("price", BIGINT))
BASE = {
    "connector": "kafka",
    "topic": "orders",
    "properties.bootstrap.servers": "localhost:9092",
    "format": "json",
}
SOURCE = {**BASE, "scan.startup.mode": "earliest-offset"}


def table(options: dict[str, str], *without: str) -> TableDefinition:
    return TableDefinition("t", {k: v for k, v in options.items() if k not in without}, COLUMNS)


def test_defaults_of_a_source() -> None:
    options = source_options(table(SOURCE))
    assert options.topics == ("orders",)
    assert options.topic_pattern is None
    assert options.startup is StartupMode.EARLIEST
    assert options.bounded is BoundedMode.UNBOUNDED
    assert options.isolation_level == "read_committed"
    assert options.offset_reset is OffsetReset.NONE
    assert options.discovery_interval_ms == 300_000
    assert options.client == {"bootstrap.servers": "localhost:9092"}
    assert options.value.columns == (0, 1, 2)
    assert options.key is None


def test_defaults_of_a_sink() -> None:
    options = sink_options(table(BASE))
    assert options.topic == "orders"
    assert options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert options.partitioner is PartitionerKind.DEFAULT
    assert options.transaction_timeout_ms == 60_000
    assert options.transactional_id_prefix is None


def test_everything_a_source_may_say() -> None:
    options = source_options(
        table(
            {
                **BASE,
                "topic": "a;b",
                "scan.startup.mode": "timestamp",
                "scan.startup.timestamp-millis": "1700000000000",
                "scan.bounded.mode": "group-offsets",
                "scan.topic-partition-discovery.interval": "10 s",
                "properties.group.id": "g",
                "properties.auto.offset.reset": "latest",
                "properties.isolation.level": "read_uncommitted",
                "properties.commit.offsets.on.checkpoint": "false",
                "json.ignore-parse-errors": "true",
            }
        )
    )
    assert options.topics == ("a", "b")
    assert options.startup_timestamp_ms == 1_700_000_000_000
    assert options.bounded is BoundedMode.GROUP_OFFSETS
    assert options.discovery_interval_ms == 10_000
    assert options.offset_reset is OffsetReset.LATEST
    assert options.isolation_level == "read_uncommitted"
    assert not options.commit_group_offsets
    assert options.value.options == {"ignore-parse-errors": "true"}


def test_specific_offsets() -> None:
    options = source_options(
        table(
            {
                **BASE,
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
                "scan.bounded.mode": "specific-offsets",
                "scan.bounded.specific-offsets": " partition : 1 , offset : 400 ; ",
            }
        )
    )
    assert options.startup_offsets == {0: 42, 1: 300}
    assert options.bounded_offsets == {1: 400}


def test_key_and_value_columns() -> None:
    options = sink_options(
        table(
            {
                **BASE,
                "key.format": "json",
                "key.fields": "k_id",
                "key.fields-prefix": "k_",
                "value.fields-include": "EXCEPT_KEY",
                "key.json.map-null-key.mode": "DROP",
            }
        )
    )
    assert options.key is not None
    assert options.key.columns == (0,)
    assert options.key.options == {"map-null-key.mode": "DROP"}
    assert options.key_prefix == "k_"
    assert options.value.columns == (1, 2)


SOURCE_MISTAKES = [
    ({"topik": "x"}, (), "unknown option 'topik'", "Did you mean 'topic'?"),
    ({"scan.startup.modus": "x"}, (), "unknown option 'scan.startup.modus'", "scan.startup.mode"),
    ({"json.ignore-parse-error": "true"}, (), "unknown option", "json.ignore-parse-errors"),
    ({}, ("topic",), "are both missing", ""),
    ({"topic-pattern": "a.*"}, (), "are both set", ""),
    ({"topic-pattern": "a("}, ("topic",), "is no pattern", ""),
    ({"topic": "a b"}, (), "'a b' is not a topic name", ""),
    ({"topic": "a;a"}, (), "names a topic twice", ""),
    ({}, ("format",), "'format' is missing", "json"),
    ({"value.format": "json"}, (), "are both set", ""),
    ({"format": "jsn"}, (), "there is no format 'jsn'", "Did you mean 'json'?"),
    ({}, ("properties.bootstrap.servers",), "'properties.bootstrap.servers' is missing", "localhost:9092"),
    ({"scan.startup.mode": "earliest"}, (), "cannot be 'earliest'", "Did you mean 'earliest-offset'?"),
    ({}, ("scan.startup.mode",), "'properties.group.id' is not set", "earliest-offset"),
    ({"scan.bounded.mode": "group-offsets"}, (), "'properties.group.id' is not set", ""),
    ({"scan.startup.mode": "timestamp"}, (), "needs 'scan.startup.timestamp-millis'", ""),
    ({"scan.startup.timestamp-millis": "1"}, (), "needs 'scan.startup.mode' = 'timestamp'", ""),
    (
        {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "0:42"},
        (),
        "cannot be read at '0:42'",
        "partition:0,offset:42",
    ),
    (
        {
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": "partition:0,offset:1",
            "topic": "a;b",
        },
        (),
        "exactly one topic",
        "",
    ),
    ({"scan.topic-partition-discovery.interval": "soon"}, (), "is not a duration", ""),
    ({"key.format": "json"}, (), "'key.fields' is missing", ""),
    ({"key.format": "json", "key.fields": "k_di"}, (), "which is no column", "Did you mean 'k_id'?"),
    ({"key.fields-prefix": "k_"}, (), "needs 'key.fields'", ""),
    (
        {"key.format": "json", "key.fields": "k_id", "key.fields-prefix": "k_"},
        (),
        "needs 'value.fields-include' = 'EXCEPT_KEY'",
        "",
    ),
    ({"scan.watermark.alignment.group": "g"}, (), "is not supported", "alignment"),
    ({"properties.transactional.id": "x"}, (), "is decided by the connector", ""),
    ({"properties.auto.offset.reset": "erliest"}, (), "cannot be 'erliest'", "earliest"),
    ({"properties.ssl.truststore.location": "/x/trust.jks"}, (), "JKS trust store", "keytool"),
]


@pytest.mark.parametrize(("added", "removed", "message", "hint"), SOURCE_MISTAKES)
def test_a_mistake_in_a_source_is_named(
    added: dict[str, str], removed: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(OptionError) as caught:
        registry.connector("kafka").source(table({**SOURCE, **added}, *removed))
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.option


SINK_MISTAKES = [
    ({"topic": "a;b"}, "a sink writes to one topic"),
    ({"sink.partitioner": "fix"}, "cannot be 'fix'"),
    ({"sink.delivery-guarantee": "exactly_once"}, "cannot be 'exactly_once'"),
    ({"sink.transactional-id-prefix": "a b"}, "'sink.transactional-id-prefix' must be"),
    ({"sink.semantic": "exactly-once"}, "is not supported"),
    ({"sink.partitioner": "round-robin", "key.format": "json", "key.fields": "k_id"}, "cannot be combined"),
    ({"sink.write-ahead.soft-limit": "2 gb", "sink.write-ahead.hard-limit": "1 gb"}, "must be above"),
    ({"properties.transaction.timeout.ms": "soon"}, "at least 1000 milliseconds"),
]


@pytest.mark.parametrize(("added", "message"), SINK_MISTAKES)
def test_a_mistake_in_a_sink_is_named(added: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        registry.connector("kafka").sink(table({**BASE, **added}))
    assert message in caught.value.message


def test_validation_loads_no_client() -> None:
    code = (
        "import sys\n"
        "from connectors import registry\n"
        "from connectors.api import TableDefinition\n"
        "from planner.ir.types import BIGINT, Field\n"
        f"table = TableDefinition('t', {SOURCE!r}, (Field('a', BIGINT),))\n"
        "registry.connector('kafka').source(table).enumerator\n"
        "registry.connector('kafka').sink(table).committing\n"
        "assert 'confluent_kafka' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
