"""Operators that order rows, as plain frozen data: Top-N, deduplication, sort."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.schema import Emission, Schema
from planner.ir.types import ChangelogMode
from planner.ir.windows import AlignedWindow


class SortKey(msgspec.Struct, frozen=True):
    """Column `index`. Flink's default: NULL is the smallest value (first when ascending, last when descending)."""

    index: int
    is_descending: bool = False
    nulls_first: bool = True


class RankFunction(StrEnum):
    ROW_NUMBER = "ROW_NUMBER"
    RANK = "RANK"
    DENSE_RANK = "DENSE_RANK"


class Rank(msgspec.Struct, frozen=True, tag_field="node", tag="rank"):
    """Top-N: the rows whose rank within their partition lies in `first`..`last` (from 1, inclusive), kept up to date.
    ORDER BY … LIMIT n OFFSET m is one without partition and rank output, from m + 1 to m + n.

    ROW_NUMBER of ties is by arrival. With `puts_out_rank` the rank (BIGINT) is the last output column: each shift of a
    rank is a change of the row at that rank; without it only rows that enter or leave are put out. `input_changelog`:
    INSERT_ONLY keeps only what can still be among the first `last`; RETRACT keeps every row. `upsert_key`: at most one
    row per partition and these columns is there at a time, None = equal rows are counted. `emission`, TTL and
    `emits_at_end` as in GroupAggregate. Source: Flink's AppendOnlyTopNFunction, RetractableTopNFunction."""

    uid: str
    name: str
    function: RankFunction
    keys: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    puts_out_rank: bool
    input_changelog: ChangelogMode
    upsert_key: tuple[int, ...] | None
    output: Schema
    emission: Emission = Emission.EVERY
    emits_update_before: bool = True
    state_ttl_ms: int = 0
    emits_at_end: bool = False


class Deduplicate(msgspec.Struct, frozen=True, tag_field="node", tag="deduplicate"):
    """One row per key of an insert-only input: the first or the last by the rowtime column `time`, or by arrival (None:
    processing time). Keep-last: a later or equal time replaces. Keep-first: only a strictly earlier one does, so it may
    update as well; by arrival it is insert-only. Output has the input's columns. Source: Flink's
    DeduplicateFunctionHelper."""

    uid: str
    name: str
    keys: tuple[int, ...]
    time: int | None
    keeps_last: bool
    output: Schema
    emission: Emission = Emission.EVERY
    emits_update_before: bool = True
    state_ttl_ms: int = 0
    emits_at_end: bool = False


class WindowRank(msgspec.Struct, frozen=True, tag_field="node", tag="window-rank"):
    """Window Top-N and window deduplication: as Rank, within each window of an insert-only input whose rows carry their
    window (`end`: the window_end column, see AttachedWindow). `keys` are the partition columns without the window's.
    Insert-only output when the watermark passes the window's end; rows of a window that has fired are late: dropped
    and counted in `numLateRecordsDropped`. `latest_of_ties`: of rows equal in order the one that arrived last is first
    (deduplication that keeps the last row)."""

    uid: str
    name: str
    function: RankFunction
    keys: tuple[int, ...]
    end: int
    window: AlignedWindow
    order: tuple[SortKey, ...]
    first: int
    last: int
    puts_out_rank: bool
    output: Schema
    latest_of_ties: bool = False


class Sort(msgspec.Struct, frozen=True, tag_field="node", tag="sort"):
    """ORDER BY at parallelism 1. With `time` (streaming: an ascending rowtime column is the first sort key) rows are
    put out in order when the watermark passes them, and late rows are dropped and counted in `numLateRecordsDropped`;
    without it (batch) all rows at the end of input. The input is insert-only."""

    uid: str
    name: str
    order: tuple[SortKey, ...]
    time: int | None
    output: Schema
