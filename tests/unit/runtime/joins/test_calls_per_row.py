"""No Python per row in joins that go by time: calls of Python functions by rows taken, in batches of a usual size."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.timed_joins import BATCH_ROWS, CASES, Case, measured
from tests.support.calls import python_calls

ROWS = 8 * BATCH_ROWS
CALLS_PER_ROW_MAX = 0.1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_python_calls_per_row(case: Case) -> None:
    """What so many more rows cost: opening is not counted. A batch costs some hundred calls whatever its size."""
    few, many = (python_calls(partial(measured, case, rows)) for rows in (ROWS, 2 * ROWS))
    assert (many - few) / ROWS < CALLS_PER_ROW_MAX
