"""Rows far behind in partitions that are large for their thresholds: changelogs like a row-wise reference's, also when
rows move between near and far all the time, and what is kept where."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.ir import types as t
from planner.ir.operators import Emission
from planner.ir.ranks import Rank, SortKey
from runtime.operators import rank, rank_rest
from runtime.operators.rank import RankOperator
from runtime.operators.rank_entries import Run, Stored, entries_of, lives_by_key
from runtime.operators.rank_rest import RestRows, counts_after, lowest_counts
from runtime.operators.registry import build_ordering
from tests.support.aggregates import Row, rows_of
from tests.support.rank_runs import F, check_run, rank_node
from tests.support.ranks import Change, Subtasks, batch_of

TYPES = (t.INT, t.INT, t.INT)
"""Partition, value, upsert key if there is one."""
KEYS: tuple[tuple[int, ...] | None, ...] = ((2,), None)


def random_changes(rng: random.Random, count: int, values: int, *, has_key: bool) -> list[Change]:
    """Of a table that grows, shrinks from the front and is updated by turns."""
    ids = 60 if has_key else 3
    there: dict[int, Row] = {}
    copies = iter(range(count * 2))
    changes: list[Change] = []
    while len(changes) < count:
        turn = rng.choice(("grows", "grows", "shrinks", "changes"))
        for _ in range(rng.choice((3, 30))):
            row = (rng.choice((0, 0, 0, 1)), rng.randrange(values), rng.randrange(ids))
            name = row[2] if has_key else next(copies)
            old = there.get(name)
            if turn == "shrinks" and there:
                name = min(there, key=lambda n: there[n][1]) if rng.random() < 0.8 else rng.choice(list(there))
                changes.append((3, there.pop(name)))
                continue
            if turn == "changes" and there:
                name = rng.choice(list(there))
                old = there[name]
                row = (old[0], row[1], old[2])
            if old is not None and old[0] != row[0]:
                # To another partition.
                changes.append((3, old))
            elif old is not None and (not has_key or rng.random() < 0.8):
                changes.append((1, old))
            changes.append((0 if old is None else 2, row))
            there[name] = row
    return changes


def random_node(rng: random.Random, **options: Any) -> Rank:
    first = rng.choice((1, 1, 2))
    return rank_node(
        keys=rng.choice(((0,), (0,), ())),
        order=(SortKey(1, rng.random() < 0.3),),
        first=first,
        last=first + rng.choice((0, 1, 3)),
        puts_out_rank=rng.random() < 0.5,
        retracting=True,
        types=TYPES,
        **options,
    )


def parted(operator: RankOperator) -> tuple[list[Row], list[Row]]:
    """Rows that are near and far, with their arrival numbers."""
    columns, numbers = operator._rows.all_rows()
    near = [(*row, number) for *row, number in zip(*(c.to_pylist() for c in columns), numbers.tolist(), strict=True)]
    rest, far = operator._rest, list[Row]()
    assert rest is not None
    for slots in rest._table.all_slots():
        _, columns, numbers = rest.read(slots)
        far += [tuple(row) for row in zip(*(c.to_pylist() for c in columns), numbers.tolist(), strict=True)]
    assert len(far) == rest.row_count
    return near, far


def check_parts(node: Rank) -> Callable[[Subtasks], None]:
    """What `rank_rest` promises."""
    sign = -1 if node.order[0].is_descending else 1

    def place(row: Row) -> tuple[int, ...]:
        return (sign * row[1], row[-1]) if node.function is F.ROW_NUMBER else (sign * row[1],)

    def look(subtasks: Subtasks) -> None:
        for operator in subtasks.operators:
            assert isinstance(operator, RankOperator)
            near, far = parted(operator)
            for partition in {row[0] if node.keys else 0 for row in far}:
                own_near = [row for row in near if not node.keys or row[0] == partition]
                own_far = [row for row in far if not node.keys or row[0] == partition]
                assert max(map(place, own_near)) < min(map(place, own_far))
                ranks = {row[1] for row in own_near} if node.function is F.DENSE_RANK else own_near
                assert len(ranks) >= node.last

    return look


def set_near(patch: pytest.MonkeyPatch, rows: int, per_root: int = 0) -> None:
    patch.setattr(rank_rest, "NEAR_ROWS", rows)
    patch.setattr(rank_rest, "NEAR_PER_ROOT", per_root)


class Moves(Counter[str]):
    """How often rows moved."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        bring_near, far = RestRows.bring_near, RestRows.far

        def counted_bring_near(rest: RestRows, *arguments: Any) -> None:
            self["near"] += 1
            bring_near(rest, *arguments)

        def counted_far(rest: RestRows, *arguments: Any) -> Any:
            moved = far(rest, *arguments)
            self["far"] += bool(moved.any())
            return moved

        patch.setattr(RestRows, "bring_near", counted_bring_near)
        patch.setattr(RestRows, "far", counted_far)


