"""The operators of a JobGraph as plain frozen data. A runtime operator exists for each (a test checks that).

Columns are positional throughout: batches name them c0, c1, …; `names` is kept where a human or a connector reads
them. Every operator states its `output` schema.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.expressions import Expression
from planner.ir.types import DataType


class Column(msgspec.Struct, frozen=True):
    """A column of an operator's output."""

    name: str
    type: DataType


class Schema(msgspec.Struct, frozen=True):
    """Ordered columns of a row."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def types(self) -> tuple[DataType, ...]:
        return tuple(c.type for c in self.columns)


class ChangelogMode(StrEnum):
    """Kinds of change an edge may carry; INSERT_ONLY edges have no row-kind column."""

    INSERT_ONLY = "insert-only"
    UPSERT = "upsert"
    RETRACT = "retract"


class MetadataColumn(msgspec.Struct, frozen=True):
    """A column filled by (or, in a sink, handed to) the connector under a metadata key such as `offset`."""

    name: str
    key: str
    type: DataType


class TableRef(msgspec.Struct, frozen=True):
    """Where rows come from or go to: the identifier and the WITH options (hints already merged in).

    `physical` is the table's full physical schema by name; connectors and formats read it.
    """

    identifier: str
    connector: str
    options: dict[str, str]
    physical: Schema
    primary_key: tuple[str, ...] = ()


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
    COUNT_STAR = "COUNT(*)"
    COUNT = "COUNT"
    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"
    AVG = "AVG"


class AggregateCall(msgspec.Struct, frozen=True):
    """One aggregate. `argument` is an input column index (None for COUNT(*)); `filter` the index of a BOOLEAN input
    column (FILTER clause; rows where it is not TRUE do not count). `argument_type` is the argument's type."""

    function: AggregateFunction
    argument: int | None
    argument_type: DataType | None
    type: DataType
    filter: int | None = None


class TumbleWindow(msgspec.Struct, frozen=True, tag_field="node", tag="tumble"):
    """Windows [start, start + size) with start = ts - floorMod(ts - offset, size), in `time_zone` local time when
    the time column is TIMESTAMP_LTZ. `time_index` is the rowtime column in the aggregate's (original) input."""

    time_index: int
    time_type: DataType
    size_ms: int
    offset_ms: int = 0
    time_zone: str = "UTC"


class WindowProperty(StrEnum):
    """Window columns an aggregate may append to its output."""

    START = "window_start"
    END = "window_end"
    TIME = "window_time"


class LocalWindowAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="local-window-aggregate"):
    """First phase, before the exchange: pre-aggregates one batch, holds nothing across batches.

    Output columns: the key columns, the window end as BIGINT (ms since the epoch, in the window's own clock), the
    hidden row count as BIGINT, then each aggregate's accumulator columns (`accumulator_types`)."""

    uid: str
    name: str
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window: TumbleWindow
    output: Schema


class GlobalWindowAggregate(msgspec.Struct, frozen=True, tag_field="node", tag="global-window-aggregate"):
    """Second phase: merges partials by key and window, fires a window when watermark >= end - 1 ms.

    Input is the output of the matching LocalWindowAggregate (`from_partials` True) or raw rows (False: one phase;
    then `keys`, `window.time_index` and the calls' indexes refer to the raw input). Output: keys, aggregates, then
    `properties` in order. Late rows are counted by row in `numLateRecordsDropped`."""

    uid: str
    name: str
    from_partials: bool
    keys: tuple[int, ...]
    key_types: tuple[DataType, ...]
    aggregates: tuple[AggregateCall, ...]
    window: TumbleWindow
    properties: tuple[WindowProperty, ...]
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
    selection: tuple[int, ...] = ()


class Collect(msgspec.Struct, frozen=True, tag_field="node", tag="collect"):
    """Sink of a SELECT: rows wait in a bounded buffer in the slot until the gateway pulls them. Parallelism 1.
    `selection` as in Sink."""

    uid: str
    name: str
    input: Schema
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    selection: tuple[int, ...] = ()


Operator = Source | Values | Calc | LocalWindowAggregate | GlobalWindowAggregate | Limit | Sink | Collect


def output_schema(operator: Operator) -> Schema:
    """Schema of what leaves the operator (of what enters it, for sinks)."""
    match operator:
        case Sink(input=schema) | Collect(input=schema):
            return schema
        case _:
            return operator.output


def accumulator_types(call: AggregateCall) -> tuple[DataType, ...]:
    """Types of the columns that carry a partial aggregate from the local to the global phase.

    COUNT: BIGINT count. SUM: the sum in the result type (NULL = no non-NULL value yet). MIN/MAX: the extreme in the
    result type. AVG: the sum, then a BIGINT count; the sum is BIGINT for integers, DOUBLE for floats, DECIMAL(38, s)
    for decimals, as in Flink's AvgAggFunction.
    """
    from planner.ir import types as t

    match call.function:
        case AggregateFunction.COUNT_STAR | AggregateFunction.COUNT:
            return (t.BIGINT.with_nullable(False),)
        case AggregateFunction.SUM | AggregateFunction.MIN | AggregateFunction.MAX:
            return (call.type.with_nullable(True),)
        case AggregateFunction.AVG:
            assert call.argument_type is not None
            if call.argument_type.is_integer:
                total = t.BIGINT
            elif call.argument_type.root is t.TypeRoot.DECIMAL:
                total = t.decimal(38, call.argument_type.scale or 0)
            else:
                total = t.DOUBLE
            return (total, t.BIGINT.with_nullable(False))
