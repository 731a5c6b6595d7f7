"""No Python per row: calls of Python functions are counted on the hot path and must stay far fewer than rows.

The real reader, decoder, operators, partitioner and write-ahead sink run in this thread over a real topic of 222-byte
bids; what the first batches load and compile is not counted, nor is the harness.
"""

from __future__ import annotations

import sys
import uuid
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.bench import AUCTIONS, DECLARED, PIPELINES
from benchmarks.topics import create, fill, fill_auctions
from connectors.kafka.transactions import marker_topic
from runtime.operators.protocol import SourceOperator
from tests.support.local_cluster import LocalCluster, LocalTask
from tests.support.local_session import LocalSession

ROWS = 200_000
KEYS = 20_000
WARM_ROWS = 20_000
POLL_MS = 500
CALLS_PER_ROW_MAX = 0.05
OF_THE_HARNESS = ("operators/checks.py", "typing.py", "abc>", "random.py")
"""Invariants that only tests check, with their protocol checks, and the order of steps."""
HARNESS = str(Path(__file__).parents[1])


class CallCounter:
    """Calls of Python functions, resumed generators included, but for those of the harness."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and not file.startswith(HARNESS) and not file.endswith(OF_THE_HARNESS):
            self.calls += 1


@pytest.fixture(scope="module")
def bids(kafka: str) -> str:
    """A topic of bids."""
    topic = f"bids-{uuid.uuid4().hex[:8]}"
    create(kafka, topic)
    fill(kafka, topic, ROWS, keys=KEYS)
    # Without a JobManager nobody makes the markers' topic, and the namespace is empty.
    markers = NewTopic(marker_topic(""), num_partitions=1, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": kafka})  # Without a name it would be gone before it is done.
    for made in admin.create_topics([markers]).values():
        made.exception(60)  # Another test may have made it.
    return topic


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_python_calls_per_row(kafka: str, bids: str, tmp_path: Path, pipeline: Any) -> None:
    target = f"out-{uuid.uuid4().hex[:8]}"
    create(kafka, target)
    where = f"'properties.bootstrap.servers' = '{kafka}'"
    formats = "'format' = 'json'"
    if pipeline.sink_connector == "upsert-kafka":
        formats = "'key.format' = 'json', 'value.format' = 'json'"
    auctions = f"auctions-{target}"
    if pipeline.auction_columns:
        create(kafka, auctions)
        fill_auctions(kafka, auctions, ROWS)
    graph = LocalSession({"parallelism.default": "1"}).graph(f"""
        CREATE TABLE auctions ({AUCTIONS}) WITH (
          'connector' = 'kafka', 'format' = 'json', 'topic' = '{auctions}', {where},
          'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
        CREATE TABLE bids ({DECLARED}, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND) WITH (
          'connector' = 'kafka', 'format' = 'json', 'topic' = '{bids}', {where},
          'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
        CREATE TABLE sink ({pipeline.sink_columns}) WITH (
          'connector' = '{pipeline.sink_connector}', 'topic' = '{target}', {where}, {formats},
          'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{target}');
        INSERT INTO sink {pipeline.query}""")
    cluster = LocalCluster(graph, tmp_path, 1)
    try:
        wait_for_rows(cluster)
        while rows_read(cluster) < WARM_ROWS:
            cluster.step()
        before = rows_read(cluster)
        with CallCounter() as counter:
            cluster.run()
        calls_per_row = counter.calls / (rows_read(cluster) - before)
    finally:
        cluster.close()
    assert rows_read(cluster) == ROWS * (2 if pipeline.auction_columns else 1)
    assert calls_per_row < CALLS_PER_ROW_MAX


def wait_for_rows(cluster: LocalCluster) -> None:
    """Polls wait, as a task's do: empty ones would count."""
    for task in cluster.tasks.values():
        source = task.operators.source
        if source is not None:
            task._poll = partial(poll, task, source)  # type: ignore[method-assign]


def poll(task: LocalTask, source: SourceOperator) -> None:
    for element in source.poll(POLL_MS):
        task._take_in(element)


def rows_read(cluster: LocalCluster) -> int:
    sources = [task.operators.source for task in cluster.tasks.values()]
    return sum(int(source.counters()["numRecordsIn"]) for source in sources if source is not None)
