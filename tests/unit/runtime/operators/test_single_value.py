"""SINGLE_VALUE: the value of a scalar sub-query, which may have one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.ir import types as t
from planner.ir.operators import AggregateCall, AggregateFunction, Emission
from planner.ir.types import ChangelogMode
from runtime.operators.single_row import SeveralRowsError
from tests.unit.runtime.operators.test_group_aggregate import Bench, table

VALUE = AggregateCall(AggregateFunction.SINGLE_VALUE, 1, t.INT, t.INT)


def bench(folder: Path, mode: ChangelogMode, emission: Emission = Emission.EVERY) -> Bench:
    return Bench(folder, (t.STRING, t.INT), (0,), (VALUE,), mode=mode, emission=emission)


@pytest.mark.parametrize("emission", list(Emission))
def test_the_only_row_is_replaced_and_goes(tmp_path: Path, emission: Emission) -> None:
    values = bench(tmp_path, ChangelogMode.RETRACT, emission)
    output = values.put(("+I", "x", 5), ("+I", "y", None))
    assert table(output, 1) == {("x", 5), ("y", None)}
    output += values.put(("-U", "x", 5), ("+U", "x", None), ("-U", "y", None), ("+U", "y", 7))
    assert table(output, 1) == {("x", None), ("y", 7)}
    output += values.put(("-D", "y", 7))
    assert table(output, 1) == {("x", None)}
    values.operator.snapshot(1)


def test_a_second_row_is_an_error_that_names_the_subquery(tmp_path: Path) -> None:
    values = bench(tmp_path, ChangelogMode.INSERT_ONLY)
    values.put(("+I", "x", 5), ("+I", "y", 6))
    with pytest.raises(SeveralRowsError, match="the sub-query c1 has more than one row") as caught:
        values.put(("+I", "x", 5))
    assert (caught.value.domain, caught.value.retry) == ("user", False)


def test_equal_rows_and_rows_of_one_batch_count_as_well(tmp_path: Path) -> None:
    with pytest.raises(SeveralRowsError):
        bench(tmp_path, ChangelogMode.INSERT_ONLY).put(("+I", "x", None), ("+I", "x", None))


def test_the_new_row_of_a_changelog_may_come_before_the_old_one_goes(tmp_path: Path) -> None:
    values = bench(tmp_path, ChangelogMode.RETRACT)
    output = values.put(("+I", "x", 5))
    output += values.put(("+I", "x", 6))
    output += values.put(("-D", "x", 5))
    assert table(output, 1) == {("x", 6)}
    values.operator.snapshot(1)
    assert list(values.operator.end(drain=True)) == []


def test_two_rows_at_a_barrier_or_at_the_end_are_an_error(tmp_path: Path) -> None:
    values = bench(tmp_path, ChangelogMode.RETRACT)
    values.put(("+I", "x", 5), ("+I", "x", 6))
    with pytest.raises(SeveralRowsError):
        values.operator.snapshot(1)
    with pytest.raises(SeveralRowsError):
        list(values.operator.end(drain=True))
