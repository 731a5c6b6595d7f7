"""What must hold, said from the specification alone: no code here is shared with the cores that are checked.

Each method hears of one kind of event at the moment it happens and raises Violation; `finally_exact` looks at the whole
output once everything is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from planner.ir.job_graph import JobGraph, Vertex
from runtime.api import JobState
from runtime.checkpoint.coordination import StoreCheckpoint
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer, decode_manifest
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId
from runtime.jobmanager.job_events import RecordState
from runtime.jobmanager.preparation import Restored
from runtime.metadata.jobs import JobRecord
from tests.simulation.broker import Transaction
from tests.simulation.kernel import Violation
from tests.simulation.store import named_files
from tests.simulation.task import Task, is_count, is_source
from tests.simulation.workload import KEY_GROUPS, Row

if TYPE_CHECKING:
    from tests.simulation.cluster import World

GenerationKey = tuple[str, int]
RegionKey = tuple[str, int, int, int]
"""Job, generation, attempt number and pipeline: tasks that started together and exchange rows."""


def pipeline_of(vertex: Vertex) -> int:
    """The last digit of its uid."""
    return int(vertex.uid[-1])


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._highest_id = 0
        self._trigger_job = ""
        self._pointer: CheckpointPointer | None = None
        self._pointer_job = ""
        self._manifest: CheckpointManifest | None = None
        self._needed: set[str] = set()
        self._deployed: set[AttemptId] = set()
        self._newest: dict[tuple[str, int, int], AttemptId] = {}
        self._initialized: dict[RegionKey, set[tuple[int, int]]] = {}
        self._owners: dict[tuple[RegionKey, int], int] = {}
        self._restored: dict[GenerationKey, CheckpointManifest | None] = {}
        self._graphs: dict[GenerationKey, JobGraph] = {}
        self._generations: dict[str, int] = {}
        self._snapshots: dict[int, tuple[AttemptId, int, SubtaskSnapshot]] = {}
        self._ended_jobs: set[str] = set()
        self._failed = False
        self._first_commits: dict[tuple[str, int], int] = {}
        self._markers: dict[tuple[str, int], tuple[int, int]] = {}

    # ----------------------------------------------------------------------------------------------- ids, pointer

    def triggered(self, token: int, job_id: str, number: int) -> None:
        """Checkpoint ids grow over all crashes, restores and jobs of one line. (A leader that is none any more may
        still try; its tasks are out of its reach.)"""
        if token != self._world.metadata.leader_token:
            return
        if self._world.is_rewound and job_id != self._trigger_job:
            # The line that was left counts only with what the owners that the savepoint knows have committed.
            sinks = self._manifest.sinks if self._manifest is not None else ()
            known = {(sink.namespace, owner) for sink in sinks for owner in range(sink.owner_count)}
            committed = [number for key, (number, _) in self._markers.items() if key in known]
            self._highest_id = max(committed, default=0)
        self._trigger_job = job_id
        if number <= self._highest_id:
            raise Violation(f"checkpoint id {number} comes after {self._highest_id}")
        self._highest_id = number

    def pointer_moved(self, token: int, job_id: str, value: bytes) -> None:
        """Only by the leader, only forwards, and only to what is whole."""
        world = self._world
        pointer = msgspec.msgpack.decode(value, type=CheckpointPointer)
        self._kernel.log(None, f"pointer of job {int(job_id[:8], 16)} moves to checkpoint {pointer.checkpoint_id}")
        if token != world.metadata.leader_token:
            raise Violation("the pointer was moved by a JobManager that leads no longer")
        if job_id in self._ended_jobs:
            raise Violation("the pointer of a job that has ended was moved")
        old = self._pointer
        lowest = 0
        if old is not None and (job_id == self._pointer_job or not world.is_rewound):
            lowest = old.checkpoint_id + (job_id == self._pointer_job)
        if old is not None and pointer.checkpoint_id < lowest:
            raise Violation(f"the pointer went from {old.checkpoint_id} back to {pointer.checkpoint_id}")
        if old is not None and old.stopped_with and job_id == self._pointer_job:
            raise Violation("a job went on after a savepoint had stopped it")
        directory = f"{job_id}/"
        found = world.files.find(directory + pointer.path)
        if found is None or found.content is None:
            raise Violation(f"the pointer names {pointer.path}, which is not durable")
        manifest = decode_manifest(found.content)
        self._needed = named_files(pointer, manifest, directory)
        for path in self._needed:
            file = world.files.find(path)
            if file is None or file.content is None:
                raise Violation(f"checkpoint {pointer.checkpoint_id} is committed, but {path} is missing or cut")
        self._pointer, self._pointer_job, self._manifest = pointer, job_id, manifest

    def committed(self, transaction: Transaction) -> None:
        """Rows become visible only behind the pointer; markers of an owner never go back."""
        pointer_id = self._pointer.checkpoint_id if self._pointer is not None else 0
        if transaction.rows and not transaction.markers:
            raise Violation("rows became visible without a marker")
        for owner, marker in transaction.markers.items():
            if marker.checkpoint_id > pointer_id:
                raise Violation(f"owner {owner} committed {marker.checkpoint_id}, the pointer is at {pointer_id}")
            place = (marker.checkpoint_id, marker.upto if marker.upto is not None else 1 << 30)
            key = (transaction.namespace, owner)
            if place < self._markers.get(key, (0, 0)) and not self._world.is_rewound:
                raise Violation(f"the marker of owner {owner} went back to {marker.checkpoint_id}")
            self._markers[key] = place
            if transaction.rows and marker.upto is None:
                self._first_commits.setdefault(key, marker.checkpoint_id)

    def owner_with_floor(self) -> tuple[str, int] | None:
        """A sink owner (of a namespace) with a commit that was acknowledged before the latest checkpoint: it is pending
        there no more, so the checkpoint must know of it otherwise."""
        manifest, pointer = self._manifest, self._pointer
        if manifest is None or pointer is None:
            return None
        epochs = [c for s in manifest.snapshots for o in s.operators for c in o.committables]
        pending = {(epoch.owner, epoch.checkpoint_id) for epoch in epochs}
        for key, number in sorted(self._first_commits.items()):
            if number < pointer.checkpoint_id and (key[1], number) not in pending:
                return key
        return None

    # ------------------------------------------------------------------------------------------------- checkpoints

    def snapshot_taken(self, task: Task, number: int, snapshot: SubtaskSnapshot) -> None:
        self._snapshots[id(snapshot)] = (task.attempt, number, snapshot)

    def acknowledged(self, token: int, job_id: str, generation: int, command: StoreCheckpoint) -> None:
        """A checkpoint consists of one snapshot of each subtask, by its one live attempt, taken for it."""
        if token != self._world.metadata.leader_token:
            return
        graph = self._graphs[job_id, generation]
        expected = {(v.id, index) for v in graph.vertices for index in range(v.parallelism)}
        found = [(s.vertex_id, s.subtask_index) for s in command.snapshots]
        if sorted(found) != sorted(expected):
            raise Violation(f"checkpoint {command.checkpoint_id} consists of {found}")
        for snapshot in command.snapshots:
            attempt, number, _ = self._snapshots.get(id(snapshot), (None, 0, None))
            newest = self._newest[job_id, snapshot.vertex_id, snapshot.subtask_index]
            if attempt is None and snapshot.finished:
                continue  # The last word of a finished task, without what it has committed.
            if attempt != newest or number != command.checkpoint_id:
                raise Violation(
                    f"checkpoint {command.checkpoint_id} holds what {attempt} took for {number}, not {newest}"
                )

    # ------------------------------------------------------------------------------------------------- tasks

    def begun(self, record: JobRecord, graph: JobGraph) -> None:
        """A generation is durable: those before it are over."""
        if record.generation <= self._generations.get(record.job_id, 0):
            raise Violation(f"generation {record.generation} was begun twice")
        self._generations[record.job_id] = record.generation
        self._graphs[record.job_id, record.generation] = graph

    def deployed(self, task: Task) -> None:
        attempt = task.attempt
        if attempt in self._deployed:
            raise Violation(f"{attempt} was deployed twice")
        self._deployed.add(attempt)
        key = (attempt.job_id, attempt.vertex_id, attempt.subtask_index)
        if key not in self._newest or attempt > self._newest[key]:
            self._newest[key] = attempt

    def restored(self, task: Task) -> None:
        """Each key group has one owner, and its clock goes on where the checkpoint has it."""
        count, attempt = task.count, task.attempt
        if count is None:
            return
        manifest = self._restored.get((attempt.job_id, attempt.generation))
        clocks: dict[int, int] = {}
        for snapshot in manifest.snapshots if manifest is not None else ():
            for operator in snapshot.operators:
                for group, clock_ms in operator.clocks.items() if operator.uid == count.uid else ():
                    clocks[group] = max(clocks.get(group, clock_ms), clock_ms)
        for group in range(count.first, count.last + 1):
            owner = self._owners.setdefault((self._region(attempt), group), attempt.subtask_index)
            if owner != attempt.subtask_index:
                raise Violation(f"key group {group} belongs to subtasks {owner} and {attempt.subtask_index}")
            if group in clocks and count.clocks.get(group, clocks[group] - 1) < clocks[group]:
                raise Violation(f"the clock of key group {group} went back at a restore")

    def initialized(self, task: Task) -> None:
        attempt = task.attempt
        self._initialized.setdefault(self._region(attempt), set()).add((attempt.vertex_id, attempt.subtask_index))

    def go(self, attempts: Sequence[AttemptId]) -> None:
        for attempt in attempts:
            self._all_initialized(attempt, "tasks were started")

    def rows_read(self, task: Task) -> None:
        self._all_initialized(task.attempt, "a source reads")

    def _all_initialized(self, attempt: AttemptId, what: str) -> None:
        """Sources may read once every owner's pending epochs are resolved and every key group has its owner."""
        region = self._region(attempt)
        graph = self._graphs[attempt.job_id, attempt.generation]
        tasks = sum(v.parallelism for v in graph.vertices if pipeline_of(v) == region[-1])
        if len(self._initialized.get(region, ())) < tasks:
            raise Violation(f"{what} before all tasks of its region were recovered: {attempt}")
        if any((region, group) not in self._owners for group in range(KEY_GROUPS)):
            raise Violation(f"{what}, but a key group has no owner")

    def _region(self, attempt: AttemptId) -> RegionKey:
        graph = self._graphs[attempt.job_id, attempt.generation]
        return attempt.job_id, attempt.generation, attempt.number, pipeline_of(graph.vertex(attempt.vertex_id))

    def row_processed(self, task: Task, group: int) -> None:
        attempt = task.attempt
        owner = self._owners.get((self._region(attempt), group))
        if owner != attempt.subtask_index:
            raise Violation(f"a row of key group {group}, which subtask {owner} owns, came to {task.name}")

    def row_dropped(self, task: Task, row: Row) -> None:
        if not row.is_late and self._world.workload.is_strict:
            raise Violation(f"{task.name} dropped {row}, which was on time in its split")

    def watermark(self, task: Task, old_ms: int | None, new_ms: int) -> None:
        if old_ms is not None and new_ms < old_ms:
            raise Violation(f"the watermark of {task.name} went from {old_ms} to {new_ms}")

    def is_over(self, task: Task) -> bool:
        """It is a zombie: its job has ended, or a newer generation has begun."""
        attempt = task.attempt
        return attempt.job_id in self._ended_jobs or self._generations[attempt.job_id] > attempt.generation

    # ------------------------------------------------------------------------------------------------- files

    def deleted(self, path: str) -> None:
        """No file that the pointer's checkpoint names, nor one that a live task will name again."""
        job_id = path.split("/", 1)[0]
        if job_id in self._ended_jobs:
            return
        if path in self._needed:
            raise Violation(f"{path} was deleted, and the latest checkpoint needs it")
        for slot in self._world.slots.values():
            for task in slot.tasks.values():
                attempt = task.attempt
                if task.over or attempt.job_id != job_id or attempt.generation != self._generations.get(job_id):
                    continue
                if self._newest.get((job_id, attempt.vertex_id, attempt.subtask_index)) != attempt:
                    continue
                names = [h.path for h in task.count.committed_chain] if task.count is not None else []
                names += [c.file for c in task.sink.pending] if task.sink is not None else []
                if path.split("/", 1)[1] in names:
                    raise Violation(f"{path} was deleted, and {task.name} will name it in its next checkpoint")

    def prepared(self, record: JobRecord, number: int, restored: Restored, listed: Sequence[str]) -> None:
        """After a sweep nothing is left of what it saw but what retained checkpoints name."""
        self._restored[record.job_id, record.generation] = None
        named: set[str] = set()
        if restored.choice is not None:
            self._restored[record.job_id, record.generation] = restored.choice.chosen.manifest
            for each in (*restored.choice.earlier, restored.choice.chosen):
                named |= named_files(each.pointer, each.manifest, f"{record.job_id}/")
        orphans = [path for path in listed if path not in named and self._world.files.find(path) is not None]
        if orphans and self._generations.get(record.job_id) == record.generation:
            raise Violation(f"orphaned after the sweep: {orphans}")

    # ------------------------------------------------------------------------------------------------- the end

    def ended(self, record: JobRecord, command: RecordState) -> None:
        """FINISHED means that all output is visible."""
        if command.state is JobState.FAILED and self._world.expects_failure:
            self._failed = True
        elif command.state is not JobState.FINISHED:
            raise Violation(f"the job is {command.state}: {command.failure}")
        self._ended_jobs.add(record.job_id)
        if self._world.broker.has_unresolved():
            raise Violation("the job is FINISHED, and a transaction of its sinks is not resolved")

    def finally_exact(self) -> None:
        """Exactly once, in order, nothing on time lost, and every row counted or known to be late."""
        world, manifest = self._world, self._manifest
        if self._failed:
            self._nothing_doubled()
            return
        if manifest is None:
            raise Violation("the job has ended without a checkpoint")
        positions: dict[int, int] = {}
        late = 0
        for snapshot in manifest.snapshots:
            for operator in snapshot.operators:
                if is_source(operator.uid):
                    positions |= {int(s.split.id): int(s.position or b"0") for s in operator.splits}
                elif is_count(operator.uid):
                    late += operator.counters.get("late", 0)
        rows = {split: len(rows) for split, rows in enumerate(world.workload.splits)}
        if not manifest.drained and positions != rows:
            raise Violation(f"the job has ended at {positions}, its splits have {rows}")
        output = world.broker.committed_output()
        if world.is_rewound:
            output = list(dict.fromkeys(output))
        counts = Counter(row for row in output if row[0] == "n")
        expected = world.workload.counts(positions)
        lost, wrong = expected - counts, counts - expected
        if world.is_rewound and manifest.drained:
            # The line that was left may have read further.
            wrong = counts - world.workload.counts(rows)
        if lost or wrong:
            raise Violation(f"lost: {sorted(lost.elements())}; doubled or wrong: {sorted(wrong.elements())}")
        # Which rows are late may differ between the two times of a job that was set back.
        is_certain = world.workload.is_strict and not world.workload.has_late_rows and not manifest.drained
        comparable = not world.is_rewound or is_certain
        if not comparable:
            output = [row for row in output if row[0] == "n"]
        seen: dict[tuple[str, int], int] = {}
        for kind, key, number, _ in output:
            # A window's number is its end: those of a key fire in order of time.
            if number <= seen.get((kind, key), -1):
                raise Violation(f"output of key {key} is out of order or doubled: {kind} {number}")
            seen[kind, key] = number
        if not comparable:
            return
        windows = {(key, end): count for kind, key, end, count in output if kind == "w"}
        bounds = world.workload.windows(positions)
        for window, (least, most) in bounds.items():
            if not least <= windows.get(window, 0) <= most:
                raise Violation(f"window {window} has {windows.get(window, 0)} rows, not {least} to {most}")
        total = sum(positions.values())
        if sum(windows.values()) + late != total or not windows.keys() <= bounds.keys():
            raise Violation(f"{sum(windows.values())} rows in windows and {late} late ones are not {total}")

    def _nothing_doubled(self) -> None:
        """A job that has failed because a marker was lost has written nothing twice."""
        doubled = [row for row, count in Counter(self._world.broker.committed_output()).items() if count > 1]
        if doubled and not self._world.is_rewound:
            raise Violation(f"doubled: {sorted(doubled)}")
