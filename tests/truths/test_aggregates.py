"""Values of aggregates are Flink's: the recorded sets of rows go through the planner's operators, once as inserts and
once among rows that are taken back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from planner.ir import operators as ir
from planner.ir.types import ChangelogMode, DataType, TypeRoot
from runtime.elements import Batch
from runtime.operators.calc import CalcOperator
from runtime.operators.group_aggregate import GroupAggregateOperator
from tests.support.aggregates import operator_context, rows_of
from tests.truths.reader import to_column, to_python
from tests.unit.planner.catalog import Script

RECORDED = json.loads((Path(__file__).parent / "aggregates.json").read_text(encoding="utf-8"))["groups"]
PASSED = (None, False, True, True)

_VARIANCES = ("STDDEV_POP(x)", "STDDEV_SAMP(x)", "STDDEV(x)", "VAR_POP(x)", "VAR_SAMP(x)", "VARIANCE(x)")
_SQUARED_FIRST = (("VAR_POP(DISTINCT x)",), "Flink counts equal squares of different values once: a fault there")
_ROUNDED = (_VARIANCES, "sums of squares are DOUBLE: exact up to 2^53 (wide decimals: 15 digits)")
_AVERAGES = (
    ("AVG(x)", "AVG(DISTINCT x)"),
    "the sum of an average is BIGINT here; Flink's wraps in the argument's type",
)
_FLOATS = (
    (("MIN(x)", "MIN(DISTINCT x)", "MAX(x)"), "NaN is the largest value here; in Flink the order of arrival decides"),
    (("COUNT(DISTINCT x)",), "-0.0 equals 0.0 here"),
    (("SUM(x)", "SUM(DISTINCT x)", "AVG(x)", "AVG(DISTINCT x)"), "sums are compensated here"),
    _SQUARED_FIRST,
)
_WIDE = (("SUM(x)", "SUM(DISTINCT x)", *_AVERAGES[0]), "sums are wider here: only a result can overflow, not a step")
DEVIATIONS: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "tinyint": (_AVERAGES, _SQUARED_FIRST),
    "smallint": (_AVERAGES, _SQUARED_FIRST),
    "int": (_AVERAGES, _SQUARED_FIRST, _ROUNDED),
    "bigint": (_SQUARED_FIRST, _ROUNDED),
    "float": _FLOATS,
    "double": _FLOATS,
    "decimal": (_SQUARED_FIRST,),
    "wide decimal": (_SQUARED_FIRST, _ROUNDED, _WIDE),
}
"""Per group the aggregates of which some answers differ, and why. One that no longer occurs fails."""


def answers(group: dict[str, Any], sql: str, rows: list[Any], mode: ChangelogMode, folder: Path) -> tuple[Any, ...]:
    script = Script()
    script.run(f"CREATE TABLE inputs (s INT NOT NULL, p BOOLEAN, x {group['type']}) WITH ('connector' = 'kafka')")
    source, *others, collect = (node for vertex in script.job(sql).job_graph.vertices for node in vertex.operators)
    assert isinstance(source, ir.Source)
    assert isinstance(collect, ir.Collect)
    batches = [_batch(source, rows, 0)]
    if mode is ChangelogMode.RETRACT:
        passing = [*group["sets"][0], *group["sets"][-1]]
        batches = [_batch(source, passing, 0), *batches, _batch(source, passing, 3)]
    for node in others:
        operator: Any
        if isinstance(node, ir.GroupAggregate):
            node = msgspec.structs.replace(node, input_changelog=mode)
            operator = GroupAggregateOperator(node, operator_context(str(folder)))
        else:
            assert isinstance(node, ir.Calc), node
            operator = CalcOperator(node, operator_context(str(folder)))
        operator.open()
        batches = [piece for batch in batches for piece in operator.process(batch)]
    kind, row = rows_of(batches)[-1]
    assert kind in ("+I", "+U")
    return tuple(row[i] for i in collect.selection) if collect.selection else row


def _batch(source: ir.Source, values: list[Any], kind: int) -> Batch:
    columns: list[Any] = []
    for column in source.output.columns:
        match column.name:
            case "s":
                columns.append(pa.array([0] * len(values), pa.int32()))
            case "p":
                columns.append(pa.array([PASSED[i % 4] for i in range(len(values))], pa.bool_()))
            case _:
                columns.append(to_column(values, column.type))
    if not columns:
        data = pa.RecordBatch.from_struct_array(pa.array([{}] * len(values), pa.struct([])))  # type: ignore[arg-type]
    else:
        data = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    return Batch(data, pa.array([kind] * len(values), pa.int8()))


def same(ours: Any, flink: Any, kind: DataType) -> bool:
    if flink is None or ours is None:
        return ours is None and flink is None
    if kind.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        if math.isnan(ours) or math.isnan(flink):
            return math.isnan(ours) and math.isnan(flink)
        tolerance = 1e-5 if kind.root is TypeRoot.FLOAT else 1e-9
        return ours == flink or math.isclose(ours, flink, rel_tol=tolerance, abs_tol=1e-12)
    return bool(ours == flink)


def differences(group: dict[str, Any], mode: ChangelogMode, folder: Path) -> Iterator[tuple[str, Any, Any, Any]]:
    """(SQL, set, Flink's answer, ours), where they differ."""
    script = Script()
    script.run(f"CREATE TABLE inputs (s INT NOT NULL, p BOOLEAN, x {group['type']}) WITH ('connector' = 'kafka')")
    sql = f"SELECT {', '.join(case['sql'] for case in group['cases'])} FROM inputs"
    result = script.job(sql).result
    assert result is not None
    for number, rows in enumerate(group["sets"]):
        if not rows:
            continue
        ours = answers(group, sql, rows, mode, folder)
        for case, column, value in zip(group["cases"], result.columns, ours, strict=True):
            if mode is ChangelogMode.RETRACT and case["sql"].startswith("LISTAGG(DISTINCT"):
                continue  # Values that pass through decide the order in which distinct values first appeared.
            recorded = case["values"][number]
            if pa.types.is_temporal(to_column([], column.type).type):
                flink = None if recorded is None else to_column([recorded], column.type)[0].as_py()
            else:
                flink = to_python(recorded, column.type)
            if not same(value, flink, column.type):
                yield case["sql"], rows, flink, value


@pytest.mark.parametrize("mode", [ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT])
@pytest.mark.parametrize("group", RECORDED, ids=[g["name"] for g in RECORDED])
def test_values(group: dict[str, Any], mode: ChangelogMode, tmp_path: Path) -> None:
    explained = {sql for calls, _ in DEVIATIONS.get(group["name"], ()) for sql in calls}
    found = list(differences(group, mode, tmp_path))
    assert [d for d in found if d[0] not in explained] == []
    assert explained == {sql for sql, *_ in found}
