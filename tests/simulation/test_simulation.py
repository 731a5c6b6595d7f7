"""Seeds of the cluster simulation, and planted bugs that it must catch (`make simulate`, `make simulate-bugs`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS, planted
from tests.simulation.cluster import simulate

CATCHING_SEEDS: dict[str, int] = json.loads(Path(__file__).with_name("catching_seeds.json").read_text())
"""Planted bug → a seed that catches it (`make simulate-bugs` prints them)."""

FOUND_WITH = [10, 39, 62, 80, 492, 504, 526, 1030, 1195, 1339, 1492, 1688, 3270, 9284, 9358]
"""Seeds that have shown faults of the cores while they were built."""


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_no_seed_violates_anything(start: int) -> None:
    violations = {seed: found for seed in range(start, start + 50) if (found := simulate(seed).violation)}
    assert not violations, "python -m tests.simulation --replay SEED prints the trace"


@pytest.mark.parametrize("seed", FOUND_WITH)
def test_what_was_found_once_stays_away(seed: int) -> None:
    assert simulate(seed).violation == ""


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_caught(name: str) -> None:
    seed = CATCHING_SEEDS[name]
    with planted(name):
        assert simulate(seed).violation, BUGS[name].description
    assert simulate(seed).violation == "", "without the bug"


def test_a_seed_is_repeatable_and_its_trace_tells_the_same() -> None:
    first, second = simulate(7, recording=True), simulate(7, recording=True)
    assert first == second
    silent = simulate(7)
    assert (silent.steps, silent.violation) == (first.steps, first.violation)
