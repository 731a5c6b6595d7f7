"""The SQL type system: Flink's data types as plain frozen data, and their one mapping to Arrow.

Rules follow Flink's "Data Types" page: nullability is part of a type, CHAR/VARCHAR/BINARY/VARBINARY carry a
length, DECIMAL a precision and scale, TIME/TIMESTAMP/TIMESTAMP_LTZ a precision of 0..9 digits of a second.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
import pyarrow as pa

STRING_LENGTH = 2_147_483_647
"""Length that makes VARCHAR a STRING and VARBINARY a BYTES."""


class TypeRoot(StrEnum):
    """The kind of a type; values are the names the SQL Gateway uses on the wire."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME_WITHOUT_TIME_ZONE"
    TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
    TIMESTAMP_LTZ = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    INTERVAL_YEAR_MONTH = "INTERVAL_YEAR_MONTH"
    INTERVAL_DAY_TIME = "INTERVAL_DAY_TIME"
    ARRAY = "ARRAY"
    MULTISET = "MULTISET"
    MAP = "MAP"
    ROW = "ROW"


class TimeAttribute(StrEnum):
    """Marks a column as a time attribute: event time (set by WATERMARK) or processing time (PROCTIME())."""

    ROWTIME = "ROWTIME"
    PROCTIME = "PROCTIME"


class ChangelogMode(StrEnum):
    """Kinds of change a stream may carry. INSERT_ONLY streams have no row kinds. UPSERT: +I, +U and -D under a known
    key, no -U, and a -D may be filled in its key columns only. RETRACT: all four kinds, each with the full row."""

    INSERT_ONLY = "insert-only"
    UPSERT = "upsert"
    RETRACT = "retract"


class Field(msgspec.Struct, frozen=True):
    """A named member of a ROW type or a column of a schema."""

    name: str
    type: DataType
    description: str | None = None


