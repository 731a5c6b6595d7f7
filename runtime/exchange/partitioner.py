"""Which consumer subtask gets which rows of a batch. Pure, vectorised, stable: rows for one consumer keep order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import pyarrow as pa

from planner.ir.job_graph import EdgeKind
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group, subtask_of

Part = tuple[int, Batch]
"""Index of the consumer channel, and its rows."""
Partitioner = Callable[[Batch], Iterator[Part]]

REBALANCE_ROWS = 2048
"""Rows that go to one consumer before the next one's turn."""


def partitioner(
    kind: EdgeKind, keys: tuple[int, ...], consumer_parallelism: int, max_parallelism: int, first_channel: int = 0
) -> Partitioner:
    """The rule of an edge. `first_channel` is where a rebalance begins (the producer's index, so that producers
    do not all start with the same consumer)."""
    match kind:
        case EdgeKind.FORWARD | EdgeKind.SINGLE:
            return _all_to_first
        case EdgeKind.REBALANCE | EdgeKind.RESCALE:
            return _Rebalance(consumer_parallelism, first_channel)
        case EdgeKind.BROADCAST:
            return _Broadcast(consumer_parallelism)
        case EdgeKind.HASH:
            return _Hash(keys, consumer_parallelism, max_parallelism)


def _all_to_first(batch: Batch) -> Iterator[Part]:
    yield 0, batch


class _Broadcast:
    """The same rows to every consumer."""

    def __init__(self, consumer_count: int) -> None:
        self._count = consumer_count

    def __call__(self, batch: Batch) -> Iterator[Part]:
        for index in range(self._count):
            yield index, batch


class _Rebalance:
    """Pieces of a batch to the consumers in turn."""

    def __init__(self, consumer_count: int, first_channel: int) -> None:
        self._count = consumer_count
        self._next = first_channel % consumer_count

    def __call__(self, batch: Batch) -> Iterator[Part]:
        for start in range(0, batch.row_count, REBALANCE_ROWS):
            yield self._next, slice_batch(batch, start, REBALANCE_ROWS)
            self._next = (self._next + 1) % self._count


class _Hash:
    """By key group: one stable radix sort of the targets, one gather, then slices."""

    def __init__(self, keys: tuple[int, ...], consumer_count: int, max_parallelism: int) -> None:
        self._keys = keys
        self._count = consumer_count
        self._max_parallelism = max_parallelism

    def __call__(self, batch: Batch) -> Iterator[Part]:
        if self._count == 1:
            yield 0, batch
            return
        hashes = hash_columns([batch.data.column(i) for i in self._keys], batch.row_count)
        groups = key_group(hashes, self._max_parallelism)
        targets = subtask_of(groups, self._count, self._max_parallelism)
        counts = np.bincount(targets, minlength=self._count)
        used = np.flatnonzero(counts)
        if len(used) == 1:
            yield int(used[0]), batch
            return
        narrow = targets.astype(np.int8) if self._count <= 128 else targets
        order = np.argsort(narrow, kind="stable")
        sorted_rows = batch.data.take(order)
        kinds = None if batch.row_kinds is None else batch.row_kinds.take(order)
        start = 0
        for target in used:
            count = int(counts[target])
            part = Batch(sorted_rows.slice(start, count), None if kinds is None else kinds.slice(start, count))
            yield int(target), part
            start += count


def slice_batch(batch: Batch, start: int, row_count: int) -> Batch:
    """Rows `start` .. `start + row_count` as a view."""
    if start == 0 and row_count >= batch.row_count:
        return batch
    kinds = None if batch.row_kinds is None else batch.row_kinds.slice(start, row_count)
    return Batch(batch.data.slice(start, row_count), kinds)


def concat_batches(batches: list[Batch]) -> Batch:
    """All rows in order. The batches have one schema; those without row kinds are inserts."""
    if len(batches) == 1:
        return batches[0]
    data = pa.concat_batches([b.data for b in batches])  # type: ignore[attr-defined]
    if all(b.row_kinds is None for b in batches):
        return Batch(data)
    return Batch(data, pa.concat_arrays([b.row_kinds if b.row_kinds is not None else inserts(b) for b in batches]))


def inserts(batch: Batch) -> pa.Int8Array:
    """The row kinds of a batch that has none: every row is an insert."""
    return cast("pa.Int8Array", pa.array(np.zeros(batch.row_count, np.int8)))
