"""Cases of numbers: exactness, overflow, division, casts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tests.support.cases import Case, Shape, on_cluster, run_case
from tests.support.local_cases import local_cases, run_locally
from tests.support.standalone import Standalone


def table(columns: str) -> str:
    return (
        f"CREATE TABLE numbers ({columns}) "
        "WITH ('connector' = 'filesystem', 'path' = '{dir}/numbers.jsonl', 'format' = 'json')"
    )


NINES = "9" * 35 + ".999"

CASES = (
    Case(
        name="decimal-overflow-is-null",
        why="a sum beyond 38 digits is NULL in its row, and the job lives",
        inputs={
            "numbers.jsonl": (
                f'{{"id": 1, "a": {NINES}, "b": {NINES}}}',
                '{"id": 2, "a": 0.125, "b": 7.000}',
                f'{{"id": 3, "a": -{NINES}, "b": -0.001}}',
                '{"id": 4, "a": 1, "b": null}',
            )
        },
        sql=(table("id INT, a DECIMAL(38, 3), b DECIMAL(38, 3)"), "SELECT id, a + b AS s FROM numbers"),
        rows=((1, None), (2, Decimal("7.125")), (3, None), (4, None)),
    ),
    Case(
        name="least-integer-divided-by-minus-one",
        why="it wraps, as in Java, and kills no worker",
        inputs={
            "numbers.jsonl": (
                '{"id": 1, "i": -2147483648, "l": -9223372036854775808}',
                '{"id": 2, "i": 9, "l": -9}',
            )
        },
        sql=(table("id INT, i INT, l BIGINT"), "SELECT id, i / -1 AS x, l / -1 AS y FROM numbers"),
        rows=((1, -2147483648, -9223372036854775808), (2, -9, 9)),
    ),
    Case(
        name="integer-division-truncates",
        why="integers divide to integers, toward zero; a decimal divisor gives a decimal",
        inputs={"numbers.jsonl": ('{"id": 1, "n": 3725}', '{"id": 2, "n": -9}', '{"id": 3, "n": 9}')},
        sql=(
            table("id INT, n INT"),
            "SELECT id, n / 60 AS minutes, n / 4 AS q, MOD(n, 4) AS m, n % 4 AS r, n / 4.0 AS f FROM numbers",
        ),
        rows=(
            (1, 62, 931, 1, 1, Decimal("931.25")),
            (2, 0, -2, -1, -1, Decimal("-2.25")),
            (3, 0, 2, 1, 1, Decimal("2.25")),
        ),
    ),
    Case(
        name="cast-to-int-cuts-off",
        why="a fraction is cut off, never rounded",
        inputs={
            "numbers.jsonl": (
                '{"id": 1, "d": 3.5, "n": 2.75}',
                '{"id": 2, "d": -3.5, "n": -2.75}',
                '{"id": 3, "d": 0.9999, "n": 0.99}',
            )
        },
        sql=(
            table("id INT, d DOUBLE, n DECIMAL(6, 2)"),
            "SELECT id, CAST(d AS INT) AS x, CAST(n AS INT) AS y FROM numbers",
        ),
        rows=((1, 3, 2), (2, -3, -2), (3, 0, 0)),
    ),
    Case(
        name="decimals-are-read-exactly",
        why="digits of a JSON number never pass through a binary float; what is too fine is rounded half up",
        inputs={
            "numbers.jsonl": (
                '{"id": 1, "a": 0.3}',
                '{"id": 2, "a": 987654321098765432.21}',
                '{"id": 3, "a": "1.005"}',
                '{"id": 4, "a": 2e-2}',
                '{"id": 5, "a": -12}',
            )
        },
        sql=(
            table("id INT, a DECIMAL(20, 2)"),
            "SELECT id, a FROM numbers WHERE id > 1 UNION ALL SELECT -id, a + a FROM numbers WHERE id = 1",
        ),
        rows=(
            (-1, Decimal("0.6")),
            (2, Decimal("987654321098765432.21")),
            (3, Decimal("1.01")),
            (4, Decimal("0.02")),
            (5, Decimal("-12")),
        ),
    ),
    Case(
        name="integer-division-by-zero-fails",
        why="the query fails and says why",
        inputs={"numbers.jsonl": ('{"id": 1, "d": 5}', '{"id": 2, "d": 0}')},
        sql=(table("id INT, d INT"), "SELECT id, 100 / d AS q FROM numbers"),
        error=r"division by zero|/ by zero|divi.* by zero",
        never=((2, None), (2, 0)),
    ),
    Case(
        name="guarded-division-by-zero",
        why="what CASE and WHERE keep away is never evaluated",
        inputs={"numbers.jsonl": ('{"id": 1, "d": 5}', '{"id": 2, "d": 0}', '{"id": 3, "d": null}')},
        sql=(
            table("id INT, d INT"),
            (
                "SELECT id, CASE WHEN d <> 0 THEN 100 / d ELSE -1 END AS q FROM numbers "
                "UNION ALL SELECT id + 10, 50 / d FROM numbers WHERE d > 0"
            ),
        ),
        rows=((1, 20), (2, -1), (3, -1), (11, 10)),
    ),
    Case(
        name="double-division-by-zero-is-infinite",
        why="doubles follow IEEE 754",
        inputs={"numbers.jsonl": ('{"id": 1, "d": 4.0}', '{"id": 2, "d": 0.0}')},
        sql=(table("id INT, d DOUBLE"), "SELECT id, CAST(10 / d AS STRING) AS q FROM numbers"),
        rows=((1, "2.5"), (2, "Infinity")),
    ),
)


@on_cluster(CASES)
def test_numbers(case: Case, shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, shape, cluster, tmp_path)


@local_cases(*CASES)
def test_numbers_in_all_shapes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
