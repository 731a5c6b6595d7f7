"""Rows of VALUES and constants."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.ir import types as t
from planner.ir.expressions import Literal
from runtime.operators.expressions.compiler import fold
from runtime.operators.expressions.constants import evaluate_values
from runtime.operators.expressions.errors import ExpressionError
from tests.unit.runtime.expressions.build import call, context, lit


def test_rows_become_one_batch_of_the_declared_types() -> None:
    rows = (
        (lit(1), lit("a", t.char(1)), lit("1.5", t.decimal(2, 1))),
        (call("PLUS", lit(1), lit(1)), lit(None, t.NULL), lit("2.25", t.decimal(3, 2))),
    )
    batch = evaluate_values(rows, (t.BIGINT, t.STRING, t.decimal(10, 2)), context())
    assert batch.to_pydict() == {
        "c0": [1, 2], "c1": ["a", None], "c2": [Decimal("1.50"), Decimal("2.25")]
    }  # fmt: skip


def test_no_rows() -> None:
    assert evaluate_values((), (t.INT, t.STRING), context()).num_rows == 0


def test_a_value_that_fails_is_named() -> None:
    division = call("DIVIDE", lit(1), lit(0), text="1 / 0")
    with pytest.raises(ExpressionError, match="1 / 0 failed"):
        evaluate_values(((division,),), (t.INT,), context())


def test_folding_keeps_what_fails_and_what_changes() -> None:
    assert fold(call("TIMES", lit(6), lit(7)), context()) == lit(42)
    failing = call("DIVIDE", lit(1), lit(0))
    assert fold(failing, context()) == failing
    uuid = call("UUID", type=t.char(36))
    assert fold(uuid, context()) == uuid
    stamp = call("CAST", lit("2020-01-01 00:00:00", t.STRING), type=t.timestamp(3))
    assert fold(stamp, context()) == Literal(1_577_836_800_000, t.timestamp(3))
    blob = call("CAST", lit("ab", t.STRING), type=t.BYTES)
    assert fold(blob, context()) == Literal("6162", t.BYTES)
