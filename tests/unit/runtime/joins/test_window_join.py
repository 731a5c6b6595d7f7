"""Window joins against the rules row by row: all kinds, any rows, order, batches, restores, both backends."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef
from planner.ir.joins import JoinKind, WindowJoin
from planner.ir.schema import Column, Schema
from planner.ir.windows import TumbleWindow
from runtime.elements import MAX_WATERMARK_MS
from runtime.operators import window_join
from runtime.operators.window_join import WindowJoinOperator
from tests.support.two_inputs import EPOCH_MS, Row, TwoInputs, at, first_of
from tests.support.window_harness import ROWTIME, ROWTIME_LTZ

SIZE_MS = 20
LEFT = Schema((Column("k", t.STRING), Column("end", t.timestamp(3)), Column("v", t.INT), Column("id", t.INT)))
RIGHT = Schema((Column("id", t.INT), Column("v", t.INT), Column("end", t.timestamp(3)), Column("k", t.STRING)))
LESS = Call("LT", (InputRef(2, t.INT), InputRef(5, t.INT)), t.BOOLEAN)


def node(
    kind: JoinKind,
    *,
    with_keys: bool = True,
    null_safe: bool = False,
    condition: Expression | None = None,
    window: TumbleWindow | None = None,
) -> WindowJoin:
    output = Schema((*LEFT.columns, *RIGHT.columns)) if kind.keeps_right else LEFT
    left_keys, right_keys = ((0,), (3,)) if with_keys else ((), ())
    return WindowJoin(
        "join", "join", kind, left_keys, right_keys, (null_safe,) if with_keys else (), 1, 2,
        window or TumbleWindow(None, ROWTIME, SIZE_MS), condition, LEFT, RIGHT, output,
    )  # fmt: skip


def expected(join: WindowJoin, lefts: list[Row], rights: list[Row]) -> Counter[Row]:
    """What the rows of one window give."""

    def meet(left: Row, right: Row) -> bool:
        if join.left_keys and (left[0] != right[3] or (left[0] is None and not join.null_safe[0])):
            return False
        return join.condition is None or (left[2] is not None and right[1] is not None and left[2] < right[1])

    pairs = [(left, right) for left in lefts for right in rights if meet(left, right)]
    with_partner = [{id(row) for row in side} for side in zip(*pairs, strict=True)] or [set(), set()]
    match join.kind:
        case JoinKind.SEMI:
            return Counter(row for row in lefts if id(row) in with_partner[0])
        case JoinKind.ANTI:
            return Counter(row for row in lefts if id(row) not in with_partner[0])
    rows = [(*left, *right) for left, right in pairs]
    if join.kind.is_left_outer:
        rows += [(*row, None, None, None, None) for row in lefts if id(row) not in with_partner[0]]
    if join.kind.is_right_outer:
        rows += [(None, None, None, None, *row) for row in rights if id(row) not in with_partner[1]]
    return Counter(rows)


def run(seed: int, join: WindowJoin, directory: Path, backend: str, steps: int) -> None:
    rng = random.Random(seed)
    options = {"state.backend.type": backend}
    keys = ((*join.left_keys, join.left_end), (*join.right_keys, join.right_end))
    inputs = TwoInputs(lambda context: WindowJoinOperator(join, context), (LEFT, RIGHT), keys, directory, options)
    open_rows: dict[int, tuple[list[Row], list[Row]]] = {}
    watermark, identity, late = EPOCH_MS, 0, 0
    inputs.advance(watermark)
    for _ in range(steps):
        action = rng.random()
        if action < 0.7:
            side = rng.randrange(2)
            rows: list[Row] = []
            for _ in range(rng.choice((1, 3, 20))):
                identity += 1
                end = (watermark + rng.randint(-30, 60)) // SIZE_MS * SIZE_MS + SIZE_MS
                key, value = rng.choice(("a", "b", "c", None)), rng.choice((1, 2, 3, None))
                row: Row = (identity, value, at(end), key) if side else (key, at(end), value, identity)
                rows.append(row)
                if end - 1 <= watermark:
                    late += 1
                else:
                    open_rows.setdefault(end, ([], []))[side].append(row)
            inputs.send(side, rows)
            assert inputs.taken() == []
        elif action < 0.9:
            watermark += rng.choice((1, 5, 30))
            fire(inputs, join, open_rows, watermark)
        else:
            inputs.restart(rng.choice((1, 2, 3)))
    fire(inputs, join, open_rows, MAX_WATERMARK_MS)
    assert inputs.counter("numLateRecordsDropped") == late
    assert inputs.counter("stateBytes") == 0
    inputs.close()


def fire(inputs: TwoInputs, join: WindowJoin, open_rows: dict[int, tuple[list[Row], list[Row]]], clock: int) -> None:
    inputs.advance(clock)
    total: Counter[Row] = Counter()
    for end in [end for end in open_rows if end - 1 <= clock]:
        total += expected(join, *open_rows.pop(end))
    assert Counter(row for _, row in inputs.taken()) == total


BACKENDS = st.sampled_from(["hashmap", "hashmap", "rocksdb"])
SEEDS = st.integers(0, 2**32 - 1)


def check(seed: int, backend: str) -> None:
    rng = random.Random(seed)
    join = node(
        rng.choice(list(JoinKind)),
        with_keys=rng.random() < 0.8,
        null_safe=rng.random() < 0.3,
        condition=rng.choice((None, LESS)),
    )
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_join, "OUTPUT_ROWS_MAX", rng.choice((3, 32_768)))
        run(seed, join, Path(directory), backend, rng.choice((5, 40)))


@settings(max_examples=24, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS)
def test_equals_the_rules_row_by_row(seed: int, backend: str) -> None:
    check(seed, backend)


@pytest.mark.fuzz
@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS)
def test_equals_the_rules_row_by_row_at_length(seed: int, backend: str) -> None:
    check(seed, backend)


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("condition", [None, LESS])
def test_a_firing_is_gone_on_with_after_a_restore(
    tmp_path: Path, kind: JoinKind, condition: Expression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot after each piece, restored at another parallelism: every row is put out exactly once."""
    monkeypatch.setattr(window_join, "OUTPUT_ROWS_MAX", 3)
    join = node(kind, condition=condition)
    rng = random.Random(1)
    end = EPOCH_MS // SIZE_MS * SIZE_MS
    lefts: list[Row] = [(rng.choice(("a", "b", None)), at(end), rng.choice((1, 2, None)), i) for i in range(9)]
    rights: list[Row] = [(i, rng.choice((2, 3, None)), at(end), rng.choice(("a", "b", "z"))) for i in range(11)]
    inputs = TwoInputs(lambda context: WindowJoinOperator(join, context), (LEFT, RIGHT), ((0, 1), (3, 2)), tmp_path)
    inputs.send(0, lefts)
    inputs.send(1, rights)
    for restart in range(200):
        pieces = [piece for operator in inputs.operators for piece in first_of(operator.advance(end))]
        if not pieces:
            break
        for piece in pieces:
            inputs.note(piece)
        inputs.restart(restart % 3 + 1)
        inputs.send(0, lefts[:1])
    assert Counter(row for _, row in inputs.taken()) == expected(join, lefts, rights)
    assert inputs.counter("numLateRecordsDropped") == restart
    inputs.close()


def test_a_window_of_local_time_fires_at_its_instant(tmp_path: Path) -> None:
    """2024-03-31 in Berlin has 23 hours: it ends at 22:00 UTC."""
    join = node(JoinKind.INNER, window=TumbleWindow(None, ROWTIME_LTZ, 86_400_000, 0, "Europe/Berlin"))
    inputs = TwoInputs(lambda context: WindowJoinOperator(join, context), (LEFT, RIGHT), ((0, 1), (3, 2)), tmp_path)
    end, instant = 1_711_929_600_000, 1_711_922_400_000
    inputs.send(0, [("a", at(end), 1, 1)])
    inputs.send(1, [(2, 1, at(end), "a")])
    inputs.advance(instant - 2)
    assert inputs.taken() == []
    inputs.advance(instant - 1)
    assert [row for _, row in inputs.taken()] == [("a", at(end), 1, 1, 2, 1, at(end), "a")]
    inputs.close()
