"""The result buffer of a query: pages, repetition, bounds, the end."""

from __future__ import annotations

import pytest

from planner.ir import operators as ir
from planner.ir import types as t
from runtime.operators.collect import BUFFER_BYTES_MAX, OVERDRAFT_BYTES, CollectOperator, UnexpectedSequence
from tests.support.operators import Surroundings, batch_of, ints

COLUMNS = ir.Schema((ir.Column("a", t.INT),))


class Bench:
    def __init__(self) -> None:
        self.surroundings = Surroundings()
        node = ir.Collect("collect", "collect", COLUMNS)
        self.operator = CollectOperator(node, self.surroundings.context, self.surroundings.environment)
        self.buffer = self.operator.buffer

    def put(self, *values: int, kinds: list[int] | None = None) -> None:
        list(self.operator.process(batch_of(ints(*values), kinds=kinds)))

    def page(self, sequence: int, rows_max: int = 100) -> tuple[list[int], int, bool] | None:
        page = self.buffer.page(sequence, rows_max)
        if page is None:
            return None
        assert page.sequence == sequence
        return page.rows.column(0).to_numpy().tolist(), page.next_sequence, page.ended


def test_pages_join_and_cut_batches() -> None:
    bench = Bench()
    bench.put(1, 2)
    bench.put(3, 4, 5)
    assert bench.page(0, 4) == ([1, 2, 3, 4], 4, False)
    assert bench.page(4, 4) == ([5], 5, False)
    assert bench.page(5) is None


def test_the_last_page_can_be_asked_for_again_but_no_other() -> None:
    bench = Bench()
    bench.put(1, 2, 3)
    assert bench.page(0, 2) == bench.page(0, 2) == bench.page(0, 9) == ([1, 2], 2, False)
    assert bench.page(2) == ([3], 3, False)
    for sequence in (0, 1, 4):
        with pytest.raises(UnexpectedSequence):
            bench.page(sequence)


def test_the_end_is_given_with_the_last_rows_or_alone() -> None:
    bench = Bench()
    bench.put(1)
    list(bench.operator.end(drain=True))
    assert not bench.buffer.drained()
    assert bench.page(0) == ([1], 1, True)
    assert bench.buffer.drained()
    assert bench.page(1) == ([], 1, True)
    assert bench.page(0) == ([1], 1, True)


def test_a_complete_result_outlives_its_task_but_a_broken_one_does_not() -> None:
    whole, broken = Bench(), Bench()
    list(whole.operator.end(drain=True))
    whole.operator.close()
    broken.operator.close()
    assert (whole.buffer.closed, broken.buffer.closed) == (False, True)


def test_row_kinds_travel_along() -> None:
    bench = Bench()
    bench.put(1, 2, kinds=[1, 2])
    page = bench.buffer.page(0, 10)
    assert page is not None
    assert page.row_kinds is not None
    assert page.row_kinds.to_pylist() == [1, 2]


def test_a_full_buffer_has_no_room_and_an_overdrawn_one_waits_for_its_reader() -> None:
    bench = Bench()
    rows = BUFFER_BYTES_MAX // 4
    bench.put(*[0] * rows)
    assert not bench.buffer.has_room()
    for _ in range(OVERDRAFT_BYTES // BUFFER_BYTES_MAX - 1):
        bench.put(*[0] * rows)
    assert bench.surroundings.waits == 0
    bench.surroundings.on_wait = lambda: [bench.buffer.page(0, 5 * rows)].clear()
    bench.put(1)
    assert bench.surroundings.waits == 1
    assert bench.buffer.has_room()


def test_listeners_hear_of_the_next_change_once() -> None:
    bench = Bench()
    heard: list[str] = []
    bench.buffer.listen(lambda: heard.append("put"))
    bench.put(1)
    bench.put(2)
    assert heard == ["put"]
    bench.buffer.listen(lambda: heard.append("closed"))
    bench.operator.close()
    assert heard == ["put", "closed"]
