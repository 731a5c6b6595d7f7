"""The relational tree. Every node is frozen, knows its columns, and refers to its inputs' columns by index."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.catalog import ObjectPath, TableCapabilities, TableEntry
from planner.errors import Span
from planner.ir.expressions import Expression
from planner.ir.operators import (
    AggregateCall,
    ConflictAction,
    JoinKind,
    RankFunction,
    SetOperationKind,
    SortKey,
    WindowProperty,
)
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
    changelog with full rows. Stands right above the scan, so that filters see what was kept. `delete_time`: a column in
    which a deleted row says when it was deleted, if the source does."""

    input: Plan
    keys: tuple[int, ...]
    columns: tuple[Column, ...]
    delete_time: int | None = None


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


class Place(msgspec.Struct, frozen=True):
    """Where in a submitted text something stands."""

    script: str
    span: Span


class Join(msgspec.Struct, frozen=True):
    """A join of two tables; output: left columns, then right ones (SEMI, ANTI: left columns only). The binder puts all
    of ON and USING into `condition` (None: always true; reads left, then right columns); the rule `join_keys` takes
    equalities out of it as `left_keys[i]` = `right_keys[i]` (columns of equal type; NULLs match where `null_safe[i]`).
    What is still a Join after the last rule is a regular join. `left_ttl_ms`, `right_ttl_ms`: from the hint STATE_TTL
    (0: for ever); None: as the session's setting says. An outer side's columns are nullable in `columns`."""

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Expression | None
    columns: tuple[Column, ...]
    left_keys: tuple[int, ...] = ()
    right_keys: tuple[int, ...] = ()
    null_safe: tuple[bool, ...] = ()
    left_ttl_ms: int | None = None
    right_ttl_ms: int | None = None
    place: Place | None = None


class AsOfJoin(msgspec.Struct, frozen=True):
    """`left JOIN right FOR SYSTEM_TIME AS OF time`, INNER or LEFT, as the binder has it; column `as_of` of the left
    side is the time. `condition` as in Join. Rules make a TemporalJoin (event time) or a LookupJoin (processing time)
    of it, or refuse it. `lookup_hint`: the options of a LOOKUP hint."""

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Expression | None
    as_of: int
    columns: tuple[Column, ...]
    place: Place | None = None
    lookup_hint: tuple[tuple[str, str], ...] = ()


class IntervalJoin(msgspec.Struct, frozen=True):
    """A join whose condition bounds the distance of two time attributes: see `planner.ir.joins.IntervalJoin`."""

    left: Plan
    right: Plan
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_time: int
    right_time: int
    is_processing_time: bool
    lower_ms: int
    upper_ms: int
    condition: Expression | None
    columns: tuple[Column, ...]
    place: Place | None = None


class TemporalJoin(msgspec.Struct, frozen=True):
    """An event-time temporal join: see `planner.ir.joins.TemporalJoin`."""

    left: Plan
    right: Plan
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int
    right_time: int
    condition: Expression | None
    columns: tuple[Column, ...]
    place: Place | None = None


class WindowJoin(msgspec.Struct, frozen=True):
    """A join within equal windows: see `planner.ir.joins.WindowJoin`; `keys` do not have the window columns."""

    left: Plan
    right: Plan
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_end: int
    right_end: int
    window: Window
    condition: Expression | None
    columns: tuple[Column, ...]
    place: Place | None = None


class LookupJoin(msgspec.Struct, frozen=True):
    """A join with an outside table as it is at that moment: see `planner.ir.joins.LookupJoin`. `table` is read by no
    operator of its own and has physical columns only; `condition` reads the input's columns, then the table's
    (`table.columns`). `hint`: the options of a LOOKUP hint."""

    input: Plan
    table: Scan
    kind: JoinKind
    left_keys: tuple[int | None, ...]
    constants: tuple[Expression | None, ...]
    lookup_columns: tuple[str, ...]
    condition: Expression | None
    columns: tuple[Column, ...]
    hint: tuple[tuple[str, str], ...] = ()
    place: Place | None = None

    @property
    def finds_one_row(self) -> bool:
        """Whether the keys name at most one row: they have the table's primary key in them."""
        key = self.table.entry.primary_key
        return key is not None and set(key.columns) <= set(self.lookup_columns)


