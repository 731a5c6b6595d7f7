"""Every recorded answer of Flink is ours too, except for the deviations stated in `deviations.py`."""

from __future__ import annotations

from functools import lru_cache

import pytest

from planner.errors import SqlError
from tests.truths.compare import Mismatch, mismatches
from tests.truths.deviations import ACCEPTED, DEVIATIONS, TYPES
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


@pytest.mark.parametrize("table", TABLES, ids=[f"{t.module}: {t.name}" for t in TABLES])
def test_types_and_refusals_are_flinks(table: Table) -> None:
    """Result types to the letter, nullability included; what Flink refuses is refused before anything runs."""
    wrong: list[tuple[str, str, str]] = []
    for case in table.cases:
        try:
            ours = table.bind(case["sql"]).type.summary()
        except SqlError:
            continue
        if "refused" in case:
            if case["sql"] not in ACCEPTED:
                wrong.append((case["sql"], ours, case["refused"]))
        elif ours != case["type"] and case["sql"] not in TYPES:
            wrong.append((case["sql"], ours, case["type"]))
    assert wrong == []


def test_enough_was_asked() -> None:
    """The recording holds thousands of answers and names every kind of question."""
    assert sum(len(table.cases) for table in TABLES) > 3000
    assert {table.module for table in TABLES} == {"numbers", "logic", "text", "time", "casts"}


def test_columns_survive_the_reader() -> None:
    for table in TABLES:
        assert isinstance(table, Table)
        assert table.batch().num_rows == len(table.rows)
