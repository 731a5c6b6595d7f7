"""Reading rows of a keyed table by slot."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pyarrow as pa

from runtime.state.columns import FixedColumn
from runtime.state.protocol import Slots
from runtime.state.row_store import RowStore, TableShape

Array = Any


class TableReads:
    """See `KeyedTable`."""

    shape: TableShape
    store: RowStore

    def keys(self, slots: Slots) -> list[Array]:
        return [column.read(slots) for column in self.store.key_columns]

    def key(self, column: int, slots: Slots) -> Array:
        return self.store.key_columns[column].read(slots)

    def read(self, column: int, slots: Slots) -> Array:
        return self.store.value_columns[column].read(slots)

    def numbers(self, column: int) -> npt.NDArray[Any]:
        values = self.store.value_columns[column]
        field = self.shape.values.field(column)
        assert isinstance(values, FixedColumn)
        assert not field.nullable
        assert pa.types.is_primitive(field.type), f"{field} cannot be used in place"
        return values.values[: self.store.slot_count]
