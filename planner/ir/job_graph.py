"""The JobGraph: what the planner emits and the runtime executes. Plain frozen data with a format version."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.operators import ChangelogMode, Operator, Schema

FORMAT_VERSION = 1
DEFAULT_MAX_PARALLELISM = 128


class EdgeKind(StrEnum):
    """How rows of a producer subtask are spread over consumer subtasks. RESCALE: in turn over the consumers of the same
    stretch of the longer side (as Flink's rescale: producer i of 2 feeds consumers 2i and 2i + 1 of 4). BROADCAST:
    every row to every consumer."""

    FORWARD = "forward"
    HASH = "hash"
    SINGLE = "single"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    BROADCAST = "broadcast"


class Vertex(msgspec.Struct, frozen=True):
    """One operator chain: consecutive operators joined by forward edges, run as one task per subtask.

    `operators[0]` reads the vertex's input edges (or is a Source/Values); each next one takes the previous one's
    output by function call. `uid` is stable over edits of the script (that of the first operator with state)."""

    id: int
    uid: str
    name: str
    operators: tuple[Operator, ...]
    parallelism: int
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    slot_sharing_group: str = "default"


class Edge(msgspec.Struct, frozen=True):
    """A stream between two vertices. `keys` are column indexes in `schema`, for HASH only. Several edges may end in
    one vertex: those of one `input_index` are merged in any order (UNION ALL); a vertex that begins with a two-input
    operator has edges of 0 (left) and 1 (right)."""

    source: int
    target: int
    kind: EdgeKind
    schema: Schema
    keys: tuple[int, ...] = ()
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    input_index: int = 0


class StatePart(msgspec.Struct, frozen=True):
    """Something that an operator's state depends on, for people: `columns` with their names and types, `ORDER BY`, …"""

    name: str
    items: tuple[str, ...]


class Fingerprint(msgspec.Struct, frozen=True):
    """Identity of an operator's state: compared at restore (see ARCHITECTURE.md, *Stable ids*). `parts` say in words
    what `state` is made of; they decide nothing."""

    uid: str
    state: str
    input: str
    location: str
    parts: tuple[StatePart, ...] = ()


class JobGraph(msgspec.Struct, frozen=True):
    """A whole job. `settings` are the effective configuration keys (Flink's names) at submission time, as text:
    e.g. `execution.checkpointing.interval`, `restart-strategy.type`, `table.local-time-zone`, `pipeline.name`."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    settings: dict[str, str]
    fingerprints: tuple[Fingerprint, ...] = ()
    bounded: bool = False
    is_query: bool = False
    """True for a SELECT: it ends in a Collect sink and is not restarted."""
    origin: bytes = b""
    """What the planner made it from, in a form of its own: `planner.api.recompile` makes the same job anew, at another
    parallelism. Empty for a SELECT."""
    version: int = FORMAT_VERSION

    def vertex(self, vertex_id: int) -> Vertex:
        return next(v for v in self.vertices if v.id == vertex_id)

    def inputs(self, vertex_id: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.target == vertex_id)

    def outputs(self, vertex_id: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.source == vertex_id)

    @property
    def subtask_count(self) -> int:
        """Operator subtasks: one per operator and parallel copy."""
        return sum(len(v.operators) * v.parallelism for v in self.vertices)

    @property
    def task_count(self) -> int:
        """Tasks: one per vertex (chain) and parallel copy."""
        return sum(v.parallelism for v in self.vertices)

    @property
    def slot_count(self) -> int:
        """Slots needed: per slot-sharing group its largest parallelism, summed."""
        groups: dict[str, int] = {}
        for v in self.vertices:
            groups[v.slot_sharing_group] = max(groups.get(v.slot_sharing_group, 0), v.parallelism)
        return sum(groups.values())
