"""One random run: a query over a table, on a job that is checkpointed, killed and rescaled at random."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from runtime.checkpoint.recovery import RestorePlan
from tests.equivalence.oracle import batch_answer, differences, folded, unclaimed
from tests.equivalence.queries import COUNT_ALL, Input, Query, random_input, random_query
from tests.equivalence.random_job import RandomJob
from tests.equivalence.tables import Changes, Table, random_changes, random_table
from tests.support.local_session import memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable, Row


class Target(msgspec.Struct, frozen=True):
    """A sink and the query that fills it. `primary_key`: its columns, if the sink takes upserts."""

    name: str
    query: Query
    primary_key: tuple[int, ...] = ()

    @property
    def is_claimed(self) -> bool:
        """Whether several rows of the query may claim one key."""
        return bool(self.primary_key) and self.primary_key != tuple(range(self.query.key_count))

    def ddl(self) -> str:
        names = [f"c{i}" for i in range(len(self.query.types))]
        columns = [f"{name} {type_}" for name, type_ in zip(names, self.query.types, strict=True)]
        if self.primary_key:
            columns.append(f"PRIMARY KEY ({', '.join(names[i] for i in self.primary_key)}) NOT ENFORCED")
        changelog = "upsert" if self.primary_key else "retract"
        options = f"'connector' = 'memory', 'name' = '{self.name}', 'changelog' = '{changelog}'"
        return f"CREATE TABLE {self.name} ({', '.join(columns)}) WITH ({options});\n"

    def insert(self) -> str:
        return f"INSERT INTO {self.name} {self.query.flink}"

    def differences(self, changes: list[Change], theirs: list[Row]) -> list[str]:
        key = self.primary_key or range(self.query.key_count)
        try:
            ours = folded(changes, key, upserts=bool(self.primary_key))
        except AssertionError as error:
            return [str(error)]
        if self.is_claimed:
            return unclaimed(ours, theirs, self.query, self.primary_key)
        return differences(ours, theirs, self.query)


class Scenario:
    """Everything that the seed decides. `crowded`: little room between tasks, every run has checkpoints that overtake
    what is in flight and goes on from one, mostly at another parallelism."""

    def __init__(self, seed: int, *, crowded: bool = False) -> None:
        self.seed = seed
        self.crowded = crowded
        self.restores: list[RestorePlan] = []
        self.random = random.Random(seed)
        changelog = self.random.choice(("insert-only", "insert-only", "retract", "upsert"))
        # A primary key of the sink takes no NULL.
        upserts = self.random.random() < 0.4
        self.table: Table = random_table(self.random, changelog=changelog, nullable_keys=not upserts)
        self.changes: Changes = random_changes(self.random, self.table)
        self.input: Input = random_input(self.random)
        self.targets = [self._target(f"out{seed}", upserts)]
        if self.random.random() < 0.2:
            self.targets.append(self._target(f"more{seed}", self.random.random() < 0.5 and upserts))
        self.settings = {
            "parallelism.default": str(self.random.choice((1, 2, 3, 4))),
            "pipeline.max-parallelism": "16",
            "table.exec.batch.max-rows": str(self.random.choice((1, 3, 64))),
            "table.optimizer.agg-phase-strategy": self.random.choice(("AUTO", "ONE_PHASE", "TWO_PHASE")),
            "state.backend.type": self.random.choice(("hashmap",) * 5 + ("rocksdb",)),
        }
        if self.random.random() < 0.25:
            self.settings |= {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "100 ms",
                "table.exec.mini-batch.size": str(self.random.choice((2, 50))),
            }
        if self.random.random() < 0.25:
            self.settings["table.optimizer.distinct-agg.split.enabled"] = "true"
        self.repeats = changelog == "retract" and self.random.random() < 0.3
        # A row that comes a second time may be late in its window.
        self.repeats = self.repeats and all(target.query.windows is None for target in self.targets)
        if self.repeats:
            self.settings["table.exec.source.cdc-events-duplicate"] = "true"

    def _target(self, name: str, upserts: bool) -> Target:
        """A sink by the query's key, by another, or of all changes; at times of the query of an earlier sink."""
        earlier = getattr(self, "targets", [])
        if earlier and self.random.random() < 0.5:
            query: Query = earlier[0].query
        else:
            query = self.input.read_by(random_query(self.random, self.table))
        if not upserts or query.key_count == 0 or "GROUPING" in query.flink:
            return Target(name, query)
        if query.windows is None and COUNT_ALL in query.aggregates and self.random.random() < 0.4:
            return Target(name, query, (query.key_count + query.aggregates.index(COUNT_ALL),))
        return Target(name, query, tuple(range(query.key_count)))

    @property
    def sql(self) -> str:
        definitions = [f"{self.table.ddl(f'in{self.seed}')};\n", self.input.ddl, *(t.ddl() for t in self.targets)]
        inserts = [target.insert() for target in self.targets]
        if len(inserts) == 1:
            return "".join([*definitions, *inserts])
        return "".join([*definitions, "EXECUTE STATEMENT SET BEGIN\n", ";\n".join(inserts), ";\nEND"])

    def run(self, directory: Path) -> list[list[Change]]:
        """The sinks' changelogs."""
        source = MemoryTable([self._repeated(split) if self.repeats else split for split in self.changes.splits])
        sinks = {target.name: MemoryTable() for target in self.targets}
        source.random = self.random
        source.poll_rows_max = self.random.choice((1, 5, 200))
        with memory_tables(**{f"in{self.seed}": source}, **sinks):
            job = RandomJob(self.random, self.settings, self.sql, crowded=self.crowded)
            job.run(directory)
            self.restores = job.restores
            return [sink.changes for sink in sinks.values()]

    def _repeated(self, split: list[Change]) -> list[Change]:
        """The split as a connector that starts again after a failure gives it: stretches come twice."""
        found: list[Change] = []
        position = 0
        while position < len(split):
            stretch = split[position : position + self.random.randint(1, 9)]
            found += stretch * self.random.choice((1, 1, 2))
            position += len(stretch)
        return found

    def differences(self, directory: Path) -> list[str]:
        """What is wrong with the job's answers; empty when they are the oracle's."""
        wrong: list[str] = []
        for target, changes in zip(self.targets, self.run(directory), strict=True):
            theirs = batch_answer(self.table, self.changes.rows, target.query)
            wrong += target.differences(changes, theirs)
        return wrong
