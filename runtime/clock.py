"""The two clocks. Intervals and time-outs use the monotonic one; what people read uses the wall clock."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000
