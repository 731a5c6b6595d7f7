"""What a simulated job reads, and what must come out of it, computed from the rows alone.

The job counts rows per key (one output row per input row: 1, 2, 3, …) and rows per key and tumbling window of event
time (one output row per window). Positions of the splits decide the answer; the order of reading does not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

WINDOW_MS = 10
OUT_OF_ORDER_MS = 5
"""A split's watermark is its highest time minus this."""
KEY_GROUPS = 8
KEYS = 6

Output = tuple[str, int, int, int]
"""("n", key, n-th row, 0) or ("w", key, window end, rows)."""


class Row(NamedTuple):
    split: int
    number: int
    key: int
    time_ms: int
    is_late: bool
    """Within its own split: only such a row may be dropped."""


class Workload:
    def __init__(self, rng: random.Random) -> None:
        self.has_late_rows = rng.random() < 0.35
        self.idle_timeout_ms = 12 if rng.random() < 0.2 else 0
        self.watermark_interval_ms = 0 if rng.random() < 0.5 else 6
        self.pipelines = 2 if rng.random() < 0.4 else 1
        """Parts of the job that nothing passes between; split s is read by part s % pipelines."""
        splits = 1 + int(rng.random() * 3) + self.pipelines - 1
        self.splits = [self._split(rng, split) for split in range(splits)]

    def _split(self, rng: random.Random, split: int) -> tuple[Row, ...]:
        rows, base_ms, highest_ms = [], int(rng.random() * 8), -1
        for number in range(8 + int(rng.random() * 20)):
            base_ms += int(rng.random() * 7)
            time_ms = max(0, base_ms - int(rng.random() * OUT_OF_ORDER_MS))
            if self.has_late_rows and rng.random() < 0.15:
                time_ms = max(0, base_ms - 4 * WINDOW_MS)
            is_late = time_ms <= highest_ms - OUT_OF_ORDER_MS
            key = int(rng.random() * KEYS) + KEYS * (split % self.pipelines)
            rows.append(Row(split, number, key, time_ms, is_late))
            highest_ms = max(highest_ms, time_ms)
        return tuple(rows)

    @property
    def is_strict(self) -> bool:
        """No split may leave the minimum, so no row that is on time in its split may be dropped."""
        return self.idle_timeout_ms == 0

    def read(self, positions: Mapping[int, int]) -> list[Row]:
        return [row for split, rows in enumerate(self.splits) for row in rows[: positions.get(split, 0)]]

    def counts(self, positions: Mapping[int, int]) -> Counter[Output]:
        """The running counts of keys."""
        totals = Counter(row.key for row in self.read(positions))
        return Counter(("n", key, n, 0) for key, total in totals.items() for n in range(1, total + 1))

    def windows(self, positions: Mapping[int, int]) -> dict[tuple[int, int], tuple[int, int]]:
        """(key, window end) → least and largest number of rows its result may have."""
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for row in self.read(positions):
            window = (row.key, window_end(row.time_ms))
            least, most = bounds.get(window, (0, 0))
            certain = not row.is_late and self.is_strict
            bounds[window] = (least + certain, most + 1)
        return bounds


def window_end(time_ms: int) -> int:
    return (time_ms // WINDOW_MS + 1) * WINDOW_MS


def key_group_of(key: int) -> int:
    """Spreads the few keys over the key groups."""
    return (key * 5 + 2) % KEY_GROUPS
