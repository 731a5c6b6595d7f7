"""The function registry and the kernels are total over each other."""

from __future__ import annotations

from planner.ir.expressions import Call, walk
from planner.ir.functions import BY_ID, ROWS, Road
from runtime.operators.expressions import duckdb_road
from runtime.operators.expressions.compiler import LAZY
from runtime.operators.expressions.registry import CLOCK_KERNELS, KERNELS
from tests.truths.reader import tables

WITHOUT_RECORDED_VALUE = {
    # Their values change from run to run; their types are recorded.
    "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "CURRENT_DATE", "PROCTIME", "UNIX_TIMESTAMP", "UUID",
    # MOD(a, b) is bound as the operator %, MODULO.
    "MOD",
    # Windows are made by a table function, not by an expression a user writes.
    "TUMBLE_START", "TUMBLE_END", "TUMBLE_TIME",
    # The planner's own: it splits distinct aggregates.
    "DISTINCT_BUCKET",
}  # fmt: skip


def test_every_row_has_exactly_one_kernel() -> None:
    homes = [set(KERNELS), set(CLOCK_KERNELS), set(LAZY), set(duckdb_road.SQL)]
    assert set().union(*homes) == set(BY_ID)
    assert sum(map(len, homes)) == len(ROWS)


def test_the_duckdb_road_is_what_the_rows_say() -> None:
    assert {row.id for row in ROWS if row.road is Road.DUCKDB} == set(duckdb_road.SQL)


def test_lazy_functions_are_what_the_rows_say() -> None:
    assert {row.id for row in ROWS if row.lazy} == set(LAZY)


def test_clock_kernels_are_the_rows_without_determinism() -> None:
    assert {row.id for row in ROWS if not row.deterministic} == set(CLOCK_KERNELS)


def test_every_function_is_backed_by_answers_of_flink() -> None:
    asked: set[str] = set()
    for table in tables():
        for case in table.cases:
            if "values" in case:
                try:
                    expression = table.bind(case["sql"])
                except Exception:
                    continue
                asked |= {node.function for node in walk(expression) if isinstance(node, Call)}
    assert set(BY_ID) - asked - WITHOUT_RECORDED_VALUE == set()
