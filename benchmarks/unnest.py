"""UNNEST by itself: nanoseconds of CPU per element put out, without source, exchange and sink.

`python -m benchmarks.unnest`: batches of 8,192 rows of a BIGINT, a STRING and a collection of 5 elements on average.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.types import DataType, TypeRoot
from runtime.checkpoint.files import LocalFiles
from runtime.elements import Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.operators.unnest import UnnestOperator

BATCH_ROWS = 8_192
ELEMENTS_MAX = 10


class Case(msgspec.Struct, frozen=True):
    name: str
    collection: DataType
    elements: tuple[DataType, ...]
    is_outer: bool = False
    condition: Expression | None = None


def cases() -> list[Case]:
    passes = Call("EQ", (InputRef(2, t.STRING), Literal("e3", t.STRING)), t.BOOLEAN)
    tags = t.array(t.STRING)
    return [
        Case("array", tags, (t.STRING,)),
        Case("array, left join", tags, (t.STRING,), is_outer=True),
        Case("array, left join on a condition", tags, (t.STRING,), is_outer=True, condition=passes),
        Case("array of rows", t.array(t.row(("x", t.STRING), ("y", t.BIGINT))), (t.STRING, t.BIGINT)),
        Case("map", t.map_of(t.STRING, t.INT), (t.STRING, t.INT)),
        Case("multiset", t.multiset(t.STRING), (t.STRING,)),
    ]


def _collections(case: Case, rng: np.random.Generator) -> Any:
    counts = rng.integers(0, ELEMENTS_MAX + 1, BATCH_ROWS)
    offsets: Any = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    numbers = rng.integers(0, 5, int(counts.sum()))
    texts: Any = pa.array([f"e{i}" for i in range(5)]).take(numbers)
    if case.collection.root is not TypeRoot.ARRAY:
        return pa.MapArray.from_arrays(offsets, texts, pa.array((numbers > 2) + 1, pa.int32()))
    if len(case.elements) == 2:
        return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([texts, pa.array(numbers)], ["x", "y"]))
    return pa.ListArray.from_arrays(offsets, texts)


def run(case: Case, row_count: int) -> str:
    rng = np.random.default_rng(1)
    keys = pa.array(np.arange(BATCH_ROWS))
    columns: list[Any] = [keys, keys.cast(pa.string()), _collections(case, rng)]
    batch = Batch(pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2"]))
    schema = ir.Schema(tuple(ir.Column(f"x{i}", kind) for i, kind in enumerate((t.BIGINT, t.STRING, *case.elements))))
    node = ir.Unnest("unnest", "Unnest", 2, case.collection, (0, 1), False, case.is_outer, case.condition, schema)
    context = OperatorContext(
        attempt=AttemptId(JobId("0" * 32), 1, 1, 0, 1),
        parallelism=1,
        max_parallelism=128,
        key_groups=KeyGroupRange(0, 127),
        settings={},
        files=LocalFiles(""),
        restore=None,
        managed_bytes=0,
        wall_clock_ms=lambda: 0,
    )
    operator = UnnestOperator(node, context)
    operator.open()
    put_out = rows = 0
    started = time.process_time()
    while rows < row_count:
        put_out += sum(piece.row_count for piece in operator.process(batch))
        rows += BATCH_ROWS
    used = time.process_time() - started
    return f"{case.name:34} {used / put_out * 1e9:6.1f} ns/element  {put_out / rows:5.2f} elements/row"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    for case in cases():
        print(run(case, arguments.rows), flush=True)


if __name__ == "__main__":
    main()
