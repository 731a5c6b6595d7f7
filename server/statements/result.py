"""What a statement returns: rows that are there already, or the job whose rows follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from planner.ir import types as t
from planner.ir.operators import ChangelogMode, Column, Schema
from planner.ir.types import DataType
from runtime.api import JobId


class StatementResult(msgspec.Struct, frozen=True):
    """`has_content` False: the answer is only OK. `job_id`: the job an INSERT or SELECT started. `rows` is empty for
    a query: its rows are pulled from the job."""

    schema: Schema
    rows: pa.RecordBatch
    has_content: bool = True
    job_id: JobId | None = None
    is_query: bool = False
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY


def rows(columns: Sequence[tuple[str, DataType]], values: Sequence[Sequence[Any]]) -> StatementResult:
    """A small table from row-wise values."""
    schema = Schema(tuple(Column(name, data_type) for name, data_type in columns))
    arrays = [
        pa.array([row[i] for row in values], type=t.to_arrow(data_type)) for i, (_, data_type) in enumerate(columns)
    ]
    return StatementResult(schema, pa.RecordBatch.from_arrays(arrays, schema=t.arrow_schema(schema.types)))


def texts(column: str, values: Sequence[str]) -> StatementResult:
    """One STRING column."""
    return rows([(column, t.STRING)], [[value] for value in values])


def ok() -> StatementResult:
    """The answer of a statement that shows nothing."""
    return msgspec.structs.replace(texts("result", ["OK"]), has_content=False)


def job_started(job_id: JobId) -> StatementResult:
    """The answer of an INSERT or a statement set."""
    return msgspec.structs.replace(texts("job id", [job_id]), job_id=job_id)


def query_started(job_id: JobId, schema: Schema, changelog: ChangelogMode) -> StatementResult:
    """A SELECT whose rows are pulled from its job."""
    layout = t.arrow_schema(schema.types)
    empty = pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in layout], schema=layout)
    return StatementResult(schema, empty, job_id=job_id, is_query=True, changelog=changelog)
