"""Operators that rank and order rows, each by itself (`benchmarks/operators.py`).

`python -m benchmarks.ranks`: batches of 16,384 rows (key BIGINT, value BIGINT, event time 20 rows per ms,
window end, text), values like chance, a watermark after each batch that is a second behind. "over changes": the counts
of groups that grow, each change a row taken back and a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.operators import LAG_MS, ROWS_PER_MS, ROWTIME, Make, Measured, Step, measure, run
from planner.ir import types as t
from planner.ir.ranks import Deduplicate, Rank, RankFunction, Sort, SortKey, WindowRank
from planner.ir.schema import Column, Emission, Schema
from planner.ir.types import ChangelogMode
from planner.ir.windows import TumbleWindow
from runtime.elements import MAX_WATERMARK_MS, Batch
from runtime.operators.deduplicate import DeduplicateOperator
from runtime.operators.rank import RankOperator
from runtime.operators.sort import SortOperator
from runtime.operators.window_rank import WindowRankOperator

BATCH_ROWS = 16_384
WINDOW_MS = 10_000
ROW = (
    Column("k", t.BIGINT),
    Column("v", t.BIGINT),
    Column("ts", ROWTIME),
    Column("window_end", t.timestamp(3)),
    Column("text", t.STRING),
)
RANK = Column("rn", t.BIGINT.with_nullable(False))


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


_NET, _EVERY = Emission.NET, Emission.EVERY
CASES = (
    Case("Top-10, net, 1k keys", top(10, _NET), 1_000),
    Case("Top-10, every change, 1k keys", top(10, _EVERY), 1_000),
    Case("Top-10, net, 100k keys", top(10, _NET), 100_000),
    Case("Top-10, every change, 100k keys", top(10, _EVERY), 100_000),
    Case("Top-10 of all, every change", top(10, _EVERY, keys=()), 1),
    Case("Top-10 of all over changes, _NET, 100k groups", top(10, _NET, keys=(), has_changes=True), 100_000, True),
    Case("Top-10 of all over changes, every", top(10, _EVERY, keys=(), has_changes=True), 100_000, True),
    Case("last row by time, _NET, 100k keys", deduplicated(2, _NET, keeps_last=True), 100_000),
    Case("last row by time, every change, 100k keys", deduplicated(2, _EVERY, keeps_last=True), 100_000),
    Case("last row by time, rocksdb", deduplicated(2, _NET, keeps_last=True), 100_000, backend="rocksdb"),
    Case("first row by arrival, 100k keys", deduplicated(None, _NET, keeps_last=False), 100_000),
    Case("window Top-3, 10 s, 10k keys", window_top(3), 10_000),
    Case("ORDER BY time, value", by_time(), 100_000),
)


def steps(case: Case, row_count: int) -> Iterator[Step]:
    """Batches, each with a watermark behind it."""
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
        yield 0, Batch(rows, row_kinds)
        yield int(times[-1]) - LAG_MS
    yield MAX_WATERMARK_MS


def measured(case: Case, row_count: int) -> Measured:
    return measure(case.make, steps(case, row_count), backend=case.backend)


if __name__ == "__main__":
    run(__doc__, CASES, measured)
