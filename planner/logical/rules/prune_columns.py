"""Columns nobody reads are dropped, down to the sources: a scan decodes only what it must.

A source keeps its time column and what the watermark is computed from, read or not. Scans of one table with equal
options keep the same columns when sources are reused, so that one reader can serve them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from planner.catalog import ComputedColumn, PhysicalColumn, TableEntry
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, input_indexes, shift_inputs
from planner.ir.operators import AggregateCall, AggregateFunction, ChangelogMode
from planner.logical.columns import Passing, moved, read_columns
from planner.logical.nodes import (
    AttachedWindow,
    Calc,
    ChangelogNormalize,
    Column,
    Expand,
    GroupAggregate,
    Limit,
    LookupJoin,
    Plan,
    Rank,
    ResultSink,
    Scan,
    SetOperation,
    TableSink,
    UnionAll,
    Unnest,
    Values,
    Window,
    WindowAggregate,
    WindowRank,
    WindowTableFunction,
    inputs_of,
    with_inputs,
)
from planner.streaming.derive import derive

_Mapping = dict[int, int]
_KEY_COLUMNS_ADDED_MAX = 1


def prune_columns(sinks: tuple[Plan, ...], is_source_reuse_enabled: bool) -> tuple[Plan, ...]:
    """All trees of a job, pruned."""
    pruned = tuple(_prune_sink(s, {}) for s in sinks)
    if not is_source_reuse_enabled:
        return pruned
    kept_by_scan: dict[str, list[frozenset[int]]] = defaultdict(list)
    for sink in pruned:
        _collect_scans(sink, kept_by_scan)
    shared = {key: frozenset().union(*kept) for key, kept in kept_by_scan.items() if len(kept) > 1}
    return tuple(_prune_sink(s, shared) for s in sinks) if shared else pruned


def scan_key(scan: Scan) -> str:
    """Equal for scans that one reader can serve."""
    return repr((scan.path, sorted(scan.options.items())))


def _collect_scans(plan: Plan, found: dict[str, list[frozenset[int]]]) -> None:
    if isinstance(plan, Scan):
        found[scan_key(plan)].append(frozenset(plan.kept))
    for i in inputs_of(plan):
        _collect_scans(i, found)


def _prune_sink(sink: Plan, shared: dict[str, frozenset[int]]) -> Plan:
    (below,) = inputs_of(sink)
    every = frozenset(range(len(below.columns)))
    return with_inputs(sink, (_exactly(below, every, shared),))


def _exactly(plan: Plan, required: frozenset[int], shared: dict[str, frozenset[int]]) -> Plan:
    """The pruned plan with exactly the required columns, in their order."""
    pruned, mapping = _prune(plan, required, shared)
    wanted = tuple(mapping[i] for i in sorted(required))
    if wanted == tuple(range(len(pruned.columns))):
        return pruned
    projections = tuple(InputRef(i, pruned.columns[i].type) for i in wanted)
    return Calc(pruned, None, projections, tuple(plan.columns[i] for i in sorted(required)))


def _prune(plan: Plan, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    """The plan with at least the required columns, and where each of those went."""
    match plan:
        case Scan():
            return _prune_scan(plan, required, shared)
        case Values():
            return _prune_values(plan, required)
        case Calc():
            return _prune_calc(plan, required, shared)
        case WindowAggregate():
            return _prune_window_aggregate(plan, required, shared)
        case GroupAggregate():
            return _prune_group_aggregate(plan, required, shared)
        case WindowTableFunction():
            return _prune_window_function(plan, required, shared)
        case Expand():
            return _prune_expand(plan, required, shared)
        case ChangelogNormalize():
            own = frozenset(plan.keys) | (frozenset() if plan.delete_time is None else {plan.delete_time})
            below, mapping = _prune(plan.input, required | own, shared)
            time = None if plan.delete_time is None else mapping[plan.delete_time]
            return ChangelogNormalize(below, tuple(mapping[k] for k in plan.keys), below.columns, time), mapping
        case UnionAll():
            kept = sorted(required) or [0]
            inputs = tuple(_exactly(i, frozenset(kept), shared) for i in plan.inputs)
            return UnionAll(inputs, tuple(plan.columns[i] for i in kept)), _positions(kept)
        case Limit():
            below, mapping = _prune(plan.input, required, shared)
            return Limit(below, plan.count, plan.offset, below.columns), mapping
        case Unnest():
            return _prune_unnest(plan, required, shared)
        case LookupJoin():
            return _prune_lookup(plan, required, shared)
        case SetOperation():
            # Whole rows are compared.
            every = frozenset(range(len(plan.columns)))
            inputs = tuple(_exactly(i, every, shared) for i in inputs_of(plan))
            return with_inputs(plan, inputs), _positions(sorted(every))
        case Rank() | WindowRank() if plan.puts_out_rank and len(plan.input.columns) not in required:
            # Without its rank a row changes less often.
            unranked = msgspec.structs.replace(plan, puts_out_rank=False, columns=plan.columns[:-1])
            return _prune_passing(unranked, required, shared)
        case TableSink() | ResultSink():
            raise AssertionError(f"{type(plan).__name__} cannot stand below another node here")
        case _:
            return _prune_passing(plan, required, shared)


def _positions(kept: list[int]) -> _Mapping:
    return {old: new for new, old in enumerate(kept)}


def _prune_scan(scan: Scan, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    needed = {scan.kept[i] for i in required} | shared.get(scan_key(scan), frozenset())
    needed |= watermark_columns(scan.entry)
    key = scan.entry.primary_key
    if key is not None and scan.capabilities.source_changelog is not ChangelogMode.INSERT_ONLY:
        # Changes of one row are kept together, and in order, by it.
        needed |= {i for i, c in enumerate(scan.entry.columns) if c.name in key.columns}
    if not needed:
        needed.add(_cheapest_column(scan))
    kept = sorted(needed)
    columns = dict(zip(scan.kept, scan.columns, strict=True))
    pruned = msgspec.structs.replace(scan, kept=tuple(kept), columns=tuple(columns[i] for i in kept))
    return pruned, {old: kept.index(index) for old, index in enumerate(scan.kept) if index in needed}


def watermark_columns(entry: TableEntry) -> set[int]:
    """The table's columns that its event time needs, read or not."""
    if entry.watermark is None:
        return set()
    return {*input_indexes(entry.watermark.expression), [c.name for c in entry.columns].index(entry.watermark.column)}


