"""Checkpoint files in an S3 bucket of a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import obstore
import pyarrow as pa
import pytest

from runtime.checkpoint import object_store
from runtime.checkpoint.files import JobFiles, open_files, read_bytes, write_bytes
from tests.support.s3 import S3Server
from tests.unit.runtime.checkpoint.files_contract import FilesContract


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    object_store._connect.cache_clear()
    yield s3.create_bucket()
    object_store._connect.cache_clear()


class TestBucket(FilesContract):
    large = random.Random(1).randbytes(2 * object_store.PART_BYTES + 1_000_000)

    @pytest.fixture
    def files(self, bucket: str) -> JobFiles:
        return open_files(f"s3a://{bucket}/jobs/one")


def test_a_reader_fetches_what_it_needs(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(f"s3://{bucket}/a")
    batch = pa.record_batch({"a": pa.array(range(200_000))})
    writer: Any = files.create("a.arrow")
    with pa.ipc.new_file(writer, batch.schema) as target:
        for _ in range(20):
            target.write_batch(batch)
    assert writer.seal().byte_size > 30_000_000
    fetched: list[int] = []
    get_range = obstore.get_range

    def counted(store: Any, path: str, *, start: int, end: int) -> Any:
        fetched.append(end - start)
        return get_range(store, path, start=start, end=end)

    monkeypatch.setattr(obstore, "get_range", counted)
    with files.open("a.arrow") as source, pa.ipc.open_file(source) as reader:
        assert reader.get_batch(13).equals(batch)
    assert sum(fetched) < 2_000_000
    assert len(fetched) <= 4
    fetched.clear()
    with files.open("a.arrow") as source:
        while source.read(1 << 20):
            pass
    assert len(fetched) <= 6  # Long stretches from front to back.


def test_a_put_whose_answer_was_lost_has_succeeded(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(f"s3://{bucket}/a")
    put = obstore.put

    def twice(*arguments: Any, **options: Any) -> Any:
        put(*arguments, **options)
        return put(*arguments, **options)

    monkeypatch.setattr(obstore, "put", twice)
    write_bytes(files, "manifest", b"mine")
    with pytest.raises(FileExistsError):
        write_bytes(files, "manifest", b"another's")
    assert read_bytes(files, "manifest") == b"mine"


def test_errors_say_what_is_wrong(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="the bucket does not exist") as missing:
        write_bytes(open_files("s3://no-such-bucket-here"), "a", b"x")
    assert missing.value.filename == "s3://no-such-bucket-here/a"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    object_store._connect.cache_clear()
    with pytest.raises(PermissionError) as refused:
        write_bytes(open_files(f"s3://{bucket}"), "a", b"x")
    assert "wrong" not in str(refused.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setitem(object_store._RETRIES, "max_retries", 1)
    object_store._connect.cache_clear()
    with pytest.raises(OSError, match="error sending request"):
        open_files(f"s3://{bucket}").byte_size("a")


def test_the_client_is_told_what_the_environment_says() -> None:
    amazon: dict[str, str] = {}
    assert object_store.s3_options(amazon, "b") == {"virtual_hosted_style_request": "true"}
    own = {"AWS_ENDPOINT_URL": "https://minio:9000/"}
    assert object_store.s3_options(own, "b") == {
        "virtual_hosted_style_request": "false",
        "endpoint": "https://minio:9000",
    }
    hosted = {**own, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert object_store.s3_options(hosted, "b")["endpoint"] == "https://b.minio:9000"


@pytest.mark.parametrize("uri", ["gs://bucket/a", "az://container/a"])
def test_other_providers_are_set_up_by_their_own_variables(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is made: whether the client can be made is all that is checked here."""
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    files = open_files(uri)
    assert files._store is not None  # type: ignore[attr-defined]
    assert files.locate("x") == f"{uri}/x"
