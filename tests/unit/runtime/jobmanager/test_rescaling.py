"""Between the wish for another parallelism and the next generation: refused without a change, or durable."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner import api
from planner.ir.job_graph import JobGraph
from runtime.api import CheckpointRecord, CheckpointState, CheckpointSummary, JobState, JobStatus, RescaleRefusedError
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.snapshot import OperatorSnapshot, SubtaskSnapshot
from runtime.checkpoint.store import CheckpointStore
from runtime.ids import JobId
from runtime.jobmanager import rescaling
from runtime.jobmanager.rescaling import check_graph, check_slots, rescale
from runtime.jobmanager.services import HelperThread, Services
from runtime.metadata.jobs import JobRecord, JobRecords
from runtime.metadata.store import SqliteMetadataStore
from tests.unit.planner.catalog import Script

JOB = JobId("a" * 32)


def compiled(query: str = "SELECT k, COUNT(*) FROM s GROUP BY k") -> JobGraph:
    script = Script()
    script.run("CREATE TABLE s (k STRING, v INT) WITH ('connector' = 'kafka', 'topic' = 's')")
    script.run("CREATE TABLE o (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka')")
    return script.job(f"INSERT INTO o {query}").job_graph


OLD = compiled()
NEW = api.recompile(OLD, {"parallelism.default": "4"})


class Job:
    """A job's master by hand. `answer`: what comes of the checkpoint that it is asked for."""

    def __init__(self, folder: Path, answer: str = "completed") -> None:
        self.records = JobRecords(SqliteMetadataStore(folder / "metadata.db"))
        self.store = CheckpointStore(str(folder / "checkpoints"))
        self.services = Services(self.records, self.store, None, lambda: None)  # type: ignore[arg-type]
        self.record = JobRecord(JOB, "job", JobState.RUNNING, False, 0, generation=3)
        self.graph = OLD
        self.records.create(self.record, OLD)
        self.state = JobState.RUNNING
        self.checkpoints = CheckpointSummary(latest_completed_id=7)
        self.story: list[str] = []
        self._answer = answer

    @property
    def checkpointing(self) -> Any:
        return self

    def ask(self) -> None:
        self.story.append("asked")
        match self._answer:
            case "completed":
                self.checkpoints = CheckpointSummary(latest_completed_id=8)
            case "failed":
                failed = CheckpointRecord(8, CheckpointState.FAILED, 0, 1, failure="the disk is full")
                self.checkpoints = CheckpointSummary(latest_completed_id=7, latest_failed=failed)
            case "restarts":
                self.state = JobState.RESTARTING
            case "ends":
                self.state = JobState.FINISHED

    def hold(self) -> None:
        self.story.append("held")

    def release(self) -> None:
        self.story.append("released")

    def go_on_with(self, graph: JobGraph) -> None:
        assert self.records.graph(JOB) == graph, "ended before it is durable"
        self.story.append("goes on")

    def status(self) -> JobStatus:
        return JobStatus(JOB, "job", self.state, 0, -1, {}, (), self.checkpoints, generation=3)

    def rescale(self, new: JobGraph = NEW, timeout_ms: int = 10_000) -> list[str]:
        thread = HelperThread("records")
        try:
            asyncio.run(rescale(self, self.services, thread, timeout_ms, new))
        finally:
            thread.close()
        return self.story


def test_checkpoint_then_durable_then_the_next_generation(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.rescale() == ["asked", "held", "goes on", "released"]
    assert job.records.graph(JOB) == NEW


def test_a_job_that_restarts_anyway_needs_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.state = JobState.RESTARTING
    assert job.rescale() == ["held", "goes on", "released"]
    (tmp_path / "other").mkdir()
    job = Job(tmp_path / "other", "restarts")
    assert job.rescale() == ["asked", "held", "goes on", "released"]


@pytest.mark.parametrize(
    ("answer", "message"), [("failed", "the disk is full"), ("ends", "has ended"), ("silent", "within 50 ms")]
)
def test_without_a_checkpoint_nothing_changes(tmp_path: Path, answer: str, message: str) -> None:
    job = Job(tmp_path, answer)
    with pytest.raises(RescaleRefusedError, match=message):
        job.rescale(timeout_ms=50)
    assert job.story == ["asked"]
    assert job.records.graph(JOB) == OLD


def test_what_the_new_graph_could_not_restore_changes_nothing(tmp_path: Path) -> None:
    """A LIMIT counts in one place; its state cannot be cut."""
    job = Job(tmp_path)
    vertex = OLD.vertices[0]
    limited = OperatorSnapshot(vertex.operators[0].uid, data=b"17 rows")
    snapshot = SubtaskSnapshot(vertex.id, vertex.uid, 0, 1, (limited,))
    pointer = job.store.write(CheckpointManifest(JOB, 3, 8, "i", 0, 0, "", 0, (), (snapshot,)))
    job.records.move_pointer(JOB, None, pointer)
    with pytest.raises(RescaleRefusedError, match="was checkpointed at parallelism 1 and cannot change to 4"):
        job.rescale()
    assert job.story == ["asked", "held", "released"]
    assert job.records.graph(JOB) == OLD
    stopped = CheckpointPointer(3, 9, "g3/chk-9/manifest", "", "/sp/savepoint-1")
    job.records.move_pointer(JOB, pointer, stopped)
    job.state = JobState.RESTARTING
    with pytest.raises(RescaleRefusedError, match="has been stopped with a savepoint"):
        job.rescale()
    assert job.records.graph(JOB) == OLD


def test_only_the_same_work_on_the_same_state_is_the_same_job() -> None:
    check_graph(OLD, NEW)
    other = compiled("SELECT k, SUM(v) FROM s GROUP BY k")
    with pytest.raises(RescaleRefusedError, match="this version plans the job differently"):
        check_graph(OLD, other)
    with pytest.raises(RescaleRefusedError, match="this version plans the job differently"):
        check_graph(OLD, compiled("SELECT k, CAST(v AS BIGINT) FROM s"))
    wider = tuple(msgspec.structs.replace(v, max_parallelism=256) for v in NEW.vertices)
    with pytest.raises(RescaleRefusedError, match="would not fit"):
        check_graph(OLD, msgspec.structs.replace(NEW, vertices=wider))
    higher = tuple(msgspec.structs.replace(v, parallelism=200) for v in NEW.vertices)
    with pytest.raises(RescaleRefusedError, match=r"parallelism 200 of .* is above its max parallelism of 128"):
        check_graph(OLD, msgspec.structs.replace(NEW, vertices=higher))
    with pytest.raises(RescaleRefusedError, match="a SELECT"):
        check_graph(msgspec.structs.replace(OLD, is_query=True), NEW)


def test_a_running_job_is_not_made_to_wait_for_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescaling, "SLOT_WAIT_MS", 60)
    job = Job(tmp_path)
    free = iter([1, 2, 3])
    run(check_slots(job, NEW, lambda: next(free)))  # 1 + 3; the others had just been given back.
    with pytest.raises(RescaleRefusedError, match="would need 4 slots, and 3 are there"):
        run(check_slots(job, NEW, lambda: 2))
    job.state = JobState.CREATED
    with pytest.raises(RescaleRefusedError, match="would need 4 slots, and 2 are there"):
        run(check_slots(job, NEW, lambda: 2))
    job.graph = NEW
    run(check_slots(job, OLD, lambda: 0))  # Fewer are always fine, and the way out of waiting.


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)
