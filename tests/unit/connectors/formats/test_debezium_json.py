"""Change events to rows with kinds and back."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import Decoded, MetadataField
from connectors.errors import DirectionError, OptionError, RecordError
from connectors.formats.debezium_json.format import FORMAT
from planner.ir.types import BIGINT, INT, STRING, ChangelogMode, DataType, Field, timestamp
from tests.unit.connectors.formats.json_support import messages

COLUMNS = (Field("id", INT), Field("name", STRING))
KINDS = ("+I", "-U", "+U", "-D")
UTC = datetime.UTC


def event(before: Any, after: Any, op: str | None, **more: Any) -> str:
    return json.dumps({"before": before, "after": after, "op": op, **more})


def image(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name}


def decode(*events: str, metadata: tuple[MetadataField, ...] = (), **options: str) -> Decoded:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return FORMAT.decoder(COLUMNS, named, "Europe/Berlin", metadata).decode(messages(*events))


def changes(decoded: Decoded) -> list[str]:
    """E.g. `+I 1 a`."""
    assert decoded.row_kinds is not None
    columns = [column.to_pylist() for column in decoded.batch.columns]
    rows = zip(decoded.row_kinds.to_pylist(), *columns, strict=True)
    return [f"{KINDS[kind]} {' '.join(map(str, row))}" for kind, *row in rows]


def test_each_op_has_its_kinds_in_the_order_of_the_events() -> None:
    decoded = decode(
        event(None, image(1, "a"), "r"),
        event(image(1, "a"), image(1, "b"), "u", source={"db": "shop", "pos": 17}, ts_ms=5),
        event(None, image(2, None), "c"),
        event(image(1, "b"), None, "d"),
    )
    assert changes(decoded) == ["+I 1 a", "-U 1 a", "+U 1 b", "+I 2 None", "-D 1 b"]
    assert decoded.kept is not None
    assert decoded.kept.tolist() == [0, 1, 1, 2, 3]
    assert decoded.skipped == 0


def test_messages_without_bytes_are_passed_over() -> None:
    decoded = decode("", event(None, image(1, "a"), "c"), "", "", event(image(1, "a"), image(1, "b"), "u"), "")
    assert changes(decoded) == ["+I 1 a", "-U 1 a", "+U 1 b"]
    assert decoded.kept is not None
    assert decoded.kept.tolist() == [1, 4, 4]
    assert changes(decode("", "")) == []


def test_the_payload_of_a_message_with_a_schema() -> None:
    changed = {"before": None, "after": image(3, "c"), "op": "c"}
    with_schema = [json.dumps({"schema": schema, "payload": changed}) for schema in ({"type": "struct"}, {}, None)]
    assert changes(decode(*with_schema, schema_include="true")) == ["+I 3 c"] * 3


def test_rows_without_columns_are_counted() -> None:
    decoder = FORMAT.decoder((), {}, "UTC")
    decoded = decoder.decode(messages(event(None, image(1, "a"), "c"), event(image(1, "a"), image(1, "b"), "u")))
    assert decoded.batch.num_rows == 3
    with pytest.raises(RecordError, match="'before' of an event with op 'd' is null"):
        decoder.decode(messages(event(None, None, "d")))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event(None, image(1, "b"), "u"), "the field 'before' of an event with op 'u' is null"),
        (event(None, None, "d"), "the field 'before' of an event with op 'd' is null"),
        (event(image(1, "a"), None, "u"), "the field 'after' of an event with op 'u' is null"),
        (event(None, None, "c"), "the field 'after' of an event with op 'c' is null"),
        (event(None, None, "t"), "unknown 'op' \"t\""),
        (event(None, image(1, "a"), None), "the field 'op' is missing"),
        ('{"payload": {}}', "the field 'op' is missing"),
        ("no json", "Expecting value"),
    ],
)
def test_an_event_that_is_no_change_is_named_or_counted(bad: str, reason: str) -> None:
    good = event(None, image(7, "g"), "c")
    with pytest.raises(RecordError) as caught:
        decode(good, bad)
    assert reason in caught.value.message
    assert "message 1" in caught.value.message
    assert "'debezium-json.ignore-parse-errors'" in caught.value.hint
    decoded = decode(bad, good, bad, ignore_parse_errors="true")
    assert changes(decoded) == ["+I 7 g"]
    assert decoded.skipped == 2
    assert decoded.kept is not None
    assert decoded.kept.tolist() == [1]


def test_a_missing_old_row_says_what_to_do_in_postgres() -> None:
    with pytest.raises(RecordError) as caught:
        decode(event(None, image(1, "b"), "u"))
    assert "REPLICA IDENTITY FULL" in caught.value.hint


def test_a_field_that_does_not_fit_is_named_with_its_image() -> None:
    with pytest.raises(RecordError, match=r"field 'after\.id': 'x' is not an INT"):
        decode(event(None, {"id": "x", "name": "a"}, "c"))


SOURCE = {
    "version": "2.7",
    "ts_ms": 1_700_000_000_000,
    "db": "shop",
    "schema": "public",
    "table": "t",
    "snapshot": True,
}
KEYS = ("ingestion-timestamp", "source.timestamp", "source.database", "source.schema", "source.table")
INSTANT = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def metadata(*keys: str) -> tuple[MetadataField, ...]:
    return tuple(MetadataField(key, key, FORMAT.metadata_types({})[key]) for key in keys)


@pytest.mark.parametrize("schema_include", [False, True])
def test_metadata_of_both_rows_of_an_update(schema_include: bool) -> None:
    text = event(image(1, "a"), image(1, "b"), "u", ts_ms=1_700_000_000_123, source=SOURCE)
    if schema_include:
        text = f'{{"schema": {{"a": 1}}, "payload": {text}}}'
    include = {"schema_include": str(schema_include).lower()}
    decoded = decode(text, metadata=metadata(*KEYS), **include)
    taken = INSTANT.replace(microsecond=123_000)
    assert [c.to_pylist() for c in decoded.batch.columns[2:]] == [
        [taken] * 2, [INSTANT] * 2, ["shop"] * 2, ["public"] * 2, ["t"] * 2,
    ]  # fmt: skip
    decoded = decode(text, metadata=metadata("source.properties", "schema", "source.table"), **include)
    properties, schema, table = (column[0].as_py() for column in decoded.batch.columns[2:])
    assert dict(properties) == {**{k: str(v) for k, v in SOURCE.items()}, "snapshot": "true"}
    assert (schema, table) == ('{"a":1}' if schema_include else None, "t")


def test_absent_metadata_is_null_and_a_declared_type_is_kept() -> None:
    decoded = decode(event(None, image(1, "a"), "c"), metadata=metadata(*KEYS, "source.properties", "schema"))
    assert all(column.null_count == 1 for column in decoded.batch.columns[2:])
    local = (MetadataField("at", "ingestion-timestamp", timestamp(3)),)
    decoded = decode(event(None, image(1, "a"), "c", ts_ms=1_700_000_000_000), metadata=local)
    assert decoded.batch.column(2).to_pylist() == [datetime.datetime(2023, 11, 14, 23, 13, 20)]


def test_additions_are_written_as_c_and_removals_as_d() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3, 4], pa.int32()), pa.array(["a", None, "c", "d"])], ["c0", "c1"]
    )
    kinds: Any = pa.array([0, 1, 2, 3], pa.int8())
    written = FORMAT.encoder(COLUMNS, {}, "UTC").encode(batch, kinds).to_pylist()
    assert written == [
        b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        b'{"before":{"id":2,"name":null},"after":null,"op":"d"}',
        b'{"before":null,"after":{"id":3,"name":"c"},"op":"c"}',
        b'{"before":{"id":4,"name":"d"},"after":null,"op":"d"}',
    ]
    sparse = FORMAT.encoder(COLUMNS, {"encode.ignore-null-fields": "true"}, "UTC").encode(batch, kinds).to_pylist()
    assert sparse[:2] == [b'{"after":{"id":1,"name":"a"},"op":"c"}', b'{"before":{"id":2},"op":"d"}']
    assert FORMAT.encoder(COLUMNS, {}, "UTC").encode(batch).to_pylist()[1] == (
        b'{"before":null,"after":{"id":2,"name":null},"op":"c"}'
    )


def test_what_the_format_is_and_refuses() -> None:
    assert FORMAT.changelog({}) is ChangelogMode.RETRACT
    with pytest.raises(DirectionError, match="cannot write messages with a schema"):
        FORMAT.encoder(COLUMNS, {"schema-include": "true"}, "UTC")
    with pytest.raises(OptionError) as caught:
        FORMAT.validate({"schema-inclde": "true"})
    assert caught.value.option == "debezium-json.schema-inclde"
    assert "'debezium-json.schema-include'" in caught.value.hint
    with pytest.raises(OptionError, match=r"debezium-json\.ignore-parse-errors must be true or false"):
        FORMAT.validate({"ignore-parse-errors": "maybe"})


names = st.one_of(st.none(), st.text(max_size=5))
images = st.builds(image, st.integers(-(2**31), 2**31 - 1), names)
events = st.lists(
    st.one_of(
        st.tuples(st.none(), images, st.sampled_from("cr")),
        st.tuples(images, images, st.just("u")),
        st.tuples(images, st.none(), st.just("d")),
        st.tuples(st.none(), images, st.sampled_from(["u", "d", "x"])),
        st.just("{broken"),
    ),
    max_size=40,
)


@given(events)
def test_rows_are_those_of_each_event_by_itself(given_events: list[Any]) -> None:
    texts = [each if isinstance(each, str) else event(*each) for each in given_events]
    together = decode(*texts, ignore_parse_errors="true")
    alone = [decode(text, ignore_parse_errors="true") for text in texts]
    assert changes(together) == [change for each in alone for change in changes(each)]
    assert together.skipped == sum(each.skipped for each in alone)
    assert together.kept is not None
    assert together.kept.tolist() == [i for i, each in enumerate(alone) for _ in range(each.batch.num_rows)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), names), max_size=20))
def test_what_was_written_reads_back_as_additions_and_removals(rows: list[tuple[int, int, str | None]]) -> None:
    types: tuple[DataType, ...] = (BIGINT, STRING)
    columns = tuple(Field(f"f{i}", t) for i, t in enumerate(types))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([r[1] for r in rows], pa.int64()), pa.array([r[2] for r in rows], pa.string())], ["c0", "c1"]
    )
    kinds: Any = pa.array([r[0] for r in rows], pa.int8())
    written = FORMAT.encoder(columns, {}, "UTC").encode(batch, kinds).to_pylist()
    decoded = FORMAT.decoder(columns, {}, "UTC").decode(messages(*(text for text in written if text is not None)))
    assert decoded.batch.to_pylist() == batch.to_pylist()
    assert decoded.row_kinds is not None
    assert decoded.row_kinds.to_pylist() == [0 if kind in (0, 2) else 3 for kind, _, _ in rows]


def test_a_file_as_flink_reads_and_writes_it() -> None:
    """Recorded from Flink 2.2.1 (filesystem to filesystem), 'debezium-json.ignore-parse-errors' = 'true'."""
    decoded = decode(
        event(None, image(1, "a"), "r"),
        event(image(1, "a"), image(1, None), "u"),
        event(None, image(2, "b"), "u"),
        event(image(1, "x"), None, "d"),
        event(None, None, "c"),
        '{"op": null}',
        "nojson",
        event(None, {"id": "z", "name": "k"}, "c"),
        event(None, image(9, "t"), "t"),
        event(None, image(2, '"q'), "c", ts_ms=5),
        ignore_parse_errors="true",
    )
    assert changes(decoded) == ["+I 1 a", "-U 1 a", "+U 1 None", "-D 1 x", "+I None k", '+I 2 "q']
    assert FORMAT.encoder(COLUMNS, {}, "UTC").encode(decoded.batch, decoded.row_kinds).to_pylist() == [
        b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        b'{"before":{"id":1,"name":"a"},"after":null,"op":"d"}',
        b'{"before":null,"after":{"id":1,"name":null},"op":"c"}',
        b'{"before":{"id":1,"name":"x"},"after":null,"op":"d"}',
        b'{"before":null,"after":{"id":null,"name":"k"},"op":"c"}',
        b'{"before":null,"after":{"id":2,"name":"\\"q"},"op":"c"}',
    ]
    sparse = FORMAT.encoder(COLUMNS, {"encode.ignore-null-fields": "true"}, "UTC")
    assert sparse.encode(decoded.batch, decoded.row_kinds).to_pylist() == [
        b'{"after":{"id":1,"name":"a"},"op":"c"}',
        b'{"before":{"id":1,"name":"a"},"op":"d"}',
        b'{"after":{"id":1},"op":"c"}',
        b'{"before":{"id":1,"name":"x"},"op":"d"}',
        b'{"after":{"name":"k"},"op":"c"}',
        b'{"after":{"id":2,"name":"\\"q"},"op":"c"}',
    ]
