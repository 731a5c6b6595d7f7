"""Pairs of rows: from keys and times to the rows that meet, in pieces.

Rows are numbers (places in columns), so that a pair costs two integers until it is known to be wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.operators.protocol import OUTPUT_ROWS_MAX

Array = Any
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CODE_MAX = 1 << 62


def without_nulls(keys: Sequence[Array], null_safe: Sequence[bool]) -> Bools | None:
    """The rows that may have a partner: not those with a NULL in a column that is not null-safe; None when all may."""
    able: Bools | None = None
    for key, is_safe in zip(keys, null_safe, strict=True):
        if not is_safe and key.null_count:
            valid: Bools = key.is_valid().to_numpy(zero_copy_only=False)
            able = valid if able is None else able & valid
    return able


def equal_ranges(left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
    """Of codes from 0 on (negative ones equal nothing): an order of the right rows by code, stable, and of each left
    row the first place in that order and the number of right rows with its code."""
    code_count = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    order = np.argsort(right, kind="stable")
    below = int((right < 0).sum())
    counts = np.bincount(right[order[below:]], minlength=code_count + 1)
    starts = np.cumsum(counts) - counts + below
    wanted = np.where(left < 0, code_count, left)
    return order, starts[wanted], counts[wanted]


def time_codes(ids: Ints, times: Ints, *others: tuple[Ints, Ints]) -> list[Ints]:
    """Integers that order as (id, time), alike for all of the given columns. Ids are from 0 on."""
    pairs = [(ids, times), *((i, t) for i, t in others)]
    lowest = min((int(t.min()) for _, t in pairs if len(t)), default=0)
    highest = max((int(t.max()) for _, t in pairs if len(t)), default=0)
    most = max((int(i.max()) for i, _ in pairs if len(i)), default=0)
    span = highest - lowest + 1
    if (most + 1) * span < _CODE_MAX:
        return [i * span + (t - lowest) for i, t in pairs]
    # Times from the ends of the calendar in one batch: their ranks are small.
    distinct = np.unique(np.concatenate([t for _, t in pairs]))
    return [i * len(distinct) + np.searchsorted(distinct, t) for i, t in pairs]


def pair_pieces(starts: Ints, counts: Ints, most: int = OUTPUT_ROWS_MAX) -> Iterator[tuple[Ints, Ints]]:
    """Row i meets places starts[i] … starts[i] + counts[i] - 1. The pairs in order: row, and place; at most `most` at
    once, however many there are."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts = starts - (ends - counts)
    for first in range(0, total, most):
        last = min(first + most, total)
        if last - first == total:
            rows = np.repeat(np.arange(len(counts)), counts)
        else:
            begin = int(np.searchsorted(ends, first, side="right"))
            end = int(np.searchsorted(ends, last, side="left")) + 1
            lengths = np.minimum(ends[begin:end], last) - np.maximum(ends[begin:end] - counts[begin:end], first)
            rows = np.repeat(np.arange(begin, end), lengths)
        yield rows, np.arange(first, last) + shifts[rows]


def taken(columns: Sequence[Array], rows: Ints) -> list[Array]:
    """Rows of columns."""
    index: Any = pa.array(rows)
    return [column.take(index) for column in columns]


def nulls(kinds: Sequence[Any], count: int) -> list[Array]:
    """Columns of a side that an outer join has no row of."""
    return [pa.nulls(count, kind) for kind in kinds]
