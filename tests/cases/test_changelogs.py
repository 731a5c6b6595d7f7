"""Cases of results that change: updates and deletes below groups, extremes, filters, HAVING, and keyed targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally

Image = dict[str, Any] | None


def event(before: Image, after: Image) -> str:
    operation = "c" if before is None else "d" if after is None else "u"
    return json.dumps({"before": before, "after": after, "op": operation})


def source(name: str, columns: str, key: str = "id") -> str:
    return (
        f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) "
        f"WITH ('connector' = 'filesystem', 'path' = '{{dir}}/{name}.jsonl', 'format' = 'debezium-json')"
    )


def plain(name: str, columns: str) -> str:
    return (
        f"CREATE TABLE {name} ({columns}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{{dir}}/{name}.jsonl', 'format' = 'json')"
    )


def staff(number: int, team: str | None, pay: int | None) -> dict[str, Any]:
    return {"id": number, "team": team, "pay": pay}


STAFF = source("staff", "id INT, team STRING, pay INT")
ADA, BEN, CYD, DOT = staff(1, "red", 10), staff(2, "red", 30), staff(3, "blue", 30), staff(4, None, 5)
HIRED = (event(None, ADA), event(None, BEN), event(None, CYD), event(None, DOT))

GROUPS = (
    Case(
        name="a-row-moves-its-group",
        why="an update takes the row from its old group; a group without rows is gone, not zero",
        inputs={"staff.jsonl": (*HIRED, event(CYD, staff(3, "red", 30)), event(ADA, None))},
        sql=(STAFF, "SELECT team, COUNT(*) AS n, SUM(pay) AS total FROM staff GROUP BY team"),
        rows=(("red", 2, 60), (None, 1, 5)),
    ),
    Case(
        name="a-null-key-is-a-group",
        why="NULL is one group, also for rows that move there and away",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(ADA, staff(1, None, 10)),
                event(DOT, staff(4, "blue", 5)),
                event(BEN, staff(2, None, 1)),
            )
        },
        sql=(STAFF, "SELECT team, COUNT(*) AS n, MIN(pay) AS least FROM staff GROUP BY team"),
        rows=((None, 2, 1), ("blue", 2, 5)),
    ),
    Case(
        name="a-group-goes-and-comes-back",
        why="what comes after a group has gone starts from nothing",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(CYD, None),
                event(None, staff(3, "blue", None)),
                event(staff(3, "blue", None), None),
                event(None, staff(9, "blue", 7)),
            )
        },
        sql=(STAFF, "SELECT team, COUNT(*), COUNT(pay), SUM(pay), MAX(pay), AVG(pay) FROM staff GROUP BY team"),
        rows=(("red", 2, 2, 40, 30, 20), ("blue", 1, 1, 7, 7, 7), (None, 1, 1, 5, 5, 5)),
    ),
    Case(
        name="extremes-fall-back",
        why="MIN and MAX know the values behind the one that goes; of two equal ones one stays",
        inputs={
            "staff.jsonl": (
                *(event(None, staff(i, "red", pay)) for i, pay in enumerate((9, 4, 9, 12, 4, None, 1))),
                event(staff(3, "red", 12), None),
                event(staff(0, "red", 9), staff(0, "red", 8)),
                event(staff(6, "red", 1), None),
                event(staff(1, "red", 4), staff(1, "red", None)),
            )
        },
        sql=(STAFF, "SELECT team, MAX(pay), MIN(pay), COUNT(*), COUNT(pay) FROM staff GROUP BY team"),
        rows=(("red", 9, 4, 5, 3),),
    ),
    Case(
        name="extremes-of-nothing-but-null",
        why="when the last value has gone and only NULLs are left, the extremes are NULL and the group stays",
        inputs={
            "staff.jsonl": (
                event(None, staff(1, "red", 5)),
                event(None, staff(2, "red", None)),
                event(staff(1, "red", 5), None),
            )
        },
        sql=(STAFF, "SELECT team, MAX(pay), MIN(pay), SUM(pay), COUNT(*) FROM staff GROUP BY team"),
        rows=(("red", None, None, None, 1),),
    ),
    Case(
        name="extremes-of-texts-and-dates",
        why="all types that have an order fall back",
        inputs={
            "t.jsonl": tuple(
                event(*images)
                for images in (
                    (None, {"id": 1, "s": "zebra", "d": "2025-03-01", "m": 1.50}),
                    (None, {"id": 2, "s": "", "d": "1969-12-31", "m": -1.50}),
                    (None, {"id": 3, "s": "Äpfel", "d": "2025-02-28", "m": 0.10}),
                    ({"id": 1, "s": "zebra", "d": "2025-03-01", "m": 1.50}, None),
                    ({"id": 2, "s": "", "d": "1969-12-31", "m": -1.50}, {"id": 2, "s": "b", "d": None, "m": 0.09}),
                )
            )
        },
        sql=(
            source("t", "id INT, s STRING, d DATE, m DECIMAL(10, 2)"),
            "SELECT MIN(s), MAX(s), MIN(d), MAX(d), MIN(m), MAX(m), SUM(m) FROM t",
        ),
        rows=(("b", "Äpfel", "2025-02-28", "2025-02-28", 0.09, 0.1, 0.19),),
    ),
    Case(
        name="a-filtered-sum-is-null-again",
        why="SUM … FILTER without a matching row is NULL, not 0, also after there was one",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(CYD, staff(3, "blue", 2)),
                event(DOT, staff(4, None, 50)),
                event(staff(4, None, 50), staff(4, None, 49)),
            )
        },
        sql=(
            STAFF,
            """SELECT team, COUNT(*), SUM(pay) FILTER (WHERE pay > 20), COUNT(pay) FILTER (WHERE pay > 20),
                      AVG(pay) FILTER (WHERE pay < 0) FROM staff GROUP BY team""",
        ),
        rows=(("red", 2, 30, 1, None), ("blue", 1, None, 0, None), (None, 1, 49, 1, None)),
    ),
    Case(
        name="a-filter-over-an-unknown",
        why="FILTER takes rows for which the condition is TRUE, not those for which it is unknown",
        inputs={"staff.jsonl": (*HIRED, event(None, staff(5, "red", None)), event(ADA, staff(1, "red", None)))},
        sql=(STAFF, "SELECT COUNT(*) FILTER (WHERE pay > 5), COUNT(*) FILTER (WHERE NOT pay > 5), COUNT(*) FROM staff"),
        rows=((2, 1, 5),),
    ),
    Case(
        name="a-global-aggregate-after-all-rows-have-gone",
        why="no GROUP BY: one row, always",
        inputs={"staff.jsonl": (event(None, ADA), event(ADA, None))},
        sql=(STAFF, "SELECT COUNT(*), SUM(pay), MAX(pay) FROM staff"),
        rows=((0, None, None),),
    ),
    Case(
        name="a-group-by-constant-over-nothing",
        why="with GROUP BY no row in means no row out",
        inputs={"staff.jsonl": ()},
        sql=(STAFF, "SELECT team, COUNT(*) FROM staff GROUP BY team"),
        rows=(),
    ),
    Case(
        name="having-is-crossed-both-ways",
        why="a group that no longer satisfies HAVING goes, and comes back when it does",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(BEN, staff(2, "blue", 30)),
                event(None, staff(7, "red", 100)),
                event(CYD, None),
                event(staff(2, "blue", 30), staff(2, "blue", 3)),
            )
        },
        sql=(STAFF, "SELECT team, SUM(pay) AS total FROM staff GROUP BY team HAVING SUM(pay) > 20 AND COUNT(*) > 1"),
        rows=(("red", 110),),
    ),
    Case(
        name="aggregates-of-aggregates",
        why="a change of an inner group is an update of two outer ones",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(None, staff(5, "green", 1)),
                event(CYD, staff(3, "red", 30)),
                event(staff(5, "green", 1), staff(5, None, 1)),
            )
        },
        sql=(
            STAFF,
            """SELECT n, COUNT(*), MAX(team), SUM(total) FROM
               (SELECT team, COUNT(*) AS n, SUM(pay) AS total FROM staff GROUP BY team) GROUP BY n""",
        ),
        rows=((3, 1, "red", 70), (2, 1, None, 6)),
    ),
    Case(
        name="infinities-do-not-stay",
        why="a NaN or an infinity that is taken back leaves a sum of what is left",
        inputs={
            "t.jsonl": tuple(
                event(*images)
                for images in (
                    (None, {"id": 1, "k": "a", "s": "NaN"}),
                    (None, {"id": 2, "k": "a", "s": "2.5"}),
                    (None, {"id": 3, "k": "b", "s": "Infinity"}),
                    (None, {"id": 4, "k": "b", "s": "-Infinity"}),
                    (None, {"id": 5, "k": "b", "s": "4"}),
                    (None, {"id": 6, "k": "c", "s": "Infinity"}),
                    ({"id": 1, "k": "a", "s": "NaN"}, None),
                    ({"id": 3, "k": "b", "s": "Infinity"}, {"id": 3, "k": "b", "s": "1"}),
                    ({"id": 4, "k": "b", "s": "-Infinity"}, None),
                )
            )
        },
        sql=(
            source("t", "id INT, k STRING, s STRING"),
            "SELECT k, SUM(v), AVG(v), MAX(v) FROM (SELECT k, CAST(s AS DOUBLE) AS v FROM t) GROUP BY k",
        ),
        rows=(("a", 2.5, 2.5, 2.5), ("b", 5, 2.5, 4), ("c", "Infinity", "Infinity", "Infinity")),
    ),
    Case(
        name="decimal-sums-take-back-exactly",
        why="no cent is lost where doubles would lose it",
        inputs={
            "t.jsonl": tuple(
                event(*images)
                for images in (
                    *((None, {"id": i, "m": "0.1"}) for i in range(10)),
                    (None, {"id": 10, "m": "12345678901234567890123456.01"}),
                    ({"id": 10, "m": "12345678901234567890123456.01"}, None),
                    ({"id": 0, "m": "0.1"}, None),
                )
            )
        },
        sql=(source("t", "id INT, m DECIMAL(30, 2)"), "SELECT SUM(m), AVG(m), COUNT(*) FROM t"),
        rows=((0.9, 0.1, 9),),
    ),
    Case(
        name="a-decimal-sum-beyond-38-digits",
        why="it is NULL, and the job lives",
        inputs={"t.jsonl": tuple(f'{{"k": {i % 2}, "m": {9 - 8 * (i % 2)}{"9" * 37}}}' for i in range(6))},
        sql=(plain("t", "k INT, m DECIMAL(38, 0)"), "SELECT k, SUM(m), COUNT(*) FROM t GROUP BY k"),
        rows=((0, None, 3), (1, int("59" + "9" * 36) - 2, 3)),
    ),
    Case(
        name="integer-sums-wrap",
        why="a sum has its argument's type and wraps like Java's",
        inputs={"t.jsonl": ('{"v": 2147483647, "w": 9223372036854775807}', '{"v": 1, "w": 2}')},
        sql=(plain("t", "v INT, w BIGINT"), "SELECT SUM(v), SUM(w), AVG(v) FROM t"),
        rows=((-2147483648, -9223372036854775807, 1073741824),),
    ),
    Case(
        name="distinct-rows-under-deletes",
        why="a distinct row goes with its last copy only; NULLs are equal",
        inputs={
            "staff.jsonl": (
                *HIRED,
                event(None, staff(5, None, 5)),
                event(None, staff(6, "red", 10)),
                event(ADA, None),
                event(DOT, None),
                event(CYD, None),
            )
        },
        sql=(STAFF, "SELECT DISTINCT team, pay FROM staff"),
        rows=(("red", 30), ("red", 10), (None, 5)),
    ),
    Case(
        name="first-and-last-under-deletes",
        why="the first and the last of what is still there, in order of arrival",
        inputs={
            "staff.jsonl": (
                *(event(None, staff(i, "red", 10 * i)) for i in range(1, 5)),
                event(staff(1, "red", 10), None),
                event(staff(4, "red", 40), None),
            )
        },
        sql=(
            STAFF,
            """SELECT team, FIRST_VALUE(pay), LAST_VALUE(pay), LISTAGG(CAST(pay AS STRING), '+')
               FROM staff GROUP BY team""",
        ),
        rows=(("red", 20, 30, "20+30"),),
    ),
    Case(
        name="deviations-under-deletes",
        why="one row has no sample variance, none at all no variance",
        inputs={
            "t.jsonl": tuple(
                event(*images)
                for images in (
                    *((None, {"id": i, "x": x}) for i, x in enumerate((2.0, 4.0, 4.0, 1000.0))),
                    ({"id": 3, "x": 1000.0}, None),
                    ({"id": 1, "x": 4.0}, {"id": 1, "x": 6.0}),
                )
            )
        },
        sql=(
            source("t", "id INT, x DOUBLE"),
            "SELECT VAR_POP(x), VAR_SAMP(x), VAR_SAMP(x) FILTER (WHERE x > 5) FROM t",
        ),
        rows=((8 / 3, 4, None),),
    ),
)


@local_cases(*GROUPS)
def test_groups(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
