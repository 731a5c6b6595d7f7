"""Cases of topics and files that hold changes: upserts by key, Debezium events, and results that update themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.standalone import GatewayError, Session, Standalone
from tests.support.topics import Record, create_topic, produce, read_topic, unique_name

pytestmark = pytest.mark.kafka

DEADLINE_S = 60.0
PARALLELISM = pytest.mark.parametrize("parallelism", ["1", "3"])


class Place:
    """A session, a broker and a folder of one test."""

    def __init__(self, cluster: Standalone, kafka: str, directory: Path, parallelism: str) -> None:
        self.cluster = cluster
        self.kafka = kafka
        self.directory = directory
        self.session: Session = cluster.session({"parallelism.default": parallelism})

    def topic(self, *records: tuple[Any, Any], partitions: int = 1) -> str:
        """A new topic with these keys and values as JSON, all in partition 0; None = none."""
        topic = unique_name("case")
        create_topic(self.kafka, topic, partitions)
        encoded = [[None if part is None else json.dumps(part).encode() for part in record] for record in records]
        produce(self.kafka, topic, [Record(0, key, value) for key, value in encoded])
        return topic

    def lines(self, *values: Any) -> Path:
        path = self.directory / f"{unique_name('events')}.jsonl"
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return path

    def create(self, name: str, columns: str, **options: str) -> None:
        given = {option.replace("__", ".").replace("_", "-"): value for option, value in options.items()}
        if "topic" in given:
            given["properties.bootstrap.servers"] = self.kafka
        listed = ", ".join(f"'{option}' = '{value}'" for option, value in given.items())
        self.session.execute(f"CREATE TABLE {name} ({columns}) WITH ({listed})")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return sorted(self.session.execute(query).rows)

    def insert(self, statement: str) -> None:
        job_id = self.session.execute(statement).job_id
        assert job_id is not None
        self.cluster.wait_for_job(job_id, "FINISHED", DEADLINE_S)

    def by_key(self, topic: str) -> dict[str, Any]:
        """What an upsert topic holds: values by the JSON of the key."""
        found: dict[str, Any] = {}
        for record in read_topic(self.kafka, topic):
            key = (record.key or b"").decode()
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = json.loads(record.value)
        return found


@pytest.fixture
def place(cluster: Standalone, kafka: str, tmp_path: Path, parallelism: str) -> Place:
    return Place(cluster, kafka, tmp_path, parallelism)


UPSERT = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json"}
BOUNDED = {"scan__bounded__mode": "latest-offset"}


def change(before: Any, after: Any, op: str) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op}


@pytest.mark.parametrize("parallelism", ["3"])
def test_a_deleted_key_comes_back_and_an_unknown_one_is_deleted(place: Place) -> None:
    """A tombstone of a key that never was may not take anything away; one of a known key takes its whole row."""
    a, b, c, d = ({"sku": name} for name in ("a", "b", "c", "d"))
    topic = place.topic(
        (a, {"n": 3}), (b, {"n": 4}), (a, None), (c, None), (b, {"n": 40}), (a, {"n": 7}), (d, {"n": 1}), (d, None)
    )
    place.create("stock", "sku STRING, n INT, PRIMARY KEY (sku) NOT ENFORCED", topic=topic, **UPSERT, **BOUNDED)
    assert place.rows("SELECT sku, n FROM stock") == [("a", 7), ("b", 40)]
    assert place.rows("SELECT COUNT(*), SUM(n) FROM stock") == [(2, 47)]
    assert place.rows("SELECT sku FROM stock WHERE n < 10") == [("a",)]


@pytest.mark.parametrize("parallelism", ["3"])
def test_a_debezium_topic_from_its_snapshot_to_a_tombstone(place: Place) -> None:
    one, two, three = ({"id": i, "town": town} for i, town in ((1, "Ulm"), (2, "Bonn"), (3, "Kiel")))
    moved = {"id": 2, "town": "Köln"}
    topic = place.topic(
        ({"id": 1}, change(None, one, "r")),
        ({"id": 2}, change(None, two, "r")),
        ({"id": 3}, change(None, three, "c")),
        ({"id": 2}, change(two, moved, "u")),
        ({"id": 1}, change(one, None, "d")),
        ({"id": 1}, None),
    )
    start = {"scan__startup__mode": "earliest-offset", **BOUNDED}
    columns = "id INT, town STRING, PRIMARY KEY (id) NOT ENFORCED"
    place.create("people", columns, connector="kafka", topic=topic, format="debezium-json", **start)
    assert place.rows("SELECT id, town FROM people") == [(2, "Köln"), (3, "Kiel")]
    assert place.rows("SELECT COUNT(*), MIN(town) FROM people") == [(2, "Kiel")]


@pytest.mark.parametrize("parallelism", ["1"])
def test_events_with_their_schema_in_a_file(place: Place) -> None:
    first, second = {"id": 1, "v": 10}, {"id": 1, "v": 12}
    path = place.lines(
        {"schema": {"type": "struct"}, "payload": change(None, first, "c")},
        {"schema": {}, "payload": change(first, second, "u")},
        {"schema": None, "payload": change(None, {"id": 2, "v": 5}, "c")},
    )
    options = {"format": "debezium-json", "debezium_json__schema_include": "true"}
    place.create("t", "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED", connector="filesystem", path=str(path), **options)
    assert place.rows("SELECT id, v FROM t") == [(1, 12), (2, 5)]


@PARALLELISM
def test_the_old_owner_of_a_key_cannot_delete_the_new_one(place: Place) -> None:
    """The sink's key is not the query's: desk 7 passes from one person to another, and the removal of the first may
    come after the arrival of the second."""
    path = place.lines(
        change(None, {"person": "eve", "desk": 7}, "c"),
        change({"person": "eve", "desk": 7}, {"person": "eve", "desk": 8}, "u"),
        change(None, {"person": "bob", "desk": 7}, "c"),
        change(None, {"person": "joe", "desk": 9}, "c"),
        change({"person": "joe", "desk": 9}, {"person": "joe", "desk": 10}, "u"),
        change({"person": "joe", "desk": 10}, None, "d"),
    )
    columns = "person STRING, desk INT, PRIMARY KEY (person) NOT ENFORCED"
    place.create("people", columns, connector="filesystem", path=str(path), format="debezium-json")
    topic = place.topic()
    place.create("desks", "desk INT, person STRING, PRIMARY KEY (desk) NOT ENFORCED", topic=topic, **UPSERT)
    place.insert("INSERT INTO desks SELECT desk, person FROM people")
    assert place.by_key(topic) == {
        '{"desk":7}': {"desk": 7, "person": "bob"},
        '{"desk":8}': {"desk": 8, "person": "eve"},
    }


@pytest.mark.parametrize("parallelism", ["3"])
def test_events_delivered_twice_count_once_when_told_so(place: Place) -> None:
    one, two = {"id": 1, "v": 10}, {"id": 1, "v": 20}
    three = {"id": 3, "v": 8}
    events = [
        *[change(None, one, "c")] * 2,
        *[change(one, two, "u")] * 2,
        change(None, {"id": 2, "v": 5}, "c"),
        change(None, three, "c"),
        *[change(three, None, "d")] * 2,
    ]
    path = place.lines(*events)
    columns = "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED"
    place.create("t", columns, connector="filesystem", path=str(path), format="debezium-json")
    place.session.execute("SET 'table.exec.source.cdc-events-duplicate' = 'true'")
    assert place.rows("SELECT COUNT(*), SUM(v) FROM t") == [(2, 25)]


@PARALLELISM
def test_from_upserts_over_groups_to_upserts(place: Place) -> None:
    """Group b loses all its members: its key must go from the target, and a reader of the target sees that."""
    topic = place.topic(
        ({"id": 1}, {"g": "a", "v": 1}),
        ({"id": 2}, {"g": "b", "v": 2}),
        ({"id": 3}, {"g": "a", "v": 3}),
        ({"id": 2}, {"g": "c", "v": 20}),
        ({"id": 3}, None),
    )
    columns = "id INT, g STRING, v INT, PRIMARY KEY (id) NOT ENFORCED"
    place.create("items", columns, topic=topic, value__fields_include="EXCEPT_KEY", **UPSERT, **BOUNDED)
    target = place.topic(partitions=3)
    place.create("totals", "g STRING, n BIGINT, s INT, PRIMARY KEY (g) NOT ENFORCED", topic=target, **UPSERT)
    place.insert("INSERT INTO totals SELECT g, COUNT(*), SUM(v) FROM items GROUP BY g")
    assert place.by_key(target) == {
        '{"g":"a"}': {"g": "a", "n": 1, "s": 1},
        '{"g":"c"}': {"g": "c", "n": 1, "s": 20},
    }
    again = "SELECT g, n, s FROM totals /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */"
    assert place.rows(again) == [("a", 1, 1), ("c", 1, 20)]


@pytest.mark.parametrize("parallelism", ["1"])
def test_print_shows_each_change_with_its_kind(place: Place) -> None:
    topic = place.topic(({"k": "x"}, {"v": 1}), ({"k": "y"}, {"v": 5}), ({"k": "x"}, {"v": 2}), ({"k": "y"}, None))
    place.create("src", "k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED", topic=topic, **UPSERT, **BOUNDED)
    label = unique_name("shown")
    place.create("shown", "c BIGINT, s INT", connector="print", print_identifier=label)
    place.insert("INSERT INTO shown SELECT COUNT(*), SUM(v) FROM src")
    lines = [line.split("> ")[1] for line in place.cluster.tail(200).splitlines() if line.startswith(label)]
    assert lines == [
        "+I[1, 1]",
        "-U[1, 1]",
        "+U[2, 6]",
        "-U[2, 6]",
        "+U[1, 5]",
        "-U[1, 5]",
        "+U[2, 7]",
        "-U[2, 7]",
        "+U[1, 2]",
    ]


@pytest.mark.parametrize("parallelism", ["1"])
def test_keys_headers_and_metadata_go_through_a_job(place: Place) -> None:
    topic = unique_name("case")
    create_topic(place.kafka, topic)
    headers = [("trace", b"t-1"), ("kind", b"demo")]
    produce(place.kafka, topic, [Record(0, b'{"id": 4}', b'{"name": "n"}', 1_700_000_000_000, headers)])
    keyed = {"key__format": "json", "key__fields": "k_id", "key__fields_prefix": "k_", "format": "json"}
    common = {"connector": "kafka", **keyed, "value__fields_include": "EXCEPT_KEY"}
    columns = """k_id INT, name STRING, sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
      h MAP<STRING, BYTES> METADATA FROM 'headers'"""
    read_only = f"{columns}, kind STRING METADATA FROM 'timestamp-type' VIRTUAL"
    place.create("src", read_only, topic=topic, scan__startup__mode="earliest-offset", **common, **BOUNDED)
    target = place.topic()
    place.create("dst", columns, topic=target, **common)
    assert place.rows("SELECT k_id, name, kind FROM src") == [(4, "n", "CreateTime")]
    place.insert("INSERT INTO dst SELECT k_id + 1, name, sent, h FROM src")
    (record,) = read_topic(place.kafka, target)
    assert (record.key, record.value, record.timestamp_ms) == (b'{"id":5}', b'{"name":"n"}', 1_700_000_000_000)
    assert sorted(record.headers) == sorted(headers)


@pytest.mark.parametrize("parallelism", ["1"])
def test_raw_values_come_back_as_they_were_written(place: Place) -> None:
    """Empty is not NULL: a record without value is a row whose one column is NULL, both ways."""
    topic = unique_name("case")
    create_topic(place.kafka, topic)
    values = [b"a line", "größer".encode(), b"", None, b"{not json", b'"quoted", \\ and \ttabs', None]
    produce(place.kafka, topic, [Record(0, None, value) for value in values])
    start = {"scan__startup__mode": "earliest-offset", **BOUNDED}
    place.create("lines", "line STRING", connector="kafka", topic=topic, format="raw", **start)
    texts = [None if value is None else value.decode() for value in values]
    assert place.session.execute("SELECT line FROM lines").rows == [(text,) for text in texts]
    assert place.rows("SELECT COUNT(*), COUNT(line), MAX(CHAR_LENGTH(line)) FROM lines") == [(7, 5, 21)]
    target = place.topic()
    place.create("copy", "line STRING", connector="kafka", topic=target, format="raw")
    place.insert("INSERT INTO copy SELECT line FROM lines")
    assert [record.value for record in read_topic(place.kafka, target)] == values


@pytest.mark.parametrize("parallelism", ["1"])
def test_an_update_without_its_old_row_fails_and_says_what_to_do(place: Place) -> None:
    path = place.lines(change(None, {"id": 1, "v": 2}, "u"))
    columns = "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED"
    place.create("t", columns, connector="filesystem", path=str(path), format="debezium-json")
    with pytest.raises(GatewayError, match="REPLICA IDENTITY FULL"):
        place.rows("SELECT id, v FROM t")
