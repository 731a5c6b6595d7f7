"""Every recorded answer of Flink is ours too, except for the deviations stated in `deviations.py`."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.truths.compare import Mismatch, mismatches
from tests.truths.deviations import DEVIATIONS
from tests.truths.reader import Table, tables

TABLES = list(tables())


@lru_cache(maxsize=len(TABLES))
def found(index: int) -> tuple[Mismatch, ...]:
    return tuple(mismatches(TABLES[index]))


@pytest.mark.parametrize("index", range(len(TABLES)), ids=[f"{t.module}: {t.name}" for t in TABLES])
def test_answers_are_flinks(index: int) -> None:
    unexplained = [m for m in found(index) if not any(deviation.covers(m) for deviation in DEVIATIONS)]
    assert unexplained == []


def test_every_deviation_still_occurs() -> None:
    everything = [mismatch for index in range(len(TABLES)) for mismatch in found(index)]
    unused = [d for d in DEVIATIONS if not any(d.covers(mismatch) for mismatch in everything)]
    assert unused == []


def test_enough_was_asked() -> None:
    """The recording holds thousands of answers and names every kind of question."""
    assert sum(len(table.cases) for table in TABLES) > 3000
    assert {table.module for table in TABLES} == {"numbers", "logic", "text", "time", "casts"}


def test_columns_survive_the_reader() -> None:
    for table in TABLES:
        assert isinstance(table, Table)
        assert table.batch().num_rows == len(table.rows)
