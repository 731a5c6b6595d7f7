"""Two slot processes that exchange rows over TCP: sources hashed to consumers, barriers, the end, and lost peers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from connectors import registry
from connectors.api import SplitState, TableDefinition
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import InputRef
from planner.ir.job_graph import EdgeKind, Vertex
from runtime.exchange.fetch import fetch
from runtime.ids import AttemptId
from runtime.jobmanager.deployment import consumer_indexes
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import (
    AssignSplits,
    CheckpointAcknowledged,
    DeployTasks,
    InputsEnded,
    SlotReport,
    TaskInitialized,
    TaskState,
)
from tests.support.slots import JOB, SlotProcess, attempt, edge_input, edge_output, task

NUMBERS = ir.Schema((ir.Column("n", t.BIGINT),))


def table(rows: int, rate: int = 1_000_000) -> ir.TableRef:
    options = {
        "connector": "datagen",
        "number-of-rows": str(rows),
        "rows-per-second": str(rate),
        "scan.parallelism": "2",
        "fields.n.kind": "sequence",
        "fields.n.start": "1",
        "fields.n.end": str(rows),
    }
    return ir.TableRef("numbers", "datagen", options, NUMBERS)


def source(of: ir.TableRef) -> ir.Source:
    return ir.Source("source", "source", of, NUMBERS, (), (InputRef(0, t.BIGINT),), NUMBERS, bounded=True)


def splits(of: ir.TableRef) -> list[SplitState]:
    columns = tuple(t.Field(c.name, c.type) for c in of.physical.columns)
    definition = TableDefinition(of.identifier, of.options, columns)
    enumerator = registry.connector("datagen").source(definition).enumerator()
    return [SplitState(split) for split in enumerator.discover(frozenset())]


class Pair:
    """Sources v1 at parallelism 2 (one per slot), by an edge of `kind` to v2, all to one collect v3 in slot a. Subtasks
    of v2 are in the slots in turn, the first in slot b: a producer's first consumer is never in its own slot."""

    def __init__(
        self,
        a: SlotProcess,
        b: SlotProcess,
        directory: str,
        numbers: ir.TableRef,
        kind: EdgeKind = EdgeKind.HASH,
        consumers: int = 2,
    ) -> None:
        self.a, self.b = a, b
        self.slots = (a, b)
        self.numbers = numbers
        self.sources = [attempt(1, 0), attempt(1, 1)]
        self.middles = [attempt(2, index) for index in range(consumers)]
        self.end = attempt(3)
        addresses = [a.address, b.address]
        places = [(index + 1) % 2 for index in range(consumers)]
        pass_on = ir.Calc("calc", "calc", None, (InputRef(0, t.BIGINT),), NUMBERS)
        settings = {"execution.buffer-timeout": "10 ms"}
        vertices = [Vertex(n, "", "", (), parallelism) for n, parallelism in ((1, 2), (2, consumers))]
        channels = [consumer_indexes(kind, index, *vertices) for index in range(2)]
        middle_ends = [(who, addresses[place]) for who, place in zip(self.middles, places, strict=True)]
        source_ends = list(zip(self.sources, addresses, strict=True))
        keys = (0,) if kind is EdgeKind.HASH else ()
        to_end = edge_output(EdgeKind.SINGLE, NUMBERS, (self.end, a.address))
        from_middles = edge_input(EdgeKind.SINGLE, NUMBERS, *middle_ends)

        def make(who: AttemptId, operator: ir.Operator, parallelism: int, **edges: object) -> TaskDescriptor:
            return task(who, (operator,), directory, parallelism=parallelism, settings=settings, **edges)  # type: ignore[arg-type]

        self.tasks: list[list[TaskDescriptor]] = [[], []]
        for index, reached in enumerate(channels):
            output = edge_output(kind, NUMBERS, *(middle_ends[i] for i in reached), keys=keys)
            self.tasks[index].append(make(self.sources[index], source(numbers), 2, outputs=(output,)))
        for index, place in enumerate(places):
            into = edge_input(kind, NUMBERS, *(source_ends[i] for i in range(2) if index in channels[i]))
            middle = make(self.middles[index], pass_on, consumers, inputs=(into,), outputs=(to_end,))
            self.tasks[place].append(middle)
        self.tasks[0].append(make(self.end, ir.Collect("collect", "collect", NUMBERS), 1, inputs=(from_middles,)))

    def deploy(self) -> None:
        for slot, tasks in zip(self.slots, self.tasks, strict=True):
            slot.send(DeployTasks(slot.slot_id, JOB, 1, tuple(tasks)))
        for slot, who, split in zip(self.slots, self.sources, splits(self.numbers), strict=True):
            slot.send(AssignSplits(slot.slot_id, who, "source", (split,), True))
        for slot, tasks in zip(self.slots, self.tasks, strict=True):
            for descriptor in tasks:
                slot.wait(TaskInitialized, lambda m, who=descriptor.attempt: m.attempt == who)  # type: ignore[misc]

    def start(self) -> None:
        for slot in self.slots:
            slot.start()

    def trigger(self, checkpoint_id: int) -> None:
        for slot in self.slots:
            slot.trigger(checkpoint_id, *self.sources)

    def wait_acknowledged(self, checkpoint_id: int) -> list[CheckpointAcknowledged]:
        return [
            slot.acknowledged(checkpoint_id, descriptor.attempt)
            for slot, tasks in zip(self.slots, self.tasks, strict=True)
            for descriptor in tasks
        ]

    def read_all(self) -> list[int]:
        async def read() -> list[int]:
            found: list[int] = []
            while True:
                page = await fetch(("127.0.0.1", self.a.port), self.end, len(found), 5000, 1000)
                found += page.rows.column(0).to_numpy().tolist()
                if page.ended:
                    return found

        return asyncio.run(asyncio.wait_for(read(), 60))


