"""Columns nobody reads are dropped, down to the sources: a scan decodes only what it must.

A source keeps its time column and what the watermark is computed from, read or not. Scans of one table with equal
options keep the same columns when sources are reused, so that one reader can serve them all.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from planner.catalog import ComputedColumn, PhysicalColumn
from planner.ir.expressions import Expression, InputRef, input_indexes, shift_inputs
from planner.ir.operators import AggregateCall
from planner.logical.nodes import (
    Calc,
    Limit,
    Plan,
    Scan,
    UnionAll,
    Values,
    WindowAggregate,
    inputs_of,
    with_inputs,
)

_Mapping = dict[int, int]


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
            return _prune_aggregate(plan, required, shared)
        case UnionAll():
            kept = sorted(required) or [0]
            inputs = tuple(_exactly(i, frozenset(kept), shared) for i in plan.inputs)
            return UnionAll(inputs, tuple(plan.columns[i] for i in kept)), _positions(kept)
        case Limit():
            below, mapping = _prune(plan.input, required, shared)
            return Limit(below, plan.count, plan.offset, below.columns), mapping
        case _:
            raise AssertionError(f"{type(plan).__name__} cannot stand below another node here")


def _positions(kept: list[int]) -> _Mapping:
    return {old: new for new, old in enumerate(kept)}


def _prune_scan(scan: Scan, required: frozenset[int], shared: dict[str, frozenset[int]]) -> tuple[Plan, _Mapping]:
    needed = set(required) | shared.get(scan_key(scan), frozenset())
    watermark = scan.entry.watermark
    if watermark is not None:
        needed |= input_indexes(watermark.expression)
        needed.add([c.name for c in scan.entry.columns].index(watermark.column))
    if not needed:
        needed.add(_cheapest_column(scan))
    kept = sorted(needed)
    columns = tuple(scan.columns[i] for i in kept)
    return msgspec.structs.replace(scan, kept=tuple(kept), columns=columns), _positions(kept)


def _cheapest_column(scan: Scan) -> int:
    """Rows must be counted even if nothing of them is read; a number is decoded fastest."""
    candidates = [i for i, c in enumerate(scan.entry.columns) if isinstance(c, PhysicalColumn)]
    numbers = [i for i in candidates if scan.entry.columns[i].type.is_numeric]
    others = [i for i, c in enumerate(scan.entry.columns) if not isinstance(c, ComputedColumn)]
    return next(iter([*numbers, *candidates, *others, 0]))


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


def _prune_aggregate(
    node: WindowAggregate, required: frozenset[int], shared: dict[str, frozenset[int]]
) -> tuple[Plan, _Mapping]:
    """Keys stay (they make the groups); aggregates and window columns go if nobody reads them."""
    first_call = len(node.keys)
    first_property = first_call + len(node.aggregates)
    calls = [i for i in range(len(node.aggregates)) if first_call + i in required]
    properties = [i for i in range(len(node.properties)) if first_property + i in required]
    kept = [*range(first_call), *(first_call + i for i in calls), *(first_property + i for i in properties)]
    read = {*node.keys, node.window.time_index}
    for i in calls:
        call = node.aggregates[i]
        read |= {index for index in (call.argument, call.filter) if index is not None}
    below, mapping = _prune(node.input, frozenset(read), shared)
    pruned = WindowAggregate(
        below,
        tuple(mapping[k] for k in node.keys),
        tuple(remapped_call(node.aggregates[i], mapping) for i in calls),
        msgspec.structs.replace(node.window, time_index=mapping[node.window.time_index]),
        tuple(node.properties[i] for i in properties),
        tuple(node.columns[i] for i in kept),
    )
    return pruned, _positions(kept)


def remapped_call(call: AggregateCall, mapping: _Mapping) -> AggregateCall:
    """The call over moved input columns."""
    argument = mapping[call.argument] if call.argument is not None else None
    filter_ = mapping[call.filter] if call.filter is not None else None
    return msgspec.structs.replace(call, argument=argument, filter=filter_)
