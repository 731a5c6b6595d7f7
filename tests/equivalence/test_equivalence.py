"""Seeds of `tests.equivalence`. `EQUIVALENCE_SEEDS=<first>:<count>` runs others than those of `make test`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.equivalence.run import Scenario

RUNS_PER_TEST = 25
SEEDS = range(500)
CROWDED_SEEDS = range(30)


def _check(seeds: range, directory: Path, *, crowded: bool = False) -> list[Scenario]:
    scenarios = [Scenario(seed, crowded=crowded) for seed in seeds]
    for seed, scenario in zip(seeds, scenarios, strict=True):
        shown = f"seed {seed}, settings {scenario.settings}\n{scenario.sql}"
        try:
            wrong = scenario.differences(directory / str(seed))
        except Exception as error:
            raise AssertionError(shown) from error
        assert not wrong, "\n".join([shown, *wrong])
    return scenarios


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, RUNS_PER_TEST))
def test_folded_changelog_is_the_batch_answer(first: int, tmp_path: Path) -> None:
    _check(range(first, first + RUNS_PER_TEST), tmp_path)


def test_what_barriers_overtook_is_restored(tmp_path: Path) -> None:
    scenarios = _check(CROWDED_SEEDS, tmp_path, crowded=True)
    restores = [r for s in scenarios for plan in s.restores for of_task in plan.in_flight.values() for r in of_task]
    # Dealt out by key group, into the middle of a chain, and where they were going.
    assert any(restore.keys is not None for restore in restores)
    assert any(restore.edge_id < 0 for restore in restores)
    assert any(restore.with_times for restore in restores)


@pytest.mark.fuzz
@pytest.mark.timeout(12 * 3600)
def test_many_seeds(tmp_path: Path) -> None:
    first, count = map(int, os.environ.get("EQUIVALENCE_SEEDS", "1000:50000").split(":"))
    for seed in range(first, first + count):
        _check(range(seed, seed + 1), tmp_path, crowded=seed % 4 == 0)
