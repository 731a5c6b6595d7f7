"""Cases of distinct aggregates: several at once, filters, NULLs, NaN, and under updates and deletes."""

from __future__ import annotations

from pathlib import Path

from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import LOCAL_SHAPES, local_cases, run_locally

VISITS = source("visits", "id INT, page STRING, who INT, spent INT")


def visit(number: int, page: str | None, who: int | None, spent: int | None) -> dict[str, object]:
    return {"id": number, "page": page, "who": who, "spent": spent}


A1, A2, A3, A4, B1 = (
    visit(1, "a", 7, 5),
    visit(2, "a", 7, 5),
    visit(3, "a", 8, 9),
    visit(4, "a", None, 5),
    visit(5, "b", 8, None),
)
ALL = tuple(event(None, each) for each in (A1, A2, A3, A4, B1))

CASES = (
    Case(
        name="several-distinct-counts-beside-plain-ones",
        why="each distinct column has its own values; NULL is no value",
        inputs={
            "t.jsonl": tuple(
                f'{{"id": {i}, "x": {x}, "y": {y}}}'
                for i, x, y in (
                    (1, 3, 5),
                    (2, 3, 6),
                    (3, "null", 5),
                    (4, 4, "null"),
                    (5, 3, 7),
                    (6, 3, 5),
                )
            )
        },
        sql=(
            plain("t", "id INT, x INT, y INT"),
            """SELECT COUNT(*), COUNT(x), COUNT(DISTINCT x), COUNT(DISTINCT y), COUNT(DISTINCT id), SUM(DISTINCT x),
               SUM(x), MAX(y), COUNT(DISTINCT x + y) FROM t""",
        ),
        rows=((6, 5, 2, 3, 6, 7, 16, 7, 3),),
    ),
    Case(
        name="two-distinct-columns-per-group",
        why="groups do not share their sets of values",
        inputs={
            "t.jsonl": (
                '{"g": 1, "x": 5, "y": 5}',
                '{"g": 2, "x": 5, "y": 6}',
                '{"g": 1, "x": 5, "y": 7}',
                '{"g": null, "x": 5, "y": 5}',
                '{"g": null}',
            )
        },
        sql=(
            plain("t", "g INT, x INT, y INT"),
            "SELECT g, COUNT(DISTINCT x), COUNT(DISTINCT y), MAX(y), COUNT(*) FROM t GROUP BY g",
        ),
        rows=((1, 1, 2, 7, 2), (2, 1, 1, 6, 1), (None, 1, 1, 5, 2)),
    ),
    Case(
        name="nan-is-one-value-and-minus-zero-is-zero",
        why="however it was spelt",
        inputs={
            "t.jsonl": tuple(f'{{"s": "{s}"}}' for s in ("NaN", "1", "NaN", "0.0", "-0.0", "1.0", "Infinity", "1e0"))
        },
        sql=(plain("t", "s STRING"), "SELECT COUNT(DISTINCT CAST(s AS DOUBLE)), COUNT(DISTINCT s) FROM t"),
        rows=((4, 7),),
    ),
    Case(
        name="distinct-counts-under-deletes",
        why="a value leaves the count with its last row only",
        inputs={
            "visits.jsonl": (*ALL, event(A1, None), event(A3, visit(3, "b", 8, 9)), event(B1, visit(5, "b", None, 1)))
        },
        sql=(
            VISITS,
            """SELECT page, COUNT(DISTINCT who), COUNT(DISTINCT spent), SUM(DISTINCT spent), COUNT(*)
               FROM visits GROUP BY page""",
        ),
        rows=(("a", 1, 1, 5, 2), ("b", 1, 2, 10, 2)),
    ),
    Case(
        name="distinct-with-filters-under-updates",
        why="a value may match one filter and not another, and change sides",
        inputs={
            "visits.jsonl": (
                *ALL,
                event(A2, visit(2, "a", 9, 50)),
                event(A1, visit(1, "a", 7, 50)),
                event(A3, visit(3, "a", 8, None)),
            )
        },
        sql=(
            VISITS,
            """SELECT page, COUNT(DISTINCT who) FILTER (WHERE spent > 6), COUNT(DISTINCT who) FILTER (WHERE spent <= 6),
               COUNT(DISTINCT who) FROM visits GROUP BY page""",
        ),
        rows=(("a", 2, 0, 3), ("b", 0, 0, 1)),
    ),
    Case(
        name="the-sets-go-with-the-group",
        why="a group that comes back counts from nothing",
        inputs={
            "visits.jsonl": (
                event(None, B1),
                event(B1, None),
                event(None, visit(6, "b", 8, 1)),
                event(None, visit(7, "b", 8, 2)),
            )
        },
        sql=(
            VISITS,
            "SELECT page, COUNT(DISTINCT who), SUM(DISTINCT who), AVG(DISTINCT spent) FROM visits GROUP BY page",
        ),
        rows=(("b", 1, 8, 1),),
    ),
    Case(
        name="a-row-changes-group-and-value",
        why="the old value leaves the old group, the new one enters the new group",
        inputs={"visits.jsonl": (*ALL, event(A3, visit(3, "b", 7, 9)), event(A1, visit(1, "b", 8, 5)))},
        sql=(VISITS, "SELECT page, COUNT(DISTINCT who), MIN(who) FROM visits GROUP BY page"),
        rows=(("a", 1, 7), ("b", 2, 7)),
    ),
    Case(
        name="a-distinct-count-of-everything-that-has-gone",
        why="0 for the whole table, also after its last row has gone",
        inputs={"visits.jsonl": (event(None, A1), event(A1, None))},
        sql=(VISITS, "SELECT COUNT(DISTINCT who), SUM(DISTINCT spent) FROM visits"),
        rows=((0, None),),
    ),
    Case(
        name="distinct-decimals-times-and-texts",
        why="1.0 and 1.00 are one value of a DECIMAL column; texts differ by a blank",
        inputs={
            "t.jsonl": (
                '{"m": 1.0, "at": "2025-01-01 00:00:00", "s": "x"}',
                '{"m": 1.00, "at": "2025-01-01 00:00:00.000", "s": "x "}',
                '{"m": "1", "at": "2025-01-01 00:00:00.001", "s": "X"}',
            )
        },
        sql=(
            plain("t", "m DECIMAL(10, 2), at TIMESTAMP(3), s STRING"),
            "SELECT COUNT(DISTINCT m), COUNT(DISTINCT at), COUNT(DISTINCT s) FROM t",
        ),
        rows=((1, 2, 3),),
    ),
    Case(
        name="distinct-in-windows",
        why="per window, with duplicates over both sides of a boundary",
        inputs={
            "t.jsonl": tuple(
                f'{{"ts": "2025-06-01 00:00:{s:02}", "x": {x}}}'
                for s, x in ((1, 5), (4, 5), (9, 6), (10, 5), (12, "null"), (19, 5))
            )
        },
        sql=(
            plain("t", "ts TIMESTAMP(3), x INT, WATERMARK FOR ts AS ts"),
            """SELECT window_start, COUNT(DISTINCT x), COUNT(x), SUM(DISTINCT x) FROM
               TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
               GROUP BY window_start, window_end""",
        ),
        rows=(
            ("2025-05-31 23:59:50", 2, 3, 11),
            ("2025-06-01 00:00:00", 2, 5, 11),
            ("2025-06-01 00:00:10", 1, 2, 5),
        ),
    ),
)


@local_cases(*CASES)
def test_distinct(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


@local_cases(*CASES)
def test_distinct_is_split_over_buckets(case: Case, tmp_path: Path) -> None:
    """The same answers where the values are spread over two levels of aggregation."""
    settings = (
        "SET 'table.optimizer.distinct-agg.split.enabled' = 'true'",
        "SET 'table.exec.mini-batch.enabled' = 'true'",
        "SET 'table.exec.mini-batch.allow-latency' = '1 h'",
        "SET 'table.exec.mini-batch.size' = '3'",
    )
    case = Case(case.name, case.why, (*settings, *case.sql), case.inputs, case.rows)
    run_locally(case, tmp_path, LOCAL_SHAPES[3:])
