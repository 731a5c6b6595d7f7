"""Interval joins against Flink's rules row by row: any rows, order, batches, watermarks, restores, both backends."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef
from planner.ir.joins import IntervalJoin, JoinKind
from planner.ir.schema import Column, Schema
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from runtime.operators import interval_join
from runtime.operators.interval_join import IntervalJoinOperator
from tests.support.two_inputs import EPOCH_MS, Row, TwoInputs, at, first_of
from tests.support.window_harness import ROWTIME

LEFT = Schema(
    (Column("k", t.BIGINT), Column("s", t.STRING), Column("ts", ROWTIME), Column("v", t.INT), Column("id", t.INT))
)
RIGHT = Schema(
    (Column("id", t.INT), Column("ts", ROWTIME), Column("k", t.BIGINT), Column("v", t.INT), Column("s", t.STRING))
)
OUTPUT = Schema((*LEFT.columns, *RIGHT.columns))
LESS = Call("LT", (InputRef(3, t.INT), InputRef(8, t.INT)), t.BOOLEAN)


def node(
    kind: JoinKind,
    bounds: tuple[int, int],
    *,
    keys: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (2,)),
    null_safe: tuple[bool, ...] = (False,),
    condition: Expression | None = None,
    processing_time: bool = False,
) -> IntervalJoin:
    left_time, right_time = (None, None) if processing_time else (2, 1)
    return IntervalJoin(
        "join", "join", kind, keys[0], keys[1], null_safe, left_time, right_time, *bounds, condition, LEFT, RIGHT,
        OUTPUT, watermark_delay_ms=7,
    )  # fmt: skip


class Reference:
    """One row after the other. A side's rows are lists of [time, key, row, matched]."""

    def __init__(self, join: IntervalJoin) -> None:
        self.join = join
        self.clock = MIN_WATERMARK_MS
        self.caches: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.output: list[Row] = []

    def outer(self, side: int) -> bool:
        return self.join.kind.is_right_outer if side else self.join.kind.is_left_outer

    def ahead(self, side: int) -> int:
        return -self.join.lower_ms if side else self.join.upper_ms

    def emit(self, side: int, own: Row | None, other: Row | None) -> None:
        left, right = (other, own) if side else (own, other)
        left_width, right_width = len(self.join.left.columns), len(self.join.right.columns)
        self.output.append((*(left or (None,) * left_width), *(right or (None,) * right_width)))

    def row(self, side: int, row: Row, time: int) -> None:
        keys = self.join.right_keys if side else self.join.left_keys
        key = tuple(row[i] for i in keys)
        matched = False
        meets = all(safe or value is not None for safe, value in zip(self.join.null_safe, key, strict=True))
        if not meets:
            if self.outer(side):
                self.emit(side, row, None)
            return
        for kept in self.caches[1 - side]:
            other_time, other_key, other_row, _ = kept
            left_time, right_time = (other_time, time) if side else (time, other_time)
            if other_key != key or not self.join.lower_ms <= right_time - left_time <= self.join.upper_ms:
                continue
            if self.join.condition is not None:
                left, right = (other_row, row) if side else (row, other_row)
                if left[3] is None or right[3] is None or not left[3] < right[3]:
                    continue
            matched = kept[3] = True
            self.emit(side, row, other_row)
        if self.clock < time + self.ahead(side):
            self.caches[side].append([time, key, row, matched])
        elif not matched and self.outer(side):
            self.emit(side, row, None)

    def advance(self, clock: int) -> None:
        self.clock = max(self.clock, clock)
        for side, cache in enumerate(self.caches):
            for kept in list(cache):
                if clock == MAX_WATERMARK_MS or kept[0] <= clock - self.ahead(side) - 1:
                    cache.remove(kept)
                    if not kept[3] and self.outer(side):
                        self.emit(side, kept[2], None)

    def taken(self) -> list[Row]:
        output, self.output = self.output, []
        return output


def run(seed: int, join: IntervalJoin, directory: Path, backend: str, size: int, managed_bytes: int = 0) -> None:
    rng = random.Random(seed)
    options = {"state.backend.type": backend}
    inputs = TwoInputs(
        lambda context: IntervalJoinOperator(join, context),
        (LEFT, RIGHT), (join.left_keys, join.right_keys), directory, options, managed_bytes,
    )  # fmt: skip
    reference = Reference(join)
    processing_time = join.left_time is None
    now, watermark, identity = EPOCH_MS, EPOCH_MS - 40, 0
    for _ in range(size):
        action = rng.random()
        if action < 0.7:
            side = rng.randrange(2)
            rows: list[Row] = []
            for _ in range(rng.choice((1, 3, 20))):
                time = now if processing_time else watermark + rng.randint(-25, 60)
                identity += 1
                key, text, value = (
                    rng.choice((1, 2, 3, None)),
                    rng.choice(("a", "b", None)),
                    rng.choice((1, 2, 3, None)),
                )
                row: Row = (identity, at(time), key, value, text) if side else (key, text, at(time), value, identity)
                rows.append(row)
                if processing_time:
                    reference.clock = now
                reference.row(side, row, time)
            inputs.send(side, rows)
        elif action < 0.9:
            step = rng.choice((0, 1, 5, 30))
            if processing_time:
                now += step
                inputs.pass_time(now)
                reference.advance(now)
            else:
                watermark += step
                inputs.advance(watermark)
                reference.advance(watermark)
        else:
            inputs.restart(rng.choice((1, 2, 3)) if join.left_keys else 1)
        got = inputs.taken()
        assert all(kind == "+I" for kind, _ in got)
        assert Counter(row for _, row in got) == Counter(reference.taken())
    if not processing_time:
        inputs.advance(MAX_WATERMARK_MS)
        reference.advance(MAX_WATERMARK_MS)
        assert Counter(row for _, row in inputs.taken()) == Counter(reference.taken())
        assert inputs.counter("numRowsStored") == 0
    inputs.close()


KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
BOUNDS = ((0, 30), (-20, 20), (-30, -10), (5, 5), (0, 0), (10, 40), (10, 5))
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"condition": LESS},
    {"keys": ((0, 1), (2, 4)), "null_safe": (True, False)},
    {"keys": ((), ()), "null_safe": ()},
)


BACKENDS = st.sampled_from(["hashmap", "hashmap", "rocksdb"])
SEEDS = st.integers(0, 2**32 - 1)


def check(seed: int, backend: str, processing_time: bool) -> None:
    rng = random.Random(seed)
    join = node(rng.choice(KINDS), rng.choice(BOUNDS), processing_time=processing_time, **rng.choice(SHAPES))
    with tempfile.TemporaryDirectory() as directory:
        run(seed, join, Path(directory), backend, rng.choice((5, 40)))


@settings(max_examples=24, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS, st.booleans())
def test_equals_the_rules_row_by_row(seed: int, backend: str, processing_time: bool) -> None:
    check(seed, backend, processing_time)


@pytest.mark.fuzz
@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS, st.booleans())
def test_equals_the_rules_row_by_row_at_length(seed: int, backend: str, processing_time: bool) -> None:
    check(seed, backend, processing_time)


ORDERS = Schema((Column("oid", t.INT), Column("ots", ROWTIME)))
ITEMS = Schema((Column("oid", t.INT), Column("its", ROWTIME), Column("prod", t.STRING)))


def order_join(kind: JoinKind, lower_ms: int, upper_ms: int) -> IntervalJoin:
    output = Schema((*ORDERS.columns, *ITEMS.columns))
    return IntervalJoin(
        "join", "join", kind, (0,), (0,), (False,), 1, 1, lower_ms, upper_ms, None, ORDERS, ITEMS, output, upper_ms + 1
    )


def orders(join: IntervalJoin, directory: Path) -> TwoInputs:
    return TwoInputs(lambda context: IntervalJoinOperator(join, context), (ORDERS, ITEMS), ((0,), (0,)), directory)


def test_a_row_has_its_partners_or_is_padded_once_and_the_upper_bound_is_inclusive(tmp_path: Path) -> None:
    ten = EPOCH_MS
    inputs = orders(order_join(JoinKind.LEFT, 0, 3_000), tmp_path)
    inputs.send(0, [(1, at(ten)), (2, at(ten)), (3, at(ten))])
    inputs.advance(ten - 10_000)
    inputs.send(1, [(1, at(ten + 2_000), "A"), (1, at(ten + 3_000), "B"), (2, at(ten + 3_001), "C")])
    inputs.send(1, [(2, at(ten - 1), "D")])
    assert [(row[0], row[4]) for _, row in inputs.taken()] == [(1, "A"), (1, "B")]
    inputs.advance(ten + 3_000)
    assert inputs.taken() == []
    inputs.restart(2)
    inputs.advance(ten + 3_001)
    assert sorted((row[0], row[4]) for _, row in inputs.taken()) == [(2, None), (3, None)]
    inputs.advance(MAX_WATERMARK_MS)
    assert inputs.taken() == []
    inputs.close()


def test_a_late_row_meets_what_is_kept_and_is_kept_only_if_a_partner_may_come(tmp_path: Path) -> None:
    inputs = orders(order_join(JoinKind.FULL, 0, 10), tmp_path)
    inputs.send(0, [(1, at(EPOCH_MS))])
    inputs.advance(EPOCH_MS + 10)
    # Behind the watermark, but the left row goes only at + 11. No left row can come for it: it is not kept.
    inputs.send(1, [(1, at(EPOCH_MS + 5), "late"), (2, at(EPOCH_MS + 5), "alone")])
    assert sorted(row[2:] for _, row in inputs.taken()) == [
        (1, at(EPOCH_MS + 5), "late"),
        (2, at(EPOCH_MS + 5), "alone"),
    ]
    assert inputs.counter("numRowsStored") == 1
    inputs.advance(EPOCH_MS + 11)
    assert inputs.taken() == []
    assert inputs.counter("numRowsStored") == 0
    inputs.close()


