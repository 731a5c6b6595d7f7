"""The parts of a keyed table: growth, arenas that are compacted, prefixes that change much, snapshots under fire."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.key_groups import hash_columns
from runtime.operators.protocol import KeyGroupRange
from runtime.state.columns import BytesColumn, make_column
from runtime.state.encoding import decode, encode
from runtime.state.key_index import KeyIndex, Rows
from runtime.state.keyed_table import MemoryKeyedTable
from runtime.state.memory import MemoryStateBackend
from runtime.state.prefix_index import PrefixIndex
from runtime.state.protocol import WriteSegments
from runtime.state.row_store import TableShape
from runtime.state.segment_chain import TableChain
from tests.support.window_harness import operator_context

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("m", pa.int64(), nullable=False)])


def groups(count: int) -> npt.NDArray[np.int16]:
    return np.zeros(count, dtype=np.int16)


def test_an_index_that_grows_while_keys_come_and_go_equals_a_dict() -> None:
    choice = np.random.default_rng(1)
    table = MemoryKeyedTable(
        TableShape("t", pa.schema([("k", pa.int64())]), NUMBERS),
        TableChain(KeyGroupRange(0, 127)),
        lambda: 0,
        lambda: None,
    )
    model: dict[int, int] = {}
    for _ in range(60):
        keys = choice.integers(0, 60_000, 3_000)
        slots, made = table.slots([pa.array(keys)], groups(3_000))
        known = [key in model for key in keys.tolist()]
        first = {key: i for i, key in reversed(list(enumerate(keys.tolist())))}
        assert made.tolist() == [not old and first[key] == i for i, (key, old) in enumerate(zip(keys.tolist(), known))]  # noqa: B905
        table.numbers(0)[slots] = keys
        model.update((key, key) for key in keys.tolist())
        gone = choice.integers(0, 60_000, 1_500)
        found = table.find([pa.array(gone)], groups(1_500))
        assert (found >= 0).tolist() == [key in model for key in gone.tolist()]
        table.remove(found[found >= 0])
        for key in gone.tolist():
            model.pop(key, None)
        table.settle()
    assert table.row_count == len(model)
    slots = np.concatenate(list(table.all_slots()))
    assert sorted(table.numbers(0)[slots].tolist()) == sorted(model)


def test_entries_that_are_no_longer_right_go_when_the_table_is_made_anew() -> None:
    index = KeyIndex()
    index.grow(64)

    def same(left: Rows, right: Rows) -> npt.NDArray[np.bool_]:
        return np.ones(len(left), dtype=np.bool_)

    rows = np.arange(32)
    for turn in range(500):
        hashes = hash_columns([pa.array(rows + 32 * turn)])
        slots, _ = index.insert(hashes, rows, same, lambda first: first)
        assert slots.tolist() == rows.tolist()
        assert index.find(hashes, same).tolist() == rows.tolist()
        index.free(slots)
        assert (index.find(hashes, same) == -1).all()
    assert index.byte_size < 20_000


@pytest.mark.parametrize("distinct_hashes", [1, 7, 300, 1 << 62])
@pytest.mark.parametrize("found_before", [True, False])
def test_an_index_tells_keys_of_equal_hashes_and_ways_apart(distinct_hashes: int, found_before: bool) -> None:
    choice = np.random.default_rng(distinct_hashes % 1_000)
    key_count = 600 if distinct_hashes < 300 else 4_000
    spread = choice.integers(0, distinct_hashes, key_count).astype(np.uint64)
    index = KeyIndex()
    index.grow(key_count)
    stored = np.full(key_count, -1)
    model: dict[int, int] = {}
    while len(model) < key_count - 5:
        keys = choice.integers(0, key_count, int(choice.integers(1, 400)))
        hashes = spread[keys]

        def same_stored(slots: Rows, rows: Rows, keys: Rows = keys) -> npt.NDArray[np.bool_]:
            return stored[slots] == keys[rows]  # type: ignore[no-any-return]

        def same_rows(left: Rows, right: Rows, keys: Rows = keys) -> npt.NDArray[np.bool_]:
            return keys[left] == keys[right]  # type: ignore[no-any-return]

        def allocate(first: Rows, keys: Rows = keys) -> Rows:
            slots = np.arange(len(model), len(model) + len(first))
            stored[slots] = keys[first]
            model.update(zip(keys[first].tolist(), slots.tolist(), strict=True))
            return slots

        slots = index.find(hashes, same_stored)
        assert slots.tolist() == [model.get(key, -1) for key in keys.tolist()]
        missing = np.flatnonzero(slots < 0)
        known = set(model)
        slots[missing], first = index.insert(hashes if found_before else hashes.copy(), missing, same_rows, allocate)
        assert slots.tolist() == [model[key] for key in keys.tolist()]
        for key, is_first in zip(keys[missing].tolist(), first.tolist(), strict=True):
            assert is_first == (key not in known)
            known.add(key)
    assert index.live_count == len(model)


def test_an_arena_is_written_anew_when_half_of_it_is_garbage() -> None:
    column = BytesColumn(pa.string(), nullable=True)
    column.grow(1_000)
    slots = np.arange(1_000)
    column.reset(slots)
    for turn in range(200):
        values = [f"value {turn} of row {row} which is long" if row % 3 else None for row in range(1_000)]
        column.write(slots, pa.array(values, pa.string()))
        column.compact(1_000)
        assert column.byte_size < 4 << 20
    assert column.read(slots[::-1]).to_pylist() == values[::-1]
    column.release(slots[:500])
    column.compact(1_000, urgent=True)
    assert column.read(slots[500:]).to_pylist() == values[500:]
    assert column.byte_size < 100_000


def test_types_without_a_place_in_state_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold"):
        make_column(pa.float16(), nullable=True)


def test_nested_values_come_back_as_they_were() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2)))), ("e", pa.struct([]))])
    values: list[Any] = [None, {"m": None, "e": None}, {"m": [("a", None), ("b", [])], "e": {}}]
    values.append({"m": [("ä" * 9, [None])], "e": {}})
    array: Any = pa.array(values, kind)
    for first, count in ((0, 4), (1, 2), (3, 1), (2, 0)):
        part = array.slice(first, count)
        again = decode(kind, encode(part))
        again.validate(full=True)
        assert again.to_pylist() == part.to_pylist()


def test_prefixes_with_many_rows_that_come_and_go_keep_their_order() -> None:
    choice = np.random.default_rng(3)
    index = PrefixIndex()
    index.grow(200_000)
    model: dict[int, list[int]] = {}
    next_slot = 0
    for _ in range(80):
        prefixes = (choice.integers(0, 400, 2_000) ** 2 // 400).astype(np.int64)
        slots = np.arange(next_slot, next_slot + 2_000)
        next_slot += 2_000
        index.add(slots, hash_columns([pa.array(prefixes)]))
        for prefix, slot in zip(prefixes.tolist(), slots.tolist(), strict=True):
            model.setdefault(prefix, []).append(slot)
        every = [slot for held in model.values() for slot in held]
        gone = set(choice.choice(every, len(every) // 2, replace=False).tolist())
        index.remove(np.array(sorted(gone)))
        model = {p: kept for p, held in model.items() if (kept := [slot for slot in held if slot not in gone])}
        index.compact()
        asked = np.arange(410)
        rows, found = index.find(hash_columns([pa.array(asked)]))
        assert list(zip(rows.tolist(), found.tolist(), strict=True)) == [
            (p, slot) for p in asked.tolist() for slot in model.get(p, [])
        ]


def collect(write: WriteSegments, handles: list[SegmentHandle]) -> None:
    handles.extend(write())


@pytest.mark.parametrize("early_rows", [262_144, 2_000])
def test_a_snapshot_written_by_another_thread_is_the_state_at_the_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early_rows: int
) -> None:
    """The task goes on changing rows in place, removing and making them while the snapshot is read."""
    monkeypatch.setattr("runtime.state.table_snapshot.PRESERVED_ROWS_MAX", early_rows)
    choice = np.random.default_rng(5)
    backend = MemoryStateBackend("op", operator_context(tmp_path))
    keys = pa.schema([("k", pa.int64())])
    table = backend.keyed_table("t", keys, NUMBERS)
    ids = np.arange(50_000)
    slots, _ = table.slots([pa.array(ids)], groups(len(ids)))
    table.numbers(0)[slots] = ids
    table.settle()
    for checkpoint_id in range(1, 4):
        (held,) = list(table.all_slots())
        expected = dict(zip(table.keys(held)[0].to_pylist(), table.numbers(0)[held].tolist(), strict=True))
        write = backend.capture(checkpoint_id)
        handles: list[SegmentHandle] = []
        writer = threading.Thread(target=collect, args=(write, handles))
        writer.start()
        while writer.is_alive():
            some = choice.integers(0, 55_000, 1_000)
            slots, _ = table.slots([pa.array(some)], groups(1_000))
            table.touch(slots)
            table.numbers(0)[slots] += 1
            table.numbers(1)[slots] -= 1
            gone = table.find([pa.array(choice.integers(0, 55_000, 200))], groups(200))
            table.remove(gone[gone >= 0])
            table.settle()
        writer.join()
        restored = MemoryStateBackend("op", operator_context(tmp_path))
        restored._restored = tuple(handles)
        again = restored.keyed_table("t", keys, NUMBERS)
        (held,) = list(again.all_slots())
        assert dict(zip(again.keys(held)[0].to_pylist(), again.numbers(0)[held].tolist(), strict=True)) == expected


def test_a_disk_that_is_full_fails_the_snapshot_and_not_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.state.table_snapshot.PRESERVED_ROWS_MAX", 10)
    backend = MemoryStateBackend("op", operator_context(tmp_path))
    table = backend.keyed_table("t", pa.schema([("k", pa.int64())]), NUMBERS)
    slots, _ = table.slots([pa.array(range(100), pa.int64())], groups(100))
    table.settle()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backend._writer, "write", full)
    write = backend.capture(1)
    table.touch(slots)
    table.settle()
    with pytest.raises(OSError, match="No space"):
        write()
    monkeypatch.undo()
    assert sum(handle.row_count for handle in backend.capture(2)()) == 100
