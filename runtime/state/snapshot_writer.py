"""From captured rows to segments of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.state.segment_chain import ChainFile, SnapshotPlan
from runtime.state.segment_merging import SEGMENT_BYTES, SEGMENT_ROWS
from runtime.state.segments import SegmentWriter
from runtime.state.table_snapshot import Capture

CountUnits = Callable[[pa.RecordBatch], tuple[dict[int, int], frozenset[int]]]
"""Rows by unit of the state's chain, and the windows that the rows belong to."""


class SnapshotWriter:
    """Writes one state's part of one snapshot: a segment whenever so much has been collected, which is what a snapshot
    needs in memory. `early` may be called by the task's thread while `rest` runs."""

    def __init__(self, plan: SnapshotPlan, state: str, writer: SegmentWriter, count_units: CountUnits) -> None:
        self._plan = plan
        self._state = state
        self._writer = writer
        self._count_units = count_units
        self._early: list[ChainFile] = []

    def early(self, pieces: list[pa.RecordBatch]) -> None:
        """Rows that cannot wait."""
        self._early.extend(self._write(pieces))

    def rest(self, capture: Capture) -> list[ChainFile]:
        """Everything else; all files in the order in which a restore must read them."""
        # What was logged comes before the rows that there are; those written early are none of these.
        others = list(self._write(itertools.chain(capture.logged(), capture.pieces())))
        return [*others, *self._early]

    def removal(self, rows: pa.RecordBatch) -> ChainFile:
        """A file that names what is gone."""
        return self._write_segment([rows], is_removal=True)

    def _write(self, pieces: Iterable[pa.RecordBatch]) -> Iterable[ChainFile]:
        """Segments of bounded size, each sorted by key group (rows of one keep their order)."""
        collected: list[pa.RecordBatch] = []
        row_count = byte_size = 0
        for piece in bounded(pieces):
            collected.append(piece)
            row_count += piece.num_rows
            byte_size += piece.nbytes
            if row_count >= SEGMENT_ROWS or byte_size >= SEGMENT_BYTES:
                yield self._write_segment(collected)
                collected = []
                row_count = byte_size = 0
        if row_count:
            yield self._write_segment(collected)

    def _write_segment(self, pieces: list[pa.RecordBatch], *, is_removal: bool = False) -> ChainFile:
        rows = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
        pieces.clear()
        rows = rows.take(np.argsort(rows.column(0).to_numpy(), kind="stable"))
        counts, contents = self._count_units(rows)
        handle = self._writer.write(
            self._state,
            rows,
            checkpoint_id=self._plan.checkpoint_id,
            is_delta=self._plan.is_delta,
            is_removal=is_removal,
        )
        return ChainFile(handle, self._plan.epoch, {} if is_removal else counts, contents)


def bounded(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces none of which is larger than a segment."""
    for piece in pieces:
        if piece.num_rows <= SEGMENT_ROWS and piece.nbytes <= SEGMENT_BYTES:
            yield piece
            continue
        parts = max(piece.num_rows // SEGMENT_ROWS, piece.nbytes // SEGMENT_BYTES) + 1
        step = max(1, piece.num_rows // parts)
        for first in range(0, piece.num_rows, step):
            yield piece.slice(first, step)


def count_groups(rows: pa.RecordBatch) -> tuple[dict[int, int], frozenset[int]]:
    """Rows by key group."""
    return _counts(rows.column(0)), frozenset()


def count_windows(rows: pa.RecordBatch) -> tuple[dict[int, int], frozenset[int]]:
    """Rows by the end of their window, which is the second column."""
    counts = _counts(rows.column(1))
    return counts, frozenset(counts)


def _counts(column: Any) -> dict[int, int]:
    values, counts = np.unique(column.to_numpy(), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
