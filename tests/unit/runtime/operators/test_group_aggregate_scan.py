"""The order of a batch by group."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.operators.group_aggregate_scan import Scan, first_rows


@pytest.mark.parametrize("slot_count", [1, 7, 1_000, 20_000, 10_000_000])
@pytest.mark.parametrize("row_count", [1, 2, 500, 40_000])
def test_first_rows_are_those_a_dictionary_finds(slot_count: int, row_count: int) -> None:
    slots = np.random.default_rng(slot_count + row_count).integers(0, slot_count, row_count)
    known: dict[int, int] = {}
    expected = [known.setdefault(slot, row) for row, slot in enumerate(slots.tolist())]
    found = first_rows(slots)
    if len(known) == row_count:
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == expected


@pytest.mark.parametrize("slots", [[3, 1, 2], [3, 1, 3, 2, 1, 1, 5]])
def test_groups_stand_as_they_first_occur_and_their_rows_as_they_arrive(slots: list[int]) -> None:
    scan = Scan(np.array(slots), None, np.zeros(6, np.int64), every=False)
    groups = list(dict.fromkeys(slots))
    assert scan.group_slots.tolist() == groups
    assert scan.order.tolist() == [row for slot in groups for row, other in enumerate(slots) if other == slot]
    assert scan.final_counts.tolist() == [slots.count(slot) for slot in groups]
    assert scan.is_sorted == (len(groups) == len(slots))
