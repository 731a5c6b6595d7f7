"""The promise for updating results, on real Kafka and real processes: kill -9 of anything at any moment, and the table
that the topic holds in the end is exactly the right one. Sizes and seed as in test_exactly_once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.integration.test_exactly_once import SEED, UNALIGNED, Run, Size
from tests.support import events as ev
from tests.support.cluster import Cluster
from tests.support.standalone import Session
from tests.support.topics import ReadRecord, read_topic

SIZES = pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(30_000, 4.0, 3), id="30k"),
        pytest.param(Size(1_000_000, 90.0, 10), id="1M", marks=pytest.mark.chaos),
    ],
)
GROUPS = 500


class ChangelogRun(Run):
    """A pipeline into an upsert-kafka table `dst`, whose key is `k`."""

    def __init__(
        self, cluster: Cluster, kafka: str, size: Size, source: str, found: list[Any], parallelism: int, guarantee: str
    ) -> None:
        super().__init__(cluster, kafka, size)
        self.events = found
        self._source, self._parallelism, self._guarantee = source, parallelism, guarantee

    def table(self, columns: str, query: str) -> tuple[dict[str, dict[str, Any]], list[ReadRecord]]:
        """What the target holds after the run, by key, and all its records."""
        self.execute(columns, query)
        records = read_topic(self.kafka, self.target)
        found: dict[str, dict[str, Any]] = {}
        for record in records:
            assert record.key is not None
            key = json.loads(record.key)["k"]
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = json.loads(record.value)
        return found, records

    def _submit(self, session: Session, columns: str, query: str) -> str:
        bounded = f"""'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets',
          'scan.bounded.specific-offsets' = '{ev.bounded_offsets(self.events)}'"""
        broker = f"'properties.bootstrap.servers' = '{self.kafka}'"
        session.execute(f"SET 'parallelism.default' = '{self._parallelism}'")
        session.execute(
            self._source.replace("{with}", f"'connector' = 'kafka', 'topic' = '{self.source}', {broker}, {bounded}")
        )
        session.execute(
            f"""CREATE TABLE dst ({columns}, PRIMARY KEY (k) NOT ENFORCED) WITH (
              'connector' = 'upsert-kafka', {broker}, 'topic' = '{self.target}', 'key.format' = 'json',
              'value.format' = 'json', 'sink.delivery-guarantee' = '{self._guarantee}',
              'sink.transactional-id-prefix' = '{self.prefix}'
            )"""
        )
        job_id = session.execute(f"INSERT INTO dst {query}").job_id
        assert job_id is not None
        return job_id


@SIZES
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.timeout(600)
def test_group_by_into_an_upsert_topic_under_kill_9(cluster: Cluster, kafka: str, size: Size, parallelism: int) -> None:
    found = list(ev.events(size.events, SEED))
    source = "CREATE TABLE src (id BIGINT, k STRING, v INT) WITH ({with}, 'format' = 'json')"
    run = ChangelogRun(cluster, kafka, size, source, found, parallelism, "exactly-once")
    run.settings |= UNALIGNED if parallelism > 1 else {}
    columns = "k STRING, cnt BIGINT, total BIGINT, largest INT"
    query = "SELECT k, COUNT(*), SUM(CAST(v AS BIGINT)), MAX(v) FROM src GROUP BY k"
    rows, records = run.table(columns, query)
    groups: dict[str, list[int]] = {}
    for event in found:
        groups.setdefault(event.k, []).append(event.v)
    assert rows == {
        k: {"k": k, "cnt": len(values), "total": sum(values), "largest": max(values)} for k, values in groups.items()
    }, run.kills
    _assert_counts_only_grow(records, run.kills)


def _assert_counts_only_grow(records: list[ReadRecord], kills: list[str]) -> None:
    """No value was put over a newer one, and none was written twice."""
    last: dict[bytes | None, int] = {}
    for record in records:
        count = json.loads(record.value or b"null")["cnt"]
        assert count > last.get(record.key, 0), (record, kills)
        last[record.key] = count


class Change(msgspec.Struct, frozen=True):
    """A record of a Debezium topic: the row before and after, or (op '') the tombstone behind a deletion."""

    id: int
    op: str
    before: tuple[str, int] | None = None
    after: tuple[str, int] | None = None

    @property
    def partition(self) -> int:
        return self.id % ev.PARTITIONS

    def encode(self) -> bytes | None:
        if not self.op:
            return None
        before, after = (
            None if row is None else {"id": self.id, "k": row[0], "v": row[1]} for row in (self.before, self.after)
        )
        source = {"table": "rows", "pad": "x" * 60}
        return msgspec.json.encode({"before": before, "after": after, "source": source, "op": self.op})


def changes(count: int, seed: int, groups: int = GROUPS) -> Iterator[Change]:
    """About `count` records: rows appear, move between groups, change their values and go."""
    rng = random.Random(seed)
    rows: dict[int, tuple[str, int]] = {}
    for number in range(count):
        identity = rng.randrange(max(10, count // 10))
        old = rows.get(identity)
        if old is not None and rng.random() < 0.3:
            del rows[identity]
            yield Change(identity, "d", old)
            if rng.random() < 0.2:
                yield Change(identity, "")
            continue
        new = (f"group-{rng.randrange(groups)}", rng.randrange(-100, 100))
        rows[identity] = new
        yield Change(identity, "u" if old is not None else "r" if number < count // 20 else "c", old, new)


@SIZES
@pytest.mark.timeout(600)
def test_a_debezium_topic_grouped_into_an_upsert_topic_under_kill_9(cluster: Cluster, kafka: str, size: Size) -> None:
    found = list(changes(size.events, SEED))
    source = """CREATE TABLE src (id BIGINT, k STRING, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
      {with}, 'format' = 'debezium-json')"""
    run = ChangelogRun(cluster, kafka, size, source, found, 4, "at-least-once")
    query = "SELECT k, COUNT(*), SUM(v), MIN(v) FROM src WHERE v > -90 GROUP BY k"
    rows, _ = run.table("k STRING, cnt BIGINT, total INT, smallest INT", query)
    last: dict[int, tuple[str, int] | None] = {change.id: change.after for change in found if change.op}
    groups: dict[str, list[int]] = {}
    for row in last.values():
        if row is not None and row[1] > -90:
            groups.setdefault(row[0], []).append(row[1])
    assert rows == {
        k: {"k": k, "cnt": len(values), "total": sum(values), "smallest": min(values)} for k, values in groups.items()
    }, run.kills
    assert Counter(change.op for change in found)["d"] > size.events // 10


class TimedChange(Change, frozen=True):
    """A change of a row with a time column; `times` are those of the row before and after, in ms."""

    times: tuple[int, int] = (0, 0)

    def encode(self) -> bytes | None:
        sides = {}
        for side, row, time_ms in zip(("before", "after"), (self.before, self.after), self.times, strict=True):
            ts = (ev.EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            sides[side] = None if row is None else {"id": self.id, "k": row[0], "v": row[1], "ts": ts}
        return msgspec.json.encode({**sides, "op": self.op})


def timed_changes(count: int, seed: int) -> Iterator[TimedChange]:
    """`count` records whose time advances evenly. A row changes, moves to another window or goes while its own time is
    within the watermark's delay."""
    rng = random.Random(seed)
    fresh: list[list[tuple[int, tuple[str, int], int]]] = [[] for _ in range(ev.PARTITIONS)]
    for number in range(count):
        now = 60_000 + number * ev.EVENT_TIME_SPAN_MS // count
        time_ms = now - rng.randrange(ev.WATERMARK_DELAY_MS)
        partition = number % ev.PARTITIONS
        known = fresh[partition]
        known[:] = [row for row in known if row[2] > now - ev.WATERMARK_DELAY_MS]
        new = (f"group-{rng.randrange(50)}", rng.randrange(-100, 100))
        if not known or rng.random() < 0.5:
            # The number is the id: all changes of a row are in one partition.
            known.append((number, new, time_ms))
            yield TimedChange(number, "c", None, new, (0, time_ms))
            continue
        identity, old, old_ms = known.pop(rng.randrange(len(known)))
        if rng.random() < 0.3:
            yield TimedChange(identity, "d", old, None, (old_ms, 0))
        else:
            known.append((identity, new, time_ms))
            yield TimedChange(identity, "u", old, new, (old_ms, time_ms))


