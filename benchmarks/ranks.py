"""Operators that order rows, by themselves: nanoseconds of CPU per input row, without source, exchange and sink.

`python -m benchmarks.ranks [--rows N]`: batches of 16,384 rows (key BIGINT, value BIGINT, event time 20 rows per ms,
window end, text), values like chance, a watermark after each batch that is a second behind. "over changes": the counts
of groups that grow, each change a row taken back and a new one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir import types as t
from planner.ir.ranks import Deduplicate, Rank, RankFunction, Sort, SortKey, WindowRank
from planner.ir.schema import Column, Emission, Schema
from planner.ir.types import ChangelogMode
from planner.ir.windows import TumbleWindow
from runtime.checkpoint.files import LocalFiles
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.deduplicate import DeduplicateOperator
from runtime.operators.protocol import KeyGroupRange, Operator, OperatorContext
from runtime.operators.rank import RankOperator
from runtime.operators.sort import SortOperator
from runtime.operators.window_rank import WindowRankOperator

BATCH_ROWS = 16_384
ROWS_PER_MS = 20
LAG_MS = 1_000
WINDOW_MS = 10_000
ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
ROW = (
    Column("k", t.BIGINT),
    Column("v", t.BIGINT),
    Column("ts", ROWTIME),
    Column("window_end", t.timestamp(3)),
    Column("text", t.STRING),
)
RANK = Column("rn", t.BIGINT.with_nullable(False))
Make = Callable[[OperatorContext], Operator]


class Case(msgspec.Struct, frozen=True):
    name: str
    make: Make
    key_count: int
    has_changes: bool = False
    backend: str = "hashmap"


def top(last: int, emission: Emission, *, keys: tuple[int, ...] = (0,), has_changes: bool = False) -> Make:
    mode = ChangelogMode.RETRACT if has_changes else ChangelogMode.INSERT_ONLY
    order, unique = (SortKey(1, is_descending=True),), (0,) if has_changes else None
    output = Schema((*ROW, RANK))
    node = Rank("r", "r", RankFunction.ROW_NUMBER, keys, order, 1, last, True, mode, unique, output, emission)
    return lambda context: RankOperator(node, context)


def deduplicated(time_column: int | None, emission: Emission, *, keeps_last: bool) -> Make:
    node = Deduplicate("d", "d", (0,), time_column, keeps_last, Schema(ROW), emission)
    return lambda context: DeduplicateOperator(node, context)


def window_top(last: int) -> Make:
    window, order = TumbleWindow(None, ROWTIME, WINDOW_MS), (SortKey(1, is_descending=True),)
    output = Schema((*ROW, RANK))
    node = WindowRank("w", "w", RankFunction.ROW_NUMBER, (0,), 3, window, order, 1, last, True, output)
    return lambda context: WindowRankOperator(node, context)


def by_time() -> Make:
    node = Sort("s", "s", (SortKey(2), SortKey(1)), 2, Schema(ROW))
    return lambda context: SortOperator(node, context)


def cases() -> list[Case]:
    net, every = Emission.NET, Emission.EVERY
    return [
        Case("Top-10, net, 1k keys", top(10, net), 1_000),
        Case("Top-10, every change, 1k keys", top(10, every), 1_000),
        Case("Top-10, net, 100k keys", top(10, net), 100_000),
        Case("Top-10, every change, 100k keys", top(10, every), 100_000),
        Case("Top-10 of all, every change", top(10, every, keys=()), 1),
        Case("Top-10 of all over changes, net, 100k groups", top(10, net, keys=(), has_changes=True), 100_000, True),
        Case("Top-10 of all over changes, every", top(10, every, keys=(), has_changes=True), 100_000, True),
        Case("last row by time, net, 100k keys", deduplicated(2, net, keeps_last=True), 100_000),
        Case("last row by time, every change, 100k keys", deduplicated(2, every, keeps_last=True), 100_000),
        Case("last row by time, rocksdb", deduplicated(2, net, keeps_last=True), 100_000, backend="rocksdb"),
        Case("first row by arrival, 100k keys", deduplicated(None, net, keeps_last=False), 100_000),
        Case("window Top-3, 10 s, 10k keys", window_top(3), 10_000),
        Case("ORDER BY time, value", by_time(), 100_000),
    ]


def batches(case: Case, row_count: int) -> Iterator[tuple[Batch, int]]:
    """Batches, each with the watermark behind it."""
    rng = np.random.default_rng(7)
    counts = np.zeros(case.key_count, dtype=np.int64)
    for first in range(0, row_count, BATCH_ROWS):
        keys = rng.integers(0, case.key_count, BATCH_ROWS)
        values, kinds = rng.integers(0, 1 << 40, BATCH_ROWS), None
        if case.has_changes:
            keys = np.repeat(rng.choice(case.key_count, BATCH_ROWS // 2, replace=False), 2)
            values, kinds = counts[keys], np.tile(np.array([1, 2], dtype=np.int8), BATCH_ROWS // 2)
            values[1::2] += 1
            counts[keys] = np.repeat(values[1::2], 2)
            kinds[0::2][values[0::2] == 0] = 3
        times = (first + np.arange(BATCH_ROWS)) // ROWS_PER_MS
        ends = times // WINDOW_MS * WINDOW_MS + WINDOW_MS
        columns: list[Any] = [
            pa.array(keys),
            pa.array(values),
            pa.array(times).cast(t.to_arrow(ROWTIME)),
            pa.array(ends).cast(pa.timestamp("ms")),
            pa.array(keys).cast(pa.string()),
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=[column.name for column in ROW])
        row_kinds: Any = None if kinds is None else pa.array(kinds)
        yield Batch(rows, row_kinds), int(times[-1]) - LAG_MS


def measure(case: Case, row_count: int) -> tuple[float, int]:
    """Nanoseconds of CPU per row, and rows put out."""
    with tempfile.TemporaryDirectory() as folder:
        context = OperatorContext(
            attempt=AttemptId(JobId("0" * 32), 1, 1, 0, 1),
            parallelism=1,
            max_parallelism=128,
            key_groups=KeyGroupRange(0, 127),
            settings={"state.backend.type": case.backend},
            files=LocalFiles(folder),
            restore=None,
            managed_bytes=0,
            wall_clock_ms=lambda: 0,
        )
        operator = case.make(context)
        operator.open()
        cpu_s, rows, put_out = 0.0, 0, 0
        for batch, watermark_ms in batches(case, row_count):
            begin = time.thread_time()
            put_out += sum(piece.row_count for piece in operator.process(batch))
            put_out += sum(piece.row_count for piece in operator.advance(watermark_ms))
            cpu_s += time.thread_time() - begin
            rows += batch.row_count
        begin = time.thread_time()
        put_out += sum(piece.row_count for piece in operator.advance(MAX_WATERMARK_MS))
        cpu_s += time.thread_time() - begin
        operator.close()
    return cpu_s / rows * 1e9, put_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    for case in cases():
        if arguments.only in case.name:
            nanoseconds, put_out = measure(case, arguments.rows)
            print(f"{case.name:46s} {nanoseconds:7.0f} ns per row, {put_out:>10,d} rows put out", flush=True)


if __name__ == "__main__":
    main()
