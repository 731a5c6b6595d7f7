"""What every place of checkpoint files must do, whatever it is made of."""

from __future__ import annotations

import hashlib
import random
from typing import Any, cast

import pyarrow as pa
import pytest

from runtime.checkpoint.files import JobFiles, checksum, copy, read_bytes, write_bytes


class FilesContract:
    """`large` is longer than the place's pieces."""

    large = random.Random(1).randbytes(3_000_000)

    @pytest.fixture
    def files(self) -> JobFiles:
        raise NotImplementedError

    @pytest.mark.parametrize("is_large", [False, True])
    def test_what_is_sealed_is_read_back(self, files: JobFiles, is_large: bool) -> None:
        data = self.large if is_large else b"a few bytes"
        writer = files.create("state/deep/er/a.arrow")
        for first in range(0, len(data), 100_000):
            writer.write(data[first : first + 100_000])
        assert files.list("") == []
        sealed = writer.seal()
        assert writer.closed
        assert (sealed.path, sealed.byte_size) == ("state/deep/er/a.arrow", len(data))
        assert sealed.checksum == hashlib.sha256(data).hexdigest() == checksum(files, sealed.path)
        assert files.byte_size(sealed.path) == len(data)
        assert read_bytes(files, sealed.path) == data
        writer.discard()  # Does nothing any more.
        assert [(f.path, f.byte_size, f.checksum) for f in files.list("state")] == [(sealed.path, len(data), "")]
        with pytest.raises(ValueError, match="closed"):
            writer.write(b"more")

    def test_an_empty_file(self, files: JobFiles) -> None:
        assert write_bytes(files, "committed", b"").byte_size == 0
        assert read_bytes(files, "committed") == b""

    @pytest.mark.parametrize("is_large", [False, True])
    def test_nothing_stays_of_what_is_given_up(self, files: JobFiles, is_large: bool) -> None:
        writer = files.create("state/a")
        writer.write(self.large if is_large else b"x")
        writer.discard()
        writer.discard()
        assert writer.closed
        forgotten = files.create("state/b")
        forgotten.write(b"x")
        del forgotten
        assert files.list("") == []
        assert files.unsealed() == []

    @pytest.mark.parametrize("is_large", [False, True])
    def test_a_name_is_never_used_twice(self, files: JobFiles, is_large: bool) -> None:
        first, second = files.create("state/a"), files.create("state/a")
        first.write(b"the first")
        second.write(self.large if is_large else b"the second")
        first.seal()
        with pytest.raises(FileExistsError):
            second.seal()
        with pytest.raises(FileExistsError):
            write_bytes(files, "state/a", b"the third")
        assert read_bytes(files, "state/a") == b"the first"
        assert [stored.path for stored in files.list("")] == ["state/a"]

    def test_any_stretch_can_be_read(self, files: JobFiles) -> None:
        write_bytes(files, "a", self.large)
        dice = random.Random(2)
        with files.open("a") as file:
            assert file.size() == len(self.large)
            for _ in range(30):
                first = dice.randrange(len(self.large))
                file.seek(first)
                size = dice.choice([0, 1, 10, 5_000, 400_000])
                assert file.read(size) == self.large[first : first + size]
            file.seek(0)
            assert b"".join(iter(lambda: file.read(100_000), b"")) == self.large

    def test_arrow_writes_and_reads(self, files: JobFiles) -> None:
        batch = pa.record_batch({"a": pa.array(range(10_000)), "b": pa.array([f"text {i}" for i in range(10_000)])})
        writer = files.create("a.arrow")
        with pa.ipc.new_file(cast(Any, writer), batch.schema) as target:
            for first in range(0, 10_000, 1_000):
                target.write_batch(batch.slice(first, 1_000))
        writer.seal()
        with files.open("a.arrow") as source, pa.ipc.open_file(source) as reader:
            assert reader.get_batch(7).equals(batch.slice(7_000, 1_000))

    def test_listing_deleting_clearing(self, files: JobFiles) -> None:
        for path in ("g1/chk-1/manifest", "g1/chk-12/manifest", "state/a", "state/b"):
            write_bytes(files, path, b"x")
        assert [stored.path for stored in files.list("g1/chk-1")] == ["g1/chk-1/manifest"]
        assert sorted(stored.path for stored in files.list("state")) == ["state/a", "state/b"]
        assert files.list("nothing") == []
        files.delete("state/a")
        files.delete("state/a")
        assert sorted(stored.path for stored in files.list("")) == [
            "g1/chk-1/manifest",
            "g1/chk-12/manifest",
            "state/b",
        ]
        files.clear()
        files.clear()
        assert files.list("") == []
        write_bytes(files, "state/a", b"again")

    def test_what_is_not_there_is_named(self, files: JobFiles) -> None:
        for call in (files.open, files.byte_size):
            with pytest.raises(FileNotFoundError, match="No such file or directory"):
                call("state/a")
        with pytest.raises(FileNotFoundError):
            copy(files, files, "state/a")

    def test_paths_stay_inside(self, files: JobFiles) -> None:
        for path in ("../a", "/a", "a//b", "a/./b", ".hidden", "a/", ""):
            with pytest.raises(ValueError, match="no path of a checkpoint file"):
                files.create(path)
