"""What of a job's failures is kept."""

from __future__ import annotations

from planner.ir.job_graph import EdgeKind
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager.exception_history import CONCURRENT_KEPT, ENTRIES_KEPT, ExceptionHistory
from runtime.jobmanager.job_events import RecordFailure
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.messages import Failure
from tests.support import graphs

LOST = Failure("lost", "external", True)
GRAPH = graphs.graph(
    graphs.vertex(0, graphs.generator(), parallelism=2),
    graphs.vertex(1, graphs.sink(), parallelism=2),
    edges=(graphs.edge(0, 1, EdgeKind.HASH),),
)
SLOT = SlotInfo(SlotId("tm/0/1"), TaskManagerId("tm"), "10.0.0.7", 5005, 0, 1)


def test_what_fails_along_belongs_to_the_root() -> None:
    history = ExceptionHistory()
    attempt = AttemptId(JobId("f" * 32), 1, 1, 1, 3)
    history.add(RecordFailure(LOST, attempt, SLOT), GRAPH, 10)
    history.add(RecordFailure(LOST, attempt, concurrent=True), GRAPH, 11)
    history.add(RecordFailure(LOST), GRAPH, 12)
    newest, first = history.entries
    assert (newest.root.at_ms, newest.root.task, newest.concurrent) == (12, "", ())
    assert first.root.task == "sink (2/2) - execution #3"
    assert (first.root.endpoint, first.root.task_manager_id) == ("10.0.0.7:5005", "tm")
    assert [found.at_ms for found in first.concurrent] == [11]


def test_it_does_not_grow_for_ever() -> None:
    history = ExceptionHistory()
    history.add(RecordFailure(LOST), GRAPH, 0)
    for number in range(CONCURRENT_KEPT + 5):
        history.add(RecordFailure(LOST, concurrent=True), GRAPH, number)
    assert len(history.entries[0].concurrent) == CONCURRENT_KEPT
    assert not history.is_truncated
    for number in range(ENTRIES_KEPT):
        history.add(RecordFailure(LOST), GRAPH, number)
    assert len(history.entries) == ENTRIES_KEPT
    assert history.entries[0].root.at_ms == ENTRIES_KEPT - 1
    assert history.is_truncated
