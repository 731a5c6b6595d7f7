"""Which partition a record goes to, for whole batches at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.kafka.options import PartitionerKind

if TYPE_CHECKING:
    from typing import Any

    Array = pa.Array[Any]

Int32Array = npt.NDArray[np.int32]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_REST_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur2(keys: Array) -> npt.NDArray[np.uint32]:
    """32-bit murmur2 of each key (binary, without NULLs), equal to Kafka's Java client.

    Word by word over all keys that have it, no Python per key: words are read where they stand, aligned or not."""
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    width: type[np.int64 | np.int32] = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, raw_bounds, raw_data = keys.buffers()
    # A slice shares its buffers with the whole array and starts at `offset`.
    readable: Any = raw_bounds
    bounds: npt.NDArray[Any] = np.frombuffer(readable, width, len(keys) + 1, keys.offset * width().itemsize)
    starts, lengths = bounds[:-1] - bounds[0], bounds[1:] - bounds[:-1]
    size = int(bounds[-1] - bounds[0])
    padded = np.zeros(size + 4, np.uint8)
    if raw_data is not None:
        padded[:size] = np.frombuffer(memoryview(raw_data), np.uint8, size, int(bounds[0]))
    words: npt.NDArray[np.uint32] = np.ndarray((size + 1,), "<u4", padded, strides=(1,))
    hashes: npt.NDArray[np.uint32] = lengths.astype(np.uint32) ^ _SEED
    shortest, longest = int(lengths.min()), int(lengths.max())
    for end in range(4, longest + 1, 4):
        if end <= shortest:
            _mix_word(hashes, words[starts + (end - 4)])
            continue
        rows = (lengths >= end).nonzero()[0]
        mixed = hashes[rows]
        _mix_word(mixed, words[starts[rows] + (end - 4)])
        hashes[rows] = mixed
    rests = lengths & 3
    if rests.any():
        last = words[starts + (lengths - rests)] & _REST_MASKS[rests]
        hashes = np.where(rests > 0, (hashes ^ last) * _M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix_word(hashes: npt.NDArray[np.uint32], words: npt.NDArray[np.uint32]) -> None:
    """One round, in place."""
    words *= _M
    words ^= words >> np.uint32(24)
    words *= _M
    hashes *= _M
    hashes ^= words


class Partitioner:
    """Assigns partitions for one sink subtask; `partition_count` may grow between epochs.

    * default: by key as Java does (murmur2), so that other clients find a key's records together; records without
      a key go to one partition per batch, the next batch to the next (sticky: larger requests, same balance);
    * fixed: each subtask writes to one partition;
    * round-robin: record by record over all partitions.
    """

    def __init__(self, kind: PartitionerKind, subtask_index: int, partition_count: int) -> None:
        self._kind = kind
        self._subtask_index = subtask_index
        self.partition_count = partition_count
        # Subtasks start at different partitions, so few large batches do not all meet at partition 0.
        self._turn = subtask_index

    def partitions(
        self, keys: Array | None, row_count: int, hashes: npt.NDArray[np.uint32] | None = None
    ) -> Int32Array:
        """`hashes` are those of all keys, where the caller has them."""
        count = self.partition_count
        if self._kind is PartitionerKind.FIXED:
            return np.full(row_count, self._subtask_index % count, np.int32)
        if self._kind is PartitionerKind.ROUND_ROBIN:
            turns = (np.arange(row_count, dtype=np.int64) + self._turn) % count
            self._turn = (self._turn + row_count) % count
            return turns.astype(np.int32)
        if keys is not None and keys.null_count == 0:
            return self._by_hash(murmur2(keys) if hashes is None else hashes)
        partitions = np.full(row_count, self._turn % count, np.int32)
        self._turn = (self._turn + 1) % count
        if keys is not None and keys.null_count < row_count:
            present = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
            partitions[present] = self._by_hash(murmur2(keys.take(pa.array(present, pa.int64()))))
        return partitions

    def _by_hash(self, hashes: npt.NDArray[np.uint32]) -> Int32Array:
        positive = hashes & np.uint32(0x7FFFFFFF)
        return (positive % np.uint32(self.partition_count)).astype(np.int32)
