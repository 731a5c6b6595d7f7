"""The operators of a JobGraph as plain frozen data. A runtime operator exists for each (a test checks that).

Columns are positional throughout: batches name them c0, c1, …; `names` is kept where a human or a connector reads
them. Every operator states its `output` schema.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.expressions import Expression
from planner.ir.joins import IntervalJoin as IntervalJoin
from planner.ir.joins import Join as Join
from planner.ir.joins import JoinKind as JoinKind
from planner.ir.joins import LookupHint as LookupHint
from planner.ir.joins import LookupJoin as LookupJoin
from planner.ir.joins import SetOperation as SetOperation
from planner.ir.joins import SetOperationKind as SetOperationKind
from planner.ir.joins import TemporalJoin as TemporalJoin
from planner.ir.joins import Unnest as Unnest
from planner.ir.joins import WindowJoin as WindowJoin
from planner.ir.ranks import Deduplicate as Deduplicate
from planner.ir.ranks import Rank as Rank
from planner.ir.ranks import RankFunction as RankFunction
from planner.ir.ranks import Sort as Sort
from planner.ir.ranks import SortKey as SortKey
from planner.ir.ranks import WindowRank as WindowRank
from planner.ir.schema import Column as Column
from planner.ir.schema import Emission as Emission
from planner.ir.schema import MetadataColumn as MetadataColumn
from planner.ir.schema import Schema as Schema
from planner.ir.schema import TableRef as TableRef
from planner.ir.types import ChangelogMode as ChangelogMode
from planner.ir.types import DataType
from planner.ir.windows import AlignedWindow as AlignedWindow
from planner.ir.windows import AttachedWindow as AttachedWindow
from planner.ir.windows import CumulateWindow as CumulateWindow
from planner.ir.windows import HopWindow as HopWindow
from planner.ir.windows import TumbleWindow as TumbleWindow
from planner.ir.windows import Window as Window
from planner.ir.windows import WindowProperty as WindowProperty


class WatermarkStrategy(StrEnum):
    ON_PERIODIC = "on-periodic"
    ON_EVENT = "on-event"


class WatermarkSpec(msgspec.Struct, frozen=True):
    """Event time of a source. `expression` reads the source operator's *output* row and is TIMESTAMP or
    TIMESTAMP_LTZ of precision 3; a split's watermark is the running maximum of its value (epoch ms)."""

    rowtime_index: int
    expression: Expression
    strategy: WatermarkStrategy = WatermarkStrategy.ON_PERIODIC
    interval_ms: int = 200
    idle_timeout_ms: int = 0
    """0 = a split never becomes idle by silence."""


class Source(msgspec.Struct, frozen=True, tag_field="node", tag="source"):
    """Reads a table. The connector produces `scan_columns` (physical columns needed, by table order) followed by
    `metadata_columns`; `projections` over those give the output row (computed columns; identity for the rest);
    then the watermark is taken, before any filter."""

    uid: str
    name: str
    table: TableRef
    scan_columns: Schema
    metadata_columns: tuple[MetadataColumn, ...]
    projections: tuple[Expression, ...]
    output: Schema
    watermark: WatermarkSpec | None = None
    bounded: bool = False
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    """What the connector and its format produce; above INSERT_ONLY batches carry row kinds."""


class Values(msgspec.Struct, frozen=True, tag_field="node", tag="values"):
    """A bounded source of constant rows; `rows[i][j]` has the type of column j. Parallelism is always 1."""

    uid: str
    name: str
    rows: tuple[tuple[Expression, ...], ...]
    output: Schema


class Calc(msgspec.Struct, frozen=True, tag_field="node", tag="calc"):
    """Filter, then projection. `condition` None keeps every row. Rows where it is FALSE or NULL are dropped."""

    uid: str
    name: str
    condition: Expression | None
    projections: tuple[Expression, ...]
    output: Schema


class AggregateFunction(StrEnum):
    """STDDEV_*, VAR_*, FIRST_VALUE, LAST_VALUE and LISTAGG skip NULLs, as all but COUNT(*) do. SUM0 is a SUM that is 0
    over nothing: it adds up the counts of split distinct aggregates. SINGLE_VALUE is the value of the only row, NULL or
    not, and NULL over nothing; a group of several rows is an error of the user's query, which the output column's name
    tells."""

    COUNT_STAR = "COUNT(*)"
    COUNT = "COUNT"
    SUM = "SUM"
    SUM0 = "$SUM0"
    MIN = "MIN"
    MAX = "MAX"
    AVG = "AVG"
    STDDEV_POP = "STDDEV_POP"
    STDDEV_SAMP = "STDDEV_SAMP"
    VAR_POP = "VAR_POP"
    VAR_SAMP = "VAR_SAMP"
    FIRST_VALUE = "FIRST_VALUE"
    LAST_VALUE = "LAST_VALUE"
    LISTAGG = "LISTAGG"
    SINGLE_VALUE = "SINGLE_VALUE"


