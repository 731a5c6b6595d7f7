"""Segments: what is written is read back by owned key groups only, and damage is named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange
from runtime.state.errors import SegmentError
from runtime.state.protocol import KEY_GROUP_FIELD
from runtime.state.segments import SegmentWriter, read_owned

FIELDS: list[Any] = [KEY_GROUP_FIELD, pa.field("c0", pa.string()), pa.field("c1", pa.int64())]
SCHEMA = pa.schema(FIELDS)


def rows_of(groups: list[int]) -> pa.RecordBatch:
    ordered = sorted(groups)
    columns: list[Any] = [
        pa.array(ordered, pa.int16()),
        pa.array([f"key {i}" for i in range(len(ordered))]),
        pa.array(range(len(ordered)), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def writer(directory: Path, attempt: str = "a1") -> SegmentWriter:
    return SegmentWriter(LocalFiles(str(directory)), "uid/of: an operator", attempt)


def write(directory: Path, rows: pa.RecordBatch) -> SegmentHandle:
    return writer(directory).write("state", rows, checkpoint_id=1)


def read(directory: Path, handle: SegmentHandle, first: int, last: int) -> list[dict[str, object]]:
    return [
        row
        for batch in read_owned(LocalFiles(str(directory)), handle, KeyGroupRange(first, last))
        for row in batch.to_pylist()
    ]


@given(st.lists(st.integers(0, 31), min_size=1, max_size=60), st.integers(0, 31), st.integers(0, 31))
def test_reads_the_owned_key_groups_only(
    tmp_path_factory: pytest.TempPathFactory, groups: list[int], first: int, last: int
) -> None:
    directory = tmp_path_factory.mktemp("segment")
    rows = rows_of(groups)
    handle = write(directory, rows)
    expected = [row for row in rows.to_pylist() if first <= row["key_group"] <= last]
    assert read(directory, handle, first, last) == expected


def test_large_segments_are_cut_at_borders_of_key_groups(tmp_path: Path) -> None:
    rows = rows_of(np.repeat(np.arange(8), 9_000).tolist())
    handle = write(tmp_path, rows)
    with pa.ipc.open_file(str(tmp_path / handle.path)) as reader:
        assert reader.num_record_batches == 8
        for i in range(reader.num_record_batches):
            assert len(reader.get_batch(i).column(0).unique()) == 1
    assert len(read(tmp_path, handle, 3, 4)) == 18_000


def test_the_handle_describes_the_file(tmp_path: Path) -> None:
    handle = write(tmp_path, rows_of([5, 5, 9]))
    assert handle.path.startswith("state/")
    assert (handle.key_group_first, handle.key_group_last, handle.row_count) == (5, 9, 3)
    assert handle.byte_size == (tmp_path / handle.path).stat().st_size
    assert hashlib.sha256((tmp_path / handle.path).read_bytes()).hexdigest() == handle.checksum
    assert (handle.checkpoint_id, handle.is_delta, handle.is_removal) == (1, False, False)
    assert [path.name for path in (tmp_path / "state").iterdir()] == [Path(handle.path).name]


def test_a_handle_may_name_fewer_key_groups_than_the_file_holds(tmp_path: Path) -> None:
    handle = msgspec.structs.replace(write(tmp_path, rows_of([1, 2, 3, 4])), key_group_first=2, key_group_last=3)
    assert [row["key_group"] for row in read(tmp_path, handle, 0, 31)] == [2, 3]
    assert [row["key_group"] for row in read(tmp_path, handle, 3, 9)] == [3]
    assert read(tmp_path, handle, 4, 9) == []


def test_names_are_never_used_twice(tmp_path: Path) -> None:
    segments = writer(tmp_path)
    rows = rows_of([1])
    paths = {segments.write("state", rows, checkpoint_id=checkpoint_id).path for checkpoint_id in (1, 1, 2)}
    paths.add(writer(tmp_path, "a2").write("state", rows, checkpoint_id=1).path)
    assert len(paths) == 4


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    handle = write(tmp_path, rows_of([1, 2, 3]))
    path = tmp_path / handle.path
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(SegmentError, match=path.name):
        read(tmp_path, handle, 0, 31)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    handle = write(tmp_path, rows_of([1]))
    path = tmp_path / handle.path
    with pa.ipc.open_file(str(path)) as reader:
        rows = reader.get_batch(0)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema.remove_metadata()) as plain:
        plain.write_batch(rows.replace_schema_metadata(None))
    forged = _redescribed(tmp_path, handle)
    with pytest.raises(SegmentError, match="is not a state file"):
        read(tmp_path, forged, 0, 31)


def _redescribed(directory: Path, handle: SegmentHandle) -> SegmentHandle:
    """The handle with the size and checksum the file has now."""
    content = (directory / handle.path).read_bytes()
    return msgspec.structs.replace(handle, byte_size=len(content), checksum=hashlib.sha256(content).hexdigest())
