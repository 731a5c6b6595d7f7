"""CSV records to rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import Decoded, Messages
from connectors.arrow import Array, pc, rows_without_columns
from connectors.errors import RecordError
from connectors.formats.csv.options import CsvOptions
from connectors.formats.csv.records import Records
from connectors.formats.csv.texts import converted
from planner.ir.types import DataType, Field

SHOWN_BYTES_MAX = 100


class CsvDecoder:
    """Decodes records of all `columns` into those of them that are `wanted`. Fields that a record does not have are
    NULL, an empty record is a row of NULLs. If parse errors are ignored, a field that does not fit is NULL and a
    record with too many fields is left out and counted; else it is an error. (Flink drops the latter silently in any
    case.) Used by one thread."""

    def __init__(self, columns: tuple[Field, ...], wanted: tuple[int, ...], options: CsvOptions) -> None:
        self._column_count = len(columns)
        self._wanted = [(index, columns[index]) for index in wanted]
        self._options = options

    def decode(self, messages: Messages) -> Decoded:
        records = Records(messages, self._column_count, self._options)
        if records.errors and not self._options.ignore_parse_errors:
            row = min(records.errors)
            raise self._error(messages, row, records.errors[row])
        left_out = records.is_comment
        if records.errors:
            left_out = left_out.copy()
            left_out[list(records.errors)] = True
        kept = np.flatnonzero(~left_out) if left_out.any() else None
        arrays = []
        wrong: dict[int, str] = {}
        for index, column in self._wanted:
            values, bad = self._values(records.column(index), column.type)
            if kept is not None:
                values, bad = values.take(pa.array(kept)), bad[kept]
            if bad.any() and not self._options.ignore_parse_errors:
                row = int(np.flatnonzero(bad)[0])
                wrong.setdefault(row if kept is None else int(kept[row]), _misfit(column))
            arrays.append(_null_where(values, bad))
        if wrong:
            row = min(wrong)
            raise self._error(messages, row, wrong[row])
        count = messages.count if kept is None else len(kept)
        names = [f"c{i}" for i in range(len(arrays))]
        batch = pa.RecordBatch.from_arrays(arrays, names=names) if arrays else rows_without_columns(count)
        return Decoded(batch, kept, len(records.errors))

    def _values(self, texts: Array, t: DataType) -> tuple[Array, npt.NDArray[np.bool_]]:
        if self._options.null_literal is not None:
            is_null = pc.equal(texts, pa.scalar(self._options.null_literal, pa.string()))
            texts = pc.if_else(is_null.fill_null(False), pa.scalar(None, pa.string()), texts)
        return converted(texts, t, self._options.element_delimiter)

    def _error(self, messages: Messages, row: int, reason: str) -> RecordError:
        text = messages.value(row)[:SHOWN_BYTES_MAX].decode(errors="replace")
        return RecordError(
            f"{messages.describe(row)}: {reason}; the record begins: {text}",
            hint="Set 'csv.ignore-parse-errors' = 'true' to read what does not fit as NULL.",
        )


def _misfit(column: Field) -> str:
    return f"field '{column.name}' is not {column.type.summary()}"


def _null_where(values: Array, bad: Any) -> Array:
    if not bad.any() or pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        # Of arrays and rows only the part that does not fit is NULL.
        return values
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)
