"""What a sink's columns demand of values: NOT NULL, and the lengths of CHAR, VARCHAR, BINARY and VARBINARY.

As in Flink, only top-level columns are looked at. Additions (+I, +U) must satisfy the table. Removals (-U, -D) follow
them: they are cut and padded alike, so that they name the row that was written; one of a row that was dropped is
dropped; and none fails, since a removal may carry its key alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from connectors.errors import ErrorDomain
from planner.ir.operators import Column, MetadataColumn, NotNullEnforcement, Sink, TypeLengthEnforcement
from planner.ir.types import STRING_LENGTH, ChangelogMode, DataType, TypeRoot
from runtime.elements import Batch
from runtime.errors import TaskError
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER

pc: Any = pyarrow.compute
Array = Any
Bools = npt.NDArray[np.bool_]

RECORDS_DROPPED = "numRecordsDroppedNotNull"
VALUES_ADJUSTED = "numValuesAdjustedToLength"
_FIXED = (TypeRoot.CHAR, TypeRoot.BINARY)


class Length(msgspec.Struct, frozen=True):
    """A column of limited length: exactly `length` characters or bytes if `is_fixed`, else at most."""

    index: int
    type: DataType
    length: int

    @property
    def is_fixed(self) -> bool:
        return self.type.root in _FIXED

    def of(self, values: Array) -> Array:
        """Lengths: characters of text, bytes of binaries."""
        return pc.utf8_length(values) if self.type.is_character else pc.binary_length(values)

    def violated(self, values: Array) -> Bools:
        """Where a value is too long or, of a fixed length, too short; never where it is NULL."""
        lengths = pc.fill_null(self.of(values), self.length).to_numpy(zero_copy_only=False)
        wrong: Bools = lengths != self.length if self.is_fixed else lengths > self.length
        return wrong

    def adjusted(self, values: Array) -> Array:
        """Cut to the length and, if it is fixed, padded: text with spaces, binaries with zero bytes."""
        if self.type.is_character:
            cut = pc.utf8_slice_codeunits(values, 0, self.length)
            return pc.utf8_rpad(cut, self.length, " ") if self.is_fixed else cut
        if self.is_fixed:
            values = pc.binary_join_element_wise(values, b"\0" * self.length, b"")
        return pc.binary_slice(values, 0, self.length)


class ConstraintEnforcer:
    """Of one sink. Rows come as the sink writes them."""

    def __init__(self, node: Sink) -> None:
        self._node = node
        columns: tuple[Column | MetadataColumn, ...] = (*node.table.physical.columns, *node.metadata_columns)
        self._names = tuple(column.name for column in columns)
        self._lengths: tuple[Length, ...] = ()
        if node.length_enforcement is not TypeLengthEnforcement.IGNORE:
            self._lengths = tuple(
                Length(index, column.type, column.type.length)
                for index, column in enumerate(columns)
                if column.type.length is not None and column.type.length != STRING_LENGTH
            )
        self._dropped = 0
        self._adjusted = 0

    def enforce(self, batch: Batch) -> Batch:
        """The batch as it may be written. Raises TaskError (the user's) where an addition violates the table and
        nothing else was asked for."""
        nulls = [i for i in self._node.not_null_columns if batch.data.column(i).null_count]
        if nulls:
            batch = self._without_nulls(batch, nulls)
        for length in self._lengths:
            batch = self._with_length(batch, length)
        return batch

    def counters(self) -> dict[str, float]:
        counters: dict[str, float] = {RECORDS_DROPPED: self._dropped}
        if self._lengths:
            counters[VALUES_ADJUSTED] = self._adjusted
        return counters

    def _without_nulls(self, batch: Batch, columns: list[int]) -> Batch:
        additions = _additions(batch)
        missing = np.zeros(batch.row_count, dtype=np.bool_)
        for index in columns:
            here = batch.data.column(index).is_null().to_numpy(zero_copy_only=False)
            if self._node.not_null_enforcement is NotNullEnforcement.ERROR and (here & additions).any():
                raise self._error(
                    index,
                    "is NOT NULL, but a NULL value is being written into it",
                    "Set 'table.exec.sink.not-null-enforcer' = 'DROP' to leave such rows out, or filter them.",
                )
            missing |= here
        if self._node.not_null_enforcement is NotNullEnforcement.ERROR:
            return batch
        if self._node.changelog is ChangelogMode.UPSERT:
            # A deletion of an upsert stream may carry its key alone: it says nothing about the other columns.
            missing &= additions
        if not missing.any():
            return batch
        self._dropped += int(np.count_nonzero(missing))
        kept: Any = pa.array(np.flatnonzero(~missing))
        kinds: Any = None if batch.row_kinds is None else batch.row_kinds.take(kept)
        return Batch(batch.data.take(kept), kinds)

    def _with_length(self, batch: Batch, length: Length) -> Batch:
        values: Array = batch.data.column(length.index)
        wrong = length.violated(values)
        if not wrong.any():
            return batch
        if self._node.length_enforcement is TypeLengthEnforcement.ERROR:
            rows = np.flatnonzero(wrong & _additions(batch))
            if not len(rows):
                return batch
            size = length.of(values.slice(int(rows[0]), 1))[0].as_py()
            unit = "characters" if length.type.is_character else "bytes"
            raise self._error(
                length.index,
                f"is {length.type.with_nullable(True)}, but a value of {size} {unit} is being written into it",
                "Set 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD' to cut and pad such values.",
            )
        self._adjusted += int(np.count_nonzero(wrong))
        columns = list(batch.data.columns)
        columns[length.index] = length.adjusted(values)
        return Batch(pa.RecordBatch.from_arrays(columns, schema=batch.data.schema), batch.row_kinds)

    def _error(self, index: int, problem: str, hint: str) -> TaskError:
        return TaskError(
            f"column '{self._names[index]}' of table {self._node.table.identifier} {problem}",
            domain=ErrorDomain.USER,
            retry=False,
            hint=hint,
        )


def _additions(batch: Batch) -> Bools:
    """The rows that are written, not taken back."""
    if batch.row_kinds is None:
        return np.ones(batch.row_count, dtype=np.bool_)
    kinds = batch.row_kinds.to_numpy()
    additions: Bools = (kinds == INSERT) | (kinds == UPDATE_AFTER)
    return additions
