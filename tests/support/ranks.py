"""Row-wise references for operators that order rows, random rows of every type that has an order, and a harness that
cuts, rescales and restores."""

from __future__ import annotations

import datetime as dt
import functools
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from planner.ir import types as t
from planner.ir.ranks import RankFunction, SortKey
from planner.ir.schema import Column, Schema
from planner.ir.types import DataType, TypeRoot
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group, subtask_of
from runtime.operators.protocol import Operator, OperatorContext
from tests.support.aggregates import Row, operator_context, plain

Change = tuple[int, Row]
"""Row kind as a number, row."""

SCHEMA: tuple[DataType, ...] = (
    t.INT,
    t.STRING,
    t.INT,
    t.DOUBLE,
    t.STRING,
    t.decimal(10, 2),
    t.decimal(38, 4),
    t.BOOLEAN,
    t.timestamp(3),
    t.BIGINT,
    t.FLOAT,
    t.varbinary(8),
    t.INT.with_nullable(False),
)
"""Two columns for keys, then what is ordered by, then a number that makes rows unique where one is wanted."""
ORDERABLE = tuple(range(2, len(SCHEMA) - 1))
UNIQUE = len(SCHEMA) - 1
_START = dt.datetime(2024, 3, 1)
_VALUES: dict[int, tuple[Any, ...]] = {
    0: (1, 2, 3, None),
    1: ("a", "b", None),
    2: (1, 2, 3, 4, 5, 6, 7, -(2**31), 2**31 - 1, None),
    3: (0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1e300, None),
    4: ("", "a", "ab", "abcdefgh", "abcdefghi", "ä", "\U0001f600", "\uffff", None),
    5: (Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99"), Decimal("-99999999.99"), None),
    6: (Decimal("0.0000"), Decimal("1e33"), Decimal("-1e33"), Decimal("184467440737.0955"), Decimal("-0.0001"), None),
    7: (True, False, None),
    8: (_START, _START + dt.timedelta(milliseconds=1), _START - dt.timedelta(days=30_000), None),
    9: (0, -1, 2**63 - 1, -(2**63), 2**63 - 2, -(2**63) + 1, None),
    10: (0.0, -0.0, math.nan, 3.5, -math.inf, None),
    11: (b"", b"\x00", b"\xff", b"ab", b"abcdefgh", None),
}


def random_row(rng: random.Random, *, key_values: int = 3) -> Row:
    row = [rng.choice(_VALUES[i][-key_values:] if i < 2 else _VALUES[i]) for i in range(UNIQUE)]
    return (*row, rng.randint(0, 30))


def random_order(rng: random.Random, columns: Sequence[int] = ORDERABLE, least: int = 0) -> tuple[SortKey, ...]:
    chosen = rng.sample(columns, rng.choice((least, 1, 1, 2, 3)))
    return tuple(SortKey(i, rng.random() < 0.5, rng.random() < 0.5) for i in chosen)


def schema_of(types: Sequence[DataType] = SCHEMA, *, ranked: bool = False) -> Schema:
    columns = [Column(f"c{i}", kind) for i, kind in enumerate(types)]
    return Schema((*columns, *([Column("rn", t.BIGINT.with_nullable(False))] if ranked else [])))


def batch_of(changes: Sequence[Change], *, kinds: bool, types: Sequence[DataType] = SCHEMA) -> Batch:
    columns = [pa.array([row[i] for _, row in changes], t.to_arrow(kind)) for i, kind in enumerate(types)]
    rows = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    return Batch(rows, pa.array([kind for kind, _ in changes], pa.int8()) if kinds else None)


def cut(
    rng: random.Random, changes: Sequence[Change], sizes: Sequence[int] = (1, 4, 30, 300)
) -> list[Sequence[Change]]:
    """Pieces of at most one of `sizes`."""
    parts, largest = [], rng.choice(sizes)
    while changes:
        size = rng.randint(1, largest)
        parts.append(changes[:size])
        changes = changes[size:]
    return parts


def shown(row: Sequence[Any]) -> Row:
    return tuple(plain(v) for v in row)


def _value_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


def compare(order: Sequence[SortKey]) -> Callable[[Row, Row], int]:
    """As Flink compares rows."""

    def result(left: Row, right: Row) -> int:
        for key in order:
            a, b = left[key.index], right[key.index]
            if a is None or b is None:
                if (a is None) != (b is None):
                    return -1 if (a is None) == key.nulls_first else 1
                continue
            a, b = _value_key(a), _value_key(b)
            if a != b:
                return -1 if (a < b) != key.is_descending else 1
        return 0

    return result


class Entry(msgspec.Struct, eq=False, frozen=True):
    row: Row
    number: int


class RankReference:
    """The rows of each partition; what is ranked is found by sorting them anew."""

    def __init__(self, node: Any, *, latest_of_ties: bool = False) -> None:
        self._node = node
        self._compare = compare(node.order)
        self._partitions: dict[Row, list[Entry]] = {}
        self._arrivals = 0
        self._direction = -1 if latest_of_ties else 1
        self.unknown = 0

    def ranked(self, partition: Row) -> list[tuple[Entry, int]]:
        """Rows shown, with their ranks."""
        node = self._node

        def order(left: Entry, right: Entry) -> int:
            return self._compare(left.row, right.row) or self._direction * (left.number - right.number)

        ranked: list[tuple[Entry, int]] = []
        rank = groups = 0
        previous: Entry | None = None
        for position, entry in enumerate(sorted(self._partitions.get(partition, []), key=functools.cmp_to_key(order))):
            peers = previous is not None and not self._compare(previous.row, entry.row)
            groups += not peers
            if node.function is RankFunction.ROW_NUMBER:
                rank = position + 1
            elif node.function is RankFunction.DENSE_RANK:
                rank = groups
            elif not peers:
                rank = position + 1
            ranked.append((entry, rank))
            previous = entry
        return [(entry, rank) for entry, rank in ranked if node.first <= rank <= node.last]

    def partition_of(self, row: Row) -> Row:
        return shown([row[i] for i in self._node.keys])

    @property
    def row_count(self) -> int:
        return sum(len(rows) for rows in self._partitions.values())

    @property
    def partitions(self) -> list[Row]:
        return list(self._partitions)

    def apply(self, kind: int, row: Row) -> None:
        rows = self._partitions.setdefault(self.partition_of(row), [])
        upsert_key = getattr(self._node, "upsert_key", None)
        columns = range(len(row)) if upsert_key is None else upsert_key
        same = [e for e in rows if shown([e.row[i] for i in columns]) == shown([row[i] for i in columns])]
        if kind in (1, 3):
            if same:
                rows.remove(same[0])
            else:
                self.unknown += 1
            return
        if upsert_key is not None and same:
            rows.remove(same[0])
        self._arrivals += 1
        rows.append(Entry(row, self._arrivals))


class Subtasks:
    """An operator at some parallelism: rows are spread by key; a change of parallelism goes through a snapshot."""

    def __init__(
        self,
        make: Callable[[OperatorContext], Operator],
        folder: Path,
        keys: tuple[int, ...],
        parallelism: int = 1,
        *,
        backend: str = "hashmap",
        **context: Any,
    ) -> None:
        self._make, self._folder, self._keys = make, folder, keys
        self._settings = {"state.backend.type": backend}
        self._context = context
        self._snapshots = 0
        self.operators: list[Operator] = []
        self.start(parallelism, None)

    def start(self, parallelism: int, restore: OperatorRestore | None) -> None:
        self.operators = []
        for index in range(parallelism):
            given = restore
            if restore is not None and index:
                # Counts of all subtasks go to the first.
                given = msgspec.structs.replace(restore, counters={})
            context = operator_context(
                str(self._folder), subtask_index=index, parallelism=parallelism, restore=given, **self._context
            )
            self.operators.append(self._make(msgspec.structs.replace(context, settings=self._settings)))
            self.operators[-1].open()

    def rescale(self, parallelism: int) -> None:
        self._snapshots += 1
        taken = [operator.snapshot(self._snapshots)() for operator in self.operators]
        self.close()
        self.start(parallelism, restore_of(taken))

    def process(self, batch: Batch) -> list[Batch]:
        if not self._keys:
            return list(self.operators[0].process(batch))
        groups = key_group(hash_columns([batch.data.column(i) for i in self._keys]), 128)
        owners = subtask_of(groups, len(self.operators), 128)
        output = []
        for index, operator in enumerate(self.operators):
            mask = pa.array(owners == index)
            kinds: Any = None if batch.row_kinds is None else batch.row_kinds.filter(mask)
            output += list(operator.process(Batch(batch.data.filter(mask), kinds)))
        return output

    def advance(self, watermark_ms: int) -> list[Batch]:
        return [piece for operator in self.operators for piece in operator.advance(watermark_ms)]

    def end(self) -> list[Batch]:
        return [piece for operator in self.operators for piece in operator.end(True)]

    def count(self, name: str) -> float:
        return sum(operator.counters()[name] for operator in self.operators)

    def close(self) -> None:
        for operator in self.operators:
            operator.close()


def restore_of(snapshots: Sequence[OperatorSnapshot]) -> OperatorRestore:
    counters: dict[str, int] = {}
    clocks: dict[int, int] = {}
    for snapshot in snapshots:
        for name, count in snapshot.counters.items():
            counters[name] = counters.get(name, 0) + count
        clocks.update(snapshot.clocks)
    segments = tuple(segment for snapshot in snapshots for segment in snapshot.segments)
    return OperatorRestore("operator", segments=segments, clocks=clocks, counters=counters)


def is_time(kind: DataType) -> bool:
    return kind.root is TypeRoot.TIMESTAMP
