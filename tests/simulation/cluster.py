"""A whole cluster from one seed: a job, its JobManagers, TaskManagers, broker and stores, what goes wrong and what the
user does meanwhile. `simulate` runs it to the end and returns what was found."""

from __future__ import annotations

import traceback
from functools import cache
from typing import Any

import msgspec

from planner.ir.job_graph import Edge, EdgeKind, JobGraph, Vertex
from runtime.checkpoint import coordination as c
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.ids import AttemptId, SlotId
from runtime.job_settings import CheckpointSettings, RestartSettings
from runtime.metadata.jobs import SavepointOrigin
from tests.simulation.broker import Broker
from tests.simulation.checkers import Checks
from tests.simulation.jobmanager import JobManager, new_job
from tests.simulation.kernel import Kernel, Process, Violation
from tests.simulation.store import Files, Metadata
from tests.simulation.task import COUNT, SINK, SOURCE, Task
from tests.simulation.taskmanager import Slot, TaskManager
from tests.simulation.workload import KEY_GROUPS, Workload
from tests.support import graphs

STEPS_MAX = 60_000
TIME_MAX_MS = 30_000
POLL_MS = 10
AFTERMATH_MS = 150
"""What zombies do after the end is watched for so long."""
FAULT_STEPS = 1_400
LEASE_CHECK_MS = 25


class Result(msgspec.Struct, frozen=True):
    """`violation` is empty when all is well."""

    seed: int
    violation: str
    trace: tuple[str, ...]
    steps: int
    faults: int


Shape = tuple[int, int, int]
"""Parallelism of a pipeline's source, counter and sink."""


@cache
def job_graph(chained: bool, apart: bool, shapes: tuple[Shape, ...]) -> JobGraph:
    """Per pipeline source → count → sink; the last two as one chain if `chained`. `apart`: each pipeline has slots of
    its own."""
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    for number, (sources, counts, sinks) in enumerate(shapes):
        first = len(vertices)
        source, count, sink = (
            graphs.generator(f"{SOURCE}{number}"),
            graphs.calc(f"{COUNT}{number}"),
            graphs.sink(f"{SINK}{number}"),
        )
        vertices.append(graphs.vertex(first, source, parallelism=sources, max_parallelism=KEY_GROUPS))
        edges.append(graphs.edge(first, first + 1, EdgeKind.HASH))
        if chained:
            vertices.append(graphs.vertex(first + 1, count, sink, parallelism=counts, max_parallelism=KEY_GROUPS))
        else:
            vertices.append(graphs.vertex(first + 1, count, parallelism=counts, max_parallelism=KEY_GROUPS))
            vertices.append(graphs.vertex(first + 2, sink, parallelism=sinks, max_parallelism=KEY_GROUPS))
            edges.append(graphs.edge(first + 1, first + 2, EdgeKind.HASH))
        if apart:
            vertices[first:] = [msgspec.structs.replace(v, slot_sharing_group=f"{number}") for v in vertices[first:]]
    return graphs.graph(*vertices, edges=tuple(edges))


