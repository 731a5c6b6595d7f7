"""A whole JobGraph in one thread: the real operators, chains, partitioners, valves, aligners and restore rules, driven
in a random order from a seed. No processes, sockets or Kafka: what is tested is that the answer does not depend on
parallelism, batch cuts, interleaving, checkpoints, crashes or rescaling.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

from connectors.registry import connector
from planner.ir.job_graph import EdgeKind, JobGraph, Vertex
from planner.ir.operators import Sink, Source
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord
from runtime.checkpoint.recovery import RestorePlan, plan_restore, spread_splits
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.elements import MAX_WATERMARK_MS, Barrier, Batch, Control, Element, EndOfInput, Watermark, WatermarkStatus
from runtime.exchange.partitioner import Partitioner, concat_batches, partitioner
from runtime.ids import AttemptId, JobId
from runtime.jobmanager.deployment import consumer_indexes
from runtime.key_groups import key_group_range
from runtime.operators.chain import OperatorChain
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import FinishSnapshot, KeyGroupRange, OperatorContext
from runtime.operators.registry import build_operators
from runtime.operators.sink import table_definition
from runtime.protocol.descriptors import TaskDescriptor
from runtime.taskmanager.barrier_aligner import BarrierAligner, BlockChannel, TakeSnapshot, UnblockChannel
from runtime.taskmanager.watermark_valve import WatermarkValve

JOB = JobId("0" * 32)
WALL_CLOCK_MS = 1_700_000_000_000


class Channel:
    """One producer subtask to one consumer subtask."""

    def __init__(self) -> None:
        self.elements: deque[Element] = deque()
        self.blocked = False

    def put(self, element: Element, *, joined: bool) -> None:
        """`joined`: rows may be merged with those that wait already, as a producer that collects rows does."""
        if joined and isinstance(element, Batch) and self.elements and isinstance(self.elements[-1], Batch):
            self.elements[-1] = concat_batches([self.elements[-1], element])
        else:
            self.elements.append(element)


class Output:
    """A subtask's side of one outgoing edge."""

    def __init__(self, partition: Partitioner, channels: list[Channel], choose: random.Random) -> None:
        self._partition = partition
        self._channels = channels
        self._random = choose

    def emit(self, batch: Batch) -> None:
        for index, part in self._partition(batch):
            if part.row_count:
                self._channels[index].put(part, joined=self._random.random() < 0.5)

    def broadcast(self, element: Control) -> None:
        for channel in self._channels:
            channel.put(element, joined=False)