class DataType(msgspec.Struct, frozen=True, omit_defaults=True):
    """One SQL type.

    `length` belongs to CHAR/VARCHAR/BINARY/VARBINARY; `precision` to DECIMAL, TIME, TIMESTAMP and TIMESTAMP_LTZ
    (digits of a second); `scale` to DECIMAL; `element` to ARRAY and MULTISET, and is the value type of a MAP;
    `key` to MAP; `fields` to ROW. `time_attribute` is a mark, not part of type equality in SQL.
    """

    root: TypeRoot
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    key: DataType | None = None
    fields: tuple[Field, ...] = ()
    time_attribute: TimeAttribute | None = None

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type with the given nullability."""
        return self if self.nullable == nullable else msgspec.structs.replace(self, nullable=nullable)

    def with_time_attribute(self, attribute: TimeAttribute | None) -> DataType:
        """The same type with the given time-attribute mark."""
        if self.time_attribute == attribute:
            return self
        return msgspec.structs.replace(self, time_attribute=attribute)

    @property
    def is_rowtime(self) -> bool:
        return self.time_attribute is TimeAttribute.ROWTIME

    @property
    def is_proctime(self) -> bool:
        return self.time_attribute is TimeAttribute.PROCTIME

    @property
    def is_numeric(self) -> bool:
        return self.root in NUMERIC_ROOTS

    @property
    def is_integer(self) -> bool:
        return self.root in INTEGER_BITS

    @property
    def is_character(self) -> bool:
        return self.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)

    @property
    def is_binary(self) -> bool:
        return self.root in (TypeRoot.BINARY, TypeRoot.VARBINARY)

    @property
    def is_timestamp(self) -> bool:
        return self.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

    def summary(self) -> str:
        """The type as Flink prints it in DESCRIBE and error messages, e.g. `DECIMAL(10, 2) NOT NULL`."""
        text = _summary_without_nullability(self)
        if self.time_attribute is not None:
            text += f" *{self.time_attribute.value}*"
        return text if self.nullable else text + " NOT NULL"

    def sql(self) -> str:
        """The type as SQL text without the time-attribute mark, e.g. `TIMESTAMP(3) NOT NULL`."""
        return self.with_time_attribute(None).summary()

    def __str__(self) -> str:
        return self.summary()


INTEGER_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INTEGER: 32, TypeRoot.BIGINT: 64}
NUMERIC_ROOTS = frozenset({*INTEGER_BITS, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL})


def _summary_without_nullability(t: DataType) -> str:
    match t.root:
        case TypeRoot.CHAR | TypeRoot.BINARY:
            return f"{t.root.value}({t.length})"
        case TypeRoot.VARCHAR:
            return "STRING" if t.length == STRING_LENGTH else f"VARCHAR({t.length})"
        case TypeRoot.VARBINARY:
            return "BYTES" if t.length == STRING_LENGTH else f"VARBINARY({t.length})"
        case TypeRoot.DECIMAL:
            return f"DECIMAL({t.precision}, {t.scale})"
        case TypeRoot.INTEGER:
            return "INT"
        case TypeRoot.TIME:
            return f"TIME({t.precision})"
        case TypeRoot.TIMESTAMP:
            return f"TIMESTAMP({t.precision})"
        case TypeRoot.TIMESTAMP_LTZ:
            return f"TIMESTAMP_LTZ({t.precision})"
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return "INTERVAL YEAR TO MONTH"
        case TypeRoot.INTERVAL_DAY_TIME:
            return "INTERVAL DAY TO SECOND(3)"
        case TypeRoot.ARRAY | TypeRoot.MULTISET:
            assert t.element is not None
            return f"{t.root.value}<{t.element.summary()}>"
        case TypeRoot.MAP:
            assert t.key is not None
            assert t.element is not None
            return f"MAP<{t.key.summary()}, {t.element.summary()}>"
        case TypeRoot.ROW:
            return "ROW<" + ", ".join(f"`{f.name}` {f.type.summary()}" for f in t.fields) + ">"
        case _:
            return t.root.value


NULL = DataType(TypeRoot.NULL)
BOOLEAN = DataType(TypeRoot.BOOLEAN)
TINYINT = DataType(TypeRoot.TINYINT)
SMALLINT = DataType(TypeRoot.SMALLINT)
INT = DataType(TypeRoot.INTEGER)
BIGINT = DataType(TypeRoot.BIGINT)
FLOAT = DataType(TypeRoot.FLOAT)
DOUBLE = DataType(TypeRoot.DOUBLE)
STRING = DataType(TypeRoot.VARCHAR, length=STRING_LENGTH)
BYTES = DataType(TypeRoot.VARBINARY, length=STRING_LENGTH)
DATE = DataType(TypeRoot.DATE)
INTERVAL_YEAR_MONTH = DataType(TypeRoot.INTERVAL_YEAR_MONTH)
INTERVAL_DAY_TIME = DataType(TypeRoot.INTERVAL_DAY_TIME)


def char(length: int) -> DataType:
    return DataType(TypeRoot.CHAR, length=length)


def varchar(length: int) -> DataType:
    return DataType(TypeRoot.VARCHAR, length=length)


def binary(length: int) -> DataType:
    return DataType(TypeRoot.BINARY, length=length)


def varbinary(length: int) -> DataType:
    return DataType(TypeRoot.VARBINARY, length=length)


def decimal(precision: int, scale: int) -> DataType:
    return DataType(TypeRoot.DECIMAL, precision=precision, scale=scale)


def time(precision: int = 0) -> DataType:
    return DataType(TypeRoot.TIME, precision=precision)


def timestamp(precision: int = 6) -> DataType:
    return DataType(TypeRoot.TIMESTAMP, precision=precision)


def timestamp_ltz(precision: int = 6) -> DataType:
    return DataType(TypeRoot.TIMESTAMP_LTZ, precision=precision)


def array(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


def multiset(element: DataType) -> DataType:
    return DataType(TypeRoot.MULTISET, element=element)


def map_of(key: DataType, value: DataType) -> DataType:
    return DataType(TypeRoot.MAP, key=key, element=value)


def row(*fields: tuple[str, DataType]) -> DataType:
    return DataType(TypeRoot.ROW, fields=tuple(Field(name, t) for name, t in fields))


def second_fraction_unit(precision: int) -> str:
    """Arrow time unit that holds `precision` digits of a second: ms up to 3, us up to 6, ns above."""
    if precision <= 3:
        return "ms"
    return "us" if precision <= 6 else "ns"


_PLAIN_ARROW: dict[TypeRoot, pa.DataType] = {
    TypeRoot.NULL: pa.null(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INTEGER: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
    TypeRoot.INTERVAL_YEAR_MONTH: pa.int32(),
    TypeRoot.INTERVAL_DAY_TIME: pa.int64(),
}


def to_arrow(t: DataType) -> pa.DataType:
    """The Arrow type that carries `t`.

    TIMESTAMP(p) is `timestamp[ms|us|ns]` without zone, TIMESTAMP_LTZ(p) the same with zone UTC (an instant); TIME is
    `time32[ms]` (precision above 3 is refused by the planner); intervals are plain integers: months (int32) and
    milliseconds (int64). ROW keeps its field names; MULTISET is a map of element to int32 count.
    """
    plain = _PLAIN_ARROW.get(t.root)
    if plain is not None:
        return plain
    match t.root:
        case TypeRoot.DECIMAL:
            assert t.precision is not None
            return pa.decimal128(t.precision, t.scale or 0)
        case TypeRoot.TIMESTAMP:
            return pa.timestamp(second_fraction_unit(t.precision if t.precision is not None else 6))  # type: ignore[call-overload,no-any-return]
        case TypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp(second_fraction_unit(t.precision if t.precision is not None else 6), "UTC")  # type: ignore[call-overload,no-any-return]
        case TypeRoot.ARRAY:
            assert t.element is not None
            return pa.list_(to_arrow(t.element))
        case TypeRoot.MULTISET:
            assert t.element is not None
            return pa.map_(to_arrow(t.element), pa.int32())
        case TypeRoot.MAP:
            assert t.key is not None
            assert t.element is not None
            return pa.map_(to_arrow(t.key), to_arrow(t.element))
        case TypeRoot.ROW:
            return pa.struct([pa.field(f.name, to_arrow(f.type), f.type.nullable) for f in t.fields])
        case _:
            raise AssertionError(f"no Arrow type for {t.root}")


def arrow_schema(types: tuple[DataType, ...]) -> pa.Schema:
    """Schema of a batch whose columns have these types; columns are named by position: c0, c1, …"""
    return pa.schema([pa.field(f"c{i}", to_arrow(t)) for i, t in enumerate(types)])
