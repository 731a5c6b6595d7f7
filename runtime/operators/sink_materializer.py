"""Before a sink whose primary key is not an upsert key of its input: keeps all rows of a primary key, shows one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.errors import ErrorDomain
from planner.ir.operators import ConflictAction, SinkMaterializer
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.errors import TaskError
from runtime.key_groups import KeyGroups, hash_columns, key_group
from runtime.operators.accumulators_values import Values
from runtime.operators.group_aggregate_output import INSERT, UPDATE_AFTER, Steps, changelog
from runtime.operators.group_aggregate_scan import Bools, Ints, clamp, highest_over_intervals
from runtime.operators.grouping import group_ids
from runtime.operators.keyed import RetractingOperator
from runtime.operators.protocol import OperatorContext
from runtime.state.protocol import Slots

Array = Any

TABLE_NAME = "rows"


class Entries(msgspec.Struct, frozen=True):
    """Rows that a primary key has, or had for a stretch of the batch. Rows of the batch are sorted by key; an entry is
    there in rows [start, end) of that order and lasts if nothing ended it. `keys` are numbers of keys, `places` point
    into the stored rows and then the batch's, `numbers` order the entries of a key by arrival; `slots` are those of
    stored rows, -1 for new ones."""

    keys: Ints
    starts: Ints
    ends: Ints
    places: Ints
    numbers: Ints
    slots: Ints
    lasts: Bools


class SinkMaterializerOperator(RetractingOperator):
    """The table holds a row per (primary key, arrival number). A batch reads the rows of its keys, works out during
    which rows of the batch each of them is there, and shows the youngest (DO NOTHING: the oldest) of those that are."""

    def __init__(self, node: SinkMaterializer, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        self._key_schema = pa.schema([self._schema.field(i) for i in node.keys])
        self._suspects: list[pa.RecordBatch] = []
        """DO ERROR: primary keys that held several rows after a batch since the last watermark, and before it."""
        self._pending: list[pa.RecordBatch] = []

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        self._table = self._backend.keyed_table(
            TABLE_NAME,
            pa.schema([*self._key_schema, pa.field("number", pa.int64(), nullable=False)]),
            self._schema,
            prefix_length=len(self._key_schema),
            ttl_ms=self._node.state_ttl_ms,
        )
        if self._context.restore is not None and self._node.action is ConflictAction.ERROR:
            self._suspects = [
                pa.RecordBatch.from_arrays(self._table.keys(slots)[:-1], schema=self._key_schema)
                for slots in self._table.all_slots()
            ]

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        count = batch.row_count
        if count == 0:
            return
        rows = batch.data
        ids = group_ids(self._key_columns(rows))
        order = np.argsort(ids, kind="stable")
        starts = np.flatnonzero(np.concatenate(([True], np.diff(ids[order]) != 0)))
        first = order[starts]
        groups = self._groups(self._key_columns(rows))
        index: Any = pa.array(first)
        prefix = [column.take(index) for column in self._key_columns(rows)]
        which, slots = self._table.find_prefix(prefix, groups[first])
        stored = [self._table.read(i, slots) for i in range(len(self._schema))]
        numbers = self._table.keys(slots)[-1].to_numpy()
        values = [Values(known, rows.column(i)).array for i, known in enumerate(stored)]
        entries = self._entries(batch, order, starts, which, slots, numbers, values)
        states, steps = self._steps(order, starts, entries, len(slots))
        shown = [column.take(pa.array(states)) for column in values]
        self._store(rows, first, entries, values, slots)
        yield from changelog(self._schema, [], shown, steps, with_update_before=False, repeats_unchanged=False)

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Event time tells that rows which belong together have arrived: what met before the last watermark and is
        still together is a conflict. Raises TaskError (DO ERROR)."""
        self._check_conflicts(self._pending)
        self._pending, self._suspects = self._suspects, []
        yield from ()

    def end(self, drain: bool) -> Iterator[Batch]:
        """Raises TaskError (DO ERROR)."""
        if drain:
            self._check_conflicts(self._pending + self._suspects)
        yield from ()

    def _key_columns(self, rows: pa.RecordBatch) -> list[Array]:
        return [rows.column(i) for i in self._node.keys]

    def _groups(self, keys: list[Array]) -> KeyGroups:
        return key_group(hash_columns(keys), self._context.max_parallelism)

    def _entries(
        self,
        batch: Batch,
        order: Ints,
        starts: Ints,
        which: Slots,
        slots: Slots,
        numbers: Ints,
        values: list[Array],
    ) -> Entries:
        """Every stretch of presence of a row, from additions and removals of the same row in turn."""
        count, known = batch.row_count, len(slots)
        key_ends = np.append(starts[1:], count)
        key_of_row = np.repeat(np.arange(len(starts)), key_ends - starts)
        adds = np.ones(count, dtype=np.bool_)
        if batch.row_kinds is not None:
            kinds = batch.row_kinds.to_numpy()
            adds = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        # Events: what is stored came before the first row; then the batch's rows in order of key and arrival.
        event_keys = np.concatenate((which, key_of_row))
        places = np.concatenate((np.arange(known), known + order))
        when = np.concatenate((np.full(known, -1), np.arange(count)))
        is_add = np.concatenate((np.ones(known, dtype=np.bool_), adds[order]))
        event_slots = np.concatenate((slots, np.full(count, -1)))
        next_number = np.zeros(len(starts), dtype=np.int64)
        np.maximum.at(next_number, which, numbers + 1)
        ranks = np.arange(count) - starts[key_of_row]
        event_numbers = np.concatenate((numbers, next_number[key_of_row] + ranks))
        identity = self._identities(event_keys, places, when, is_add, event_numbers, values)
        usable = np.flatnonzero(identity >= 0)
        by_identity = usable[np.lexsort((event_numbers[usable], when[usable], identity[usable]))]
        same = np.append(identity[by_identity][1:] == identity[by_identity][:-1], False)
        following = np.append(by_identity[1:], -1)
        ends = np.where(same, when[following], key_ends[event_keys[by_identity]])
        added = is_add[by_identity]
        previous_added = np.concatenate(([False], added[:-1] & same[:-1]))
        self._ignored += int(np.count_nonzero(~added & ~previous_added)) + int(np.count_nonzero(identity < 0))
        # An addition to a row that is there replaces it: it keeps its number and slot.
        stretch = np.maximum.accumulate(np.where(added & ~previous_added, np.arange(len(added)), 0))
        entries, heads = by_identity[added], by_identity[stretch[added]]
        return Entries(
            event_keys[entries],
            np.maximum(when[entries], starts[event_keys[entries]]),
            ends[added],
            places[entries],
            event_numbers[heads],
            event_slots[heads],
            ~same[added],
        )

    def _identities(
        self, keys: Ints, places: Ints, when: Ints, is_add: Bools, numbers: Ints, values: list[Array]
    ) -> Ints:
        """A number per event, equal for those that concern the same row: by upsert key; without one by the whole row
        and how many equal ones are there, so that a removal takes the last equal one. -1: a removal of what is not
        there."""
        index: Any = pa.array(places)
        columns = self._node.upsert_key or tuple(range(len(values)))
        rows = group_ids([pa.array(keys), *(values[i].take(index) for i in columns)])
        if self._node.upsert_key:
            return rows
        order = np.lexsort((numbers, when, rows))
        ordered = rows[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        lengths = np.diff(np.append(starts, len(ordered)))
        steps = np.where(is_add[order], 1, -1)
        totals = np.cumsum(steps)
        depths = totals - np.repeat(totals[starts] - steps[starts], lengths)
        if depths.min() < 0:
            depths = clamp(depths, starts, lengths)
        before = np.concatenate(([0], depths[:-1]))
        before[starts] = 0
        levels = np.empty_like(rows)
        levels[order] = np.where(is_add[order], depths, before)
        return np.where(levels > 0, rows * (int(levels.max(initial=0)) + 1) + levels, -1)

    def _steps(self, order: Ints, starts: Ints, entries: Entries, known: int) -> tuple[Ints, Steps]:
        """What is shown: places (0 where nothing is) before the batch per key, then after each row in order of key; and
        the steps from one to the next, in order of arrival. `known` rows were stored."""
        count, key_count = len(order), len(starts)
        ranking = np.lexsort((entries.starts, entries.numbers))
        codes = np.empty_like(ranking)
        codes[ranking] = np.arange(len(ranking))
        if self._node.action is ConflictAction.NOTHING:
            codes = len(codes) - 1 - codes
        by_code = np.empty_like(codes)
        by_code[codes] = np.arange(len(codes))
        best = highest_over_intervals(count, entries.starts, entries.ends, codes)
        initial = np.full(key_count, -1, dtype=np.int64)
        is_stored = entries.places < known
        np.maximum.at(initial, entries.keys[is_stored], codes[is_stored])
        shown = np.concatenate((initial, best))
        is_shown = shown >= 0
        places = np.where(is_shown, entries.places[by_code[shown]] if len(codes) else 0, 0)
        positions = np.empty_like(order)
        positions[order] = np.arange(count)
        old = np.arange(key_count - 1, key_count - 1 + count)
        old[starts] = np.arange(key_count)
        old, new = old[positions], key_count + positions
        return places, Steps(np.arange(count), old, new, is_shown[old], is_shown[new])

    def _store(self, rows: pa.RecordBatch, heads: Ints, entries: Entries, values: list[Array], known: Slots) -> None:
        """Write down which rows are there after the batch. `heads` are a row per key, `known` the slots that were."""
        table = self._table
        lasting = entries.lasts
        keys, places, numbers, slots = (
            column[lasting] for column in (entries.keys, entries.places, entries.numbers, entries.slots)
        )
        first = places - len(known)
        is_new = np.flatnonzero(slots < 0)
        if len(is_new):
            index: Any = pa.array(first[is_new])
            key_columns = [column.take(index) for column in self._key_columns(rows)]
            made, _ = table.slots([*key_columns, pa.array(numbers[is_new])], self._groups(key_columns))
            slots[is_new] = made
        written = np.flatnonzero(first >= 0)
        if len(written):
            index = pa.array(places[written])
            for number, column in enumerate(values):
                table.write(number, slots[written], column.take(index))
        if self._node.state_ttl_ms:
            table.touch(slots)
        table.remove(np.setdiff1d(known, slots))
        if self._node.action is ConflictAction.ERROR:
            self._suspect(rows, heads, keys)
        table.settle()

    # ----------------------------------------------------------------------------------------------- DO ERROR

    def _suspect(self, rows: pa.RecordBatch, heads: Ints, keys: Ints) -> None:
        """Remember the primary keys that hold several rows now."""
        crowded = np.flatnonzero(np.bincount(keys, minlength=len(heads)) > 1)
        if len(crowded):
            index: Any = pa.array(heads[crowded])
            columns = [column.take(index) for column in self._key_columns(rows)]
            self._suspects.append(pa.RecordBatch.from_arrays(columns, schema=self._key_schema))

    def _check_conflicts(self, suspects: list[pa.RecordBatch]) -> None:
        """Rows of different upsert keys that are still together under one primary key."""
        for batch in suspects:
            keys: list[Array] = list(batch.columns)
            _, first = np.unique(group_ids(keys), return_index=True)
            index: Any = pa.array(first)
            keys = [column.take(index) for column in keys]
            which, _ = self._table.find_prefix(keys, self._groups(keys))
            crowded = np.flatnonzero(np.bincount(which, minlength=len(first)) > 1)
            if len(crowded):
                names = [self._node.output.columns[i].name for i in self._node.keys]
                values = [column[int(crowded[0])].as_py() for column in keys]
                shown = ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=True))
                raise TaskError(
                    f"rows of different upsert keys meet at one primary key of the sink: {shown}",
                    domain=ErrorDomain.USER,
                    retry=False,
                    hint="Use ON CONFLICT DO DEDUPLICATE to keep the last one, or make the primary key unique.",
                )