@pytest.mark.chaos
@SIZES
@pytest.mark.timeout(600)
def test_windows_over_a_debezium_topic_under_kill_9(cluster: Cluster, kafka: str, size: Size) -> None:
    """Each window is written once, with the rows that are there when it ends."""
    found = list(timed_changes(size.events, SEED))
    source = f"""CREATE TABLE src (id BIGINT, k STRING, v INT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED,
      WATERMARK FOR ts AS ts - INTERVAL '{ev.WATERMARK_DELAY_MS // 1000}' SECOND) WITH (
      {{with}}, 'format' = 'debezium-json')"""
    run = ChangelogRun(cluster, kafka, size, source, found, 4, "exactly-once")
    query = """SELECT CONCAT(k, ' ', CAST(window_start AS STRING)), COUNT(*), SUM(v), MIN(v)
      FROM HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)
      GROUP BY k, window_start, window_end"""
    rows, records = run.table("k STRING, cnt BIGINT, total INT, smallest INT", query)
    last = {change.id: change for change in found}
    windows: dict[str, list[int]] = {}
    for change in last.values():
        if change.after is not None:
            newest = change.times[1] // 5_000 * 5_000
            for start in (newest, newest - 5_000, newest - 10_000):
                windows.setdefault(f"{change.after[0]} {ev.time_text(start)}.000", []).append(change.after[1])
    assert rows == {
        k: {"k": k, "cnt": len(values), "total": sum(values), "smallest": min(values)} for k, values in windows.items()
    }, run.kills
    assert len(records) == len(rows)
