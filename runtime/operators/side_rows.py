"""Rows of one input of a join by key, in a keyed table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.schema import Schema
from planner.ir.types import arrow_schema
from runtime.key_groups import KeyGroups
from runtime.operators.pairs import Ints
from runtime.state.protocol import KeyedStateBackend, Slots

Array = Any


class SideRows:
    """The table's key is the join keys (a constant where there are none) and `distinguisher`, which tells the rows of
    one key apart; its values are `marks`, then the input's columns that are no keys."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        name: str,
        schema: Schema,
        keys: tuple[int, ...],
        distinguisher: pa.Field[Any],
        marks: Sequence[pa.Field[Any]],
    ) -> None:
        fields = list(arrow_schema(schema.types))
        self.keys = keys
        self.kinds = [field.type for field in fields]
        self._mark_count = len(marks)
        self._key_places = {column: place for place, column in reversed(list(enumerate(keys)))}
        self._others = [i for i in range(len(fields)) if i not in self._key_places]
        self._value_places = {column: len(marks) + place for place, column in enumerate(self._others)}
        self.prefix_schema = pa.schema([fields[i] for i in keys] or [pa.field("all", pa.int8())])
        self.table = backend.keyed_table(
            name,
            pa.schema([*self.prefix_schema, distinguisher]),
            pa.schema([*marks, *(fields[i] for i in self._others)]),
            prefix_length=len(self.prefix_schema),
        )

    def key_columns(self, rows: pa.RecordBatch) -> list[Array]:
        return [rows.column(i) for i in self.keys]

    @staticmethod
    def prefix(keys: list[Array], row_count: int) -> list[Array]:
        """First key columns of the table."""
        return keys or [pa.array(np.zeros(row_count, dtype=np.int8))]

    def add(self, rows: pa.RecordBatch, distinguisher: Array, groups: KeyGroups, marks: Sequence[Array]) -> Slots:
        """Keep rows; of equal (key, distinguisher) the last one stands. Gives the slots of those that are new."""
        prefix = self.prefix(self.key_columns(rows), rows.num_rows)
        slots, made = self.table.slots([*prefix, distinguisher], groups)
        for place, mark in enumerate(marks):
            self.table.write(place, slots, mark)
        for column in self._others:
            self.table.write(self._value_places[column], slots, rows.column(column))
        return np.flatnonzero(made)

    def column(self, index: int, slots: Slots) -> Array:
        """One of the input's columns."""
        place = self._key_places.get(index)
        if place is not None:
            return self.table.key(place, slots)
        return self.table.read(self._value_places[index], slots)

    def columns(self, slots: Slots) -> list[Array]:
        """All of the input's columns."""
        return [self.column(i, slots) for i in range(len(self.kinds))]


def first_of_each(ids: Ints) -> Ints:
    """First row of each of the ids 0, 1, …"""
    first = np.empty(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    # From the end, so that the first row stands.
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return first
