"""The rounds of test_kill_rounds for a regular join, an interval join, a temporal join and a Top-N: aligned and
unaligned checkpoints, state in memory and in RocksDB (the seed says which job has which). 2 rounds always, 200 in
`make chaos`."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.test_exactly_once_changelogs import Change, changes
from tests.integration.test_savepoints import KAFKA_SINK, SETTINGS, UPSERT_SINK, until
from tests.support import events as ev
from tests.support.cluster import Cluster
from tests.support.kill_rounds import SEED, UNALIGNED, Job, Rounds, in_rounds, part_of
from tests.support.topics import ReadRecord, Record, create_topic, read_topic, unique_name

pytestmark = pytest.mark.kafka
RECORDS_PER_ROUND = 600
ROUND_MS = 15_000
"""Event time of a round."""
EVENT_COLUMNS = "id BIGINT, k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
CHANGE_COLUMNS = "id BIGINT, k STRING, v INT, PRIMARY KEY (id) NOT ENFORCED"
VERSION_COLUMNS = """k STRING, w INT, ts TIMESTAMP(3) METADATA FROM 'timestamp', PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"""
JSON = "'connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
DEBEZIUM = "'connector' = 'kafka', 'format' = 'debezium-json', 'scan.startup.mode' = 'earliest-offset'"


class Source(NamedTuple):
    """A table over a topic that `records` go to."""

    name: str
    columns: str
    options: str
    records: list[Record]


class QueryJob(Job):
    """A query over one or two topics. `expected` is what the sink's topic must hold in the end: by its key, or, without
    keys, as a bag of rows."""

    columns: str
    query: str
    sink = KAFKA_SINK

    def __init__(self, cluster: Cluster, kafka: str, records: int) -> None:
        super().__init__(cluster, kafka)
        self.target = unique_name("out")
        create_topic(kafka, self.target, ev.PARTITIONS)
        self.sources = self.inputs(records)
        self.topics = [unique_name(source.name) for source in self.sources]
        for topic in self.topics:
            create_topic(kafka, topic, ev.PARTITIONS)

    def inputs(self, records: int) -> list[Source]:
        raise NotImplementedError

    def expected(self) -> Any:
        raise NotImplementedError

    def start(self, parallelism: int, settings: dict[str, str]) -> None:
        self.parallelism = parallelism
        session = self.cluster.session({**SETTINGS, **settings, "parallelism.default": str(parallelism)})
        broker = f"'properties.bootstrap.servers' = '{self.kafka}'"
        for source, topic in zip(self.sources, self.topics, strict=True):
            ends = ev.ended_at(Counter(record.partition for record in source.records))
            session.execute(
                f"""CREATE TABLE {source.name} ({source.columns}) WITH ({source.options}, {broker}, 'topic' = '{topic}',
                  'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = '{ends}')"""
            )
        session.execute(
            f"""CREATE TABLE dst ({self.columns}) WITH ({self.sink}, {broker}, 'topic' = '{self.target}',
              'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{self.prefix}')"""
        )
        self.job_id = session.execute(f"INSERT INTO dst {self.query}").job_id or ""

    def feed(self, number: int, duration_s: float, last: bool) -> ev.PacedRecords:
        part = part_of(number, last, RECORDS_PER_ROUND)
        sent = [
            (topic, record)
            for source, topic in zip(self.sources, self.topics, strict=True)
            for record in source.records[part]
        ]
        random.Random(number).shuffle(topics := [topic for topic, _ in sent])  # Both at once, each in its order.
        rest = {topic: iter([record for of, record in sent if of == topic]) for topic in self.topics}
        producer = ev.PacedRecords(self.kafka, [(topic, next(rest[topic])) for topic in topics], len(sent), duration_s)
        producer.start()
        return producer

    def check(self, kills: list[str]) -> None:
        super().check(kills)
        found, expected = self.found(read_topic(self.kafka, self.target)), self.expected()
        assert found == expected, (type(self).__name__, kills, list(difference(found, expected))[:20])

    def found(self, records: list[ReadRecord]) -> Any:
        """The rows as a bag."""
        return Counter(tuple(json.loads(record.value or b"null").values()) for record in records)


