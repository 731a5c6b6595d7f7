"""Files under kill -9 of any process: each row is in exactly one visible file, and nothing else is visible."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.cluster import Cluster, Role

SEED = int(os.environ.get("HEADRACE_CHAOS_SEED", "1"))
RECOVERY_TIMEOUT_S = 90.0
KILLS = 4
ROLES: tuple[Role, ...] = ("slot", "taskmanager", "jobmanager", "slot")
SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}


def visible(directory: Path, suffix: str) -> list[Path]:
    return [path for path in directory.glob(f"part-*{suffix}") if not path.name.startswith(".")]


def ids_of_lines(directory: Path, suffix: str, read: Callable[[str], int]) -> Counter[int]:
    return Counter(read(line) for path in visible(directory, suffix) for line in path.read_text().splitlines())


def kill_some(cluster: Cluster, job_id: str) -> None:
    rng = random.Random(SEED)
    for turn in range(KILLS):
        if turn % 3 != 2:
            cluster.wait_for_job(job_id, "RUNNING", RECOVERY_TIMEOUT_S)
        threading.Event().wait(rng.uniform(0.2, 1.2))  # the moment of the fault, not a synchronisation
        assert cluster.kill(ROLES[turn % len(ROLES)], rng.randrange(8)) is not None or turn


@pytest.mark.timeout(300)
def test_a_bounded_job_leaves_every_row_in_one_file(cluster: Cluster, tmp_path: Path) -> None:
    rows = 16_000
    out = tmp_path / "out"
    session = cluster.session(SETTINGS)
    session.execute(
        f"""CREATE TABLE src (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '2000',
          'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{rows - 1}')"""
    )
    session.execute(
        f"""CREATE TABLE dst (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{out}',
          'format' = 'csv', 'sink.rolling-policy.file-size' = '40 kb')"""
    )
    job_id = session.execute("INSERT INTO dst SELECT id, CONCAT('row ', CAST(id AS STRING)) FROM src").job_id
    assert job_id is not None
    kill_some(cluster, job_id)
    cluster.wait_for_job(job_id, "FINISHED", 120.0)
    found = ids_of_lines(out, ".csv", lambda line: int(line.split(",")[0]))
    assert found == Counter(range(rows))
    assert list(out.glob(".*")) == []


class Feeder(threading.Thread):
    """Files that appear whole, one after the other, in a directory."""

    def __init__(self, directory: Path, files: int, rows_per_file: int, pause_s: float) -> None:
        super().__init__()
        self._directory = directory
        self._files, self._rows, self._pause_s = files, rows_per_file, pause_s

    def run(self) -> None:
        for number in range(self._files):
            hidden = self._directory / f".{number:04}.csv"
            first = number * self._rows
            hidden.write_text("".join(f"{i},{os.getpid()}\n" for i in range(first, first + self._rows)))
            hidden.rename(self._directory / f"{number:04}.csv")
            threading.Event().wait(self._pause_s)  # the pace of the input


@pytest.mark.timeout(300)
def test_a_watched_directory_into_two_kinds_of_files(cluster: Cluster, tmp_path: Path) -> None:
    source, lines, parquet = tmp_path / "in", tmp_path / "lines", tmp_path / "parquet"
    source.mkdir()
    feeder = Feeder(source, 50, 200, 0.15)
    expected = Counter(range(50 * 200))
    session = cluster.session(SETTINGS)
    session.execute(
        f"""CREATE TABLE src (id BIGINT, v STRING, f STRING METADATA FROM 'file.name') WITH (
          'connector' = 'filesystem', 'path' = '{source}', 'format' = 'csv',
          'source.monitor-interval' = '100 ms')"""
    )
    rolling = "'sink.rolling-policy.rollover-interval' = '1 s', 'sink.rolling-policy.check-interval' = '100 ms'"
    for name, directory, kind, more in (("a", lines, "json", f", {rolling}"), ("b", parquet, "parquet", "")):
        session.execute(
            f"""CREATE TABLE {name} (id BIGINT, f STRING) WITH ('connector' = 'filesystem',
              'path' = '{directory}', 'format' = '{kind}'{more})"""
        )
    job_id = session.execute(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT id, f FROM src; INSERT INTO b SELECT id, f FROM src; END"
    ).job_id
    assert job_id is not None
    feeder.start()
    kill_some(cluster, job_id)
    feeder.join()

    def found() -> tuple[Counter[int], Counter[int]]:
        tables: list[Any] = [pq.read_table(path, columns=["id"]) for path in visible(parquet, ".parquet")]
        return (
            ids_of_lines(lines, ".json", lambda line: int(json.loads(line)["id"])),
            Counter(i for table in tables for i in table.column(0).to_pylist()),
        )

    deadline_s = time.monotonic() + 90
    while [sum(counts.values()) for counts in found()] != [10_000, 10_000] and time.monotonic() < deadline_s:
        threading.Event().wait(0.2)
    assert [counts - expected for counts in found()] == [Counter(), Counter()]
    assert [expected - counts for counts in found()] == [Counter(), Counter()]
    session.execute(f"STOP JOB '{job_id}'")


def lines_of(directory: Path, pattern: str) -> list[str]:
    return [line for path in directory.glob(pattern) for line in path.read_text().splitlines()]


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, what
        threading.Event().wait(0.1)


@pytest.mark.timeout(300)
def test_a_savepoint_takes_the_open_file_along(cluster: Cluster, tmp_path: Path) -> None:
    """A file that is not complete stays hidden when its job stops; the job that goes on from there shows it."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()

    def start(parallelism: int, savepoint: str) -> str:
        session = cluster.session({**SETTINGS, "parallelism.default": str(parallelism)})
        session.execute(
            f"""CREATE TABLE src (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{source}',
              'format' = 'csv', 'source.monitor-interval' = '100 ms')"""
        )
        session.execute(
            f"""CREATE TABLE dst (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}',
              'format' = 'csv')"""
        )
        if savepoint:
            session.execute(f"SET 'execution.state-recovery.path' = '{savepoint}'")
        job_id = session.execute("INSERT INTO dst SELECT id FROM src").job_id
        assert job_id is not None
        return job_id

    def stop(job_id: str, how: str) -> str:
        session = cluster.session({"state.savepoints.dir": str(tmp_path / "savepoints")})
        path = str(session.execute(f"STOP JOB '{job_id}' WITH SAVEPOINT{how}").rows[0][0])
        cluster.wait_for_job(job_id, "FINISHED", 60)
        return path

    def feed(first: int) -> None:
        for name in ("a", "b"):
            hidden = source / f".{first}-{name}.csv"
            hidden.write_text("".join(f"{i}\n" for i in range(first, first + 100)))
            hidden.rename(source / hidden.name[1:])
            first += 100

    feed(0)
    job_id = start(2, "")
    until("the first rows", lambda: len(lines_of(out, ".part-*.inprogress")) == 200)
    savepoint = stop(job_id, "")
    assert visible(out, ".csv") == []
    feed(200)
    job_id = start(1, savepoint)
    until("the first rows to show", lambda: sorted(map(int, lines_of(out, "part-*"))) == list(range(200)))
    until("the other rows", lambda: len(lines_of(out, ".part-*.inprogress")) == 200)
    stop(job_id, " WITH DRAIN")
    assert sorted(map(int, lines_of(out, "part-*"))) == list(range(400))
    assert list(out.glob(".*")) == []