class World:
    def __init__(self, seed: int, recording: bool) -> None:
        self.kernel = kernel = Kernel(seed, recording)
        self.workload = Workload(kernel.rng)
        self.broker = Broker(kernel)
        self.metadata = Metadata()
        self.files = Files(kernel)
        self.savepoints: dict[str, tuple[CheckpointManifest, dict[str, Any]]] = {}
        self.checks = Checks(self)
        self.broker.on_commit = self.checks.committed
        self.metadata.on_pointer = self.checks.pointer_moved
        self.files.on_delete = self.checks.deleted
        below = kernel.below
        self.checkpoint = CheckpointSettings(
            interval_ms=8 + below(20),
            timeout_ms=60 + below(60),
            min_pause_ms=below(2) * 5,
            tolerable_failures=1_000,
            retained_count=1 + below(2),
            aligned_timeout_ms=(0, 3, 10)[below(3)] if kernel.chance(0.4) else None,
        )
        self.work_ms = 8 if kernel.chance(0.3) else 1
        """A batch takes a task up to so long."""
        self.restart = RestartSettings(delay_ms=3 + below(10), backoff_ms_max=30, reset_after_ms=200)
        self.pace_ms = 4 + below(16)
        self.broker_ms = 25 if kernel.chance(0.25) else 1
        """A request to the broker takes up to so long."""
        self._chained, self._apart = kernel.chance(0.5), kernel.chance(0.3)
        self._graphs: dict[str, JobGraph] = {}
        self.slots: dict[SlotId, Slot] = {}
        self.incarnations = 0
        self.job_managers: list[JobManager] = []
        self.task_managers: dict[int, TaskManager] = {}
        self.faults = 0
        self._unreliable_until_ms = 0
        self._failing_stores = kernel.chance(0.3)
        self._jobs = 0
        self._wishes = 0
        self.done = False
        self.is_rewound = False
        """The user went back to an older savepoint: output may be repeated, and nothing else."""
        self.expects_failure = False
        """A marker was lost: the job must fail, or never have needed it."""

    # ------------------------------------------------------------------------------------------------ what is asked

    def graph_of(self, job_id: str) -> JobGraph:
        """For a job that (re)starts in a new JobManager: its parallelism may have been changed meanwhile."""
        below = self.kernel.below
        if job_id not in self._graphs or self.kernel.chance(0.5):
            shapes = tuple((1 + below(3), 1 + below(3), 1 + below(3)) for _ in range(self.workload.pipelines))
            self._graphs[job_id] = job_graph(self._chained, self._apart, shapes)
        return self._graphs[job_id]

    def splits_of(self, uid: str) -> list[int]:
        pipelines = self.workload.pipelines
        return [n for n in range(len(self.workload.splits)) if n % pipelines == int(uid.removeprefix(SOURCE))]

    def leading(self) -> JobManager | None:
        """Whom a TaskManager finds. One that leads no longer does not know it yet, but has a lower token."""
        alive = [manager for manager in self.job_managers if manager.alive and not manager.paused]
        return alive[-1] if alive else None

    def task(self, slot_id: SlotId, attempt: AttemptId) -> Task | None:
        slot = self.slots.get(slot_id)
        return slot.tasks.get(attempt) if slot is not None and slot.alive else None

    def request_is_lost(self) -> bool:
        return self.kernel.now_ms < self._unreliable_until_ms and self.kernel.chance(0.4)

    def write_fails(self) -> bool:
        return self._failing_stores and self.kernel.chance(0.05)

    def store_fails(self) -> bool:
        return self._failing_stores and self.kernel.chance(0.1)

    # ------------------------------------------------------------------------------------------------ a whole run

    def run(self) -> None:
        kernel = self.kernel
        self.start_job_manager(None)
        for number in range(2 + kernel.below(2)):
            self.start_task_manager(number)
        kernel.fault_steps = sorted((kernel.below(FAULT_STEPS) for _ in range(kernel.below(7))), reverse=True)
        kernel.on_fault = self._fault
        for number in range(kernel.below(4)):
            kernel.at(40 + kernel.below(250), None, self._wish, number)
        if kernel.chance(0.04):
            kernel.at(60 + kernel.below(150), None, self._lose_marker, None)
        kernel.at(0, None, self._use, None)
        kernel.run(lambda: self.done, STEPS_MAX, TIME_MAX_MS)
        kernel.fault_steps = []
        end_ms = kernel.now_ms + AFTERMATH_MS
        kernel.at(AFTERMATH_MS, None, lambda _: None, None)
        kernel.run(lambda: kernel.now_ms >= end_ms, STEPS_MAX, TIME_MAX_MS + AFTERMATH_MS)
        self.checks.finally_exact()

    def start_job_manager(self, _: object) -> None:
        self.job_managers.append(JobManager(self.kernel, self))

    def start_task_manager(self, number: int) -> None:
        self.task_managers[number] = TaskManager(self.kernel, self, number, 3)

    # ------------------------------------------------------------------------------------------------ the user

    def _use(self, _: object) -> None:
        """Submits the job; starts it again, as a new job, from the savepoint that has stopped it."""
        self.kernel.at(POLL_MS, None, self._use, None)
        leader = self.leading()
        if leader is None or leader.token != self.metadata.leader_token:
            return
        records = leader.records.all()
        if not records:
            self._jobs += 1
            leader.submit(new_job(self._jobs))
            return
        newest = max(records, key=lambda record: record.job_id)
        if not newest.state.terminal:
            return
        pointer = leader.records.pointer(newest.job_id)
        location = pointer.stopped_with if pointer is not None else ""
        if not location or self.savepoints[location][0].drained:
            self.done = True
            return
        older = [name for name, (manifest, _) in self.savepoints.items() if manifest.job_id == newest.job_id]
        if older and older[0] != location and not self.expects_failure and self.kernel.chance(0.7):
            # Back to an earlier one: what has been written since is written again.
            location, self.is_rewound = older[0], True
        manifest = self.savepoints[location][0]
        self.kernel.log(leader, f"the user starts a new job from {location}")
        self._jobs += 1
        origin = SavepointOrigin(location, newest.job_id, manifest.checkpoint_id, False, self.is_rewound)
        owner_counts = {sink.uid: sink.owner_count for sink in manifest.sinks}
        namespaces = {sink.uid: sink.namespace for sink in manifest.sinks}
        leader.submit(new_job(self._jobs, namespaces=namespaces, owner_counts=owner_counts, origin=origin))

    def _wish(self, number: int) -> None:
        """The first wish is a savepoint beside the running job."""
        leader = self.leading()
        if self.done:
            return
        if leader is None or leader.job is None or leader.job.checkpoints is None:
            self.kernel.at(POLL_MS, None, self._wish, number)
            return
        self._wishes += 1
        stop = number > 0 and self.kernel.chance(0.7)
        drain = stop and self.kernel.chance(0.2)
        self.kernel.log(leader, f"the user wants a savepoint, stop {stop}, drain {drain}")
        leader.job.want_savepoint(c.SavepointWanted(str(self._wishes), "/savepoints", stop, drain))

    # ------------------------------------------------------------------------------------------------ what goes wrong

    def _lose_marker(self, _: object) -> None:
        """Of one owner, where the checkpoint knows that a later one was there; and everything dies, so that it
        matters."""
        owner = self.checks.owner_with_floor()
        if owner is None:
            if not self.done:
                self.kernel.at(POLL_MS, None, self._lose_marker, None)
            return
        self.expects_failure = True
        self.kernel.log(None, f"the marker topic is put back: owner {owner}")
        self.broker.roll_back_marker(*owner)
        for process in list(self.task_managers.values()):
            if process.alive:
                self._kill(process)

    def _fault(self, at_hand: Process) -> None:
        """Mostly to whom the step belongs, so that every step is met; else to anybody."""
        self.faults += 1
        kernel = self.kernel
        process = at_hand if kernel.chance(0.6) else self._anybody()
        drawn = kernel.random()
        if drawn < 0.5:
            self._kill(process)
        elif drawn < 0.7:
            process.pause(15 + kernel.below(120))
            if isinstance(process, JobManager):
                kernel.at(20 + kernel.below(30), None, self._take_over, process)
        elif drawn < 0.85:
            if process.links:
                process.links[kernel.below(len(process.links))].cut()
        else:
            kernel.log(None, "the broker cannot be relied on for a while")
            self._unreliable_until_ms = kernel.now_ms + 20 + kernel.below(80)

    def _anybody(self) -> Process:
        alive: list[Process] = [m for m in self.job_managers if m.alive]
        alive += [m for m in self.task_managers.values() if m.alive]
        alive += [slot for slot in self.slots.values() if slot.tasks]
        return alive[self.kernel.below(len(alive))]

    def _kill(self, process: Process) -> None:
        process.kill()
        delay_ms = 5 + self.kernel.below(60)
        if isinstance(process, JobManager):
            self.kernel.at(delay_ms, None, self._take_over, process)
        elif isinstance(process, TaskManager):
            self.kernel.at(delay_ms, None, self.start_task_manager, process.number)

    def _take_over(self, old: JobManager) -> None:
        """A standby leads once the lease of the old one is over, dead or not."""
        if (old.paused or not old.alive) and old is self.job_managers[-1]:
            self.start_job_manager(None)
            self.kernel.at(0, old, self._find_out, old)

    def _find_out(self, old: JobManager) -> None:
        """Once it is awake an old leader goes on for a while, until it looks after its lease."""
        self.kernel.at(LEASE_CHECK_MS, old, lambda _: old.lost_leadership(), None)


def simulate(seed: int, recording: bool = False) -> Result:
    world = World(seed, recording)
    violation = ""
    try:
        world.run()
    except Violation as found:
        violation = str(found)
    except Exception as error:  # A core that raises is as wrong as one that decides wrongly.
        violation = f"{type(error).__name__}: {error}"
        if recording:
            world.kernel.trace.append(traceback.format_exc())
    world.kernel.close()
    return Result(seed, violation, tuple(world.kernel.trace), world.kernel.steps, world.faults)
