"""Going back behind what sinks have committed is refused at the first start from a savepoint."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from planner.ir.job_graph import JobGraph
from runtime.api import JobState
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import CheckpointStore
from runtime.ids import JobId
from runtime.job_settings import CHECKPOINT_RETENTION, RecoverySettings, parse_job_settings
from runtime.jobmanager.preparation import check_savepoint, drop_checkpoints, keeps_checkpoints, refuse_rewind
from runtime.metadata.jobs import JobRecord, JobRecords, SavepointOrigin
from runtime.metadata.store import SqliteMetadataStore

ORIGIN = SavepointOrigin("/sp", JobId("a" * 32), 9)
RECORD = JobRecord(JobId("b" * 32), "job", JobState.CREATED, False, 0, origin=ORIGIN)


def test_a_marker_above_the_savepoint_is_a_rewind() -> None:
    refuse_rewind(RECORD, highest_marker=9, restored_id=9)
    with pytest.raises(RestoreRefusedError, match=r"would go back.*checkpoint 10.* would be repeated") as caught:
        refuse_rewind(RECORD, highest_marker=10, restored_id=9)
    assert "'execution.state-recovery.allow-rewind' = 'true'" in caught.value.hint


def test_it_is_allowed_when_asked_and_looked_at_only_once() -> None:
    allowed = msgspec.structs.replace(ORIGIN, allow_rewind=True)
    refuse_rewind(msgspec.structs.replace(RECORD, origin=allowed), highest_marker=10, restored_id=9)
    refuse_rewind(msgspec.structs.replace(RECORD, origin=None), highest_marker=10, restored_id=9)
    refuse_rewind(msgspec.structs.replace(RECORD, marker_floor=9), highest_marker=10, restored_id=9)


def test_the_checkpoint_of_a_job_that_is_alive_starts_no_other(tmp_path: Path) -> None:
    records = JobRecords(SqliteMetadataStore(tmp_path / "metadata.db"))
    store = CheckpointStore(str(tmp_path / "checkpoints"))
    old = JobId("c" * 32)
    pointer = store.write(CheckpointManifest(old, 1, 4, "i", 0, 0, "", 0, (), ()))
    recovery = RecoverySettings(path=store.location(old, pointer))
    graph = JobGraph("job", (), (), {})
    records.create(JobRecord(old, "old", JobState.RUNNING, False, 0), graph)
    with pytest.raises(RestoreRefusedError, match="which is alive and may remove it"):
        check_savepoint(records, graph, recovery, RECORD)
    records.update(JobRecord(old, "old", JobState.CANCELED, False, 0))
    assert check_savepoint(records, graph, recovery, RECORD).origin == SavepointOrigin(recovery.path, old, 4)


@pytest.mark.parametrize(
    ("retention", "after_failure", "after_cancel"),
    [
        (None, True, False),
        ("NO_EXTERNALIZED_CHECKPOINTS", False, False),
        ("DELETE_ON_CANCELLATION", True, False),
        ("RETAIN_ON_CANCELLATION", True, True),
    ],
)
def test_whose_checkpoints_stay(retention: str | None, after_failure: bool, after_cancel: bool) -> None:
    said = {} if retention is None else {CHECKPOINT_RETENTION: retention}
    graph = JobGraph("job", (), (), said)
    settings = parse_job_settings(said)
    assert keeps_checkpoints(JobState.FAILED, graph, settings) == after_failure
    assert keeps_checkpoints(JobState.CANCELED, graph, settings) == after_cancel
    assert not keeps_checkpoints(JobState.FINISHED, graph, settings)
    # What stays because nobody had said otherwise goes with the job's record.
    assert keeps_checkpoints(JobState.FAILED, graph, settings, forgotten=True) == (after_failure and bool(said))


def test_a_job_that_cannot_be_read_keeps_its_checkpoints(tmp_path: Path) -> None:
    records = JobRecords(SqliteMetadataStore(tmp_path / "metadata.db"))
    store = CheckpointStore(str(tmp_path / "checkpoints"))
    pointer = store.write(CheckpointManifest(RECORD.job_id, 1, 4, "i", 0, 0, "", 0, (), ()))
    ended = msgspec.structs.replace(RECORD, state=JobState.CANCELED)
    drop_checkpoints(records, store, ended, forgotten=True)
    assert store.read(RECORD.job_id, pointer).checkpoint_id == 4
    records.create(ended, JobGraph("job", (), (), {}))
    drop_checkpoints(records, store, ended)
    assert store.files(RECORD.job_id).list("") == []
