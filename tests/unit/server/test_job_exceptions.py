"""The history of failures as `/jobs/:id/exceptions` shows it."""

from __future__ import annotations

import msgspec

from runtime.api import CheckpointSummary, Failure, FailureEntry, JobId, JobState, JobStatus, TaskFailure
from server.http.job_exceptions import exceptions

LOST = Failure("slot tm1/0/1 is gone: the process was killed by SIGKILL", "internal", True)
WRONG = Failure("malformed record", "user", False, hint="Look at offset 3.")
JOB = JobStatus(JobId("f" * 32), "job", JobState.RUNNING, 1, -1, {"RUNNING": 7}, (), CheckpointSummary(), failure=WRONG)


def entry(failure: Failure, at_ms: int, *concurrent: TaskFailure) -> FailureEntry:
    where = TaskFailure(failure, at_ms, "source -> sink (1/2) - execution #0", "127.0.0.1:5005", "tm1")
    return FailureEntry(where, concurrent)


def test_newest_first_with_what_failed_along() -> None:
    along = TaskFailure(LOST, 21, "sink (2/2) - execution #0")
    job = msgspec.structs.replace(JOB, exceptions=(entry(WRONG, 30), entry(LOST, 20, along)))
    history = exceptions(job, 20)["exceptionHistory"]
    assert history["truncated"] is False
    first, second = history["entries"]
    assert first == {
        "exceptionName": "headrace.user",
        "stacktrace": "malformed record",
        "timestamp": 30,
        "failureLabels": {},
        "taskName": "source -> sink (1/2) - execution #0",
        "endpoint": "127.0.0.1:5005",
        "taskManagerId": "tm1",
        "attributes": {"domain": "user", "hint": "Look at offset 3.", "retry": False},
        "concurrentExceptions": [],
    }
    assert [found["taskName"] for found in second["concurrentExceptions"]] == ["sink (2/2) - execution #0"]
    assert second["concurrentExceptions"][0]["endpoint"] is None


def test_no_more_than_asked_for() -> None:
    job = msgspec.structs.replace(JOB, exceptions=(entry(WRONG, 30), entry(LOST, 20)))
    history = exceptions(job, 1)["exceptionHistory"]
    assert ([e["timestamp"] for e in history["entries"]], history["truncated"]) == ([30], True)
    assert exceptions(msgspec.structs.replace(job, exceptions_truncated=True), 20)["exceptionHistory"]["truncated"]


def test_of_an_earlier_job_manager_the_last_failure_is_known() -> None:
    (found,) = exceptions(JOB, 20)["exceptionHistory"]["entries"]
    assert (found["stacktrace"], found["timestamp"], found["taskName"]) == ("malformed record", 7, None)
    assert exceptions(msgspec.structs.replace(JOB, failure=None), 20)["exceptionHistory"]["entries"] == []
