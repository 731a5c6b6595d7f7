"""Batches put together."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connectors.arrow import concat_batches
from connectors.errors import ConnectorError


class Parted:
    """A table of which some column has more text than one array may hold (2 GB, so it is only played)."""

    num_rows = 2

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    @classmethod
    def from_batches(cls, batches: list[pa.RecordBatch], _schema: object) -> Parted:
        return cls(batches)

    def combine_chunks(self) -> Parted:
        return self

    def to_batches(self) -> list[pa.RecordBatch]:
        return self._batches


def test_what_does_not_fit_into_one_batch_is_refused_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    names: Any = pa.array(["a"])
    batch = pa.RecordBatch.from_arrays([names], ["c0"])
    assert concat_batches([batch, batch], batch.schema).num_rows == 2
    monkeypatch.setattr(pa, "Table", Parted)
    with pytest.raises(ConnectorError, match="more than 2 GB"):
        concat_batches([batch, batch], batch.schema)
