"""A whole JobGraph in one thread: the real operators, chains, partitioners, valves, aligners and restore rules, driven
in a random order from a seed. No processes, sockets or Kafka: what is tested is that the answer does not depend on
parallelism, batch cuts, interleaving, checkpoints, crashes or rescaling.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from connectors.api import SplitState
from connectors.registry import connector
from planner.ir.job_graph import Edge, JobGraph, Vertex
from planner.ir.operators import Sink, Source
from runtime.checkpoint.files import open_files
from runtime.checkpoint.in_flight import InFlight, write
from runtime.checkpoint.manifest import CheckpointManifest, SinkRecord, VertexRecord
from runtime.checkpoint.notices import CheckpointNotices
from runtime.checkpoint.recovery import RestorePlan, plan_restore, spread_splits
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.elements import MAX_WATERMARK_MS, Barrier, Batch, Control, Element, EndOfInput, Watermark, WatermarkStatus
from runtime.exchange.channel import Inbox, InputChannel
from runtime.exchange.local import LocalChannel
from runtime.exchange.partitioner import partitioner
from runtime.exchange.writer import RecordWriter
from runtime.ids import AttemptId, JobId, SlotId
from runtime.jobmanager.deployment import consumer_indexes
from runtime.key_groups import key_group_range
from runtime.operators.chain import OperatorChain
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import FinishSnapshot, KeyGroupRange, OperatorContext
from runtime.operators.registry import build_operators
from runtime.operators.sink import table_definition
from runtime.protocol.descriptors import ChannelAddress, ChannelEnd, InputDescriptor, OutputDescriptor, TaskDescriptor
from runtime.state.segments import STATE_FOLDER
from runtime.taskmanager.recovered_input import RecoveredInput
from runtime.taskmanager.task_barriers import TaskBarriers
from runtime.taskmanager.task_outputs import TaskOutputs
from runtime.taskmanager.watermark_valve import WatermarkValve

JOB = JobId("0" * 32)
WALL_CLOCK_MS = 1_700_000_000_000
_STARTS = itertools.count(1)
HERE = ChannelAddress(SlotId("local/0/1"), "localhost", 1)


def _never(ready: Callable[[], bool]) -> None:
    raise AssertionError("a task of this cluster does not wait in the middle of an element")


class LocalTask:
    """One subtask: what `runtime.taskmanager.task` does, one step at a time, over the same inboxes, writers, barriers
    and recovered input."""

    def __init__(self, cluster: LocalCluster, vertex: Vertex, index: int) -> None:
        self.vertex, self.index = vertex, index
        self._cluster = cluster
        restore = cluster.plan
        self.attempt = cluster.attempt(vertex.id, index)
        self.finished_before = (vertex.id, index) in restore.finished
        self.descriptor = TaskDescriptor(
            self.attempt,
            vertex,
            tuple(cluster.inputs_of(vertex, index)),
            tuple(cluster.outputs_of(vertex, index)),
            cluster.graph.settings,
            str(cluster.directory),
            "inc",
            in_flight=restore.in_flight.get((vertex.id, index), ()),
            finished=self.finished_before,
        )
        environment = TaskEnvironment(
            descriptor=self.descriptor,
            monotonic_ms=cluster.clock,
            wait_until=lambda ready: None,
            notify=lambda: None,
            send=lambda message: None,
            backpressured_ms=lambda: 0.0,
        )
        first, last = key_group_range(index, vertex.parallelism, vertex.max_parallelism)
        restores = {r.uid: r for r in restore.operators[vertex.id, index]}
        self.recovered = RecoveredInput(self.descriptor)
        self.notices = CheckpointNotices()
        self.operators = build_operators(
            vertex.operators,
            lambda node: OperatorContext(
                attempt=self.attempt,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                key_groups=KeyGroupRange(first, last),
                settings=cluster.graph.settings,
                files=cluster.files,
                restore=restores.get(node.uid),
                managed_bytes=0,
                wall_clock_ms=lambda: WALL_CLOCK_MS + int(cluster.now_ms),
                notices=self.notices,
            ),
            environment,
            checked=True,
            apart=self.recovered.entered_operators,
        )
        self.inbox = Inbox()
        self.input_indexes = [edge.input_index for edge in self.descriptor.inputs for _ in edge.producers]
        for edge in self.descriptor.inputs:
            for _ in edge.producers:
                self.inbox.add_channel(cluster.channel_bytes)
        self.outputs: TaskOutputs
        self.barriers: TaskBarriers
        ended = self._restored_as_ended = frozenset(uid for uid, restored in restores.items() if restored.ended)
        self.chain = OperatorChain(self.operators.links, lambda batch: self.outputs.emit(batch), lambda: None, ended)
        self.work: Iterator[None] | None = None
        self.ended = False
        self.snapshots: dict[int, list[FinishSnapshot]] = {}
        self.ended_at: dict[int, bool] = {}
        self.complete: dict[int, list[InFlight]] = {}
        """Checkpoints that are captured and have all that was in flight."""

    def connect(self, writers: list[RecordWriter]) -> None:
        clock = self._cluster.clock
        self.outputs = TaskOutputs(self.descriptor, writers, clock)
        self.barriers = TaskBarriers(
            self.descriptor, self.inbox, self.outputs, self.recovered, self, self._capture, clock
        )

    def open(self) -> None:
        self.recovered.load(self._cluster.files)
        self.valve = WatermarkValve(len(self.inbox.channels))
        self.chain.open()
        if self.operators.source is not None:
            self.operators.source.open()

    def close(self) -> None:
        self.chain.close()
        if self.operators.source is not None:
            self.operators.source.close()

    # ------------------------------------------------------------------------------------------------------ steps

    def steps(self) -> list[Callable[[], None]]:
        """What the task could do next."""
        if self.barriers.is_due and self._cluster.random.random() < 0.7:
            return [self.barriers.serve]
        has_room = self.outputs.has_room()
        self.outputs.flush_due()
        if self.ended:
            return [] if self.operators.source is not None else self._takes()
        if not has_room:
            return []
        if self.work is not None:
            return [self._go_on]
        if self.recovered.remains:
            return [self._take_recovered]
        self.barriers.on_free()
        if self.finished_before:
            return [self._end]
        source = self.operators.source
        if source is not None:
            return [self._end] if source.ended else [self._poll]
        takes = self._takes()
        if self.barriers.all_ended and not takes:
            return [self._end]
        return takes

    def _takes(self) -> list[Callable[[], None]]:
        channels = [channel for channel in self.inbox.channels if channel.elements and not channel.blocked]
        return [partial(self._take, channel) for channel in channels]

    @property
    def is_waiting(self) -> bool:
        """Only time is missing: rows that are collected, or a barrier's time-out."""
        return self.outputs.time_to_flush_ms() is not None or self.barriers.wait_ms() is not None

    def _go_on(self) -> None:
        assert self.work is not None
        try:
            next(self.work)
        except StopIteration:
            self.work = None

    def _poll(self) -> None:
        assert self.operators.source is not None
        for element in self.operators.source.poll(0):
            self._take_in(element)

    def _take_recovered(self) -> None:
        taken = self.recovered.take()
        assert taken is not None
        restore, element = taken
        if isinstance(element, Watermark | WatermarkStatus):
            self._take_control(self.recovered.position(restore, element), element)
            return
        assert isinstance(element, Batch)
        if restore.edge_id >= 0:
            self.chain.process(element, restore.handle.input_index)
        else:
            self.chain.process_at(restore.handle.target_uid, element)

    def _take(self, channel: InputChannel) -> None:
        element, byte_size = channel.elements.popleft()
        if byte_size:
            assert channel.give_back is not None
            channel.give_back(byte_size)
        if self.finished_before:
            return
        if isinstance(element, Batch):
            self._take_in(element, self.input_indexes[channel.index])
        else:
            self._take_control(channel.index, element)

    def _take_control(self, number: int, element: Control) -> None:
        match element:
            case Barrier():
                self.barriers.on_barrier(number, element)
            case Watermark(timestamp_ms=timestamp_ms):
                self.work = self._advance(self.valve.on_watermark(number, timestamp_ms))
            case WatermarkStatus(idle=idle):
                self.work = self._advance(self.valve.on_status(number, idle))
            case EndOfInput():
                self.work = self._end_channel(number)

    def _end_channel(self, number: int) -> Iterator[None]:
        yield from self._advance(self.valve.on_ended(number))
        self.barriers.on_ended(number)

    def _take_in(self, element: Element, input_index: int = 0) -> None:
        while self.work is not None:
            self._go_on()
        if isinstance(element, Batch):
            self.chain.process(element, input_index)
        else:
            assert isinstance(element, Watermark | WatermarkStatus)
            self.work = self._advance([element])

    def _advance(self, elements: Sequence[Watermark | WatermarkStatus]) -> Iterator[None]:
        for element in elements:
            if isinstance(element, Watermark):
                yield from self.chain.advance(element.timestamp_ms)
                self.outputs.broadcast(Watermark(self.chain.watermark_behind(element.timestamp_ms)))
            else:
                self.outputs.broadcast(element)

    def _end(self) -> None:
        self.work = self._ending()

    def _ending(self) -> Iterator[None]:
        if not self.finished_before:
            yield from self._advance([Watermark(MAX_WATERMARK_MS)])
            self.chain.end(True)
        self.ended = True
        self.outputs.broadcast(EndOfInput(True))

    # ------------------------------------------------------------------------------------------------ checkpoints

    def trigger(self, barrier: Barrier) -> None:
        """For sources, and tasks whose inputs have all ended; others get theirs through a channel."""
        self.barriers.on_trigger(barrier, is_busy=self.work is not None)

    def _capture(self, barrier: Barrier) -> None:
        source = self.operators.source
        self.chain.flush()
        self.notices.at_barrier(barrier.checkpoint_id, full=barrier.full, committed_id=barrier.committed_id)
        parts = [] if source is None else [source.snapshot(barrier.checkpoint_id)]
        parts += self.chain.snapshot(barrier.checkpoint_id)
        self.snapshots[barrier.checkpoint_id] = parts
        self.ended_at[barrier.checkpoint_id] = self.ended

    def acknowledge(self, checkpoint_id: int, alignment_ms: float, in_flight: list[InFlight] | None = None) -> None:
        self.complete[checkpoint_id] = in_flight or []

    def aborted(self, checkpoint_id: int) -> None:
        self.snapshots.pop(checkpoint_id, None)

    def finish(self, checkpoint_id: int) -> SubtaskSnapshot:
        """The asynchronous half; rows may have been processed since the barrier."""
        ended = self.ended_at[checkpoint_id]
        parts = [part() for part in self.snapshots.pop(checkpoint_id)]
        operators = tuple(msgspec.structs.replace(p, ended=ended or p.uid in self._restored_as_ended) for p in parts)
        in_flight = self.complete.pop(checkpoint_id)
        return SubtaskSnapshot(
            self.vertex.id,
            self.vertex.uid,
            self.index,
            self.vertex.parallelism,
            operators,
            finished=ended,
            in_flight=tuple(
                write(self._cluster.files, f"{self.attempt}-c{checkpoint_id}-{number}.arrow", channel)
                for number, channel in enumerate(in_flight)
            ),
        )


