"""Rounds of kill -9 over one long-lived cluster with several jobs: of any process, sometimes in the middle of a
recovery, of a savepoint or of a rescale. `HEADRACE_CHAOS_SEED` gives other events and other faults,
`HEADRACE_CHAOS_ROUNDS` another number of rounds to `make chaos`."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import pytest

from tests.support.cluster import Cluster, Role
from tests.support.standalone import AWAY, request
from tests.support.topics import open_transactions, unique_name

SEED = int(os.environ.get("HEADRACE_CHAOS_SEED", "1"))
ROUNDS = int(os.environ.get("HEADRACE_CHAOS_ROUNDS", "200"))
ROUND_TIMEOUT_S = 120.0
FEED_S = 1.5
UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
}
ROLES: tuple[Role, ...] = ("slot", "slot", "taskmanager", "jobmanager")
Moment = Literal["running", "recovering", "savepoint", "rescale"]
MOMENTS: tuple[Moment, ...] = ("running", "running", "recovering", "savepoint", "rescale")
T = TypeVar("T")


def in_rounds(few: int) -> pytest.MarkDecorator:
    """Parametrise a test by `rounds`: a few always, many in `make chaos`."""
    many = pytest.param(ROUNDS, id="many", marks=[pytest.mark.chaos, pytest.mark.timeout(7200)])
    return pytest.mark.parametrize("rounds", [pytest.param(few, id=str(few), marks=pytest.mark.timeout(400)), many])


class Job:
    """A job that is fed round by round, and what its output must be."""

    parallelism_max = 2

    def __init__(self, cluster: Cluster, kafka: str) -> None:
        self.cluster, self.kafka = cluster, kafka
        self.prefix = unique_name("eos")
        self.parallelism = 1
        self.job_id = ""

    def feed(self, number: int, duration_s: float, last: bool) -> threading.Thread:
        """Start to send the input of a round; of all that is left, if it is the last."""
        raise NotImplementedError

    def check(self, kills: list[str]) -> None:
        """Of the job that has ended; the kills are for the message."""
        assert open_transactions(self.kafka, self.prefix) == [], kills

    @property
    def url(self) -> str:
        return f"{self.cluster.url}/jobs/{self.job_id}"

    def latest_checkpoint(self) -> int:
        """Id of the last completed one that the JobManager remembers; 0 = none since it started."""
        latest = request("GET", f"{self.url}/checkpoints")["latest"]["completed"]
        return 0 if latest is None else int(latest["id"])

    def runs(self) -> bool:
        job = request("GET", self.url)
        assert job["state"] not in ("FAILED", "CANCELED", "FINISHED"), job
        return bool(job["state"] == "RUNNING")


def part_of(number: int, last: bool, size: int) -> slice:
    """What round `number` sends of a list, `size` to a round."""
    return slice(size * number, None if last else size * (number + 1))


class Rounds:
    """`jobs` have been started, and together never take more than the cluster's slots."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.cluster, self.jobs = cluster, jobs
        self.rng = random.Random(SEED)
        self._moments = _dealt(self.rng, MOMENTS)
        self._roles = _dealt(self.rng, ROLES)
        self.kills: list[str] = []

    def run(self, count: int) -> list[str]:
        """Feed and strike, then see every job through to its end and check it. What was killed, and when."""
        self.settle()
        for number in range(count):
            feeding = [job.feed(number, FEED_S, last=False) for job in self.jobs]
            self.strike(next(self._moments))
            self.settle()
            for producer in feeding:
                producer.join()
        for producer in [job.feed(count, 0.0, last=True) for job in self.jobs]:
            producer.join()
        for job in self.jobs:
            self.cluster.wait_for_job(job.job_id, "FINISHED", ROUND_TIMEOUT_S)
            job.check(self.kills)
        return self.kills

    def settle(self) -> None:
        """All jobs run, and each has completed a checkpoint that was triggered after now."""
        deadline = time.monotonic() + ROUND_TIMEOUT_S
        for job in self.jobs:
            known: int | None = None
            while True:
                try:
                    if job.runs():
                        latest = job.latest_checkpoint()
                        # One may have been under way.
                        known = latest if known is None else known
                        if latest > known + 1:
                            break
                except AWAY:
                    pass  # The JobManager is away.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{job.url} after {self.kills}\n{self.cluster.tail(200)}")
                time.sleep(0.05)

    def strike(self, moment: Moment) -> None:
        victim = self.rng.choice(self.jobs)
        if moment == "savepoint":
            body = {"target-directory": str(self.cluster.data / "savepoints")}
            threading.Thread(target=_ask, args=("POST", f"{victim.url}/savepoints", body), daemon=True).start()
        elif moment == "rescale":
            wanted = self.rng.choice([p for p in range(1, victim.parallelism_max + 1) if p != victim.parallelism])
            threading.Thread(target=_rescale, args=(victim, wanted), daemon=True).start()
        self.kill(moment, self.rng.uniform(0.0, 0.8))
        if moment == "recovering":
            self.kill("again", self.rng.uniform(0.0, 2.0))

    def kill(self, moment: str, delay_s: float) -> None:
        time.sleep(delay_s)  # The moment of the fault, not to wait for anything.
        role = next(self._roles)
        if self.cluster.kill(role, self.rng.randrange(8)) is not None:
            self.kills.append(f"{moment}: {role}")
            print(f"{time.monotonic():.1f} s, {self.kills[-1]}", flush=True)


def _dealt(rng: random.Random, cards: Sequence[T]) -> Iterator[T]:
    """Each of them once in any order, then again: a few rounds have met all."""
    while True:
        yield from rng.sample(cards, len(cards))


def _ask(method: str, url: str, body: dict[str, Any]) -> None:
    try:
        request(method, url, body)
    except AWAY:
        pass  # Its JobManager died meanwhile, or the job cannot do it just now: the round goes on all the same.


def _rescale(job: Job, wanted: int) -> None:
    url = f"{job.url}/resource-requirements"
    try:
        bounds = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": wanted}} for vertex in request("GET", url)}
        request("PUT", url, bounds)
        job.parallelism = wanted
    except AWAY:
        pass  # As above.
