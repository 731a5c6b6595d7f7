"""Golden answers: each query of `answers/` runs three ways and must fold to the same table each time: straight; with
checkpoints and a rescale; killed and restored at another parallelism.

`pytest tests/golden/test_answers.py --rewrite` writes the answers anew; check them by hand before you commit.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from planner.api import CompiledJob
from runtime.checkpoint.manifest import CheckpointManifest
from tests.golden.answer_tables import tables
from tests.golden.test_planner_golden import compare
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable

ANSWERS = Path(__file__).parent / "answers"
DEFINITIONS = (ANSWERS / "tables.inc").read_text()
WAYS = ("straight", "rescaled", "restored")


def answer(changes: list[Change]) -> str:
    """The folded changelog, a row per line, sorted."""
    counts: dict[str, int] = {}
    for kind, row in changes:
        text = " | ".join("NULL" if value is None else str(value) for value in row)
        counts[text] = counts.get(text, 0) + (1 if kind in (0, 2) else -1)
        assert counts[text] >= 0, f"kind {kind} takes back a row that is not there: {text}"
    return "".join(f"{text}\n" for text in sorted(counts) for _ in range(counts[text]))


def session(parallelism: int) -> LocalSession:
    made = LocalSession({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    made.run(DEFINITIONS)
    return made


def insert(query: str, parallelism: int) -> CompiledJob:
    """The query into a table of its own columns."""
    made = session(parallelism)
    result = made.job(query).result
    assert result is not None
    columns = ", ".join(f"`{c.name}` {c.type.with_nullable(True).sql()}" for c in result.columns)
    options = "'connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract'"
    return made.job(f"CREATE TABLE answer ({columns}) WITH ({options}); INSERT INTO answer {query}")


def run(query: str, way: str, directory: Path) -> str:
    sink = MemoryTable()
    choose = random.Random(len(query))
    with memory_tables(answer=sink, **tables()):
        manifest: CheckpointManifest | None = None
        owners: dict[str, int] = {}
        starts = {"straight": (1,), "rescaled": (2, 3), "restored": (4, 2, 1)}[way]
        for parallelism in starts[:-1]:
            job = LocalCluster(
                insert(query, parallelism).job_graph,
                directory,
                choose.randrange(1 << 30),
                manifest=manifest,
                owner_counts=owners,
            )
            job.run(choose.randrange(4, 20))
            manifest = job.checkpoint()
            job.run(choose.randrange(4, 20))
            if way == "rescaled":
                manifest = job.checkpoint()
            # Killed: what was processed after the checkpoint is processed again.
            job.close()
            owners = job.owner_counts
        LocalCluster(insert(query, starts[-1]).job_graph, directory, 1, manifest=manifest, owner_counts=owners).finish()
    return answer(sink.changes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*.sql")), ids=lambda p: p.stem)
def test_answer(path: Path, way: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    compare(path.with_suffix(".answer"), run(path.read_text().rstrip().rstrip(";"), way, tmp_path), pytestconfig)
