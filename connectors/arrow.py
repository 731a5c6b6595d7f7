"""Arrow helpers of the connectors.

`pc` (pyarrow.compute) and `Array` (any pyarrow.Array) have no static types: the published stubs describe an older
release and refuse calls that mix arrays and scalars.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from connectors.errors import ConnectorError, ErrorDomain
from planner.ir.types import DataType, TypeRoot, to_arrow

pc: Any = pyarrow.compute
Array: TypeAlias = Any


def buffer_values(buffer: pa.Buffer | None, dtype: type[Any]) -> npt.NDArray[Any]:
    """An Arrow buffer seen as a numpy array (empty when there is no buffer)."""
    readable: Any = buffer  # Not `cast`: a call per array adds up.
    return np.frombuffer(readable, dtype) if buffer is not None else np.zeros(0, dtype)


def text_buffers(array: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (length + 1) and bytes of a string or binary array; empty arrays have the offset 0."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    # Not `buffer_values`: a call per buffer adds up.
    starts: npt.NDArray[np.int32] = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    return starts, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def text_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], *, binary: bool = False) -> Array:
    """A string (or binary) array without NULLs over the given offsets and bytes, not copied."""
    kind = pa.binary() if binary else pa.string()
    buffers = [None, pa.py_buffer(cast(Any, offsets)), pa.py_buffer(cast(Any, data))]
    return pa.Array.from_buffers(cast(Any, kind), len(offsets) - 1, cast(Any, buffers))


def list_offsets(lengths: npt.NDArray[Any]) -> Array:
    """Offsets from 0 of lists of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def rows_without_columns(count: int) -> pa.RecordBatch:
    """A batch of rows without columns: COUNT(*) reads none."""
    return pa.RecordBatch.from_struct_array(cast(Any, pa.array([{}] * count, pa.struct([]))))


def concat_batches(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all rows (none is needed: then it is empty). Raises ConnectorError for more than one can hold."""
    if not schema:
        return rows_without_columns(sum(batch.num_rows for batch in batches))
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    if not table.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], t) for t in schema.types], schema=schema)
    whole = table.to_batches()
    if len(whole) > 1:
        raise ConnectorError(
            "a column has more than 2 GB of text: too much to be held at once", domain=ErrorDomain.EXTERNAL, retry=False
        )
    return whole[0]


def declared(values: Array, wanted: DataType, local_time_zone: str) -> Array:
    """Metadata values in the type their column was declared with; an instant as TIMESTAMP is local time."""
    target = to_arrow(wanted)
    if values.type == target:
        return values
    if pa.types.is_timestamp(values.type) and wanted.root is TypeRoot.TIMESTAMP:
        zoned = values.cast(pa.timestamp("ms", local_time_zone))
        return pc.local_timestamp(zoned).cast(target)
    return values.cast(target)
