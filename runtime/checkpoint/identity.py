"""What a checkpoint remembers of each operator so that a later job can say in words what has changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from planner.ir import operators as ir
from planner.ir.types import DataType

LOCATION_OPTIONS = ("connector", "topic", "topic-pattern", "path", "properties.bootstrap.servers")
"""Table options that say where outside the data is; none of them is a secret."""


class OperatorRecord(msgspec.Struct, frozen=True):
    """`layout` describes the operator's state for people; fingerprints decide. `location`: those of LOCATION_OPTIONS
    that the table of a source or sink has."""

    uid: str
    name: str
    layout: str = ""
    location: dict[str, str] = {}


def operator_record(operator: ir.Operator) -> OperatorRecord:
    table = operator.table if isinstance(operator, ir.Source | ir.Sink) else None
    location = location_options(table.options) if table is not None else {}
    return OperatorRecord(operator.uid, operator.name, _layout(operator), location)


def location_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that say where it is."""
    return {key: options[key] for key in LOCATION_OPTIONS if key in options}


def _layout(operator: ir.Operator) -> str:
    match operator:
        case ir.GlobalWindowAggregate(key_types=key_types, aggregates=aggregates, window=window):
            return ", ".join([*_aggregation(key_types, aggregates), _window(window), *_way(operator)])
        case ir.GroupAggregate(key_types=key_types, aggregates=aggregates):
            return ", ".join([*_aggregation(key_types, aggregates), *_way(operator)])
        case ir.ChangelogNormalize(keys=keys, output=output) | ir.SinkMaterializer(keys=keys, output=output):
            key_names = ", ".join(output.columns[key].name for key in keys)
            columns = ", ".join(f"{column.name} {column.type.sql()}" for column in output.columns)
            return f"rows ({columns}) by ({key_names})"
        case _:
            return ""


def _aggregation(key_types: tuple[DataType, ...], aggregates: tuple[ir.AggregateCall, ...]) -> list[str]:
    keys = f"keys ({', '.join(type_.sql() for type_ in key_types)})"
    return [keys, *(_call(call) for call in aggregates)]


def _way(operator: ir.GlobalWindowAggregate | ir.GroupAggregate) -> list[str]:
    """What else the columns of the state depend on."""
    changes = [] if operator.input_changelog is ir.ChangelogMode.INSERT_ONLY else ["over changes"]
    return [*changes, *(["in two phases"] if operator.from_partials else [])]


def _call(call: ir.AggregateCall) -> str:
    if call.function is ir.AggregateFunction.COUNT_STAR:
        return call.function.value + (" FILTER" if call.filter is not None else "")
    argument = "*" if call.argument_type is None else call.argument_type.sql()
    distinct = "DISTINCT " if call.distinct else ""
    filtered = " FILTER" if call.filter is not None else ""
    return f"{call.function.value}({distinct}{argument}){filtered}"


def _window(window: ir.Window) -> str:
    match window:
        case ir.TumbleWindow(size_ms=size_ms, offset_ms=offset_ms):
            return f"TUMBLE of {size_ms} ms{_offset(offset_ms)}"
        case ir.HopWindow(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms):
            return f"HOP of {size_ms} ms every {slide_ms} ms{_offset(offset_ms)}"
        case ir.CumulateWindow(size_ms=size_ms, step_ms=step_ms, offset_ms=offset_ms):
            return f"CUMULATE of {size_ms} ms by {step_ms} ms{_offset(offset_ms)}"
        case ir.AttachedWindow(window=aligned):
            return _window(aligned)


def _offset(offset_ms: int) -> str:
    return f" from {offset_ms} ms" if offset_ms else ""
