"""ORDER BY columns as numbers, against comparisons value by value."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.ranks import SortKey
from runtime.operators.order_keys import NO_LEAD, OrderKeys, exact_ties
from runtime.operators.rank_history import History
from tests.support.ranks import ORDERABLE, SCHEMA, batch_of, compare, random_order, random_row

KINDS = [t.to_arrow(kind) for kind in SCHEMA]


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


@pytest.mark.parametrize("column", ORDERABLE)
@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_one_column_orders_as_flink_compares(column: int, is_descending: bool, nulls_first: bool) -> None:
    rng = random.Random(column)
    rows = [random_row(rng) for _ in range(40)]
    check(OrderKeys([SortKey(column, is_descending, nulls_first)], KINDS), rows)
    # Without NULLs, and with nothing else.
    check(OrderKeys([SortKey(column, is_descending, nulls_first)], KINDS), [r for r in rows if r[column] is not None])
    check(OrderKeys([SortKey(column, is_descending, nulls_first)], KINDS), [r for r in rows if r[column] is None])


def test_several_columns_order_one_after_the_other() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        order = random_order(rng)
        check(OrderKeys(order, KINDS), [random_row(rng) for _ in range(rng.choice((0, 1, 30)))])


def check(keys: OrderKeys, rows: list[Any]) -> None:
    columns = batch_of([(0, row) for row in rows], kinds=False).data.columns
    codes = keys.codes(columns, len(rows))
    lead = None if keys.lead_column is None else columns[keys.lead_column]
    leads = keys.leads(lead, len(rows))
    # A lead is made of a row alone: other rows around it change nothing.
    for i in range(0, len(rows), 7):
        assert keys.leads(None if lead is None else lead.slice(i, 1), 1)[0] == leads[i]
    ties = exact_ties(leads)
    order = compare(keys.order)
    for i, left in enumerate(rows):
        assert leads[i] < NO_LEAD
        for j, right in enumerate(rows):
            wanted = order(left, right)
            assert sign(int(codes[i] > codes[j]) - int(codes[i] < codes[j])) == wanted, (keys.order, left, right)
            if leads[i] < leads[j]:
                assert wanted < 0
            if keys.is_exact and leads[i] == leads[j] and ties[i]:
                assert wanted == 0


def test_slices_and_wide_words_keep_their_order() -> None:
    column: Any = pa.array([None, 2**63 - 1, -(2**63), 0, None, 5], pa.int64())
    for nulls_first in (False, True):
        keys = OrderKeys([SortKey(0, nulls_first=nulls_first), SortKey(1)], [pa.int64(), pa.int64()])
        rows = [(column.slice(1)[i].as_py(), column.slice(0, 5)[i].as_py()) for i in range(5)]
        codes = keys.codes([column.slice(1), column.slice(0, 5)], 5)
        order = compare(keys.order)
        for i in range(5):
            for j in range(5):
                assert sign(int(codes[i] > codes[j]) - int(codes[i] < codes[j])) == order(rows[i], rows[j])


def test_nested_values_have_no_order() -> None:
    kind = pa.list_(pa.int32())
    with pytest.raises(TypeError, match="no order"):
        OrderKeys([SortKey(0)], [kind]).codes([pa.array([[1]], kind)], 1)


def test_a_history_answers_for_every_moment() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        size = rng.choice((1, 2, 7, 8, 40))
        there: set[int] = set()
        states: list[list[int]] = [[]]
        events: list[tuple[int, int]] = []
        for _ in range(rng.choice((1, 10, 120))):
            item = rng.randrange(size)
            events.append((item, -1 if item in there else 1))
            there ^= {item}
            states.append(sorted(there))
        history = History(np.array([i for i, _ in events]), np.array([s for _, s in events]), size)
        moments = np.arange(len(states))
        assert history.count(moments).tolist() == [len(state) for state in states]
        for item in range(size + 1):
            wanted = [sum(other < item for other in state) for state in states]
            assert history.count_below(moments, np.full(len(states), item)).tolist() == wanted
        asked = [(moment, rank) for moment, state in enumerate(states) for rank in range(len(state))]
        if asked:
            found = history.select(np.array([m for m, _ in asked]), np.array([r for _, r in asked]))
            assert found.tolist() == [states[moment][rank] for moment, rank in asked]
