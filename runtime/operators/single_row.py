"""Scalar sub-queries must have at most one row: SINGLE_VALUE's groups are counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.ir.operators import AggregateCall, AggregateFunction
from runtime.operators.group_aggregate_scan import Scan


class SeveralRowsError(Exception):
    """A sub-query that stands for one value has several rows."""

    domain = "user"
    retry = False
    hint = "Make it one row: MAX(…), or ORDER BY … LIMIT 1."

    def __init__(self, subquery: str) -> None:
        super().__init__(f"the sub-query {subquery} has more than one row where it stands for a value")


class SingleRows:
    """Refuses groups of several rows. Over inserts at once; over a changelog when a barrier or the end of input comes,
    because the row that replaces another may arrive before that one is taken back. `names`: output columns by call."""

    def __init__(self, calls: Sequence[AggregateCall], names: Sequence[str], *, retracting: bool, ttl_ms: int) -> None:
        singles = [n for c, n in zip(calls, names, strict=True) if c.function is AggregateFunction.SINGLE_VALUE]
        self._subquery = singles[0] if singles else None
        self._retracting = retracting
        # A group that expires takes its rows along uncounted.
        self._counts_groups = retracting and ttl_ms == 0
        self._crowded = 0

    def take(self, scan: Scan) -> None:
        """Raises SeveralRowsError."""
        if self._subquery is None:
            return
        if self._counts_groups:
            self._crowded += int(np.count_nonzero(scan.final_counts > 1) - np.count_nonzero(scan.initial_counts > 1))
        elif not self._retracting and (scan.final_counts > 1).any():
            raise SeveralRowsError(self._subquery)

    def check(self) -> None:
        """At a barrier or the end of input. Raises SeveralRowsError."""
        if self._subquery is not None and self._crowded > 0:
            raise SeveralRowsError(self._subquery)
