"""Normalising changelogs, materialising before a sink, and dropping -U, against row-wise references."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.operators import (
    ChangelogNormalize,
    Column,
    ConflictAction,
    DropUpdateBefore,
    Schema,
    SinkMaterializer,
)
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.errors import TaskError
from runtime.operators.changelog_normalize import ChangelogNormalizeOperator
from runtime.operators.drop_update_before import DropUpdateBeforeOperator
from runtime.operators.sink_materializer import SinkMaterializerOperator
from tests.support.aggregates import KINDS, Folded, Row, WallClock, operator_context, rows_of

SCHEMA = Schema((Column("v", t.STRING), Column("id", t.INT), Column("n", t.INT)))
Change = tuple[str, Row]


def batch(changes: list[Change]) -> Batch:
    columns: list[Any] = [
        pa.array([row[i] for _, row in changes], t.to_arrow(column.type)) for i, column in enumerate(SCHEMA.columns)
    ]
    kinds = pa.array([KINDS.index(kind) for kind, _ in changes], pa.int8())
    return Batch(pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2"]), kinds)


def cut(rng: random.Random, changes: list[Change]) -> list[list[Change]]:
    parts, largest = [], rng.choice((1, 5, 60))
    while changes:
        size = rng.randint(1, largest)
        parts.append(changes[:size])
        changes = changes[size:]
    return parts


# ------------------------------------------------------------------------------------------------- normalise


def normalize(folder: Path, restore: OperatorRestore | None = None, **options: Any) -> ChangelogNormalizeOperator:
    node = ChangelogNormalize("norm", "norm", (1,), SCHEMA, **options)
    operator = ChangelogNormalizeOperator(node, operator_context(str(folder), restore=restore))
    operator.open()
    return operator


def normalized(changes: list[Change], *, update_before: bool) -> list[Change]:
    rows: dict[Any, Row] = {}
    output: list[Change] = []
    for kind, row in changes:
        old = rows.get(row[1])
        if kind == "-U":
            continue
        if kind == "-D":
            if old is not None:
                output.append(("-D", old))
                del rows[row[1]]
        elif old is None:
            output.append(("+I", row))
            rows[row[1]] = row
        elif old != row:
            output += [("-U", old), ("+U", row)] if update_before else [("+U", row)]
            rows[row[1]] = row
    return output


@pytest.mark.parametrize("update_before", [True, False])
def test_normalise_equals_the_reference(tmp_path: Path, update_before: bool) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        changes: list[Change] = []
        for _ in range(rng.choice((10, 80))):
            kind = rng.choice(("+I", "+U", "+U", "-D", "-U"))
            row: Row = (rng.choice(("a", "b", None)), rng.choice((1, 2, 3, None)), rng.choice((7, 8)))
            changes.append((kind, (None, row[1], None) if kind == "-D" and rng.random() < 0.5 else row))
        operator = normalize(tmp_path / str(seed), emits_update_before=update_before)
        output: list[Change] = []
        for number, part in enumerate(cut(rng, changes)):
            output += rows_of(list(operator.process(batch(part))))
            if rng.random() < 0.1:
                snapshot = operator.snapshot(number + 1)()
                operator.close()
                restore = OperatorRestore("norm", segments=snapshot.segments)
                operator = normalize(tmp_path / str(seed), restore, emits_update_before=update_before)
        assert output == normalized(changes, update_before=update_before)
        if update_before:
            Folded().apply(output)


def test_a_deletion_may_bring_its_time(tmp_path: Path) -> None:
    """`n` as the time: the deletion's own where it has one, also in one batch with the row that it ends."""
    changes: list[Change] = [
        ("+U", ("a", 1, 10)), ("+U", ("b", 2, 10)), ("+U", ("c", 3, 10)),
        ("-D", (None, 1, 30)), ("-D", (None, 2, None)), ("+U", ("d", 1, 40)), ("-D", (None, 1, 50)),
    ]  # fmt: skip
    operator = normalize(tmp_path, emits_update_before=False, delete_time=2)
    output = [rows_of(list(operator.process(batch(part)))) for part in (changes, [("-D", (None, 3, 60))])]
    assert output == [
        [
            ("+I", ("a", 1, 10)), ("+I", ("b", 2, 10)), ("+I", ("c", 3, 10)),
            ("-D", ("a", 1, 30)), ("-D", ("b", 2, 10)), ("+I", ("d", 1, 40)), ("-D", ("d", 1, 50)),
        ],
        [("-D", ("c", 3, 60))],
    ]  # fmt: skip


