"""UNNEST by itself (`benchmarks/operators.py`).

`python -m benchmarks.unnest`: batches of 8,192 rows of a BIGINT, a STRING and a collection of 5 elements on average.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.operators import Make, Measured, measure, run
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.joins import Unnest
from planner.ir.schema import Column, Schema
from planner.ir.types import DataType, TypeRoot
from runtime.elements import Batch
from runtime.operators.unnest import UnnestOperator

BATCH_ROWS = 8_192
ELEMENTS_MAX = 10


class Case(msgspec.Struct, frozen=True):
    name: str
    collection: DataType
    elements: tuple[DataType, ...]
    is_outer: bool = False
    condition: Expression | None = None


_PASSES = Call("EQ", (InputRef(2, t.STRING), Literal("e3", t.STRING)), t.BOOLEAN)
_TAGS = t.array(t.STRING)
CASES = (
    Case("array", _TAGS, (t.STRING,)),
    Case("array, left join", _TAGS, (t.STRING,), is_outer=True),
    Case("array, left join on a condition", _TAGS, (t.STRING,), is_outer=True, condition=_PASSES),
    Case("array of rows", t.array(t.row(("x", t.STRING), ("y", t.BIGINT))), (t.STRING, t.BIGINT)),
    Case("map", t.map_of(t.STRING, t.INT), (t.STRING, t.INT)),
    Case("multiset", t.multiset(t.STRING), (t.STRING,)),
)


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


def operator(case: Case) -> Make:
    types = (t.BIGINT, t.STRING, *case.elements)
    output = Schema(tuple(Column(f"x{i}", kind) for i, kind in enumerate(types)))
    node = Unnest("unnest", "Unnest", 2, case.collection, (0, 1), False, case.is_outer, case.condition, output)
    return lambda context: UnnestOperator(node, context)


def measured(case: Case, row_count: int) -> Measured:
    rng = np.random.default_rng(1)
    keys = pa.array(np.arange(BATCH_ROWS))
    columns: list[Any] = [keys, keys.cast(pa.string()), _collections(case, rng)]
    batch = Batch(pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2"]))
    return measure(operator(case), itertools.repeat((0, batch), -(-row_count // BATCH_ROWS)))


if __name__ == "__main__":
    run(__doc__, CASES, measured)
