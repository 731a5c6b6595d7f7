"""Sums and averages of decimals against Python's exact arithmetic."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from runtime.operators.decimal_sums import average, from_limb_sums, limbs, narrow, wide_type

LARGEST = 10**38 - 1
UNSCALED = (
    st.integers(-LARGEST, LARGEST) | st.integers(-100, 100) | st.sampled_from([LARGEST, -LARGEST, 2**64, -(2**64)])
)
EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


def decimals(unscaled: list[int | None], scale: int = 0) -> list[Decimal | None]:
    return [None if value is None else Decimal(value).scaleb(-scale, EXACT) for value in unscaled]


def limb_totals(values: list[int], kind: pa.DataType) -> list[pa.Array[Any]]:
    """Sum of each limb over all values."""
    return [pa.array([sum(limb.to_pylist())], pa.int64()) for limb in limbs(pa.array(decimals([*values]), kind))]


@given(st.lists(UNSCALED, min_size=1, max_size=20))
def test_a_sum_of_128_bits_is_exact_or_reported(values: list[int]) -> None:
    kind = pa.decimal128(38, 0)
    total, overflow = from_limb_sums(limb_totals(values, kind), kind)
    fits = abs(sum(values)) <= LARGEST
    assert overflow.tolist() == [not fits]
    assert total.to_pylist() == [Decimal(sum(values)) if fits else None]


@given(st.lists(UNSCALED, min_size=1, max_size=20))
def test_a_sum_of_256_bits_is_exact_and_narrowed_to_null_beyond_38_digits(values: list[int]) -> None:
    total, overflow = from_limb_sums(limb_totals(values, wide_type(0)), wide_type(0))
    assert not overflow.any()
    assert total.to_pylist() == [Decimal(sum(values))]
    assert narrow(total, 0).to_pylist() == [Decimal(sum(values)) if abs(sum(values)) <= LARGEST else None]


@given(st.lists(st.none() | UNSCALED, max_size=20), st.integers(0, 20))
def test_limbs_come_back_as_they_were_on_any_slice(values: list[int | None], first: int) -> None:
    column = pa.array(decimals([*values], 2), pa.decimal128(38, 2)).slice(min(first, len(values)))
    found, overflow = from_limb_sums(limbs(column), column.type)
    assert found.to_pylist() == column.to_pylist()
    assert not overflow.any()


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**6))
def test_averages_are_rounded_half_up(unscaled: int, count: int) -> None:
    sums = pa.array(decimals([unscaled], 2), wide_type(2))
    (found,) = average(sums, pa.array([count]), pa.decimal128(38, 6)).to_pylist()
    exact = EXACT.divide(Decimal(unscaled).scaleb(-2, EXACT), Decimal(count))
    assert EXACT.subtract(found, exact).copy_abs() <= Decimal("0.0000005")


def test_averages_of_nothing_and_of_too_much_are_null() -> None:
    largest = Decimal(10**38 - 1).scaleb(-2, EXACT)
    sums = pa.array([largest, largest, None, Decimal(10) ** 40, Decimal(5), Decimal(1)], wide_type(2))
    counts = pa.array([10**6, 100, 0, 4, 2, 8])
    assert average(sums, counts, pa.decimal128(38, 6)).to_pylist() == [
        Decimal(10) ** 30,
        None,
        None,
        None,
        Decimal("2.5"),
        Decimal("0.125"),
    ]
