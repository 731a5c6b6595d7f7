"""Random runs of every shape. `SHAPE_SEEDS=<first>:<count>` runs others than those of `make fuzz`, each seed for all
shapes; `SHAPES=<name>[;<name>…]` only these."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.equivalence.shape_run import ShapeRun
from tests.equivalence.shapes import SHAPES

RUNS_PER_SHAPE = 5
FUZZ_RUNS = 100_000


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


@pytest.mark.fuzz
def test_many_seeds(tmp_path: Path) -> None:
    default = f"1000:{FUZZ_RUNS // len(SHAPES) + 1}"
    first, count = map(int, os.environ.get("SHAPE_SEEDS", default).split(":"))
    names = os.environ["SHAPES"].split(";") if "SHAPES" in os.environ else list(SHAPES)
    for seed in range(first, first + count):
        for name in names:
            _check(name, seed, tmp_path, crowded=seed % 4 == 0)
