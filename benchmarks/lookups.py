"""Lookup joins by themselves (`benchmarks/operators.py`).

`python -m benchmarks.lookups`: a file of 100,000 rows read whole, looked up by 8,192 keys a batch, of which nine of ten
are there. What a database takes to answer is its own affair.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.operators import Measured, measure, run
from planner.ir import types as t
from planner.ir.joins import JoinKind, LookupJoin
from planner.ir.schema import Column, Schema, TableRef
from planner.ir.types import ChangelogMode
from runtime.elements import Batch
from runtime.operators.lookup_join import LookupJoinOperator
from tests.support.operators import Surroundings

BATCH_ROWS = 8_192
TABLE_ROWS = 100_000
LEFT = Schema((Column("k", t.BIGINT), Column("text", t.STRING)))
TABLE = Schema((Column("id", t.BIGINT), Column("name", t.STRING)))


class Case(msgspec.Struct, frozen=True):
    name: str
    kind: JoinKind
    keys: int
    """The left rows have so many keys."""


CASES = (
    Case("lookup join, inner, 1k keys", JoinKind.INNER, 1_000),
    Case("lookup join, inner, 110k keys", JoinKind.INNER, TABLE_ROWS * 11 // 10),
    Case("lookup join, left, 110k keys", JoinKind.LEFT, TABLE_ROWS * 11 // 10),
)


def measured(case: Case, row_count: int) -> Measured:
    keys = np.random.default_rng(1).integers(0, case.keys, BATCH_ROWS)
    batch = Batch(pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys).cast(pa.string())], ["c0", "c1"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.jsonl"
        path.write_text("".join(json.dumps({"id": i, "name": f"name {i}"}) + "\n" for i in range(TABLE_ROWS)))
        options = {"connector": "filesystem", "path": str(path), "format": "json"}
        node = LookupJoin(
            uid="lookup",
            name="LookupJoin",
            kind=case.kind,
            table=TableRef("t", "filesystem", options, TABLE),
            lookup_columns=("id",),
            left_keys=(0,),
            constants=(None,),
            table_columns=TABLE,
            condition=None,
            left=LEFT,
            left_changelog=ChangelogMode.INSERT_ONLY,
            output=Schema((*LEFT.columns, *TABLE.columns)),
        )
        environment = Surroundings().environment
        steps = itertools.repeat((0, batch), -(-row_count // BATCH_ROWS))
        return measure(lambda context: LookupJoinOperator(node, context, environment), steps)


if __name__ == "__main__":
    run(__doc__, CASES, measured)