class LocalTask:
    """One subtask: what `runtime.taskmanager.task` does, one step at a time."""

    def __init__(self, cluster: LocalCluster, vertex: Vertex, index: int) -> None:
        self.vertex, self.index = vertex, index
        restore = cluster.plan
        attempt = AttemptId(JOB, cluster.generation, vertex.id, index, 1)
        self.finished_before = (vertex.id, index) in restore.finished
        descriptor = TaskDescriptor(attempt, vertex, (), (), cluster.graph.settings, str(cluster.directory), "inc")
        environment = TaskEnvironment(
            descriptor=descriptor,
            monotonic_ms=lambda: cluster.now_ms,
            wait_until=lambda ready: None,
            notify=lambda: None,
            send=lambda message: None,
            backpressured_ms=lambda: 0.0,
        )
        first, last = key_group_range(index, vertex.parallelism, vertex.max_parallelism)
        restores = {r.uid: r for r in restore.operators[vertex.id, index]}
        self.operators = build_operators(
            vertex.operators,
            lambda node: OperatorContext(
                attempt=attempt,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                key_groups=KeyGroupRange(first, last),
                settings=cluster.graph.settings,
                files=LocalFiles(str(cluster.directory)),
                restore=restores.get(node.uid),
                managed_bytes=0,
                wall_clock_ms=lambda: WALL_CLOCK_MS + int(cluster.now_ms),
            ),
            environment,
            checked=True,
        )
        self.inputs: list[Channel] = []
        self.outputs: list[Output] = []
        self.chain = OperatorChain(self.operators.links, self._emit, lambda: None)
        self.ended = False
        self.snapshots: dict[int, list[FinishSnapshot]] = {}
        self.ended_at: dict[int, bool] = {}

    def open(self) -> None:
        # An ended task takes no barrier from its channels: it is triggered.
        self.aligner = BarrierAligner(0 if self.finished_before else len(self.inputs))
        self.valve = WatermarkValve(len(self.inputs))
        self.chain.open()
        if self.operators.source is not None:
            self.operators.source.open()

    def close(self) -> None:
        self.chain.close()
        if self.operators.source is not None:
            self.operators.source.close()

    def _emit(self, batch: Batch) -> None:
        for output in self.outputs:
            output.emit(batch)

    def _broadcast(self, element: Control) -> None:
        for output in self.outputs:
            output.broadcast(element)

    # ------------------------------------------------------------------------------------------------------ steps

    def steps(self) -> list[Callable[[], None]]:
        """What the task could do next."""
        source = self.operators.source
        if self.finished_before and not self.ended:
            return [self._end]
        if source is not None:
            if self.ended:
                return []
            return [self._end] if source.ended else [self._poll]
        steps: list[Callable[[], None]] = []
        for number, channel in enumerate(self.inputs):
            if channel.elements and not channel.blocked:
                steps.append(lambda number=number: self._take(number))  # type: ignore[misc]
        if not self.ended and self.aligner.all_ended and not steps:
            steps.append(self._end)
        return steps

    def _poll(self) -> None:
        assert self.operators.source is not None
        for element in self.operators.source.poll(0):
            self._take_in(element)

    def _take(self, number: int) -> None:
        element = self.inputs[number].elements.popleft()
        if self.finished_before:
            return
        match element:
            case Barrier():
                self._perform(self.aligner.on_barrier(number, element, 0.0))
            case Watermark(timestamp_ms=timestamp_ms):
                for out in self.valve.on_watermark(number, timestamp_ms):
                    self._take_in(out)
            case WatermarkStatus(idle=idle):
                for out in self.valve.on_status(number, idle):
                    self._take_in(out)
            case EndOfInput():
                for out in self.valve.on_ended(number):
                    self._take_in(out)
                self._perform(self.aligner.on_ended(number, 0.0))
            case Batch():
                self._take_in(element)

    def _take_in(self, element: Element) -> None:
        match element:
            case Batch():
                self.chain.process(element)
            case Watermark(timestamp_ms=timestamp_ms):
                self.chain.advance(timestamp_ms)
                self._broadcast(element)
            case Barrier() | WatermarkStatus() | EndOfInput():
                self._broadcast(element)

    def _end(self) -> None:
        if not self.finished_before:
            self._take_in(Watermark(MAX_WATERMARK_MS))
            self.chain.end(True)
        self.ended = True
        self._broadcast(EndOfInput(True))

    # ------------------------------------------------------------------------------------------------ checkpoints

    def trigger(self, barrier: Barrier) -> None:
        """For sources, and tasks whose inputs have all ended; others get theirs through a channel."""
        self._perform(self.aligner.on_trigger(barrier))

    def _perform(self, commands: list[BlockChannel | UnblockChannel | TakeSnapshot]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel=number):
                    self.inputs[number].blocked = True
                case UnblockChannel(channel=number):
                    self.inputs[number].blocked = False
                case TakeSnapshot(barrier=barrier):
                    self._snapshot(barrier)

    def _snapshot(self, barrier: Barrier) -> None:
        source = self.operators.source
        flush = getattr(self.chain, "flush", None)
        if flush is not None:
            flush()
        parts = [] if source is None else [source.snapshot(barrier.checkpoint_id)]
        parts += self.chain.snapshot(barrier.checkpoint_id)
        self.snapshots[barrier.checkpoint_id] = parts
        self.ended_at[barrier.checkpoint_id] = self.ended
        self._broadcast(barrier)

    def finish(self, checkpoint_id: int) -> SubtaskSnapshot:
        """The asynchronous half; rows may have been processed since the barrier."""
        operators = tuple(part() for part in self.snapshots.pop(checkpoint_id))
        return SubtaskSnapshot(
            self.vertex.id,
            self.vertex.uid,
            self.index,
            self.vertex.parallelism,
            operators,
            finished=self.ended_at[checkpoint_id],
        )


