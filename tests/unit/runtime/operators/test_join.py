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
from planner.ir.expressions import Call, InputRef, Literal
from planner.ir.operators import ChangelogMode, Column, Join, JoinKind, Schema
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.operators import join as join_module
from runtime.operators import join_condition
from runtime.operators.expressions.errors import ExpressionError
from runtime.operators.join import JoinOperator
from runtime.operators.join_side import Layout, side_specs
from tests.support.aggregates import Folded, Row, WallClock, operator_context, rows_of
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
def test_a_join_equals_the_reference_row_by_row(
    kind: JoinKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_out = 0
    for seed in range(16):
        rng = random.Random(f"{kind}-{seed}")
        if seed == 8:
            # From now on in small pieces: of candidates, of pairs to ask, of output.
            monkeypatch.setattr(join_module, "PAIRS_MAX", 5)
            monkeypatch.setattr(join_module, "OUTPUT_ROWS_MAX", 3)
            monkeypatch.setattr(join_condition, "PAIRS_ASKED", 4)
        settings = {"state.backend.type": "rocksdb" if seed % 4 == 3 else "hashmap"}
        put_out += check(drawn(rng, kind), rng, tmp_path / str(seed), settings=settings)
    assert put_out > 150


@pytest.mark.parametrize("kind", list(JoinKind))
def test_in_batch_execution_rows_come_at_the_end_as_inserts(kind: JoinKind, tmp_path: Path) -> None:
    for seed in range(4):
        rng = random.Random(f"{kind}-{seed}")
        join = msgspec.structs.replace(drawn(rng, kind), emits_at_end=True)
        modes = (join.left_changelog, join.right_changelog)
        streams, reference, operator = streams_of(join, rng), reference_of(join), opened(join, tmp_path / str(seed))
        for side in (0, 1, 1, 0):
            changes = streams[side].take(40)
            for change, row in changes:
                reference.change(side, change, row)
            rows = batch((LEFT, RIGHT)[side], changes, only_inserts=modes[side] is INSERTS)
            assert list(operator.process_input(side, rows)) == []
        operator = restored(join, operator, tmp_path / str(seed), 1)
        assert list(operator.end(False)) == []
        output = list(operator.end(True))
        assert all(piece.row_kinds is None for piece in output)
        assert Counter(row for _, row in rows_of(output)) == reference.batch()


@pytest.mark.parametrize(
    ("unique", "changelog", "layout"),
    [
        ((0,), RETRACT, Layout.SINGLE),
        ((), RETRACT, Layout.SINGLE),
        ((2,), RETRACT, Layout.UNIQUE),
        ((1, 2), INSERTS, Layout.UNIQUE),
        (None, INSERTS, Layout.NUMBERED),
        (None, RETRACT, Layout.COUNTED),
    ],
)
def test_how_rows_are_told_apart_decides_how_they_are_kept(
    unique: tuple[int, ...] | None, changelog: ChangelogMode, layout: Layout
) -> None:
    join = node(JoinKind.INNER, left_unique_key=unique, left_changelog=changelog)
    assert side_specs(join)[0].layout is layout


def put(operator: JoinOperator, side: int, *changes: Change) -> list[Change]:
    only_inserts = operator._sides[side].spec.only_inserts
    return rows_of(list(operator.process_input(side, batch((LEFT, RIGHT)[side], changes, only_inserts=only_inserts))))


A_LEFT, A_RIGHT, NO_RIGHT = (1, "a", 1, 0.5), (5, 1, "a", 1), (None,) * 4


def test_what_is_taken_back_without_being_there_is_counted(tmp_path: Path) -> None:
    join = node(JoinKind.LEFT)
    operator = opened(join, tmp_path)
    put(operator, 0, ("+I", A_LEFT))
    # As in Flink the pair is taken back; the count of matches stays at none.
    assert put(operator, 1, ("-D", A_RIGHT)) == [("-D", A_LEFT + A_RIGHT)]
    assert put(operator, 1, ("+I", A_RIGHT)) == [("-D", A_LEFT + NO_RIGHT), ("+I", A_LEFT + A_RIGHT)]
    assert put(operator, 0, ("-U", (1, "a", 2, 0.5))) == [("-D", (1, "a", 2, 0.5, *A_RIGHT))]
    assert operator.counters()["numRetractionsWithoutState"] == 2
    assert restored(join, operator, tmp_path, 1).counters()["numRetractionsWithoutState"] == 2


def test_rows_whose_key_is_null_are_padded_and_not_kept(tmp_path: Path) -> None:
    operator = opened(node(JoinKind.FULL, left_changelog=INSERTS), tmp_path)
    null_left, null_right = (None, "a", 1, 0.5), (5, 1, None, 1)
    assert put(operator, 0, ("+I", null_left)) == [("+I", null_left + NO_RIGHT)]
    changes = (("+U", null_right), ("-U", null_right))
    assert put(operator, 1, *changes) == [("+I", NO_RIGHT + null_right), ("-D", NO_RIGHT + null_right)]
    assert operator.counters()["numRowsStored"] == 0
    anti = opened(node(JoinKind.ANTI), tmp_path)
    assert put(anti, 0, ("+U", null_left)) == [("+U", null_left)]


def test_a_semi_join_of_inserts_puts_out_rows_without_kinds(tmp_path: Path) -> None:
    operator = opened(node(JoinKind.SEMI, left_changelog=INSERTS, right_changelog=INSERTS), tmp_path)
    put(operator, 0, ("+I", A_LEFT))
    found = list(operator.process_input(1, batch(RIGHT, [("+I", A_RIGHT)] * 2, only_inserts=True)))
    assert [(piece.row_kinds, piece.row_count) for piece in found] == [(None, 1)]


def test_each_side_has_its_own_time_to_live(tmp_path: Path) -> None:
    clock = WallClock()
    join = node(JoinKind.LEFT, left_state_ttl_ms=1_000, right_state_ttl_ms=100)
    operator = opened(join, tmp_path, wall_clock_ms=clock)
    put(operator, 0, ("+I", A_LEFT))
    put(operator, 1, ("+I", A_RIGHT))
    clock.ms += 150
    # The right row is gone; its end is passed on to those that met it, and the left row knows that it has no match.
    assert put(operator, 0, ("+I", (1, "a", 2, 0.5))) == [("+I", (1, "a", 2, 0.5, *NO_RIGHT))]
    assert put(operator, 1, ("-D", A_RIGHT))[-1] == ("+I", A_LEFT + NO_RIGHT)
    clock.ms += 1_000
    assert put(operator, 1, ("+I", A_RIGHT)) == []
    assert operator.counters()["numRowsStored"] == 1


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_rows_of_inserts_are_numbered_on_after_a_restore(backend: str, tmp_path: Path) -> None:
    join = node(JoinKind.INNER, left_changelog=INSERTS, right_changelog=INSERTS)
    settings = {"state.backend.type": backend}
    operator = opened(join, tmp_path, settings=settings)
    put(operator, 0, ("+I", A_LEFT), ("+I", A_LEFT))
    operator = restored(join, operator, tmp_path, 1, settings=settings)
    put(operator, 0, ("+I", A_LEFT), ("+I", (1, "a", 2, 0.5)))
    assert [row[2] for _, row in put(operator, 1, ("+I", A_RIGHT))] == [1, 1, 1, 2]


@pytest.mark.parametrize("unique", [None, (2,)])
def test_state_larger_than_memory_answers_as_one_in_memory(unique: tuple[int, ...] | None, tmp_path: Path) -> None:
    mode = INSERTS if unique is None else RETRACT
    join = node(JoinKind.FULL, left_keys=(0,), right_keys=(3,), null_safe=(False,), left_unique_key=unique,
                left_changelog=mode)  # fmt: skip
    outputs: list[list[Change]] = []
    for settings, managed_bytes in (({}, 0), ({"state.backend.type": "rocksdb"}, 1)):
        rng = random.Random(str(unique))
        operator = opened(join, tmp_path / str(managed_bytes), settings=settings, managed_bytes=managed_bytes)
        output: list[Change] = []
        for first in range(0, 4_000, 1_000):
            left = [("+I", (rng.randrange(1_500), "a", i, 0.5)) for i in range(first, first + 1_000)]
            output += put(operator, 0, *left)
            right = [(rng.choice(("+I", "-D")), (i % 2, 7, "a", rng.randrange(1_500))) for i in range(500)]
            output += put(operator, 1, *right)
        if managed_bytes:
            assert operator._sides[0]._table._cold_count > 1_000  # type: ignore[attr-defined]
        operator.close()
        outputs.append(output)
    assert len(outputs[0]) > 5_000
    assert outputs[0] == outputs[1]


def test_a_condition_that_raises_names_the_expression(tmp_path: Path) -> None:
    divide = Call("DIVIDE", (InputRef(2, t.INT), InputRef(5, t.INT)), t.INT)
    condition = Call("GT", (divide, Literal(0, t.INT)), t.BOOLEAN)
    operator = opened(node(JoinKind.INNER, condition=condition), tmp_path)
    put(operator, 0, ("+I", A_LEFT))
    with pytest.raises(ExpressionError):
        put(operator, 1, ("+I", (5, 0, "a", 1)))
