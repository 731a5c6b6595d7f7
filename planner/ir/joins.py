"""Operators that bring two tables together, as plain frozen data.

Two-input operators read edges of `input_index` 0 (left) and 1 (right). Row kinds are signs throughout: +I and +U add a
row, −U and −D take one back, and no operator relies on pairs. Expressions named `condition` read the left columns, then
the right ones. NULL in a key never matches, except where `null_safe` says so for that key (IS NOT DISTINCT FROM).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.expressions import Expression
from planner.ir.schema import Schema, TableRef
from planner.ir.types import ChangelogMode, DataType
from planner.ir.windows import AlignedWindow


class JoinKind(StrEnum):
    """SEMI and ANTI put out the left columns only; the others left, then right."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def is_left_outer(self) -> bool:
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def is_right_outer(self) -> bool:
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        """Whether the right columns are put out."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)


class Join(msgspec.Struct, frozen=True, tag_field="node", tag="join"):
    """Regular join: both sides are kept, every change is joined with all rows of the other side.

    Inputs are hashed by their keys; without keys (a cross join, or a condition without equality) all rows meet in one
    subtask. Inputs are INSERT_ONLY or RETRACT. `left_unique_key`: columns under which at most one row of the side is
    there at a time (an upsert key; `()` = at most one row at all), None if nothing is known and equal rows are counted.
    An inner join passes the kind of the incoming row on; padding with NULLs is +I when it appears and −D when it goes
    (source: Flink's StreamingJoinOperator). ttl in ms of processing time since a row was last written, 0 = for ever.
    `emits_at_end`: batch execution, the joined rows are put out as inserts at the end of input."""

    uid: str
    name: str
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    condition: Expression | None
    left: Schema
    right: Schema
    left_changelog: ChangelogMode
    right_changelog: ChangelogMode
    left_unique_key: tuple[int, ...] | None
    right_unique_key: tuple[int, ...] | None
    output: Schema
    left_state_ttl_ms: int = 0
    right_state_ttl_ms: int = 0
    emits_at_end: bool = False


class IntervalJoin(msgspec.Struct, frozen=True, tag_field="node", tag="interval-join"):
    """Joins rows of equal keys with `left time + lower_ms <= right time <= left time + upper_ms`. Both inputs are
    insert-only, the output too; INNER, LEFT, RIGHT or FULL.

    `left_time`, `right_time` are rowtime columns, or both None: processing time of arrival. Rows are dropped from state
    when the watermark (the clock) says that no partner can come; outer rows without partner are padded then, or at
    once if they could not be kept. Late rows still join with what is there. The operator's output watermark is behind
    its input's by `watermark_delay_ms`, so that no joined row is late behind it. Source: Flink's TimeIntervalJoin."""

    uid: str
    name: str
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_time: int | None
    right_time: int | None
    lower_ms: int
    upper_ms: int
    condition: Expression | None
    left: Schema
    right: Schema
    output: Schema
    watermark_delay_ms: int = 0


class TemporalJoin(msgspec.Struct, frozen=True, tag_field="node", tag="temporal-join"):
    """`left JOIN right FOR SYSTEM_TIME AS OF left.time`: each left row meets the version of its key that was valid at
    its event time. INNER or LEFT. The keys contain the right side's primary key.

    The right input is a changelog by that key without −U (INSERT_ONLY or UPSERT; a −D at its rowtime ends the version).
    The version is the one with the greatest rowtime <= the left row's; of equal times the later arrival. Left rows wait
    until the watermark of both sides has passed them; a left row at or behind the watermark when it arrives is late:
    dropped and counted in `numLateRecordsDropped`. Output rows have the left row's kind. A version is dropped when a
    newer one is at or behind the watermark. Source: Flink's TemporalRowTimeJoinOperator."""

    uid: str
    name: str
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int
    right_time: int
    condition: Expression | None
    left: Schema
    right: Schema
    left_changelog: ChangelogMode
    right_changelog: ChangelogMode
    output: Schema


class WindowJoin(msgspec.Struct, frozen=True, tag_field="node", tag="window-join"):
    """Joins the rows of equal windows (and keys), all kinds. `left_end`, `right_end` are the window_end columns (as in
    AttachedWindow); the windows of both sides are given by `window`. Inputs and output are insert-only. A window's
    result is put out when the watermark passes its end; rows of a window that has fired are late: dropped and counted
    in `numLateRecordsDropped`. Inputs are hashed by keys and window end together."""

    uid: str
    name: str
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_end: int
    right_end: int
    window: AlignedWindow
    condition: Expression | None
    left: Schema
    right: Schema
    output: Schema


class LookupHint(msgspec.Struct, frozen=True):
    """What a LOOKUP hint says. `is_async`: up to `capacity` requests at once, all of a batch answered within
    `timeout_ms` (0 = no limit); rows keep their order. `repeats`: how often a key without rows is asked for again, each
    time after `delay_ms`."""

    is_async: bool = False
    capacity: int = 100
    timeout_ms: int = 0
    repeats: int = 0
    delay_ms: int = 0


class LookupJoin(msgspec.Struct, frozen=True, tag_field="node", tag="lookup-join"):
    """`left JOIN table FOR SYSTEM_TIME AS OF left.proctime`: each left row meets the rows that an outside table has at
    the moment it is asked. INNER or LEFT; one input.

    Equality with the table: `left_keys[i]` (a left column) or `constants[i]` (a literal; exactly one of both is not
    None) equals the table column named `lookup_columns[i]`. `table_columns` are what is read of the table; `condition`
    reads the left columns, then these. Later changes of the table do not change rows that have been put out. Output
    kind = the left row's. NULL in a key never matches. How the table is asked (cache, retries) are options of the table
    (`lookup.*`). Source: Flink's LookupJoin."""

    uid: str
    name: str
    kind: JoinKind
    table: TableRef
    lookup_columns: tuple[str, ...]
    left_keys: tuple[int | None, ...]
    constants: tuple[Expression | None, ...]
    table_columns: Schema
    condition: Expression | None
    left: Schema
    left_changelog: ChangelogMode
    output: Schema
    hint: LookupHint = LookupHint()


class Unnest(msgspec.Struct, frozen=True, tag_field="node", tag="unnest"):
    """`CROSS JOIN UNNEST(collection) [WITH ORDINALITY]`: each input row once per element of column `collection` (ARRAY,
    MAP or MULTISET, in which an element counts as often as it is there). Output: the input's columns `kept`, then the
    element (a ROW element as its fields, all NULL for an element that is NULL; a MAP entry as key and value), then the
    ordinality (INT, from 1) if asked for. Elements for which `condition` (over the output's columns) is not TRUE are
    left out. `is_outer`: a row without elements is kept, padded with NULLs. Row kinds pass through."""

    uid: str
    name: str
    collection: int
    collection_type: DataType
    kept: tuple[int, ...]
    with_ordinality: bool
    is_outer: bool
    condition: Expression | None
    output: Schema


class SetOperationKind(StrEnum):
    """How often a row is there that the left side has l times and the right side r times."""

    INTERSECT = "intersect"
    """Once if l > 0 and r > 0."""
    INTERSECT_ALL = "intersect-all"
    """min(l, r) times."""
    EXCEPT = "except"
    """Once if l > 0 and r = 0."""
    EXCEPT_ALL = "except-all"
    """max(l − r, 0) times."""


class SetOperation(msgspec.Struct, frozen=True, tag_field="node", tag="set-operation"):
    """INTERSECT and EXCEPT [ALL] by counting each distinct row on both sides; NULLs are equal. Inputs (INSERT_ONLY or
    RETRACT) have equal schemas and are hashed by all columns. Output rows are +I and −D."""

    uid: str
    name: str
    kind: SetOperationKind
    output: Schema
    state_ttl_ms: int = 0
    emits_at_end: bool = False
    """Batch execution: rows are put out as inserts at the end of input."""
