"""One random run: a query over a table, on a job that is checkpointed, killed and rescaled at random."""

from __future__ import annotations

import random
from pathlib import Path

from runtime.checkpoint.manifest import CheckpointManifest
from tests.equivalence.oracle import batch_answer, differences, folded
from tests.equivalence.queries import Query, random_query
from tests.equivalence.tables import Changes, Table, random_changes, random_table
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable


class Scenario:
    """Everything that the seed decides."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        changelog = self.random.choice(("insert-only", "insert-only", "retract", "upsert"))
        # A primary key of the sink takes no NULL.
        self.upserts = self.random.random() < 0.4
        self.table: Table = random_table(self.random, changelog=changelog, nullable_keys=not self.upserts)
        self.changes: Changes = random_changes(self.random, self.table)
        self.query: Query = random_query(self.random, self.table)
        if self.query.key_count == 0 or "GROUPING" in self.query.flink:
            self.upserts = False
        self.settings = {
            "parallelism.default": str(self.random.choice((1, 2, 3, 4))),
            "pipeline.max-parallelism": "16",
            "table.exec.batch.max-rows": str(self.random.choice((1, 3, 64))),
            "table.optimizer.agg-phase-strategy": self.random.choice(("AUTO", "ONE_PHASE", "TWO_PHASE")),
            "state.backend.type": self.random.choice(("hashmap", "hashmap", "rocksdb")),
        }
        if self.random.random() < 0.25:
            self.settings |= {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "100 ms",
                "table.exec.mini-batch.size": str(self.random.choice((2, 50))),
            }
        if self.random.random() < 0.25:
            self.settings["table.optimizer.distinct-agg.split.enabled"] = "true"

    @property
    def sql(self) -> str:
        names = [f"c{i}" for i in range(len(self.query.types))]
        columns = [f"{name} {type_}" for name, type_ in zip(names, self.query.types, strict=True)]
        if self.upserts:
            columns.append(f"PRIMARY KEY ({', '.join(names[: self.query.key_count])}) NOT ENFORCED")
        changelog = "upsert" if self.upserts else "retract"
        options = f"'connector' = 'memory', 'name' = 'out{self.seed}', 'changelog' = '{changelog}'"
        return (
            f"{self.table.ddl(f'in{self.seed}')};\nCREATE TABLE o ({', '.join(columns)}) WITH ({options});\n"
            f"INSERT INTO o {self.query.flink}"
        )

    def run(self, directory: Path) -> list[Change]:
        """The sink's changelog."""
        source, sink = MemoryTable(self.changes.splits), MemoryTable()
        source.random = self.random
        source.poll_rows_max = self.random.choice((1, 5, 200))
        with memory_tables(**{f"in{self.seed}": source, f"out{self.seed}": sink}):
            manifest: CheckpointManifest | None = None
            owner_counts: dict[str, int] = {}
            for _ in range(self.random.choice((0, 0, 1, 2))):
                cluster = self._start(directory, manifest, owner_counts)
                if cluster.run(self.random.randrange(1, 200)):
                    cluster.close()
                    break
                for _ in range(self.random.randint(1, 2)):
                    manifest = cluster.checkpoint(commit=self.random.random() < 0.7)
                cluster.run(self.random.randrange(60))
                cluster.close()
                owner_counts = cluster.owner_counts
                if self.random.random() < 0.5:
                    self.settings["parallelism.default"] = str(self.random.choice((1, 2, 3, 4)))
            self._start(directory, manifest, owner_counts).finish()
            return sink.changes

    def _start(
        self, directory: Path, manifest: CheckpointManifest | None, owner_counts: dict[str, int]
    ) -> LocalCluster:
        graph = LocalSession(self.settings).graph(self.sql)
        seed = self.random.randrange(1 << 30)
        return LocalCluster(graph, directory, seed, manifest=manifest, owner_counts=owner_counts)

    def differences(self, directory: Path) -> list[str]:
        """What is wrong with the job's answer; empty when it is the oracle's."""
        changes = self.run(directory)
        theirs = batch_answer(self.table, self.changes.rows, self.query)
        try:
            ours = folded(changes, self.query.key_count, upserts=self.upserts)
        except AssertionError as error:
            return [str(error)]
        return differences(ours, theirs, self.query)
