"""The regular join by itself: nanoseconds of CPU per input row, without source, exchange and sink.

`python -m benchmarks.joins [--rows N] [--keys N]`: as many rows of the right table as there are keys (key BIGINT, two
numbers), then rows of the left one (key like chance, a number) in batches as tasks with two inputs get them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir import types as t
from planner.ir.joins import Join, JoinKind
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from runtime.checkpoint.files import LocalFiles
from runtime.elements import Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.join import LEFT, RIGHT, JoinOperator
from runtime.operators.protocol import KeyGroupRange, OperatorContext

BATCH_ROWS = 8_000
BIDS = (Column("auction", t.BIGINT), Column("price", t.BIGINT))
AUCTIONS = (Column("id", t.BIGINT), Column("seller", t.BIGINT), Column("category", t.INT))


class Case(msgspec.Struct, frozen=True):
    """`unique`: the right key is known to be unique. `text`: keys are texts."""

    name: str
    kind: JoinKind
    unique: bool = False
    text: bool = False
    backend: str = "hashmap"


CASES = (
    Case("inner, appended rows", JoinKind.INNER),
    Case("inner, unique right key", JoinKind.INNER, unique=True),
    Case("inner, text keys", JoinKind.INNER, text=True),
    Case("left, appended rows", JoinKind.LEFT),
    Case("semi", JoinKind.SEMI),
    Case("inner, appended rows, rocksdb", JoinKind.INNER, backend="rocksdb"),
)


def join(case: Case) -> Join:
    key = t.STRING if case.text else t.BIGINT
    left, right = (Schema((msgspec.structs.replace(side[0], type=key), *side[1:])) for side in (BIDS, AUCTIONS))
    columns = (*left.columns, *(right.columns if case.kind.keeps_right else ()))
    mode = ChangelogMode.INSERT_ONLY
    unique = (0,) if case.unique else None
    return Join("j", "j", case.kind, (0,), (0,), (False,), None, left, right, mode, mode, None, unique, Schema(columns))


def batches(case: Case, row_count: int, key_count: int) -> Iterator[tuple[int, Batch]]:
    """Input, and batch."""
    rng = np.random.default_rng(7)

    def batch(keys: Any, *others: Any) -> Batch:
        column: Any = pa.array(keys)
        if case.text:
            column = pa.array([f"auction {key:08d}" for key in keys.tolist()])
        columns: list[Any] = [column, *map(pa.array, others)]
        return Batch(pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))]), None)

    order = rng.permutation(key_count)
    for first in range(0, key_count, BATCH_ROWS):
        keys = order[first : first + BATCH_ROWS]
        yield RIGHT, batch(keys, keys * 7, (keys % 10).astype(np.int32))
    for _ in range(0, row_count, BATCH_ROWS):
        yield LEFT, batch(rng.integers(0, key_count, BATCH_ROWS), rng.integers(0, 1 << 20, BATCH_ROWS))


def measure(case: Case, row_count: int, key_count: int) -> tuple[list[float], int, int]:
    """Nanoseconds of CPU per row of the left and the right input, rows put out, and bytes of state."""
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
        operator = JoinOperator(join(case), context)
        operator.open()
        cpu_s, rows, put_out = [0.0, 0.0], [0, 0], 0
        for side, batch in batches(case, row_count, key_count):
            begin = time.thread_time()
            put_out += sum(piece.row_count for piece in operator.process_input(side, batch))
            cpu_s[side] += time.thread_time() - begin
            rows[side] += batch.row_count
        state_bytes = int(operator.counters()["stateBytes"])
        operator.close()
    return [used / count * 1e9 for used, count in zip(cpu_s, rows, strict=True)], put_out, state_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    for case in CASES:
        if arguments.only in case.name:
            (left, right), put_out, state_bytes = measure(case, arguments.rows, arguments.keys)
            print(
                f"{case.name:34s} {left:6.0f} ns per left row, {right:6.0f} per right row, "
                f"{put_out:>10,d} rows put out, {state_bytes / 1e6:,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