def test_a_row_without_time_has_no_partner(tmp_path: Path) -> None:
    inputs = orders(order_join(JoinKind.LEFT, 0, 10), tmp_path)
    inputs.send(1, [(1, at(EPOCH_MS), "A"), (1, None, "B")])
    inputs.send(0, [(1, None), (1, at(EPOCH_MS))])
    assert [row for _, row in inputs.taken()] == [
        (1, None, None, None, None),
        (1, at(EPOCH_MS), 1, at(EPOCH_MS), "A"),
    ]
    assert inputs.counter("numRowsStored") == 2
    inputs.close()


def test_a_firing_is_gone_on_with_after_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_join, "OUTPUT_ROWS_MAX", 3)
    inputs = orders(order_join(JoinKind.FULL, -5, 5), tmp_path)
    inputs.send(0, [(i, at(EPOCH_MS + i // 4)) for i in range(20)])
    inputs.send(1, [(i, at(EPOCH_MS + i // 4), "x") for i in range(15, 35)])
    matched = [row for _, row in inputs.taken()]
    assert sorted(row[0] for row in matched) == list(range(15, 20))
    padded: list[Row] = []
    for restart in range(100):
        pieces = [piece for operator in inputs.operators for piece in first_of(operator.advance(MAX_WATERMARK_MS))]
        if not pieces:
            break
        for piece in pieces:
            inputs.note(piece)
        padded += [row for _, row in inputs.taken()]
        inputs.restart(restart % 3 + 1)
    assert sorted(row[0] if row[0] is not None else row[2] for row in padded) == [*range(15), *range(20, 35)]
    inputs.close()


def test_state_is_freed_as_time_goes_on(tmp_path: Path) -> None:
    """What is kept, and what a snapshot writes, is that of the interval, however long the job runs."""
    join = order_join(JoinKind.INNER, 0, 1_000)
    inputs = orders(join, tmp_path)
    kept = []
    for step in range(60):
        now = EPOCH_MS + step * 500
        inputs.send(0, [(i % 50, at(now + i % 500)) for i in range(200)])
        inputs.send(1, [(i % 50, at(now + i % 500), "x") for i in range(200)])
        inputs.advance(now)
        kept.append(inputs.counter("numRowsStored"))
    assert max(kept[10:]) <= max(kept[:10])
    rows = sum(handle.row_count for snapshot in inputs.snapshot() for handle in snapshot.segments)
    assert rows <= 6 * kept[-1]
    assert inputs.operators[0].watermark_delay_ms == 1_001
    inputs.close()


def test_timers_of_processing_time(tmp_path: Path) -> None:
    join = node(JoinKind.LEFT, (0, 50), processing_time=True)
    inputs = TwoInputs(lambda c: IntervalJoinOperator(join, c), (LEFT, RIGHT), ((0,), (2,)), tmp_path)
    assert inputs.operators[0].timer_ms() is None
    inputs.send(0, [(1, "a", None, 1, 1)])
    inputs.pass_time(EPOCH_MS + 50)
    assert inputs.taken() == []
    inputs.restart(1)
    # The clock of another machine may be behind: time does not go back.
    inputs.now_ms = EPOCH_MS - 500
    inputs.send(1, [(7, None, 1, 1, "b")])
    assert [row[4:6] for _, row in inputs.taken()] == [(1, 7)]
    inputs.send(0, [(2, "a", None, 1, 2)])
    inputs.pass_time(EPOCH_MS + 200)
    assert [row[4:6] for _, row in inputs.taken()] == [(2, None)]
    inputs.close()


def test_rows_on_disk_have_their_partners_and_are_padded(tmp_path: Path) -> None:
    """More rows than memory is given, through restarts: most are in the database when they meet or expire."""
    join = order_join(JoinKind.LEFT, 0, 1_000)
    options = {"state.backend.type": "rocksdb"}
    inputs = TwoInputs(
        lambda context: IntervalJoinOperator(join, context), (ORDERS, ITEMS), ((0,), (0,)), tmp_path, options, 1 << 18
    )
    count = 6_000
    for first in range(0, count, 1_000):
        inputs.send(0, [(i, at(EPOCH_MS + i % 300)) for i in range(first, first + 1_000)])
    inputs.restart(2)
    inputs.send(1, [(i, at(EPOCH_MS + 600), "x") for i in range(0, count, 3)])
    assert sorted(row[0] for _, row in inputs.taken()) == list(range(0, count, 3))
    inputs.restart(1)
    inputs.advance(EPOCH_MS + 1_301)
    assert sorted(row[0] for _, row in inputs.taken()) == [i for i in range(count) if i % 3]
    assert inputs.counter("numRowsStored") == 0
    inputs.close()


def test_an_order_of_rows_that_are_gone_is_of_no_effect(tmp_path: Path) -> None:
    """The firing is left behind its last piece: the table is empty, what orders its rows is not."""
    inputs = orders(order_join(JoinKind.LEFT, 0, 10), tmp_path)
    inputs.send(0, [(1, at(EPOCH_MS)), (2, at(EPOCH_MS))])
    assert len(first_of(inputs.operators[0].advance(MAX_WATERMARK_MS))) == 1
    inputs.restart(1)
    inputs.advance(MAX_WATERMARK_MS)
    assert inputs.taken() == []
    inputs.close()