class AggregateCall(msgspec.Struct, frozen=True):
    """One aggregate. `argument` is an input column index (None for COUNT(*)); `filter` the index of a BOOLEAN input
    column (FILTER clause; rows where it is not TRUE do not count). `argument_type` is the argument's type. `distinct`
    is never set for MIN, MAX, FIRST_VALUE and LAST_VALUE, where it changes nothing. `separator` is LISTAGG's."""

    function: AggregateFunction
    argument: int | None
    argument_type: DataType | None
    type: DataType
    filter: int | None = None
    distinct: bool = False
    separator: str = ","


class AssignWindows(msgspec.Struct, frozen=True, tag_field="node", tag="assign-windows"):
    """A window table function without aggregation: each row once per window it belongs to, with window_start,
    window_end (TIMESTAMP(3), in the window's own clock) and window_time (the time column's type) appended. Windows are
    given out by start; nothing is dropped for being late. Row kinds pass through."""

    uid: str
    name: str
    window: AlignedWindow
    output: Schema


class Expand(msgspec.Struct, frozen=True, tag_field="node", tag="expand"):
    """Each row once per element of `projections`, in that order per row; row kinds pass through. GROUPING SETS plan to
    it: the columns not in a set are NULL, and the last column is the set's grouping id (BIGINT, see Flink's
    GROUPING_ID)."""

    uid: str
    name: str
    projections: tuple[tuple[Expression, ...], ...]
    output: Schema


class LocalWindowAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="local-window-aggregate"):
    """First phase, before the exchange: pre-aggregates one batch, holds nothing across batches. Event time only.

    Output columns: the key columns, the slice end (of an attached window: the window end) as BIGINT (ms since the
    epoch, in the window's own clock), the hidden row count as BIGINT, then each aggregate's accumulator columns
    (`accumulator_types`). Over a retracting input the row count and the accumulators are signed, and the number of
    changes (BIGINT) follows the row count."""

    uid: str
    name: str
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window: Window
    output: Schema
    input_changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    """INSERT_ONLY or RETRACT."""


class GlobalWindowAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="global-window-aggregate"):
    """Second phase: merges partials by key and slice, fires a window when watermark >= end - 1 ms.

    Input is the output of the matching LocalWindowAggregate (`from_partials` True) or raw rows (False: one phase;
    then `keys`, the window's columns and the calls' indexes refer to the raw input). Output: keys, aggregates, then
    `properties` in order; insert-only. A row is late when its last window has fired; late rows are counted by row in
    `numLateRecordsDropped`. Over a retracting input each row, added or taken back, belongs to the windows of its own
    time column and is late by it; a key whose rows have all been taken back when a window fires has no result."""

    uid: str
    name: str
    from_partials: bool
    keys: tuple[int, ...]
    key_types: tuple[DataType, ...]
    aggregates: tuple[AggregateCall, ...]
    window: Window
    properties: tuple[WindowProperty, ...]
    output: Schema
    input_changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    """INSERT_ONLY or RETRACT; what entered the local phase when `from_partials`."""


class MiniBatch(msgspec.Struct, frozen=True):
    """`table.exec.mini-batch.*`: changes are held back until `rows_max` input rows or `latency_ms` of wall clock have
    passed since the last output; a watermark, a barrier and the end of input put them out at once."""

    rows_max: int
    latency_ms: int


class LocalGroupAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="local-group-aggregate"):
    """First phase of an unbounded aggregate under NET emission: pre-aggregates one batch, holds nothing across
    batches. Output, insert-only: the key columns, the signed row count (BIGINT, may be <= 0 over a retracting input),
    then each call's accumulator columns (`accumulator_types`, signed)."""

    uid: str
    name: str
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    input_changelog: ChangelogMode
    output: Schema


class GroupAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="group-aggregate"):
    """Unbounded GROUP BY; SELECT DISTINCT is one without aggregates; without keys there is one group. Output: keys,
    then aggregates; a changelog unless it has no aggregates and `input_changelog` is INSERT_ONLY (then insert-only).

    First row of a group +I; a change -U (only if `emits_update_before`) and +U; count 0 -D, and the state is freed.
    An unchanged result is not put out again, unless `state_ttl_ms` is set. `input_changelog` is INSERT_ONLY or RETRACT;
    it stays what entered the local phase when `from_partials` (then `keys` are 0..n-1 and the columns are those of
    LocalGroupAggregate). Source: Flink's GroupAggFunction. Without keys, at the drained end of bounded input, the row
    over nothing is put out if no row is shown (`emits_row_over_nothing`), as batch SQL has it."""

    uid: str
    name: str
    keys: tuple[int, ...]
    key_types: tuple[DataType, ...]
    aggregates: tuple[AggregateCall, ...]
    input_changelog: ChangelogMode
    output: Schema
    from_partials: bool = False
    emission: Emission = Emission.EVERY
    emits_update_before: bool = True
    emits_row_over_nothing: bool = False
    mini_batch: MiniBatch | None = None
    state_ttl_ms: int = 0
    """Processing time since the last write; 0 = for ever."""
    emits_at_end: bool = False
    """Batch execution: nothing is put out before the end of input, then each group's final row as +I; the output is
    insert-only (no row kinds), whatever `input_changelog` is."""


class ChangelogNormalize(msgspec.Struct, frozen=True, tag_field="node", tag="changelog-normalize"):
    """Last row per primary key over an upsert stream, or over one that may repeat events: new key +I; another row
    -U (only if `emits_update_before`) and +U; an equal row nothing; delete -D with the stored full row; delete of an
    unknown key nothing. -U of the input is ignored. Input is hashed by `keys`. `delete_time`: a column that a -D has
    from the delete itself, where that is not NULL, instead of the stored row."""

    uid: str
    name: str
    keys: tuple[int, ...]
    output: Schema
    emits_update_before: bool = True
    state_ttl_ms: int = 0
    delete_time: int | None = None


class ConflictAction(StrEnum):
    """ON CONFLICT DO …: what happens when rows of different upsert keys meet at one primary key of the sink."""

    DEDUPLICATE = "DEDUPLICATE"
    ERROR = "ERROR"
    NOTHING = "NOTHING"


class SinkMaterializer(msgspec.Struct, frozen=True, tag_field="node", tag="sink-materializer"):
    """Before a sink whose primary key (`keys`) is not an upsert key of its input: keeps, per primary key, the rows in
    order of arrival with their input upsert key (`upsert_key`; empty = rows are matched whole). An added row replaces
    the row of the same upsert key or becomes the last, and the last row is what the sink shows; a removal of the last
    row shows the previous one, of the only row deletes. Output is an upsert changelog by `keys`: +I, +U, -D.
    Source: Flink's SinkUpsertMaterializer."""

    uid: str
    name: str
    keys: tuple[int, ...]
    upsert_key: tuple[int, ...]
    output: Schema
    action: ConflictAction = ConflictAction.DEDUPLICATE
    state_ttl_ms: int = 0


class DropUpdateBefore(msgspec.Struct, frozen=True, tag_field="node", tag="drop-update-before"):
    """Removes the -U rows of a retracting stream whose consumers take upserts."""

    uid: str
    name: str
    output: Schema


class Limit(msgspec.Struct, frozen=True, tag_field="node", tag="limit"):
    """Passes the first `count` rows (after skipping `offset`), then ends the job. Parallelism 1."""

    uid: str
    name: str
    count: int
    offset: int
    output: Schema


class DeliveryGuarantee(StrEnum):
    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class NotNullEnforcement(StrEnum):
    """`table.exec.sink.not-null-enforcer`: what happens when NULL reaches a NOT NULL sink column."""

    ERROR = "ERROR"
    DROP = "DROP"


class TypeLengthEnforcement(StrEnum):
    """`table.exec.sink.type-length-enforcer`: values longer (for CHAR and BINARY also shorter) than the sink's column.
    TRIM_PAD cuts, and pads CHAR with spaces and BINARY with zero bytes."""

    IGNORE = "IGNORE"
    TRIM_PAD = "TRIM_PAD"
    ERROR = "ERROR"


class Sink(msgspec.Struct, frozen=True, tag_field="node", tag="sink"):
    """Writes a table. The written row (`input`) is `physical` columns in table order, then `metadata_columns`
    (writable ones). `selection[i]` is the incoming column that becomes written column i; empty = as they come."""

    uid: str
    name: str
    table: TableRef
    input: Schema
    metadata_columns: tuple[MetadataColumn, ...] = ()
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    not_null_columns: tuple[int, ...] = ()
    not_null_enforcement: NotNullEnforcement = NotNullEnforcement.ERROR
    length_enforcement: TypeLengthEnforcement = TypeLengthEnforcement.IGNORE
    selection: tuple[int, ...] = ()


