"""Cases of UNNEST and of what names mean over joined tables, each in all local shapes."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import Case, json_table
from tests.support.local_cases import local_cases, run_locally

TAGGED = (
    '{"id": 1, "tags": ["a", "b", "a"]}',
    '{"id": 2, "tags": []}',
    '{"id": 3, "tags": null}',
    '{"id": 4}',
    '{"id": 5, "tags": [null]}',
)
LEFT = ('{"k": "a", "v": 1}', '{"k": "b", "v": 2}', '{"k": null, "v": 3}')
RIGHT = ('{"k": "b", "w": 20}', '{"k": "c", "w": 30}', '{"k": null, "w": 40}')


CASES = (
    Case(
        name="elements",
        why="an empty or missing array has no element and pads the outer join; NULL and repeated elements are elements",
        inputs={"docs.jsonl": TAGGED},
        sql=(
            json_table("docs", "id INT, tags ARRAY<STRING>"),
            (
                "SELECT 'cross' AS j, id, tag FROM docs CROSS JOIN UNNEST(tags) AS u (tag) UNION ALL "
                "SELECT 'left' AS j, id, tag FROM docs LEFT JOIN UNNEST(tags) AS u (tag) ON TRUE"
            ),
        ),
        rows=(
            *(("cross", 1, tag) for tag in ("a", "b", "a")),
            ("cross", 5, None),
            *(("left", 1, tag) for tag in ("a", "b", "a")),
            *(("left", id_, None) for id_ in (2, 3, 4, 5)),
        ),
    ),
    Case(
        name="condition-of-the-outer-join",
        why="what ON lets no element of pass is padded, not dropped",
        inputs={"docs.jsonl": TAGGED},
        sql=(
            json_table("docs", "id INT, tags ARRAY<STRING>"),
            "SELECT id, tag, o FROM docs LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u (tag, o) ON tag = 'a' AND o > 1",
        ),
        rows=((1, "a", 3), *((id_, None, None) for id_ in (2, 3, 4, 5))),
    ),
    Case(
        name="rows-maps-and-nests",
        why="fields of row elements and entries of maps are columns; an element may be unnested again",
        inputs={
            "docs.jsonl": (
                '{"id": 1, "items": [{"sku": "x", "n": 2}, null, {"sku": "y"}], "m": {"p": 1}, "g": [[1, 2], [], [3]]}',
            )
        },
        sql=(
            json_table("docs", "id INT, items ARRAY<ROW<sku STRING, n INT>>, m MAP<STRING, INT>, g ARRAY<ARRAY<INT>>"),
            (
                "SELECT 'row', sku, n FROM docs, UNNEST(items) UNION ALL "
                "SELECT 'map', k, v FROM docs, UNNEST(m) AS e (k, v) UNION ALL "
                "SELECT 'nest', CAST(i AS STRING), x FROM docs, UNNEST(g) WITH ORDINALITY AS e (xs, i), UNNEST(xs) f(x)"
            ),
        ),
        rows=(
            ("row", "x", 2),
            ("row", None, None),
            ("row", "y", None),
            ("map", "p", 1),
            ("nest", "1", 1),
            ("nest", "1", 2),
            ("nest", "3", 3),
        ),
    ),
    Case(
        name="updated-arrays",
        why="an update takes back every element of the old array, also those that have no successor",
        inputs={"docs.jsonl": ('{"k": "a"}', '{"k": "b"}', '{"k": "a"}', '{"k": "a"}')},
        sql=(
            json_table("docs", "k STRING"),
            (
                "SELECT k, x, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM docs GROUP BY k) "
                "CROSS JOIN UNNEST(CASE WHEN n < 3 THEN ARRAY[n, n] ELSE ARRAY[n] END) AS t (x) GROUP BY k, x"
            ),
        ),
        rows=(("a", 3, 1), ("b", 1, 2)),
    ),
    Case(
        name="updated-arrays-by-key-and-place",
        why="key and ordinality are a key: an array that became shorter leaves no old element behind in the table",
        inputs={"docs.jsonl": ('{"k": "a"}', '{"k": "b"}', '{"k": "a"}', '{"k": "a"}')},
        sql=(
            json_table("docs", "k STRING"),
            "CREATE TABLE places (k STRING, o INT, x BIGINT, PRIMARY KEY (k, o) NOT ENFORCED) WITH ({upsert})",
            (
                "INSERT INTO places SELECT k, o, x FROM (SELECT k, COUNT(*) AS n FROM docs GROUP BY k) CROSS JOIN "
                "UNNEST(CASE WHEN n < 3 THEN ARRAY[n, n] ELSE ARRAY[n] END) WITH ORDINALITY AS t (x, o)"
            ),
        ),
        rows=(("a", 1, 3), ("b", 1, 1), ("b", 2, 1)),
    ),
    Case(
        name="entries-of-updated-maps-by-key",
        why="the key of a map tells its entries apart",
        inputs={"docs.jsonl": ('{"k": "a"}', '{"k": "b"}', '{"k": "a"}', '{"k": "a"}')},
        sql=(
            json_table("docs", "k STRING"),
            "CREATE TABLE entries (k STRING, p STRING, x BIGINT, PRIMARY KEY (k, p) NOT ENFORCED) WITH ({upsert})",
            (
                "INSERT INTO entries SELECT k, p, x FROM (SELECT k, COUNT(*) AS n FROM docs GROUP BY k) CROSS JOIN "
                "UNNEST(CASE WHEN n < 3 THEN MAP['p', n, 'q', n] ELSE MAP['q', n] END) AS t (p, x)"
            ),
        ),
        rows=(("a", "q", 3), ("b", "p", 1), ("b", "q", 1)),
    ),
    Case(
        name="merged-column-of-a-full-join",
        why="USING has one column with the value of the side that has one; NULLs are partners of nothing",
        inputs={"l.jsonl": LEFT, "r.jsonl": RIGHT},
        sql=(
            json_table("l", "k STRING, v INT"),
            json_table("r", "k STRING, w INT"),
            "SELECT * FROM l FULL JOIN r USING (k)",
        ),
        rows=(("a", 1, None), ("b", 2, 20), ("c", None, 30), (None, 3, None), (None, None, 40)),
    ),
    Case(
        name="lateral",
        why="the query is asked for each row on the left: first rows, count (0 where there are none), values",
        inputs={"l.jsonl": LEFT, "r.jsonl": (*RIGHT, '{"k": "b", "w": 10}', '{"k": "b", "w": 15}')},
        sql=(
            json_table("l", "k STRING, v INT"),
            json_table("r", "k STRING, w INT"),
            (
                "SELECT 'first', v, w FROM l, LATERAL (SELECT w FROM r WHERE r.k = l.k ORDER BY w LIMIT 2) AS t "
                "UNION ALL SELECT 'count', v, n FROM l, "
                "LATERAL (SELECT CAST(COUNT(*) AS INT) AS n FROM r WHERE r.k = l.k) AS t "
                "UNION ALL SELECT 'on', v, n FROM l LEFT JOIN LATERAL "
                "(SELECT CAST(COUNT(*) AS INT) AS n FROM r WHERE r.k = l.k OR r.w = l.v * 20) AS t ON n > 1 UNION ALL "
                "SELECT 'value', v, x FROM l LEFT JOIN LATERAL (SELECT l.v + w AS x FROM r WHERE r.k = l.k) t ON x < 15"
            ),
        ),
        rows=(
            ("first", 2, 10),
            ("first", 2, 15),
            ("count", 1, 0),
            ("count", 2, 3),
            ("count", 3, 0),
            ("on", 1, None),
            ("on", 2, 4),
            ("on", 3, None),
            ("value", 1, None),
            ("value", 2, 12),
            ("value", 3, None),
        ),
    ),
    Case(
        name="commas-and-joins-bind-alike",
        why="ON sees every table to its left, also those before a comma",
        inputs={"l.jsonl": LEFT, "r.jsonl": RIGHT},
        sql=(
            json_table("l", "k STRING, v INT"),
            json_table("r", "k STRING, w INT"),
            "SELECT a.v, b.v, w FROM l AS a, l AS b JOIN r ON a.k = r.k AND b.v = 1 WHERE a.v > b.v",
        ),
        rows=((2, 1, 20),),
    ),
)


@local_cases(*CASES)
def test_unnest_and_names(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
