"""The two clocks. Intervals and time-outs use the monotonic one; what people read uses the wall clock, and so do
processing-time windows, timers and the age of state."""

from __future__ import annotations

import os
import time
from pathlib import Path

SHIFT_FILE = "HEADRACE_WALL_CLOCK_SHIFT_FILE"
"""Environment variable that tests set: a file with the ms by which a process's wall clock is ahead, read each time."""

_shift_file = os.environ.get(SHIFT_FILE)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Epoch ms."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms if _shift_file is None else now_ms + int(Path(_shift_file).read_text())
