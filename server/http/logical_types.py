"""The `logicalType` object of a result column, as Flink's SQL gateway writes it."""

from __future__ import annotations

from typing import Any

from planner.ir.operators import Schema
from planner.ir.types import DataType, TypeRoot

_WITH_LENGTH = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_WITH_PRECISION = frozenset({TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


def logical_type(t: DataType) -> dict[str, Any]:
    """`t` as the wire has it; field order is part of the recorded shape."""
    if t.root is TypeRoot.NULL:
        return {"type": "NULL"}
    encoded: dict[str, Any] = {"type": t.root.value, "nullable": t.nullable}
    match t.root:
        case root if root in _WITH_LENGTH:
            encoded["length"] = t.length
        case root if root in _WITH_PRECISION:
            encoded["precision"] = t.precision
        case TypeRoot.DECIMAL:
            encoded["precision"] = t.precision
            encoded["scale"] = t.scale
        case TypeRoot.INTERVAL_YEAR_MONTH:
            encoded["precision"] = 2
            encoded["resolution"] = "MONTH"
        case TypeRoot.INTERVAL_DAY_TIME:
            encoded["precision"] = 2
            encoded["fractionalPrecision"] = 3
            encoded["resolution"] = "SECOND"
        case TypeRoot.ARRAY | TypeRoot.MULTISET:
            assert t.element is not None
            encoded["elementType"] = logical_type(t.element)
        case TypeRoot.MAP:
            assert t.key is not None
            assert t.element is not None
            encoded["keyType"] = logical_type(t.key)
            encoded["valueType"] = logical_type(t.element)
        case TypeRoot.ROW:
            encoded["fields"] = [_row_field(f.name, f.type, f.description) for f in t.fields]
        case _:
            pass
    return encoded


def _row_field(name: str, t: DataType, description: str | None) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "fieldType": logical_type(t)}
    if description is not None:
        field["description"] = description
    return field


def columns(schema: Schema) -> list[dict[str, Any]]:
    """The `columns` of a result."""
    return [{"name": c.name, "logicalType": logical_type(c.type), "comment": None} for c in schema.columns]
