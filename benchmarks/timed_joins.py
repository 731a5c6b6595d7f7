"""Interval, temporal and window joins, each by itself (`benchmarks/operators.py`).

`python -m benchmarks.timed_joins`: batches of 16,384 rows, one of each input in turn, event time at 20 rows per ms and
input, a watermark after each pair that is a second behind; keys are BIGINT, rows have four columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.operators import LAG_MS, ROWS_PER_MS, ROWTIME, Make, Measured, Step, measure, run
from planner.ir import types as t
from planner.ir.joins import IntervalJoin, JoinKind, TemporalJoin, WindowJoin
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from planner.ir.windows import TumbleWindow
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.operators.interval_join import IntervalJoinOperator
from runtime.operators.temporal_join import TemporalJoinOperator
from runtime.operators.window_join import WindowJoinOperator

BATCH_ROWS = 16_384
SIDE = Schema((Column("k", t.BIGINT), Column("ts", ROWTIME), Column("end", t.timestamp(3)), Column("v", t.STRING)))
BOTH = Schema((*SIDE.columns, *SIDE.columns))


class Case(msgspec.Struct, frozen=True):
    name: str
    make: Make
    key_count: int
    window_ms: int = 10_000
    backend: str = "hashmap"


def interval(kind: JoinKind, upper_ms: int) -> Make:
    node = IntervalJoin(
        "join", "join", kind, (0,), (0,), (False,), 1, 1, 0, upper_ms, None, SIDE, SIDE, BOTH, upper_ms + 1
    )
    return lambda context: IntervalJoinOperator(node, context)


def temporal(kind: JoinKind) -> Make:
    changelog = ChangelogMode.INSERT_ONLY
    node = TemporalJoin("join", "join", kind, (0,), (0,), 1, 1, None, SIDE, SIDE, changelog, changelog, BOTH)
    return lambda context: TemporalJoinOperator(node, context)


def window(kind: JoinKind, window_ms: int) -> Make:
    output = BOTH if kind.keeps_right else SIDE
    node = WindowJoin(
        "join", "join", kind, (0,), (0,), (False,), 2, 2, TumbleWindow(None, ROWTIME, window_ms), None, SIDE, SIDE,
        output,
    )  # fmt: skip
    return lambda context: WindowJoinOperator(node, context)


CASES = (
    Case("interval, inner, 5 s, 1 pair per row", interval(JoinKind.INNER, 5_000), 100_000),
    Case("interval, full, 5 s, 1 pair per row", interval(JoinKind.FULL, 5_000), 100_000),
    Case("interval, inner, 5 s, 10 pairs per row", interval(JoinKind.INNER, 5_000), 10_000),
    Case("interval, inner, rocksdb, in memory", interval(JoinKind.INNER, 5_000), 100_000, backend="rocksdb"),
    Case("temporal, inner, 100k keys", temporal(JoinKind.INNER), 100_000),
    Case("temporal, left, 1k keys", temporal(JoinKind.LEFT), 1_000),
    Case("window, inner, 10 s, 1 pair per row", window(JoinKind.INNER, 10_000), 200_000),
    Case("window, full, 10 s, 1 pair per row", window(JoinKind.FULL, 10_000), 200_000),
    Case("window, anti, 10 s", window(JoinKind.ANTI, 10_000), 200_000),
)


def side(rng: np.random.Generator, case: Case, first: int) -> pa.RecordBatch:
    times = (first + np.arange(BATCH_ROWS)) // ROWS_PER_MS
    ends = times // case.window_ms * case.window_ms + case.window_ms
    keys = rng.integers(0, case.key_count, BATCH_ROWS)
    texts = pa.array(keys).cast(pa.string())
    columns: list[Any] = [
        pa.array(keys), pa.array(times).cast(pa.timestamp("ms")), pa.array(ends).cast(pa.timestamp("ms")), texts,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=t.arrow_schema(SIDE.types))


def steps(case: Case, row_count: int) -> Iterator[Step]:
    """A batch of each input in turn, and a watermark behind both."""
    rng = np.random.default_rng(1)
    for first in range(0, row_count // 2, BATCH_ROWS):
        yield 0, Batch(side(rng, case, first))
        yield 1, Batch(side(rng, case, first))
        yield (first + BATCH_ROWS) // ROWS_PER_MS - LAG_MS
    yield MAX_WATERMARK_MS


def measured(case: Case, row_count: int) -> Measured:
    return measure(case.make, steps(case, row_count), backend=case.backend, input_count=2)


if __name__ == "__main__":
    run(__doc__, CASES, measured)
