"""What a checkpoint remembers of each operator so that a later job can say in words what has changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from planner.ir import operators as ir

LOCATION_OPTIONS = ("connector", "topic", "topic-pattern", "path", "properties.bootstrap.servers")
"""Table options that say where outside the data is; none of them is a secret."""


class OperatorRecord(msgspec.Struct, frozen=True):
    """`location`: those of LOCATION_OPTIONS that the table of a source or sink has."""

    uid: str
    name: str
    location: dict[str, str] = {}


def operator_record(operator: ir.Operator) -> OperatorRecord:
    table = operator.table if isinstance(operator, ir.Source | ir.Sink) else None
    location = location_options(table.options) if table is not None else {}
    return OperatorRecord(operator.uid, operator.name, location)


def location_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that say where it is."""
    return {key: options[key] for key in LOCATION_OPTIONS if key in options}