def _cheapest_column(scan: Scan) -> int:
    """Rows must be counted even if nothing of them is read; a number is decoded fastest."""
    columns = {i: scan.entry.columns[i] for i in scan.kept}
    candidates = [i for i, c in columns.items() if isinstance(c, PhysicalColumn)]
    numbers = [i for i in candidates if columns[i].type.is_numeric]
    others = [i for i, c in columns.items() if not isinstance(c, ComputedColumn)]
    return next(iter([*numbers, *candidates, *others, *scan.kept]))


def _prune_values(values: Values, required: frozenset[int]) -> tuple[Plan, _Mapping]:
    kept = sorted(required) or [0]
    rows = tuple(tuple(row[i] for i in kept) for row in values.rows)
    return Values(rows, tuple(values.columns[i] for i in kept)), _positions(kept)


def _prune_calc(calc: Calc, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    kept = sorted(required) or [0]
    projections = [calc.projections[i] for i in kept]
    read: list[Expression] = [*projections, *([calc.condition] if calc.condition is not None else [])]
    below, mapping = _prune(calc.input, frozenset().union(*(input_indexes(e) for e in read)), shared)
    condition = shift_inputs(calc.condition, mapping) if calc.condition is not None else None
    pruned = Calc(
        below,
        condition,
        tuple(shift_inputs(p, mapping) for p in projections),
        tuple(calc.columns[i] for i in kept),
    )
    return pruned, _positions(kept)


def _prune_window_aggregate(
    node: WindowAggregate, required: frozenset[int], shared: dict[str, frozenset[int]]
) -> tuple[Plan, _Mapping]:
    """Keys stay (they make the groups); aggregates and window columns go if nobody reads them."""
    first_call = len(node.keys)
    first_property = first_call + len(node.aggregates)
    calls = [i for i in range(len(node.aggregates)) if first_call + i in required]
    properties = [i for i in range(len(node.properties)) if first_property + i in required]
    kept = [*range(first_call), *(first_call + i for i in calls), *(first_property + i for i in properties)]
    read = {*node.keys, *_read_by_calls(node.aggregates[i] for i in calls), *window_columns(node.window)}
    below, mapping = _prune(node.input, frozenset(read), shared)
    pruned = WindowAggregate(
        below,
        tuple(mapping[k] for k in node.keys),
        tuple(remapped_call(node.aggregates[i], mapping) for i in calls),
        remapped_window(node.window, mapping),
        tuple(node.properties[i] for i in properties),
        tuple(node.columns[i] for i in kept),
    )
    return pruned, _positions(kept)


def _prune_group_aggregate(
    node: GroupAggregate, required: frozenset[int], shared: dict[str, frozenset[int]]
) -> tuple[Plan, _Mapping]:
    """Keys stay; so does one aggregate where there are no keys: the one row must have a column."""
    if not node.keys and not node.aggregates:
        count = AggregateCall(AggregateFunction.COUNT_STAR, None, None, t.BIGINT.with_nullable(False))
        columns = (Column("COUNT(*)", count.type),)
        node = GroupAggregate(node.input, (), (count,), columns, node.state_ttl_ms)
    first_call = len(node.keys)
    calls = [i for i in range(len(node.aggregates)) if first_call + i in required]
    if not calls and not node.keys:
        counts = [i for i, c in enumerate(node.aggregates) if c.function is AggregateFunction.COUNT_STAR]
        calls = [next(iter([*counts, 0]))]
    kept = [*range(first_call), *(first_call + i for i in calls)]
    read = {*node.keys, *_read_by_calls(node.aggregates[i] for i in calls)}
    below, mapping = _prune(node.input, frozenset(read), shared)
    pruned = GroupAggregate(
        below,
        tuple(mapping[k] for k in node.keys),
        tuple(remapped_call(node.aggregates[i], mapping) for i in calls),
        tuple(node.columns[i] for i in kept),
        node.state_ttl_ms,
    )
    return pruned, _positions(kept)


def _prune_window_function(
    node: WindowTableFunction, required: frozenset[int], shared: dict[str, frozenset[int]]
) -> tuple[Plan, _Mapping]:
    """The three window columns stay; the input keeps what is read and the time column."""
    width = len(node.input.columns)
    passed = frozenset(i for i in required if i < width) | window_columns(node.window)
    below, mapping = _prune(node.input, passed, shared)
    by_position = {position: node.columns[old] for old, position in mapping.items()}
    columns = [by_position.get(i, c) for i, c in enumerate(below.columns)]
    for i in range(width, len(node.columns)):
        mapping[i] = len(below.columns) + i - width
    window = remapped_window(node.window, mapping)
    assert isinstance(window, Window)
    return WindowTableFunction(below, window, (*columns, *node.columns[width:])), mapping


def _prune_passing(plan: Passing, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    """A node that puts out its inputs' columns and keeps exactly what is needed of them, as it may keep all in state.
    What it appends to them stays."""
    inputs: list[Plan] = []
    mappings: list[_Mapping] = []
    kept: list[int] = []
    first = 0
    for below, own in zip(inputs_of(plan), read_columns(plan), strict=True):
        width = len(below.columns)
        is_put_out = first < len(plan.columns)
        # Of a side that is only looked at, equal rows are one.
        wanted = own | {i for i in range(width) if first + i in required} if is_put_out else own
        needed = sorted(wanted | _identifying(below, wanted) if is_put_out else wanted) or [0]
        inputs.append(_exactly(below, frozenset(needed), shared))
        mappings.append(_positions(needed))
        kept += [first + i for i in needed] if is_put_out else []
        first += width
    kept += range(first, len(plan.columns))
    columns = tuple(plan.columns[i] for i in kept)
    return moved(plan, tuple(inputs), tuple(mappings), columns), _positions(kept)


def _prune_unnest(node: Unnest, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    """The collection is read, but not put out once more per element where nobody asks for it."""
    width = len(node.input.columns)
    in_condition = input_indexes(node.condition) if node.condition is not None else frozenset()
    passed = {i for i in required | in_condition if i < width} | _identifying(node.input, required)
    kept = sorted(passed)
    below, mapping = _prune(node.input, frozenset({*kept, node.collection}), shared)
    old = [*kept, *range(width, len(node.columns))]
    positions = _positions(old)
    pruned = msgspec.structs.replace(
        node,
        input=below,
        collection=mapping[node.collection],
        columns=tuple(node.columns[i] for i in old),
        condition=shift_inputs(node.condition, positions) if node.condition is not None else None,
        kept=tuple(mapping[i] for i in kept),
    )
    return pruned, positions


def _prune_lookup(
    node: LookupJoin, required: frozenset[int], shared: dict[str, frozenset[int]]
) -> tuple[Plan, _Mapping]:
    """Only what is needed of the table is asked for; its keys are compared there."""
    width = len(node.input.columns)
    in_condition = input_indexes(node.condition) if node.condition is not None else frozenset()
    kept = sorted(i - width for i in required | in_condition if i >= width)
    positions = _positions([*range(width), *(width + i for i in kept)])
    table = msgspec.structs.replace(
        node.table,
        kept=tuple(node.table.kept[i] for i in kept),
        columns=tuple(node.table.columns[i] for i in kept),
    )
    narrow = msgspec.structs.replace(
        node,
        table=table,
        condition=shift_inputs(node.condition, positions) if node.condition is not None else None,
        columns=tuple(node.columns[i] for i in positions),
    )
    pruned, mapping = _prune_passing(narrow, frozenset(positions[i] for i in required), shared)
    return pruned, {i: mapping[positions[i]] for i in positions if positions[i] in mapping}


def _identifying(plan: Plan, needed: Iterable[int]) -> frozenset[int]:
    """The upsert key of rows that change, if it costs little beside what is needed anyway: a row that is taken back is
    found by it, else by its whole content."""
    properties = derive(plan)
    if properties.changelog.is_insert_only:
        return frozenset()
    added = [(len(key.difference(needed)), sorted(key)) for key in properties.upsert_keys]
    count, key = min(added, default=(0, []))
    return frozenset(key) if count <= _KEY_COLUMNS_ADDED_MAX else frozenset()


def _prune_expand(node: Expand, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    kept = sorted(required) or [0]
    projections = [[p[i] for i in kept] for p in node.projections]
    read = frozenset().union(*(input_indexes(e) for p in projections for e in p))
    below, mapping = _prune(node.input, read, shared)
    moved = tuple(tuple(shift_inputs(e, mapping) for e in p) for p in projections)
    return Expand(below, moved, tuple(node.columns[i] for i in kept)), _positions(kept)


def _read_by_calls(calls: Iterable[AggregateCall]) -> set[int]:
    return {index for call in calls for index in (call.argument, call.filter) if index is not None}


def window_columns(window: Window | AttachedWindow) -> frozenset[int]:
    """The input columns a window is read from."""
    index = window.end_index if isinstance(window, AttachedWindow) else window.time_index
    return frozenset() if index is None else frozenset({index})


def remapped_window(window: Window | AttachedWindow, mapping: _Mapping) -> Window | AttachedWindow:
    """The window over moved input columns."""
    if isinstance(window, AttachedWindow):
        return AttachedWindow(mapping[window.end_index], window.window)
    if window.time_index is None:
        return window
    return msgspec.structs.replace(window, time_index=mapping[window.time_index])


def remapped_call(call: AggregateCall, mapping: _Mapping) -> AggregateCall:
    """The call over moved input columns."""
    argument = mapping[call.argument] if call.argument is not None else None
    filter_ = mapping[call.filter] if call.filter is not None else None
    return msgspec.structs.replace(call, argument=argument, filter=filter_)
