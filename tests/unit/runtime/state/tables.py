"""A keyed table of any backend beside its model, driven by random batches."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedStateBackend, KeyedTable, Slots
from tests.support.table_model import ModelTable, identity
from tests.support.window_harness import MAX_PARALLELISM, operator_context

Array = Any
Key = tuple[Any, ...]
BACKENDS = ("hashmap", "rocksdb")

KEY_KINDS: list[pa.DataType] = [
    pa.int64(),
    pa.int32(),
    pa.string(),
    pa.binary(),
    pa.decimal128(20, 2),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.list_(pa.string()),
    pa.map_(pa.string(), pa.int32()),
]
_FIELDS: list[Any] = [
    pa.field("count", pa.int64(), nullable=False),
    pa.field("text", pa.string()),
    pa.field("list", pa.list_(pa.string())),
    pa.field("amount", pa.decimal128(12, 3)),
]
VALUES = pa.schema(_FIELDS)
DEFAULTS: Key = (0, None, None, None)


def random_key(choice: random.Random, kind: pa.DataType, variety: int) -> Any:
    """One of few values of the type, NULL and the odd ones among them."""
    if choice.random() < 0.1:
        return None
    n = choice.randrange(variety)
    if pa.types.is_floating(kind):
        return [0.0, -0.0, float("nan"), -float("nan"), 1.5, -1.5][n] if n < 6 else float(n)
    makers: list[tuple[Callable[[pa.DataType], bool], Any]] = [
        (pa.types.is_integer, n - 3),
        (pa.types.is_string, "ä" * (n % 9) * 3 + str(n)),
        (pa.types.is_binary, b"\0" * (n % 9) * 3 + str(n).encode()),
        (pa.types.is_decimal, Decimal(n - 3).scaleb(-2)),
        (pa.types.is_boolean, n % 2 == 0),
        (pa.types.is_date, datetime.date(1969, 12, 28) + datetime.timedelta(days=n)),
        (pa.types.is_timestamp, datetime.datetime(1969, 12, 31, 23, 59, 59) + datetime.timedelta(microseconds=n)),
        (pa.types.is_struct, {"a": n // 2, "b": "z" * n * 3 if n % 3 else None}),
        (pa.types.is_map, [("a", n // 2), ("b", None)] if n % 2 else [("b", None), ("a", n // 2)]),
        (pa.types.is_list, ["q" * n, None][: n % 3]),
    ]
    return next(value for is_kind, value in makers if is_kind(kind))


class Shape(msgspec.Struct, frozen=True):
    backend: str
    kinds: tuple[Any, ...]
    prefix_length: int = 0
    ttl_ms: int = 0
    managed_bytes: int = 0

    @property
    def keys(self) -> pa.Schema:
        return pa.schema([pa.field(f"k{i}", kind) for i, kind in enumerate(self.kinds)])

    def groups(self, columns: Sequence[Array], row_count: int) -> KeyGroups:
        """Rows of one prefix are in one key group."""
        hashed = columns[: self.prefix_length] if self.prefix_length else columns
        return key_group(hash_columns(hashed, row_count), MAX_PARALLELISM)

    def columns(self, keys: Sequence[Key]) -> list[Array]:
        return [pa.array([key[i] for key in keys], kind) for i, kind in enumerate(self.kinds)]


class Pair:
    """The table under test and its model."""

    def __init__(
        self,
        directory: Path,
        shape: Shape,
        segments: tuple[SegmentHandle, ...] = (),
        subtask: int = 0,
        parallelism: int = 1,
    ) -> None:
        self.shape = shape
        self.now_ms = 1_000
        restore = OperatorRestore("op", segments=segments) if segments else None
        context = operator_context(directory, subtask, parallelism, restore=restore, managed_bytes=shape.managed_bytes)
        context = msgspec.structs.replace(
            context, settings={"state.backend.type": shape.backend}, wall_clock_ms=lambda: self.now_ms
        )
        self.notices = context.notices
        self.owned = context.key_groups
        self.backend: KeyedStateBackend = open_backend("op", context)
        self.table: KeyedTable = self.backend.keyed_table(
            "rows", shape.keys, VALUES, prefix_length=shape.prefix_length, ttl_ms=shape.ttl_ms
        )
        self.model = ModelTable(DEFAULTS, shape.ttl_ms)

    def close(self) -> None:
        self.backend.close()

    def slots(self, keys: Sequence[Key]) -> Slots:
        columns = self.shape.columns(keys)
        slots, made = self.table.slots(columns, self.shape.groups(columns, len(keys)))
        assert made.tolist() == [self.model.ensure(key, self.now_ms) for key in keys]
        return slots

    def find(self, keys: Sequence[Key]) -> Slots:
        columns = self.shape.columns(keys)
        slots = self.table.find(columns, self.shape.groups(columns, len(keys)))
        assert (slots >= 0).tolist() == [self.model.row(key, self.now_ms) is not None for key in keys]
        return slots

    def batch(self, choice: random.Random, row_count: int, variety: int) -> None:
        """One batch of look-ups, writes of every kind, removals and look-ups by prefix; checked step by step."""
        keys = [tuple(random_key(choice, kind, variety) for kind in self.shape.kinds) for _ in range(row_count)]
        keys = [key for key in keys if self.owns(key)]
        if not keys:
            return
        slots = self.slots(keys)
        self._check_keys(keys, slots)
        texts = [choice.choice((None, "", "v" * choice.randrange(40))) for _ in keys]
        lists = [choice.choice((None, [], ["w" * choice.randrange(30), None])) for _ in keys]
        amounts = [None if choice.random() < 0.2 else Decimal(choice.randrange(-9, 9)).scaleb(-3) for _ in keys]
        for column, values in ((1, texts), (2, lists), (3, amounts)):
            self.table.write(column, slots, pa.array(values, VALUES.field(column).type))
            for key, value in zip(keys, values, strict=True):
                self.model.write(key, column, value, self.now_ms)
        self.table.touch(slots)
        np.add.at(self.table.numbers(0), slots, 1)
        for key in keys:
            row = self.model.row(key, self.now_ms)
            assert row is not None
            row[1][0] += 1
        gone = [choice.choice(keys) for _ in range(choice.randrange(4))]
        if gone:
            self.table.remove(self.find(gone))
            for key in gone:
                self.model.remove(key)
            self.find(gone)
        if self.shape.prefix_length:
            self._check_prefixes(keys)
        self.table.settle()

    def owns(self, key: Key) -> bool:
        group = int(self.shape.groups(self.shape.columns([key]), 1)[0])
        return self.owned.first <= group <= self.owned.last

    def _check_keys(self, keys: Sequence[Key], slots: Slots) -> None:
        seen = zip(*(column.to_pylist() for column in self.table.keys(slots)), strict=True)
        first = [self.model.row(key, self.now_ms) for key in keys]
        assert repr(list(seen)) == repr([row[0] for row in first if row is not None])

    def _check_prefixes(self, keys: Sequence[Key]) -> None:
        length = self.shape.prefix_length
        prefixes = list({tuple(identity(part) for part in key[:length]): key[:length] for key in keys}.values())
        columns = [pa.array([p[i] for p in prefixes], self.shape.kinds[i]) for i in range(length)]
        rows, slots = self.table.find_prefix(columns, self.shape.groups(columns, len(prefixes)))
        seen = zip(*(column.to_pylist() for column in self.table.keys(slots)), strict=True)
        expected = [(i, key) for i, prefix in enumerate(prefixes) for key in self.model.prefix(prefix, self.now_ms)]
        assert repr(list(zip(rows.tolist(), seen, strict=True))) == repr(expected)

    def contents(self) -> list[str]:
        return contents(self.table)

    def expected(self) -> list[str]:
        return sorted(repr((key, tuple(values))) for key, values in self.model.contents(self.now_ms))


def contents(table: KeyedTable) -> list[str]:
    """Every row as text, sorted."""
    rows = []
    for slots in table.all_slots():
        keys = zip(*(column.to_pylist() for column in table.keys(slots)), strict=True)
        values = zip(*(table.read(i, slots).to_pylist() for i in range(len(VALUES))), strict=True)
        rows += [repr(row) for row in zip(keys, values, strict=True)]
    return sorted(rows)
