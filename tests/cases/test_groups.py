"""Cases of GROUP BY: odd keys, odd values, expressions, grouping sets and nested queries, over inserts and changes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally

SALES = source("sales", "id INT, city STRING, kind STRING, amount DECIMAL(10, 2)")


def sale(number: int, city: str | None, kind: str | None, amount: str | None) -> dict[str, object]:
    return {"id": number, "city": city, "kind": kind, "amount": amount}


S1, S2, S3, S4 = (
    sale(1, "Ulm", "x", "1.50"),
    sale(2, "Ulm", "y", "2.25"),
    sale(3, "Bonn", "x", "4.00"),
    sale(4, None, "x", "8.00"),
)
SOLD = tuple(event(None, each) for each in (S1, S2, S3, S4))

CASES = (
    Case(
        name="floating-keys",
        why="NaN is one group, and -0.0 is 0.0",
        inputs={
            "t.jsonl": tuple(
                f'{{"s": "{s}", "v": {i}}}' for i, s in enumerate(("NaN", "0.0", "-0.0", "NaN", "1e1", "10"))
            )
        },
        sql=(
            plain("t", "s STRING, v INT"),
            "SELECT CAST(s AS DOUBLE), COUNT(*), SUM(v) FROM t GROUP BY CAST(s AS DOUBLE)",
        ),
        rows=(("NaN", 2, 3), (0, 2, 3), (10, 2, 9)),
    ),
    Case(
        name="decimal-and-time-keys",
        why="1.0 and 1.00 are one DECIMAL key; times are told apart by the millisecond",
        inputs={
            "t.jsonl": (
                '{"m": 1.0, "at": "2025-01-01 00:00:00", "d": "2025-01-01", "o": "12:00:00"}',
                '{"m": 1.00, "at": "2025-01-01 00:00:00.000", "d": "2025-01-01", "o": "12:00:00"}',
                '{"m": 1, "at": "2025-01-01 00:00:00.001", "d": "2025-01-01", "o": "12:00:00"}',
                '{"m": -1, "at": null, "d": null, "o": null}',
            )
        },
        sql=(
            plain("t", "m DECIMAL(10, 2), at TIMESTAMP(3), d DATE, o TIME"),
            "SELECT m, at, d, o, COUNT(*) FROM t GROUP BY m, at, d, o",
        ),
        rows=(
            (1, "2025-01-01 00:00:00", "2025-01-01", "12:00:00", 2),
            (1, "2025-01-01 00:00:00.001", "2025-01-01", "12:00:00", 1),
            (-1, None, None, None, 1),
        ),
    ),
    Case(
        name="composite-keys-do-not-run-together",
        why="('ab', 'c') is not ('a', 'bc'), nor is NULL the empty text or the word",
        inputs={
            "t.jsonl": (
                '{"a": "ab", "b": "c"}',
                '{"a": "a", "b": "bc"}',
                '{"a": "abc", "b": ""}',
                '{"a": "abc", "b": null}',
                '{"a": "abc", "b": "null"}',
                '{"a": null, "b": "abc"}',
                '{"a": "ab", "b": "c"}',
            )
        },
        sql=(plain("t", "a STRING, b STRING"), "SELECT a, b, COUNT(*) FROM t GROUP BY a, b"),
        rows=(
            ("ab", "c", 2),
            ("a", "bc", 1),
            ("abc", "", 1),
            ("abc", None, 1),
            ("abc", "null", 1),
            (None, "abc", 1),
        ),
    ),
    Case(
        name="array-keys",
        why="arrays are keys by their values; the empty one, NULL and one of NULL differ",
        inputs={
            "t.jsonl": ('{"a": [1, 2]}', '{"a": [1, 2]}', '{"a": [2, 1]}', '{"a": []}', '{"a": null}', '{"a": [null]}')
        },
        sql=(plain("t", "a ARRAY<INT>"), "SELECT a, COUNT(*) FROM t GROUP BY a"),
        rows=(((1, 2), 2), ((2, 1), 1), ((), 1), (None, 1), ((None,), 1)),
    ),
    Case(
        name="small-integers",
        why="sums have their argument's type and wrap in it; averages are cut toward zero",
        inputs={"t.jsonl": ('{"a": 100, "b": 30000}', '{"a": 100, "b": 30000}', '{"a": -1, "b": -5}')},
        sql=(
            plain("t", "a TINYINT, b SMALLINT"),
            "SELECT SUM(a), SUM(b), AVG(a), AVG(b), MIN(a), MAX(b), SUM(CAST(a AS INT)) FROM t",
        ),
        rows=((-57, -5541, 66, 19998, -1, 30000, 199),),
    ),
    Case(
        name="averages-of-negative-numbers",
        why="integers are cut toward zero, decimals rounded half up",
        inputs={"t.jsonl": ('{"i": -1, "m": -0.01}', '{"i": -2, "m": -0.02}', '{"i": null, "m": -0.02}')},
        sql=(plain("t", "i INT, m DECIMAL(5, 2)"), "SELECT AVG(i), AVG(m), SUM(m) FROM t"),
        rows=((-1, Decimal("-0.016667"), Decimal("-0.05")),),
    ),
    Case(
        name="expressions-as-keys",
        why="the same expression in SELECT and GROUP BY is one value",
        inputs={"sales.jsonl": SOLD},
        sql=(
            SALES,
            """SELECT UPPER(SUBSTRING(city FROM 1 FOR 1)) AS initial, CASE WHEN amount > 2 THEN 'big' ELSE 'small' END,
                      COUNT(*) + 1 FROM sales
               GROUP BY UPPER(SUBSTRING(city FROM 1 FOR 1)), CASE WHEN amount > 2 THEN 'big' ELSE 'small' END""",
        ),
        rows=(("U", "small", 2), ("U", "big", 2), ("B", "big", 2), (None, "big", 2)),
    ),
    Case(
        name="subtotals-of-changes",
        why="a row that moves leaves each of its subtotals; the NULL of a row is not that of a subtotal",
        inputs={"sales.jsonl": (*SOLD, event(S1, sale(1, "Bonn", "y", "1.00")), event(S3, None))},
        sql=(
            SALES,
            """SELECT city, kind, GROUPING(city), GROUPING(kind), COUNT(*), SUM(amount)
               FROM sales GROUP BY ROLLUP (city, kind)""",
        ),
        rows=(
            ("Ulm", "y", 0, 0, 1, 2.25),
            ("Bonn", "y", 0, 0, 1, 1),
            (None, "x", 0, 0, 1, 8),
            ("Ulm", None, 0, 1, 1, 2.25),
            ("Bonn", None, 0, 1, 1, 1),
            (None, None, 0, 1, 1, 8),
            (None, None, 1, 1, 3, 11.25),
        ),
    ),
    Case(
        name="grouping-sets-with-the-empty-set",
        why="each set is counted by itself, also when it is named twice",
        inputs={"sales.jsonl": (*SOLD, event(S4, None))},
        sql=(SALES, "SELECT kind, COUNT(*) FROM sales GROUP BY GROUPING SETS ((kind), (), (kind))"),
        rows=(("x", 2), ("y", 1), (None, 3), ("x", 2), ("y", 1)),
    ),
    Case(
        name="texts-are-joined-without-nulls",
        why="LISTAGG passes NULLs over, and one of nothing but NULLs is NULL",
        inputs={
            "sales.jsonl": (
                *SOLD,
                event(None, sale(5, "Ulm", None, None)),
                event(None, sale(6, "Kiel", None, None)),
                event(S1, None),
                event(None, sale(7, "Ulm", "y", None)),
            )
        },
        sql=(SALES, "SELECT city, LISTAGG(kind, '/'), LISTAGG(kind), COUNT(*) FROM sales GROUP BY city"),
        rows=(("Ulm", "y/y", "y,y", 3), ("Bonn", "x", "x", 1), (None, "x", "x", 1), ("Kiel", None, None, 1)),
    ),
    Case(
        name="counts-of-counts-of-changes",
        why="three levels of groups over rows that move",
        inputs={"sales.jsonl": (*SOLD, event(S2, sale(2, "Bonn", "y", "2.25")), event(S1, sale(1, None, "x", "1.50")))},
        sql=(
            SALES,
            """SELECT COUNT(*), SUM(groups), MAX(n) FROM (SELECT n, COUNT(*) AS groups FROM (
                 SELECT city, COUNT(DISTINCT kind) AS n FROM sales GROUP BY city) GROUP BY n)""",
        ),
        rows=((2, 2, 2),),
    ),
    Case(
        name="distinct-below-a-count",
        why="SELECT DISTINCT in a subquery takes back what it gave",
        inputs={"sales.jsonl": (*SOLD, event(S1, None), event(S3, None))},
        sql=(SALES, "SELECT COUNT(*), MIN(city) FROM (SELECT DISTINCT city, kind FROM sales)"),
        rows=((2, "Ulm"),),
    ),
    Case(
        name="a-union-of-changes-and-inserts",
        why="both sides go into one group",
        inputs={"sales.jsonl": (*SOLD, event(S4, None)), "more.jsonl": ('{"city": "Ulm"}', '{"city": "Kiel"}')},
        sql=(
            SALES,
            plain("more", "city STRING"),
            "SELECT city, COUNT(*) FROM (SELECT city FROM sales UNION ALL SELECT city FROM more) GROUP BY city",
        ),
        rows=(("Ulm", 3), ("Bonn", 1), ("Kiel", 1)),
    ),
    Case(
        name="having-without-group-by",
        why="the one row of the whole table is there or not",
        inputs={"sales.jsonl": (*SOLD, event(S1, None))},
        sql=(SALES, "SELECT COUNT(*) FROM sales HAVING COUNT(*) > 3"),
        rows=(),
    ),
    Case(
        name="a-key-that-is-not-shown",
        why="rows that look alike are as many as there are groups",
        inputs={"sales.jsonl": SOLD},
        sql=(SALES, "SELECT COUNT(*) FROM sales GROUP BY city"),
        rows=((2,), (1,), (1,)),
    ),
    Case(
        name="first-and-last-pass-nulls-over",
        why="FIRST_VALUE and LAST_VALUE give a value while there is one",
        inputs={"t.jsonl": ('{"v": null}', '{"v": 3}', '{"v": 4}', '{"v": null}')},
        sql=(plain("t", "v INT"), "SELECT FIRST_VALUE(v), LAST_VALUE(v), COUNT(*) FROM t"),
        rows=((3, 4, 4),),
    ),
    Case(
        name="booleans-and-constants",
        why="conditions are keys and values like others",
        inputs={"sales.jsonl": SOLD},
        sql=(
            SALES,
            """SELECT city IS NULL, 'all' AS label, COUNT(*), SUM(CASE WHEN kind = 'x' THEN 1 ELSE 0 END)
               FROM sales GROUP BY city IS NULL""",
        ),
        rows=((False, "all", 3, 2), (True, "all", 1, 1)),
    ),
)


@local_cases(*CASES)
def test_groups(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


BATCH = (
    "SET 'execution.runtime-mode' = 'batch'",
    plain("t", "k STRING, v INT"),
    "CREATE TABLE target (a STRING, b STRING, n BIGINT) WITH ({insert-only})",
)
LETTERS = tuple(f'{{"k": {k}, "v": {v}}}' for k, v in (('"a"', 1), ('"b"', 2), ('"a"', 3), ("null", 4), ('"b"', 5)))
FINAL: dict[str, tuple[str, tuple[tuple[Any, ...], ...]]] = {
    "groups": ("SELECT k, 'x', COUNT(*) FROM t GROUP BY k", (("a", "x", 2), ("b", "x", 2), (None, "x", 1))),
    "having": ("SELECT k, 'x', SUM(v) FROM t GROUP BY k HAVING SUM(v) > 4", (("b", "x", 7),)),
    "distinct": ("SELECT DISTINCT k, 'x', 1 FROM t WHERE v > 1", (("a", "x", 1), ("b", "x", 1), (None, "x", 1))),
    "nothing": ("SELECT MAX(k), MIN(k), COUNT(*) FROM t WHERE v > 9", ((None, None, 0),)),
    "no groups": ("SELECT k, k, COUNT(*) FROM t WHERE v > 9 GROUP BY k", ()),
    "groups of groups": (
        "SELECT CAST(n AS STRING), MAX(k), COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n",
        (("1", None, 1), ("2", "b", 2)),
    ),
    "grouping sets": (
        "SELECT k, 'x', COUNT(DISTINCT v) FROM t GROUP BY GROUPING SETS ((k), ())",
        (("a", "x", 2), ("b", "x", 2), (None, "x", 1), (None, "x", 5)),
    ),
}


@pytest.mark.parametrize("name", FINAL)
def test_batch_mode_gives_final_rows_to_a_target_that_takes_inserts(name: str, tmp_path: Path) -> None:
    query, rows = FINAL[name]
    case = Case(name, "one insert per group", (*BATCH, f"INSERT INTO target {query}"), {"t.jsonl": LETTERS}, rows)
    run_locally(case, tmp_path)
