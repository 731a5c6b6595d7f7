"""Planted bugs: each is one mistake in a core, or in the shell around it, put in at run time. The checkers must catch
every one of them; those that they do not catch are holes in the simulation.

Cores are patched where they are called (events in, commands out), so a bug says what goes wrong and not in which line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from connectors.kafka import commits
from connectors.kafka.protocol import Redo
from runtime import key_groups
from runtime.checkpoint import coordination as c
from runtime.checkpoint import recovery
from runtime.checkpoint.coordinator import CheckpointCoordinator
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.participants import Participants
from runtime.checkpoint.store import CheckpointStore
from runtime.elements import Barrier
from runtime.exchange.channel import InputChannel
from runtime.jobmanager import job_events as core
from runtime.jobmanager.job import JobCore
from runtime.operators import source_watermarks
from runtime.protocol import messages as m
from runtime.taskmanager import barrier_aligner as aligner
from runtime.taskmanager.watermark_valve import WatermarkValve
from tests.simulation import checkpoints, jobmanager, operators, sink, snapshots, store, task
from tests.simulation.kernel import Steps

Install = Callable[[ExitStack], None]


class Bug(msgspec.Struct, frozen=True):
    name: str
    description: str
    install: Install


BUGS: dict[str, Bug] = {}


@contextmanager
def planted(name: str) -> Iterator[None]:
    task.owners_of_groups.cache_clear()
    with ExitStack() as stack:
        BUGS[name].install(stack)
        yield
    task.owners_of_groups.cache_clear()


def bug(description: str) -> Callable[[Install], Install]:
    def register(install: Install) -> Install:
        name = install.__name__.replace("_", "-")
        BUGS[name] = Bug(name, description, install)
        return install

    return register


def _replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    stack.enter_context(mock.patch.object(owner, name, value))


def _wrap(stack: ExitStack, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """`wrapper` gets the original as its first argument."""
    original = getattr(owner, name)
    _replace(stack, owner, name, lambda *arguments, **named: wrapper(original, *arguments, **named))


def _commands(stack: ExitStack, change: Callable[[list[Any]], list[Any]]) -> None:
    """Changes what the checkpoint coordinator commands."""
    _wrap(
        stack,
        CheckpointCoordinator,
        "handle",
        lambda original, self, event, now_ms: change(original(self, event, now_ms)),
    )


# ------------------------------------------------------------------------------------------------ the coordinator


@bug("COMMIT goes out when all acks are in, before the pointer has moved")
def commit_before_pointer(stack: ExitStack) -> None:
    def change(commands: list[Any]) -> list[Any]:
        early = [c.SendCommit(x.checkpoint_id) for x in commands if isinstance(x, c.StoreCheckpoint)]
        return early + commands

    _commands(stack, change)


@bug("a late ack of an earlier checkpoint counts for the one in flight")
def late_ack_accepted(stack: ExitStack) -> None:
    def handle(original: Any, self: Any, event: Any, now_ms: int) -> Any:
        current = getattr(self, "planted_current", 0)
        if isinstance(event, c.SubtaskAcked) and event.checkpoint_id < current:
            event = msgspec.structs.replace(event, checkpoint_id=current)
        commands = original(self, event, now_ms)
        for command in commands:
            if isinstance(command, c.ReserveCheckpointId):
                self.planted_current = command.checkpoint_id
        return commands

    _wrap(stack, CheckpointCoordinator, "handle", handle)


@bug("the ids of checkpoints are not made durable before barriers leave")
def ids_not_durable(stack: ExitStack) -> None:
    _commands(stack, lambda commands: [x for x in commands if not isinstance(x, c.ReserveCheckpointId)])


@bug("snapshots of finished tasks are not carried into later checkpoints")
def finished_snapshot_dropped(stack: ExitStack) -> None:
    def change(commands: list[Any]) -> list[Any]:
        changed = []
        for command in commands:
            if isinstance(command, c.StoreCheckpoint) and not all(s.finished for s in command.snapshots):
                live = tuple(s for s in command.snapshots if not s.finished)
                command = msgspec.structs.replace(command, snapshots=live)
            changed.append(command)
        return changed

    _commands(stack, change)


@bug("the floor of acknowledged commits is not kept in the checkpoint: an old marker goes unnoticed")
def floor_not_kept(stack: ExitStack) -> None:
    _commands(
        stack,
        lambda commands: [
            msgspec.structs.replace(x, floors={}) if isinstance(x, c.StoreCheckpoint) else x for x in commands
        ],
    )


# ----------------------------------------------------------------------------------------------- job and deployment


@bug("acks are not fenced by attempt: what an old attempt has acknowledged counts for its successor")
def ack_not_fenced_by_attempt(stack: ExitStack) -> None:
    def receive(original: Any, self: Any, message: Any) -> None:
        execution = self.core.execution
        if isinstance(message, m.CheckpointAcknowledged) and execution is not None:
            kept = vars(self).setdefault("planted_acks", {})
            for newest in execution.attempts:
                old = kept.get(newest.key)
                if old is not None and old.attempt != newest:
                    number = message.checkpoint_id
                    original(self, msgspec.structs.replace(old, attempt=newest, checkpoint_id=number))
            kept[message.attempt.key] = message
        original(self, message)

    _wrap(stack, jobmanager.Job, "receive", receive)


@bug("sources are started when the first task has recovered")
def started_before_all_recovered(stack: ExitStack) -> None:
    def handle(original: Any, self: Any, event: Any, now_ms: int) -> Any:
        commands = original(self, event, now_ms)
        if isinstance(event, core.TaskRecovered) and not commands and self.execution is not None:
            for attempt in self.execution.attempts:
                commands += original(self, core.TaskRecovered(attempt, {}), now_ms)
        return commands

    _wrap(stack, JobCore, "handle", handle)


@bug("a failure that an old generation's task reports late begins another generation beside the new one")
def late_failure_counts(stack: ExitStack) -> None:
    def handle(original: Any, self: Any, event: Any, now_ms: int) -> Any:
        stale = isinstance(event, core.TaskChanged) and event.state is m.TaskState.FAILED
        if stale and (self._preparing is not None or event.attempt.generation < self.execution.generation):
            return [core.PrepareGeneration()]
        return original(self, event, now_ms)

    _wrap(stack, JobCore, "handle", handle)


@bug("a restarting region reads the pointer while a checkpoint is still being stored")
def region_does_not_wait(stack: ExitStack) -> None:
    def at_once(self: Any) -> Steps:
        return
        yield

    _replace(stack, checkpoints.Checkpoints, "settled", at_once)
    # The durable thread would still keep the order.
    _replace(stack, jobmanager.Job, "durably", lambda self, work: work)


@bug("the checkpoint in flight is not given up when a region restarts")
def lost_tasks_still_counted(stack: ExitStack) -> None:
    def handle(original: Any, self: Any, event: Any, now_ms: int) -> Any:
        if isinstance(event, c.TasksLost):
            self.planted_lost = (*getattr(self, "planted_lost", ()), *event.attempts)
            return []
        if isinstance(event, c.TasksReplaced):
            return original(self, c.TasksLost(self.planted_lost), now_ms) + original(self, event, now_ms)
        return original(self, event, now_ms)

    _wrap(stack, CheckpointCoordinator, "handle", handle)


@bug("metadata writes are not fenced by the leader token: two JobManagers both write")
def two_leaders(stack: ExitStack) -> None:
    _replace(stack, store.LeaderView, "check_leader", lambda self: None)


@bug("checkpoint ids do not rise above the markers found at the start")
def ids_below_markers(stack: ExitStack) -> None:
    _replace(stack, jobmanager, "first_checkpoint_id", lambda reserved, restored, highest: max(reserved, restored + 1))


# -------------------------------------------------------------------------------------------------------- recovery


@bug("the last key group of a range belongs to nobody or to two: off by one")
def key_group_off_by_one(stack: ExitStack) -> None:
    def shifted(original: Any, index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
        first, last = original(index, parallelism, max_parallelism)
        return first, min(last + 1, max_parallelism - 1)

    _wrap(stack, key_groups, "key_group_range", shifted)
    _wrap(stack, recovery, "key_group_range", shifted)


@bug("event-time clocks of key groups are not restored")
def clocks_not_restored(stack: ExitStack) -> None:
    _replace(stack, recovery, "_clocks", lambda state, first, last: {})


@bug("every subtask keeps its own splits, also at another parallelism")
def splits_not_spread(stack: ExitStack) -> None:
    def own_only(states: Any, parallelism: int, first: int = 0) -> list[tuple[Any, ...]]:
        spread: list[list[Any]] = [[] for _ in range(max(parallelism, 3))]
        for number, state in enumerate(states, start=first):
            spread[number % 3].append(state)
        return [tuple(part) for part in spread[:parallelism]]

    _replace(stack, recovery, "spread_splits", own_only)


@bug("of a chain of state files only the newest is restored")
def chain_cut(stack: ExitStack) -> None:
    def newest(original: Any, state: Any, first: int, last: int) -> Any:
        handles = original(state, first, last)
        latest = {(h.key_group_first, h.key_group_last): h for h in sorted(handles, key=lambda h: h.checkpoint_id)}
        return tuple(latest.values())

    _wrap(stack, recovery, "_segments", newest)


# ------------------------------------------------------------------------------------------------------ tasks


@bug("channels are not blocked during alignment: rows behind the barrier get into the snapshot")
def data_overtakes_barrier(stack: ExitStack) -> None:
    def unblocked(original: Any, self: Any, *arguments: Any) -> Any:
        return [x for x in original(self, *arguments) if not isinstance(x, aligner.BlockChannel)]

    _wrap(stack, aligner.BarrierAligner, "on_barrier", unblocked)


@bug("the first barrier takes the snapshot: it overtakes the rows of the other channels")
def barrier_overtakes_data(stack: ExitStack) -> None:
    def first(self: Any, channel: int, barrier: Barrier, now_ms: float) -> list[Any]:
        if barrier.checkpoint_id <= getattr(self, "planted_seen", 0):
            return []
        self.planted_seen = barrier.checkpoint_id
        return [aligner.TakeSnapshot(barrier, 0.0)]

    _replace(stack, aligner.BarrierAligner, "on_barrier", first)


@bug("the source's offset is taken after the next batch, which is behind the barrier")
def offset_after_the_batch(stack: ExitStack) -> None:
    def ahead(original: Any, self: Any) -> Any:
        splits = self._workload.splits
        return tuple(
            msgspec.structs.replace(
                state, position=str(min(len(splits[int(state.split.id)]), int(state.position) + 1)).encode()
            )
            for state in original(self)
        )

    _wrap(stack, operators.SourceOperator, "snapshot", ahead)


@bug("what an unaligned barrier has overtaken in the input channels is not recorded")
def in_flight_not_recorded(stack: ExitStack) -> None:
    _wrap(stack, InputChannel, "end_recording", lambda original, self: original(self)[:0])


@bug("what was in flight behind a task that is done is carried into every later checkpoint")
def in_flight_of_done_tasks_kept(stack: ExitStack) -> None:
    def note(original: Any, self: Any, checkpoint: Any) -> None:
        original(self, checkpoint)
        for attempt, snapshot in checkpoint.acks.items():
            if attempt in self._done:
                self._done[attempt] = msgspec.structs.replace(self._done[attempt], in_flight=snapshot.in_flight)

    _wrap(stack, Participants, "note_completion", note)


@bug("a split that has not been read yet does not hold the watermark")
def unread_split_ignored(stack: ExitStack) -> None:
    _replace(
        stack,
        source_watermarks,
        "_minimum",
        lambda watermarks: min((w for w in watermarks if w is not None), default=None),
    )


@bug("a task takes the highest watermark of its channels")
def highest_watermark(stack: ExitStack) -> None:
    _wrap(
        stack,
        WatermarkValve,
        "on_watermark",
        lambda original, self, index, timestamp_ms: (
            list(self._advance(timestamp_ms)) or original(self, index, timestamp_ms)
        ),
    )


@bug("a snapshot is acknowledged before its files are durable, and nobody looks before the pointer moves")
def pointer_before_files(stack: ExitStack) -> None:
    def write(self: Any, number: int, captured: Any, written: Any) -> Steps:
        def late() -> Steps:
            for handle, content in written:
                file = self._task.create(handle.path)
                yield 5
                self._task.world.files.seal(file, content)

        self._task.slot.start(late())
        yield 0

    _replace(stack, snapshots.TaskSnapshots, "_write", write)
    _replace(stack, checkpoints.Checkpoints, "check_files", lambda self, manifest: None)


# ------------------------------------------------------------------------------------------------------ files


@bug("retention deletes files of a dropped checkpoint that a retained one still names")
def shared_file_deleted(stack: ExitStack) -> None:
    _wrap(stack, CheckpointStore, "remove", lambda original, self, dropped, retained: original(self, dropped, []))


@bug("the sweep deletes files of the live generation, too, and runs when it is deployed")
def sweep_after_deployment(stack: ExitStack) -> None:
    def restore_again(original: Any, records: Any, places: Any, record: Any, graph: Any, first: Any) -> Any:
        restored = original(records, places, record, graph, first)
        retained = (
            [] if restored.choice is None else [(restored.choice.chosen.pointer, restored.choice.chosen.manifest)]
        )
        places.sweep(record.job_id, retained, record.generation + 1)
        return restored

    _wrap(stack, jobmanager, "restore_again", restore_again)
    _wrap(
        stack,
        jobmanager.Job,
        "_restore_again",
        lambda original, self, record, number: _then_delete(original(self, record, number), self),
    )


def _then_delete(steps: Steps, job: Any) -> Steps:
    restored = yield from steps
    yield from job.delete_noted()
    return restored


@bug("the sweep forgets write-ahead files that are pending")
def sweep_of_pending_epochs(stack: ExitStack) -> None:
    _replace(stack, CheckpointManifest, "epoch_files", ())


@bug("files of a checkpoint that was given up are deleted although a retained one names them")
def discarded_though_needed(stack: ExitStack) -> None:
    def discard(original: Any, self: Any, job_id: Any, generation: int, number: Any, snapshots: Any, kept: Any) -> None:
        original(self, job_id, generation, number, snapshots, ())

    _wrap(stack, CheckpointStore, "discard", discard)


@bug("a write-ahead file goes with its own commit's acknowledgement")
def epoch_file_deleted_early(stack: ExitStack) -> None:
    def committed(original: Any, self: Any, due: Sequence[Redo]) -> Any:
        original(self, due)
        return [each.committable for each in due]

    _wrap(stack, commits.PendingEpochs, "committed", committed)


# ------------------------------------------------------------------------------------------------------ the sink


@bug("the marker is read before the fence")
def marker_before_fence(stack: ExitStack) -> None:
    def read_then_fence(self: Any, clients: Any) -> Steps:
        markers = yield from sink.read_markers(self._task, self.namespace)
        yield 60
        for client in clients:
            yield from client.fence()
        return markers

    _replace(stack, sink.SinkOperator, "fence_and_read", read_then_fence)


@bug("the marker topic is read to the last stable offset only")
def marker_to_stable_offset(stack: ExitStack) -> None:
    _replace(stack, commits.MarkerScan, "complete", property(lambda self: True))


@bug("epochs of a checkpoint that was given up are dropped")
def pending_epochs_dropped(stack: ExitStack) -> None:
    def only_newest(original: Any, self: Any, epoch: Any) -> None:
        self._pending = []
        original(self, epoch)

    _wrap(stack, commits.PendingEpochs, "seal", only_newest)


@bug("an old owner's epochs are committed under the new subtask's transactional id")
def committed_under_new_id(stack: ExitStack) -> None:
    def own_id(original: Any, self: Any, running: Any, namespace: str, owner: int) -> None:
        original(self, running, namespace, owner)
        self.id = sink.transactional_id(namespace, running.descriptor.subtask_index)

    _wrap(stack, sink.Client, "__init__", own_id)


@bug("a commit with unknown outcome is aborted and its epoch produced again")
def doubtful_commit_repeated(stack: ExitStack) -> None:
    def publish(original: Any, self: Any, epochs: Sequence[Redo]) -> Steps:
        while True:
            self.planted_doubt = False
            yield from original(self, epochs)
            if not self.planted_doubt:
                return
            yield from self.fence()

    def in_doubt(self: Any, doing: str) -> Steps:
        self.planted_doubt = True
        yield 1

    _wrap(stack, sink.Client, "publish", publish)
    _replace(stack, sink.Client, "in_doubt", in_doubt)


@bug("recovery writes all pending epochs again, whatever the marker says")
def marker_ignored(stack: ExitStack) -> None:
    def everything(original: Any, state: Any, marker: Any) -> Any:
        plan = original(state, marker)
        return msgspec.structs.replace(plan, redo=tuple(Redo(each) for each in state.pending))

    _wrap(stack, commits, "plan_recovery", everything)


@bug("after a rescale nobody resolves the epochs of owners that are no subtask any more")
def old_owners_forgotten(stack: ExitStack) -> None:
    _wrap(
        stack,
        commits.SinkRecovery,
        "__init__",
        lambda original, self, own, states, *rest: original(self, own, [s for s in states if s.owner == own], *rest),
    )
