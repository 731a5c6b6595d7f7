"""The road for few plain columns: one strict call that reads only them.

The columnar reader pays for every field it skips, and a strict check must go before it. Where at most a few plain
columns are wanted, msgspec reads them into small structures, strictly and at once, for less than both. It refuses
more than the columnar reader (a number in quotes, an integer beyond BIGINT, half an escaped character): then that
one is asked. What it accepts it reads alike.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.arrow import Array
from connectors.formats.json.wire import wire_type
from planner.ir.types import Field, TypeRoot

COLUMNS_MAX = 3
"""With more the columnar reader is faster."""
REFUSALS_MAX = 8
"""Runs refused one after the other: these messages are not of the kind that this road takes."""

_INTEGERS = frozenset({TypeRoot.INTEGER, TypeRoot.BIGINT})
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


class NarrowReader:
    """Reads runs of messages into columns of the wire types. Used by one thread."""

    def __init__(self, columns: tuple[Field, ...]) -> None:
        self._getters = [attrgetter(f"m{i}") for i in range(len(columns))]
        self._types = [wire_type(column.type) for column in columns]
        self._are_integers = [pa.types.is_integer(kind) for kind in self._types]
        members: list[Any] = [(f"m{i}", _member_type(column) | None, None) for i, column in enumerate(columns)]
        renamed = {f"m{i}": column.name for i, column in enumerate(columns)}
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Record", members, rename=renamed, gc=False))
        self._refusals = 0

    @staticmethod
    def suits(columns: tuple[Field, ...]) -> bool:
        return 0 < len(columns) <= COLUMNS_MAX and all(c.type.root in _INTEGERS | _TEXTS for c in columns)

    def read(self, text: memoryview, count: int) -> list[Array] | None:
        """One array per column; None when the messages must be looked at otherwise. The caller still has to prove that
        no message holds a second row."""
        if self._refusals >= REFUSALS_MAX:
            return None
        try:
            data = bytes(text)
            if not data.isascii():
                data.decode()  # Fields that are not read must be well-formed text, too.
            records = self._decoder.decode_lines(data)
            if len(records) == count:
                arrays = [
                    _integers(records, getter, kind) if is_integer else pa.array(list(map(getter, records)), kind)
                    for getter, kind, is_integer in zip(self._getters, self._types, self._are_integers, strict=True)
                ]
                self._refusals = 0
                return arrays
        except (msgspec.MsgspecError, RecursionError, OverflowError, pa.ArrowInvalid, UnicodeError):
            pass
        self._refusals += 1
        return None


def _member_type(column: Field) -> Any:
    return int if column.type.root in _INTEGERS else str


def _integers(records: list[Any], getter: attrgetter[Any], kind: pa.DataType) -> Array:
    try:
        values = pa.array(np.fromiter(map(getter, records), np.int64, len(records)))
    except TypeError:  # A NULL among them.
        return pa.array(list(map(getter, records)), kind)
    return values if values.type == kind else values.cast(kind)
