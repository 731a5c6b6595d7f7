"""Top-N: the best rows of each partition, kept up to date, as a changelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from planner.ir.operators import Emission
from planner.ir.ranks import Rank, RankFunction
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.elements import Batch
from runtime.key_groups import KeyGroups
from runtime.operators.accumulators_values import Values
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.keyed import RetractingOperator
from runtime.operators.order_keys import OrderKeys, exact_ties
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.rank_changes import EveryChange, Range, net_changes, relevant
from runtime.operators.rank_entries import (
    Entries,
    Lives,
    Run,
    Stored,
    entries_of,
    lives_by_content,
    lives_by_key,
    ranks_of,
    run_of,
)
from runtime.operators.rank_rest import RestRows, counts_after, lowest_counts
from runtime.operators.rank_rows import PartitionKeys, RankedRows, RankRows
from runtime.state.protocol import Slots

Array = Any

_REST_LAST_MAX = 1 << 20
"""Where more rows are shown, none is far behind."""


class Touched(msgspec.Struct, frozen=True):
    """What a batch touches: its rows by partition and arrival, the partitions' keys and key groups, stored rows."""

    run: Run
    keys: list[Array]
    groups: KeyGroups
    stored: Stored
    """Rows that are near, then (their slots are those of the rest) rows of the rest that the batch concerns."""
    near_count: int
    rest_counts: Ints
    next_numbers: Ints
    rows: RankedRows
    codes: Ints


