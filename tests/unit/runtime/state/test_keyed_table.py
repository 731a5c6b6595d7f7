"""Keyed tables of both backends against a dict: look-ups, changes, prefixes, time to live, snapshots, restores."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.key_groups import Hashes, hash_columns
from runtime.state.errors import SegmentError, StateTooLargeError
from runtime.state.rocksdb import table as rocks_table
from runtime.state.segment_chain import EVERYTHING, SnapshotPlan
from tests.unit.runtime.state.tables import BACKENDS, KEY_KINDS, VALUES, Pair, Shape, contents

OTHER = {"hashmap": "rocksdb", "rocksdb": "hashmap"}


def random_shape(choice: random.Random, backend: str, *, ttl: bool = False) -> Shape:
    kinds = tuple(choice.choice(KEY_KINDS) for _ in range(choice.randrange(1, 4)))
    prefix_length = choice.randrange(len(kinds)) if choice.random() < 0.6 else 0
    return Shape(backend, kinds, prefix_length, ttl_ms=100 if ttl else 0)


def cold_rows() -> Any:
    """Memory that holds next to nothing: most rows go to the database and come back."""
    return mock.patch.object(rocks_table.RocksKeyedTable, "_hot_rows_max", return_value=6)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32))
def test_equals_a_dict_and_restores_anywhere_in_either_backend(backend: str, seed: int) -> None:
    choice = random.Random(seed)
    shape = random_shape(choice, backend)
    with tempfile.TemporaryDirectory() as directory, cold_rows():
        pair = Pair(Path(directory), shape)
        for _ in range(12):
            pair.batch(choice, choice.randrange(1, 30), variety=choice.choice((3, 12)))
        assert pair.contents() == pair.expected()
        assert pair.table.row_count == len(pair.model.rows)
        segments = pair.backend.capture(1)()
        pair.close()
        # At another parallelism, in the other backend; order of rows is kept.
        shape = Shape(OTHER[backend], shape.kinds, shape.prefix_length)
        found = []
        for subtask in range(3):
            part = Pair(Path(directory), shape, segments, subtask, 3)
            found += contents(part.table)
            part.close()
        assert sorted(found) == pair.expected()
        whole = Pair(Path(directory), shape, segments)
        whole.model = pair.model
        for _ in range(4):
            whole.batch(choice, choice.randrange(1, 30), variety=6)
        assert whole.contents() == whole.expected()
        whole.close()


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32))
def test_a_snapshot_of_a_table_in_use_is_the_table_at_the_barrier(backend: str, seed: int) -> None:
    choice = random.Random(seed)
    shape = random_shape(choice, backend)
    pieces = mock.patch("runtime.state.table_snapshot.CAPTURED_ROWS", choice.choice((1, 7, 64)))
    with tempfile.TemporaryDirectory() as directory, cold_rows(), pieces:
        pair = Pair(Path(directory), shape)
        for _ in range(6):
            pair.batch(choice, choice.randrange(1, 40), variety=8)
        at_barrier = pair.expected()
        (table,) = pair.backend._tables.values()  # type: ignore[attr-defined]
        capture = table.capture(SnapshotPlan(1, 1, EVERYTHING, ()))
        written = []
        for piece in capture.pieces():
            written.append(piece)
            if choice.random() < 0.7:
                pair.batch(choice, choice.randrange(1, 20), variety=8)
        capture.close()
        rows = [row for piece in written for row in piece.slice(0, piece.num_rows).to_pylist()]
        key_count = len(shape.kinds)
        seen = [
            (
                tuple(row[f"k{i}"] for i in range(key_count)),
                tuple(row[f"v{i} {name}"] for i, name in enumerate(VALUES.names)),
            )
            for row in rows
        ]
        assert sorted(repr(row) for row in seen) == at_barrier
        assert pair.contents() == pair.expected()
        pair.close()


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=6)
@given(seed=st.integers(0, 1 << 32))
def test_expired_rows_are_gone_at_once_and_time_passes_while_a_job_is_down(backend: str, seed: int) -> None:
    choice = random.Random(seed)
    shape = random_shape(choice, backend, ttl=True)
    with tempfile.TemporaryDirectory() as directory, cold_rows():
        pair = Pair(Path(directory), shape)
        for _ in range(12):
            pair.batch(choice, choice.randrange(1, 25), variety=8)
            pair.now_ms += choice.choice((0, 10, 60))
        assert pair.contents() == pair.expected()
        segments = pair.backend.capture(1)()
        pair.close()
        again = Pair(Path(directory), shape, segments)
        again.model, again.now_ms = pair.model, pair.now_ms + 50
        again.table.settle()
        assert again.contents() == again.expected()
        again.batch(choice, 20, variety=8)
        again.now_ms += 1_000
        # The sweep frees what nobody asks for.
        for _ in range(5):
            again.table.settle()
        assert again.table.row_count == 0
        again.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_with_equal_hashes_are_told_apart(backend: str, tmp_path: Path) -> None:
    """Every key hashes to one of two values: only comparing keys keeps them apart."""
    choice = random.Random(7)

    def poor_hash(columns: list[Any], row_count: int | None = None) -> Hashes:
        return hash_columns(columns, row_count) & np.uint64(1 << 63)

    with (
        mock.patch("runtime.state.row_store.hash_columns", poor_hash),
        mock.patch("runtime.state.keyed_table.hash_columns", poor_hash),
        mock.patch("runtime.state.rocksdb.table.hash_columns", poor_hash),
        cold_rows(),
    ):
        for kinds, prefix_length in (((pa.int64(),), 0), ((pa.string(), pa.int32()), 1), ((pa.list_(pa.string()),), 0)):
            pair = Pair(tmp_path, Shape(backend, kinds, prefix_length))
            for _ in range(6):
                pair.batch(choice, 30, variety=25)
            assert pair.contents() == pair.expected()
            pair.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_without_key_columns_has_one_row(backend: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path, Shape(backend, ()))
    slots = pair.slots([(), ()])
    assert slots[0] == slots[1]
    pair.table.settle()
    assert pair.table.row_count == 1
    pair.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_stay_readable_until_the_batch_has_ended(backend: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path, Shape(backend, (pa.string(),)))
    (old,) = pair.slots([("a key that is long enough for the arena",)]).tolist()
    pair.table.remove(pair.find([("a key that is long enough for the arena",)]))
    pair.model.rows.clear()
    (new,) = pair.slots([("another",)]).tolist()
    assert new != old
    assert pair.table.keys(pair.find([("another",)]))[0].to_pylist() == ["another"]
    pair.table.settle()
    pair.close()


def test_time_to_live_may_be_given_to_a_table_that_had_none_and_be_taken_away(tmp_path: Path) -> None:
    pair = Pair(tmp_path, Shape("hashmap", (pa.int64(),)))
    pair.slots([(1,), (2,)])
    segments = pair.backend.capture(1)()
    limited = Pair(tmp_path, Shape("hashmap", (pa.int64(),), ttl_ms=100), segments)
    limited.now_ms += 50
    assert limited.table.row_count == 2
    segments = limited.backend.capture(2)()
    for backend in BACKENDS:
        free = Pair(tmp_path, Shape(backend, (pa.int64(),)), segments)
        free.now_ms += 10_000
        assert free.table.row_count == 2
        free.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_columns_and_damaged_files_are_refused(backend: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path, Shape("hashmap", (pa.int64(),)))
    pair.slots([(i,) for i in range(100)])
    segments = pair.backend.capture(1)()
    with pytest.raises(SegmentError, match="has columns"):
        Pair(tmp_path, Shape(backend, (pa.string(),)), segments)
    path = tmp_path / segments[0].path
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(SegmentError, match="damaged"):
        Pair(tmp_path, Shape(backend, (pa.int64(),)), segments)


def test_above_its_share_a_table_in_memory_fails_by_name(tmp_path: Path) -> None:
    pair = Pair(tmp_path, Shape("hashmap", (pa.int64(),), managed_bytes=200_000))
    with pytest.raises(StateTooLargeError, match=r"operator op takes [\d,]+ bytes, more than its 200,000"):
        pair.slots([(i,) for i in range(10_000)])


def test_a_table_on_disk_keeps_to_its_share(tmp_path: Path) -> None:
    managed = 4 << 20
    pair = Pair(tmp_path, Shape("rocksdb", (pa.int64(), pa.string()), managed_bytes=managed))
    for first in range(0, 60_000, 2_000):
        pair.slots([(i, f"a text that is long enough for the arena {i}") for i in range(first, first + 2_000)])
        pair.table.settle()
        assert pair.backend.byte_size < managed
    assert pair.table.row_count == 60_000
    pair.find([(i, f"a text that is long enough for the arena {i}") for i in range(0, 70_000, 1_000)])
    pair.table.settle()
    pair.close()
