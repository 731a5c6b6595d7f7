"""Joins that go by time, by themselves: nanoseconds of CPU per input row, without source, exchange and sink.

`python -m benchmarks.timed_joins`: batches of 16,384 rows, one of each input in turn, event time at 20 rows per ms and
input, a watermark after each pair that is a second behind; keys are BIGINT, rows have four columns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir import types as t
from planner.ir.joins import IntervalJoin, JoinKind, TemporalJoin, WindowJoin
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from planner.ir.windows import TumbleWindow
from runtime.checkpoint.files import LocalFiles
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.interval_join import IntervalJoinOperator
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.operators.temporal_join import TemporalJoinOperator
from runtime.operators.window_join import WindowJoinOperator

BATCH_ROWS = 16_384
ROWS_PER_MS = 20
LAG_MS = 1_000
MEASURED_BATCHES = 8
ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
SIDE = Schema((Column("k", t.BIGINT), Column("ts", ROWTIME), Column("end", t.timestamp(3)), Column("v", t.STRING)))
BOTH = Schema((*SIDE.columns, *SIDE.columns))


class Case(msgspec.Struct, frozen=True):
    name: str
    make: Callable[[OperatorContext], Any]
    key_count: int
    window_ms: int = 10_000
    backend: str = "hashmap"
    managed_bytes: int = 0


def interval(kind: JoinKind, upper_ms: int) -> Callable[[OperatorContext], Any]:
    node = IntervalJoin(
        "join", "join", kind, (0,), (0,), (False,), 1, 1, 0, upper_ms, None, SIDE, SIDE, BOTH, upper_ms + 1
    )
    return lambda context: IntervalJoinOperator(node, context)


def temporal(kind: JoinKind) -> Callable[[OperatorContext], Any]:
    changelog = ChangelogMode.INSERT_ONLY
    node = TemporalJoin("join", "join", kind, (0,), (0,), 1, 1, None, SIDE, SIDE, changelog, changelog, BOTH)
    return lambda context: TemporalJoinOperator(node, context)


def window(kind: JoinKind, window_ms: int) -> Callable[[OperatorContext], Any]:
    output = BOTH if kind.keeps_right else SIDE
    node = WindowJoin(
        "join", "join", kind, (0,), (0,), (False,), 2, 2, TumbleWindow(None, ROWTIME, window_ms), None, SIDE, SIDE,
        output,
    )  # fmt: skip
    return lambda context: WindowJoinOperator(node, context)


def cases() -> list[Case]:
    return [
        Case("interval, inner, 5 s, 1 pair per row", interval(JoinKind.INNER, 5_000), 100_000),
        Case("interval, full, 5 s, 1 pair per row", interval(JoinKind.FULL, 5_000), 100_000),
        Case("interval, inner, 5 s, 10 pairs per row", interval(JoinKind.INNER, 5_000), 10_000),
        Case("interval, inner, rocksdb, in memory", interval(JoinKind.INNER, 5_000), 100_000, backend="rocksdb"),
        Case("temporal, inner, 100k keys", temporal(JoinKind.INNER), 100_000),
        Case("temporal, left, 1k keys", temporal(JoinKind.LEFT), 1_000),
        Case("window, inner, 10 s, 1 pair per row", window(JoinKind.INNER, 10_000), 200_000),
        Case("window, full, 10 s, 1 pair per row", window(JoinKind.FULL, 10_000), 200_000),
        Case("window, anti, 10 s", window(JoinKind.ANTI, 10_000), 200_000),
    ]


def side(rng: np.random.Generator, case: Case, first: int) -> pa.RecordBatch:
    times = (first + np.arange(BATCH_ROWS)) // ROWS_PER_MS
    ends = times // case.window_ms * case.window_ms + case.window_ms
    keys = rng.integers(0, case.key_count, BATCH_ROWS)
    texts = pa.array(keys).cast(pa.string())
    columns: list[Any] = [
        pa.array(keys), pa.array(times).cast(pa.timestamp("ms")), pa.array(ends).cast(pa.timestamp("ms")), texts,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=t.arrow_schema(SIDE.types))


def run(case: Case, row_count: int) -> str:
    rng = np.random.default_rng(1)
    batches = [(side(rng, case, first), side(rng, case, first)) for first in range(0, row_count // 2, BATCH_ROWS)]
    with tempfile.TemporaryDirectory() as directory:
        context = OperatorContext(
            attempt=AttemptId(JobId("0" * 32), 1, 1, 0, 1),
            parallelism=1,
            max_parallelism=128,
            key_groups=KeyGroupRange(0, 127),
            settings={"state.backend.type": case.backend},
            files=LocalFiles(directory),
            restore=None,
            managed_bytes=case.managed_bytes,
            wall_clock_ms=lambda: 0,
        )
        operator = case.make(context)
        operator.open()
        put_out, largest = 0, 0.0
        started = time.process_time()
        for number, pair in enumerate(batches):
            for index, rows in enumerate(pair):
                put_out += sum(piece.row_count for piece in operator.process_input(index, Batch(rows)))
            watermark = (number + 1) * BATCH_ROWS // ROWS_PER_MS - LAG_MS
            put_out += sum(piece.row_count for piece in operator.advance(watermark))
            if number % MEASURED_BATCHES == 0:
                largest = max(largest, operator.counters()["stateBytes"])
        put_out += sum(piece.row_count for piece in operator.advance(MAX_WATERMARK_MS))
        used = time.process_time() - started
        operator.close()
    rows_in = 2 * len(batches) * BATCH_ROWS
    return (
        f"{case.name:42} {used / rows_in * 1e9:7.0f} ns/row  {put_out / rows_in:6.2f} out/in  {largest / 1e6:7.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    for case in cases():
        if arguments.only in case.name:
            print(run(case, arguments.rows), flush=True)


if __name__ == "__main__":
    main()
