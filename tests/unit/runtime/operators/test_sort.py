"""ORDER BY against sorted lists."""

from __future__ import annotations

import datetime as dt
import functools
import random
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.ranks import Sort, SortKey
from runtime.operators import sort
from runtime.operators.sort import SortOperator
from tests.support.aggregates import Row, rows_of
from tests.support.ranks import (
    SCHEMA,
    Change,
    Subtasks,
    batch_of,
    compare,
    cut,
    random_order,
    random_row,
    schema_of,
    shown,
)

TYPES = (*SCHEMA, t.timestamp(3))
TIME = len(TYPES) - 1
START = dt.datetime(2024, 3, 1)
START_MS = 1_709_251_200_000


def subtasks_of(folder: Path, order: tuple[SortKey, ...], time: int | None, **options: Any) -> Subtasks:
    node = Sort("operator", "sort", order, time, schema_of(TYPES))
    return Subtasks(lambda context: SortOperator(node, context), folder, (), **options)


def row_at(rng: random.Random, ms: int) -> Row:
    return (*random_row(rng), START + dt.timedelta(milliseconds=ms))


def in_order(rows: list[Row], order: tuple[SortKey, ...]) -> list[Row]:
    return [shown(row) for row in sorted(rows, key=functools.cmp_to_key(compare(order)))]


def run_by_time(seed: int, folder: Path, backend: str) -> None:
    rng = random.Random(seed)
    order = (SortKey(TIME), *random_order(rng))
    subtasks = subtasks_of(folder, order, TIME, backend=backend)
    spread = rng.choice((10, 100, 100_000))
    changes: list[Change] = [(0, row_at(rng, rng.randint(0, spread))) for _ in range(rng.choice((10, 100, 300)))]
    waiting: list[Row] = []
    watermark, late = -1, 0
    for part in cut(rng, changes):
        assert list(subtasks.process(batch_of(part, kinds=False, types=TYPES))) == []
        for _, row in part:
            if millis(row) <= watermark:
                late += 1
            else:
                waiting.append(row)
        if rng.random() < 0.2:
            subtasks.rescale(1)
        if rng.random() < 0.3:
            watermark += rng.randint(0, spread // 4)
            due = [row for row in waiting if millis(row) <= watermark]
            waiting = [row for row in waiting if millis(row) > watermark]
            assert [shown(row) for _, row in rows_of(subtasks.advance(START_MS + watermark))] == in_order(due, order)
    output = [shown(row) for _, row in rows_of(subtasks.advance(2**63 - 1))]
    assert output == in_order(waiting, order)
    assert subtasks.count("numLateRecordsDropped") == late
    assert subtasks.count("stateBytes") == 0
    subtasks.close()


def millis(row: Row) -> int:
    since: dt.timedelta = row[TIME] - START
    return since // dt.timedelta(milliseconds=1)


def test_by_time_equals_the_reference(tmp_path: Path) -> None:
    for seed in range(25):
        run_by_time(seed, tmp_path / str(seed), ("hashmap", "rocksdb")[seed % 8 == 0])


@pytest.mark.fuzz
def test_by_time_equals_the_reference_long(tmp_path: Path) -> None:
    for seed in range(1_000, 3_000):
        run_by_time(seed, tmp_path / str(seed), ("hashmap", "rocksdb")[seed % 2])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_without_a_time_everything_comes_at_the_end(tmp_path: Path, backend: str) -> None:
    for seed in range(15):
        rng = random.Random(seed)
        order = random_order(rng)
        subtasks = subtasks_of(tmp_path / str(seed), order, None, backend=backend)
        rows = [row_at(rng, rng.randint(0, 10)) for _ in range(rng.choice((0, 30, 200)))]
        for part in cut(rng, [(0, row) for row in rows]):
            assert list(subtasks.process(batch_of(part, kinds=False, types=TYPES))) == []
            assert list(subtasks.advance(START_MS + rng.randint(0, 100))) == []
            if rng.random() < 0.05:
                subtasks.rescale(1)
        assert [shown(row) for _, row in rows_of(subtasks.end())] == in_order(rows, order)
        assert subtasks.operators[0].counters()["stateBytes"] == 0
        subtasks.close()


def test_a_firing_goes_on_after_a_restore_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "OUTPUT_ROWS_MAX", 4)
    rng = random.Random(1)
    order = (SortKey(TIME), SortKey(12, is_descending=True))
    rows = [row_at(rng, ms) for ms in (5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 7, 8, 9, 10, 30)]
    for taken in range(1, 5):
        subtasks = subtasks_of(tmp_path / str(taken), order, TIME)
        list(subtasks.process(batch_of([(0, row) for row in rows], kinds=False, types=TYPES)))
        firing = subtasks.operators[0].advance(START_MS + 20)
        output = [next(firing) for _ in range(taken)]
        subtasks.rescale(1)
        output += subtasks.advance(START_MS + 20)
        assert [shown(row) for _, row in rows_of(output)] == in_order(rows[:-1], order)
        assert subtasks.advance(START_MS + 29) == []
