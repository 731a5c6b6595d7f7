"""One long-lived cluster, three kinds of jobs, and a kill -9 in every round: of any process, sometimes in the middle of
a recovery, of a savepoint or of a rescale. In the end every output is exactly right. 5 rounds always (each moment,
and each kind of process), 200 in `make chaos`; `tests.support.kill_rounds` says how to have others."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_exactly_once_changelogs import Change, changes
from tests.integration.test_savepoints import (
    GROUP_COLUMNS,
    GROUP_QUERY,
    KAFKA_SINK,
    SETTINGS,
    UPSERT_SINK,
    WINDOW_COLUMNS,
    WINDOW_QUERY,
    Pipeline,
    until,
    windows,
)
from tests.support.cluster import Cluster
from tests.support.events import PacedRecords
from tests.support.kill_rounds import SEED, UNALIGNED, Job, Rounds, in_rounds, part_of
from tests.support.topics import read_topic

pytestmark = pytest.mark.kafka
EVENTS_PER_ROUND = 1_200


class Changes(Pipeline):
    """Pipeline from a Debezium topic."""

    source_columns = "id BIGINT, k STRING, v INT, PRIMARY KEY (id) NOT ENFORCED"
    source_format = "debezium-json"


class PipelineJob(Job):
    parallelism_max = 3

    def __init__(self, pipeline: Pipeline, found: list[Any], unaligned: bool) -> None:
        super().__init__(pipeline.cluster, pipeline.kafka)
        self.pipeline = pipeline
        pipeline.events = found
        self.prefix = pipeline.prefix
        self.settings = UNALIGNED if unaligned else {}

    def start(self, columns: str, query: str, sink: str, parallelism: int) -> None:
        self.parallelism = parallelism
        self.job_id = self.pipeline.start(parallelism, "", columns, query, True, self.settings, sink)

    def feed(self, number: int, duration_s: float, last: bool) -> PacedRecords:
        return self.pipeline.produce(duration_s, part_of(number, last, EVENTS_PER_ROUND))


class WindowJob(PipelineJob):
    def check(self, kills: list[str]) -> None:
        super().check(kills)
        found, expected = windows(self.pipeline.rows()), self.pipeline.expected()
        assert (found - expected, expected - found) == (Counter(), Counter()), kills


class TableJob(PipelineJob):
    """Its output is an upsert topic with key `k`."""

    def expected(self) -> dict[str, tuple[int, ...]]:
        groups: dict[str, list[int]] = {}
        for event in self.pipeline.events:
            groups.setdefault(event.k, []).append(event.v)
        return {k: (len(values), sum(values), max(values)) for k, values in groups.items()}

    def check(self, kills: list[str]) -> None:
        super().check(kills)
        table: dict[str, tuple[int, ...]] = {}
        for record in read_topic(self.kafka, self.pipeline.target):
            key = json.loads(record.key or b"null")["k"]
            table.pop(key, None)
            if record.value is not None:
                row = json.loads(record.value)
                table[key] = (row["cnt"], row["total"], row["largest"])
        assert table == self.expected(), kills


class ChangesJob(TableJob):
    parallelism_max = 2  # All jobs at their maximum fill the cluster's slots.

    def expected(self) -> dict[str, tuple[int, ...]]:
        rows: dict[int, tuple[str, int] | None] = {}
        for change in self.pipeline.events:
            assert isinstance(change, Change)
            rows[change.id] = change.after
        groups: dict[str, list[int]] = {}
        for row in rows.values():
            if row is not None:
                groups.setdefault(row[0], []).append(row[1])
        return {k: (len(values), sum(values), max(values)) for k, values in groups.items()}


def started(cluster: Cluster, kafka: str, rounds: int) -> list[Job]:
    count = EVENTS_PER_ROUND * (rounds + 1)
    event_list = list(Pipeline(cluster, kafka, count, SEED).events)
    window = WindowJob(Pipeline(cluster, kafka, 0), event_list, unaligned=False)
    window.start(WINDOW_COLUMNS, WINDOW_QUERY, KAFKA_SINK, 2)
    group = TableJob(Pipeline(cluster, kafka, 0), event_list, unaligned=True)
    group.start(GROUP_COLUMNS, GROUP_QUERY, UPSERT_SINK, 2)
    change = ChangesJob(Changes(cluster, kafka, 0), list(changes(count, SEED)), unaligned=True)
    change.start(GROUP_COLUMNS, GROUP_QUERY, UPSERT_SINK, 1)
    return [window, group, change]


@in_rounds(5)
def test_rounds_of_kill_9(kafka: str, tmp_path: Path, rounds: int) -> None:
    assert SETTINGS["restart-strategy.type"] == "fixed-delay"  # Without end: a round never uses it up.
    with Cluster(tmp_path, taskmanagers=2, slots=4) as cluster:
        kills = Rounds(cluster, started(cluster, kafka, rounds)).run(rounds)
        until("the state to go with its jobs", lambda: list((tmp_path / "checkpoints").rglob("*.arrow")) == [])
    assert len(kills) >= rounds
