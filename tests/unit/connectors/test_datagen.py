"""The datagen source: Flink's options per field, sequences, and repeatability."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from connectors.api import SplitState
from connectors.errors import OptionError
from planner.ir.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    char,
    decimal,
    map_of,
    multiset,
    row,
    time,
    timestamp,
    timestamp_ltz,
    varchar,
)
from tests.unit.connectors.source_support import read_all, reader, rows_of, source, splits, table

EVERY_TYPE: dict[str, DataType] = {
    "b": BOOLEAN,
    "t": TINYINT,
    "s": SMALLINT,
    "i": INT,
    "l": BIGINT,
    "f": FLOAT,
    "d": DOUBLE,
    "n": decimal(20, 3),
    "c": char(5),
    "v": varchar(20),
    "x": STRING,
    "y": BYTES,
    "dt": DATE,
    "tm": time(),
    "ts": timestamp(3),
    "tz": timestamp_ltz(6),
    "a": array(INT),
    "m": map_of(STRING, DOUBLE),
    "u": multiset(STRING),
    "r": row(("p", INT), ("q", STRING)),
}


def options(rows: int | None = 100, **given: str) -> dict[str, str]:
    """Options; a field's are written `fields__name__min`."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    limit = {} if rows is None else {"number-of-rows": str(rows)}
    return {"connector": "datagen", "rows-per-second": "1000000", "seed": "7", **limit, **named}


def test_every_type_can_be_made() -> None:
    rows = rows_of(table(options(), **EVERY_TYPE))
    assert len(rows) == 100
    assert all(value is not None for found in rows for value in found.values())
    first: Any = rows[0]
    assert (len(first["c8"]), len(first["c9"]), len(first["c10"]), len(first["c11"])) == (5, 20, 100, 100)
    assert set(first["c10"]) <= set("0123456789abcdef")
    assert (len(first["c16"]), len(first["c17"]), len(first["c18"])) == (3, 3, 3)
    assert set(first["c19"]) == {"p", "q"}
    assert {found["c0"] for found in rows} == {True, False}


def test_a_sequence_bounds_the_table_and_comes_in_order() -> None:
    definition = table(
        options(None, fields__i__kind="sequence", fields__i__start="5", fields__i__end="30"), i=INT, x=STRING
    )
    assert source(definition).bounded
    assert [found["c0"] for found in rows_of(definition, rows_max=7)] == list(range(5, 31))
    several = dict(definition.options) | {"scan.parallelism": "3"}
    made = rows_of(table(several, i=INT, x=STRING))
    assert sorted(int(str(found["c0"])) for found in made) == list(range(5, 31))


def test_sequences_of_other_types() -> None:
    given = {f"fields.{name}.{option}": value for name in "sdv" for option, value in _SEQUENCE.items()}
    rows = rows_of(table(options(2) | given, s=SMALLINT, d=decimal(6, 2), v=STRING))
    assert rows == [{"c0": 1, "c1": Decimal("1.00"), "c2": "1"}, {"c0": 2, "c1": Decimal("2.00"), "c2": "2"}]


_SEQUENCE = {"kind": "sequence", "start": "1", "end": "9"}


def test_bounds_lengths_and_null_rate() -> None:
    definition = table(
        options(
            2000,
            fields__i__min="-3",
            fields__i__max="3",
            fields__l__min="9000000000",
            fields__l__max="9000000001",
            fields__d__min="1.5",
            fields__d__max="2.5",
            fields__n__min="1",
            fields__n__max="2",
            fields__x__length="4",
            fields__y__length="9",
            **{"fields.y.var-len": "true", "fields.v.null-rate": "0.5"},
        ),
        i=INT,
        l=BIGINT,
        d=DOUBLE,
        n=decimal(6, 2),
        x=STRING,
        y=STRING,
        v=INT,
    )
    rows: Any = rows_of(definition)
    assert {found["c0"] for found in rows} == set(range(-3, 4))
    assert {found["c1"] for found in rows} == {9_000_000_000, 9_000_000_001}
    assert all(1.5 <= found["c2"] <= 2.5 for found in rows)
    assert all(Decimal(1) <= found["c3"] <= Decimal(2) for found in rows)
    assert {len(found["c4"]) for found in rows} == {4}
    assert {len(found["c5"]) for found in rows} == set(range(1, 10))
    assert 800 < sum(found["c6"] is None for found in rows) < 1200


def test_the_whole_range_of_integers_is_used() -> None:
    rows: Any = rows_of(table(options(4000), l=BIGINT, t=TINYINT))
    assert min(found["c0"] for found in rows) < -(2**61)
    assert max(found["c0"] for found in rows) > 2**61
    assert {found["c1"] for found in rows} == set(range(-128, 128))


def test_timestamps_lie_in_the_allowed_past() -> None:
    made = table(options(500, **{"fields.ts.max-past": "10 s"}), ts=timestamp(3))
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    moments: list[Any] = [found["c0"] for found in rows_of(made)]
    assert all(now - dt.timedelta(seconds=20) < moment < now + dt.timedelta(seconds=20) for moment in moments)
    assert max(moments) - min(moments) > dt.timedelta(seconds=5)


def test_a_split_gives_the_same_rows_again_and_only_the_wanted_columns() -> None:
    definition = table(options(300), **EVERY_TYPE)
    (split,) = splits(definition)

    def rows(**arguments: Any) -> list[dict[str, object]]:
        batches = read_all(reader(definition, **arguments), [SplitState(split)])
        return [found for batch in batches[split.id] for found in batch.to_pylist()]

    whole = rows()
    assert rows(rows_max=17) == whole
    assert [found["c0"] for found in rows(scan=(10,))] == [found["c10"] for found in whole]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fields__z__min": "1"}, "no option 'fields.z.min'"),
        ({"fields__i__minimum": "1"}, "no option 'fields.i.minimum'"),
        ({"fields__i__kind": "sequence"}, "needs the option 'fields.i.start'"),
        ({"fields__i__kind": "sequence", "fields__i__start": "2", "fields__i__end": "1"}, "must be at least 2"),
        ({"fields__i__min": "5", "fields__i__max": "4"}, "must be from 5 to"),
        ({"fields__i__max": "3000000000"}, "must be from"),
        ({"fields.i.null-rate": "2"}, "must be a number from 0 to 1"),
        ({"fields__i__kind": "serial"}, "must be one of random, sequence"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(table(options() | {name.replace("__", "."): value for name, value in given.items()}, i=INT))
