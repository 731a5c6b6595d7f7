"""Regular joins and set operations, each by itself (`benchmarks/operators.py`).

`python -m benchmarks.joins`: as many rows of the right table as of the left one, at most a million (key BIGINT, two
numbers), then rows of the left one (key like chance, a number) in batches as tasks with two inputs get them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.operators import Make, Step, measure, run
from planner.ir import types as t
from planner.ir.joins import Join, JoinKind, SetOperation, SetOperationKind
from planner.ir.schema import Column, Schema
from planner.ir.types import ChangelogMode
from runtime.elements import Batch
from runtime.operators.join import LEFT, RIGHT, JoinOperator
from runtime.operators.set_operation import SetOperationOperator

BATCH_ROWS = 8_000
KEYS_MAX = 1_000_000
BIDS = (Column("auction", t.BIGINT), Column("price", t.BIGINT))
ROW = (Column("k", t.BIGINT), Column("text", t.STRING))
AUCTIONS = (Column("id", t.BIGINT), Column("seller", t.BIGINT), Column("category", t.INT))


class Case(msgspec.Struct, frozen=True):
    """`unique`: the right key is known to be unique. `text`: keys are texts."""

    name: str
    kind: JoinKind
    unique: bool = False
    text: bool = False
    backend: str = "hashmap"

    def make(self) -> Make:
        key = t.STRING if self.text else t.BIGINT
        left, right = (Schema((msgspec.structs.replace(side[0], type=key), *side[1:])) for side in (BIDS, AUCTIONS))
        columns = (*left.columns, *(right.columns if self.kind.keeps_right else ()))
        mode = ChangelogMode.INSERT_ONLY
        unique = (0,) if self.unique else None
        node = Join(
            "j", "j", self.kind, (0,), (0,), (False,), None, left, right, mode, mode, None, unique, Schema(columns)
        )
        return lambda context: JoinOperator(node, context)

    def steps(self, row_count: int) -> Iterator[Step]:
        key_count = min(row_count, KEYS_MAX)
        rng = np.random.default_rng(7)

        def batch(keys: Any, *others: Any) -> Batch:
            column: Any = pa.array(keys)
            if self.text:
                column = pa.array([f"auction {key:08d}" for key in keys.tolist()])
            columns: list[Any] = [column, *map(pa.array, others)]
            return Batch(pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))]), None)

        order = rng.permutation(key_count)
        for first in range(0, key_count, BATCH_ROWS):
            keys = order[first : first + BATCH_ROWS]
            yield RIGHT, batch(keys, keys * 7, (keys % 10).astype(np.int32))
        for _ in range(0, row_count, BATCH_ROWS):
            yield LEFT, batch(rng.integers(0, key_count, BATCH_ROWS), rng.integers(0, 1 << 20, BATCH_ROWS))


class SetCase(msgspec.Struct, frozen=True):
    """Rows of `ROW` on both sides in turn, a row some four times."""

    name: str
    kind: SetOperationKind
    backend: str = "hashmap"

    def make(self) -> Make:
        node = SetOperation("s", "s", self.kind, Schema(ROW))
        return lambda context: SetOperationOperator(node, context)

    def steps(self, row_count: int) -> Iterator[Step]:
        rng = np.random.default_rng(7)
        for number in range(-(-row_count // BATCH_ROWS)):
            keys = rng.integers(0, max(row_count // 4, 1), BATCH_ROWS)
            columns: list[Any] = [pa.array(keys), pa.array(keys).cast(pa.string())]
            yield number % 2, Batch(pa.RecordBatch.from_arrays(columns, names=["k", "text"]))


CASES: tuple[Case | SetCase, ...] = (
    Case("inner, appended rows", JoinKind.INNER),
    Case("inner, unique right key", JoinKind.INNER, unique=True),
    Case("inner, text keys", JoinKind.INNER, text=True),
    Case("left, appended rows", JoinKind.LEFT),
    Case("semi", JoinKind.SEMI),
    Case("inner, appended rows, rocksdb", JoinKind.INNER, backend="rocksdb"),
    Case("full, appended rows", JoinKind.FULL),
    Case("anti", JoinKind.ANTI),
    SetCase("INTERSECT", SetOperationKind.INTERSECT),
    SetCase("INTERSECT ALL", SetOperationKind.INTERSECT_ALL),
    SetCase("EXCEPT", SetOperationKind.EXCEPT),
    SetCase("EXCEPT ALL", SetOperationKind.EXCEPT_ALL),
    SetCase("EXCEPT ALL, rocksdb", SetOperationKind.EXCEPT_ALL, backend="rocksdb"),
)


def measured(case: Case | SetCase, row_count: int) -> str:
    result = measure(case.make(), case.steps(row_count), backend=case.backend, input_count=2)
    left, right = (used / rows * 1e9 for used, rows in zip(result.cpu_s, result.rows, strict=True))
    return f"{result}  ({left:,.0f} ns per left row, {right:,.0f} per right row)"


if __name__ == "__main__":
    run(__doc__, CASES, measured)
