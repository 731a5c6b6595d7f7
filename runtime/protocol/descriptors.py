"""TaskDescriptor: everything a slot needs to run one task. Made by the scheduler, read by the slot."""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import EdgeKind, Vertex
from planner.ir.operators import ChangelogMode, Schema
from runtime.checkpoint.snapshot import InFlightRestore, OperatorRestore
from runtime.ids import AttemptId, JobId, SlotId


class ChannelAddress(msgspec.Struct, frozen=True):
    """Where the other end of a channel lives. Equal slot ids = same process: a local channel."""

    slot_id: SlotId
    host: str
    port: int


class ChannelEnd(msgspec.Struct, frozen=True):
    """The task at the other end of one channel of an edge."""

    attempt: AttemptId
    address: ChannelAddress


class InputDescriptor(msgspec.Struct, frozen=True):
    """One incoming edge: one channel per listed producer subtask. `source_uid`: the operator that fills it.
    `input_index`: which input of the vertex's first operator takes its rows."""

    edge_id: int
    kind: EdgeKind
    schema: Schema
    changelog: ChangelogMode
    producers: tuple[ChannelEnd, ...]
    source_uid: str = ""
    input_index: int = 0


class OutputDescriptor(msgspec.Struct, frozen=True):
    """One outgoing edge: one channel per listed consumer subtask, in subtask order. `consumer_parallelism` and the
    vertex's max parallelism give the key-group ranges of a hash edge. `target_uid`: the operator that reads it,
    `input_index`: as which of its inputs."""

    edge_id: int
    kind: EdgeKind
    schema: Schema
    changelog: ChangelogMode
    keys: tuple[int, ...]
    consumer_parallelism: int
    consumers: tuple[ChannelEnd, ...]
    target_uid: str = ""
    input_index: int = 0


class TaskDescriptor(msgspec.Struct, frozen=True):
    """`settings` are the job's effective settings (Flink's keys). `checkpoint_directory` is the URI of the job's own
    place in the checkpoint store; `incarnation` names the generation in sink markers; `namespaces` maps a sink
    operator's uid to its namespace; `restored_checkpoint_id` is 0 for a fresh start."""

    attempt: AttemptId
    vertex: Vertex
    inputs: tuple[InputDescriptor, ...]
    outputs: tuple[OutputDescriptor, ...]
    settings: dict[str, str]
    checkpoint_directory: str
    incarnation: str
    namespaces: dict[str, str] = {}
    restored_checkpoint_id: int = 0
    restore: tuple[OperatorRestore, ...] = ()
    in_flight: tuple[InFlightRestore, ...] = ()
    """What is processed before any input, in this order."""
    finished: bool = False
    """The task had already ended in the restored checkpoint: it restores its state, ends at once and fires nothing."""

    @property
    def job_id(self) -> JobId:
        return self.attempt.job_id

    @property
    def subtask_index(self) -> int:
        return self.attempt.subtask_index

    @property
    def ended_operators(self) -> frozenset[str]:
        """Uids of those that are restored as ended."""
        return frozenset(restore.uid for restore in self.restore if restore.ended)

    @property
    def parallelism(self) -> int:
        return self.vertex.parallelism
