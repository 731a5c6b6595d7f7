"""Types of PostgreSQL for columns as Flink's dialect has them, and values on their way in and out.

| declared | columns of |
|---|---|
| SMALLINT, TINYINT | smallint |
| INT | integer, smallint |
| BIGINT | bigint, integer, smallint |
| FLOAT; DOUBLE | real; double precision, real |
| DECIMAL(p, s) | numeric, whole numbers |
| CHAR, VARCHAR, STRING | text, character varying, character, name, uuid, json, jsonb, enums |
| BOOLEAN; BYTES; DATE; TIME | boolean; bytea; date; time |
| TIMESTAMP; TIMESTAMP_LTZ | timestamp; timestamp with time zone |
| ARRAY<t> | arrays of these |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from connectors.arrow import Array, pc
from connectors.errors import ConnectorError, ErrorDomain, OptionError
from planner.ir.types import DataType, Field, TypeRoot, to_arrow

_WHOLE = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying", "character", "name", "uuid", "json", "jsonb", "enum")
_NO_EQUALITY = ("json", "jsonb", "xml")
_ACCEPTED: dict[TypeRoot, tuple[str, tuple[str, ...]]] = {
    TypeRoot.BOOLEAN: ("boolean", ("boolean",)),
    TypeRoot.TINYINT: ("smallint", _WHOLE[:1]),
    TypeRoot.SMALLINT: ("smallint", _WHOLE[:1]),
    TypeRoot.INTEGER: ("integer", _WHOLE[:2]),
    TypeRoot.BIGINT: ("bigint", _WHOLE),
    TypeRoot.FLOAT: ("real", ("real",)),
    TypeRoot.DOUBLE: ("double precision", ("double precision", "real")),
    TypeRoot.DECIMAL: ("numeric", ("numeric", *_WHOLE)),
    TypeRoot.CHAR: ("text", _TEXTS),
    TypeRoot.VARCHAR: ("text", _TEXTS),
    TypeRoot.BINARY: ("bytea", ("bytea",)),
    TypeRoot.VARBINARY: ("bytea", ("bytea",)),
    TypeRoot.DATE: ("date", ("date",)),
    TypeRoot.TIME: ("time", ("time without time zone",)),
    TypeRoot.TIMESTAMP: ("timestamp", ("timestamp without time zone",)),
    TypeRoot.TIMESTAMP_LTZ: ("timestamptz", ("timestamp with time zone",)),
}
"""What a value is cast to in the database, and the types of columns that it may come from."""
_UNQUOTED = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean"})


def check_type(name: str, type_: DataType) -> None:
    """Raises OptionError for a column that no column of the database can be."""
    inner = type_.element if type_.root is TypeRoot.ARRAY else type_
    if inner is None or inner.root not in _ACCEPTED:
        raise OptionError(
            f"the column `{name}` is {type_.with_nullable(True).sql()}, which the jdbc connector has no type for",
            hint="Leave the column out, or read JSON as STRING.",
        )


def check_column(name: str, type_: DataType, actual: str, table: str) -> None:
    """`actual` is the type of the column in the database, `enum` of an enumeration. Raises ConnectorError."""
    inner, found = type_, actual
    if type_.root is TypeRoot.ARRAY:
        assert type_.element is not None
        inner, found = type_.element, actual.removesuffix("[]")
    accepted = _ACCEPTED[inner.root][1]
    if found not in accepted or (found != actual) is not (type_.root is TypeRoot.ARRAY):
        suffix = "[]" if type_.root is TypeRoot.ARRAY else ""
        raise ConnectorError(
            f"the column `{name}` of {table} is {actual}, and declared as {type_.with_nullable(True).sql()}",
            domain=ErrorDomain.USER,
            retry=False,
            hint=f"{type_.with_nullable(True).sql()} is for columns of {' or '.join(a + suffix for a in accepted)}.",
        )


def selected(column: str, type_: DataType) -> str:
    """A column, given as SQL, in the form that is read."""
    if type_.root is TypeRoot.ARRAY:
        assert type_.element is not None
        return f"{column}::{_cast(type_.element)}[]"
    return f"{column}::{_cast(type_)}"


def _cast(type_: DataType) -> str:
    if type_.root is TypeRoot.DECIMAL:
        return f"numeric({type_.precision}, {type_.scale})"
    return _ACCEPTED[type_.root][0]


def key_type(name: str, type_: DataType, actual: str, table: str) -> str:
    """The database's type of the values that are compared with a column: its index must be of use. Raises
    ConnectorError for a column that cannot be a key."""
    is_text = type_.is_character
    if type_.root is TypeRoot.ARRAY or type_.is_binary or actual in _NO_EQUALITY:
        raise ConnectorError(
            f"the column `{name}` of {table} is {actual}, by which rows cannot be looked up",
            domain=ErrorDomain.USER,
            retry=False,
            hint="Compare another column in ON, or keep this one out of equalities (such as CAST(…) = …).",
        )
    return "text" if is_text and actual == "enum" else actual if is_text else _ACCEPTED[type_.root][0]


def array_text(values: Array, element: str) -> str:
    """Values without NULL as the text of an array in the database."""
    texts = values.cast(pa.string())
    if element not in _UNQUOTED:
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        texts = pc.binary_join_element_wise('"', escaped, '"', "")
    offsets: Any = pa.array([0, len(texts)], pa.int32())
    whole: Any = pa.ListArray.from_arrays(offsets, texts)
    return "{" + str(pc.binary_join(whole, ",")[0].as_py()) + "}"


def columns_of(values: Sequence[Sequence[Any]], fields: Sequence[Field]) -> list[Array]:
    """Columns of values (none at all: no rows). Raises ConnectorError for a value that the declared type has not."""
    found: list[Array] = []
    for column, field in zip(values or [()] * len(fields), fields, strict=True):
        name, type_ = field.name, field.type
        try:
            found.append(pa.array(column, to_arrow(type_)))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as problem:
            raise ConnectorError(
                f"a value of the column `{name}` is no {type_.with_nullable(True).sql()}: {problem}",
                domain=ErrorDomain.USER,
                retry=False,
            ) from problem
    return found