def test_events_that_come_twice_count_once(tmp_path: Path) -> None:
    changes = [
        ("+I", ("a", 1, 10)), ("+I", ("a", 1, 10)),
        ("-U", ("a", 1, 10)), ("+U", ("a", 1, 20)), ("-U", ("a", 1, 10)), ("+U", ("a", 1, 20)),
        ("+I", ("c", 3, 8)), ("-D", ("c", 3, 8)), ("-D", ("c", 3, 8)),
    ]  # fmt: skip
    folded = Folded()
    folded.apply(rows_of(list(normalize(tmp_path).process(batch(changes)))))
    assert dict(folded.rows) == {("a", 1, 20): 1}


def test_with_a_time_to_live_an_equal_row_is_put_out_again_and_an_expired_one_is_new(tmp_path: Path) -> None:
    clock = WallClock()
    node = ChangelogNormalize("norm", "norm", (1,), SCHEMA, state_ttl_ms=1_000)
    operator = ChangelogNormalizeOperator(node, operator_context(str(tmp_path), wall_clock_ms=clock))
    operator.open()
    row = ("a", 1, 10)
    assert rows_of(list(operator.process(batch([("+I", row)])))) == [("+I", row)]
    clock.ms += 900
    assert rows_of(list(operator.process(batch([("+I", row)])))) == [("-U", row), ("+U", row)]
    clock.ms += 900
    assert [kind for kind, _ in rows_of(list(operator.process(batch([("+I", row)]))))] == ["-U", "+U"]
    clock.ms += 1_100
    assert rows_of(list(operator.process(batch([("+U", row)])))) == [("+I", row)]


# -------------------------------------------------------------------------------------------------- -U dropped


def test_update_before_is_dropped() -> None:
    operator = DropUpdateBeforeOperator(DropUpdateBefore("drop", "drop", SCHEMA))
    changes = [("+I", ("a", 1, 1)), ("-U", ("a", 1, 1)), ("+U", ("a", 1, 2)), ("-D", ("a", 1, 2))]
    assert rows_of(list(operator.process(batch(changes)))) == [changes[0], changes[2], changes[3]]
    assert list(operator.process(batch([("-U", ("a", 1, 1))]))) == []
    untouched = Batch(batch(changes).data)
    assert list(operator.process(untouched)) == [untouched]


# ------------------------------------------------------------------------------------------------ materialise


def materializer(
    folder: Path, upsert_key: tuple[int, ...], restore: OperatorRestore | None = None, **options: Any
) -> SinkMaterializerOperator:
    node = SinkMaterializer("mat", "mat", (1,), upsert_key, SCHEMA, **options)
    operator = SinkMaterializerOperator(node, operator_context(str(folder), restore=restore))
    operator.open()
    return operator


