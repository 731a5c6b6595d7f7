"""Top-N of windows against a row-wise reference."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.ir import types as t
from planner.ir.ranks import RankFunction, SortKey, WindowRank
from planner.ir.windows import TumbleWindow
from runtime.operators import window_rank
from runtime.operators.window_rank import WindowRankOperator
from tests.support.aggregates import Row, rows_of
from tests.support.ranks import (
    ORDERABLE,
    SCHEMA,
    Change,
    RankReference,
    Subtasks,
    batch_of,
    cut,
    random_order,
    random_row,
    schema_of,
    shown,
)

F = RankFunction
TYPES = (*SCHEMA, t.timestamp(3))
END = len(TYPES) - 1
ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
START = dt.datetime(2024, 3, 1)
START_MS = 1_709_251_200_000


def node_of(
    function: RankFunction = F.ROW_NUMBER,
    keys: tuple[int, ...] = (0,),
    order: tuple[SortKey, ...] = (SortKey(2),),
    first: int = 1,
    last: int = 2,
    puts_out_rank: bool = True,
    **options: Any,
) -> WindowRank:
    window = TumbleWindow(0, ROWTIME, 10)
    output = schema_of(TYPES, ranked=puts_out_rank)
    return WindowRank(
        "operator", "rank", function, keys, END, window, order, first, last, puts_out_rank, output, **options
    )


def subtasks_of(folder: Path, node: WindowRank, parallelism: int = 1, **options: Any) -> Subtasks:
    return Subtasks(lambda context: WindowRankOperator(node, context), folder, node.keys, parallelism, **options)


def expected(node: WindowRank, rows: list[Row]) -> list[Row]:
    """What windows whose rows these are put out."""
    ranking = RankReference(msgspec.structs.replace(node, keys=(END, *node.keys)), latest_of_ties=node.latest_of_ties)
    for row in rows:
        ranking.apply(0, row)
    return [
        shown((*entry.row, rank) if node.puts_out_rank else entry.row)
        for partition in ranking.partitions
        for entry, rank in ranking.ranked(partition)
    ]


def run(seed: int, folder: Path, backend: str = "hashmap") -> None:
    rng = random.Random(seed)
    first = rng.choice((1, 1, 2))
    node = node_of(
        rng.choice((F.ROW_NUMBER, F.ROW_NUMBER, F.RANK, F.DENSE_RANK)),
        rng.choice(((0,), (0, 1), ())),
        random_order(rng, (*ORDERABLE, END)),
        first,
        first + rng.choice((0, 2, 10)),
        rng.random() < 0.5,
        latest_of_ties=rng.random() < 0.3,
    )
    subtasks = subtasks_of(folder, node, 2 if node.keys else 1, backend=backend)
    waiting: dict[int, list[Row]] = {}
    watermark, late, rescales = -1, 0, 2
    changes: list[Change] = []
    for _ in range(rng.choice((20, 120, 300))):
        end = 10 * rng.randint(1, 6)
        changes.append((0, (*random_row(rng), START + dt.timedelta(milliseconds=end))))
    for part in cut(rng, changes):
        assert list(subtasks.process(batch_of(part, kinds=False, types=TYPES))) == []
        for _, row in part:
            end = round((row[END] - START).total_seconds() * 1000)
            if end - 1 <= watermark:
                late += 1
            else:
                waiting.setdefault(end, []).append(row)
        if rng.random() < 0.2 and rescales:
            rescales -= 1
            subtasks.rescale(rng.choice((1, 2, 3)) if node.keys else 1)
        if rng.random() < 0.2:
            watermark += rng.randint(0, 15)
            output = subtasks.advance(START_MS + watermark)
            assert all(piece.row_kinds is None for piece in output)
            due = [end for end in sorted(waiting) if end - 1 <= watermark]
            wanted = expected(node, [row for end in due for row in waiting.pop(end)])
            got = [shown(row) for _, row in rows_of(output)]
            assert Counter(got) == Counter(wanted), node
            if len(subtasks.operators) == 1:
                assert [row[END] for row in got] == sorted(row[END] for row in got)
    got = [shown(row) for _, row in rows_of(subtasks.advance(2**63 - 1))]
    assert Counter(got) == Counter(expected(node, [row for rows in waiting.values() for row in rows]))
    assert subtasks.count("numLateRecordsDropped") == late
    assert subtasks.count("stateBytes") == 0
    subtasks.close()


def test_equals_the_reference(tmp_path: Path) -> None:
    for seed in range(20):
        run(seed, tmp_path / str(seed), ("hashmap", "rocksdb")[seed % 8 == 0])


@pytest.mark.fuzz
def test_equals_the_reference_long(tmp_path: Path) -> None:
    for seed in range(1_000, 4_000):
        run(seed, tmp_path / str(seed), ("hashmap", "rocksdb")[seed % 2])


def row_at(end: int, key: int, number: int, value: int = 0) -> Row:
    row = list(random_row(random.Random(0)))
    row[0], row[2], row[12] = key, value, number
    return (*row, START + dt.timedelta(milliseconds=end))


def test_at_equal_times_the_later_arrival_is_first_where_it_is_asked_for(tmp_path: Path) -> None:
    rows = [(0, row_at(10, 0, 11)), (0, row_at(10, 0, 12)), (0, row_at(10, 1, 13)), (0, row_at(10, 1, 14))]
    for latest, wanted in ((True, {12, 14}), (False, {11, 13})):
        node = node_of(order=(SortKey(END, True),), last=1, puts_out_rank=False, latest_of_ties=latest)
        subtasks = subtasks_of(tmp_path, node)
        list(subtasks.process(batch_of(rows, kinds=False, types=TYPES)))
        assert {row[12] for _, row in rows_of(subtasks.advance(START_MS + 9))} == wanted


def test_a_window_keeps_no_more_than_may_rank(tmp_path: Path) -> None:
    subtasks = subtasks_of(tmp_path, node_of())
    rows = [(0, row_at(10, n % 3, n, n)) for n in range(3_000)]
    list(subtasks.process(batch_of(rows, kinds=False, types=TYPES)))
    once = subtasks.count("stateBytes")
    assert once < 2_000
    for _ in range(500):
        list(subtasks.process(batch_of(rows[:30], kinds=False, types=TYPES)))
    assert subtasks.count("stateBytes") < 70 * once


def test_a_firing_goes_on_after_a_restore_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rank, "OUTPUT_ROWS_MAX", 4)
    rows = [(0, row_at(10, 0, n)) for n in range(10)]
    for taken in (1, 2, 3):
        subtasks = subtasks_of(tmp_path / str(taken), node_of(keys=(12,)))
        list(subtasks.process(batch_of(rows, kinds=False, types=TYPES)))
        firing = subtasks.operators[0].advance(START_MS + 20)
        first = rows_of([next(firing) for _ in range(taken)])
        subtasks.rescale(2)
        list(subtasks.process(batch_of([(0, row_at(10, 0, 77))], kinds=False, types=TYPES)))
        rest = rows_of(subtasks.advance(START_MS + 20))
        assert sorted(row[12] for _, row in first + rest) == list(range(10))
        assert subtasks.count("numLateRecordsDropped") == 1
        assert subtasks.advance(START_MS + 30) == []
        assert subtasks.count("stateBytes") == 0
