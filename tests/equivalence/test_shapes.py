"""Random runs of every shape. `SHAPE_SEEDS=<first>:<count>` runs others than those of `make fuzz`, each seed for all
shapes; `SHAPES=<name>[;<name>…]` only these."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.equivalence.shape_run import ShapeRun, Target
from tests.equivalence.shapes import SHAPES
from tests.support.memory_tables.connector import Change, Row

RUNS_PER_SHAPE = 5
FUZZ_RUNS = 100_000
OPERATORS = {
    "interval join": "IntervalJoin",
    "window join": "WindowJoin",
    "temporal join": "TemporalJoin",
    "deduplication": "Deduplicate",
    "window deduplication": "WindowRank",
    "window Top-N": "WindowRank",
    "window RANK": "WindowRank",
    "RANK": "Rank",
    "INTERSECT": "SetOperation",
    "UNNEST": "Unnest",
}
"""Shapes by how their names begin or end, and what they would say nothing about without."""


def _check(name: str, seed: int, directory: Path, *, crowded: bool) -> None:
    run = ShapeRun(name, SHAPES[name], seed, crowded=crowded)
    try:
        wrong = run.differences(directory / str(seed))
    except Exception as error:
        raise AssertionError(run.shown) from error
    assert not wrong, "\n".join([run.shown, *wrong])


@pytest.mark.parametrize("name", SHAPES)
def test_folded_changelog_is_the_oracles_answer(name: str, tmp_path: Path) -> None:
    for seed in range(RUNS_PER_SHAPE):
        _check(name, seed, tmp_path, crowded=seed == 0)


def test_there_are_enough_runs() -> None:
    assert len(SHAPES) >= 40
    assert len(SHAPES) * RUNS_PER_SHAPE >= 500


@pytest.mark.parametrize("name", [n for n in SHAPES if any(n.startswith(o) or n.endswith(o) for o in OPERATORS)])
def test_shapes_become_what_they_are_named_after(name: str) -> None:
    wanted = max((o for o in OPERATORS if name.startswith(o) or name.endswith(o)), key=len)
    graph = ShapeRun(name, SHAPES[name], 0).planned()
    assert OPERATORS[wanted] in {type(operator).__name__ for vertex in graph.vertices for operator in vertex.operators}


_INSERTS: list[Change] = [(0, (1, "a")), (0, (2, "b"))]


@pytest.mark.parametrize(
    ("target", "changes", "theirs", "wrong"),
    [
        (Target(("INT", "STRING")), _INSERTS, [(1, "a"), (2, "b")], None),
        (Target(("INT", "STRING")), _INSERTS, [(1, "a")], "1 rows too many"),
        (Target(("INT", "STRING")), _INSERTS, [(1, "a"), (2, "b"), (2, "b")], "1 rows are missing"),
        (Target(("INT", "STRING")), [(3, (1, "a")), (0, (1, "a"))], [], "takes back a row that is not there"),
        (Target(("INT", "STRING"), (0,)), [*_INSERTS, (2, (1, "c"))], [(1, "c"), (2, "b")], None),
        (Target(("INT", "STRING"), (0,)), [*_INSERTS, (3, (1, "x"))], [(1, "a"), (2, "b")], "nobody shows the key"),
        (Target(("INT", "STRING"), (0,)), [(3, (1, "x"))], [], "takes back a key that is not there"),
        (Target(("INT", "STRING"), (0,)), _INSERTS, [(1, "a"), (1, "z"), (2, "b")], None),
        (Target(("INT", "STRING"), (0,)), _INSERTS, [(1, "z"), (2, "b")], "a row too many"),
        (Target(("INT", "STRING"), (0,), True), _INSERTS, [(1, "a"), (1, "z"), (2, "b")], "is none"),
    ],
)
def test_wrong_changelogs_are_seen(target: Target, changes: list[Change], theirs: list[Row], wrong: str | None) -> None:
    found = target.differences(changes, theirs)
    assert not found if wrong is None else wrong in found[0]


@pytest.mark.fuzz
@pytest.mark.timeout(12 * 3600)
def test_many_seeds(tmp_path: Path) -> None:
    default = f"1000:{FUZZ_RUNS // len(SHAPES) + 1}"
    first, count = map(int, os.environ.get("SHAPE_SEEDS", default).split(":"))
    names = os.environ["SHAPES"].split(";") if "SHAPES" in os.environ else list(SHAPES)
    for seed in range(first, first + count):
        for name in names:
            _check(name, seed, tmp_path, crowded=seed % 4 == 0)
