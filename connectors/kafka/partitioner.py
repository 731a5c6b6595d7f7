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


def murmur2(keys: Array) -> npt.NDArray[np.uint32]:
    """32-bit murmur2 of each key (binary, without NULLs), equal to Kafka's Java client.

    One pass over the batch per distinct key length; columns of words, no Python per key."""
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    width: type[np.int64 | np.int32] = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, raw_bounds, raw_data = keys.buffers()
    # A slice shares its buffers with the whole array and starts at `offset`.
    bounds = np.frombuffer(memoryview(raw_bounds), width)[keys.offset : keys.offset + len(keys) + 1]  # type: ignore[arg-type]
    data = np.frombuffer(memoryview(raw_data), np.uint8) if raw_data is not None else np.zeros(0, np.uint8)
    starts, lengths = bounds[:-1].astype(np.int64), np.diff(bounds)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2_of_length(data[starts[rows, None] + np.arange(length)], int(length))
    return hashes


def _murmur2_of_length(keys: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.uint32]:
    """`keys` is (count, length)."""
    h = np.full(len(keys), _SEED ^ np.uint32(length), np.uint32)
    whole = length // 4
    words = np.ascontiguousarray(keys[:, : whole * 4]).view("<u4").reshape(len(keys), whole)
    for column in range(whole):
        k = words[:, column] * _M
        k ^= k >> np.uint32(24)
        k *= _M
        h *= _M
        h ^= k
    if length % 4:
        for column in range(length - 1, whole * 4 - 1, -1):
            h ^= keys[:, column].astype(np.uint32) << np.uint32(8 * (column - whole * 4))
        h *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h


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

    def partitions(self, keys: Array | None, row_count: int) -> Int32Array:
        count = self.partition_count
        if self._kind is PartitionerKind.FIXED:
            return np.full(row_count, self._subtask_index % count, np.int32)
        if self._kind is PartitionerKind.ROUND_ROBIN:
            turns = (np.arange(row_count, dtype=np.int64) + self._turn) % count
            self._turn = (self._turn + row_count) % count
            return turns.astype(np.int32)
        if keys is not None and keys.null_count == 0:
            return self._by_key(keys)
        partitions = np.full(row_count, self._turn % count, np.int32)
        self._turn = (self._turn + 1) % count
        if keys is not None and keys.null_count < row_count:
            present = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
            partitions[present] = self._by_key(keys.take(pa.array(present, pa.int64())))
        return partitions

    def _by_key(self, keys: Array) -> Int32Array:
        positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
        return (positive % np.uint32(self.partition_count)).astype(np.int32)
