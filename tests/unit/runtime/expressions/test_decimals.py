"""Decimal arithmetic against Python's decimal module."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.operators.expressions import decimals
from runtime.operators.expressions.errors import EvaluationFailure

WIDE = Context(prec=200, rounding=ROUND_HALF_UP)
TYPES = [(38, 0), (38, 18), (38, 38), (10, 2), (18, 6), (5, 5), (19, 0)]


@st.composite
def columns(draw: st.DrawFn) -> Any:
    precision, scale = draw(st.sampled_from(TYPES))
    limit = 10**precision - 1
    edges = st.sampled_from([0, 1, -1, limit, -limit, min(10**scale, limit), 5])
    value = st.one_of(st.none(), edges, st.integers(-limit, limit))
    unscaled = draw(st.lists(value, min_size=3, max_size=3))
    values = [None if u is None else Decimal(u).scaleb(-scale, WIDE) for u in unscaled]
    return pa.array(values, pa.decimal128(precision, scale))


def _expected(value: Decimal, t: Any) -> Decimal | None:
    rounded = WIDE.quantize(value, Decimal(1).scaleb(-t.scale))
    return rounded if rounded.scaleb(t.scale, WIDE).copy_abs() < 10**t.precision else None


@given(left=columns(), right=columns(), result=st.sampled_from(TYPES), operation=st.sampled_from("+-*/"))
def test_operations_round_half_up_and_overflow_to_null(
    left: Any, right: Any, result: tuple[int, int], operation: str
) -> None:
    t = pa.decimal128(*result)
    pairs = list(zip(left.to_pylist(), right.to_pylist(), strict=True))
    kernels: dict[str, Callable[[], Any]] = {
        "+": lambda: decimals.add(left, right, t, 3),
        "-": lambda: decimals.add(left, right, t, 3, sign=-1),
        "*": lambda: decimals.multiply(left, right, t, 3),
        "/": lambda: decimals.divide(left, right, t, 3),
    }
    kernel = kernels[operation]
    if operation == "/" and any(a is not None and b is not None and b == 0 for a, b in pairs):
        with pytest.raises(EvaluationFailure):
            kernel()
        return
    exact = {"+": WIDE.add, "-": WIDE.subtract, "*": WIDE.multiply, "/": WIDE.divide}[operation]
    expected = [None if a is None or b is None else _expected(exact(a, b), t) for a, b in pairs]
    assert kernel().to_pylist() == expected


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("unscaled", [2**62, -(2**62), 2**63 - 1, 1 - 2**63])
def test_sums_just_beyond_64_bits(unscaled: int, sign: int) -> None:
    value = Decimal(unscaled).scaleb(-2, WIDE)
    t = pa.decimal128(38, 2)
    column = pa.array([value, None], t)
    other = pa.array([value * sign, value], t)
    assert decimals.add(column, other, t, 2, sign=sign).to_pylist() == [value * 2, None]


@given(left=columns(), right=columns())
def test_remainders_have_the_sign_of_the_left(left: Any, right: Any) -> None:
    t = pa.decimal128(38, max(left.type.scale, right.type.scale))
    pairs = list(zip(left.to_pylist(), right.to_pylist(), strict=True))
    if any(a is not None and b == 0 for a, b in pairs):
        return
    expected = [None if a is None or b is None else _expected(WIDE.remainder(a, b), t) for a, b in pairs]
    assert decimals.remainder(left, right, t, 3).to_pylist() == expected


@given(column=columns())
def test_doubles_are_the_nearest(column: Any) -> None:
    values, _ = decimals.to_float(column)
    for ours, value in zip(values.tolist(), column.to_pylist(), strict=True):
        assert value is None or ours == float(value)


@given(left=columns(), right=columns())
def test_comparison_across_scales(left: Any, right: Any) -> None:
    a, b = decimals.compare_keys(left, right)
    for x, y, p, q in zip(a.tolist(), b.tolist(), left.to_pylist(), right.to_pylist(), strict=True):
        if p is not None and q is not None:
            assert (x < y, x == y) == (p < q, p == q)


def test_slices_are_read_from_their_own_rows() -> None:
    column = pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)).slice(1)
    values, valid = decimals.unscaled(column)
    assert values.tolist() == [0, -225]
    assert valid is not None
    assert valid.tolist() == [False, True]
