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
from runtime.job_settings import RecoverySettings
from runtime.jobmanager.preparation import check_savepoint, refuse_rewind
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