class Collect(msgspec.Struct, frozen=True, tag_field="node", tag="collect"):
    """Sink of a SELECT: rows wait in a bounded buffer in the slot until the gateway pulls them. Parallelism 1.
    `selection` as in Sink."""

    uid: str
    name: str
    input: Schema
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    selection: tuple[int, ...] = ()


Operator = (
    Source
    | Values
    | Calc
    | AssignWindows
    | Expand
    | LocalWindowAggregate
    | GlobalWindowAggregate
    | LocalGroupAggregate
    | GroupAggregate
    | ChangelogNormalize
    | SinkMaterializer
    | DropUpdateBefore
    | Join
    | IntervalJoin
    | TemporalJoin
    | WindowJoin
    | LookupJoin
    | Unnest
    | SetOperation
    | Rank
    | Deduplicate
    | WindowRank
    | Sort
    | Limit
    | Sink
    | Collect
)


def output_schema(operator: Operator) -> Schema:
    """Schema of what leaves the operator (of what enters it, for sinks)."""
    match operator:
        case Sink(input=schema) | Collect(input=schema):
            return schema
        case _:
            return operator.output


def is_mergeable(call: AggregateCall, *, retracting: bool = False) -> bool:
    """Whether partial aggregates of the call can be merged from `accumulator_types` alone, so that it may run in two
    phases. Distinct and order-dependent functions need the values themselves; so do MIN and MAX over an input that
    takes values back."""
    match call.function:
        case (
            AggregateFunction.FIRST_VALUE
            | AggregateFunction.LAST_VALUE
            | AggregateFunction.LISTAGG
            | AggregateFunction.SINGLE_VALUE
        ):
            return False
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return not retracting
        case _:
            return not call.distinct


def accumulator_types(call: AggregateCall, *, retracting: bool = False) -> tuple[DataType, ...]:
    """Types of the columns that carry a partial aggregate of a mergeable call from the local to the global phase.

    COUNT: BIGINT count. SUM, SUM0: the sum in the result type (NULL = no non-NULL value yet); over a retracting input
    also the BIGINT count of non-NULL values. MIN/MAX: the extreme in the result type. AVG: the sum, then a BIGINT
    count; the sum is BIGINT for integers, DOUBLE for floats, DECIMAL(38, s) for decimals, as in Flink's AvgAggFunction.
    STDDEV_*, VAR_*: DOUBLE sum, DOUBLE sum of squares, BIGINT count.

    Over a retracting input a sum of FLOAT or DOUBLE, and every sum of STDDEV_* and VAR_*, is a DOUBLE over finite
    values; a DOUBLE per sum with what rounding left out of it, and BIGINT counts of NaN, infinity and -infinity come
    last.
    """
    from planner.ir import types as t

    count = t.BIGINT.with_nullable(False)
    is_approximate = call.argument_type is not None and call.argument_type.root in (t.TypeRoot.FLOAT, t.TypeRoot.DOUBLE)
    specials = (count, count, count) if retracting else ()
    match call.function:
        case AggregateFunction.COUNT_STAR | AggregateFunction.COUNT:
            return (count,)
        case AggregateFunction.SUM | AggregateFunction.SUM0:
            if retracting and is_approximate:
                return (t.DOUBLE, count, t.DOUBLE, *specials)
            total = call.type.with_nullable(True)
            return (total, count) if retracting else (total,)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return (call.type.with_nullable(True),)
        case AggregateFunction.AVG:
            assert call.argument_type is not None
            if call.argument_type.is_integer:
                total = t.BIGINT
            elif call.argument_type.root is t.TypeRoot.DECIMAL:
                total = t.decimal(38, call.argument_type.scale or 0)
            elif retracting:
                return (t.DOUBLE, count, t.DOUBLE, *specials)
            else:
                total = t.DOUBLE
            return (total, count)
        case (
            AggregateFunction.STDDEV_POP
            | AggregateFunction.STDDEV_SAMP
            | AggregateFunction.VAR_POP
            | AggregateFunction.VAR_SAMP
        ):
            rests = (t.DOUBLE, t.DOUBLE) if retracting else ()
            return (t.DOUBLE, t.DOUBLE, count, *rests, *specials)
        case _:
            raise AssertionError(f"{call.function} has no accumulator columns")
