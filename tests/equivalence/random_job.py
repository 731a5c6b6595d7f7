"""A job in one thread that is checkpointed, killed and rescaled at random."""

from __future__ import annotations

import random
from pathlib import Path

from planner.ir.job_graph import JobGraph
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.recovery import RestorePlan
from runtime.checkpoint.refusal import RestoreRefusedError
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession


class RandomJob:
    """`sql`: a script whose last statement is the job, over memory tables that are known already. `settings` change
    with the parallelism. `crowded`: little room between tasks, every run has checkpoints that overtake what is in
    flight and goes on from one, mostly at another parallelism. `kills`: how often it may be killed, one is drawn."""

    def __init__(
        self,
        choose: random.Random,
        settings: dict[str, str],
        sql: str,
        *,
        crowded: bool = False,
        kills: tuple[int, ...] = (0, 0, 1, 2),
    ) -> None:
        self.random = choose
        self.settings = settings
        self.sql = sql
        self.crowded = crowded
        self.kills = (1, 2) if crowded else kills
        self.restores: list[RestorePlan] = []
        self._graphs: dict[str, JobGraph] = {}

    def run(self, directory: Path) -> None:
        """To the end of all input, with everything committed."""
        manifest: CheckpointManifest | None = None
        owner_counts: dict[str, int] = {}
        for _ in range(self.random.choice(self.kills)):
            cluster = self._start(directory, manifest, owner_counts)
            if cluster.run(self.random.randrange(1, 200)):
                cluster.close()
                break
            for _ in range(self.random.randint(1, 2)):
                # Aligned; unaligned at once, or when it takes long; and some are given up.
                timeouts_ms = (0.0, 0.0, 100.0) if self.crowded else (None, None, 0.0, 100.0)
                timeout_ms = self.random.choice(timeouts_ms)
                if self.random.random() < 0.1:
                    cluster.abort(aligned_timeout_ms=timeout_ms)
                commit = self.random.random() < 0.7
                manifest = cluster.checkpoint(commit=commit, aligned_timeout_ms=timeout_ms)
            cluster.run(self.random.randrange(60))
            cluster.close()
            owner_counts = cluster.owner_counts
            if self.random.random() < (0.8 if self.crowded else 0.5):
                self.settings["parallelism.default"] = str(self.random.choice((1, 2, 3, 4)))
        self._start(directory, manifest, owner_counts).finish()

    def _start(
        self, directory: Path, manifest: CheckpointManifest | None, owner_counts: dict[str, int]
    ) -> LocalCluster:
        seed = self.random.randrange(1 << 30)
        channel_bytes = self.random.choice((30, 300)) if self.crowded else None
        cluster = None
        while cluster is None:
            try:
                cluster = LocalCluster(
                    self._graph(),
                    directory,
                    seed,
                    manifest=manifest,
                    owner_counts=owner_counts,
                    channel_bytes=channel_bytes,
                )
            except RestoreRefusedError as refusal:
                # Rows in flight on a forward edge have no place at another parallelism.
                if manifest is None or "on a forward edge" not in str(refusal):
                    raise
                self.settings["parallelism.default"] = str(max(vertex.parallelism for vertex in manifest.vertices))
        self.restores.append(cluster.plan)
        return cluster

    def _graph(self) -> JobGraph:
        """Planned once per parallelism: to plan takes as long as a small run."""
        parallelism = self.settings["parallelism.default"]
        if parallelism not in self._graphs:
            self._graphs[parallelism] = LocalSession(self.settings).graph(self.sql)
        return self._graphs[parallelism]
