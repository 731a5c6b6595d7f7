"""Buckets of split distinct aggregates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from planner.ir import types as t
from planner.ir.expressions import Call, InputRef, Literal
from runtime.key_groups import hash_columns, key_group
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.expressions.context import EvaluationContext

COUNT = 16


def buckets(values: pa.Array, type_: t.DataType) -> np.ndarray:  # type: ignore[type-arg]
    count = Literal(COUNT, t.INT.with_nullable(False))
    call = Call("DISTINCT_BUCKET", (InputRef(0, type_), count), t.INT.with_nullable(False))
    calc = compile_calc(None, (call,), EvaluationContext("UTC", lambda: 0))
    return calc(pa.record_batch([values], names=["c0"])).column(0).to_numpy(zero_copy_only=False)


def test_every_bucket_is_used_about_equally() -> None:
    found = buckets(pa.array(range(16_000), pa.int64()), t.BIGINT)
    counts = np.bincount(found, minlength=COUNT)
    assert len(counts) == COUNT
    assert counts.min() > 800
    assert counts.max() < 1200


def test_equal_values_share_a_bucket_and_null_has_one() -> None:
    found = buckets(pa.array(["a", None, "a", None], pa.string()), t.STRING)
    assert found[0] == found[2]
    assert found[1] == found[3]
    zeros = buckets(pa.array([0.0, -0.0, float("nan"), -float("nan")], pa.float64()), t.DOUBLE)
    assert zeros[0] == zeros[1]
    assert zeros[2] == zeros[3]


def test_a_hot_key_of_one_key_group_is_spread_all_the_same() -> None:
    """The bucket does not depend on the bits of the hash that choose the key group."""
    values = pa.array(range(100_000), pa.int64())
    groups = key_group(hash_columns([values]), 128)
    one_group = values.filter(pa.array(groups == 5))
    assert len(np.unique(buckets(one_group, t.BIGINT))) == COUNT
