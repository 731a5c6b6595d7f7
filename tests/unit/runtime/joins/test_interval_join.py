"""Interval joins against Flink's rules row by row: any rows, order, batches, watermarks, restores, both backends."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef
from planner.ir.joins import IntervalJoin, JoinKind
from planner.ir.schema import Column, Schema
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from runtime.operators.interval_join import IntervalJoinOperator
from tests.support.two_inputs import EPOCH_MS, Row, TwoInputs, at
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
    settings = {"state.backend.type": backend}
    inputs = TwoInputs(
        lambda context: IntervalJoinOperator(join, context),
        (LEFT, RIGHT), (join.left_keys, join.right_keys), directory, settings, managed_bytes,
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
BOUNDS = ((0, 30), (-20, 20), (-30, -10), (5, 5), (0, 0), (10, 40))
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"condition": LESS},
    {"keys": ((0, 1), (2, 4)), "null_safe": (True, False)},
    {"keys": ((), ()), "null_safe": ()},
)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("processing_time", [False, True])
def test_equals_the_rules_row_by_row(tmp_path: Path, backend: str, processing_time: bool) -> None:
    for seed in range(4 if backend == "rocksdb" else 10):
        rng = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        join = node(kind, rng.choice(BOUNDS), processing_time=processing_time, **rng.choice(SHAPES))
        run(seed, join, tmp_path / str(seed), backend, 40)