def check_random(seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch, moves: Moves, **options: Any) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        node = random_node(rng, **options)
        set_near(monkeypatch, rng.choice((0, 1, 3)), rng.choice((0, 0, 1)))
        changes = random_changes(rng, 200, rng.choice((2, 6, 30, 1_000)), has_key=node.upsert_key is not None)
        backend = ("hashmap", "rocksdb")[seed % 2]
        options_of_run: dict[str, Any] = {"backend": backend, "rescales": 4, "look": check_parts(node)}
        check_run(rng, folder / str(seed), node, changes, types=TYPES, batch_sizes=(4, 12, 40), **options_of_run)
    assert min(moves["near"], moves["far"]) >= len(seeds) // 2, moves


@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("upsert_key", KEYS)
@pytest.mark.parametrize("function", list(F))
def test_equals_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: F, upsert_key: Any, emission: Emission
) -> None:
    moves = Moves(monkeypatch)
    options: dict[str, Any] = {"function": function, "upsert_key": upsert_key, "emission": emission}
    check_random(range(2), tmp_path, monkeypatch, moves, **options)


@pytest.mark.fuzz
@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("upsert_key", KEYS)
@pytest.mark.parametrize("function", list(F))
def test_equals_the_reference_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: F, upsert_key: Any, emission: Emission
) -> None:
    moves = Moves(monkeypatch)
    options: dict[str, Any] = {"function": function, "upsert_key": upsert_key, "emission": emission}
    check_random(range(1_000, 1_100), tmp_path, monkeypatch, moves, **options)


@pytest.mark.parametrize("upsert_key", KEYS)
@pytest.mark.parametrize("function", list(F))
def test_goes_on_from_a_state_that_was_all_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: F, upsert_key: Any
) -> None:
    """Checkpoints of before there was a rest."""
    moves, rng, batches = Moves(monkeypatch), random.Random(1), iter(range(10_000))
    node = rank_node(function, last=2, retracting=True, upsert_key=upsert_key, types=TYPES)
    set_near(monkeypatch, 1)
    monkeypatch.setattr(rank, "_REST_LAST_MAX", 0)

    def look(subtasks: Subtasks) -> None:
        number = next(batches)
        if number == 3:
            assert not moves
            monkeypatch.setattr(rank, "_REST_LAST_MAX", 1 << 20)
            subtasks.rescale(3)
        if number >= 3:
            check_parts(node)(subtasks)

    changes = random_changes(rng, 300, 30, has_key=upsert_key is not None)
    check_run(rng, tmp_path, node, changes, types=TYPES, rescales=0, batch_sizes=(8,), look=look)
    assert moves["far"]


# ------------------------------------------------------------------------------------------------------- by hand


def subtasks_of(folder: Path, node: Rank) -> tuple[Subtasks, Callable[..., Any]]:
    subtasks = Subtasks(lambda context: build_ordering(node, context), folder, node.keys)

    def put(kind: int, *rows: Row) -> Any:
        return rows_of(subtasks.process(batch_of([(kind, row) for row in rows], kinds=True, types=TYPES)))

    return subtasks, put


def sizes(subtasks: Subtasks) -> tuple[int, int]:
    operator = subtasks.operators[0]
    assert isinstance(operator, RankOperator)
    near, far = parted(operator)
    return len(near), len(far)


