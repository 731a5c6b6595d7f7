"""The in-memory backend: blocks in order, compaction, size limit, snapshots that stay what they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.errors import SegmentError, StateTooLargeError
from runtime.state.memory import MemoryStateBackend
from runtime.state.protocol import KEY_GROUP_FIELD
from runtime.state.window_blocks import BLOCKS_MAX, MemoryWindowState, concat_blocks
from tests.support.window_harness import operator_context

SCHEMA = pa.schema([KEY_GROUP_FIELD, pa.field("c0", pa.int64()), pa.field("c1", pa.int64())])
"""Key group, key, sum."""


def reduce(blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Sums by key, keys in order of first arrival."""
    sums: dict[tuple[int, int], int] = {}
    for row in concat_blocks(blocks, SCHEMA).to_pylist():
        key = (row["key_group"], row["c0"])
        sums[key] = sums.get(key, 0) + row["c1"]
    return block(*((group, key, total) for (group, key), total in sums.items()))


def block(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], SCHEMA.field(i).type) for i in range(3)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def open_state(context: OperatorContext) -> tuple[MemoryStateBackend, MemoryWindowState]:
    backend = MemoryStateBackend("op", context)
    state = backend.window_state("sums", SCHEMA, reduce)
    assert isinstance(state, MemoryWindowState)
    return backend, state


def test_a_window_is_merged_sorted_by_key_group_and_dropped(tmp_path: Path) -> None:
    backend, state = open_state(operator_context(tmp_path))
    state.append(20, block((3, 30, 1)))
    state.append(10, block((3, 30, 1), (1, 10, 2)))
    state.append(10, block((1, 11, 5), (3, 30, 4)))
    assert state.ends() == [10, 20]
    merged = state.merge(10)
    assert [tuple(row.values()) for row in merged.to_pylist()] == [(1, 10, 2), (1, 11, 5), (3, 30, 5)]
    state.keep_rest(10, merged.slice(2))
    assert state.merge(10).num_rows == 1
    state.keep_rest(10, None)
    assert state.ends() == [20]
    state.keep_rest(20, None)
    assert backend.byte_size == 0


def test_blocks_are_merged_when_they_pile_up_and_keep_the_order_of_arrival(tmp_path: Path) -> None:
    _, state = open_state(operator_context(tmp_path))
    for i in range(10 * BLOCKS_MAX):
        state.append(10, block((0, i % 7, 1)))
    (blocks,) = state._windows.values()
    assert len(blocks) < BLOCKS_MAX
    merged = state.merge(10).to_pylist()
    assert [row["c0"] for row in merged] == list(range(7))
    assert sum(row["c1"] for row in merged) == 10 * BLOCKS_MAX


def test_a_large_old_block_is_not_merged_again_with_every_few_small_ones(tmp_path: Path) -> None:
    _, state = open_state(operator_context(tmp_path))
    large = block(*((0, 1_000 + i, 1) for i in range(1_000)))
    state.append(10, large)
    for i in range(2 * BLOCKS_MAX):
        state.append(10, block((0, i, 1)))
    (blocks,) = state._windows.values()
    assert blocks[0].rows is large


def test_above_its_share_it_compacts_first_and_then_fails_by_name(tmp_path: Path) -> None:
    backend, state = open_state(operator_context(tmp_path, managed_bytes=10_000))
    for _ in range(40):
        state.append(10, block(*((0, key, 1) for key in range(50))))
    assert backend.byte_size <= 10_000
    with pytest.raises(StateTooLargeError, match=r"operator op takes [\d,]+ bytes, more than its 10,000 bytes"):
        state.append(10, block(*((0, key, 1) for key in range(1_000))))


def snapshot(backend: MemoryStateBackend, checkpoint_id: int) -> tuple[SegmentHandle, ...]:
    return backend.capture(checkpoint_id)()


def restored(directory: Path, segments: tuple[SegmentHandle, ...], subtask: int, parallelism: int) -> MemoryWindowState:
    restore = OperatorRestore("op", segments=segments)
    return open_state(operator_context(directory, subtask, parallelism, generation=2, restore=restore))[1]


def test_a_snapshot_is_the_state_at_its_barrier(tmp_path: Path) -> None:
    backend, state = open_state(operator_context(tmp_path))
    state.append(10, block((0, 1, 1), (9, 2, 1)))
    write = backend.capture(1)
    state.append(10, block((0, 1, 100)))
    state.append(20, block((0, 1, 100)))
    state.keep_rest(10, None)
    again = restored(tmp_path, write(), 0, 1)
    assert again.ends() == [10]
    assert again.merge(10).equals(block((0, 1, 1), (9, 2, 1)))


def test_restores_at_any_parallelism(tmp_path: Path) -> None:
    backend, state = open_state(operator_context(tmp_path))
    rows = [(group, 100 * group + i, i) for group in range(16) for i in range(3)]
    state.append(10, block(*rows))
    state.append(20, block(*rows[::-1]))
    segments = snapshot(backend, 1)
    for parallelism in (1, 2, 3, 16):
        found = []
        for subtask in range(parallelism):
            part = restored(tmp_path, segments, subtask, parallelism)
            assert part.ends() == [10, 20]
            found += [tuple(row.values()) for row in part.merge(10).to_pylist()]
        assert found == rows


def test_an_empty_state_writes_no_segment(tmp_path: Path) -> None:
    backend, _ = open_state(operator_context(tmp_path))
    assert snapshot(backend, 1) == ()


def test_a_segment_with_other_columns_is_refused(tmp_path: Path) -> None:
    backend, state = open_state(operator_context(tmp_path))
    state.append(10, block((0, 1, 1)))
    segments = snapshot(backend, 1)
    context = operator_context(tmp_path, restore=OperatorRestore("op", segments=segments))
    other = SCHEMA.append(pa.field("c2", pa.string()))
    with pytest.raises(SegmentError, match="has columns"):
        MemoryStateBackend("op", context).window_state("sums", other, reduce)


def test_foreign_segments_are_not_even_opened(tmp_path: Path) -> None:
    handle = SegmentHandle("gone.arrow", "sums", 0, 3, 1, 1, "")
    context = operator_context(tmp_path, 1, 2, restore=OperatorRestore("op", segments=(handle,)))
    assert context.key_groups == KeyGroupRange(8, 15)
    assert open_state(context)[1].ends() == []
