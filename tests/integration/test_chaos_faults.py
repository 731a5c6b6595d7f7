"""Faults other than kill -9, on real processes and a real broker: processes that are stopped and wake up, a full disk,
a checkpoint store out of reach, a broker that goes and comes back, a wall clock that jumps. Each ends in exact output,
or in a clear failure with nothing lost, from which a start after the repair ends in exact output."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_savepoints import (
    GROUP_COLUMNS,
    GROUP_QUERY,
    UPSERT_SINK,
    Pipeline,
    until,
    windows,
)
from tests.support.cluster import Cluster, Role
from tests.support.faults import HOUR_MS, SmallDisk, WallClock, can_mount, gone, stopped
from tests.support.kafka import KafkaBroker
from tests.support.s3 import S3Server
from tests.support.standalone import request
from tests.support.topics import open_transactions, read_topic

pytestmark = pytest.mark.kafka
TIMEOUT_S = 120.0
EVENTS = 6_000
NOTICED_MS = 2_500
IMPATIENT = {
    "jobmanager.heartbeat-interval-ms": "500",
    "jobmanager.heartbeat-timeout-ms": str(NOTICED_MS),
    "taskmanager.slot-timeout-ms": str(NOTICED_MS),
    "taskmanager.job-manager-loss-timeout-ms": str(NOTICED_MS),
}
TOLERANT = {
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "execution.checkpointing.timeout": "5 s",
}


def flags(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


class Story:
    """A windowed job of 6,000 events at parallelism 2: half of them before the fault, a quarter during it, the rest
    after it."""

    def __init__(self, cluster: Cluster, kafka: str, settings: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.pipeline = Pipeline(cluster, kafka, EVENTS)
        self.settings = dict(settings or {})
        self.job_id = self.pipeline.start(2, bounded=True, settings=self.settings)
        self.feed(0, 2)
        self.pipeline.checkpointed(self.job_id, 2)

    @property
    def url(self) -> str:
        return f"{self.cluster.url}/jobs/{self.job_id}"

    def feed(self, first: int, last: int, duration_s: float = 0.0) -> None:
        """Quarters of the events."""
        self.pipeline.produce(duration_s, slice(EVENTS * first // 4, EVENTS * last // 4)).join()

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = request("GET", f"{self.url}/checkpoints")["counts"]
        return found

    def state(self) -> str:
        return str(self.cluster.job(self.job_id, TIMEOUT_S)["state"])

    def restarts(self) -> int:
        return int(self.cluster.job(self.job_id, TIMEOUT_S)["restarts"])

    def failures(self) -> str:
        """What is said of checkpoints and restarts."""
        return json.dumps([request("GET", f"{self.url}/{page}") for page in ("checkpoints", "exceptions")])

    def fails(self, count: int) -> None:
        """Checkpoints fail, or where it is a sink that cannot write its rows, tasks do."""

        def failures() -> int:
            return int(self.counts()["failed"]) + self.restarts()

        before = failures()
        until(f"{count} failures", lambda: failures() >= before + count, TIMEOUT_S)

    def end(self) -> None:
        """The rest of the input, and the check of the output."""
        self.feed(3, 4)
        self.cluster.wait_for_job(self.job_id, "FINISHED", TIMEOUT_S)
        found, expected = windows(self.pipeline.rows()), self.pipeline.expected()
        assert (found - expected, expected - found) == (Counter(), Counter())
        assert open_transactions(self.pipeline.kafka, self.pipeline.prefix) == []


# ------------------------------------------------------------------------------------------------------- zombies


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("impatient"), taskmanagers=2, slots=2, flags=flags(IMPATIENT)) as running:
        yield running


@pytest.mark.chaos
@pytest.mark.parametrize("role", ["taskmanager", "slot", "jobmanager"])
@pytest.mark.timeout(400)
def test_processes_that_stop_for_longer_than_the_time_outs_and_wake_up(
    impatient: Cluster, kafka: str, role: Role
) -> None:
    """A TaskManager is replaced while its slots live; when it wakes up it passes on what was meant for its old tasks.
    A slot is killed where it stands. Tasks that hear of no JobManager end."""
    story = Story(impatient, kafka)
    before = story.restarts()
    pids = impatient.pids(role)
    victims = pids[:1] if role == "taskmanager" else pids
    with stopped(*victims):
        story.feed(2, 3)
        if role == "jobmanager":
            time.sleep(3 * NOTICED_MS / 1000)  # The length of the fault: there is nobody to ask.
        else:
            # Of two TaskManagers one may have no task of the job; the time-out passes all the same.
            deadline = time.monotonic() + 3 * NOTICED_MS / 1000
            while story.restarts() == before and time.monotonic() < deadline:
                time.sleep(0.05)
            if role == "slot":
                until("a restart", lambda: story.restarts() > before, TIMEOUT_S)
    story.end()


# -------------------------------------------------------------------------------------------------- checkpoint store


def hidden_files(directory: Path) -> list[Path]:
    """What writers have not completed."""
    return [path for path in directory.rglob("*") if path.name.startswith(".") and path.is_file()]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not can_mount():
        pytest.skip("mounting is not allowed here: test_a_limit_of_file_size_is_a_full_disk does the same")
    with SmallDisk(tmp_path / "disk", 32_000_000) as mounted:
        yield mounted


@pytest.mark.timeout(400)
def test_a_job_outlives_a_full_disk(disk: SmallDisk, kafka: str, tmp_path: Path) -> None:
    """Checkpoints fail. Where it is the sink that cannot write its rows the tasks start again as well."""
    checkpoints = disk.path / "checkpoints"
    settings = {"jobmanager.checkpoint-directory": str(checkpoints)}
    with Cluster(tmp_path / "data", taskmanagers=1, slots=2, flags=flags(settings)) as cluster:
        story = Story(cluster, kafka, TOLERANT)
        with disk.full():
            story.feed(2, 3)
            story.fails(2)
            assert "No space left on device" in story.failures()
            assert story.state() != "FAILED"
        story.end()
        until("all files to go with their job", lambda: not [p for p in checkpoints.rglob("*") if p.is_file()])


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_a_full_disk_fails_a_job_that_may_not_restart_and_its_checkpoint_starts_the_next(
    disk: SmallDisk, kafka: str, tmp_path: Path
) -> None:
    settings = {"jobmanager.checkpoint-directory": str(disk.path / "checkpoints")}
    with Cluster(tmp_path / "data", taskmanagers=1, slots=2, flags=flags(settings)) as cluster:
        story = Story(cluster, kafka, {"restart-strategy.type": "none"})
        with disk.full():
            story.feed(2, 3)
            until("the failure", lambda: story.state() == "FAILED", TIMEOUT_S)
            assert "No space left on device" in story.failures()
            latest = request("GET", f"{story.url}/checkpoints")["latest"]["completed"]["external_path"]
        assert hidden_files(disk.path) == []
        story.job_id = story.pipeline.start(2, latest, bounded=True)
        story.end()


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_a_full_disk_below_metadata_and_checkpoints(disk: SmallDisk, kafka: str) -> None:
    """The JobManager cannot write anything any more, neither records nor checkpoints."""
    with Cluster(disk.path / "data", taskmanagers=1, slots=2) as cluster:
        story = Story(cluster, kafka, TOLERANT)
        with disk.full():
            story.feed(2, 3)
            cluster.kill("slot")
            time.sleep(3)  # The length of the fault.
        cluster.job(story.job_id, TIMEOUT_S)  # It may have to be started again first.
        story.end()


@(pytest.mark.chaos if can_mount() else pytest.mark.kafka)
@pytest.mark.timeout(400)
def test_a_limit_of_file_size_is_a_full_disk(kafka: str, tmp_path: Path) -> None:
    """Every file that grows above the limit fails; nothing that is part of a committed checkpoint is torn."""
    with Cluster(tmp_path / "data", taskmanagers=1, slots=2) as cluster:
        story = Story(cluster, kafka, TOLERANT)
        limited = cluster.pids("slot")
        for pid in limited:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        story.feed(2, 3)
        story.fails(1)
        assert "File too large" in story.failures()
        story.end()  # In slots that are new, without the limit.


@pytest.mark.parametrize("also_killed", [False, pytest.param(True, marks=pytest.mark.chaos)])
@pytest.mark.timeout(400)
def test_a_checkpoint_directory_that_is_away_for_a_while(kafka: str, tmp_path: Path, also_killed: bool) -> None:
    """A restore that cannot read waits for it as well: what is out of reach is not lost."""
    with Cluster(tmp_path / "data", taskmanagers=1, slots=2) as cluster:
        story = Story(cluster, kafka, TOLERANT)
        with gone(tmp_path / "data" / "checkpoints"):
            story.feed(2, 3)
            story.fails(2)
            if also_killed:
                before = story.restarts()
                for pid in cluster.pids("slot"):
                    os.kill(pid, 9)
                until("restarts", lambda: story.restarts() >= before + 3, TIMEOUT_S)
        story.end()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_an_object_store_that_is_away_for_a_while(s3: S3Server, kafka: str, tmp_path: Path) -> None:
    bucket = s3.create_bucket()
    settings = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key": s3.environment["AWS_ACCESS_KEY_ID"],
        "jobmanager.checkpoint-directory": f"s3://{bucket}/checkpoints",
    }
    secret = {"HEADRACE_S3_SECRET_KEY": s3.environment["AWS_SECRET_ACCESS_KEY"]}
    with Cluster(tmp_path / "data", 1, 2, flags=flags(settings), environment=secret) as cluster:
        story = Story(cluster, kafka, TOLERANT)
        s3.stop()
        try:
            story.feed(2, 3)
            story.fails(1)
            cluster.kill("slot")
            cluster.kill("slot", 1)
            time.sleep(3)  # The length of the fault.
        finally:
            s3.restart()
        story.end()


# ------------------------------------------------------------------------------------------------------------ broker


@pytest.mark.chaos
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.timeout(400)
def test_a_broker_that_goes_and_comes_back_while_the_job_commits(tmp_path: Path, how: str) -> None:
    """Checkpoints follow one another without a pause, so that it is in the middle of a commit more often than not."""
    with (
        KafkaBroker.start(tmp_path / "broker") as broker,
        Cluster(tmp_path / "data", taskmanagers=1, slots=2) as cluster,
    ):
        settings = {**TOLERANT, "execution.checkpointing.interval": "10 ms"}
        story = Story(cluster, broker.bootstrap_servers, settings)
        producer = story.pipeline.produce(1.0, slice(EVENTS * 2 // 4, EVENTS * 3 // 4))
        time.sleep(0.5)  # The moment of the fault.
        broker.kill() if how == "kill" else broker.stop()
        time.sleep(1.0)  # Its length.
        broker.restart()
        producer.join()
        story.end()


# ------------------------------------------------------------------------------------------------------------- clock

PROCESSING_TIME_QUERY = """SELECT k, window_start, COUNT(*), SUM(v)
  FROM TUMBLE(TABLE src, DESCRIPTOR(p), INTERVAL '1' SECOND) GROUP BY k, window_start, window_end"""


class ProcessingTime(Pipeline):
    source_columns = "id BIGINT, k STRING, v INT, p AS PROCTIME()"


@pytest.mark.timeout(400)
def test_a_wall_clock_that_jumps(kafka: str, tmp_path: Path) -> None:
    """By an hour forth and back, in every process: no time-out fires, no row is lost, no state younger than its time
    to live goes, and windows of processing time hold every row once."""
    clock = WallClock(tmp_path)
    with Cluster(tmp_path / "data", 2, 2, flags=flags(IMPATIENT), environment=clock.environment) as cluster:
        story = Story(cluster, kafka)
        groups = Pipeline(cluster, kafka, EVENTS)
        ttl = {"table.exec.state.ttl": "150 min"}
        group_id = groups.start(1, "", GROUP_COLUMNS, GROUP_QUERY, True, ttl, UPSERT_SINK)
        periods = ProcessingTime(cluster, kafka, EVENTS)
        period_id = periods.start(
            1, "", "k STRING, window_start TIMESTAMP_LTZ(3), cnt BIGINT, total INT", PROCESSING_TIME_QUERY
        )
        known = {job: cluster.job(job)["restarts"] for job in (story.job_id, group_id, period_id)}
        for quarter, shift_ms in enumerate((0, HOUR_MS, -HOUR_MS, 0)):
            clock.shift(shift_ms)
            part = slice(EVENTS * quarter // 4, EVENTS * (quarter + 1) // 4)
            for pipeline in (groups, periods):
                pipeline.produce(0.0, part).join()
            if quarter == 2:
                story.feed(2, 3)
            for job in known if quarter < 3 else ():
                story.pipeline.checkpointed(job, _completed(cluster, job) + 2)
        clock.shift(2 * HOUR_MS)  # The windows of the hour that the clock went back on end now.
        until("every row in a window", lambda: sum(row["cnt"] for row in periods.rows()) >= EVENTS, TIMEOUT_S)
        assert sum(row["cnt"] for row in periods.rows()) == EVENTS
        twice = Counter((row["k"], row["window_start"]) for row in periods.rows())
        assert max(twice.values()) == 1
        assert len({row["window_start"][:13] for row in periods.rows()}) >= 2  # Hours: the clock did jump.
        for job, restarts in known.items():
            assert cluster.job(job)["restarts"] == restarts
            assert request("GET", f"{cluster.url}/jobs/{job}/checkpoints")["counts"]["failed"] == 0
        story.end()
        cluster.wait_for_job(group_id, "FINISHED", TIMEOUT_S)
        assert _groups(groups) == _expected_groups(groups)


def _completed(cluster: Cluster, job_id: str) -> int:
    return int(request("GET", f"{cluster.url}/jobs/{job_id}/checkpoints")["counts"]["completed"])


def _groups(pipeline: Pipeline) -> dict[str, tuple[int, int]]:
    rows: dict[bytes, dict[str, Any]] = {}
    for record in read_topic(pipeline.kafka, pipeline.target):
        rows[record.key or b""] = json.loads(record.value or b"null")
    return {row["k"]: (row["cnt"], row["total"]) for row in rows.values()}


def _expected_groups(pipeline: Pipeline) -> dict[str, tuple[int, int]]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for event in pipeline.events:
        counts[event.k] += 1
        sums[event.k] += event.v
    return {k: (count, sums[k]) for k, count in counts.items()}
