"""Event-time temporal joins against Flink's rules row by row: any rows, order, batches, restores, both backends."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef
from planner.ir.joins import JoinKind, TemporalJoin
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from runtime.operators.temporal_join import TemporalJoinOperator
from tests.support.two_inputs import EPOCH_MS, KINDS, Row, TwoInputs, at
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
    settings = {"state.backend.type": backend}
    inputs = TwoInputs(
        lambda context: TemporalJoinOperator(join, context), (LEFT, RIGHT), ((1,), (1,)), directory, settings
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


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_equals_the_rules_row_by_row(tmp_path: Path, backend: str) -> None:
    for seed in range(4 if backend == "rocksdb" else 12):
        kind = (JoinKind.INNER, JoinKind.LEFT)[seed % 2]
        left = (ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT)[seed // 2 % 2]
        join = node(kind, condition=LESS if seed % 3 == 0 else None, left=left)
        run(seed, join, tmp_path / str(seed), backend, 40)
