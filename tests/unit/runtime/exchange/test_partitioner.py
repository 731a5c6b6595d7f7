"""Which consumer gets which rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.ir.job_graph import EdgeKind
from runtime.elements import Batch
from runtime.exchange.partitioner import REBALANCE_ROWS, concat_batches, partitioner
from runtime.key_groups import hash_columns, key_group, key_group_range


def numbered(row_count: int, distinct: int = 50, *, kinds: bool = False) -> Batch:
    keys = pa.array([f"k{i % distinct}" for i in range(row_count)], pa.string())
    data = pa.RecordBatch.from_arrays([keys, pa.array(range(row_count), pa.int64())], ["c0", "c1"])
    return Batch(data, pa.array([i % 4 for i in range(row_count)], pa.int8()) if kinds else None)


@pytest.mark.parametrize("parallelism", [1, 3, 4, 100])
def test_hash_sends_each_key_group_to_its_owner_in_order(parallelism: int) -> None:
    batch = numbered(1000, kinds=True)
    split = partitioner(EdgeKind.HASH, (0,), parallelism, 128)
    parts = dict(split(batch))
    assert sum(part.row_count for part in parts.values()) == 1000
    for target, part in parts.items():
        first, last = key_group_range(target, parallelism, 128)
        groups = key_group(hash_columns([part.data.column(0)]), 128)
        assert all(first <= group <= last for group in groups)
        numbers: list[int] = part.data.column(1).to_numpy().tolist()
        assert numbers == sorted(numbers)
        assert part.row_kinds is not None
        assert part.row_kinds.to_pylist() == [n % 4 for n in numbers]


def test_hash_of_one_key_passes_the_batch_itself() -> None:
    batch = numbered(100, distinct=1)
    [(_, part)] = partitioner(EdgeKind.HASH, (0,), 4, 128)(batch)
    assert part is batch


def test_rebalance_gives_pieces_in_turn_over_batches() -> None:
    split = partitioner(EdgeKind.REBALANCE, (), 3, 128, first_channel=1)
    assert [(c, p.row_count) for c, p in split(numbered(REBALANCE_ROWS + 1))] == [(1, REBALANCE_ROWS), (2, 1)]
    assert [c for c, _ in split(numbered(1))] == [0]


def test_rescale_takes_turns_among_its_own_consumers() -> None:
    split = partitioner(EdgeKind.RESCALE, (), 2, 128)
    assert [c for c, _ in split(numbered(REBALANCE_ROWS + 1))] == [0, 1]


def test_broadcast_gives_every_row_to_everybody() -> None:
    batch = numbered(3, kinds=True)
    assert list(partitioner(EdgeKind.BROADCAST, (), 3, 128)(batch)) == [(0, batch), (1, batch), (2, batch)]


@pytest.mark.parametrize("kind", [EdgeKind.FORWARD, EdgeKind.SINGLE])
def test_one_consumer(kind: EdgeKind) -> None:
    batch = numbered(3)
    assert list(partitioner(kind, (), 1, 128)(batch)) == [(0, batch)]


def test_concat_keeps_rows_and_kinds() -> None:
    batch = numbered(10, kinds=True)
    joined = concat_batches([batch, batch])
    assert joined.row_count == 20
    assert joined.row_kinds is not None
    assert len(joined.row_kinds) == 20
    mixed = concat_batches([numbered(2), numbered(2, kinds=True)])
    assert mixed.row_kinds is not None
    assert mixed.row_kinds.to_pylist() == [0, 0, 0, 1]
