"""Messages and columns for the json tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connectors.api import Decoded, Messages
from connectors.formats.json.format import FORMAT
from planner.ir.types import DataType, Field, to_arrow


def messages(*values: bytes | str) -> Messages:
    """Messages with these values, described by their number."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(value) + 1 for value in encoded], out=offsets[1:])
    data = memoryview(b"".join(value + b"\n" for value in encoded))
    return Messages(data, offsets, lambda index: f"message {index}")


def decode(columns: dict[str, DataType], *values: bytes | str, **options: str) -> Decoded:
    """Decode; options are written `ignore_parse_errors="true"`, and `__` for a dot."""
    fields = tuple(Field(name, t) for name, t in columns.items())
    return FORMAT.decoder(fields, _named(options), "UTC").decode(messages(*values))


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}


def column(t: DataType, *values: bytes | str, **options: str) -> list[object]:
    """The values of a single column `x` when each of `values` is the JSON text of that field."""
    texts = [b'{"x":' + (value.encode() if isinstance(value, str) else value) + b"}" for value in values]
    return decode({"x": t}, *texts, **options).batch.column(0).to_pylist()


def encode(columns: dict[str, DataType], rows: list[dict[str, object]], **options: str) -> list[str]:
    """JSON texts of rows given as dictionaries."""
    fields = tuple(Field(name, t) for name, t in columns.items())
    arrays = [pa.array([row.get(name) for row in rows], to_arrow(t)) for name, t in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
    encoded = FORMAT.encoder(fields, _named(options), "UTC").encode(batch)
    return [value.decode() for value in encoded.to_pylist() if value is not None]
