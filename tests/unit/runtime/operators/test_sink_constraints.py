"""NOT NULL and length enforcement before a sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.operators import Column, NotNullEnforcement, Schema, Sink, TableRef, TypeLengthEnforcement
from planner.ir.types import ChangelogMode
from runtime.errors import TaskError
from runtime.operators.sink_constraints import ConstraintEnforcer
from tests.support.aggregates import rows_of
from tests.support.operators import batch_of, ints

COLUMNS = Schema(
    (
        Column("id", t.INT.with_nullable(False)),
        Column("code", t.char(3)),
        Column("name", t.varchar(4)),
        Column("raw", t.binary(2)),
        Column("blob", t.varbinary(2)),
    )
)


def enforcer(**options: Any) -> ConstraintEnforcer:
    table = TableRef("`c`.`d`.`out`", "print", {}, COLUMNS)
    return ConstraintEnforcer(Sink("sink", "sink", table, COLUMNS, not_null_columns=(0,), **options))


def rows(
    ids: list[int | None],
    text: tuple[str | None, str | None] = ("abc", "abcd"),
    raw: tuple[bytes, bytes] = (b"ab", b"ab"),
    kinds: list[int] | None = None,
) -> Any:
    count = len(ids)
    return batch_of(
        ints(*ids),
        pa.array([text[0]] * count, pa.string()),
        pa.array([text[1]] * count, pa.string()),
        pa.array([raw[0]] * count, pa.binary()),
        pa.array([raw[1]] * count, pa.binary()),
        kinds=kinds,
    )


def test_null_fails_and_names_the_column() -> None:
    with pytest.raises(TaskError, match=r"column 'id' of table `c`\.`d`\.`out` is NOT NULL"):
        enforcer().enforce(rows([1, None]))


@pytest.mark.parametrize("kind", [1, 3])
def test_a_removal_with_null_does_not_fail(kind: int) -> None:
    batch = rows([1, None], kinds=[0, kind])
    assert enforcer(changelog=ChangelogMode.UPSERT).enforce(batch) is batch


def test_drop_leaves_rows_out_and_counts_them() -> None:
    constraints = enforcer(not_null_enforcement=NotNullEnforcement.DROP)
    assert [row[0] for _, row in rows_of([constraints.enforce(rows([1, None, 3]))])] == [1, 3]
    assert constraints.counters()["numRecordsDroppedNotNull"] == 1


def test_drop_takes_the_removal_of_a_dropped_row_with_it() -> None:
    constraints = enforcer(not_null_enforcement=NotNullEnforcement.DROP, changelog=ChangelogMode.RETRACT)
    kept = rows_of([constraints.enforce(rows([None, None, 5, 5], kinds=[0, 3, 0, 3]))])
    assert [(kind, row[0]) for kind, row in kept] == [("+I", 5), ("-D", 5)]
    assert constraints.counters()["numRecordsDroppedNotNull"] == 2


def test_drop_keeps_deletions_by_key() -> None:
    constraints = enforcer(not_null_enforcement=NotNullEnforcement.DROP, changelog=ChangelogMode.UPSERT)
    kept = rows_of([constraints.enforce(rows([None, None], kinds=[2, 3]))])
    assert [kind for kind, _ in kept] == ["-D"]


def test_lengths_are_ignored_by_default() -> None:
    batch = rows([1], ("toolong", "toolong"))
    assert enforcer().enforce(batch) is batch


def test_trim_and_pad_text_by_characters_and_binaries_by_bytes() -> None:
    constraints = enforcer(length_enforcement=TypeLengthEnforcement.TRIM_PAD)
    (long,) = rows_of([constraints.enforce(rows([1], ("äöüß", "äöüßx"), (b"abc", b"abc")))])
    assert long[1][1:] == ("äöü", "äöüß", b"ab", b"ab")
    (short,) = rows_of([constraints.enforce(rows([1], ("a", "a"), (b"a", b"a")))])
    assert short[1][1:] == ("a  ", "a", b"a\0", b"a")
    (absent,) = rows_of([constraints.enforce(rows([1], (None, None)))])
    assert absent[1][1:3] == (None, None)
    assert constraints.counters()["numValuesAdjustedToLength"] == 6


def test_removals_are_adjusted_like_additions() -> None:
    constraints = enforcer(length_enforcement=TypeLengthEnforcement.TRIM_PAD, changelog=ChangelogMode.RETRACT)
    added, removed = rows_of([constraints.enforce(rows([1, 1], ("a", "abcdefg"), kinds=[0, 3]))])
    assert added[1] == removed[1]


@pytest.mark.parametrize(
    ("text", "raw", "message"),
    [
        (("ab", "ab"), (b"ab", b""), r"column 'code' .* is CHAR\(3\), but a value of 2 characters"),
        (("abc", "abcde"), (b"ab", b""), r"column 'name' .* is VARCHAR\(4\), but a value of 5 characters"),
        (("abc", ""), (b"a", b""), r"column 'raw' .* is BINARY\(2\), but a value of 1 bytes"),
        (("abc", ""), (b"ab", b"abc"), r"column 'blob' .* is VARBINARY\(2\), but a value of 3 bytes"),
    ],
)
def test_error_names_column_type_and_length(text: tuple[str, str], raw: tuple[bytes, bytes], message: str) -> None:
    constraints = enforcer(length_enforcement=TypeLengthEnforcement.ERROR)
    with pytest.raises(TaskError, match=message):
        constraints.enforce(rows([1], text, raw))
    constraints.enforce(rows([1], text, raw, kinds=[3]))
