"""Splits of tasks that restart: given again, unless the checkpoint has them."""

from __future__ import annotations

import asyncio

from connectors.api import Split, SplitState
from planner.ir.job_graph import EdgeKind
from planner.ir.operators import Source
from runtime.checkpoint.recovery import RestorePlan, plan_restore
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager.execution_graph import ExecutionGraph
from runtime.jobmanager.job_events import RequestSlots
from runtime.jobmanager.preparation import Outside, SourceSplits
from runtime.jobmanager.scheduler import SlotInfo
from runtime.jobmanager.services import HelperThread
from runtime.jobmanager.split_assigner import SplitAssigner
from runtime.protocol.messages import AssignSplits, ToSlot
from tests.support import graphs

JOB = JobId("f" * 32)
GRAPH = graphs.graph(
    graphs.vertex(0, graphs.generator(), parallelism=2),
    graphs.vertex(1, graphs.sink(), parallelism=2),
    edges=(graphs.edge(0, 1, EdgeKind.FORWARD),),
)


def split(name: str) -> SplitState:
    return SplitState(Split(name, b""))


class Slots:
    """A SlotProvider that notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[AttemptId, list[str], bool]] = []

    def send(self, slot: SlotInfo, message: ToSlot) -> None:
        assert isinstance(message, AssignSplits)
        self.sent.append((message.attempt, [s.split.id for s in message.splits], message.all_assigned))

    def request_slots(self, job_id: JobId, request: RequestSlots) -> None: ...

    def withdraw_request(self, job_id: JobId, number: int) -> None: ...

    def return_slots(self, job_id: JobId, slots: tuple[SlotInfo, ...]) -> None: ...

    def release_slots(self, job_id: JobId) -> None: ...

    def take(self) -> list[tuple[AttemptId, list[str], bool]]:
        taken, self.sent = self.sent, []
        return taken


class Discovered(Outside):
    """Gives one more split each time it is asked."""

    def __init__(self) -> None:
        self.found = 0

    def discover(self, source: Source, known: frozenset[str]) -> tuple[SplitState, ...]:
        self.found += 1
        return (split(f"new-{self.found}"),)


def plan(*known: str) -> RestorePlan:
    empty = plan_restore(GRAPH, None, {})
    return RestorePlan(7, empty.operators, frozenset(), {"source": tuple(map(split, known))}, {})


def test_a_restarted_task_gets_what_its_checkpoint_does_not_hold() -> None:
    async def story() -> None:
        execution = ExecutionGraph(GRAPH, JOB, 1)
        slots = tuple(SlotInfo(SlotId(f"tm/{i}/1"), TaskManagerId("tm"), "host", 1, 0, 0) for i in range(2))
        execution.assign({"default": slots})
        provider, outside, thread = Slots(), Discovered(), HelperThread("test")
        given = ((split("a"), split("c")), (split("b"),))
        found = {"source": SourceSplits(given, frozenset("abc"), discovery_interval_ms=1)}
        assigner = SplitAssigner(provider, execution, found, outside, thread, fail=lambda failure: None)
        assigner.assign(execution.attempts, plan())
        first, second = execution.attempt(0, 0), execution.attempt(0, 1)
        assert provider.take() == [(first, ["a", "c"], False), (second, ["b"], False)]
        # Region 0 is lost; what is found meanwhile for its task waits, the other's is sent.
        assigner.lost((first, execution.attempt(1, 0)))
        assigner.start_discovery()
        async with asyncio.timeout(20):
            while outside.found < 4:
                await asyncio.sleep(0.01)
        assigner.stop()
        assert {attempt for attempt, _, _ in provider.take()} == {second}
        restarted = execution.replace([(0, 0), (1, 0)])
        assigner.assign(restarted, plan("a", "b"))
        ((attempt, ids, _),) = provider.take()
        assert attempt == execution.attempt(0, 0) != first
        assert ids[0] == "c"
        assert ids[1:] == [f"new-{n}" for n in range(2, outside.found + 1, 2)][: len(ids) - 1]
        assert len(ids) >= 2
        thread.close()

    asyncio.run(story())
