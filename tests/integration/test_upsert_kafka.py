"""Changelogs in topics of a real broker: upsert-kafka and debezium-json, read and written, with keys and headers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import (
    Committable,
    MetadataField,
    OwnerState,
    ReaderContext,
    SinkContext,
    SinkWriter,
    SplitState,
    TableDefinition,
)
from connectors.errors import ConnectorError, RecordError
from connectors.kafka.partitioner import murmur2
from planner.ir.types import BIGINT, INT, STRING, DataType, Field, map_of, timestamp_ltz, to_arrow
from planner.ir.types import BYTES as VARBINARY
from runtime.checkpoint.files import LocalFiles
from tests.support.topics import DEADLINE_S, Record, create_topic, produce, read_topic, unique_name

pytestmark = pytest.mark.kafka

KINDS = ("+I", "-U", "+U", "-D")
KIND_TEXTS = pa.array(KINDS, pa.string())
COLUMNS = (Field("k", STRING), Field("v", INT))
UPSERT = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
PLAIN = {"connector": "kafka", "scan.startup.mode": "earliest-offset"}


class Table:
    """A topic of its own and a table over it."""

    def __init__(
        self,
        bootstrap_servers: str,
        options: dict[str, str],
        columns: tuple[Field, ...] = COLUMNS,
        key: tuple[str, ...] = ("k",),
        partitions: int = 1,
        topic: str | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic or unique_name("changes")
        if topic is None:
            create_topic(bootstrap_servers, self.topic, partitions)
        given = {"topic": self.topic, "properties.bootstrap.servers": bootstrap_servers, **options}
        self.definition = TableDefinition("t", given, columns, key)
        self.connector = registry.connector(options["connector"])

    def send(self, *records: tuple[Any, Any]) -> None:
        """Keys and values as JSON; None = none."""
        encoded = [[None if part is None else json.dumps(part).encode() for part in record] for record in records]
        produce(self.bootstrap_servers, self.topic, [Record(0, key, value) for key, value in encoded])

    def read(
        self, scan: Iterable[int] | None = None, metadata: tuple[MetadataField, ...] = ()
    ) -> tuple[list[tuple[Any, ...]], list[SplitState]]:
        """All rows, each with its kind first, and the splits at their ends."""
        definition = TableDefinition(
            "t", {**self.definition.options, "scan.bounded.mode": "latest-offset"}, *self._schema()
        )
        source = self.connector.source(definition)
        enumerator = source.enumerator()
        splits = [SplitState(split) for split in enumerator.discover(frozenset())]
        enumerator.close()
        scanned = tuple(range(len(self.definition.columns))) if scan is None else tuple(scan)
        reader = source.reader(ReaderContext(0, 1, scanned, metadata, "UTC"))
        rows: list[tuple[Any, ...]] = []
        deadline = time.monotonic() + DEADLINE_S
        try:
            reader.add_splits(splits)
            while not all(state.done for state in reader.snapshot()):
                assert time.monotonic() < deadline
                for read in reader.poll(100):
                    assert read.row_kinds is not None or read.batch.num_rows == 0
                    kinds = KIND_TEXTS.take(read.row_kinds).to_pylist() if read.row_kinds is not None else []
                    columns = [column.to_pylist() for column in read.batch.columns]
                    rows += list(zip(kinds, *columns, strict=True))
            return rows, reader.snapshot()
        finally:
            reader.close()

    def _schema(self) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        return self.definition.columns, self.definition.primary_key

    def writer(self, directory: Path, metadata: tuple[MetadataField, ...] = (), **changes: Any) -> SinkWriter:
        sink = self.connector.sink(self.definition)
        namespace = f"ns-{self.topic}"
        sink.prepare(namespace)
        context = SinkContext(
            subtask_index=changes.get("subtask_index", 0),
            parallelism=1,
            namespace=namespace,
            incarnation=changes.get("incarnation", "g1"),
            attempt=changes.get("attempt", "a1"),
            files=LocalFiles(str(directory)),
            restored_checkpoint_id=changes.get("restored_checkpoint_id", 0),
            metadata_columns=metadata,
            local_time_zone="UTC",
        )
        directory.mkdir(exist_ok=True)
        return sink.writer(context)

    def settle(self) -> None:
        self.connector.sink(self.definition).fence(f"ns-{self.topic}", 1)

    def records(self) -> list[tuple[Any, Any]]:
        """Keys and values as JSON, partition by partition."""
        found = read_topic(self.bootstrap_servers, self.topic)
        return [tuple(None if part is None else json.loads(part) for part in (r.key, r.value)) for r in found]  # type: ignore[misc]


def changes(types: tuple[DataType, ...], *rows: tuple[Any, ...]) -> tuple[pa.RecordBatch, Any]:
    """A batch and its kinds from rows that begin with their kind."""
    columns: list[Any] = [pa.array([row[i + 1] for row in rows], to_arrow(t)) for i, t in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    return batch, pa.array([KINDS.index(row[0]) for row in rows], pa.int8())


KV = (STRING, INT)


# ------------------------------------------------------------------------------------------------------ upsert


def test_values_are_upserts_and_tombstones_delete_by_key(kafka: str) -> None:
    table = Table(kafka, UPSERT)
    table.send(
        ({"k": "a"}, {"v": 1}), ({"k": "b"}, {"v": 2}), ({"k": "a"}, None), ({"k": "x"}, None), ({"k": "b"}, {"v": 3})
    )
    rows, states = table.read()
    assert rows == [("+U", "a", 1), ("+U", "b", 2), ("-D", "a", None), ("-D", "x", None), ("+U", "b", 3)]
    assert [(state.position, state.counters) for state in states] == [(b"5", {})]
    assert table.read(scan=[1])[0] == [("+U", 1), ("+U", 2), ("-D", None), ("-D", None), ("+U", 3)]
    assert table.read(scan=[0])[0] == [("+U", "a"), ("+U", "b"), ("-D", "a"), ("-D", "x"), ("+U", "b")]


def test_tombstones_alone_and_metadata(kafka: str) -> None:
    table = Table(kafka, UPSERT)
    table.send(({"k": "a"}, None), ({"k": "b"}, None))
    offset = (MetadataField("at", "offset", BIGINT),)
    assert table.read(metadata=offset)[0] == [("-D", "a", None, 0), ("-D", "b", None, 1)]


def test_a_prefixed_key_outside_the_value(kafka: str) -> None:
    options = {**UPSERT, "value.fields-include": "EXCEPT_KEY", "key.fields-prefix": "k_"}
    columns = (Field("v", INT), Field("k_id", BIGINT), Field("k_name", STRING))
    table = Table(kafka, options, columns, ("k_name", "k_id"))
    table.send(({"name": "n", "id": 1}, {"v": 10, "id": 99}), ({"name": "n", "id": 1}, None))
    assert table.read()[0] == [("+U", 10, 1, "n"), ("-D", None, 1, "n")]


def test_unreadable_values_are_skipped_and_counted_when_asked(kafka: str) -> None:
    table = Table(kafka, {**UPSERT, "value.json.ignore-parse-errors": "true", "key.json.ignore-parse-errors": "true"})
    good = Record(0, b'{"k": "a"}', b'{"v": 1}')
    produce(
        kafka, table.topic, [good, Record(0, b'{"k": "b"}', b"{"), Record(0, b"{", b'{"v": 2}'), Record(0, b"{", None)]
    )
    table.send(({"k": "a"}, None))
    rows, states = table.read()
    assert rows == [("+U", "a", 1), ("-D", "a", None)]
    assert states[0].counters == {"numRecordsSkipped": 3}


def test_an_unreadable_key_names_the_option_that_this_table_has(kafka: str) -> None:
    table = Table(kafka, UPSERT)
    produce(kafka, table.topic, [Record(0, b"garbage", b'{"v": 1}')])
    with pytest.raises(RecordError, match="offset 0") as caught:
        table.read()
    assert "'key.json.ignore-parse-errors'" in caught.value.hint


def test_a_record_without_a_key_is_an_error(kafka: str) -> None:
    table = Table(kafka, UPSERT)
    table.send(({"k": "a"}, {"v": 1}), (None, {"v": 2}))
    with pytest.raises(RecordError, match=r"partition 0, offset 1: the record has no key"):
        table.read()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once", "none"])
def test_one_record_per_key_and_batch_the_last(kafka: str, tmp_path: Path, guarantee: str) -> None:
    table = Table(kafka, {**UPSERT, "sink.delivery-guarantee": guarantee})
    writer = table.writer(tmp_path / "epochs")
    writer.recover([OwnerState(0)])
    writer.write(*changes(KV, ("+I", "a", 1), ("+I", "b", 2), ("-U", "a", 1), ("+U", "a", 3), ("-U", "b", 2)))
    writer.write(*changes(KV, ("+U", "b", 4), ("+I", "c", 5), ("-D", "c", None), ("-D", "a", None), ("+I", "a", 6)))
    if guarantee != "none":
        assert table.records() == []
    committable = writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    table.settle()
    a, b, c = {"k": "a"}, {"k": "b"}, {"k": "c"}
    assert table.records() == [
        (a, {"k": "a", "v": 3}), (b, None), (b, {"k": "b", "v": 4}), (c, None), (a, {"k": "a", "v": 6}),
    ]  # fmt: skip
    assert [each.record_count for each in committable] == ([] if guarantee == "none" else [5])


def test_a_buffer_writes_one_record_per_key_until_the_barrier(kafka: str, tmp_path: Path) -> None:
    options = {**UPSERT, "sink.buffer-flush.max-rows": "1000", "sink.buffer-flush.interval": "1 h"}
    table = Table(kafka, {**options, "value.fields-include": "EXCEPT_KEY"})
    writer = table.writer(tmp_path / "epochs")
    writer.recover([OwnerState(0)])
    for value in range(10):
        writer.write(*changes(KV, ("+U", "a", value), ("+U", f"k{value}", value)))
    writer.write(*changes(KV, ("-D", "k3", None)))
    writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    table.settle()
    expected = {json.dumps({"k": f"k{n}"}): {"v": n} for n in range(10) if n != 3}
    found = {json.dumps(key): value for key, value in table.records()}
    assert found == {**expected, '{"k": "a"}': {"v": 9}, '{"k": "k3"}': None}
    assert len(table.records()) == 11


def test_records_of_a_key_are_where_kafkas_own_partitioner_puts_them(kafka: str, tmp_path: Path) -> None:
    table = Table(kafka, UPSERT, partitions=5)
    writer = table.writer(tmp_path / "epochs")
    writer.recover([OwnerState(0)])
    writer.write(*changes(KV, *(("+U", f"key {n}", n) for n in range(200))))
    writer.write(*changes(KV, *(("-D", f"key {n}", None) for n in range(200))))
    writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    table.settle()
    found = read_topic(kafka, table.topic)
    assert len(found) == 400
    hashes = murmur2(pa.array([record.key for record in found], pa.binary()))
    assert [record.partition for record in found] == [(int(h) & 0x7FFFFFFF) % 5 for h in hashes]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stalled_attempt_cannot_put_an_old_value_over_a_newer_one(kafka: str, tmp_path: Path, guarantee: str) -> None:
    table = Table(kafka, {**UPSERT, "sink.delivery-guarantee": guarantee})
    old = table.writer(tmp_path / "epochs")
    old.recover([OwnerState(0)])
    old.write(*changes(KV, ("+U", "a", 1)))
    pending = old.prepare_commit(1)
    newer = table.writer(tmp_path / "epochs", attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert newer.recover([OwnerState(0, pending, 0, True)]) == {0: 1}
    newer.write(*changes(KV, ("+U", "a", 2)))
    newer.prepare_commit(2)
    newer.commit(2)
    with pytest.raises(ConnectorError):
        old.commit(1)
    old.close()
    newer.close()
    table.settle()
    assert table.records() == [({"k": "a"}, {"k": "a", "v": 1}), ({"k": "a"}, {"k": "a", "v": 2})]


def test_what_was_written_reads_back(kafka: str, tmp_path: Path) -> None:
    table = Table(kafka, UPSERT)
    writer = table.writer(tmp_path / "epochs")
    writer.recover([OwnerState(0)])
    writer.write(*changes(KV, ("+I", "a", 1), ("+I", "ü", None)))
    writer.write(*changes(KV, ("-D", "a", None)))
    committed: tuple[Committable, ...] = writer.prepare_commit(1)
    assert [each.owner for each in committed] == [0]
    writer.commit(1)
    writer.close()
    table.settle()
    assert table.read()[0] == [("+U", "a", 1), ("+U", "ü", None), ("-D", "a", None)]


# ---------------------------------------------------------------------------------------------------- debezium


def debezium(before: Any, after: Any, op: str, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, **more}


def test_a_debezium_topic_from_snapshot_to_tombstone(kafka: str) -> None:
    table = Table(kafka, {**PLAIN, "format": "debezium-json", "key.format": "json", "key.fields": "k"})
    one, two = {"k": "a", "v": 1}, {"k": "a", "v": 2}
    source = {"table": "things", "ts_ms": 7}
    table.send(
        ({"k": "a"}, debezium(None, one, "r", source=source)),
        ({"k": "a"}, debezium(one, two, "u", source=source)),
        ({"k": "a"}, debezium(two, None, "d", source=source)),
        ({"k": "a"}, None),
    )
    metadata = (MetadataField("origin", "value.source.table", STRING), MetadataField("at", "offset", BIGINT))
    rows, states = table.read(metadata=metadata)
    assert rows == [
        ("+I", "a", 1, "things", 0),
        ("-U", "a", 1, "things", 1),
        ("+U", "a", 2, "things", 1),
        ("-D", "a", 2, "things", 2),
    ]
    assert (states[0].position, states[0].counters) == (b"4", {"numTombstonesSkipped": 1})
    assert table.read(scan=[])[0] == [("+I",), ("-U",), ("+U",), ("-D",)]


def test_events_that_cannot_be_read_are_counted_once_each(kafka: str) -> None:
    table = Table(
        kafka, {**PLAIN, "format": "debezium-json", "debezium-json.ignore-parse-errors": "true"}, partitions=2
    )
    one, two = {"k": "a", "v": 1}, {"k": "a", "v": 2}
    events = [debezium(one, two, "u"), debezium(None, two, "u"), debezium(None, one, "c"), debezium(one, None, "?")]
    produce(kafka, table.topic, [Record(i % 2, None, json.dumps(event).encode()) for i, event in enumerate(events)])
    rows, states = table.read()
    assert sorted(rows) == [("+I", "a", 1), ("+U", "a", 2), ("-U", "a", 1)]
    assert {state.split.id[-1]: state.counters for state in states} == {"0": {}, "1": {"numRecordsSkipped": 2}}


def test_a_changelog_is_written_as_debezium_events_with_keys_and_headers(kafka: str, tmp_path: Path) -> None:
    options = {**PLAIN, "format": "debezium-json", "key.format": "raw", "key.fields": "k"}
    table = Table(kafka, options)
    headers = map_of(STRING, VARBINARY)
    metadata = (MetadataField("h", "headers", headers),)
    writer = table.writer(tmp_path / "epochs", metadata)
    writer.recover([OwnerState(0)])
    some = [("from", b"x")]
    batch, kinds = changes(
        (*KV, headers), ("+I", "a", 1, some), ("-U", "a", 1, some), ("+U", "a", 2, None), ("-D", "a", 2, [])
    )
    writer.write(batch, kinds)
    writer.prepare_commit(1)
    writer.close()
    one, two = {"k": "a", "v": 1}, {"k": "a", "v": 2}
    found = read_topic(kafka, table.topic)
    assert [json.loads(record.value or b"") for record in found] == [
        debezium(None, one, "c"), debezium(one, None, "d"), debezium(None, two, "c"), debezium(two, None, "d"),
    ]  # fmt: skip
    assert [record.key for record in found] == [b"a"] * 4
    assert [record.headers for record in found] == [[("from", b"x")], [("from", b"x")], [], []]
    rows, _ = table.read()
    assert rows == [("+I", "a", 1), ("-D", "a", 1), ("+I", "a", 2), ("-D", "a", 2)]


def test_timestamps_go_with_upserts_and_tombstones(kafka: str, tmp_path: Path) -> None:
    table = Table(kafka, UPSERT)
    stamp = timestamp_ltz(3)
    metadata = (MetadataField("at", "timestamp", stamp),)
    writer = table.writer(tmp_path / "epochs", metadata)
    writer.recover([OwnerState(0)])
    first = 1_700_000_000_000
    rows = (("+I", "a", 1, first), ("+I", "b", 2, first + 1), ("+U", "a", 3, first + 2), ("-D", "b", None, first + 3))
    writer.write(*changes((*KV, stamp), *rows))
    writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    table.settle()
    found = [(record.key, record.value, record.timestamp_ms - first) for record in read_topic(kafka, table.topic)]
    assert found == [(b'{"k":"a"}', b'{"k":"a","v":3}', 2), (b'{"k":"b"}', None, 3)]
