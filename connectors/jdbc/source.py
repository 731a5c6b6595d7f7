"""Reads a whole table in steps, each a query of its own: by its primary key, or block by block where it has none."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from connectors.api import ReaderContext, SplitBatch, SplitState
from connectors.arrow import rows_without_columns
from connectors.errors import ConnectorError, ErrorDomain
from connectors.jdbc.database import Database, Row
from connectors.jdbc.options import JdbcOptions, quoted
from connectors.jdbc.types import columns_of, selected
from planner.ir.types import Field

BLOCKS = 64
_KEY = """
SELECT a.attname, format_type(a.atttypid, NULL)
FROM pg_index i
CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
ORDER BY k.n
"""
_SIZE = """
SELECT c.relkind::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""


class Position(msgspec.Struct, frozen=True):
    """How far a table was read: the last key, as texts, or the next block."""

    key: tuple[str, ...] = ()
    block: int = 0


class JdbcReader:
    """A row that is changed, added or removed while the table is read may be seen as before or after; by its primary
    key none is read twice."""

    def __init__(self, options: JdbcOptions, columns: tuple[Field, ...], context: ReaderContext) -> None:
        self._options = options
        self._columns = [columns[i] for i in context.scan_columns]
        self._rows_max = min(options.fetch_size or context.rows_max, context.rows_max)
        self._database = Database(options)
        self._states: dict[str, SplitState] = {}
        self._key: list[tuple[str, str]] | None = None

    def add_splits(self, splits: list[SplitState]) -> None:
        self._states.update({state.split.id: state for state in splits})

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        state = next((state for state in self._states.values() if not state.done), None)
        if state is None:
            time.sleep(timeout_ms / 1000)
            return []
        position = Position()
        if state.position is not None:
            position = msgspec.json.decode(state.position, type=Position)
        if self._key is None:
            self._database.column_types(self._columns)
            self._key = [(str(n), str(t)) for n, t in self._database.rows(_KEY, (self._options.quoted_table,))]
        rows, position, done = self._by_key(position) if self._key else self._by_block(position)
        self._states[state.split.id] = msgspec.structs.replace(state, position=msgspec.json.encode(position), done=done)
        return [SplitBatch(state.split.id, self._batch(rows), done)]

    def _by_key(self, position: Position) -> tuple[list[Row], Position, bool]:
        assert self._key
        key = ", ".join(f"t.{quoted(name)}" for name, _ in self._key)
        shown = [*self._shown(), *(f"t.{quoted(name)}::text" for name, _ in self._key)]
        query = f"SELECT {', '.join(shown)} FROM {self._options.quoted_table} t"
        query = query.replace("%", "%%")
        if position.key:
            values = ", ".join(f"%s::{kind.replace('%', '%%')}" for _, kind in self._key)
            query += f" WHERE ({key.replace('%', '%%')}) > ({values})"
        query += f" ORDER BY {key.replace('%', '%%')} LIMIT {self._rows_max}"
        rows = self._database.rows(query, position.key)
        if rows:
            position = Position(key=tuple(map(str, rows[-1][len(self._columns) :])))
        return rows, position, len(rows) < self._rows_max

    def _by_block(self, position: Position) -> tuple[list[Row], Position, bool]:
        table = self._options.quoted_table
        ((kind, blocks),) = self._database.rows(_SIZE, (table,))
        if kind not in ("r", "m"):
            raise ConnectorError(
                f"'{self._options.table_name}' is no table with rows of its own and has no primary key by which it "
                "could be read in steps",
                domain=ErrorDomain.USER,
                retry=False,
                hint="Read the tables below, or a materialized view.",
            )
        end = position.block + BLOCKS
        query = f"SELECT {', '.join(['t.ctid', *self._shown()])} FROM {table} t".replace("%", "%%")
        rows = self._database.rows(
            f"{query} WHERE t.ctid >= %s::tid AND t.ctid < %s::tid", (f"({position.block},0)", f"({end},0)")
        )
        return [row[1:] for row in rows], Position(block=end), end >= blocks

    def _shown(self) -> list[str]:
        return [selected("t." + quoted(c.name), c.type) for c in self._columns]

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        if not self._columns:
            return rows_without_columns(len(rows))
        values = list(zip(*rows, strict=True))[: len(self._columns)] if rows else []
        arrays = columns_of(values, self._columns)
        return pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])

    def snapshot(self) -> list[SplitState]:
        return list(self._states.values())

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        """Nobody outside keeps positions."""

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        self._database.close()
