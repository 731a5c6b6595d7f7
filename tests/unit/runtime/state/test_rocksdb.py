"""What the rocksdb backend relies on in the library, and its windows."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.state.backends import open_backend
from runtime.state.memory import MemoryStateBackend
from runtime.state.protocol import KeyedStateBackend, WindowState
from runtime.state.rocksdb.backend import RocksStateBackend
from runtime.state.rocksdb.database import Database, divide
from tests.support.window_harness import operator_context
from tests.unit.runtime.state.test_memory import SCHEMA, block, reduce


def test_a_view_shows_the_family_as_it_was_in_any_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    database = Database(divide(4 << 20))
    family = database.family("rows")
    names = [number.to_bytes(4, "big") for number in range(5_000)]
    family.put(names, [b"old"] * len(names))
    view = family.view()
    family.put(names, [b"new"] * len(names))
    family.delete(names[::2])
    family.delete_range(names[100], names[200])
    family._rows.flush()
    family._rows.compact_range(None, None)
    found: dict[bytes, bytes] = {}

    def read() -> None:
        for keys, values in view.pieces():
            found.update(zip(keys, values, strict=True))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == dict.fromkeys(names, b"old")
    assert family.get([names[0], names[1], names[101]]) == [None, b"new", None]
    view.close()
    assert list(view.pieces()) == []
    database.close()
    assert list(tmp_path.iterdir()) == []


def test_prefixes_are_read_whole_and_in_order() -> None:
    database = Database(divide(0))
    family = database.family("rows", prefix_bytes=2)
    family.put([b"aa2", b"ab1", b"aa1", b"b"], [b"2", b"x", b"1", b"y"])
    assert family.scan_prefix(b"aa") == ([b"aa1", b"aa2"], [b"1", b"2"])
    assert family.scan_prefix(b"ac") == ([], [])
    other = database.family("others", prefix_bytes=2)
    assert other.scan_prefix(b"aa") == ([], [])
    database.close()


def windows(
    directory: Path, backend: str, managed_bytes: int = 0, segments: tuple[SegmentHandle, ...] = ()
) -> tuple[KeyedStateBackend, WindowState]:
    restore = OperatorRestore("op", segments=segments) if segments else None
    context = operator_context(directory, restore=restore, managed_bytes=managed_bytes)
    opened = open_backend("op", msgspec.structs.replace(context, settings={"state.backend.type": backend}))
    return opened, opened.window_state("sums", SCHEMA, reduce)


def rows_of(state: WindowState) -> list[tuple[int, list[tuple[int, ...]]]]:
    return [(end, sorted(tuple(row.values()) for row in state.merge(end).to_pylist())) for end in state.ends()]


def test_windows_above_their_share_go_to_disk_and_come_back_merged(tmp_path: Path) -> None:
    choice = random.Random(1)
    in_memory, plain = windows(tmp_path / "a", "hashmap")
    on_disk, spilled = windows(tmp_path / "b", "rocksdb", managed_bytes=40_000)
    for _ in range(60):
        end = choice.choice((-10, 0, 10, 20))
        keys = [choice.randrange(2_000) for _ in range(200)]
        rows = block(*((key % 16, key, choice.randrange(100)) for key in keys))
        for state in (plain, spilled):
            state.append(end, rows)
    assert on_disk.byte_size < 40_000 < in_memory.byte_size
    assert spilled.ends() == [-10, 0, 10, 20]
    write = on_disk.capture(1)
    spilled.keep_rest(0, None)
    plain_then = dict(rows_of(plain))
    assert dict(rows_of(spilled)) == {end: rows for end, rows in plain_then.items() if end != 0}
    for end in (-10, 10, 20):
        rest = spilled.merge(end).slice(1_000)
        spilled.keep_rest(end, rest)
        assert spilled.merge(end).num_rows == rest.num_rows
        spilled.keep_rest(end, None)
    assert spilled.ends() == []
    # The snapshot is the state at its barrier, for either backend.
    segments = write()
    for backend in ("hashmap", "rocksdb"):
        again, state = windows(tmp_path / "b", backend, 0, segments)
        assert dict(rows_of(state)) == plain_then
        again.close()
    on_disk.close()


def test_the_backend_is_a_setting(tmp_path: Path) -> None:
    context = operator_context(tmp_path)
    assert isinstance(open_backend("op", context), MemoryStateBackend)
    context = msgspec.structs.replace(context, settings={"state.backend.type": "RocksDB"})
    opened = open_backend("op", context)
    assert isinstance(opened, RocksStateBackend)
    opened.close()


def test_states_of_one_operator_are_restored_by_name(tmp_path: Path) -> None:
    for backend in ("hashmap", "rocksdb"):
        settings = {"state.backend.type": backend}
        opened = open_backend("op", msgspec.structs.replace(operator_context(tmp_path / backend), settings=settings))
        keys, values = pa.schema([("k", pa.int64())]), pa.schema([pa.field("v", pa.int64(), nullable=False)])
        for name, count in (("a", 3), ("b", 5)):
            table = opened.keyed_table(name, keys, values)
            table.slots([pa.array(range(count), pa.int64())], np.zeros(count, dtype=np.int16))
            table.settle()
        restore = OperatorRestore("op", segments=opened.capture(1)())
        opened.close()
        again = open_backend("op", operator_context(tmp_path / backend, restore=restore))
        assert [again.keyed_table(name, keys, values).row_count for name in ("b", "a")] == [5, 3]
        again.close()
