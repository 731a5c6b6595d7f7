"""What an upsert sink leaves out, and the options of upsert-kafka."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import TableDefinition
from connectors.errors import DirectionError, OptionError
from connectors.kafka.options import DeliveryGuarantee, StartupMode
from connectors.kafka.upserts import UpsertBuffer, last_per_key, removals
from connectors.upsert_kafka.options import sink_options, source_options
from planner.ir.types import BIGINT, STRING, ChangelogMode, Field

COLUMNS = (Field("id", BIGINT), Field("name", STRING), Field("price", BIGINT))
BASE = {
    "connector": "upsert-kafka",
    "topic": "prices",
    "properties.bootstrap.servers": "localhost:9092",
    "key.format": "json",
    "value.format": "json",
}


def table(*without: str, key: tuple[str, ...] = ("id",), **options: str) -> TableDefinition:
    given = BASE | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return TableDefinition("t", {k: v for k, v in given.items() if k not in without}, COLUMNS, key)


def test_defaults() -> None:
    source = source_options(table())
    assert source.startup is StartupMode.EARLIEST
    assert source.changelog is ChangelogMode.UPSERT
    assert (source.value.columns, source.key and source.key.columns) == ((0, 1, 2), (0,))
    sink = sink_options(table(key=("name", "id")))
    assert sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert sink.committing
    assert sink.key is not None
    assert sink.key.columns == (1, 0)
    assert (sink.buffer_rows_max, sink.buffer_interval_ms) == (0, 0)
    assert not sink_options(table(sink__delivery_guarantee="none")).committing


def test_the_key_may_stay_out_of_the_value() -> None:
    options = source_options(table(value__fields_include="EXCEPT_KEY", value__json__ignore_parse_errors="true"))
    assert options.value.columns == (1, 2)
    assert options.value.options == {"ignore-parse-errors": "true"}


def test_the_changelog_a_table_reads_and_takes() -> None:
    connector = registry.connector("upsert-kafka")
    assert connector.source(table()).changelog is ChangelogMode.UPSERT
    assert connector.sink(table()).changelog is ChangelogMode.UPSERT
    plain = TableDefinition("t", {**BASE, "connector": "kafka", "scan.startup.mode": "earliest-offset"}, COLUMNS)
    plain.options.pop("key.format")
    assert registry.connector("kafka").source(plain).changelog is ChangelogMode.INSERT_ONLY
    plain.options["value.format"] = "debezium-json"
    assert registry.connector("kafka").sink(plain).changelog is ChangelogMode.RETRACT
    assert "value.source.table" in registry.connector("kafka").source(plain).metadata_types


@pytest.mark.parametrize(
    ("definition", "option"),
    [
        (table(key=()), "connector"),
        (table("key.format"), "key.format"),
        (table("value.format"), "value.format"),
        (table("value.format", format="json"), "format"),
        (table(value__format="debezium-json"), "value.format"),
        (table(key__format="debezium-json"), "key.format"),
        (table(key__fields="id"), "key.fields"),
        (table(scan__startup__mode="latest-offset"), "scan.startup.mode"),
        (table(sink__partitioner="fixed"), "sink.partitioner"),
        (table(sink__buffer_flush__max_rows="10"), "sink.buffer-flush.interval"),
        (table(sink__buffer_flush__interval="1 s"), "sink.buffer-flush.max-rows"),
        (table(sink__buffer_flush__max_rows="many", sink__buffer_flush__interval="1 s"), "sink.buffer-flush.max-rows"),
        (table(sink__bufer_flush__interval="1 s"), "sink.bufer-flush.interval"),
    ],
)
def test_mistakes_are_named(definition: TableDefinition, option: str) -> None:
    with pytest.raises(OptionError) as caught:
        sink_options(definition)
    assert caught.value.option == option
    assert not isinstance(caught.value, DirectionError)


def test_a_topic_of_rows_has_no_primary_key() -> None:
    options = {**BASE, "connector": "kafka", "scan.startup.mode": "earliest-offset", "key.fields": "id"}
    for read in (registry.connector("kafka").source, registry.connector("kafka").sink):
        with pytest.raises(OptionError, match="cannot have a PRIMARY KEY") as caught:
            read(TableDefinition("t", options, COLUMNS, ("id",)))
        assert "upsert-kafka" in caught.value.hint


def test_the_last_row_of_a_key_stays_in_order() -> None:
    keys = pa.array([b"a", b"b", b"a", b"c", b"b", b"b"])
    found = last_per_key(keys)
    assert found is not None
    assert found.tolist() == [2, 3, 5]
    assert last_per_key(pa.array([b"a", b"b"])) is None
    assert last_per_key(pa.array([], pa.binary())) is None
    random = np.random.default_rng(1).integers(0, 50, 1000)
    found = last_per_key(pa.array([b"%d" % key for key in random]))
    assert found is not None
    assert found.tolist() == sorted({int(key): row for row, key in enumerate(random)}.values())


def test_removals_by_kind() -> None:
    assert removals(None, 2).tolist() == [False, False]
    assert removals(pa.array([0, 1, 2, 3], pa.int8()), 4).tolist() == [False, True, False, True]


def test_a_buffer_is_due_by_rows_or_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("connectors.kafka.upserts.time.monotonic", lambda: now[0])
    buffer = UpsertBuffer(rows_max=4, interval_ms=1000)

    def batch(*values: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["c0"])

    deletes: Any = pa.array([3, 3], pa.int8())
    assert buffer.add(batch(1), None) is None
    due = buffer.add(batch(2, 3), deletes)
    assert due is None
    due = buffer.add(batch(4), None)
    assert due is not None
    assert due[0].column(0).to_pylist() == [1, 2, 3, 4]
    assert due[1].to_pylist() == [0, 3, 3, 0]
    assert buffer.add(batch(5), None) is None
    now[0] += 1.0
    due = buffer.add(batch(6), None)
    assert due is not None
    assert due[0].column(0).to_pylist() == [5, 6]
    assert buffer.drain() is None


@pytest.mark.parametrize("hashes", [[1, 2, 3, 4], [1, 2, 1, 3], [7, 7, 7, 7]])
def test_equal_hashes_alone_make_no_key_equal(hashes: list[int]) -> None:
    found = np.array(hashes, np.uint32)
    assert last_per_key(pa.array([b"a", b"b", b"c", b"d"]), found) is None
    if hashes[0] == hashes[2]:
        last = last_per_key(pa.array([b"a", b"b", b"a", b"c"]), found)
        assert last is not None
        assert last.tolist() == [1, 2, 3]
