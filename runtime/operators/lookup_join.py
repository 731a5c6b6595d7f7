"""A join with the rows that an outside table has at the moment it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from connectors import registry
from connectors.api import AskableConnector, CacheKind, Found, LookupContext, LookupReader
from planner.ir.expressions import InputRef
from planner.ir.operators import LookupJoin
from planner.ir.types import arrow_schema, to_arrow
from runtime.elements import Batch
from runtime.operators.calc import LOCAL_TIME_ZONE, evaluation_context
from runtime.operators.environment import TaskEnvironment
from runtime.operators.expressions.calc import Calc, compile_calc
from runtime.operators.group_aggregate_scan import Ints
from runtime.operators.grouping import group_ids
from runtime.operators.join_condition import JoinCondition, compile_condition
from runtime.operators.lookup_cache import PartialCache
from runtime.operators.lookup_full_cache import FullCache
from runtime.operators.lookup_reloads import ReloadTrigger
from runtime.operators.lookup_requests import LookupRequests, rows_only, together
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.sink import table_definition
from runtime.operators.stateless import StatelessOperator

THREADS_MAX = 4
"""Requests at once where the hint says 'async'."""


class LookupJoinOperator(StatelessOperator):
    """Per batch each key is asked for once, in the cache, then in the table. Rows come out in the order of the input,
    also where several requests run at once."""

    def __init__(self, node: LookupJoin, context: OperatorContext, environment: TaskEnvironment) -> None:
        super().__init__(node.uid)
        self._node = node
        self._context = context
        self._environment = environment
        self._schema = arrow_schema(node.output.types)
        kinds = dict(zip(node.table.physical.names, node.table.physical.types, strict=True))
        self._key_types = [to_arrow(kinds[name]) for name in node.lookup_columns]
        self._column_types = list(arrow_schema(node.table_columns.types).types)
        self._keys: Calc
        self._condition: JoinCondition | None = None
        self._requests: LookupRequests | None = None
        self._partial: PartialCache | None = None
        self.full: FullCache | None = None

    def open(self) -> None:
        """Loads a table that is cached whole. Raises ConnectorError."""
        node, context = self._node, self._context
        expressions = evaluation_context(context)
        keys = [
            InputRef(key, node.left.types[key]) if key is not None else constant
            for key, constant in zip(node.left_keys, node.constants, strict=True)
        ]
        self._keys = compile_calc(None, tuple(key for key in keys if key is not None), expressions)
        if node.condition is not None:
            self._condition = compile_condition(node.condition, len(node.left.columns), context)
        self._open_table()
        if self.full is not None:
            self.full.open()

    def _open_table(self) -> None:
        node, context = self._node, self._context
        kind = registry.connector(node.table.connector)
        assert isinstance(kind, AskableConnector), f"{node.table.connector} answers no look-ups"
        connector = kind.lookup(table_definition(node.table))
        names = node.table.physical.names
        time_zone = context.settings.get(LOCAL_TIME_ZONE, "UTC")
        asked = LookupContext(
            keys=tuple(names.index(name) for name in node.lookup_columns),
            columns=tuple(names.index(name) for name in node.table_columns.names),
            local_time_zone=time_zone,
        )

        def make_reader() -> LookupReader:
            return connector.reader(asked)

        options, hint = connector.options, node.hint
        is_async = hint.is_async and options.cache is not CacheKind.FULL
        self._requests = LookupRequests(
            make_reader,
            min(THREADS_MAX, hint.capacity) if is_async else 1,
            options.retries_max,
            hint.timeout_ms if is_async else 0,
            self._environment.check,
        )
        if options.cache is CacheKind.PARTIAL:
            self._partial = PartialCache(options, self._key_types, self._column_types, context.wall_clock_ms)
        elif options.cache is CacheKind.FULL:
            trigger = ReloadTrigger(options.reload, time_zone)
            self.full = FullCache(self._requests, self._key_types, trigger, context.wall_clock_ms)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises ConnectorError, ExpressionError."""
        if not batch.row_count:
            return
        numbers, keys = self._distinct(batch.data)
        found = self._answer(keys)
        rows, matches = self._pairs(batch.data, numbers, found, keys.num_rows)
        for first in range(0, len(rows), OUTPUT_ROWS_MAX):
            piece = slice(first, first + OUTPUT_ROWS_MAX)
            yield self._joined(batch, found.rows, rows[piece], matches[piece])

    def timer_ms(self) -> int | None:
        return None if self.full is None else self.full.timer_ms()

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        """A table that is cached whole begins to be loaded anew."""
        if self.full is not None:
            self.full.on_timer(now_ms)
        return iter(())

    # ------------------------------------------------------------------------------------------------- asking

    def _distinct(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        """The number of each row's key, -1 where a part of it is NULL, and the distinct keys by number."""
        columns: list[Any] = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(self._keys(rows).columns, self._key_types, strict=True)
        ]
        numbers = np.full(rows.num_rows, -1, dtype=np.int64)
        is_null = np.zeros(rows.num_rows, dtype=np.bool_)
        for column in columns:
            if column.null_count:
                is_null |= column.is_null().to_numpy(zero_copy_only=False)
        names = [f"c{i}" for i in range(len(columns))]
        keys = pa.RecordBatch.from_arrays(columns, names)
        whole = np.flatnonzero(~is_null)
        if len(whole) < len(numbers):
            keys = keys.take(whole)
        if not len(whole):
            return numbers, keys
        ids = group_ids(keys.columns)
        numbers[whole] = ids
        _, firsts = np.unique(ids, return_index=True)
        return numbers, keys if len(firsts) == len(ids) else keys.take(firsts)

    def _answer(self, keys: pa.RecordBatch) -> Found:
        if not keys.num_rows:
            return Found(np.zeros(0, dtype=np.int64), self._no_rows())
        if self.full is not None:
            return self.full.answer(keys)
        if self._partial is not None:
            return self._partial.answer(keys, self._ask)
        return self._ask(keys)

    def _ask(self, keys: pa.RecordBatch) -> Found:
        """Asks the table; with 'retry-predicate' = 'lookup_miss' again for keys without rows."""
        assert self._requests is not None
        found = self._requests.lookup(keys)
        for _ in range(self._node.hint.repeats):
            missing = np.flatnonzero(np.bincount(found.keys, minlength=keys.num_rows) == 0)
            if not len(missing):
                break
            self._requests.pause(self._node.hint.delay_ms)
            again = self._requests.lookup(keys.take(missing))
            found = Found(np.concatenate([found.keys, missing[again.keys]]), together([found.rows, again.rows]))
        return found

    def _no_rows(self) -> pa.RecordBatch:
        if not self._column_types:
            return rows_only(0)
        empty: list[Any] = [pa.array([], kind) for kind in self._column_types]
        return pa.RecordBatch.from_arrays(empty, [f"c{i}" for i in range(len(empty))])

    # ------------------------------------------------------------------------------------------------ joining

    def _pairs(self, rows: pa.RecordBatch, numbers: Ints, found: Found, key_count: int) -> tuple[Ints, Ints]:
        """Rows of the batch and rows found that belong together, in order of the batch; -1: padded with NULLs."""
        order = np.argsort(found.keys, kind="stable")
        per_key = np.bincount(found.keys, minlength=max(key_count, 1))
        starts = np.cumsum(per_key) - per_key
        has_key = numbers >= 0
        counts = np.where(has_key, per_key[numbers], 0)
        own = np.repeat(np.arange(len(numbers)), counts)
        firsts = np.cumsum(counts) - counts
        matches = order[np.repeat(starts[numbers] - firsts, counts) + np.arange(len(own))]
        if self._condition is not None and len(own):
            passed = self._condition.passed_pairs(
                0,
                lambda index, piece: rows.column(index).take(pa.array(own[piece])),  # type: ignore[arg-type]
                lambda index, piece: found.rows.column(index).take(pa.array(matches[piece])),  # type: ignore[arg-type]
                len(own),
            )
            if passed is not None:
                own, matches = own[passed], matches[passed]
        if self._node.kind.is_left_outer:
            alone = np.flatnonzero(np.bincount(own, minlength=len(numbers)) == 0)
            if len(alone):
                own = np.concatenate([own, alone])
                matches = np.concatenate([matches, np.full(len(alone), -1)])
                by_row = np.argsort(own, kind="stable")
                own, matches = own[by_row], matches[by_row]
        return own, matches

    def _joined(self, batch: Batch, found: pa.RecordBatch, rows: Ints, matches: Ints) -> Batch:
        is_padded = matches < 0
        # Nothing may have been found at all: NULL is no row's number.
        chosen: Any = pa.array(np.where(is_padded, 0, matches), mask=is_padded) if is_padded.any() else matches
        is_whole = len(rows) == batch.row_count and bool((rows == np.arange(len(rows))).all())
        left = batch.data if is_whole else batch.data.take(rows)
        columns: list[Any] = [*left.columns, *(column.take(pa.array(chosen)) for column in found.columns)]
        arrays = [c if c.type == kind else c.cast(kind) for c, kind in zip(columns, self._schema.types, strict=True)]
        kinds: Any = batch.row_kinds
        if kinds is not None and not is_whole:
            kinds = kinds.take(pa.array(rows))
        return Batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), kinds)

    def counters(self) -> dict[str, float]:
        if self._requests is None:
            return {}
        found: dict[str, float] = {"latestLoadTime": self._requests.latest_ms}
        if self.full is not None:
            found |= {"loadCount": self.full.load_count, "numLoadFailures": self.full.failure_count}
            found |= {"hitCount": self.full.hit_count, "numCachedRecords": self.full.row_count}
            return found
        found |= {"loadCount": self._requests.request_count, "numLoadFailures": self._requests.failure_count}
        if self._partial is not None:
            found |= {"hitCount": self._partial.hit_count, "missCount": self._partial.miss_count}
            found["numCachedRecords"] = self._partial.key_count
        return found

    def close(self) -> None:
        if self._requests is not None:
            self._requests.close()
