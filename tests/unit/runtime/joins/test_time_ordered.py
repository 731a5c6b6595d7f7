"""Rows in order of time, against a sorted list."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from runtime.checkpoint.snapshot import OperatorRestore
from runtime.operators.time_ordered import TimeOrderedRows
from runtime.state.backends import open_backend
from tests.support.window_harness import MAX_PARALLELISM, operator_context

NAMES = pa.schema([pa.field("name", pa.int64())])


@pytest.mark.parametrize("spread", [50, 20_000, 10**12])
@pytest.mark.parametrize("backend_type", ["hashmap", "rocksdb"])
def test_rows_come_out_in_order_of_time_then_number(tmp_path: Path, spread: int, backend_type: str) -> None:
    rng = random.Random(spread)
    options = {"state.backend.type": backend_type}
    backend = open_backend("rows", operator_context(tmp_path, settings=options))
    gone = np.full(MAX_PARALLELISM, -(2**62), dtype=np.int64)
    rows = TimeOrderedRows(backend, "waiting", NAMES, gone)
    waiting: list[tuple[int, int]] = []
    number, now = 0, -spread
    for step in range(150):
        action = rng.random()
        if action < 0.6:
            times = [now + 1 + rng.randrange(spread) for _ in range(rng.choice((1, 5, 30)))]
            numbers = list(range(number, number + len(times)))
            number += len(times)
            groups = np.array([time % MAX_PARALLELISM for time in times], dtype=np.int16)
            rows.append(groups, np.array(times), np.array(numbers), [pa.array(numbers)])
            waiting += zip(times, numbers, strict=True)
        elif action < 0.9:
            target = now + rng.randrange(spread) // 3
            most = rng.choice((4, 10**9))
            while (due := rows.take(target, most)) is not None:
                expected = sorted(entry for entry in waiting if entry[0] <= due.reached_ms)
                waiting = [entry for entry in waiting if entry[0] > due.reached_ms]
                assert list(zip(*(due.rows.column(i).to_pylist() for i in (1, 3)), strict=True)) == expected
                assert due.reached_ms == target or len(expected) >= most
                rows.settle(due.reached_ms)
            assert not [entry for entry in waiting if entry[0] <= target]
            now = max(now, target)
        else:
            segments = backend.capture(step + 1)()
            backend.close()
            gone[:] = now
            restore = OperatorRestore("rows", segments=segments)
            context = operator_context(tmp_path, settings=options, generation=step + 2, restore=restore)
            backend = open_backend("rows", context)
            rows = TimeOrderedRows(backend, "waiting", NAMES, gone)
            assert rows.next_seq() <= number
        if waiting:
            assert rows.earliest_ms is not None
            assert rows.earliest_ms <= min(waiting)[0]
    backend.close()
