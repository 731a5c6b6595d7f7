"""Function id → kernel builder, for every row of `planner.ir.functions` (a test checks that both are total)."""

from __future__ import annotations

from runtime.operators.expressions import (
    arithmetic,
    buckets,
    calendar,
    casts,
    comparison,
    current_time,
    json_value,
    like,
    logic,
    nested,
    numbers,
    regex,
    text,
    time_format,
)
from runtime.operators.expressions.context import Builder

KERNELS: dict[str, Builder] = {
    **arithmetic.KERNELS,
    **buckets.KERNELS,
    **calendar.KERNELS,
    **casts.KERNELS,
    **comparison.KERNELS,
    **json_value.KERNELS,
    **like.KERNELS,
    **logic.KERNELS,
    **nested.KERNELS,
    **numbers.KERNELS,
    **regex.KERNELS,
    **text.KERNELS,
    **time_format.KERNELS,
}

CLOCK_KERNELS: dict[str, Builder] = current_time.CLOCK_KERNELS
