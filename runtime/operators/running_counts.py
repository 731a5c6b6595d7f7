"""Counts that the rows of one batch move one after the other, without a loop over rows."""

from __future__ import annotations

import msgspec
import numpy as np

from runtime.elements import Batch
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER
from runtime.operators.group_aggregate_scan import Bools, Ints, clamp


class CountSteps(msgspec.Struct, frozen=True):
    """What a batch did to counts. `order` are the events by count and arrival; `before` and `after` are beside it. Per
    count that was touched: its `slots`, and what it is in the end."""

    order: Ints
    before: Ints
    after: Ints
    slots: Ints
    final: Ints

    @property
    def refused(self) -> int:
        """Events that would have taken a count below zero: it stays zero."""
        return int(np.count_nonzero((self.before == 0) & (self.after == 0)))


def count_steps(slots: Ints, steps: Ints, counts: Ints) -> CountSteps:
    """Events in order of arrival: each moves the count of its slot by 1 or -1, but not below zero. `counts` are by
    slot, and stay as they are."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = heads(ordered)
    lengths = np.diff(np.append(starts, len(ordered)))
    distinct = ordered[starts]
    initial = counts[distinct]
    moves = steps[order]
    after = np.cumsum(moves)
    if len(after):
        after += np.repeat(initial - after[starts] + moves[starts], lengths)
        if after.min() < 0:
            after = clamp(after, starts, lengths)
    before = np.empty_like(after)
    before[1:] = after[:-1]
    before[starts] = initial
    return CountSteps(order, before, after, distinct, after[starts + lengths - 1])


def heads(ordered: Ints) -> Ints:
    """Where each stretch of equal values begins."""
    if not len(ordered):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def adds_of(batch: Batch) -> Bools | None:
    """Which rows add (the others take back); None: all do."""
    if batch.row_kinds is None:
        return None
    kinds = batch.row_kinds.to_numpy()
    adds: Bools = (kinds == INSERT) | (kinds == UPDATE_AFTER)
    return None if adds.all() else adds


def signs(adds: Bools | None, rows: Ints) -> Ints:
    """1 for rows that add, -1 for those that take back; `adds` None: all add."""
    if adds is None:
        return np.ones(len(rows), dtype=np.int64)
    return np.where(adds[rows], np.int64(1), np.int64(-1))
