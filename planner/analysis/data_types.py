"""From type syntax to `DataType`, with Flink's defaults and bounds."""

from __future__ import annotations

from planner.errors import SqlError, SqlState, not_supported
from planner.ir import types as t
from planner.ir.types import DataType
from planner.sql.nodes import TypeNode, span_of

_PLAIN: dict[str, DataType] = {
    "BOOLEAN": t.BOOLEAN,
    "TINYINT": t.TINYINT,
    "SMALLINT": t.SMALLINT,
    "INT": t.INT,
    "BIGINT": t.BIGINT,
    "FLOAT": t.FLOAT,
    "DOUBLE": t.DOUBLE,
    "STRING": t.STRING,
    "BYTES": t.BYTES,
    "DATE": t.DATE,
}
_TIME_PRECISION_MAX = 3


def bind_type(node: TypeNode) -> DataType:
    """The type a `TypeNode` spells; nullable unless it says NOT NULL."""
    type_ = _without_nullability(node)
    return type_.with_nullable(node.args.get("nullable") is not False)


def _without_nullability(node: TypeNode) -> DataType:
    name: str = node.args["name"]
    parameters: list[int] = node.args.get("parameters") or []
    children = [bind_type(child) for child in node.args.get("children") or []]
    if name in _PLAIN:
        return _PLAIN[name]
    match name:
        case "DECIMAL":
            return _decimal(node, parameters)
        case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
            length = _bounded(node, parameters, 1, 1, t.STRING_LENGTH, "length")
            make = {"CHAR": t.char, "VARCHAR": t.varchar, "BINARY": t.binary, "VARBINARY": t.varbinary}
            return make[name](length)
        case "TIME":
            precision = _bounded(node, parameters, 0, 0, 9, "precision")
            if precision > _TIME_PRECISION_MAX:
                raise not_supported(
                    f"TIME({precision})", span_of(node), hint=f"Use TIME({_TIME_PRECISION_MAX}) or less."
                )
            return t.time(precision)
        case "TIMESTAMP":
            return t.timestamp(_bounded(node, parameters, 6, 0, 9, "precision"))
        case "TIMESTAMP_LTZ":
            return t.timestamp_ltz(_bounded(node, parameters, 6, 0, 9, "precision"))
        case "ARRAY":
            return t.array(children[0])
        case "MULTISET":
            return t.multiset(children[0])
        case "MAP":
            return t.map_of(children[0], children[1])
        case "ROW":
            return _row(node, children)
        case _:
            raise not_supported(f"the data type {name} here", span_of(node))


def _decimal(node: TypeNode, parameters: list[int]) -> DataType:
    precision = _bounded(node, parameters[:1], 10, 1, 38, "precision")
    scale = parameters[1] if len(parameters) > 1 else 0
    if scale > precision:
        message = f"the scale {scale} of a DECIMAL is above its precision {precision}"
        raise SqlError(SqlState.INVALID_PARAMETER, message, span=span_of(node))
    return t.decimal(precision, scale)


def _row(node: TypeNode, children: list[DataType]) -> DataType:
    names = [identifier.this for identifier in node.args.get("field_names") or []]
    for i, name in enumerate(names):
        if name in names[:i]:
            span = span_of(node.args["field_names"][i])
            raise SqlError(SqlState.DUPLICATE_COLUMN, f"the field `{name}` is declared twice", span=span)
    return t.row(*zip(names, children, strict=True))


def _bounded(node: TypeNode, parameters: list[int], default: int, minimum: int, maximum: int, what: str) -> int:
    value = parameters[0] if parameters else default
    if not minimum <= value <= maximum:
        message = f"the {what} of {node.args['name']} lies between {minimum} and {maximum}, not {value}"
        raise SqlError(SqlState.INVALID_PARAMETER, message, span=span_of(node))
    return value
