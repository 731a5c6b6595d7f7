"""Acceptance cases: small inputs, SQL and the one right answer, run on a real cluster in several shapes.

The answer may not depend on how rows are cut into batches nor on the parallelism, except where a case says that it is
about the watermark of each single row (`on_event`): then it runs at parallelism 1.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.standalone import GatewayError, Result, Standalone

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?Z?$")


@dataclass(frozen=True)
class Case:
    """`inputs`: file name → lines. `{dir}` in `sql` is their folder. The last statement's answer counts: `rows`, or
    `error`, a regular expression its message must match (`never` then lists rows that may not have been delivered)."""

    name: str
    why: str
    sql: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: tuple[tuple[Any, ...], ...] | None = None
    error: str | None = None
    never: tuple[tuple[Any, ...], ...] = ()
    on_event: bool = False
    """The watermark is advanced after every row: tables get the option by a `{watermark}` placeholder in their WITH."""


def json_table(name: str, columns: str, options: str = "") -> str:
    """The statement that declares the input `<name>.jsonl` of a case."""
    path = f"{{dir}}/{name}.jsonl"
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'{options}"
    return f"CREATE TABLE {name} ({columns}) WITH ({options})"


@dataclass(frozen=True)
class Shape:
    """How a case is run."""

    parallelism: int
    batch_rows: int


ALL_SHAPES = (Shape(1, 1), Shape(1, 8192), Shape(4, 1), Shape(4, 8192))


def on_cluster(cases: tuple[Case, ...]) -> pytest.MarkDecorator:
    """Parametrise a test by (case, shape), with one shape for each case: the first has large batches, the second four
    subtasks, and so on; cases about single watermarks run at parallelism 1. All shapes are for
    `tests.support.local_cases`."""
    parameters = []
    for number, case in enumerate(cases):
        shape = (ALL_SHAPES[1::-1] if case.on_event else ALL_SHAPES[1:3])[number % 2]
        parameters.append(pytest.param(case, shape, id=f"{case.name}-p{shape.parallelism}-b{shape.batch_rows}"))
    return pytest.mark.parametrize(("case", "shape"), parameters)


def run_case(case: Case, shape: Shape, cluster: Standalone, directory: Path) -> Result | None:
    """Run and compare. The result, for further checks, when the case has rows."""
    for name, lines in case.inputs.items():
        (directory / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    properties = {
        "parallelism.default": str(shape.parallelism),
        "table.exec.batch.max-rows": str(shape.batch_rows),
    }
    session = cluster.session(properties)
    watermark = ", 'scan.watermark.emit.strategy' = 'on-event'" if case.on_event else ""
    statements = [text.replace("{dir}", str(directory)).replace("{watermark}", watermark) for text in case.sql]
    try:
        for statement in statements[:-1]:
            session.execute(statement)
        if case.error is not None:
            _expect_failure(case, lambda: session.execute(statements[-1]))
            return None
        result = session.execute(statements[-1])
    finally:
        session.close()
    assert case.rows is not None
    assert normal(result.rows) == normal(list(case.rows)), case.why
    return result


def _expect_failure(case: Case, run: Any) -> None:
    with pytest.raises(GatewayError) as caught:
        run()
    assert case.error is not None
    assert re.search(case.error, str(caught.value), re.IGNORECASE | re.DOTALL), str(caught.value)
    delivered = normal(caught.value.rows)
    assert not delivered & normal(list(case.never)), f"{case.why}: delivered {delivered}"


def normal(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """A bag of rows, with numbers as decimals and timestamps in one spelling without a zero fraction."""
    return Counter(tuple(_normal_value(value) for value in row) for row in rows)


def _normal_value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return Decimal(str(value)).normalize()
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, str):
        found = _TIMESTAMP.match(value)
        if found is not None:
            fraction = (found[3] or "").rstrip("0").rstrip(".")
            return f"{found[1]} {found[2]}{fraction}"
        return value
    if isinstance(value, list | tuple):
        return tuple(_normal_value(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((name, _normal_value(item)) for name, item in value.items()))
    return value
