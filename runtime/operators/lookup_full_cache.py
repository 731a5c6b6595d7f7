"""All rows of an outside table, in memory. They are read beside the task: what there is serves until the new contents
are whole, so a table that is slow, locked or gone holds up neither rows nor barriers. Both are held for a moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.api import Found, LookupReader
from connectors.errors import ConnectorError
from runtime.operators.group_aggregate_scan import Ints
from runtime.operators.lookup_cache import cache_table, named, no_groups
from runtime.operators.lookup_reloads import LoadFailed, LoadSucceeded, ReloadTrigger, TimerFired
from runtime.operators.lookup_requests import LookupRequests, rows_only
from runtime.state.keyed_table import MemoryKeyedTable

LOOK_MS = 1_000
"""While a table is being loaded the task looks this often whether it is there."""

_PIECE_ROWS = 16_384

log = logging.getLogger(__name__)


class Contents:
    """A table as it was read: the columns asked for, then the keys'. Does not change."""

    def __init__(self, whole: pa.RecordBatch, key_types: list[pa.DataType]) -> None:
        width = whole.num_columns - len(key_types)
        keys = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(whole.columns[width:], key_types, strict=True)
        ]
        self._index: MemoryKeyedTable = cache_table("all", named("k", key_types), pa.schema([]))
        slots = self._numbered(keys, whole.num_rows)
        rows = rows_only(whole.num_rows) if not width else whole.select(list(range(width)))
        if width and (np.diff(slots) < 0).any():
            rows = rows.take(np.argsort(slots, kind="stable"))
        self._rows = rows
        self._counts: Ints = np.bincount(slots, minlength=1)
        self._starts: Ints = np.cumsum(self._counts) - self._counts

    def _numbered(self, keys: list[Any], row_count: int) -> Ints:
        """The number of each row's key. Piece by piece: a long one would keep other threads from having their turn."""
        pieces = [np.zeros(0, np.int64)]
        for first in range(0, row_count, _PIECE_ROWS):
            piece = [column.slice(first, _PIECE_ROWS) for column in keys]
            slots, _ = self._index.slots(piece, no_groups(len(piece[0])))
            pieces.append(slots)
        return np.concatenate(pieces)

    @property
    def row_count(self) -> int:
        return self._rows.num_rows

    def answer(self, keys: pa.RecordBatch) -> Found:
        """The rows of distinct keys."""
        slots = self._index.find(keys.columns, no_groups(keys.num_rows))
        known = np.flatnonzero(slots >= 0)
        counts = self._counts[slots[known]]
        numbers = np.repeat(known, counts)
        firsts = np.cumsum(counts) - counts
        rows = np.repeat(self._starts[slots[known]] - firsts, counts) + np.arange(len(numbers))
        return Found(numbers, self._rows.take(rows) if self._rows.num_columns else rows_only(len(rows)))


class FullCache:
    """Used by the task's thread; `requests` has one thread more. A load that fails is counted and begun again, and the
    contents stay as old as they are."""

    def __init__(
        self,
        requests: LookupRequests,
        key_types: list[pa.DataType],
        trigger: ReloadTrigger,
        now_ms: Callable[[], int],
    ) -> None:
        self._requests = requests
        self._key_types = key_types
        self._trigger = trigger
        self._now_ms = now_ms
        self.loading: Future[Contents] | None = None
        """What is being read, until it is settled."""
        self._contents: Contents | None = None
        self.hit_count = 0
        self.load_count = 0
        self.failure_count = 0

    @property
    def row_count(self) -> int:
        return 0 if self._contents is None else self._contents.row_count

    def open(self) -> None:
        """The first contents are waited for. Raises ConnectorError."""
        self.on_timer(self._now_ms())
        assert self.loading is not None
        self._requests.result(self.loading)
        self.settle()

    def timer_ms(self) -> int | None:
        """When there is something to do; None for never."""
        self.settle()
        now_ms = self._now_ms()
        return now_ms + LOOK_MS if self.loading is not None else self._trigger.timer_ms(now_ms)

    def on_timer(self, now_ms: int) -> None:
        for _ in self._trigger.handle(TimerFired(), now_ms):
            self.loading = self._requests.begin(self._load)

    def settle(self) -> None:
        """Contents that have become whole take the place of the old ones."""
        if self.loading is None or not self.loading.done():
            return
        loading, self.loading = self.loading, None
        try:
            self._contents = loading.result()
        except ConnectorError as error:
            self.failure_count += 1
            self._trigger.handle(LoadFailed(), self._now_ms())
            log.warning("a table that is looked up could not be loaded anew, its old rows stay: %s", error)
        else:
            self.load_count += 1
            self._trigger.handle(LoadSucceeded(), self._now_ms())

    def answer(self, keys: pa.RecordBatch) -> Found:
        """The rows of distinct keys."""
        self.settle()
        assert self._contents is not None
        self.hit_count += keys.num_rows
        return self._contents.answer(keys)

    def _load(self, reader: LookupReader) -> Contents:
        return Contents(reader.load(), self._key_types)
