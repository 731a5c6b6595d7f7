"""From states to a changelog: +I for a group's first row, -U and +U for a change, -D when the group is empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from runtime.elements import Batch
from runtime.operators.accumulators_values import equality_codes, fits_numpy
from runtime.operators.group_aggregate_scan import Bools, Ints, Scan
from runtime.operators.grouping import canonical_floats
from runtime.operators.protocol import OUTPUT_ROWS_MAX

pc: Any = pyarrow.compute
Array = Any

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3


class Steps(msgspec.Struct, frozen=True):
    """Output steps in order: each takes its group from one state to another. `rows` is a row of the input that shows
    the group's key; `old` and `new` point into the states; `was` and `is_now` tell whether there is a row to show."""

    rows: Ints
    old: Ints
    new: Ints
    was: Bools
    is_now: Bools


def steps_of(scan: Scan) -> Steps:
    """A step per row in order of arrival, or (net) one per group in the order in which groups first occur."""
    if not scan.every:
        groups = np.arange(scan.group_count)
        first_rows = scan.order[scan.group_starts]
        was, is_now = scan.initial_counts > 0, scan.final_counts > 0
        return Steps(first_rows, groups, scan.group_count + groups, was, is_now)
    places = np.empty_like(scan.order)
    places[scan.order] = np.arange(scan.row_count)
    old = np.arange(scan.group_count - 1, scan.group_count - 1 + scan.row_count)
    old[scan.group_starts] = np.arange(scan.group_count)
    before = scan.before(scan.running_counts)
    return Steps(
        np.arange(scan.row_count),
        old[places],
        scan.group_count + places,
        before[places] > 0,
        scan.running_counts[places] > 0,
    )


def changed(steps: Steps, states: Sequence[Array]) -> Bools:
    """The steps that move any of the columns; NULL equals NULL, NaN equals NaN and -0.0 equals 0.0."""
    moved = np.zeros(len(steps.rows), dtype=np.bool_)
    for column in states:
        if column.null_count == 0 and fits_numpy(column.type):
            values = column.to_numpy()
            if pa.types.is_floating(column.type):
                values = canonical_floats(column).to_numpy().view(f"i{column.type.bit_width // 8}")
        else:
            values = equality_codes(column)
        moved |= values[steps.old] != values[steps.new]
        if moved.all():
            break
    return moved


def changelog(
    schema: pa.Schema,
    keys: Sequence[Array],
    states: Sequence[Array],
    steps: Steps,
    *,
    with_update_before: bool,
    repeats_unchanged: bool,
    of_deletes: Mapping[int, Array] | None = None,
) -> Iterator[Batch]:
    """Batches of the changes, in pieces that do not part a -U from its +U. `of_deletes`: per column of a state its
    values by row of the input, which a -D has where they are not NULL."""
    stays = steps.was & steps.is_now
    updates = stays
    if stays.any() and not repeats_unchanged:
        updates = stays & changed(steps, states)
    deletes = steps.was & ~steps.is_now
    inserts = ~steps.was & steps.is_now
    count = len(steps.rows)
    shown = np.empty(2 * count, dtype=np.bool_)
    shown[0::2] = deletes | updates if with_update_before else deletes
    shown[1::2] = inserts | updates
    selected = np.flatnonzero(shown)
    if not len(selected):
        return
    kinds = np.empty(2 * count, dtype=np.int8)
    kinds[0::2] = np.where(deletes, DELETE, UPDATE_BEFORE)
    kinds[1::2] = np.where(inserts, INSERT, UPDATE_AFTER)
    places = np.empty(2 * count, dtype=np.int64)
    places[0::2], places[1::2] = steps.old, steps.new
    out_kinds, out_places, out_rows = kinds[selected], pa.array(places[selected]), pa.array(steps.rows[selected >> 1])
    columns = [key.take(out_rows) for key in keys] + [state.take(out_places) for state in states]
    for index, values in (of_deletes or {}).items():
        own, old = values.take(out_rows), columns[len(keys) + index]
        columns[len(keys) + index] = pc.if_else(pa.array(out_kinds == DELETE), pc.coalesce(own, old), old)
    yield from pieces(pa.RecordBatch.from_arrays(columns, schema=schema), out_kinds)


def latest(
    schema: pa.Schema, keys: Sequence[Array], states: Sequence[Array], scan: Scan, *, repeats_unchanged: bool
) -> Iterator[Batch]:
    """Net emission without -U over groups that all exist after the batch, so that a group's change is its new row: as
    `changelog` has it, column by column and without steps."""
    count = scan.group_count
    was = scan.initial_counts > 0
    kinds = np.where(was, np.int8(UPDATE_AFTER), np.int8(INSERT))
    columns = list(keys) if scan.is_sorted else [key.take(pa.array(scan.order[scan.group_starts])) for key in keys]
    columns += [state.slice(count) for state in states]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not repeats_unchanged and was.any():
        groups = np.arange(count)
        shown = changed(Steps(groups, groups, count + groups, was, was), states) | ~was
        if not shown.all():
            rows, kinds = rows.filter(pa.array(shown)), kinds[shown]
    yield from pieces(rows, kinds)


def pieces(rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> Iterator[Batch]:
    """The rows in batches of at most OUTPUT_ROWS_MAX."""
    row_kinds: Any = pa.array(kinds)
    first = 0
    while first < rows.num_rows:
        last = min(first + OUTPUT_ROWS_MAX, rows.num_rows)
        if last < rows.num_rows and kinds[last - 1] == UPDATE_BEFORE and last - 1 > first:
            last -= 1
        yield Batch(rows.slice(first, last - first), row_kinds.slice(first, last - first))
        first = last
