"""Whatever the interleaving, and at whatever parallelism a job goes on from a checkpoint that has overtaken rows: each
row counts once, and rows of a key keep their order. A whole job in one thread, over the real task's parts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from runtime.checkpoint.manifest import CheckpointManifest
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable

SEEDS = range(30)
TABLES = """
CREATE TABLE t (k INT, id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'memory', 'name' = '{name}');
CREATE TABLE chains (k INT, ids STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'memory', 'name' = '{name}-out', 'changelog' = 'upsert');
CREATE TABLE windows (k INT, n BIGINT, ids STRING) WITH ('connector' = 'memory', 'name' = '{name}-out');
"""
CHAINS = "INSERT INTO chains SELECT k, LISTAGG(CAST(id AS STRING)) FROM t GROUP BY k"
WINDOWS = """INSERT INTO windows SELECT k, COUNT(*), LISTAGG(CAST(id AS STRING))
  FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end"""


class Job:
    """Keys belong to one split each, whose times rise."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.query = (CHAINS, WINDOWS)[seed % 2]
        self.name = f"unaligned{seed}"
        self.expected: dict[int, list[int]] = {}
        splits: list[list[Change]] = []
        for split in range(self.random.randint(1, 4)):
            rows: list[Change] = []
            for _ in range(self.random.randint(0, 60)):
                key, number = self.random.randrange(5) * 4 + split, sum(map(len, self.expected.values()))
                self.expected.setdefault(key, []).append(number)
                rows.append((0, (key, number, len(rows) * 5_000)))
            splits.append(rows)
        self.source = MemoryTable(splits)
        self.source.poll_rows_max = self.random.choice((1, 4, 30))
        self.source.random = self.random
        self.target = MemoryTable()
        self.in_flight = 0

    def run(self) -> None:
        with memory_tables(**{self.name: self.source, f"{self.name}-out": self.target}):
            manifest: CheckpointManifest | None = None
            owners: dict[str, int] = {}
            for _ in range(self.random.randint(2, 5)):
                cluster = self._start(manifest, owners)
                # Few steps: what was recovered may not be through when the next barriers come.
                cluster.run(self.random.choice((0, 2, 10, 60)))
                for _ in range(self.random.randint(1, 2)):
                    timeout_ms = self.random.choice((0.0, 1.0, 60.0, 300.0))
                    if self.random.random() < 0.2:
                        cluster.abort(aligned_timeout_ms=timeout_ms)
                    manifest = cluster.checkpoint(commit=self.random.random() < 0.5, aligned_timeout_ms=timeout_ms)
                    self.in_flight += sum(len(snapshot.in_flight) for snapshot in manifest.snapshots)
                cluster.run(self.random.randrange(20))
                cluster.close()
                owners = cluster.owner_counts
            self._start(manifest, owners).finish()

    def _start(self, manifest: CheckpointManifest | None, owners: dict[str, int]) -> LocalCluster:
        settings = {"parallelism.default": str(self.random.choice((1, 2, 3))), "table.exec.batch.max-rows": "5"}
        return LocalCluster(
            LocalSession(settings).graph(TABLES.format(name=self.name) + self.query),
            self.directory,
            self.random.randrange(1 << 30),
            manifest=manifest,
            owner_counts=owners,
            channel_bytes=self.random.choice((30, 100, 400)),
            haste=self.random.choice((0.0, 0.7, 0.95)),
        )

    def check(self) -> None:
        if self.query == CHAINS:
            shown = {row[0]: row[1] for kind, row in self.target.changes if kind in (0, 2)}
            assert shown == {key: ",".join(map(str, ids)) for key, ids in self.expected.items()}
            return
        found: dict[int, list[int]] = {}
        for _, (key, count, ids) in self.target.changes:
            numbers = [int(number) for number in ids.split(",")]
            assert len(numbers) == count
            assert numbers == sorted(numbers)
            found.setdefault(key, []).extend(numbers)
        assert {key: sorted(ids) for key, ids in found.items()} == self.expected


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 15))
def test_every_row_counts_once_in_the_order_of_its_key(first: int, tmp_path: Path) -> None:
    in_flight = 0
    for seed in range(first, first + 15):
        job = Job(seed, tmp_path / str(seed))
        try:
            job.run()
            job.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        in_flight += job.in_flight
    assert in_flight > 50