@pytest.mark.parametrize("upsert_key", KEYS)
@pytest.mark.parametrize("function", [F.RANK, F.DENSE_RANK])
def test_peers_are_never_parted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: F, upsert_key: Any) -> None:
    set_near(monkeypatch, 2)
    node = rank_node(function, last=2, puts_out_rank=False, retracting=True, upsert_key=upsert_key, types=TYPES)
    subtasks, put = subtasks_of(tmp_path, node)
    put(0, *[(1, 5, n) for n in range(50)])
    assert sizes(subtasks) == (50, 0)
    put(0, *[(1, 6 + n // 10, 50 + n) for n in range(150)])
    # One group more by DENSE_RANK, so that one may come and go.
    assert sizes(subtasks) == ((50, 150) if function is F.RANK else (70, 130))
    assert put(3, *[(1, 5, n) for n in range(48)]) == [("-D", (1, 5, n)) for n in range(48)]
    enters = [[("+I", (1, value, 10 * value - 10 + n)) for n in range(10)] for value in (6, 7)]
    entered = enters[0] if function is F.RANK else []
    assert put(3, (1, 5, 48)) == [("-D", (1, 5, 48)), *entered]
    entered = [] if function is F.RANK else enters[1]
    assert put(3, (1, 5, 49)) == [("-D", (1, 5, 49)), *entered]
    subtasks.close()


@pytest.mark.parametrize("emission", list(Emission))
@pytest.mark.parametrize("upsert_key", KEYS)
@pytest.mark.parametrize("function", list(F))
def test_a_batch_may_take_away_more_than_is_brought_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: F, upsert_key: Any, emission: Emission
) -> None:
    set_near(monkeypatch, 0)
    node = rank_node(function, last=2, retracting=True, upsert_key=upsert_key, types=TYPES, emission=emission)
    subtasks, put = subtasks_of(tmp_path, node)
    put(0, *[(1, n, n) for n in range(200)])
    assert sizes(subtasks)[1] > 190
    output = put(3, *[(1, n, n) for n in range(195)])
    assert {row for kind, row in output[-4:] if kind[0] == "+"} == {(1, 195, 195, 1), (1, 196, 196, 2)}
    subtasks.close()


@pytest.mark.parametrize("upsert_key", KEYS)
def test_the_first_to_come_of_peers_is_brought_near_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upsert_key: Any
) -> None:
    set_near(monkeypatch, 0)
    node = rank_node(last=1, puts_out_rank=False, retracting=True, upsert_key=upsert_key, types=TYPES)
    subtasks, put = subtasks_of(tmp_path, node)
    put(0, *[(1, 5, n) for n in range(100)])
    assert sizes(subtasks) == (1, 99)
    # The row that came first is the last one to go there.
    put(0, (1, 2, 100), (1, 3, 101))
    assert sizes(subtasks) == (1, 101)
    assert put(3, (1, 2, 100)) == [("-U", (1, 2, 100)), ("+U", (1, 3, 101))]
    assert put(3, (1, 3, 101)) == [("-U", (1, 3, 101)), ("+U", (1, 5, 0))]
    assert sizes(subtasks) == (1, 99)
    subtasks.close()


def test_equal_rows_far_behind_go_in_the_order_in_which_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_near(monkeypatch, 0)
    subtasks, put = subtasks_of(tmp_path, rank_node(last=1, retracting=True, types=TYPES))
    put(0, (1, 1, 0), *[(1, 2, n % 2) for n in range(7)])
    operator = subtasks.operators[0]
    assert isinstance(operator, RankOperator)
    assert sorted(row[-1] for row in parted(operator)[1] if row[2] == 0) == [1, 3, 5, 7]
    assert put(3, (1, 2, 0), (1, 2, 0)) == []
    assert sorted(row[-1] for row in parted(operator)[1] if row[2] == 0) == [5, 7]
    assert put(0, (1, 2, 0)) == []
    subtasks.rescale(1)
    assert put(3, (1, 1, 0)) == [("-U", (1, 1, 0, 1)), ("+U", (1, 2, 1, 1))]
    subtasks.close()


def test_equal_rows_are_found_by_nested_values_and_where_nothing_but_the_partition_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_near(monkeypatch, 0)
    types = (t.INT, t.INT, t.array(t.INT))
    for number, keys in enumerate(((0,), (0, 1, 2))):
        node = rank_node(keys=keys, last=1, retracting=True, types=types, emission=Emission.NET)
        subtasks, _ = subtasks_of(tmp_path / str(number), node)
        for kind in (0, 3):
            rows: list[Row] = [(1, 2, [7, None]), (1, 2, [7, None]), (1, 2, [7, None])]
            output = rows_of(subtasks.process(batch_of([(kind, row) for row in rows], kinds=True, types=types)))
            assert [kind for kind, _ in output] == (["+I"] if kind == 0 else ["-D"])
            assert subtasks.count("numRowsStored") == (3 if kind == 0 else 0)
            subtasks.rescale(2)
        subtasks.close()


def test_counts_of_near_groups_are_those_of_a_loop_over_rows() -> None:
    rng = np.random.default_rng(3)
    for function in F:
        for _ in range(60):
            known, count = int(rng.integers(0, 8)), int(rng.integers(1, 12))
            names = np.concatenate((rng.permutation(8)[:known], rng.integers(0, 8, count)))
            adds, codes = rng.random(count) < 0.5, rng.integers(0, 4, known + count)
            zeros = np.zeros(count, dtype=np.int64)
            run = Run(np.arange(count), zeros, np.zeros(1, dtype=np.int64), np.array([count]))
            stored = Stored(np.zeros(known, dtype=np.int64), np.arange(known), np.arange(known))
            entries = entries_of(run, stored, codes, function, lives_by_key(run, stored.partitions, names, adds))
            near = entries.codes <= 2

            def counted(there: Any, entries: Any = entries, function: Any = function) -> int:
                return len(set(entries.codes[there])) if function is F.DENSE_RANK else int(there.sum())

            there = dict(zip(names[:known].tolist(), codes[:known].tolist(), strict=True))
            totals = [list(there.values())]
            for name, code, is_add in zip(names[known:].tolist(), codes[known:].tolist(), adds, strict=True):
                there.pop(name, None)
                totals.append(list(there.values()))
                if is_add:
                    there[name] = code
                    totals.append(list(there.values()))
            kept = [[code for code in codes_there if code <= 2] for codes_there in totals]
            filled = [len(set(own)) if function is F.DENSE_RANK else len(own) for own in kept]
            assert lowest_counts(run, entries, near, function).tolist() == [min(filled)]
            assert counts_after(entries, near, function).tolist() == [filled[-1]]
            assert counted(near & entries.stays) == filled[-1]
