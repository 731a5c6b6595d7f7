"""Current time, read once per batch, and UUID. These kernels take (row count, wall clock in ms)."""

from __future__ import annotations

import uuid

import numpy as np

from planner.ir.expressions import Call
from planner.ir.types import to_arrow
from runtime.operators.expressions.arrow import pa
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.vectors import from_raw
from runtime.operators.expressions.zones import zone_of


def _instant(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)
    return lambda n, now: from_raw(np.array([now], np.int64), None, t, n)


def _local(call: Call, context: EvaluationContext) -> Kernel:
    t, zone = to_arrow(call.type), zone_of(context.local_time_zone)
    return lambda n, now: from_raw(zone.to_local(np.array([now], np.int64), 1000), None, t, n)


def _date(call: Call, context: EvaluationContext) -> Kernel:
    t, zone = to_arrow(call.type), zone_of(context.local_time_zone)
    return lambda n, now: from_raw(zone.to_local(np.array([now], np.int64), 1000) // 86_400_000, None, t, n)


def _seconds(call: Call, context: EvaluationContext) -> Kernel:
    t = to_arrow(call.type)
    return lambda n, now: from_raw(np.array([now // 1000], np.int64), None, t, n)


def _uuid(call: Call, context: EvaluationContext) -> Kernel:
    def kernel(n: int, now: int) -> Vector:
        return pa.array([str(uuid.uuid4()) for _ in range(n)], pa.string())

    return kernel


CLOCK_KERNELS: dict[str, Builder] = {
    "CURRENT_TIMESTAMP": _instant,
    "NOW": _instant,
    "PROCTIME": _instant,
    "LOCALTIMESTAMP": _local,
    "CURRENT_DATE": _date,
    "UNIX_TIMESTAMP": _seconds,
    "UUID": _uuid,
}
