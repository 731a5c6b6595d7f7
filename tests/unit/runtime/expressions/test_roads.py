"""The DuckDB road and the dictionary road."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.ir import types as t
from runtime.operators.expressions import duckdb_road
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.expressions.dictionary_road import per_distinct
from tests.unit.runtime.expressions.build import batch, boolean, call, column, context, lit

S = column(0, t.STRING)
TEXTS = batch((t.STRING, ["a", None, "a", "ü"]))


def test_calls_of_one_calc_share_a_statement() -> None:
    calc = compile_calc(None, [call("MD5", S, type=t.char(32)), call("SHA256", S, type=t.char(64))], context())
    assert calc.source.count("(n, ") == 1
    first = calc(TEXTS).to_pylist()[0]
    assert first["c0"] == "0cc175b9c0f1b6a831c399e269772661"
    assert first["c1"].startswith("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")


def test_calls_inside_each_other_and_below_a_guard() -> None:
    twice = call("MD5", call("MD5", S, type=t.char(32)), type=t.char(32))
    number = call("CAST", S, type=t.INT)
    text = call("CAST", number, type=t.STRING)
    guarded = call(
        "CASE",
        boolean("EQ", S, lit("7", t.STRING)),
        call("MD5", text, type=t.char(32)),
        lit("-", t.STRING),
        type=t.STRING,
    )
    calc = compile_calc(None, [twice, guarded], context())
    result = calc(batch((t.STRING, ["7", "x"])))
    assert result.column(1).to_pylist() == ["8f14e45fceea167a5a36dedd4bea2543", "-"]
    assert result.column(0)[0].as_py() == "72b32a1f754ba1c09b3695e0cb6cde7f" or result.column(0).null_count == 0


def test_batches_of_changing_size() -> None:
    calc = compile_calc(None, [call("MD5", S, type=t.char(32))], context())
    for rows in (1, 5000, 2):
        assert (
            calc(batch((t.STRING, ["a"] * rows))).column(0).to_pylist() == ["0cc175b9c0f1b6a831c399e269772661"] * rows
        )


def test_duckdb_reaches_nothing_outside() -> None:
    cursor = duckdb_road._cursor()
    for forbidden in ("SELECT * FROM '/etc/passwd'", "SET enable_external_access = true", "INSTALL httpfs"):
        with pytest.raises(Exception, match=r"(?i)disabled|locked|cannot|not allowed|does not exist"):
            cursor.execute(forbidden).fetchall()


def test_a_column_that_drifts_is_refused() -> None:
    statement = duckdb_road.statement((call("MD5", S, type=t.char(32)),))
    with pytest.raises(AssertionError):
        statement(1, pa.array([1], pa.int64()))


def test_one_call_per_distinct_value() -> None:
    seen: list[str] = []

    def shout(text: str) -> str:
        seen.append(text)
        return text.upper()

    kernel = per_distinct(shout, pa.string())
    assert kernel(pa.array(["a", "b", None, "a"])).to_pylist() == ["A", "B", None, "A"]
    assert sorted(seen) == ["a", "b"]


def test_one_call_per_distinct_tuple() -> None:
    seen: list[tuple[str, int, str]] = []

    def join(text: str, number: int, fixed: str) -> str | None:
        seen.append((text, number, fixed))
        return None if number == 3 else f"{text}{number}{fixed}"

    kernel = per_distinct(join, pa.string())
    texts, numbers = pa.array(["a", "a", "b", "a", None]), pa.array([1, 2, 1, 1, 1])
    assert kernel(texts, numbers, pa.scalar("!")).to_pylist() == ["a1!", "a2!", "b1!", "a1!", None]
    assert len(seen) == 3
    assert kernel(texts, pa.scalar(None, pa.int64()), pa.scalar("!")).to_pylist() == [None] * 5
    assert kernel(pa.array(["c"]), pa.array([3]), pa.scalar("!")).to_pylist() == [None]
