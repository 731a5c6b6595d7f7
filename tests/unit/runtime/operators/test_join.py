"""The regular join against a row-wise reference: all kinds, layouts and changelogs, cut anyhow, restored anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.expressions import Call, InputRef
from planner.ir.operators import ChangelogMode, Column, Join, JoinKind, Schema
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.operators.join import JoinOperator
from tests.support.aggregates import Folded, Row, operator_context, rows_of
from tests.support.joins import Change, ReferenceJoin, Stream, kind_codes

LEFT = Schema((Column("k", t.INT), Column("j", t.STRING), Column("id", t.INT), Column("n", t.DOUBLE)))
RIGHT = Schema((Column("m", t.INT), Column("id", t.INT), Column("j", t.STRING), Column("k", t.INT)))
INSERTS, RETRACT = ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT
LESS = Call("LT", (InputRef(2, t.INT), InputRef(4, t.INT)), t.BOOLEAN)
"""left.id < right.m"""


def node(kind: JoinKind, **options: Any) -> Join:
    columns = (*LEFT.columns, *RIGHT.columns) if kind.keeps_right else LEFT.columns
    plain: dict[str, Any] = {
        "left_keys": (0, 1),
        "right_keys": (3, 2),
        "null_safe": (False, False),
        "condition": None,
        "left_changelog": RETRACT,
        "right_changelog": RETRACT,
        "left_unique_key": None,
        "right_unique_key": None,
    }
    return Join("join", "join", kind, left=LEFT, right=RIGHT, output=Schema(columns), **(plain | options))


def matches_of(join: Join) -> Any:
    """The join condition for two rows."""

    def matches(left: Row, right: Row) -> bool:
        for i, k, null_safe in zip(join.left_keys, join.right_keys, join.null_safe, strict=True):
            if left[i] != right[k] or (left[i] is None and not null_safe):
                return False
        return join.condition is None or (left[2] is not None and right[0] is not None and left[2] < right[0])

    return matches


KEYS, TEXTS, IDS = (1, 1, 1, 1, 2, None), ("a", "a", "a", "b" * 20, None), (1, 2, 3, 4, None)


def left_row(rng: random.Random) -> Row:
    return (rng.choice(KEYS), rng.choice(TEXTS), rng.choice(IDS), rng.choice((0.5, None)))


def right_row(rng: random.Random) -> Row:
    return (rng.choice((1, 3, 5, None)), rng.choice(IDS), rng.choice(TEXTS), rng.choice(KEYS))


def batch(schema: Schema, changes: Sequence[Change], *, only_inserts: bool = False) -> Batch:
    columns: list[Any] = [
        pa.array([row[i] for _, row in changes], t.to_arrow(column.type)) for i, column in enumerate(schema.columns)
    ]
    data = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    return Batch(data, None if only_inserts else pa.array(kind_codes(list(changes)), pa.int8()))


def opened(join: Join, folder: Path, restore: OperatorRestore | None = None, **options: Any) -> JoinOperator:
    context = operator_context(str(folder), restore=restore, wall_clock_ms=options.pop("wall_clock_ms", None))
    operator = JoinOperator(join, msgspec.structs.replace(context, **options))
    operator.open()
    return operator


def restored(join: Join, operator: JoinOperator, folder: Path, number: int, **options: Any) -> JoinOperator:
    snapshot = operator.snapshot(number)()
    operator.close()
    attempt = msgspec.structs.replace(operator._context.attempt, generation=number + 1)
    restore = OperatorRestore(join.uid, segments=snapshot.segments, counters=snapshot.counters)
    return opened(join, folder, restore, attempt=attempt, **options)


def drawn(rng: random.Random, kind: JoinKind) -> Join:
    """Any join of that kind."""
    unique: list[tuple[int, ...] | None] = []
    for key, ids in (((0, 1), 2), ((3, 2), 1)):
        unique.append(rng.choice((None, None, (ids,), key, (key[0], ids), (key[0],))))
    keyless = rng.random() < 0.15
    return node(
        kind,
        left_keys=() if keyless else (0, 1),
        right_keys=() if keyless else (3, 2),
        null_safe=() if keyless else rng.choice(((False, False), (True, False), (True, True))),
        condition=rng.choice((None, LESS)),
        left_changelog=rng.choice((INSERTS, RETRACT)),
        right_changelog=rng.choice((INSERTS, RETRACT)),
        left_unique_key=unique[0],
        right_unique_key=unique[1],
    )


def streams_of(join: Join, rng: random.Random) -> list[Stream]:
    modes = (join.left_changelog, join.right_changelog)
    keys = (join.left_unique_key, join.right_unique_key)
    return [
        Stream(rng, row, only_inserts=mode is INSERTS, unique=unique)
        for row, mode, unique in zip((left_row, right_row), modes, keys, strict=True)
    ]


def reference_of(join: Join) -> ReferenceJoin:
    return ReferenceJoin(join.kind, matches_of(join), (len(LEFT.columns), len(RIGHT.columns)))


def check(join: Join, rng: random.Random, folder: Path, **options: Any) -> int:
    """Feeds random changes; the output must be the reference's, row by row in order. Returns how many came out."""
    modes = (join.left_changelog, join.right_changelog)
    streams, reference = streams_of(join, rng), reference_of(join)
    operator = opened(join, folder, **options)
    expected: list[list[Change]] = []
    output: list[Change] = []
    largest = rng.choice((1, 6, 60))
    for number in range(rng.choice((6, 20))):
        side = rng.randrange(2)
        changes = streams[side].take(largest)
        if not changes:
            continue
        expected += [reference.change(side, kind, row) for kind, row in changes]
        pieces = operator.process_input(side, batch((LEFT, RIGHT)[side], changes, only_inserts=modes[side] is INSERTS))
        output += rows_of(list(pieces))
        if rng.random() < 0.15:
            operator = restored(join, operator, folder, number + 1, **options)
    operator.close()
    assert len(output) == sum(len(rows) for rows in expected)
    first = 0
    for rows in expected:
        made = output[first : first + len(rows)]
        # What one row puts out for rows of equal standing has no order of its own.
        assert Counter(made) == Counter(rows), f"{join}: {made} instead of {rows}"
        assert [kind for kind, _ in made] == [kind for kind, _ in rows]
        first += len(rows)
    folded = Folded()
    folded.apply(output)
    assert folded.rows == reference.batch()
    return len(output)


@pytest.mark.parametrize("kind", list(JoinKind))
def test_a_join_equals_the_reference_row_by_row(kind: JoinKind, tmp_path: Path) -> None:
    put_out = 0
    for seed in range(30):
        rng = random.Random(f"{kind}-{seed}")
        settings = {"state.backend.type": rng.choice(("hashmap", "hashmap", "rocksdb"))}
        put_out += check(drawn(rng, kind), rng, tmp_path / str(seed), settings=settings)
    assert put_out > 500
