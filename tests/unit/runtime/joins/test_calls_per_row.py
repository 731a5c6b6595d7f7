"""No Python per row in joins that go by time: calls of Python functions by rows taken, in batches of a usual size."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from benchmarks.timed_joins import BATCH_ROWS, Case, cases, run

ROWS = 8 * BATCH_ROWS
CALLS_PER_ROW_MAX = 0.1


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_python_calls_per_row(case: Case) -> None:
    """What so many more rows cost: opening is not counted. A batch costs some hundred calls whatever its size."""
    assert (calls(case, 2 * ROWS) - calls(case, ROWS)) / ROWS < CALLS_PER_ROW_MAX


def calls(case: Case, row_count: int) -> int:
    total = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal total
        total += event == "call"

    sys.setprofile(count)
    try:
        run(case, row_count)
    finally:
        sys.setprofile(None)
    return total
