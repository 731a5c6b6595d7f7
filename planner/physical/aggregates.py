"""The two phases of an aggregate: when there are two, and what travels between them."""

from __future__ import annotations

from planner.ir import operators as ir
from planner.ir import types as t
from planner.logical.nodes import AttachedWindow, GroupAggregate, Window, WindowAggregate, WindowKind
from planner.settings import AggregatePhases, PlannerSettings

_COUNT = t.BIGINT.with_nullable(False)


def window_in_two_phases(plan: WindowAggregate, is_retracting: bool, settings: PlannerSettings) -> bool:
    """Processing time is read where rows are put into windows, so there it stays one phase."""
    window = plan.window.window if isinstance(plan.window, AttachedWindow) else plan.window
    is_possible = all(ir.is_mergeable(c, retracting=is_retracting) for c in plan.aggregates)
    is_possible = is_possible and not window.time_type.is_proctime
    return is_possible and settings.aggregate_phases is not AggregatePhases.ONE_PHASE


def group_in_two_phases(
    plan: GroupAggregate, emission: ir.Emission, is_retracting: bool, settings: PlannerSettings
) -> bool:
    """Answers to every single change cannot be given from partial aggregates of a batch, whatever the strategy says.
    Parallelism plays no part: the phases decide what the state looks like, and a rescale must find it again."""
    is_possible = all(ir.is_mergeable(c, retracting=is_retracting) for c in plan.aggregates)
    is_net = emission is ir.Emission.NET
    return is_net and is_possible and settings.aggregate_phases is not AggregatePhases.ONE_PHASE


def window_partials(plan: WindowAggregate, is_retracting: bool) -> ir.Schema:
    """What the local phase of a window aggregate sends: keys, window end, row count, over a retracting input the number
    of changes, accumulators."""
    columns = [ir.Column("$window_end", _COUNT), ir.Column("$row_count", _COUNT)]
    if is_retracting:
        columns.append(ir.Column("$change_count", _COUNT))
    return ir.Schema((*_key_columns(plan), *columns, *_accumulators(plan.aggregates, is_retracting)))


def group_partials(plan: GroupAggregate, is_retracting: bool) -> ir.Schema:
    """What the local phase of an unbounded aggregate sends: keys, signed row count, signed accumulators."""
    count = ir.Column("$row_count", _COUNT)
    return ir.Schema((*_key_columns(plan), count, *_accumulators(plan.aggregates, is_retracting)))


def _key_columns(plan: WindowAggregate | GroupAggregate) -> tuple[ir.Column, ...]:
    return tuple(ir.Column(plan.columns[i].name, type_) for i, type_ in enumerate(key_types(plan)))


def key_types(plan: WindowAggregate | GroupAggregate) -> tuple[t.DataType, ...]:
    return tuple(plan.input.columns[k].type for k in plan.keys)


def _accumulators(calls: tuple[ir.AggregateCall, ...], is_retracting: bool) -> tuple[ir.Column, ...]:
    columns: list[ir.Column] = []
    for i, call in enumerate(calls):
        types = ir.accumulator_types(call, retracting=is_retracting)
        columns += [ir.Column(f"$accumulator{i}_{j}", type_) for j, type_ in enumerate(types)]
    return tuple(columns)


def physical_window(window: Window | AttachedWindow, mapping: dict[int, int], time_zone: str) -> ir.Window:
    """The window of an operator whose input column for the plan's column i is `mapping[i]`."""
    if isinstance(window, AttachedWindow):
        return ir.AttachedWindow(mapping[window.end_index], _aligned(window.window, None, time_zone))
    time_index = mapping[window.time_index] if window.time_index is not None else None
    return _aligned(window, time_index, time_zone)


def aligned_window(window: Window, mapping: dict[int, int], time_zone: str) -> ir.AlignedWindow:
    """As `physical_window`, of a window table function."""
    return _aligned(window, mapping[window.time_index] if window.time_index is not None else None, time_zone)


def _aligned(window: Window, time_index: int | None, zone: str) -> ir.AlignedWindow:
    kind, size_ms, step_ms, offset_ms = window.kind, window.size_ms, window.step_ms, window.offset_ms
    match kind:
        case WindowKind.TUMBLE:
            return ir.TumbleWindow(time_index, window.time_type, size_ms, offset_ms, zone)
        case WindowKind.HOP:
            return ir.HopWindow(time_index, window.time_type, size_ms, step_ms, offset_ms, zone)
        case WindowKind.CUMULATE:
            return ir.CumulateWindow(time_index, window.time_type, size_ms, step_ms, offset_ms, zone)
