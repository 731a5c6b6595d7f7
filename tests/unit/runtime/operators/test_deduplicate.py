"""Deduplication against a row-wise reference."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.operators import Emission
from planner.ir.ranks import Deduplicate
from runtime.operators.deduplicate import DeduplicateOperator
from tests.support.aggregates import Folded, Row, WallClock, rows_of
from tests.support.ranks import Subtasks, batch_of, cut, schema_of, shown

TYPES = (t.STRING, t.INT, t.timestamp(3), t.BIGINT, t.STRING)
TIME = 2
Output = list[tuple[str, Row]]


def node_of(*, keys: tuple[int, ...] = (0,), time: int | None = TIME, keeps_last: bool, **options: Any) -> Deduplicate:
    return Deduplicate("operator", "dedup", keys, time, keeps_last, schema_of(TYPES), **options)


def row(rng: random.Random) -> Row:
    return (
        rng.choice(("a", "b", "c", None)),
        rng.choice((1, 2, None)),
        datetime(2024, 3, 1) + timedelta(milliseconds=rng.randint(0, 6)),
        rng.randint(0, 2),
        rng.choice(("x", "y", None)),
    )


def subtasks_of(folder: Path, node: Deduplicate, parallelism: int = 1, **options: Any) -> Subtasks:
    return Subtasks(lambda context: DeduplicateOperator(node, context), folder, node.keys, parallelism, **options)


class Reference:
    """What each key shows."""

    def __init__(self, node: Deduplicate) -> None:
        self._node = node
        self.rows: dict[Row, Row] = {}

    def apply(self, new: Row) -> Output:
        node = self._node
        key = tuple(new[i] for i in node.keys)
        old = self.rows.get(key)
        if old is not None and node.time is None and not node.keeps_last:
            return []
        if old is not None and node.time is not None:
            earlier, equal = new[node.time] < old[node.time], new[node.time] == old[node.time]
            if earlier == node.keeps_last and not (equal and node.keeps_last):
                return []
            if equal and not node.keeps_last:
                return []
        self.rows[key] = new
        if old is None:
            return [("+I", new)]
        if old == new:
            return []
        return [("-U", old), ("+U", new)] if node.emits_update_before else [("+U", new)]


def run(seed: int, folder: Path, emission: Emission, backend: str = "hashmap") -> None:
    rng = random.Random(seed)
    node = node_of(
        keys=rng.choice(((0,), (0, 1), (1,), (), (0, TIME), tuple(range(len(TYPES))))),
        time=rng.choice((TIME, TIME, None)),
        keeps_last=rng.random() < 0.5,
        emission=emission,
        emits_update_before=rng.random() < 0.7,
    )
    reference = Reference(node)
    subtasks = subtasks_of(folder, node, 2 if node.keys else 1, backend=backend)
    folded, rescales = Folded(), 2
    for part in cut(rng, [(0, row(rng)) for _ in range(rng.choice((10, 80, 200)))]):
        before = dict(reference.rows)
        expected = [change for _, new in part for change in reference.apply(new)]
        if emission is Emission.NET:
            expected = []
            for key, new in reference.rows.items():
                old = before.get(key)
                if old is None:
                    expected.append(("+I", new))
                elif old != new:
                    expected += [("-U", old), ("+U", new)] if node.emits_update_before else [("+U", new)]
        got = rows_of(subtasks.process(batch_of(part, kinds=False, types=TYPES)))
        for key in reference.rows:
            assert [c for c in got if name(node, c) == key] == [c for c in expected if name(node, c) == key]
        assert len(got) == len(expected)
        if node.emits_update_before:
            folded.apply(got)
        if rng.random() < 0.15 and rescales:
            rescales -= 1
            subtasks.rescale(rng.choice((1, 2, 3)) if node.keys else 1)
    if node.emits_update_before:
        assert set(folded.rows) == {shown(r) for r in reference.rows.values()}
    assert subtasks.count("numRowsStored") == len(reference.rows)
    subtasks.close()


def name(node: Deduplicate, change: tuple[str, Row]) -> Row:
    return tuple(change[1][i] for i in node.keys)


@pytest.mark.parametrize("emission", list(Emission))
def test_equals_the_reference(tmp_path: Path, emission: Emission) -> None:
    for seed in range(25):
        run(seed, tmp_path / str(seed), emission, ("hashmap", "rocksdb")[seed % 8 == 0])


@pytest.mark.fuzz
@pytest.mark.parametrize("emission", list(Emission))
def test_equals_the_reference_long(tmp_path: Path, emission: Emission) -> None:
    for seed in range(1_000, 4_000):
        run(seed, tmp_path / str(seed), emission, ("hashmap", "rocksdb")[seed % 2])


def changes(folder: Path, node: Deduplicate, rows: list[Row]) -> Output:
    subtasks = subtasks_of(folder, node)
    return rows_of(subtasks.process(batch_of([(0, r) for r in rows], kinds=False, types=TYPES)))


def stamp(second: int) -> Any:
    return datetime(2024, 3, 1, 0, 0, second)


def test_at_equal_times_keep_last_takes_the_later_arrival_and_keep_first_the_earlier(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("k0", 11, stamp(2), 0, None),
        ("k0", 12, stamp(8), 0, None),
        ("k1", 13, stamp(4), 0, None),
        ("k1", 14, stamp(4), 0, None),
    ]
    last = changes(tmp_path, node_of(keeps_last=True, emission=Emission.NET), rows)
    assert [row[1] for _, row in last] == [12, 14]
    first = changes(tmp_path, node_of(keeps_last=False, emission=Emission.NET), rows)
    assert [row[1] for _, row in first] == [11, 13]


def test_keep_first_by_time_updates_when_an_earlier_row_comes_later(tmp_path: Path) -> None:
    rows: list[Row] = [("a", 1, stamp(5), 0, None), ("a", 2, stamp(5), 0, None), ("a", 3, stamp(4), 0, None)]
    output = changes(tmp_path, node_of(keeps_last=False), rows)
    assert [(kind, row[1]) for kind, row in output] == [("+I", 1), ("-U", 1), ("+U", 3)]


def test_the_first_by_arrival_is_an_insert_only_stream(tmp_path: Path) -> None:
    node = node_of(keeps_last=False, time=None)
    subtasks = subtasks_of(tmp_path, node)
    first = list(subtasks.process(batch_of([(0, ("a", 1, stamp(5), 0, None))] * 2, kinds=False, types=TYPES)))
    assert [piece.row_kinds for piece in first] == [None]
    assert sum(piece.row_count for piece in first) == 1
    assert list(subtasks.process(batch_of([(0, ("a", 2, stamp(1), 0, None))], kinds=False, types=TYPES))) == []


def test_a_key_that_has_expired_is_new(tmp_path: Path) -> None:
    clock = WallClock()
    for keeps_last, kinds in ((True, ["+I", "+U", "+I"]), (False, ["+I", "+I"])):
        node = node_of(keeps_last=keeps_last, time=None, state_ttl_ms=1_000, emits_update_before=False)
        subtasks = subtasks_of(tmp_path, node, wall_clock_ms=clock)
        output: Output = []
        for pause in (600, 1_000, 0):
            one = batch_of([(0, ("a", 1, stamp(5), 0, None))], kinds=False, types=TYPES)
            output += rows_of(subtasks.process(one))
            clock.ms += pause
        assert [kind for kind, _ in output] == kinds


def test_batch_execution_puts_out_one_row_per_key_at_the_end(tmp_path: Path) -> None:
    node = node_of(keeps_last=True, emission=Emission.NET, emits_update_before=False, emits_at_end=True)
    subtasks = subtasks_of(tmp_path, node)
    rows: list[Row] = [("a", 1, stamp(5), 0, None), (None, 2, stamp(5), 0, None), ("a", 3, stamp(7), 0, None)]
    assert list(subtasks.process(batch_of([(0, r) for r in rows], kinds=False, types=TYPES))) == []
    assert {row[:2] for _, row in rows_of(subtasks.end())} == {("a", 3), (None, 2)}