class Unnest(msgspec.Struct, frozen=True):
    """Each row once per element of the column `collection`: see `planner.ir.joins.Unnest`. `kept`: the input's columns
    that are put out before the element's; None, until the pruning of columns, is all."""

    input: Plan
    collection: int
    with_ordinality: bool
    is_outer: bool
    columns: tuple[Column, ...]
    condition: Expression | None = None
    kept: tuple[int, ...] | None = None

    @property
    def kept_columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.input.columns))) if self.kept is None else self.kept


class SetOperation(msgspec.Struct, frozen=True):
    """INTERSECT or EXCEPT [ALL] of two tables with equal column types: see `planner.ir.joins.SetOperation`."""

    left: Plan
    right: Plan
    kind: SetOperationKind
    columns: tuple[Column, ...]


class OverRank(msgspec.Struct, frozen=True):
    """Appends ROW_NUMBER, RANK or DENSE_RANK() OVER (PARTITION BY `keys` ORDER BY `order`), as the binder has it. A
    rule makes a Rank, Deduplicate or WindowRank of it with the filter above, or refuses it: without a bound on the rank
    each row would change the ranks of all."""

    input: Plan
    function: RankFunction
    keys: tuple[int, ...]
    order: tuple[SortKey, ...]
    columns: tuple[Column, ...]
    place: Place | None = None


class Rank(msgspec.Struct, frozen=True):
    """Top-N: see `planner.ir.ranks.Rank`. The rank is the last column if `puts_out_rank`. An empty `order` is the order
    of arrival."""

    input: Plan
    function: RankFunction
    keys: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    puts_out_rank: bool
    columns: tuple[Column, ...]


class Deduplicate(msgspec.Struct, frozen=True):
    """The first or last row per key of an insert-only input: see `planner.ir.ranks.Deduplicate`."""

    input: Plan
    keys: tuple[int, ...]
    time: int
    is_processing_time: bool
    keeps_last: bool
    columns: tuple[Column, ...]


class WindowRank(msgspec.Struct, frozen=True):
    """Top-N or deduplication within windows: see `planner.ir.ranks.WindowRank`."""

    input: Plan
    function: RankFunction
    keys: tuple[int, ...]
    end: int
    window: Window
    order: tuple[SortKey, ...]
    first: int
    last: int
    puts_out_rank: bool
    latest_of_ties: bool
    columns: tuple[Column, ...]


class Sort(msgspec.Struct, frozen=True):
    """ORDER BY. Below a Limit it becomes a Rank; alone it needs batch mode, or an ascending time attribute first."""

    input: Plan
    order: tuple[SortKey, ...]
    columns: tuple[Column, ...]
    place: Place | None = None


class Limit(msgspec.Struct, frozen=True):
    """At most `count` rows (None: all) after the first `offset`."""

    input: Plan
    count: int
    offset: int
    columns: tuple[Column, ...]


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
    | Join
    | AsOfJoin
    | IntervalJoin
    | TemporalJoin
    | WindowJoin
    | LookupJoin
    | Unnest
    | SetOperation
    | OverRank
    | Rank
    | Deduplicate
    | WindowRank
    | Sort
    | Limit
    | TableSink
    | ResultSink
)

TwoInputs = Join | AsOfJoin | IntervalJoin | TemporalJoin | WindowJoin | SetOperation


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The node's inputs, left to right."""
    match plan:
        case Scan() | Values():
            return ()
        case UnionAll(inputs=inputs):
            return inputs
        case Join() | AsOfJoin() | IntervalJoin() | TemporalJoin() | WindowJoin() | SetOperation():
            return (plan.left, plan.right)
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs."""
    match plan:
        case Scan() | Values():
            return plan
        case UnionAll():
            return msgspec.structs.replace(plan, inputs=inputs)
        case Join() | AsOfJoin() | IntervalJoin() | TemporalJoin() | WindowJoin() | SetOperation():
            return msgspec.structs.replace(plan, left=inputs[0], right=inputs[1])
        case _:
            return msgspec.structs.replace(plan, input=inputs[0])
