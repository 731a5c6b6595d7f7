"""Cases of JSON as it comes: gaps, odd types, odd characters, damage."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import Case, Shape, on_cluster, run_case
from tests.support.local_cases import local_cases, run_locally
from tests.support.standalone import Standalone


def table(columns: str, options: str = "") -> str:
    return (
        f"CREATE TABLE docs ({columns}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{{dir}}/docs.jsonl', 'format' = 'json'{options})"
    )


CASES = (
    Case(
        name="gaps",
        why="missing fields, explicit NULLs, unknown fields and a missing nested object all read as NULL",
        inputs={
            "docs.jsonl": (
                '{"id": 1, "name": "ann", "home": {"zip": 1010, "town": "Graz"}, "age": 40}',
                '{"id": 2}',
                '{"id": 3, "name": null, "home": null, "age": null}',
                '{"id": 4, "more": {"deep": [1, [2]]}, "home": {"zip": 7, "gate": false}}',
            )
        },
        sql=(
            table("id INT, name STRING, home ROW<zip INT, town STRING>, age INT"),
            "SELECT id, name, docs.home.zip AS zip, docs.home.town AS town, age FROM docs",
        ),
        rows=(
            (1, "ann", 1010, "Graz", 40),
            (2, None, None, None, None),
            (3, None, None, None, None),
            (4, None, 7, None, None),
        ),
    ),
    Case(
        name="damaged-record-fails-and-says-where",
        why="the message names file and line; nothing behind the damage is delivered as if it had not been there",
        inputs={"docs.jsonl": ('{"id": 1}', '{"id": 2', '{"id": 3}')},
        sql=(table("id INT"), "SELECT id FROM docs"),
        error=r"docs\.jsonl.*\b2\b",
        never=((3,),),
    ),
    Case(
        name="two-objects-in-one-message",
        why="a message is one row, as Flink reads it: what follows its first object may not shift the rows behind",
        inputs={"docs.jsonl": ('{"id": 1}', '{"id": 2}{"id": 22}', '{"id": 3}')},
        sql=(table("id INT"), "SELECT id FROM docs"),
        rows=((1,), (2,), (3,)),
    ),
    Case(
        name="damaged-records-are-skipped-alone",
        why="with ignore-parse-errors the damaged record goes, and only it",
        inputs={
            "docs.jsonl": ('{"id": 1}', '{"id": ', '{"id": 3}', "17", '{"id": 5}', '{"id": 6}{"id": 66}', '{"id": 7}')
        },
        sql=(table("id INT", ", 'json.ignore-parse-errors' = 'true'"), "SELECT id FROM docs"),
        rows=((1,), (3,), (5,), (6,), (7,)),
    ),
    Case(
        name="parse-errors-only",
        why="ignore-parse-errors says nothing about a CAST further down",
        inputs={"docs.jsonl": ('{"id": 1, "s": "10"}', '{"id": 2, "s": "ten"}')},
        sql=(
            table("id INT, s STRING", ", 'json.ignore-parse-errors' = 'true'"),
            "SELECT id, CAST(s AS INT) AS n FROM docs",
        ),
        error=r"ten",
        never=((2, None),),
    ),
    Case(
        name="try-cast-of-the-same",
        why="TRY_CAST gives NULL instead",
        inputs={"docs.jsonl": ('{"id": 1, "s": "10"}', '{"id": 2, "s": "ten"}')},
        sql=(table("id INT, s STRING"), "SELECT id, TRY_CAST(s AS INT) AS n FROM docs"),
        rows=((1, 10), (2, None)),
    ),
    Case(
        name="names-are-case-sensitive",
        why="`id`, `ID` and `Id` are three names",
        inputs={"docs.jsonl": ('{"ID": 10, "id": 1}', '{"Id": 5}', '{"id": 2, "ID": null}')},
        sql=(table("id INT, `ID` INT"), "SELECT id AS small, `ID` AS large FROM docs"),
        rows=((1, 10), (None, None), (2, None)),
    ),
    Case(
        name="anything-reads-into-a-string",
        why="objects, arrays, numbers and booleans keep their JSON text; strings get no quotes",
        inputs={
            "docs.jsonl": (
                '{"id": 1, "v": {"k": 2, "l": [3, 4]}}',
                '{"id": 2, "v": [true, "z"]}',
                '{"id": 3, "v": "word"}',
                '{"id": 4, "v": 8.25}',
                '{"id": 5, "v": false}',
                '{"id": 6, "v": ""}',
                '{"id": 7, "v": null}',
            )
        },
        sql=(table("id INT, v STRING"), "SELECT id, v FROM docs"),
        rows=(
            (1, '{"k":2,"l":[3,4]}'),
            (2, '[true,"z"]'),
            (3, "word"),
            (4, "8.25"),
            (5, "false"),
            (6, ""),
            (7, None),
        ),
    ),
    Case(
        name="raw-control-character",
        why="a tab inside a string is accepted as Flink's reader does",
        inputs={"docs.jsonl": ('{"id": 1, "s": "left\tright"}', '{"id": 2, "s": "fine"}')},
        sql=(table("id INT, s STRING"), "SELECT id, s, CHAR_LENGTH(s) AS n FROM docs"),
        rows=((1, "left\tright", 10), (2, "fine", 4)),
    ),
    Case(
        name="nested-values-come-through",
        why="ROW, ARRAY and MAP columns are read and written whole",
        inputs={
            "docs.jsonl": ('{"id": 1, "tags": ["a", null], "counts": {"x": 1}}', '{"id": 2, "tags": [], "counts": {}}')
        },
        sql=(
            table("id INT, tags ARRAY<STRING>, counts MAP<STRING, INT>"),
            "SELECT id, tags, counts FROM docs",
        ),
        rows=((1, ["a", None], {"x": 1}), (2, [], {})),
    ),
    Case(
        name="a-cast-that-fails-ends-the-query-with-its-error",
        why="the reader learns that the query failed and on which value; it is no normal end",
        inputs={"docs.jsonl": ('{"id": 1, "s": "4"}', '{"id": 2, "s": "four"}', '{"id": 3, "s": "5"}')},
        sql=(table("id INT, s STRING"), "SELECT id, CAST(s AS INT) AS n FROM docs"),
        error=r"four",
        never=((2, None),),
    ),
)


@on_cluster(CASES)
def test_json(case: Case, shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, shape, cluster, tmp_path)


@local_cases(*CASES)
def test_json_in_all_shapes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
