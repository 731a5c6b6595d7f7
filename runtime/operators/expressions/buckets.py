"""Buckets of the values of a distinct aggregate, by the hash that also routes keys: the same in every process."""

from __future__ import annotations

import numpy as np

from planner.ir.expressions import Call
from planner.ir.types import to_arrow
from runtime.key_groups import hash_columns
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.vectors import as_array, from_raw, length_of, raw

_SHIFT = np.uint64(7)
"""Key groups come from the upper half of a hash; the bucket takes other bits, apart from the lowest."""


def _distinct_bucket(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)

    def kernel(value: Vector, count: Vector) -> Vector:
        length = length_of(value)
        hashes = hash_columns([as_array(value, length)]) >> _SHIFT
        buckets = hashes % raw(count).astype(np.uint64)
        return from_raw(buckets.astype(np.int32), None, t, length)

    return kernel


KERNELS: dict[str, Builder] = {"DISTINCT_BUCKET": _distinct_bucket}