def difference(found: dict[Any, Any], expected: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """(key, found, expected) where they differ."""
    for key in sorted(found.keys() | expected.keys(), key=str):
        if found.get(key) != expected.get(key):
            yield key, found.get(key), expected.get(key)


class TableJob(QueryJob):
    sink = UPSERT_SINK

    def found(self, records: list[ReadRecord]) -> Any:
        """The table, by the values of its key."""
        table: dict[Any, Any] = {}
        for record in records:
            key = tuple(json.loads(record.key or b"null").values())
            table.pop(key, None)
            if record.value is not None:
                table[key] = tuple(json.loads(record.value).values())
        return table


def rows_of(found: list[Change]) -> dict[int, tuple[str, int]]:
    """What is there after all changes: id → (k, v)."""
    rows: dict[int, tuple[str, int]] = {}
    for change in found:
        rows.pop(change.id, None)
        if change.after is not None:
            rows[change.id] = change.after
    return rows


class RegularJoin(TableJob):
    """Both sides change: rows move between keys, so that their changes come from several subtasks, and a row on the
    left has none, one or several partners. What has none shows -1, so no upsert key is left."""

    columns = "id BIGINT, other BIGINT, k STRING, v INT, w INT, PRIMARY KEY (id, other) NOT ENFORCED"
    query = "SELECT l.id, COALESCE(r.id, -1), l.k, l.v, r.v FROM l LEFT JOIN r ON l.k = r.k"

    def inputs(self, records: int) -> list[Source]:
        groups = records // 20
        self.left, self.right = list(changes(records, SEED, groups)), list(changes(records, -SEED, groups))
        upserts = [
            Record(
                change.partition,
                json.dumps({"id": change.id}).encode(),
                None
                if change.after is None
                else json.dumps({"id": change.id, "k": change.after[0], "v": change.after[1]}).encode(),
            )
            for change in self.right
        ]
        return [
            Source("l", CHANGE_COLUMNS, DEBEZIUM, [Record(c.partition, None, c.encode()) for c in self.left]),
            Source("r", CHANGE_COLUMNS, UPSERT_SINK, upserts),
        ]

    def expected(self) -> dict[Any, Any]:
        partners: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        for identity, (k, w) in rows_of(self.right).items():
            partners[k].append((identity, w))
        return {
            (identity, other): (identity, other, k, v, w)
            for identity, (k, v) in rows_of(self.left).items()
            for other, w in partners.get(k, [(-1, None)])
        }


class IntervalJoin(QueryJob):
    """About every second row on the left has no partner: it is padded when the watermark says that none will come."""

    columns = "id BIGINT, other BIGINT"
    query = """SELECT o.id, s.id FROM o LEFT JOIN s
      ON o.k = s.k AND s.ts BETWEEN o.ts - INTERVAL '2' SECOND AND o.ts + INTERVAL '4' SECOND"""

    def inputs(self, records: int) -> list[Source]:
        span_ms = ROUND_MS * records // RECORDS_PER_ROUND
        self.left, self.right = (list(ev.events(records, seed, 0.0, span_ms, 300)) for seed in (SEED, -SEED - 1))
        return [
            Source(name, EVENT_COLUMNS, JSON, [Record(e.partition, None, e.encode()) for e in found])
            for name, found in (("o", self.left), ("s", self.right))
        ]

    def expected(self) -> Counter[Any]:
        partners: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for event in self.right:
            partners[event.k].append((event.ts_ms, event.id))
        found: Counter[Any] = Counter()
        for event in self.left:
            others: list[int | None] = [
                i for ts_ms, i in partners[event.k] if event.ts_ms - 2_000 <= ts_ms <= event.ts_ms + 4_000
            ]
            found.update((event.id, other) for other in others or [None])
        return found


class TemporalJoin(QueryJob):
    """Versions come in order per key, not among keys, and some are deletions; a row's version is the last one whose
    time (that of its message) is not behind the row's."""

    columns = "id BIGINT, v INT, w INT"
    query = "SELECT o.id, o.v, r.w FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"

    def inputs(self, records: int) -> list[Source]:
        span_ms = ROUND_MS * records // RECORDS_PER_ROUND
        self.left = list(ev.events(records, SEED, 0.0, span_ms, 100))
        self.versions: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        rng, upserts = random.Random(SEED), []
        for number in range(records):
            key = rng.randrange(100)
            known = self.versions[f"key-{key}"]
            # Less than the watermark's delay behind, also of those that were moved on.
            ts_ms = 60_000 + number * span_ms // records - rng.randrange(3_000)
            ts_ms = max(ts_ms, known[-1][0] + 1) if known else ts_ms
            w = None if rng.random() < 0.2 else number
            known.append((ts_ms, w))
            key_json = json.dumps({"k": f"key-{key}"}).encode()
            value = None if w is None else json.dumps({"k": f"key-{key}", "w": w}).encode()
            epoch_ms = int(ev.EPOCH.timestamp() * 1000)
            upserts.append(Record(key % ev.PARTITIONS, key_json, value, epoch_ms + ts_ms))
        return [
            Source("o", EVENT_COLUMNS, JSON, [Record(e.partition, None, e.encode()) for e in self.left]),
            Source("r", VERSION_COLUMNS, UPSERT_SINK, upserts),
        ]

    def expected(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for event in self.left:
            known = self.versions[event.k]
            place = bisect_right([ts_ms for ts_ms, _ in known], event.ts_ms)
            found[(event.id, event.v, known[place - 1][1] if place else None)] += 1
        return found


class TopN(TableJob):
    """Of rows that change: what goes makes room for one that was behind."""

    columns = "k STRING, place BIGINT, id BIGINT, v INT, PRIMARY KEY (k, place) NOT ENFORCED"
    query = """SELECT k, place, id, v FROM (
      SELECT k, id, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS place FROM src) WHERE place <= 3"""

    def inputs(self, records: int) -> list[Source]:
        self.found_changes = list(changes(records, SEED + 1, records // 100))
        records_sent = [Record(change.partition, None, change.encode()) for change in self.found_changes]
        return [Source("src", CHANGE_COLUMNS, DEBEZIUM, records_sent)]

    def expected(self) -> dict[Any, Any]:
        groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for identity, (k, v) in rows_of(self.found_changes).items():
            groups[k].append((-v, identity))
        return {
            (k, place): (k, place, identity, -minus_v)
            for k, members in groups.items()
            for place, (minus_v, identity) in enumerate(sorted(members)[:3], 1)
        }


def started(cluster: Cluster, kafka: str, rounds: int) -> list[Job]:
    jobs: list[Job] = []
    for number, kind in enumerate((RegularJoin, IntervalJoin, TemporalJoin, TopN)):
        settings = dict(UNALIGNED) if (number + SEED) % 2 else {}
        settings["state.backend.type"] = "rocksdb" if (number // 2 + SEED) % 2 else "hashmap"
        job = kind(cluster, kafka, RECORDS_PER_ROUND * (rounds + 1))
        job.start(1 + number % 2, settings)
        jobs.append(job)
    return jobs


@in_rounds(2)
def test_rounds_of_kill_9_over_joins_and_ranks(kafka: str, tmp_path: Path, rounds: int) -> None:
    with Cluster(tmp_path, taskmanagers=2, slots=4) as cluster:
        kills = Rounds(cluster, started(cluster, kafka, rounds)).run(rounds)
        until("the state to go with its jobs", lambda: list((tmp_path / "checkpoints").rglob("*.arrow")) == [])
    assert len(kills) >= rounds
