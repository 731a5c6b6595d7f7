"""The relational tree. Every node is frozen, knows its columns, and refers to its inputs' columns by index."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.catalog import ObjectPath, TableCapabilities, TableEntry
from planner.errors import Span
from planner.ir.expressions import Expression
from planner.ir.operators import AggregateCall, ConflictAction, WindowProperty
from planner.ir.types import DataType


class Column(msgspec.Struct, frozen=True):
    """A column of a node's output. `lost` says why it is no time attribute any more, or is empty."""

    name: str
    type: DataType
    lost: str = ""


class Scan(msgspec.Struct, frozen=True):
    """Reads a table. `kept[i]` is the index in `entry.columns` of output column i; options have hints merged in."""

    path: ObjectPath
    entry: TableEntry
    options: dict[str, str]
    capabilities: TableCapabilities
    kept: tuple[int, ...]
    columns: tuple[Column, ...]


class ChangelogNormalize(msgspec.Struct, frozen=True):
    """Last row per key over a source that gives upserts by its primary key or may repeat events; the output is a
    changelog with full rows. Stands right above the scan, so that filters see what was kept."""

    input: Plan
    keys: tuple[int, ...]
    columns: tuple[Column, ...]


class Values(msgspec.Struct, frozen=True):
    """Constant rows."""

    rows: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]


class Calc(msgspec.Struct, frozen=True):
    """Filter (unless None), then projection."""

    input: Plan
    condition: Expression | None
    projections: tuple[Expression, ...]
    columns: tuple[Column, ...]


class WindowKind(StrEnum):
    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"


class Window(msgspec.Struct, frozen=True):
    """Windows over the time column `time_index` of the node's input; None = processing time, where no column is read.

    `time_type` is the time column's type (its root and mark decide the clock), also for processing time. `step_ms` is
    HOP's slide and CUMULATE's step, and the size for TUMBLE.
    """

    kind: WindowKind
    time_index: int | None
    time_type: DataType
    size_ms: int
    step_ms: int
    offset_ms: int = 0


class AttachedWindow(msgspec.Struct, frozen=True):
    """Each row of the input carries its window: column `end_index` is the window_end that `window` gave below (its
    `time_index` means nothing here)."""

    end_index: int
    window: Window


class WindowTableFunction(msgspec.Struct, frozen=True):
    """Appends window_start, window_end and window_time to the input's columns; HOP and CUMULATE give a row once per
    window. An optimised plan has it over event time only, and TUMBLE has become a Calc there."""

    input: Plan
    window: Window
    columns: tuple[Column, ...]


class WindowAggregate(msgspec.Struct, frozen=True):
    """Groups by key columns and window; output: keys, aggregates, then the window `properties`. Insert-only."""

    input: Plan
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window: Window | AttachedWindow
    properties: tuple[WindowProperty, ...]
    columns: tuple[Column, ...]


class GroupAggregate(msgspec.Struct, frozen=True):
    """Unbounded GROUP BY; output: keys, then aggregates. SELECT DISTINCT is one without aggregates; without keys there
    is one group. The pruning of columns may not drop its keys, nor make one without aggregates of one that has some
    and no keys. `state_ttl_ms`: from the hint STATE_TTL (0: for ever); None: as the session's setting says."""

    input: Plan
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    columns: tuple[Column, ...]
    state_ttl_ms: int | None = None


class Expand(msgspec.Struct, frozen=True):
    """Each row once per element of `projections` (grouping sets: the columns not in the set are NULL, the last column
    is the set's grouping id). `projections[s][i]` has the type of column i, apart from nullability."""

    input: Plan
    projections: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]


class UnionAll(msgspec.Struct, frozen=True):
    """All rows of all inputs; their columns have equal types."""

    inputs: tuple[Plan, ...]
    columns: tuple[Column, ...]


class Limit(msgspec.Struct, frozen=True):
    """At most `count` rows (None: all) after the first `offset`."""

    input: Plan
    count: int
    offset: int
    columns: tuple[Column, ...]


class Place(msgspec.Struct, frozen=True):
    """Where in a submitted text something stands."""

    script: str
    span: Span


class TableSink(msgspec.Struct, frozen=True):
    """Writes a table; the input's columns are the table's persisted ones, already in their types. `conflict` is what
    ON CONFLICT says; `place` is the table's name in the INSERT."""

    input: Plan
    path: ObjectPath
    entry: TableEntry
    options: dict[str, str]
    capabilities: TableCapabilities
    columns: tuple[Column, ...]
    conflict: ConflictAction | None = None
    place: Place | None = None


class ResultSink(msgspec.Struct, frozen=True):
    """Hands rows to the client of a SELECT."""

    input: Plan
    columns: tuple[Column, ...]


Plan = (
    Scan
    | ChangelogNormalize
    | Values
    | Calc
    | WindowTableFunction
    | WindowAggregate
    | GroupAggregate
    | Expand
    | UnionAll
    | Limit
    | TableSink
    | ResultSink
)


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The node's inputs, left to right."""
    match plan:
        case Scan() | Values():
            return ()
        case UnionAll(inputs=inputs):
            return inputs
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs."""
    match plan:
        case Scan() | Values():
            return plan
        case UnionAll():
            return msgspec.structs.replace(plan, inputs=inputs)
        case _:
            return msgspec.structs.replace(plan, input=inputs[0])
