"""Top-N against a row-wise reference: random rows, orders, changes, cuts, restores, both emissions and backends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.operators import Emission
from planner.ir.ranks import Rank, SortKey
from runtime.operators import rank_rest
from runtime.operators.rank import RankOperator
from runtime.operators.registry import build_ordering
from tests.support.aggregates import Folded, Row, WallClock, rows_of
from tests.support.rank_runs import F, Output, check_run, rank_node
from tests.support.ranks import UNIQUE, Change, Subtasks, batch_of, random_order, random_row


def random_changes(rng: random.Random, count: int, *, retracting: bool) -> list[Change]:
    """Rows, their removals, and now and then a removal of what is not there or a row that replaces another one."""
    there: list[Row] = []
    changes: list[Change] = []
    removals = rng.choice((0.1, 0.4, 0.55))
    key_values = rng.choice((1, 3))
    while len(changes) < count:
        if retracting and there and rng.random() < removals:
            row = there.pop(rng.randrange(len(there)))
            changes.append((rng.choice((1, 3)), row))
        elif retracting and rng.random() < 0.03:
            changes.append((3, random_row(rng, key_values=key_values)))
        else:
            row = random_row(rng, key_values=key_values)
            changes.append((rng.choice((0, 2)) if retracting else 0, row))
            there.append(row)
    return changes


def random_node(rng: random.Random, *, retracting: bool, emission: Emission, **options: Any) -> Rank:
    upsert_key = rng.choice((None, (UNIQUE,), (UNIQUE, 1))) if retracting else None
    first = rng.choice((1, 1, 1, 2, 4))
    return rank_node(
        rng.choice((F.ROW_NUMBER, F.ROW_NUMBER, F.RANK, F.DENSE_RANK)),
        rng.choice(((0,), (0, 1), ())),
        random_order(rng),
        first,
        first + rng.choice((0, 1, 3, 20, 2**63 - 6)),
        rng.random() < 0.6,
        retracting=retracting,
        upsert_key=upsert_key,
        emission=emission,
        **options,
    )


def run(seed: int, folder: Path, node: Rank, *, retracting: bool, backend: str = "hashmap") -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_rest, "NEAR_ROWS", rng.choice((0, 1, 4)))
        patch.setattr(rank_rest, "NEAR_PER_ROOT", rng.choice((0, 1)))
        count = rng.choice((20, 60, 250))
        changes = random_changes(rng, count, retracting=retracting)
        check_run(rng, folder, node, changes, backend=backend)


@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("retracting", [False, True])
def test_equals_the_reference(tmp_path: Path, emission: Emission, retracting: bool) -> None:
    for seed in range(10):
        node = random_node(random.Random(-seed - 1), retracting=retracting, emission=emission)
        run(seed, tmp_path / str(seed), node, retracting=retracting)


@pytest.mark.fuzz
@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("retracting", [False, True])
def test_equals_the_reference_long(tmp_path: Path, emission: Emission, retracting: bool) -> None:
    for seed in range(1_000, 4_000):
        node = random_node(random.Random(-seed), retracting=retracting, emission=emission)
        run(seed, tmp_path / str(seed), node, retracting=retracting, backend=("hashmap", "rocksdb")[seed % 2])


# ------------------------------------------------------------------------------------------------------- by hand

SMALL = (t.INT, t.INT)


def small(folder: Path, node: Rank, **options: Any) -> Subtasks:
    return Subtasks(lambda context: build_ordering(node, context), folder, node.keys, **options)


def put(subtasks: Subtasks, *rows: Row, kinds: str = "") -> Output:
    numbers = [int(kind) for kind in kinds] or [0] * len(rows)
    changes = list(zip(numbers, rows, strict=True))
    types = SMALL if isinstance(rows[0][0], int) else (t.STRING, t.INT)
    return rows_of(subtasks.process(batch_of(changes, kinds=bool(kinds), types=types)))


def test_each_shift_of_a_rank_is_a_change_and_the_tail_an_insert(tmp_path: Path) -> None:
    subtasks = small(tmp_path, rank_node(order=(SortKey(1, True),), last=2, types=SMALL))
    assert put(subtasks, (1, 10), (1, 30), (1, 20), (1, 5)) == [
        ("+I", (1, 10, 1)),
        ("-U", (1, 10, 1)), ("+U", (1, 30, 1)), ("+I", (1, 10, 2)),
        ("-U", (1, 10, 2)), ("+U", (1, 20, 2)),
    ]  # fmt: skip
    assert put(subtasks, (1, 20)) == []
    assert subtasks.count("numRowsStored") == 2


def test_without_rank_output_rows_come_and_go(tmp_path: Path) -> None:
    subtasks = small(tmp_path, rank_node(order=(SortKey(1, True),), last=2, puts_out_rank=False, types=SMALL))
    assert put(subtasks, (1, 10), (1, 30), (1, 20), (1, 5), (1, 20)) == [
        ("+I", (1, 10)), ("+I", (1, 30)), ("-D", (1, 10)), ("+I", (1, 20)),
    ]  # fmt: skip


def test_the_one_row_of_a_top_1_is_updated(tmp_path: Path) -> None:
    node = rank_node(order=(SortKey(1, True),), last=1, puts_out_rank=False, types=SMALL, emits_update_before=False)
    assert put(small(tmp_path, node), (1, 10), (1, 30), (1, 20)) == [("+I", (1, 10)), ("+U", (1, 30))]


def test_the_second_row_is_numbered_two(tmp_path: Path) -> None:
    subtasks = small(tmp_path, rank_node(first=2, last=2, types=SMALL, emission=Emission.NET))
    assert put(subtasks, (4, 90), (4, 70), (4, 80), (5, 10)) == [("+I", (4, 80, 2))]


@pytest.mark.parametrize("emits_at_end", [False, True])
def test_limit_with_offset(tmp_path: Path, emits_at_end: bool) -> None:
    rows: list[Row] = [(0, 30), (1, 50), (2, 10), (3, 40), (4, 20)]
    for first, last, wanted in ((3, 4, [30, 20]), (6, 9, []), (3, 2, []), (1, 2**63 - 1, [50, 40, 30, 20, 10])):
        options: dict[str, Any] = {"emission": Emission.NET, "emits_at_end": emits_at_end}
        node = rank_node(
            keys=(), order=(SortKey(1, True),), first=first, last=last, puts_out_rank=False, types=SMALL, **options
        )
        subtasks = small(tmp_path, node)
        output = put(subtasks, *rows[:2]) + put(subtasks, *rows[2:])
        if emits_at_end:
            assert output == []
            output = rows_of(subtasks.end())
            assert [row[1] for _, row in output] == wanted
        folded = Folded()
        folded.apply(output)
        assert {row[1] for row in folded.rows} == set(wanted)


def test_over_an_updating_count_who_grows_is_shown_once(tmp_path: Path) -> None:
    types = (t.STRING, t.INT)
    for emission in Emission:
        node = rank_node(
            keys=(), order=(SortKey(1, True),), retracting=True, upsert_key=(0,), types=types, emission=emission
        )
        subtasks, folded, counts = small(tmp_path, node), Folded(), dict[str, int]()
        for word in "abcbccdddd":
            old = counts.get(word, 0)
            counts[word] = old + 1
            rows: list[Row] = [(word, old), (word, old + 1)] if old else [(word, 1)]
            folded.apply(put(subtasks, *rows, kinds="12" if old else "0"))
            assert len({row[0] for row in folded.rows}) == len(folded.rows)
        assert set(folded.rows) == {("d", 4, 1), ("c", 3, 2)}


def test_rank_keeps_all_peers_of_the_last_and_dense_rank_counts_values(tmp_path: Path) -> None:
    rows: list[Row] = [(1, 5), (1, 7), (1, 5), (1, 6), (1, 5), (1, 7)]
    wanted = {
        F.ROW_NUMBER: [(5, 1), (5, 2)],
        F.RANK: [(5, 1), (5, 1), (5, 1)],
        F.DENSE_RANK: [(5, 1), (5, 1), (5, 1), (6, 2)],
    }
    for function, shown_rows in wanted.items():
        for emission in Emission:
            subtasks, folded = small(tmp_path, rank_node(function, types=SMALL, emission=emission)), Folded()
            for row in rows:
                folded.apply(put(subtasks, row))
            assert sorted(row[1:] for row in folded.rows.elements()) == shown_rows
            assert subtasks.count("numRowsStored") == len(shown_rows)


def test_a_row_that_has_expired_makes_room(tmp_path: Path) -> None:
    clock = WallClock()
    node = rank_node(last=1, types=SMALL, state_ttl_ms=1_000, emission=Emission.NET)
    subtasks = small(tmp_path, node, wall_clock_ms=clock)
    assert put(subtasks, (1, 5)) == [("+I", (1, 5, 1))]
    clock.ms += 999
    assert put(subtasks, (1, 6)) == []
    clock.ms += 1
    assert put(subtasks, (1, 7)) == [("+I", (1, 7, 1))]


def test_batch_execution_puts_out_partitions_in_order_of_rank(tmp_path: Path) -> None:
    for retracting in (False, True):
        node = rank_node(retracting=retracting, types=SMALL, emission=Emission.NET, emits_at_end=True)
        subtasks = small(tmp_path, node)
        kinds = "00000" if retracting else ""
        assert put(subtasks, (1, 9), (2, 4), (1, 8), (1, 7), (2, 3), kinds=kinds) == []
        if retracting:
            assert put(subtasks, (1, 8), kinds="3") == []
        last = (1, 9) if retracting else (1, 8)
        output = rows_of(subtasks.end())
        assert [row for _, row in output if row[0] == 1] == [(1, 7, 1), (*last, 2)]
        assert [row for _, row in output if row[0] == 2] == [(2, 3, 1), (2, 4, 2)]


def test_batch_execution_without_a_bound_numbers_all_rows(tmp_path: Path) -> None:
    node = rank_node(last=2**63 - 1, types=SMALL, emission=Emission.NET, emits_at_end=True)
    subtasks = small(tmp_path, node)
    rows: list[Row] = [(n % 3, n * 7 % 10) for n in range(40)]
    for number in range(0, 40, 8):
        assert put(subtasks, *rows[number : number + 8]) == []
        subtasks.rescale(1 + number // 8 % 2)
    output = rows_of(subtasks.end())
    for key in range(3):
        values = sorted(row[1] for row in rows if row[0] == key)
        assert [row for _, row in output if row[0] == key] == [(key, v, n) for n, v in enumerate(values, 1)]


def test_what_cannot_rank_any_more_reads_no_rows(tmp_path: Path) -> None:
    subtasks = small(tmp_path, rank_node(order=(SortKey(1, True),), types=SMALL))
    put(subtasks, *[(key, value) for key in range(50) for value in (100, 101)])
    operator = subtasks.operators[0]
    assert isinstance(operator, RankOperator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "_touched", None)
        assert put(subtasks, *[(key, value) for key in range(50) for value in (100, 7, -3)]) == []
    subtasks.rescale(2)
    assert put(subtasks, (3, 100)) == []
    assert [kind for kind, _ in put(subtasks, (3, 102))] == ["-U", "+U", "-U", "+U"]


def test_by_arrival_ranks_are_known_at_once_and_only_counted(tmp_path: Path) -> None:
    for emits_at_end in (False, True):
        node = rank_node(order=(), first=2, last=3, types=SMALL, emits_at_end=emits_at_end)
        subtasks = small(tmp_path / str(emits_at_end), node)
        assert put(subtasks, (1, 5), (1, 9), (2, 4)) == [("+I", (1, 9, 2))]
        subtasks.rescale(2)
        output = put(subtasks, (1, 1), (1, 2), (2, 3), (None, 1))
        assert sorted(output) == [("+I", (1, 1, 3)), ("+I", (2, 3, 2))]
        assert put(subtasks, (1, 1)) == []
        assert list(subtasks.end()) == []
        assert subtasks.count("numRowsStored") == 3
    without_end = small(tmp_path, rank_node(keys=(), order=(), last=2**63 - 1, types=SMALL))
    assert [row[-1] for _, row in put(without_end, (1, 5), (1, 9), (2, 4))] == [1, 2, 3]