class RankOperator(RetractingOperator):
    """The table holds a row per (partition, arrival number): over inserts those that rank up to `last`, else all. Over
    inserts a partition that is full also has a bound, so that most rows are turned away by one comparison. Over changes
    the rows of a large partition that are far behind are in a table of their own (`RestRows`)."""

    def __init__(self, node: Rank, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._row_schema = pa.schema(list(self._schema)[: len(self._schema) - node.puts_out_rank])
        self._retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
        self._keys = PartitionKeys(self._row_schema, node.keys, context.max_parallelism)
        self._order = OrderKeys(node.order, self._row_schema.types)
        self._range = Range(node.function, node.first, node.last, node.puts_out_rank)
        self._rows: RankRows
        self._rest: RestRows | None = None

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        # A bound outlives rows that expire.
        has_bounds = not self._retracting and not self._node.state_ttl_ms
        self._rows = RankRows(
            self._backend, self._row_schema, self._keys, ttl_ms=self._node.state_ttl_ms, has_bounds=has_bounds
        )
        node = self._node
        if self._retracting and node.last <= _REST_LAST_MAX and not node.state_ttl_ms:
            self._rest = RestRows(
                self._backend, self._row_schema, self._keys, node.upsert_key, node.function, node.last
            )

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        batch = self._within_bounds(batch)
        if batch.row_count == 0 or self._node.last < self._node.first:
            return
        if self._node.emits_at_end and not self._retracting and self._node.last > _REST_LAST_MAX:
            self._append(batch.data)
            return
        touched = self._touched(batch.data)
        entries, near, unknown = self._entries(batch, touched)
        if self._rest is not None and touched.rest_counts.any():
            missing = self._node.last - self._near_counts(touched, entries, near)
            short = np.flatnonzero((missing > 0) & (touched.rest_counts > 0))
            if len(short):
                self._bring_near(self._rest, touched, short, missing[short])
                touched = self._touched(batch.data)
                entries, near, unknown = self._entries(batch, touched)
        self._ignored += unknown
        self._store(touched, entries, near)
        if not self._node.emits_at_end:
            yield from self._changes(touched, entries.only(near))

    def end(self, drain: bool) -> Iterator[Batch]:
        """Batch execution: the final rows, partition by partition in order of rank."""
        if not (drain and self._node.emits_at_end):
            return
        columns, numbers = self._rows.all_rows()
        rows = pa.RecordBatch.from_arrays(columns, schema=self._row_schema)
        if not rows.num_rows:
            return
        partitions = self._keys.numbers(self._keys.of(rows))
        codes = self._order.codes(columns, len(numbers))
        order = np.lexsort((numbers, codes, partitions))
        ranks = ranks_of(partitions[order], codes[order], self._range.function)
        shown = np.flatnonzero((ranks >= self._range.first) & (ranks <= self._range.last))
        for first in range(0, len(shown), OUTPUT_ROWS_MAX):
            piece = shown[first : first + OUTPUT_ROWS_MAX]
            out: list[Array] = list(rows.take(order[piece]).columns)
            if self._node.puts_out_rank:
                out.append(pa.array(ranks[piece]))
            yield Batch(pa.RecordBatch.from_arrays(out, schema=self._schema))

    def _rows_stored(self) -> int:
        return self._rows.row_count + (0 if self._rest is None else self._rest.row_count)

    def _append(self, rows: pa.RecordBatch) -> None:
        """Every row will be shown at the end, or nearly: none is looked for."""
        keys = self._keys.of(rows)
        first = self._rows.next_number
        numbers = np.arange(first, first + rows.num_rows)
        self._rows.add(keys, numbers, self._keys.key_groups(keys), rows.columns)
        self._rows.settle()

    def _within_bounds(self, batch: Batch) -> Batch:
        """Without the rows that come behind all ranks of a partition that is full."""
        rows = batch.data
        if self._retracting or not rows.num_rows:
            return batch
        keys = self._keys.of(rows)
        bounds = self._rows.bounds(keys, self._keys.key_groups(keys))
        if bounds is None:
            return batch
        lead = self._order.lead_column
        leads = self._order.leads(None if lead is None else rows.column(lead), rows.num_rows)
        enters = leads <= bounds
        if self._order.is_exact and self._range.function is RankFunction.ROW_NUMBER:
            # Of peers the one that came first ranks first.
            enters &= (leads < bounds) | ~exact_ties(leads)
        return batch if enters.all() else Batch(rows.take(np.flatnonzero(enters)))

    def _touched(self, rows: pa.RecordBatch) -> Touched:
        partitions = self._keys.numbers(self._keys.of(rows))
        run = run_of(partitions, np.arange(rows.num_rows))
        ordered = rows.take(run.arrivals) if len(run.starts) > 1 else rows
        first: Any = pa.array(run.starts)
        keys = [column.take(first) for column in self._keys.of(ordered)]
        groups = self._keys.key_groups(keys)
        stored, columns = self._rows.read(keys, groups)
        near_count = len(stored.slots)
        nothing = np.zeros(len(groups), dtype=np.int64)
        counts, next_numbers = (nothing, nothing) if self._rest is None else self._rest.of_partitions(keys, groups)
        if self._rest is not None and counts.any():
            which, slots = self._concerned(self._rest, ordered, run, groups, counts)
            if len(slots):
                places, more, numbers = self._rest.read(slots)
                columns = [Values(near, far).array for near, far in zip(columns, more, strict=True)]
                parts = ((stored.partitions, which[places]), (stored.slots, slots[places]), (stored.numbers, numbers))
                stored = Stored(*(np.concatenate(part) for part in parts))
        ranked = RankedRows(columns, ordered.columns)
        codes = self._order.codes(ranked.columns, len(ranked))
        return Touched(run, keys, groups, stored, near_count, counts, next_numbers, ranked, codes)

    def _concerned(
        self, rest: RestRows, rows: pa.RecordBatch, run: Run, groups: KeyGroups, counts: Ints
    ) -> tuple[Ints, Slots]:
        """Partition and slot of the rows of the rest that a row of the batch may concern."""
        asked = np.flatnonzero(counts[run.partitions] > 0)
        some = rows.take(asked)
        slots = rest.find(self._keys.of(some), some.columns, groups[run.partitions[asked]])
        found, first = np.unique(slots, return_index=True)
        known = found >= 0
        return run.partitions[asked[first[known]]], found[known]

    def _near_counts(self, touched: Touched, entries: Entries, near: Bools) -> Ints:
        """Per partition how many ranks the near entries fill whenever it is looked at what is shown."""
        if self._node.emission is Emission.NET:
            return counts_after(entries, near, self._range.function)
        return lowest_counts(touched.run, entries, near, self._range.function)

    def _bring_near(self, rest: RestRows, touched: Touched, partitions: Ints, missing: Ints) -> None:
        """More rows of partitions are needed than are near."""
        index: Any = pa.array(partitions)
        keys = [key.take(index) for key in touched.keys]
        concerned = touched.stored.slots[touched.near_count :]
        rest.bring_near(keys, touched.groups[partitions], missing, concerned, self._order, self._rows)

    def _entries(self, batch: Batch, touched: Touched) -> tuple[Entries, Bools, int]:
        """The rows at hand, which of them are near (no row of the rest comes before those), and the number of removals
        of what is not there."""
        run, stored, codes = touched.run, touched.stored, touched.codes
        lives = self._lives(batch, touched) if self._retracting else None
        entries = entries_of(run, stored, codes, self._range.function, lives, touched.next_numbers)
        near = np.ones(len(entries.places), dtype=np.bool_)
        parted = touched.rest_counts > 0
        if parted.any():
            bounds = np.full(len(parted), np.iinfo(np.int64).min)
            np.maximum.at(bounds, stored.partitions[: touched.near_count], codes[: touched.near_count])
            is_near = entries.places < touched.near_count
            is_new = entries.places >= len(stored.slots)
            own_bounds = bounds[entries.partitions]
            # A row number is larger than those of all peers that are there; peers of one rank stay together.
            is_numbered = self._range.function is RankFunction.ROW_NUMBER
            is_better = entries.codes < own_bounds if is_numbered else entries.codes <= own_bounds
            near = is_near | (is_new & is_better) | ~parted[entries.partitions]
        return entries, near, 0 if lives is None else lives.unknown

    def _lives(self, batch: Batch, touched: Touched) -> Lives:
        run, stored = touched.run, touched.stored
        adds: Bools = np.ones(run.row_count, dtype=np.bool_)
        if batch.row_kinds is not None:
            kinds = batch.row_kinds.to_numpy()[run.arrivals]
            adds = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        partitions = np.concatenate((stored.partitions, run.partitions))
        names = touched.rows.identities(partitions, np.arange(len(partitions)), self._node.upsert_key)
        lives = lives_by_content if self._node.upsert_key is None else lives_by_key
        return lives(run, stored.partitions, names, adds)

    def _store(self, touched: Touched, entries: Entries, near: Bools) -> None:
        """Write down what stays: all, or what ranks up to `last`."""
        stays = entries.stays & near
        if not self._retracting:
            stays = entries.better(stays, self._range.function) < self._range.last
        if self._rest is not None:
            far = self._rest.far(entries, near, touched.rest_counts)
            stays &= ~far
            self._store_rest(self._rest, touched, entries, far | (entries.stays & ~near))
        lasting = entries.slots[stays]
        stored = touched.stored.slots[: touched.near_count]
        self._rows.remove(np.setdiff1d(stored, lasting[lasting >= 0], assume_unique=True))
        new = np.flatnonzero(stays & (entries.slots < 0))
        if len(new):
            self._rows.add(*self._rows_to_add(touched, entries, new))
        if not self._retracting:
            self._set_bounds(touched, entries, stays)
        self._rows.settle()

    def _store_rest(self, rest: RestRows, touched: Touched, entries: Entries, far: Bools) -> None:
        """What is far after the batch: rows of the rest that the batch has not taken away, and others that come."""
        known = len(touched.stored.slots)
        was_far = (entries.places >= touched.near_count) & (entries.places < known)
        gone, new = np.flatnonzero(was_far & ~entries.stays), np.flatnonzero(far & ~was_far)
        rest.remove(entries.slots[gone])
        if len(new):
            rest.add(*self._rows_to_add(touched, entries, new))
        counts = touched.rest_counts.copy()
        np.add.at(counts, entries.partitions[gone], -1)
        np.add.at(counts, entries.partitions[new], 1)
        parted = np.flatnonzero((touched.rest_counts > 0) | (counts > 0))
        if len(parted):
            numbers = touched.next_numbers.copy()
            np.maximum.at(numbers, entries.partitions, entries.numbers + 1)
            index: Any = pa.array(parted)
            keys = [key.take(index) for key in touched.keys]
            rest.set_partitions(keys, touched.groups[parted], counts[parted], numbers[parted])
        rest.settle()

    def _rows_to_add(
        self, touched: Touched, entries: Entries, chosen: Ints
    ) -> tuple[list[Array], Ints, KeyGroups, list[Array]]:
        """Partition keys, arrival numbers, key groups and columns of entries."""
        partitions = entries.partitions[chosen]
        index: Any = pa.array(entries.places[chosen])
        columns = [column.take(index) for column in touched.rows.columns]
        by_partition: Any = pa.array(partitions)
        keys = [columns[i] for i in self._keys.columns] or [key.take(by_partition) for key in touched.keys]
        return keys, entries.numbers[chosen], touched.groups[partitions], columns

    def _set_bounds(self, touched: Touched, entries: Entries, kept: Bools) -> None:
        """The last row of a partition in which `last` ranks are taken."""
        rows = np.flatnonzero(kept)
        counted = rows
        if self._range.function is RankFunction.DENSE_RANK:
            counted = rows[np.unique(entries.groups[rows], return_index=True)[1]]
        counts = np.bincount(entries.partitions[counted], minlength=len(touched.keys[0]))
        full = np.flatnonzero(counts >= self._range.last)
        if not len(full):
            return
        worst = rows[np.searchsorted(entries.partitions[rows], full, side="right") - 1]
        lead = self._order.lead_column
        column = None if lead is None else touched.rows.columns[lead].take(pa.array(entries.places[worst]))
        index: Any = pa.array(full)
        keys = [key.take(index) for key in touched.keys]
        self._rows.set_bounds(keys, touched.groups[full], self._order.leads(column, len(full)))

    def _changes(self, touched: Touched, entries: Entries) -> Iterator[Batch]:
        entries = relevant(entries, self._range)
        if not len(entries.places):
            return
        if self._node.emission is Emission.NET:
            parts = iter([net_changes(entries, self._range, touched.rows.same, self._identities(touched))])
        else:
            parts = EveryChange(entries, touched.run, self._range).changes()
        for part in parts:
            yield from touched.rows.batches(
                part,
                self._schema,
                puts_out_rank=self._node.puts_out_rank,
                with_update_before=self._node.emits_update_before,
            )

    def _identities(self, touched: Touched) -> Any:
        return lambda partitions, places: touched.rows.identities(partitions, places, self._node.upsert_key)