class LocalCluster:
    """One start of a job. `manifest` None = a fresh one; else the state of an earlier start, at any parallelism."""

    def __init__(
        self,
        graph: JobGraph,
        directory: Path,
        seed: int,
        *,
        manifest: CheckpointManifest | None = None,
        owner_counts: dict[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.directory = directory
        (directory / "state").mkdir(parents=True, exist_ok=True)
        (directory / "epochs").mkdir(parents=True, exist_ok=True)
        self.random = random.Random(seed)
        self.generation = 1 if manifest is None else manifest.generation + 1
        self.manifest = manifest
        self.checkpoint_id = 0 if manifest is None else manifest.checkpoint_id
        self.now_ms = 0.0
        self.owner_counts = dict(owner_counts or {})
        self.plan: RestorePlan = plan_restore(graph, manifest, self.owner_counts)
        for vertex in graph.vertices:
            for operator in vertex.operators:
                if isinstance(operator, Sink):
                    self.owner_counts[operator.uid] = max(self.owner_counts.get(operator.uid, 0), vertex.parallelism)
        self.tasks = {
            (vertex.id, index): LocalTask(self, vertex, index)
            for vertex in graph.vertices
            for index in range(vertex.parallelism)
        }
        self._connect()
        for task in self.tasks.values():
            task.open()
        self._assign_splits()

    # ----------------------------------------------------------------------------------------------------- wiring

    def _connect(self) -> None:
        for edge in self.graph.edges:
            source, target = self.graph.vertex(edge.source), self.graph.vertex(edge.target)
            for index in range(source.parallelism):
                consumers = consumer_indexes(edge.kind, index, source, target)
                channels = [Channel() for _ in consumers]
                for consumer, channel in zip(consumers, channels, strict=True):
                    self.tasks[target.id, consumer].inputs.append(channel)
                width = target.parallelism if edge.kind is EdgeKind.HASH else len(channels)
                rule = partitioner(edge.kind, edge.keys, width, source.max_parallelism, index)
                self.tasks[source.id, index].outputs.append(Output(rule, channels, self.random))

    def _assign_splits(self) -> None:
        for vertex in self.graph.vertices:
            for operator in vertex.operators:
                if not isinstance(operator, Source):
                    continue
                known = self.plan.known_splits.get(operator.uid, ())
                from_table = connector(operator.table.connector).source(table_definition(operator.table))
                fresh = from_table.enumerator().discover(frozenset(s.split.id for s in known))
                from connectors.api import SplitState

                spread = spread_splits([SplitState(split) for split in fresh], vertex.parallelism, len(known))
                for index in range(vertex.parallelism):
                    source = self.tasks[vertex.id, index].operators.source
                    assert source is not None
                    source.add_splits(spread[index], True)

    # ---------------------------------------------------------------------------------------------------- running

    def step(self) -> bool:
        """One random step; False: nothing is left to do."""
        choices = [step for task in self.tasks.values() for step in task.steps()]
        if not choices:
            return False
        self.now_ms += self.random.choice((0.0, 1.0, 60.0))
        self.random.choice(choices)()
        return True

    def run(self, steps_max: int | None = None) -> bool:
        """Random steps until nothing is left (True) or `steps_max` were made."""
        count = 0
        while steps_max is None or count < steps_max:
            if not self.step():
                return True
            count += 1
        return False

    def checkpoint(self, *, commit: bool = True) -> CheckpointManifest:
        """A checkpoint through all tasks, with rows flowing meanwhile. `commit` False: the process dies after the
        manifest and before the sinks have heard of it."""
        self.checkpoint_id += 1
        barrier = Barrier(self.checkpoint_id, self.generation)
        waiting = [task for task in self.tasks.values() if task.operators.source is not None or task.finished_before]
        for task in waiting:
            task.trigger(barrier)
        while not all(self.checkpoint_id in task.snapshots for task in self.tasks.values()):
            for task in self.tasks.values():
                if self.checkpoint_id not in task.snapshots and task.ended:
                    task.trigger(barrier)
            if not self.step():
                missing = [str(t.vertex.name) for t in self.tasks.values() if self.checkpoint_id not in t.snapshots]
                assert not missing, f"checkpoint {self.checkpoint_id} never reached {missing}"
        for _ in range(self.random.randint(0, 5)):
            self.step()
        manifest = self._manifest()
        if commit:
            for task in self.tasks.values():
                for sink in task.operators.sinks:
                    sink.commit(self.checkpoint_id)
        return manifest

    def _manifest(self) -> CheckpointManifest:
        vertices = tuple(
            VertexRecord(v.id, v.uid, v.parallelism, v.max_parallelism, tuple(o.uid for o in v.operators))
            for v in self.graph.vertices
        )
        sinks = tuple(SinkRecord(uid, uid, count) for uid, count in self.owner_counts.items())
        return CheckpointManifest(
            job_id=JOB,
            generation=self.generation,
            checkpoint_id=self.checkpoint_id,
            incarnation="inc",
            parent_id=self.checkpoint_id - 1,
            restored_id=self.manifest.checkpoint_id if self.manifest is not None else 0,
            graph_digest="",
            triggered_at_ms=0,
            vertices=vertices,
            snapshots=tuple(task.finish(self.checkpoint_id) for task in self.tasks.values()),
            sinks=sinks,
            fingerprints=self.graph.fingerprints,
        )

    def finish(self) -> None:
        """To the end of all input, and the final checkpoint."""
        self.run()
        self.checkpoint()
        self.close()

    def close(self) -> None:
        """As a crash does: what is not committed is gone."""
        for task in self.tasks.values():
            task.close()

    def counter(self, name: str) -> float:
        """Sum of a counter over all operators of all subtasks."""
        return sum(values.get(name, 0.0) for task in self.tasks.values() for values in task.chain.counters().values())
