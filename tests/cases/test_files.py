"""Cases of files: CSV texts, and tables that are written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import Case, Shape, normal, on_cluster, run_case
from tests.support.local_cases import local_cases, run_locally
from tests.support.standalone import Standalone

PEOPLE = (
    "1,\"Doe, Jane\",7",
    '2,"the ""best""",8',
    "3,,9",
    "4,none,10",
    '5,"",11',
    "6, in space ,12",
)  # fmt: skip
PEOPLE_TABLE = """
CREATE TABLE people (id INT, name STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = '{dir}/people.csv', 'format' = 'csv', 'csv.null-literal' = 'none')
"""

CASES = (
    Case(
        name="an-empty-field-is-not-null",
        why="only the null literal is NULL; quotes hold delimiters and doubled quotes; spaces belong to a text",
        inputs={"people.csv": PEOPLE},
        sql=(PEOPLE_TABLE, "SELECT id, name, name IS NULL AS absent, n FROM people"),
        rows=(
            (1, "Doe, Jane", False, 7),
            (2, 'the "best"', False, 8),
            (3, "", False, 9),
            (4, None, True, 10),
            (5, "", False, 11),
            (6, " in space ", False, 12),
        ),
    ),
    Case(
        name="columns-that-are-not-read-keep-their-places",
        why="fields are told by position, whichever of them a query reads",
        inputs={"people.csv": PEOPLE},
        sql=(PEOPLE_TABLE, "SELECT n FROM people WHERE name LIKE '%e%'"),
        rows=((7,), (8,), (12,)),
    ),
    Case(
        name="a-field-that-does-not-fit",
        why="an empty text is no number: an error that names file, line and field",
        inputs={"people.csv": ("1,a,", "2,b,2")},
        sql=(PEOPLE_TABLE, "SELECT id, n FROM people"),
        error=r"people\.csv, line 1: field 'n' is not INT",
    ),
)


@on_cluster(CASES)
def test_files(case: Case, shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, shape, cluster, tmp_path)


@local_cases(*CASES)
def test_files_in_all_shapes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_what_is_written_is_read_again(form: str, cluster: Standalone, tmp_path: Path) -> None:
    session = cluster.session({"parallelism.default": "2"})
    session.execute(
        f"""CREATE TABLE kept (id BIGINT, name STRING, at TIMESTAMP(3), price DECIMAL(10, 2), tags ARRAY<STRING>)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/kept', 'format' = '{form}')"""
    )
    for number in (1, 2):
        written = session.execute(
            f"""INSERT INTO kept SELECT id, name, TIMESTAMP '2025-06-01 08:00:00.5', 1.25, ARRAY['a', 'b']
            FROM (VALUES (CAST({number} AS BIGINT), 'x, "y"'), (CAST({number + 10} AS BIGINT), 'z')) AS t (id, name)"""
        )
        assert written.job_id is not None
        cluster.wait_for_job(written.job_id, "FINISHED", 30)
    rows = session.execute("SELECT id, name, at, price, tags FROM kept").rows
    session.close()
    rest = ("2025-06-01 08:00:00.5", 1.25, ["a", "b"])
    expected = [(1, 'x, "y"', *rest), (11, "z", *rest), (2, 'x, "y"', *rest), (12, "z", *rest)]
    assert normal(rows) == normal(expected)
    assert all(path.name.startswith("part-") for path in (tmp_path / "kept").iterdir())
