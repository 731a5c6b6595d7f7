"""Result types of aggregates are Flink's; their values are held against the same file by the operators' tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.planner.catalog import Script

RECORDED = json.loads((Path(__file__).parent / "aggregates.json").read_text(encoding="utf-8"))["groups"]


@pytest.mark.parametrize("group", RECORDED, ids=[g["name"] for g in RECORDED])
def test_types(group: dict[str, object]) -> None:
    script = Script()
    script.run(f"CREATE TABLE inputs (s INT NOT NULL, p BOOLEAN, x {group['type']}) WITH ('connector' = 'kafka')")
    cases = group["cases"]
    assert isinstance(cases, list)
    result = script.job(f"SELECT {', '.join(case['sql'] for case in cases)} FROM inputs").result
    assert result is not None
    assert [c.type.summary() for c in result.columns] == [case["type"] for case in cases]