class Rows:
    """Row-wise: the rows of each primary key in order of arrival."""

    def __init__(self, upsert_key: tuple[int, ...], *, shows_first: bool = False) -> None:
        self.rows: dict[Any, list[Row]] = {}
        self._upsert_key = upsert_key
        self._shown = 0 if shows_first else -1

    def apply(self, kind: str, row: Row) -> list[Change]:
        rows = self.rows.setdefault(row[1], [])
        before = rows[self._shown] if rows else None
        same = [i for i, r in enumerate(rows) if self._name(r) == self._name(row)]
        if kind in ("+I", "+U"):
            if self._upsert_key and same:
                rows[same[-1]] = row
            else:
                rows.append(row)
        elif same:
            del rows[same[-1]]
        after = rows[self._shown] if rows else None
        if before == after:
            return []
        if before is None:
            assert after is not None
            return [("+I", after)]
        return [("-D", before)] if after is None else [("+U", after)]

    def _name(self, row: Row) -> Row:
        return tuple(row[i] for i in self._upsert_key) if self._upsert_key else row


@pytest.mark.parametrize("upsert_key", [(0,), ()])
@pytest.mark.parametrize("action", [ConflictAction.DEDUPLICATE, ConflictAction.NOTHING])
def test_materialise_equals_the_reference(tmp_path: Path, upsert_key: tuple[int, ...], action: ConflictAction) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        reference = Rows(upsert_key, shows_first=action is ConflictAction.NOTHING)
        operator = materializer(tmp_path / str(seed), upsert_key, action=action)
        changes: list[Change] = [
            (
                rng.choice(("+I", "+U", "-U", "-D")),
                (rng.choice(("a", "b", "c", None)), rng.choice((1, 2, None)), rng.choice((7, 8))),
            )
            for _ in range(rng.choice((10, 80)))
        ]
        for number, part in enumerate(cut(rng, changes)):
            expected = [change for kind, row in part for change in reference.apply(kind, row)]
            assert rows_of(list(operator.process(batch(part)))) == expected
            if rng.random() < 0.15:
                snapshot = operator.snapshot(number + 1)()
                operator.close()
                restore = OperatorRestore("mat", segments=snapshot.segments, counters=snapshot.counters)
                operator = materializer(tmp_path / str(seed), upsert_key, restore, action=action)
        assert operator.counters()["numRowsStored"] == sum(len(rows) for rows in reference.rows.values())


def test_the_removal_of_a_row_that_moved_away_takes_no_one_elses(tmp_path: Path) -> None:
    operator = materializer(tmp_path, (0,))
    output = rows_of(list(operator.process(batch([("+I", ("a", 1, 1)), ("+I", ("b", 1, 2)), ("-U", ("a", 1, 1))]))))
    assert output == [("+I", ("a", 1, 1)), ("+U", ("b", 1, 2))]
    assert rows_of(list(operator.process(batch([("-D", ("b", 1, 2))])))) == [("-D", ("b", 1, 2))]
    assert rows_of(list(operator.process(batch([("-D", ("z", 9, 2))])))) == []
    assert operator.counters()["numRetractionsWithoutState"] == 1


def test_a_conflict_that_lasts_fails_the_job_and_a_passing_one_does_not(tmp_path: Path) -> None:
    operator = materializer(tmp_path, (0,), action=ConflictAction.ERROR)
    list(operator.process(batch([("+I", ("a", 1, 1)), ("+U", ("b", 1, 2))])))
    list(operator.advance(1_000))
    list(operator.process(batch([("-U", ("a", 1, 1)), ("+I", ("a", 2, 1)), ("+I", ("b", 2, 1))])))
    list(operator.advance(2_000))
    with pytest.raises(TaskError, match="id = 2") as caught:
        list(operator.advance(3_000))
    assert (caught.value.domain, caught.value.retry) == ("user", False)


def test_a_conflict_in_restored_state_is_found(tmp_path: Path) -> None:
    operator = materializer(tmp_path, (0,), action=ConflictAction.ERROR)
    list(operator.process(batch([("+I", ("a", 1, 1)), ("+I", ("b", 1, 2)), ("+I", ("b", 2, 2))])))
    restore = OperatorRestore("mat", segments=operator.snapshot(1)().segments)
    restored = materializer(tmp_path, (0,), restore, action=ConflictAction.ERROR)
    with pytest.raises(TaskError, match="id = 1"):
        list(restored.end(True))
