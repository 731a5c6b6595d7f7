"""Checkpoint files in an S3 bucket of a real server, and a whole cluster that keeps its checkpoints there."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pyarrow as pa
import pytest

from runtime.checkpoint import object_store
from runtime.checkpoint.files import JobFiles, open_files, read_bytes, write_bytes
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.snapshot import OperatorSnapshot, SegmentHandle, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import AttemptId, JobId
from tests.integration.test_savepoints import Pipeline, _answers, _stopped_by_rest, until, windows
from tests.support.cluster import Cluster
from tests.support.s3 import S3Server
from tests.support.standalone import request
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


def test_checkpoints_of_a_job_in_a_bucket(s3: S3Server, bucket: str) -> None:
    """Manifests are written once, what is damaged is named, shared files outlive the checkpoint that wrote them."""
    store = CheckpointStore(f"s3://{bucket}/all")
    job = JobId("a" * 32)

    def manifest(number: int, *names: str) -> CheckpointManifest:
        handles = []
        for name in names:
            path = f"state/{AttemptId(job, 1, 0, 0, 0)}-{name}"
            if path not in [stored.path for stored in store.files(job).list("")]:
                write_bytes(store.files(job), path, name.encode())
            checksum = hashlib.sha256(name.encode()).hexdigest()
            handles.append(SegmentHandle(path, "s", 0, 127, 1, len(name), checksum))
        snapshot = SubtaskSnapshot(0, "v", 0, 1, (OperatorSnapshot("op", segments=tuple(handles)),))
        return CheckpointManifest(job, 1, number, "i", 0, 0, "", 0, (), (snapshot,))

    first, second = manifest(1, "base", "old"), manifest(2, "base", "new")
    pointers = [store.write(first), store.write(second)]
    with pytest.raises(FileExistsError):
        store.write(msgspec.structs.replace(second, parent_id=1))
    assert store.write_again(second) == pointers[1]
    assert store.read(job, pointers[1]) == second
    store.remove(first, [second])
    store.verify(job, second.files)
    assert sorted(stored.path.rpartition("-")[2] for stored in store.files(job).list("state")) == ["base", "new"]
    manifest(3, "orphan")
    assert store.sweep(job, [(pointers[1], second)], 1) == 0
    assert store.sweep(job, [(pointers[1], second)], 2) == 1
    path = s3.object_path(bucket, f"all/{job}/{second.files[1].path}")
    path.write_bytes(b"neW")
    store.check(job, second.files)
    with pytest.raises(DamagedCheckpointError, match="new: checksum mismatch"):
        store.verify(job, second.files)
    path.write_bytes(b"ne")
    with pytest.raises(DamagedCheckpointError, match="2 bytes instead of 3"):
        store.check(job, second.files)
    path.unlink()
    with pytest.raises(DamagedCheckpointError, match="new: No such file") as missing:
        store.check(job, second.files)
    assert missing.value.damaged_file == second.files[1].path
    store.drop_job(job)
    assert store.files(job).list("") == []


@pytest.mark.timeout(240)
def test_a_job_recovers_and_goes_on_from_a_savepoint_in_a_bucket(s3: S3Server, kafka: str, tmp_path: Path) -> None:
    """State, write-ahead files, manifests and savepoints all lie in the bucket; every process dies once."""
    bucket = s3.create_bucket()
    settings = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key": s3.environment["AWS_ACCESS_KEY_ID"],
        "s3.path.style.access": "true",
        "jobmanager.checkpoint-directory": f"s3://{bucket}/checkpoints",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment = {"HEADRACE_S3_SECRET_KEY": s3.environment["AWS_SECRET_ACCESS_KEY"]}
    with Cluster(tmp_path / "data", taskmanagers=2, slots=2, flags=flags, environment=environment) as cluster:
        pipeline = Pipeline(cluster, kafka, 9_000)
        pipeline.directory = f"s3a://{bucket}/savepoints"
        job_id = pipeline.start(2, bounded=True)
        pipeline.checkpointed(job_id, 1)
        producer = pipeline.produce(1.0, slice(0, 3_000))
        cluster.kill("slot")
        producer.join()
        pipeline.checkpointed(job_id, 4)
        cluster.kill("jobmanager")
        producer = pipeline.produce(1.0, slice(3_000, 6_000))
        until("the server", lambda: _answers(f"{cluster.url}/readyz"))
        cluster.wait_for_job(job_id, "RUNNING", 60)
        producer.join()
        savepoint = _stopped_by_rest(pipeline, job_id)
        assert savepoint.startswith(f"s3://{bucket}/savepoints/savepoint-{job_id[:6]}-")
        job_id = pipeline.start(3, savepoint, bounded=True)
        pipeline.produce(0.0, slice(6_000, None)).join()
        cluster.wait_for_job(job_id, "FINISHED", 60)
        found, expected = windows(pipeline.rows()), pipeline.expected()
        assert (found - expected, expected - found) == (Counter(), Counter())
        assert list(cluster.data.rglob("manifest")) == []
        objects = s3.data_dir / "objects" / bucket
        assert list(objects.glob("checkpoints/*/state/*")) == []  # They go with their job.
        assert [path.name for path in objects.glob("savepoints/*/manifest")] == ["manifest"]
        listed = cluster.session().execute(f"SHOW SAVEPOINTS FOR JOB '{savepoint_job(savepoint, cluster)}'").rows
        assert [row[0] for row in listed] == [savepoint]
        cluster.session().execute(f"DROP SAVEPOINT '{savepoint}'")
        assert list(objects.glob("savepoints/*/*")) == []
        assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in cluster.log.read_text()


def savepoint_job(savepoint: str, cluster: Cluster) -> str:
    start = savepoint.rpartition("savepoint-")[2][:6]
    return str(next(j["jid"] for j in request("GET", f"{cluster.url}/jobs/overview")["jobs"] if j["jid"][:6] == start))
