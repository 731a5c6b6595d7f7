"""Operators that rank and order rows, each by itself (`benchmarks/operators.py`).

`python -m benchmarks.ranks`: batches of 16,384 rows (key BIGINT, value BIGINT, event time 20 rows per ms,
window end, text), values like chance, a watermark after each batch that is a second behind. "over changes": the counts
of groups that grow, each change a row taken back and a new one; or a table of which each key in turn gets another of
10,000 values, in batches of 2,048 rows.
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
FEW_ROWS = 2_048
VALUE_COUNT = 10_000
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
    is_table: bool = False


def top(last: int, emission: Emission, *, keys: tuple[int, ...] = (0,)) -> Make:
    order, output = (SortKey(1, is_descending=True),), Schema((*ROW, RANK))
    mode = ChangelogMode.INSERT_ONLY
    node = Rank("r", "r", RankFunction.ROW_NUMBER, keys, order, 1, last, True, mode, None, output, emission)
    return lambda context: RankOperator(node, context)


def top_of_changes(
    last: int, emission: Emission, function: RankFunction = RankFunction.ROW_NUMBER, *, has_key: bool = True
) -> Make:
    """Of all rows; `has_key`: it is known that there is one row per key."""
    order, output = (SortKey(1, is_descending=True),), Schema((*ROW, RANK))
    mode, unique = ChangelogMode.RETRACT, (0,) if has_key else None
    node = Rank("r", "r", function, (), order, 1, last, True, mode, unique, output, emission)
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
_RANK, _DENSE_RANK = RankFunction.RANK, RankFunction.DENSE_RANK
CASES = (
    Case("Top-10, net, 1k keys", top(10, _NET), 1_000),
    Case("Top-10, every change, 1k keys", top(10, _EVERY), 1_000),
    Case("Top-10, net, 100k keys", top(10, _NET), 100_000),
    Case("Top-10, every change, 100k keys", top(10, _EVERY), 100_000),
    Case("Top-10 of all, every change", top(10, _EVERY, keys=()), 1),
    Case("Top-10 of all over changes, _NET, 100k groups", top_of_changes(10, _NET), 100_000, True),
    Case("Top-10 of all over changes, every", top_of_changes(10, _EVERY), 100_000, True),
    Case("Top-10 of a table", top_of_changes(10, _EVERY), 100_000, True, is_table=True),
    Case("Top-10 of a table without key", top_of_changes(10, _EVERY, has_key=False), 100_000, True, is_table=True),
    Case("RANK <= 10 of a table", top_of_changes(10, _EVERY, _RANK), 100_000, True, is_table=True),
    Case("DENSE_RANK <= 10 of a table", top_of_changes(10, _EVERY, _DENSE_RANK), 100_000, True, is_table=True),
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
    current = np.zeros(case.key_count, dtype=np.int64)
    turns = rng.permutation(case.key_count)
    size = FEW_ROWS if case.is_table else BATCH_ROWS
    for first in range(0, row_count, size):
        keys = rng.integers(0, case.key_count, size)
        values, kinds = rng.integers(0, 1 << 40, size), None
        if case.has_changes:
            changed = rng.choice(case.key_count, size // 2, replace=False)
            if case.is_table:
                changed = turns[(first // 2 + np.arange(size // 2)) % case.key_count]
            keys = np.repeat(changed, 2)
            values, kinds = current[keys], np.tile(np.array([1, 2], dtype=np.int8), size // 2)
            values[1::2] = rng.integers(1, VALUE_COUNT, size // 2) if case.is_table else values[1::2] + 1
            current[keys] = np.repeat(values[1::2], 2)
            kinds[0::2][values[0::2] == 0] = 3
        times = (first + np.arange(size)) // ROWS_PER_MS
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
