"""Looks up rows by key: all keys of a request in one query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from connectors.api import Found, LookupContext
from connectors.arrow import concat_batches, pc, rows_without_columns
from connectors.jdbc.database import Database, Row
from connectors.jdbc.options import JdbcOptions, quoted
from connectors.jdbc.types import array_text, columns_of, key_type, selected
from planner.ir.types import Field

_ROWS_AT_ONCE = 8_192


class JdbcLookupReader:
    """See LookupReader. Keys go to the database as arrays, whose places come back with the rows:

    SELECT k.n, t."name" FROM unnest($1::integer[]) WITH ORDINALITY AS k (k0, n) JOIN "items" t ON t."id" = k.k0
    """

    def __init__(self, options: JdbcOptions, columns: tuple[Field, ...], context: LookupContext) -> None:
        self._options = options
        self._keys = [columns[i] for i in context.keys]
        self._columns = [columns[i] for i in context.columns]
        self._database = Database(options)
        self._query = ""
        self._key_types: list[str] = []

    def lookup(self, keys: pa.RecordBatch) -> Found:
        if not self._query:
            self._prepare()
        numbers, keys = _storable(keys)
        texts = [array_text(column, kind) for column, kind in zip(keys.columns, self._key_types, strict=True)]
        rows = self._database.rows(self._query, texts) if keys.num_rows else []
        places = np.fromiter((row[0] for row in rows), np.int64, len(rows)) - 1
        return Found(numbers[places], self._batch(rows, self._columns, first=1))

    def _prepare(self) -> None:
        table = self._options.quoted_table
        actual = self._database.column_types([*self._columns, *self._keys])
        self._key_types = [key_type(k.name, k.type, actual[k.name], self._options.table_name) for k in self._keys]
        arrays = ", ".join(f"%s::{kind}[]" for kind in self._key_types)
        names = ", ".join(f"k{i}" for i in range(len(self._keys)))
        shown = "".join(f", {selected('t.' + quoted(c.name), c.type)}" for c in self._columns)
        # An enumeration is compared as text.
        compared = [
            f"t.{quoted(k.name)}{'::text' if actual[k.name] == 'enum' else ''} = k.k{i}"
            for i, k in enumerate(self._keys)
        ]
        self._query = (
            f"SELECT k.n{_escaped(shown)} FROM unnest({arrays}) WITH ORDINALITY AS k ({names}, n) "
            f"JOIN {_escaped(table)} t ON {_escaped(' AND '.join(compared))}"
        )

    def load(self) -> pa.RecordBatch:
        columns = [*self._columns, *self._keys]
        self._database.column_types(columns)
        shown = ", ".join(selected("t." + quoted(c.name), c.type) for c in columns)
        pieces: list[pa.RecordBatch] = []
        self._database.read(
            f"SELECT {shown} FROM {self._options.quoted_table} t",
            _ROWS_AT_ONCE,
            lambda rows: pieces.append(self._batch(rows, columns)),
        )
        return concat_batches(pieces, pieces[0].schema) if pieces else self._batch([], columns)

    def _batch(self, rows: list[Row], columns: list[Field], first: int = 0) -> pa.RecordBatch:
        if not columns:
            return rows_without_columns(len(rows))
        # The number of the key, if there is one, stands before them.
        values = list(zip(*rows, strict=True))[first:] if rows else []
        arrays = columns_of(values, columns)
        return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])

    def close(self) -> None:
        self._database.close()


def _escaped(text: str) -> str:
    """SQL beside placeholders."""
    return text.replace("%", "%%")


def _storable(keys: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
    """The keys that can be in a table, and their numbers: no text has the character NUL there."""
    numbers = np.arange(keys.num_rows)
    for column in keys.columns:
        if pa.types.is_string(column.type):
            has_nul = pc.match_substring(column, "\0").to_numpy(zero_copy_only=False)
            numbers = numbers[~has_nul[numbers]]
    return numbers, keys if len(numbers) == keys.num_rows else keys.take(numbers)
