"""The write-ahead file: what is sealed is read back, and damage is noticed."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.api import Committable
from connectors.errors import ConnectorError
from connectors.kafka.epoch_file import EpochFileWriter, EpochReference, read_epoch, record_schema
from runtime.checkpoint.files import LocalFiles


def records(schema: pa.Schema, count: int) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = [
        pa.array([0] * count, pa.int32()),
        pa.nulls(count),
        pa.array([b"%d" % i for i in range(count)]),
        pa.nulls(count),
        pa.nulls(count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def committable(writer: EpochFileWriter, reference: EpochReference, count: int) -> Committable:
    return Committable(0, 1, "g", reference.encode(), count, writer.byte_size, reference.file)


def test_what_is_sealed_is_read_back(tmp_path: Path) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    writer = EpochFileWriter(LocalFiles(str(tmp_path)), "f.arrow", schema)
    writer.write(records(schema, 5))
    writer.write(records(schema, 3))
    assert writer.record_count == 8
    sealed = writer.seal("t")
    assert sealed is not None
    assert (sealed.topic, sealed.file) == ("t", "epochs/f.arrow")
    size = (tmp_path / "epochs" / "f.arrow").stat().st_size
    assert writer.byte_size == size
    batches = list(read_epoch(committable(writer, sealed, 8), LocalFiles(str(tmp_path)), verify=True))
    assert [batch.num_rows for batch in batches] == [5, 3]
    assert batches[0].column(2).to_pylist() == [b"0", b"1", b"2", b"3", b"4"]


def test_an_empty_epoch_has_no_file(tmp_path: Path) -> None:
    writer = EpochFileWriter(
        LocalFiles(str(tmp_path)), "f.arrow", record_schema(keys=True, timestamps=True, headers=True)
    )
    assert writer.seal("t") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_discarded_file_is_gone(tmp_path: Path) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    writer = EpochFileWriter(LocalFiles(str(tmp_path)), "f.arrow", schema)
    writer.write(records(schema, 5))
    writer.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_name_is_never_used_twice(tmp_path: Path) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "f.arrow").write_bytes(b"another epoch")
    with pytest.raises(FileExistsError):
        EpochFileWriter(LocalFiles(str(tmp_path)), "f.arrow", schema).write(records(schema, 5))


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    writer = EpochFileWriter(LocalFiles(str(tmp_path)), "f.arrow", schema)
    writer.write(records(schema, 500))
    sealed = writer.seal("t")
    assert sealed is not None
    path = tmp_path / "epochs" / "f.arrow"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    else:
        del content[-20:]
    path.write_bytes(content)
    with pytest.raises(ConnectorError, match="damaged"):
        list(read_epoch(committable(writer, sealed, 500), LocalFiles(str(tmp_path)), verify=True))


def test_files_of_earlier_versions_are_checked_by_their_crc(tmp_path: Path) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    files = LocalFiles(str(tmp_path))
    writer = EpochFileWriter(files, "f.arrow", schema)
    writer.write(records(schema, 5))
    sealed = writer.seal("t")
    assert sealed is not None
    crc32 = zlib.crc32((tmp_path / "epochs" / "f.arrow").read_bytes())
    early = EpochReference("t", sealed.file, crc32)
    (batch,) = read_epoch(committable(writer, early, 5), files, verify=True)
    assert batch.num_rows == 5
    wrong = EpochReference("t", sealed.file, crc32 ^ 1)
    with pytest.raises(ConnectorError, match="checksum"):
        list(read_epoch(committable(writer, wrong, 5), files, verify=True))


def test_markers_show_the_beginning_of_the_checksum(tmp_path: Path) -> None:
    schema = record_schema(keys=False, timestamps=False, headers=False)
    writer = EpochFileWriter(LocalFiles(str(tmp_path)), "f.arrow", schema)
    writer.write(records(schema, 5))
    sealed = writer.seal("t")
    assert sealed is not None
    assert sealed.sha256 == hashlib.sha256((tmp_path / "epochs" / "f.arrow").read_bytes()).hexdigest()
    assert f"{sealed.crc32:08x}" == sealed.sha256[:8]
