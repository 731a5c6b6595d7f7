"""Rows to the windows they belong to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.state.protocol import WindowState


def append_by_end(
    state: WindowState, block: pa.RecordBatch, ends: npt.NDArray[np.int64], kept: npt.NDArray[np.intp] | None
) -> None:
    """The (kept) rows of a block to the slices they belong to."""
    if kept is not None and not len(kept):
        return
    for end, rows in _rows_by_end(ends, kept):
        # `take` copies: the state never holds on to the memory of an input batch.
        state.append(end, block.take(rows))


def _rows_by_end(
    ends: npt.NDArray[np.int64], kept: npt.NDArray[np.intp] | None
) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Per distinct window end, ascending: the (kept) rows that belong to it, in order of arrival."""
    rows = np.arange(len(ends)) if kept is None else kept
    own = ends if kept is None else ends[kept]
    first, last = int(own.min()), int(own.max())
    if first == last:
        yield first, rows
        return
    order = np.argsort(own, kind="stable")
    sorted_ends = own[order]
    borders = np.flatnonzero(np.concatenate(([True], sorted_ends[1:] != sorted_ends[:-1], [True])))
    for start, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        yield int(sorted_ends[start]), rows[order[start:stop]]
