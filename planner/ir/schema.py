"""What operators say of their rows: columns, tables outside, and how changes are put out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

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


class Emission(StrEnum):
    """How an updating operator answers: one output step per input row in arrival order, or at most one -U/+U per key
    and batch (none for what did not change)."""

    EVERY = "every"
    NET = "net"
