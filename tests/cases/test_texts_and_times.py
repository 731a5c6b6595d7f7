"""Cases of SQL text (quotes, comments, names) and of dates and times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import Case, Shape, json_table, on_cluster, run_case
from tests.support.local_cases import local_cases, run_locally
from tests.support.standalone import Standalone

CASES = (
    Case(
        name="marks-inside-strings",
        why="semicolons, comment marks and doubled quotes inside a string are text",
        sql=(
            (
                "SELECT ';;' AS a, '-- no' AS b, '/* nor this */' AS c, 'o''clock;' AS d, -- but this; is\n '"
                "\n;\n' AS e /* ; ' */"
            ),
        ),
        rows=((";;", "-- no", "/* nor this */", "o'clock;", "\n;\n"),),
    ),
    Case(
        name="a-line-comment-stays-one",
        why="a comment can never become SQL",
        inputs={"shown.jsonl": ('{"v": "seen"}',), "hidden.jsonl": ('{"v": "unseen"}',)},
        sql=(
            json_table("shown", "v STRING"),
            json_table("hidden", "v STRING"),
            "SELECT v FROM shown -- */ UNION ALL SELECT v FROM hidden /*\n",
        ),
        rows=(("seen",),),
    ),
    Case(
        name="hostile-names",
        why="whatever stands between backticks is a name and nothing else",
        inputs={"t.jsonl": ('{"q\\"r": 1, "b`t": 2, "x) FROM t; DROP TABLE t; --": 3, "o\'n": 4, "": 5}',)},
        sql=(
            json_table("t", "`q\"r` INT, `b``t` INT, `x) FROM t; DROP TABLE t; --` INT, `o'n` INT"),
            "SELECT `q\"r` AS p, `b``t` AS q, `x) FROM t; DROP TABLE t; --` AS r, `o'n` AS `s'; --` FROM t",
        ),
        rows=((1, 2, 3, 4),),
    ),
    Case(
        name="unicode-names-and-texts",
        why="names and literals of any script, and escapes",
        inputs={"t.jsonl": ('{"länge": 1, "個数": 2, "deux mots": 3, "🙂": 4}',)},
        sql=(
            json_table("t", "`länge` INT, `個数` INT, `deux mots` INT, `🙂` INT"),
            (
                "SELECT `länge`, `個数` AS `数`, `deux mots` + `🙂` AS s, 'Ж€' AS lit, U&'\\00fc' AS esc FROM t "
                "WHERE 'ü' = U&'\\00fc'"
            ),
        ),
        rows=((1, 2, 7, "Ж€", "ü"),),
    ),
    Case(
        name="iso-timestamps",
        why="ISO-8601 times are read with the option of that name",
        inputs={
            "t.jsonl": (
                '{"id": 1, "a": "2021-02-03T04:05:06.789", "b": "2021-02-03T04:05:06.789Z"}',
                '{"id": 2, "a": "2021-02-03T04:05:06", "b": "1969-12-31T23:59:58.25Z"}',
            )
        },
        sql=(
            "SET 'table.local-time-zone' = 'UTC'",
            json_table(
                "t", "id INT, a TIMESTAMP(3), b TIMESTAMP_LTZ(3)", ", 'json.timestamp-format.standard' = 'ISO-8601'"
            ),
            "SELECT id, a, CAST(b AS TIMESTAMP(3)) AS b FROM t",
        ),
        rows=(
            (1, "2021-02-03 04:05:06.789", "2021-02-03 04:05:06.789"),
            (2, "2021-02-03 04:05:06", "1969-12-31 23:59:58.25"),
        ),
    ),
    Case(
        name="parts-of-dates",
        why="centuries begin with year 1, ISO weeks belong to the year of their Thursday",
        inputs={
            "t.jsonl": (
                '{"id": 1, "d": "1900-12-31"}',
                '{"id": 2, "d": "1901-01-01"}',
                '{"id": 3, "d": "2016-01-03"}',
                '{"id": 4, "d": "2024-12-30"}',
            )
        },
        sql=(
            json_table("t", "id INT, d DATE"),
            (
                "SELECT id, EXTRACT(CENTURY FROM d) AS c, EXTRACT(MILLENNIUM FROM d) AS m, "
                "EXTRACT(DECADE FROM d) AS x, EXTRACT(WEEK FROM d) AS w, EXTRACT(QUARTER FROM d) AS q FROM t"
            ),
        ),
        rows=((1, 19, 2, 190, 1, 4), (2, 20, 2, 190, 1, 1), (3, 21, 3, 201, 53, 1), (4, 21, 3, 202, 1, 4)),
    ),
    Case(
        name="nesting-of-a-hundred-levels",
        why="parentheses a hundred deep are fine",
        sql=("SELECT " + "(" * 100 + "1" + ")" * 100 + " AS a",),
        rows=((1,),),
    ),
    Case(
        name="union-of-three-inputs",
        why="every row of every branch arrives once",
        inputs={"t.jsonl": tuple(f'{{"id": {i}}}' for i in range(40))},
        sql=(
            json_table("t", "id INT"),
            "SELECT id FROM t WHERE id < 10 UNION ALL SELECT id FROM t WHERE id >= 10 UNION ALL SELECT 100 + id FROM t",
        ),
        rows=tuple((i,) for i in range(40)) + tuple((100 + i,) for i in range(40)),
    ),
)


@on_cluster(CASES)
def test_texts_and_times(case: Case, shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, shape, cluster, tmp_path)


@local_cases(*CASES)
def test_texts_and_times_in_all_shapes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


REFUSED = (
    Case(
        name="absurd-nesting",
        why="an error of the statement, not a dead process",
        sql=("SELECT " + "(" * 5000 + "1" + ")" * 5000 + " AS a",),
        error=r"nest|deep",
    ),
    Case(
        name="unknown-option",
        why="a misspelt option is refused, and the right ones are listed or the nearest is named",
        sql=(json_table("t", "v INT", ", 'jsn.ignore-parse-errors' = 'true'"),),
        error=r"jsn\.ignore-parse-errors",
    ),
    Case(
        name="unsupported-clause",
        why="a clause that is not built is refused by name, never swallowed",
        sql=(json_table("t", "v INT"), "SELECT v FROM t TABLESAMPLE BERNOULLI (10)"),
        error=r"TABLESAMPLE",
    ),
    Case(
        name="unknown-column-names-the-nearest",
        why="the message has the place and the nearest valid name",
        sql=(json_table("t", "amount INT"), "SELECT amuont FROM t"),
        error=r"amuont.*amount",
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused(case: Case, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, Shape(1, 8192), cluster, tmp_path)
    session = cluster.session()
    assert session.execute("SELECT 1 AS alive").rows == [(1,)]
    session.close()
