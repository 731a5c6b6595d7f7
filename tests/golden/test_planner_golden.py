"""Golden files of the planner: plans of EXPLAIN, refusals, and syntax trees of operator precedence.

`pytest tests/golden --rewrite` writes them anew; read the diff before you commit it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import SqlError
from planner.sql.parser import parse_script
from planner.sql.statements import Select
from tests.unit.planner.catalog import Script
from tests.unit.planner.trees import tree_text

HERE = Path(__file__).parent
TABLES = (HERE / "planner" / "tables.inc").read_text()
CASE_SEPARATOR = "\n====\n"


def compare(path: Path, actual: str, config: pytest.Config) -> None:
    if config.getoption("--rewrite"):
        path.write_text(actual)
    assert path.exists(), f"{path.name} is missing: run with --rewrite"
    assert actual == path.read_text()


def cases(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("*.sql"))


@pytest.mark.parametrize("path", cases("planner"), ids=lambda p: p.stem)
def test_plan(path: Path, pytestconfig: pytest.Config) -> None:
    script = Script()
    script.run(TABLES)
    text = script.run(path.read_text())
    assert isinstance(text, str)
    compare(path.with_suffix(".plan"), text, pytestconfig)


@pytest.mark.parametrize("path", cases("errors"), ids=lambda p: p.stem)
def test_refusal(path: Path, pytestconfig: pytest.Config) -> None:
    outcomes: list[str] = []
    for case in path.read_text().rstrip("\n").split(CASE_SEPARATOR):
        script = Script()
        script.run(TABLES)
        with pytest.raises(SqlError) as caught:
            script.run(case)
        assert caught.value.line >= 1, case
        assert caught.value.column >= 1, case
        outcomes.append(caught.value.render())
    compare(path.with_suffix(".txt"), CASE_SEPARATOR.join(outcomes) + "\n", pytestconfig)


def test_precedence_trees(pytestconfig: pytest.Config) -> None:
    """Each pair of neighbours of the operator table, both ways round, as a bracketed tree."""
    path = HERE / "trees" / "precedence.txt"
    lines = [line.split("  →  ")[0] for line in path.read_text().splitlines() if line.strip()]
    shown: list[str] = []
    for expression in lines:
        (statement,) = parse_script(f"SELECT {expression}")
        assert isinstance(statement, Select)
        shown.append(f"{expression}  →  {tree_text(statement)}")
    compare(path, "\n".join(shown) + "\n", pytestconfig)
