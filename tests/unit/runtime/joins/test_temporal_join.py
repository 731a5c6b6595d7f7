"""Event-time temporal joins against Flink's rules row by row: any rows, order, batches, restores, both backends."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef
from planner.ir.joins import JoinKind, TemporalJoin
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from runtime.operators import temporal_join
from runtime.operators.temporal_join import TemporalJoinOperator
from tests.support.two_inputs import EPOCH_MS, KINDS, Row, TwoInputs, at, first_of
from tests.support.window_harness import ROWTIME

LEFT = Schema((Column("id", t.INT), Column("k", t.STRING), Column("ts", ROWTIME), Column("v", t.INT)))
RIGHT = Schema((Column("valid", ROWTIME), Column("k", t.STRING), Column("rate", t.INT)))
OUTPUT = Schema((*LEFT.columns, *RIGHT.columns))
LESS = Call("LT", (InputRef(3, t.INT), InputRef(6, t.INT)), t.BOOLEAN)


def node(
    kind: JoinKind,
    *,
    condition: Expression | None = None,
    left: ChangelogMode = ChangelogMode.INSERT_ONLY,
) -> TemporalJoin:
    return TemporalJoin(
        "join", "join", kind, (1,), (1,), 2, 0, condition, LEFT, RIGHT, left, ChangelogMode.UPSERT, OUTPUT
    )


class Reference:
    """One row after the other, as the rules say."""

    def __init__(self, join: TemporalJoin) -> None:
        self.join = join
        self.clock = MIN_WATERMARK_MS
        self.late = 0
        self.waiting: list[tuple[int, str, Row]] = []
        self.versions: dict[str, dict[int, tuple[bool, Row]]] = defaultdict(dict)

    def probe(self, kind: str, row: Row, time: int) -> None:
        if time <= self.clock:
            self.late += 1
        else:
            self.waiting.append((time, kind, row))

    def build(self, kind: str, row: Row, time: int) -> None:
        if row[1] is not None:
            self.versions[row[1]][time] = (kind not in ("-D", "-U"), row)

    def advance(self, clock: int) -> dict[Any, list[tuple[str, Row]]]:
        """Output rows in order, by key."""
        output: dict[Any, list[tuple[str, Row]]] = defaultdict(list)
        due = [entry for entry in self.waiting if entry[0] <= clock]
        self.waiting = [entry for entry in self.waiting if entry[0] > clock]
        for time, kind, row in due:
            before = [moment for moment in self.versions.get(row[1], {}) if moment <= time]
            there, version = self.versions[row[1]][max(before)] if before else (False, ())
            if there and self.join.condition is not None:
                there = row[3] is not None and version[2] is not None and row[3] < version[2]
            if there or self.join.kind is JoinKind.LEFT:
                output[row[1]].append((kind, (*row, *(version if there else (None,) * len(RIGHT.columns)))))
        for versions in self.versions.values():
            for moment in sorted(moment for moment in versions if moment <= clock)[:-1]:
                del versions[moment]
        self.clock = max(self.clock, clock)
        return output


def by_key(output: list[tuple[str, Row]]) -> dict[Any, list[tuple[str, Row]]]:
    rows: dict[Any, list[tuple[str, Row]]] = defaultdict(list)
    for kind, row in output:
        rows[row[1]].append((kind, row))
    return rows


def run(seed: int, join: TemporalJoin, directory: Path, backend: str, steps: int) -> None:
    rng = random.Random(seed)
    options = {"state.backend.type": backend}
    inputs = TwoInputs(
        lambda context: TemporalJoinOperator(join, context), (LEFT, RIGHT), ((1,), (1,)), directory, options
    )
    reference = Reference(join)
    watermark, identity = EPOCH_MS, 0
    for _ in range(steps):
        action = rng.random()
        if action < 0.7:
            side = rng.randrange(2)
            rows: list[Row] = []
            kinds = []
            for _ in range(rng.choice((1, 3, 20))):
                time = watermark + rng.randint(-20, 60)
                identity += 1
                key, value = rng.choice(("a", "b", "c", None)), rng.choice((1, 2, 3, None))
                if side:
                    rows.append((at(time), key, value))
                    kinds.append(rng.choice((0, 2, 2, 3)))
                    reference.build(KINDS[kinds[-1]], rows[-1], time)
                else:
                    rows.append((identity, key, at(time), value))
                    kinds.append(0 if join.left_changelog is ChangelogMode.INSERT_ONLY else rng.choice((0, 1, 2, 3)))
                    reference.probe(KINDS[kinds[-1]], rows[-1], time)
            changes = side == 1 or join.left_changelog is not ChangelogMode.INSERT_ONLY
            inputs.send(side, rows, kinds if changes else None)
            assert inputs.taken() == []
        elif action < 0.9:
            watermark += rng.choice((1, 1, 5, 30))
            inputs.advance(watermark)
            expected = reference.advance(watermark)
            assert by_key(inputs.taken()) == expected
            kept = sum(len(versions) for versions in reference.versions.values())
            assert inputs.counter("numRowsStored") == kept
        else:
            inputs.restart(rng.choice((1, 2, 3)))
    inputs.advance(MAX_WATERMARK_MS)
    assert by_key(inputs.taken()) == reference.advance(MAX_WATERMARK_MS)
    assert inputs.counter("numLateRecordsDropped") == reference.late
    inputs.close()


BACKENDS = st.sampled_from(["hashmap", "hashmap", "rocksdb"])
SEEDS = st.integers(0, 2**32 - 1)


def check(seed: int, backend: str) -> None:
    rng = random.Random(seed)
    left = rng.choice((ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT))
    join = node(rng.choice((JoinKind.INNER, JoinKind.LEFT)), condition=rng.choice((None, LESS)), left=left)
    with tempfile.TemporaryDirectory() as directory:
        run(seed, join, Path(directory), backend, rng.choice((5, 40)))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS)
def test_equals_the_rules_row_by_row(seed: int, backend: str) -> None:
    check(seed, backend)


@pytest.mark.fuzz
@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, BACKENDS)
def test_equals_the_rules_row_by_row_at_length(seed: int, backend: str) -> None:
    check(seed, backend)


def rates(kind: JoinKind, directory: Path) -> TwoInputs:
    join = node(kind)
    return TwoInputs(lambda context: TemporalJoinOperator(join, context), (LEFT, RIGHT), ((1,), (1,)), directory)


def test_the_version_is_that_of_the_row_s_time(tmp_path: Path) -> None:
    """At the instant of a change the new version counts; before the first, and without a key, there is none."""
    inputs = rates(JoinKind.LEFT, tmp_path)
    nine, ten = EPOCH_MS, EPOCH_MS + 3_600_000
    versions: list[Row] = [(at(nine), "EUR", 110), (at(nine), "USD", 100), (at(ten), "EUR", 120)]
    inputs.send(1, [*versions, (at(ten + 50_000_000), "EUR", 130)])
    inputs.send(0, [(1, "EUR", at(nine - 1), 0), (2, "EUR", at(nine), 0), (3, "EUR", at(ten - 1), 0)])
    inputs.send(0, [(4, "EUR", at(ten), 0), (5, "GBP", at(ten), 0), (6, None, at(ten), 0), (7, "USD", at(ten + 9), 0)])
    inputs.advance(ten + 9)
    assert {row[0]: row[6] for _, row in inputs.taken()} == {
        1: None, 2: 110, 3: 110, 4: 120, 5: None, 6: None, 7: 100
    }  # fmt: skip
    assert inputs.counter("numRowsStored") == 3
    inputs.close()


def test_a_row_is_late_by_equality_and_one_without_time_meets_nothing(tmp_path: Path) -> None:
    inputs = rates(JoinKind.LEFT, tmp_path)
    inputs.send(1, [(at(EPOCH_MS), "EUR", 1), (None, "EUR", 2)])
    inputs.advance(EPOCH_MS + 5)
    inputs.send(0, [(1, "EUR", at(EPOCH_MS + 5), 0), (2, "EUR", at(EPOCH_MS + 6), 0), (3, "EUR", None, 0)])
    assert [row[0] for _, row in inputs.taken()] == [3]
    inputs.restart(2)
    # A version behind the watermark is no late row: it counts for what has not been put out.
    inputs.send(1, [(at(EPOCH_MS + 1), "EUR", 7)])
    inputs.advance(EPOCH_MS + 6)
    assert [(row[0], row[6]) for _, row in inputs.taken()] == [(2, 7)]
    assert inputs.counter("numLateRecordsDropped") == 1
    inputs.close()


def test_a_firing_is_gone_on_with_after_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal_join, "OUTPUT_ROWS_MAX", 3)
    inputs = rates(JoinKind.LEFT, tmp_path)
    inputs.send(1, [(at(EPOCH_MS + i), key, i) for key in "abc" for i in range(5)])
    inputs.send(0, [(i, "abcd"[i % 4], at(EPOCH_MS + 4 - i % 5), 0) for i in range(20)])
    expected = {i: None if i % 4 == 3 else 4 - i % 5 for i in range(20)}
    got: list[tuple[int, int | None]] = []
    for restart in range(100):
        pieces = [piece for operator in inputs.operators for piece in first_of(operator.advance(EPOCH_MS + 4))]
        if not pieces:
            break
        for piece in pieces:
            inputs.note(piece)
        got += [(row[0], row[6]) for _, row in inputs.taken()]
        inputs.restart(restart % 3 + 1)
    assert len(got) == 20
    assert dict(got) == expected
    inputs.close()