class LocalCluster:
    """One start of a job. `manifest` None = a fresh one; else the state of an earlier start, at any parallelism.
    `channel_bytes`: how much a channel may hold; drawn if it is not given: some jobs are under backpressure always.
    `haste`: how often the task that is furthest upstream goes first, so that rows pile up behind it."""

    def __init__(
        self,
        graph: JobGraph,
        directory: Path,
        seed: int,
        *,
        manifest: CheckpointManifest | None = None,
        owner_counts: dict[str, int] | None = None,
        channel_bytes: int | None = None,
        haste: float = 0.0,
    ) -> None:
        self.graph = graph
        self.directory = directory
        (directory / "state").mkdir(parents=True, exist_ok=True)
        (directory / "epochs").mkdir(parents=True, exist_ok=True)
        self.random = random.Random(seed)
        self.generation = 1 if manifest is None else manifest.generation + 1
        self.manifest = manifest
        self.checkpoint_id = 0 if manifest is None else manifest.checkpoint_id
        self._start = next(_STARTS)
        self._committed_id = self.checkpoint_id
        self.now_ms = 0.0
        self.haste = haste
        self.files = open_files(str(directory))
        self.channel_bytes = channel_bytes or self.random.choice((300, 3_000, 1_000_000))
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

    def clock(self) -> float:
        return self.now_ms

    def attempt(self, vertex_id: int, index: int) -> AttemptId:
        # File names hold the attempt: two starts in one directory must not meet.
        return AttemptId(JOB, self.generation, vertex_id, index, self._start)

    def _end(self, vertex: Vertex, index: int) -> ChannelEnd:
        return ChannelEnd(self.attempt(vertex.id, index), HERE)

    def inputs_of(self, vertex: Vertex, index: int) -> Iterator[InputDescriptor]:
        for edge_id, edge in enumerate(self.graph.edges):
            if edge.target == vertex.id:
                source = self.graph.vertex(edge.source)
                producers = (p for p in range(source.parallelism) if index in self._consumers(edge, p))
                ends = tuple(self._end(source, producer) for producer in producers)
                uid = source.operators[-1].uid
                yield InputDescriptor(edge_id, edge.kind, edge.schema, edge.changelog, ends, uid, edge.input_index)

    def outputs_of(self, vertex: Vertex, index: int) -> Iterator[OutputDescriptor]:
        for edge_id, edge in enumerate(self.graph.edges):
            if edge.source == vertex.id:
                target = self.graph.vertex(edge.target)
                yield OutputDescriptor(
                    edge_id,
                    edge.kind,
                    edge.schema,
                    edge.changelog,
                    edge.keys,
                    target.parallelism,
                    tuple(self._end(target, consumer) for consumer in self._consumers(edge, index)),
                    target.operators[0].uid,
                    edge.input_index,
                )

    def _consumers(self, edge: Edge, producer: int) -> tuple[int, ...]:
        return consumer_indexes(edge.kind, producer, self.graph.vertex(edge.source), self.graph.vertex(edge.target))

    def _connect(self) -> None:
        for task in self.tasks.values():
            writers: list[RecordWriter] = []
            for edge in task.descriptor.outputs:
                channels = [
                    LocalChannel(self._channel(end.attempt, edge.edge_id, task.attempt), task.inbox)
                    for end in edge.consumers
                ]
                rule = partitioner(edge.kind, edge.keys, len(channels), task.vertex.max_parallelism, task.index)
                timeout_ms = self.random.choice((0, 50, 1_000))
                writers.append(RecordWriter(rule, channels, _never, self.clock, timeout_ms))
            task.connect(writers)

    def _channel(self, consumer: AttemptId, edge_id: int, producer: AttemptId) -> InputChannel:
        task = self.tasks[consumer.vertex_id, consumer.subtask_index]
        ends = [(edge.edge_id, end.attempt) for edge in task.descriptor.inputs for end in edge.producers]
        return task.inbox.channels[ends.index((edge_id, producer))]

    def _assign_splits(self) -> None:
        for vertex in self.graph.vertices:
            for operator in vertex.operators:
                if not isinstance(operator, Source):
                    continue
                known = self.plan.known_splits.get(operator.uid, ())
                from_table = connector(operator.table.connector).source(table_definition(operator.table))
                fresh = from_table.enumerator().discover(frozenset(s.split.id for s in known))
                spread = spread_splits([SplitState(split) for split in fresh], vertex.parallelism, len(known))
                for index in range(vertex.parallelism):
                    source = self.tasks[vertex.id, index].operators.source
                    assert source is not None
                    source.add_splits(spread[index], True)

    # ---------------------------------------------------------------------------------------------------- running

    def step(self) -> bool:
        """One random step; False: nothing is left to do."""
        in_order = self.random.random() < self.haste
        choices = self._choices(in_order)
        while not choices:
            if not any(task.is_waiting for task in self.tasks.values()):
                return False
            self.now_ms += 1_000.0
            choices = self._choices(in_order)
        self.now_ms += self.random.choice((0.0, 1.0, 60.0))
        choice = choices[0] if in_order else self.random.choice(choices)
        choice()
        return True

    def _choices(self, in_order: bool) -> list[Callable[[], None]]:
        """Of the first task that can do something, from the first one or from a random one on. To ask a task also
        sends what it had no credit for: those asked before may have something to do then."""
        tasks = [*self.tasks.values()]
        first = 0 if in_order else self.random.randrange(len(tasks))
        arrived = -1
        while True:
            for task in itertools.chain(tasks[first:], tasks[:first]):
                if choices := task.steps():
                    return choices
            before, arrived = arrived, sum(len(c.elements) for task in tasks for c in task.inbox.channels)
            if arrived == before:
                return []

    def run(self, steps_max: int | None = None) -> bool:
        """Random steps until nothing is left (True) or `steps_max` were made."""
        count = 0
        while steps_max is None or count < steps_max:
            if not self.step():
                return True
            count += 1
        return False

    def checkpoint(
        self, *, commit: bool = True, aligned_timeout_ms: float | None = None, full: bool = False
    ) -> CheckpointManifest:
        """A checkpoint through all tasks, with rows flowing meanwhile. `commit` False: the process dies after the
        manifest and before the sinks have heard of it. `aligned_timeout_ms`: when barriers begin to overtake. `full`:
        as for a savepoint."""
        self.checkpoint_id += 1
        barrier = Barrier(self.checkpoint_id, self.generation, False, aligned_timeout_ms, full, self._committed_id)
        waiting = [task for task in self.tasks.values() if task.operators.source is not None or task.finished_before]
        for task in waiting:
            task.trigger(barrier)
        while not all(self.checkpoint_id in task.complete for task in self.tasks.values()):
            for task in self.tasks.values():
                if self.checkpoint_id not in task.snapshots and task.ended:
                    task.trigger(barrier)
            if not self.step():
                missing = [str(t.vertex.name) for t in self.tasks.values() if self.checkpoint_id not in t.complete]
                assert not missing, f"checkpoint {self.checkpoint_id} never reached {missing}"
        for _ in range(self.random.randint(0, 5)):
            self.step()
        manifest = self._manifest()
        self._committed_id = self.checkpoint_id
        for path in (self.directory / STATE_FOLDER).iterdir():
            if f"{STATE_FOLDER}/{path.name}" not in manifest.paths:
                path.unlink()
        if commit:
            for task in self.tasks.values():
                if self.random.random() < 0.7:
                    task.notices.committed(self.checkpoint_id)
                for sink in task.operators.sinks:
                    sink.commit(self.checkpoint_id)
        return manifest

    def abort(self, *, aligned_timeout_ms: float | None = None) -> None:
        """A checkpoint that is given up somewhere on its way."""
        self.checkpoint_id += 1
        barrier = Barrier(self.checkpoint_id, self.generation, False, aligned_timeout_ms)
        for task in self.tasks.values():
            if task.operators.source is not None or task.finished_before:
                task.trigger(barrier)
        self.run(self.random.randrange(30))
        for task in self.random.sample(list(self.tasks.values()), len(self.tasks)):
            task.barriers.on_aborted(self.checkpoint_id)
            self.run(self.random.randrange(3))

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
