"""One long-lived cluster, three kinds of jobs, and a kill -9 in every round: of any process, sometimes in the middle of
a recovery, of a savepoint or of a rescale. In the end every output is exactly right. 10 rounds always, 200 in
`make chaos`; `HEADRACE_CHAOS_SEED` gives other events and other faults, `HEADRACE_CHAOS_ROUNDS` another number."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.integration.test_exactly_once_changelogs import Change, changes
from tests.integration.test_savepoints import (
    AWAY,
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
from tests.support.cluster import Cluster, Role
from tests.support.standalone import request
from tests.support.topics import open_transactions, read_topic

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get("HEADRACE_CHAOS_SEED", "1"))
ROUNDS = int(os.environ.get("HEADRACE_CHAOS_ROUNDS", "200"))
ROUND_TIMEOUT_S = 120.0
EVENTS_PER_ROUND = 1_200
FEED_S = 1.5
UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
}
ROLES: tuple[Role, ...] = ("slot", "slot", "taskmanager", "jobmanager")
Moment = Literal["running", "recovering", "savepoint", "rescale"]
MOMENTS: tuple[Moment, ...] = ("running", "running", "recovering", "savepoint", "rescale")


class Changes(Pipeline):
    """Pipeline from a Debezium topic."""

    source_columns = "id BIGINT, k STRING, v INT, PRIMARY KEY (id) NOT ENFORCED"
    source_format = "debezium-json"


class Job:
    """A pipeline that is fed round by round, and what its output must be."""

    parallelism_max = 3

    def __init__(self, pipeline: Pipeline, found: list[Any], unaligned: bool) -> None:
        self.pipeline = pipeline
        pipeline.events = found
        self.settings = UNALIGNED if unaligned else {}
        self.parallelism = 1
        self.job_id = ""

    def start(self, columns: str, query: str, sink: str, parallelism: int) -> None:
        self.parallelism = parallelism
        self.job_id = self.pipeline.start(parallelism, "", columns, query, True, self.settings, sink)

    @property
    def url(self) -> str:
        return f"{self.pipeline.cluster.url}/jobs/{self.job_id}"

    def latest_checkpoint(self) -> int:
        """Id of the last completed one that the JobManager remembers; 0 = none since it started."""
        latest = request("GET", f"{self.url}/checkpoints")["latest"]["completed"]
        return 0 if latest is None else int(latest["id"])

    def runs(self) -> bool:
        job = request("GET", self.url)
        assert job["state"] not in ("FAILED", "CANCELED", "FINISHED"), job
        return bool(job["state"] == "RUNNING")

    def check(self, kills: list[str]) -> None:
        assert open_transactions(self.pipeline.kafka, self.pipeline.prefix) == [], kills


class WindowJob(Job):
    def check(self, kills: list[str]) -> None:
        super().check(kills)
        found, expected = windows(self.pipeline.rows()), self.pipeline.expected()
        assert (found - expected, expected - found) == (Counter(), Counter()), kills


class TableJob(Job):
    """Its output is an upsert topic with key `k`."""

    def expected(self) -> dict[str, tuple[int, ...]]:
        groups: dict[str, list[int]] = {}
        for event in self.pipeline.events:
            groups.setdefault(event.k, []).append(event.v)
        return {k: (len(values), sum(values), max(values)) for k, values in groups.items()}

    def check(self, kills: list[str]) -> None:
        super().check(kills)
        table: dict[str, tuple[int, ...]] = {}
        for record in read_topic(self.pipeline.kafka, self.pipeline.target):
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


class Rounds:
    def __init__(self, cluster: Cluster, kafka: str, rounds: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(SEED)
        self.kills: list[str] = []
        count = EVENTS_PER_ROUND * (rounds + 1)
        event_list = list(Pipeline(cluster, kafka, count, SEED).events)
        window = WindowJob(Pipeline(cluster, kafka, 0), event_list, unaligned=False)
        window.start(WINDOW_COLUMNS, WINDOW_QUERY, KAFKA_SINK, 2)
        group = TableJob(Pipeline(cluster, kafka, 0), event_list, unaligned=True)
        group.start(GROUP_COLUMNS, GROUP_QUERY, UPSERT_SINK, 2)
        change = ChangesJob(Changes(cluster, kafka, 0), list(changes(count, SEED)), unaligned=True)
        change.start(GROUP_COLUMNS, GROUP_QUERY, UPSERT_SINK, 1)
        self.jobs: list[Job] = [window, group, change]

    def feed(self, number: int, duration_s: float, last: bool = False) -> list[threading.Thread]:
        part = slice(EVENTS_PER_ROUND * number, None if last else EVENTS_PER_ROUND * (number + 1))
        return [job.pipeline.produce(duration_s, part) for job in self.jobs]

    def settle(self) -> None:
        """All jobs run, and each has completed a checkpoint that was triggered after now."""
        deadline = time.monotonic() + ROUND_TIMEOUT_S
        for job in self.jobs:
            known: int | None = None
            while True:
                try:
                    if job.runs():
                        latest = job.latest_checkpoint()
                        # One may have been under way.
                        known = latest if known is None else known
                        if latest > known + 1:
                            break
                except AWAY:
                    pass  # The JobManager is away.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{job.url} after {self.kills}\n{self.cluster.tail(200)}")
                time.sleep(0.05)

    def strike(self, moment: Moment) -> None:
        victim = self.rng.choice(self.jobs)
        if moment == "savepoint":
            body = {"target-directory": victim.pipeline.directory}
            threading.Thread(target=_ask, args=("POST", f"{victim.url}/savepoints", body), daemon=True).start()
        elif moment == "rescale":
            wanted = self.rng.choice([p for p in range(1, victim.parallelism_max + 1) if p != victim.parallelism])
            threading.Thread(target=_rescale, args=(victim, wanted), daemon=True).start()
        self.kill(moment, self.rng.uniform(0.0, 0.8))
        if moment == "recovering":
            self.kill("again", self.rng.uniform(0.0, 2.0))

    def kill(self, moment: str, delay_s: float) -> None:
        time.sleep(delay_s)  # The moment of the fault, not to wait for anything.
        role = self.rng.choice(ROLES)
        if self.cluster.kill(role, self.rng.randrange(8)) is not None:
            self.kills.append(f"{moment}: {role}")
            print(f"{time.monotonic():.1f} s, {self.kills[-1]}", flush=True)


def _ask(method: str, url: str, body: dict[str, Any]) -> None:
    try:
        request(method, url, body)
    except AWAY:
        pass  # Its JobManager died meanwhile, or the job cannot do it just now: the round goes on all the same.


def _rescale(job: Job, wanted: int) -> None:
    url = f"{job.url}/resource-requirements"
    try:
        bounds = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": wanted}} for vertex in request("GET", url)}
        request("PUT", url, bounds)
        job.parallelism = wanted
    except AWAY:
        pass  # As above.


def run(kafka: str, data: Path, rounds: int) -> list[str]:
    with Cluster(data, taskmanagers=2, slots=4) as cluster:
        story = Rounds(cluster, kafka, rounds)
        story.settle()
        for number in range(rounds):
            feeding = story.feed(number, FEED_S)
            story.strike(story.rng.choice(MOMENTS))
            story.settle()
            for producer in feeding:
                producer.join()
        for producer in story.feed(rounds, 0.0, last=True):
            producer.join()
        for job in story.jobs:
            cluster.wait_for_job(job.job_id, "FINISHED", ROUND_TIMEOUT_S)
            job.check(story.kills)
        until("the state to go with its jobs", lambda: list((data / "checkpoints").rglob("*.arrow")) == [])
        return story.kills


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(10, id="10", marks=pytest.mark.timeout(400)),
        pytest.param(ROUNDS, id="many", marks=[pytest.mark.chaos, pytest.mark.timeout(7200)]),
    ],
)
def test_rounds_of_kill_9(kafka: str, tmp_path: Path, rounds: int) -> None:
    assert SETTINGS["restart-strategy.type"] == "fixed-delay"  # Without end: a round never uses it up.
    kills = run(kafka, tmp_path, rounds)
    assert len(kills) >= rounds
