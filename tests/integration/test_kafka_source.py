"""Reading a real broker: start-up and bounded modes, positions, metadata, discovery, and what must fail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from connectors import registry
from connectors.api import (
    MetadataField,
    ReaderContext,
    SourceConnector,
    SourceReader,
    SplitState,
    TableDefinition,
)
from connectors.errors import ConnectorError, OptionError, RecordError
from connectors.kafka.native.library import SWITCH, load
from planner.ir.types import BIGINT, BYTES, INT, STRING, Field, map_of, timestamp, timestamp_ltz
from tests.support.topics import Record, add_partitions, create_topic, delete_topic, produce, unique_name

pytestmark = pytest.mark.kafka

COLUMNS = (Field("id", BIGINT), Field("name", STRING))
DEADLINE_S = 30.0


@pytest.fixture(params=["direct", "objects"], autouse=True)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test by direct calls of librdkafka and by message objects."""
    monkeypatch.setenv(SWITCH, "python" if request.param == "objects" else "")
    load.cache_clear()
    yield
    load.cache_clear()


def source(bootstrap_servers: str, topic: str, columns: tuple[Field, ...] = COLUMNS, **options: str) -> SourceConnector:
    """A table over `topic`; option names are written with `__` for `.` and `_` for `-`."""
    given = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap_servers,
        "format": "json",
        "scan.startup.mode": "earliest-offset",
    }
    given |= {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return registry.connector("kafka").source(TableDefinition("t", given, columns))


def context(
    scan: tuple[int, ...] = (0, 1), metadata: tuple[MetadataField, ...] = (), rows_max: int = 8192
) -> ReaderContext:
    return ReaderContext(0, 1, scan, metadata, "Europe/Berlin", rows_max)


def discovered(table: SourceConnector, known: frozenset[str] = frozenset()) -> list[SplitState]:
    enumerator = table.enumerator()
    try:
        return [SplitState(split) for split in enumerator.discover(known)]
    finally:
        enumerator.close()


@contextmanager
def reading(
    table: SourceConnector, splits: Sequence[SplitState], wanted: ReaderContext | None = None
) -> Iterator[SourceReader]:
    reader = table.reader(wanted or context())
    try:
        reader.add_splits(list(splits))
        yield reader
    finally:
        reader.close()


def rows(reader: SourceReader, count: int | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Rows by split, until `count` of them came or (None) every split has ended."""
    found: dict[str, list[tuple[object, ...]]] = {}
    total = 0
    deadline = time.monotonic() + DEADLINE_S
    while total < count if count is not None else not all(s.done for s in reader.snapshot()):
        for piece in reader.poll(100):
            got = [tuple(row.values()) for row in piece.batch.to_pylist()]
            found.setdefault(piece.split_id, []).extend(got)
            total += len(got)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{total} rows, {reader.snapshot()}")
    return found


def person(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}"}).encode()


def filled(bootstrap_servers: str, partitions: int = 2, per_partition: int = 10) -> str:
    topic = unique_name("source")
    create_topic(bootstrap_servers, topic, partitions)
    records = [
        Record(p, None, person(p * 100 + i), 1_000_000 + i * 1000)
        for p in range(partitions)
        for i in range(per_partition)
    ]
    produce(bootstrap_servers, topic, records)
    return topic


def ids(found: dict[str, list[tuple[object, ...]]], split: str) -> list[object]:
    return [row[0] for row in found.get(split, [])]


def test_reads_every_partition_in_order(kafka: str) -> None:
    topic = filled(kafka)
    table = source(kafka, topic)
    with reading(table, discovered(table)) as reader:
        found = rows(reader, 20)
        assert reader.gauges()["pendingRecords"] == 0
    assert found[f"{topic}-0"] == [(i, f"n{i}") for i in range(10)]
    assert found[f"{topic}-1"] == [(i, f"n{i}") for i in range(100, 110)]


def test_many_rows_small_batches(kafka: str) -> None:
    topic = filled(kafka, partitions=3, per_partition=5000)
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    with reading(table, discovered(table), context(rows_max=700)) as reader:
        found = rows(reader)
    for p in range(3):
        assert ids(found, f"{topic}-{p}") == [p * 100 + i for i in range(5000)]


def test_goes_on_from_a_snapshot(kafka: str) -> None:
    topic = filled(kafka, partitions=1, per_partition=50)
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    splits = discovered(table)
    with reading(table, splits, context(rows_max=7)) as reader:
        first = rows(reader, 14)
        snapshot = reader.snapshot()
    assert not snapshot[0].done
    with reading(table, snapshot) as reader:
        second = rows(reader)
        done = reader.snapshot()
    split = f"{topic}-0"
    assert ids(first, split) + ids(second, split) == list(range(50))
    assert done[0].done
    with reading(table, done) as reader:
        assert reader.poll(10) == []
        assert reader.snapshot() == done


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scan__startup__mode": "latest-offset"}, []),
        ({"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "1007000"}, [7, 8, 9]),
        ({"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "9999999"}, []),
        (
            {
                "scan__startup__mode": "specific-offsets",
                "scan__startup__specific_offsets": "partition:0,offset:6",
            },
            [6, 7, 8, 9],
        ),
        (
            {
                "scan__startup__mode": "group-offsets",
                "properties__group__id": "nobody-ever",
                "properties__auto__offset__reset": "earliest",
            },
            list(range(10)),
        ),
    ],
)
def test_start_up_modes(kafka: str, options: dict[str, str], expected: list[int]) -> None:
    topic = filled(kafka, partitions=1)
    table = source(kafka, topic, COLUMNS, scan__bounded__mode="latest-offset", **options)
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scan__bounded__mode": "timestamp", "scan__bounded__timestamp_millis": "1003000"}, [0, 1, 2]),
        (
            {
                "scan__bounded__mode": "specific-offsets",
                "scan__bounded__specific_offsets": "partition:0,offset:4",
            },
            [0, 1, 2, 3],
        ),
    ],
)
def test_bounded_modes(kafka: str, options: dict[str, str], expected: list[int]) -> None:
    topic = filled(kafka, partitions=2)
    table = source(kafka, topic, COLUMNS, **options)
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == expected


def test_bounded_by_specific_offsets_reads_only_the_partitions_named(kafka: str) -> None:
    topic = filled(kafka, partitions=2)
    table = source(
        kafka,
        topic,
        scan__bounded__mode="specific-offsets",
        scan__bounded__specific_offsets="partition:1,offset:3",
    )
    splits = discovered(table)
    assert [state.split.id for state in splits] == [f"{topic}-1"]


def test_a_bounded_end_may_be_a_control_record(kafka: str) -> None:
    """Ten committed records, their control record at offset 10, an aborted transaction behind it."""
    topic = unique_name("source")
    create_topic(kafka, topic)
    produce(kafka, topic, [Record(0, None, person(i)) for i in range(10)], transactional_id=topic)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, person(99), partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    for end in (10, 11, 12, 13):
        table = source(
            kafka,
            topic,
            scan__bounded__mode="specific-offsets",
            scan__bounded__specific_offsets=f"partition:0,offset:{end}",
        )
        with reading(table, discovered(table)) as reader:
            assert ids(rows(reader), f"{topic}-0") == list(range(10))
            assert reader.snapshot()[0].position == b"%d" % end


def test_read_committed_hides_open_transactions_and_ends_before_them(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, person(99), partition=0)
    producer.flush(30)
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == list(range(10))
    table = source(kafka, topic, scan__bounded__mode="latest-offset", properties__isolation__level="read_uncommitted")
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == [*range(10), 99]
    producer.abort_transaction(30)


def test_group_offsets_are_published_and_used(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    group = unique_name("group")
    table = source(kafka, topic, properties__group__id=group)
    with reading(table, discovered(table), context(rows_max=4)) as reader:
        rows(reader, 4)
        reader.notify_checkpoint_complete(1, reader.snapshot())
        watcher = Consumer({"bootstrap.servers": kafka, "group.id": group})
        deadline = time.monotonic() + DEADLINE_S
        while watcher.committed([TopicPartition(topic, 0)], timeout=10)[0].offset != 4:
            assert time.monotonic() < deadline
            reader.poll(10)
        watcher.close()
    table = source(
        kafka,
        topic,
        scan__startup__mode="group-offsets",
        properties__group__id=group,
        scan__bounded__mode="latest-offset",
    )
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == [4, 5, 6, 7, 8, 9]


def test_group_offsets_without_an_offset_or_a_reset_are_refused(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    table = source(kafka, topic, scan__startup__mode="group-offsets", properties__group__id=unique_name("group"))
    with pytest.raises(ConnectorError, match="has no committed offset"):
        discovered(table)


def test_topic_lists_and_patterns(kafka: str) -> None:
    one, two = filled(kafka, 1), filled(kafka, 1)
    table = source(kafka, f"{one};{two}", scan__bounded__mode="latest-offset")
    with reading(table, discovered(table)) as reader:
        found = rows(reader)
    assert ids(found, f"{one}-0") == ids(found, f"{two}-0") == list(range(10))
    options = {
        "connector": "kafka",
        "topic-pattern": f"{one}|{two}",
        "properties.bootstrap.servers": kafka,
        "format": "json",
        "scan.startup.mode": "earliest-offset",
    }
    pattern = registry.connector("kafka").source(TableDefinition("t", options, COLUMNS))
    assert sorted(state.split.id for state in discovered(pattern)) == sorted([f"{one}-0", f"{two}-0"])


def test_new_partitions_are_found_and_read_from_their_start(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    table = source(kafka, topic, scan__startup__mode="latest-offset")
    splits = discovered(table)
    with reading(table, splits) as reader:
        reader.poll(10)
        add_partitions(kafka, topic, 2)
        known = frozenset(state.split.id for state in splits)
        deadline = time.monotonic() + DEADLINE_S
        while not (new := discovered(table, known)):
            assert time.monotonic() < deadline
        produce(kafka, topic, [Record(1, None, person(7)), Record(0, None, person(8))])
        assert [state.split.id for state in new] == [f"{topic}-1"]
        reader.add_splits(new)
        found = rows(reader, 2)
    assert ids(found, f"{topic}-1") == [7]
    assert ids(found, f"{topic}-0") == [8]


def test_metadata_columns(kafka: str) -> None:
    topic = unique_name("source")
    create_topic(kafka, topic)
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    produce(kafka, topic, [Record(0, None, person(1), 1_700_000_000_123, headers)])
    metadata = (
        MetadataField("t", "topic", STRING),
        MetadataField("p", "partition", INT),
        MetadataField("o", "offset", BIGINT),
        MetadataField("ts", "timestamp", timestamp_ltz(3)),
        MetadataField("local", "timestamp", timestamp(3)),
        MetadataField("kind", "timestamp-type", STRING),
        MetadataField("epoch", "leader-epoch", INT),
        MetadataField("h", "headers", map_of(STRING, BYTES)),
    )
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    with reading(table, discovered(table), context((1,), metadata)) as reader:
        (row,) = rows(reader)[f"{topic}-0"]
    name, got_topic, partition, offset, stamp, local, kind, epoch, got_headers = row
    assert (name, got_topic, partition, offset, kind, epoch) == ("n1", topic, 0, 0, "CreateTime", 0)
    assert str(stamp) == "2023-11-14 22:13:20.123000+00:00"
    assert str(local) == "2023-11-14 23:13:20.123000"
    assert dict(got_headers) == {"a": b"2", "b": None}  # type: ignore[call-overload]


def test_rows_are_counted_when_no_column_is_read(kafka: str) -> None:
    topic = filled(kafka, partitions=2)
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    count = 0
    with reading(table, discovered(table), context(())) as reader:
        while not all(state.done for state in reader.snapshot()):
            count += sum(piece.batch.num_rows for piece in reader.poll(100))
    assert count == 20


def test_records_without_a_value_are_skipped_and_counted(kafka: str) -> None:
    topic = unique_name("source")
    create_topic(kafka, topic)
    produce(kafka, topic, [Record(0, b"k", None), Record(0, None, person(1)), Record(0, b"k", None)])
    table = source(kafka, topic, scan__bounded__mode="latest-offset")
    with reading(table, discovered(table)) as reader:
        assert ids(rows(reader), f"{topic}-0") == [1]
        (state,) = reader.snapshot()
    assert state.counters == {"numTombstonesSkipped": 2}
    assert state.position == b"3"


def test_a_malformed_record_is_named(kafka: str) -> None:
    topic = unique_name("source")
    create_topic(kafka, topic, 2)
    produce(kafka, topic, [Record(1, None, person(1)), Record(1, None, b'{"id": "x"}')])
    table = source(kafka, topic)
    with (
        reading(table, discovered(table)) as reader,
        pytest.raises(RecordError, match=rf"topic {topic}, partition 1, offset 1"),
    ):
        rows(reader, 2)


def test_a_malformed_record_is_skipped_alone_and_counted(kafka: str) -> None:
    topic = unique_name("source")
    create_topic(kafka, topic, 2)
    records = [Record(p, None, person(i) if i % 5 else b"{") for p in range(2) for i in range(10)]
    produce(kafka, topic, records)
    table = source(kafka, topic, scan__bounded__mode="latest-offset", json__ignore_parse_errors="true")
    offset = (MetadataField("o", "offset", BIGINT),)
    with reading(table, discovered(table), context((0,), offset)) as reader:
        found = rows(reader)
        counters = [state.counters for state in reader.snapshot()]
    wanted = [(i, i) for i in range(10) if i % 5]
    assert found == {f"{topic}-0": wanted, f"{topic}-1": wanted}
    assert counters == [{"numRecordsSkipped": 2}] * 2


def test_key_columns(kafka: str) -> None:
    topic = unique_name("source")
    create_topic(kafka, topic)
    produce(
        kafka,
        topic,
        [Record(0, b"k1", b'{"id": 1}'), Record(0, None, b'{"id": 2}'), Record(0, b"k3", b'{"id": 3}')],
    )
    columns = (Field("k_name", STRING), Field("id", BIGINT))
    table = source(
        kafka,
        topic,
        columns,
        scan__bounded__mode="latest-offset",
        key__format="raw",
        key__fields="k_name",
        key__fields_prefix="k_",
        value__fields_include="EXCEPT_KEY",
    )
    with reading(table, discovered(table), context((1, 0))) as reader:
        assert rows(reader)[f"{topic}-0"] == [(1, "k1"), (2, None), (3, "k3")]
    with reading(table, discovered(table), context((0,))) as reader:
        assert rows(reader)[f"{topic}-0"] == [("k1",), (None,), ("k3",)]


def test_a_position_that_is_gone_fails_with_its_place(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    table = source(
        kafka,
        topic,
        scan__startup__mode="specific-offsets",
        scan__startup__specific_offsets="partition:0,offset:500",
    )
    with (
        reading(table, discovered(table)) as reader,
        pytest.raises(ConnectorError, match=rf"topic {topic}, partition 0: offset 500 is not in the log"),
    ):
        rows(reader, 1)


def test_a_missing_topic_is_named(kafka: str) -> None:
    with pytest.raises(ConnectorError, match="no-such-topic-at-all"):
        discovered(source(kafka, "no-such-topic-at-all"))


def test_an_unknown_client_property_is_an_option_error(kafka: str) -> None:
    with pytest.raises(OptionError, match=r"no\.such\.thing"):
        discovered(source(kafka, "x", properties__no__such__thing="1"))


def test_a_topic_deleted_while_it_is_read_fails_the_reader(kafka: str) -> None:
    topic = filled(kafka, partitions=1)
    table = source(
        kafka,
        topic,
        properties__topic__metadata__propagation__max__ms="1000",
        properties__topic__metadata__refresh__interval__ms="500",
    )
    with reading(table, discovered(table)) as reader:
        rows(reader, 1)
        delete_topic(kafka, topic)
        with pytest.raises(ConnectorError, match=topic):
            rows(reader, 10**9)
