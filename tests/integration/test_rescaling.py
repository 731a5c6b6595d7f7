"""A running job goes on at another parallelism, under its own id, over HTTP on a standalone cluster and a real broker.
The read-committed output is exactly what it must be, whatever dies meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from tests.integration.test_savepoints import Pipeline, until, windows
from tests.support.cluster import Cluster, Role
from tests.support.standalone import AWAY, POLL_S, GatewayError, late_rows, request

TIMEOUT_S = 90.0


def parallelism(cluster: Cluster, job_id: str) -> list[int]:
    """Of each vertex."""
    return [vertex["parallelism"] for vertex in cluster.job(job_id)["vertices"]]


def runs_at(cluster: Cluster, job_id: str, wanted: int) -> bool:
    job = cluster.job(job_id)
    return job["state"] == "RUNNING" and {v["parallelism"] for v in job["vertices"]} == {wanted}


@pytest.mark.timeout(240)
def test_up_and_down_while_it_runs(cluster: Cluster, kafka: str) -> None:
    pipeline = Pipeline(cluster, kafka, 24_000)
    job_id = pipeline.start(1, bounded=True)
    pipeline.checkpointed(job_id, 1)
    session = cluster.session()
    for number, (statement, wanted) in enumerate(
        (
            ("SET ('parallelism' = '4')", 4),
            ("SET ('parallelism' = '3')", 3),
            ("RESET ('parallelism')", 1),
        )
    ):
        producer = pipeline.produce(1.0, slice(6_000 * number, 6_000 * (number + 1)))
        time.sleep(0.3)  # Not to wait for anything: so that it is in the middle.
        session.execute(f"ALTER JOB '{job_id}' {statement}")
        until("the new parallelism", lambda wanted=wanted: runs_at(cluster, job_id, wanted))  # type: ignore[misc]
        producer.join()
    with pytest.raises(GatewayError, match="would need 5 slots, and 4 are there"):
        session.execute(f"ALTER JOB '{job_id}' SET ('parallelism' = '5')")
    with pytest.raises(GatewayError, match=r"'129'.*128"):
        session.execute(f"ALTER JOB '{job_id}' SET ('parallelism' = '129')")
    assert runs_at(cluster, job_id, 1)
    restarts = request("GET", f"{cluster.url}/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert restarts == []
    pipeline.produce(0.0, slice(18_000, None)).join()
    job = cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    assert late_rows(job) == 0
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())
    with pytest.raises(GatewayError, match="it has ended"):
        session.execute(f"ALTER JOB '{job_id}' SET ('parallelism' = '2')")


@pytest.mark.parametrize("rounds", [pytest.param(2, id="2"), pytest.param(25, id="25", marks=pytest.mark.chaos)])
@pytest.mark.timeout(900)
def test_a_crash_in_its_middle_ends_in_the_old_or_the_new_parallelism(
    cluster: Cluster, kafka: str, rounds: int
) -> None:
    pipeline = Pipeline(cluster, kafka, 4_000 * (rounds + 1))
    rng = random.Random(rounds)
    roles: tuple[Role, ...] = ("jobmanager", "slot", "jobmanager", "taskmanager")
    job_id = pipeline.start(2, bounded=True)
    now = 2
    for number in range(rounds):
        pipeline.checkpointed(job_id, 1)
        wanted = rng.choice([p for p in (1, 2, 3, 4) if p != now])
        producer = pipeline.produce(1.0, slice(4_000 * number, 4_000 * (number + 1)))
        killer = threading.Timer(rng.uniform(0.0, 0.4), cluster.kill, (roles[number % 4],))
        killer.start()
        was_accepted = _asked_by_rest(cluster, job_id, wanted)
        killer.join()
        until("the job", lambda now=now, wanted=wanted: _runs_at_any(cluster, job_id, now, wanted))  # type: ignore[misc]
        if was_accepted:
            until("the new parallelism", lambda wanted=wanted: runs_at(cluster, job_id, wanted))  # type: ignore[misc]
        now = parallelism(cluster, job_id)[0]
        producer.join()
    pipeline.produce(0.0, slice(4_000 * rounds, None)).join()
    cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())


def _asked_by_rest(cluster: Cluster, job_id: str, wanted: int) -> bool:
    """Whether it was answered; when the JobManager dies meanwhile nobody knows."""
    url = f"{cluster.url}/jobs/{job_id}/resource-requirements"
    try:
        vertices = request("GET", url)
        body: dict[str, Any] = {v: {"parallelism": {"lowerBound": 1, "upperBound": wanted}} for v in vertices}
        request("PUT", url, body)
    except AWAY:
        return False
    return True


def _runs_at_any(cluster: Cluster, job_id: str, old: int, new: int) -> bool:
    """All vertices are at the one or the other, never some at this and some at that."""
    job = cluster.job(job_id, TIMEOUT_S)
    found = {vertex["parallelism"] for vertex in job["vertices"]}
    assert len(found) <= 1, found
    assert found <= {old, new}
    if job["state"] != "RUNNING":
        time.sleep(POLL_S)
    return bool(job["state"] == "RUNNING")
