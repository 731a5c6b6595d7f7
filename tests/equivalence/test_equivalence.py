"""Seeds of `tests.equivalence`. `EQUIVALENCE_SEEDS=<first>:<count>` runs others than those of `make test`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.equivalence.run import Scenario

RUNS_PER_TEST = 25
SEEDS = range(500)


def _check(seeds: range, directory: Path) -> None:
    for seed in seeds:
        scenario = Scenario(seed)
        shown = f"seed {seed}, settings {scenario.settings}\n{scenario.sql}"
        try:
            wrong = scenario.differences(directory / str(seed))
        except Exception as error:
            raise AssertionError(shown) from error
        assert not wrong, "\n".join([shown, *wrong])


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, RUNS_PER_TEST))
def test_folded_changelog_is_the_batch_answer(first: int, tmp_path: Path) -> None:
    _check(range(first, first + RUNS_PER_TEST), tmp_path)


@pytest.mark.fuzz
def test_many_seeds(tmp_path: Path) -> None:
    first, count = map(int, os.environ.get("EQUIVALENCE_SEEDS", "1000:50000").split(":"))
    for seed in range(first, first + count):
        _check(range(seed, seed + 1), tmp_path)