@pytest.fixture(params=[("tm1/0/1", "tm2/0/1"), ("tm2/0/1", "tm1/0/1")], ids=["a connects", "b connects"])
def slots(request: pytest.FixtureRequest) -> object:
    with ExitStack() as stack:
        yield tuple([stack.enter_context(SlotProcess(name)) for name in request.param])


def test_rows_barriers_and_the_end_cross_slots(slots: tuple[SlotProcess, SlotProcess], tmp_path: Path) -> None:
    pair = Pair(*slots, str(tmp_path), table(20_000, rate=40_000))
    pair.deploy()
    pair.start()
    pair.trigger(1)
    states = [s for ack in pair.wait_acknowledged(1) for o in ack.snapshot.operators for s in o.splits]
    assert len(states) == 2
    assert sorted(pair.read_all()) == list(range(1, 20_001))
    for slot, tasks in zip(slots, pair.tasks, strict=True):
        for descriptor in tasks:
            slot.wait(InputsEnded, lambda m, who=descriptor.attempt: m.attempt == who)  # type: ignore[misc]
    pair.trigger(2)
    acknowledged = pair.wait_acknowledged(2)
    assert all(ack.snapshot.finished for ack in acknowledged)
    assert all(s.done for ack in acknowledged for o in ack.snapshot.operators for s in o.splits)
    for slot in slots:
        slot.commit(2)
    for slot, tasks in zip(slots, pair.tasks, strict=True):
        for descriptor in tasks:
            slot.wait_state(descriptor.attempt, TaskState.FINISHED)


@pytest.mark.parametrize(
    ("kind", "consumers", "copies"),
    [(EdgeKind.RESCALE, 4, 1), (EdgeKind.RESCALE, 1, 1), (EdgeKind.BROADCAST, 3, 3)],
)
def test_rescale_and_broadcast_carry_rows_barriers_and_the_end(
    tmp_path: Path, kind: EdgeKind, consumers: int, copies: int
) -> None:
    with SlotProcess("tm1/0/1") as a, SlotProcess("tm2/0/1") as b:
        pair = Pair(a, b, str(tmp_path), table(6_000, rate=20_000), kind, consumers)
        pair.deploy()
        pair.start()
        pair.trigger(1)
        pair.wait_acknowledged(1)
        assert sorted(pair.read_all()) == sorted(list(range(1, 6_001)) * copies)
        for slot, tasks in zip(pair.slots, pair.tasks, strict=True):
            for descriptor in tasks:
                slot.wait(InputsEnded, lambda m, who=descriptor.attempt: m.attempt == who)  # type: ignore[misc]


def test_an_unread_result_holds_the_sources_back(tmp_path: Path) -> None:
    with SlotProcess("tm1/0/1") as a, SlotProcess("tm2/0/1", "--network-bytes", "1000") as b:
        pair = Pair(a, b, str(tmp_path), table(100_000_000, rate=100_000_000))
        pair.deploy()
        pair.start()

        def held_back(report: SlotReport) -> bool:
            return any(m.attempt == pair.sources[1] and m.backpressured_ms_per_second > 800 for m in report.tasks)

        report = b.wait(SlotReport, held_back)
        for metrics in report.tasks:
            shares = (metrics.busy_ms_per_second, metrics.backpressured_ms_per_second, metrics.idle_ms_per_second)
            assert sum(shares) == pytest.approx(1000)
        for slot in (a, b):
            slot.cancel()
        for slot, tasks in zip((a, b), pair.tasks, strict=True):
            for descriptor in tasks:
                slot.wait_state(descriptor.attempt, TaskState.CANCELED)


def test_a_killed_slot_fails_the_tasks_it_was_connected_to(
    slots: tuple[SlotProcess, SlotProcess], tmp_path: Path
) -> None:
    a, b = slots
    pair = Pair(a, b, str(tmp_path), table(1_000_000, rate=10_000))
    pair.deploy()
    pair.start()
    a.wait_state(pair.end, TaskState.RUNNING)
    b.kill()

    for who in (pair.sources[0], pair.middles[1], pair.end):
        message = a.wait_state(who, TaskState.FAILED)
        assert message.failure is not None
        assert (message.failure.domain, message.failure.retry) == ("external", True)
        assert b.slot_id in message.failure.message
