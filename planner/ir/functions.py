"""The function registry: one row per function and kind of argument types. Pure data, shared by planner and runtime.

The planner picks the row by SQL name and argument types and derives the result type by the row's `result` rule; the
runtime finds the kernel by the row's `id`. A test checks that both sides are total over this table. Semantics are
those of Apache Flink's "System (Built-in) Functions" page; each row is backed by answers recorded from Flink.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.types import DataType, TypeRoot


class Family(StrEnum):
    """Groups of argument types a row accepts."""

    ANY = "any"
    BOOLEAN = "boolean"
    NUMERIC = "numeric"
    INTEGER = "integer"
    CHARACTER = "character"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    """TIMESTAMP or TIMESTAMP_LTZ."""
    DATETIME = "datetime"
    """DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ."""
    INTERVAL = "interval"
    ARRAY = "array"
    MAP = "map"
    ROW = "row"
    COMPARABLE = "comparable"
    """Anything that can be ordered after coercion to the common type."""


class Result(StrEnum):
    """How the result type follows from the argument types (nullability is apart)."""

    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    CHAR_36 = "char-36"
    TIMESTAMP_3 = "timestamp-3"
    TIMESTAMP_LTZ_3 = "timestamp-ltz-3"
    PROCTIME = "proctime"
    FIRST = "first"
    """The first argument's type."""
    SECOND = "second"
    COMMON = "common"
    """The least common type of all arguments (all are cast to it)."""
    ARITHMETIC = "arithmetic"
    """Flink's rule for the operator on numbers: common type, or the DECIMAL precision rules."""
    VARCHAR_OF_FIRST = "varchar-of-first"
    """VARCHAR of the first argument's length when that is CHAR or VARCHAR, else STRING."""
    CONCAT = "concat"
    """Sum of the lengths, capped at STRING."""
    ROUND = "round"
    """DECIMAL: precision and scale after rounding; otherwise the first argument's type."""
    INTERVAL = "interval"
    SPECIAL = "special"
    """The binder has a rule of its own (CASE, CAST, ITEM, FIELD, constructors, JSON_VALUE, TO_TIMESTAMP_LTZ, …)."""


class Nullability(StrEnum):
    ANY_ARGUMENT = "any-argument"
    """NULL if any argument is NULL (nullable if any argument is)."""
    ALWAYS = "always"
    """May be NULL whatever the arguments."""
    NEVER = "never"
    ALL_ARGUMENTS = "all-arguments"
    """Nullable only if every argument is (COALESCE)."""
    SPECIAL = "special"


class Road(StrEnum):
    """Which engine evaluates the row."""

    ARROW = "arrow"
    DUCKDB = "duckdb"
    DICTIONARY = "dictionary"
    """Dictionary-encode, one Python call per distinct value, take."""


class FunctionRow(msgspec.Struct, frozen=True):
    """One overload. `arguments` are families by position; the last repeats when `variadic`; `optional` counts how
    many trailing ones may be missing. `can_raise`: evaluation of a row may fail, so it needs a guard."""

    id: str
    name: str
    arguments: tuple[Family, ...]
    result: Result
    nullability: Nullability = Nullability.ANY_ARGUMENT
    optional: int = 0
    variadic: bool = False
    can_raise: bool = False
    deterministic: bool = True
    road: Road = Road.ARROW
    lazy: bool = False
    """Arguments after the first are evaluated only where needed (CASE, COALESCE, IF, AND, OR)."""


_A, _B, _N, _I, _C = Family.ANY, Family.BOOLEAN, Family.NUMERIC, Family.INTEGER, Family.CHARACTER
_TS, _DT, _IV, _CMP = Family.TIMESTAMP, Family.DATETIME, Family.INTERVAL, Family.COMPARABLE
_ALWAYS, _NEVER, _SPECIAL = Nullability.ALWAYS, Nullability.NEVER, Nullability.SPECIAL


def _row(
    id: str,
    name: str,
    arguments: tuple[Family, ...],
    result: Result,
    nullability: Nullability = Nullability.ANY_ARGUMENT,
    **flags: object,
) -> FunctionRow:
    return FunctionRow(id, name, arguments, result, nullability, **flags)  # type: ignore[arg-type]


OPERATORS = (
    _row("PLUS", "+", (_N, _N), Result.ARITHMETIC),
    _row("MINUS", "-", (_N, _N), Result.ARITHMETIC),
    _row("TIMES", "*", (_N, _N), Result.ARITHMETIC),
    _row("DIVIDE", "/", (_N, _N), Result.ARITHMETIC, can_raise=True),
    _row("MODULO", "%", (_N, _N), Result.ARITHMETIC, can_raise=True),
    _row("NEGATE", "-", (_N,), Result.FIRST),
    _row("NEGATE_INTERVAL", "-", (_IV,), Result.FIRST),
    _row("PLUS_INTERVAL", "+", (_DT, _IV), Result.FIRST),
    _row("INTERVAL_PLUS", "+", (_IV, _DT), Result.SECOND),
    _row("MINUS_INTERVAL", "-", (_DT, _IV), Result.FIRST),
    _row("ADD_INTERVALS", "+", (_IV, _IV), Result.FIRST),
    _row("SUBTRACT_INTERVALS", "-", (_IV, _IV), Result.FIRST),
    _row("INTERVAL_TIMES", "*", (_IV, _N), Result.FIRST),
    _row("EQ", "=", (_A, _A), Result.BOOLEAN),
    _row("NEQ", "<>", (_A, _A), Result.BOOLEAN),
    _row("LT", "<", (_CMP, _CMP), Result.BOOLEAN),
    _row("LTE", "<=", (_CMP, _CMP), Result.BOOLEAN),
    _row("GT", ">", (_CMP, _CMP), Result.BOOLEAN),
    _row("GTE", ">=", (_CMP, _CMP), Result.BOOLEAN),
    _row("AND", "AND", (_B, _B), Result.BOOLEAN, variadic=True, lazy=True),
    _row("OR", "OR", (_B, _B), Result.BOOLEAN, variadic=True, lazy=True),
    _row("NOT", "NOT", (_B,), Result.BOOLEAN),
    _row("IS_NULL", "IS NULL", (_A,), Result.BOOLEAN, _NEVER),
    _row("IS_NOT_NULL", "IS NOT NULL", (_A,), Result.BOOLEAN, _NEVER),
    _row("IS_TRUE", "IS TRUE", (_B,), Result.BOOLEAN, _NEVER),
    _row("IS_NOT_TRUE", "IS NOT TRUE", (_B,), Result.BOOLEAN, _NEVER),
    _row("IS_FALSE", "IS FALSE", (_B,), Result.BOOLEAN, _NEVER),
    _row("IS_NOT_FALSE", "IS NOT FALSE", (_B,), Result.BOOLEAN, _NEVER),
    _row("IS_DISTINCT_FROM", "IS DISTINCT FROM", (_A, _A), Result.BOOLEAN, _NEVER),
    _row("IS_NOT_DISTINCT_FROM", "IS NOT DISTINCT FROM", (_A, _A), Result.BOOLEAN, _NEVER),
    # IN has the tested value first, then the list; NOT IN is NOT(IN).
    _row("IN", "IN", (_A, _A), Result.BOOLEAN, variadic=True),
    _row("LIKE", "LIKE", (_C, _C, _C), Result.BOOLEAN, optional=1, can_raise=True),
    _row("CONCAT_OPERATOR", "||", (_C, _C), Result.CONCAT),
    # CASE is (condition, value, condition, value, …, else); a simple CASE is rewritten to this form.
    _row("CASE", "CASE", (_A,), Result.SPECIAL, _SPECIAL, variadic=True, lazy=True),
    # The target type is the call's own type; LTZ casts use the session zone. A cast between types that cannot fail
    # carries the same row: the compiler asks `cast_can_raise`.
    _row("CAST", "CAST", (_A,), Result.SPECIAL, _SPECIAL, can_raise=True),
    _row("TRY_CAST", "TRY_CAST", (_A,), Result.SPECIAL, _ALWAYS),
    # ROW field access: (row, literal field index).
    _row("FIELD", ".", (Family.ROW, _I), Result.SPECIAL, _SPECIAL),
    _row("ITEM_ARRAY", "ITEM", (Family.ARRAY, _I), Result.SPECIAL, _ALWAYS, can_raise=True),
    _row("ITEM_MAP", "ITEM", (Family.MAP, _A), Result.SPECIAL, _ALWAYS),
    _row("ROW", "ROW", (_A,), Result.SPECIAL, _NEVER, variadic=True),
    _row("ARRAY", "ARRAY", (_A,), Result.SPECIAL, _NEVER, variadic=True),
    _row("MAP", "MAP", (_A, _A), Result.SPECIAL, _NEVER, variadic=True),
    _row("CARDINALITY", "CARDINALITY", (_A,), Result.INT),
    # Window columns of a TVF without aggregation: (time, size ms, offset ms) -> TIMESTAMP(3) window bound.
    _row("TUMBLE_START", "$TUMBLE_START", (_TS, _I, _I), Result.TIMESTAMP_3),
    _row("TUMBLE_END", "$TUMBLE_END", (_TS, _I, _I), Result.TIMESTAMP_3),
    # window_time: the end - 1 ms, in the type of the time column (the call's own type).
    _row("TUMBLE_TIME", "$TUMBLE_TIME", (_TS, _I, _I), Result.SPECIAL),
    # The bucket, 0 .. count - 1, of a value of a split distinct aggregate: (value, count). Equal values share one.
    _row("DISTINCT_BUCKET", "$DISTINCT_BUCKET", (_A, _I), Result.INT, _NEVER),
)

NUMBERS = (
    _row("ABS", "ABS", (_N,), Result.FIRST),
    _row("CEIL", "CEIL", (_N,), Result.SPECIAL),
    _row("FLOOR", "FLOOR", (_N,), Result.SPECIAL),
    _row("ROUND", "ROUND", (_N, _I), Result.ROUND, optional=1),
    _row("MOD", "MOD", (_N, _N), Result.SPECIAL, can_raise=True),
    _row("POWER", "POWER", (_N, _N), Result.DOUBLE),
    _row("SQRT", "SQRT", (_N,), Result.DOUBLE),
)

TEXT = (
    _row("CHAR_LENGTH", "CHAR_LENGTH", (_C,), Result.INT),
    _row("CHARACTER_LENGTH", "CHARACTER_LENGTH", (_C,), Result.INT),
    _row("UPPER", "UPPER", (_C,), Result.VARCHAR_OF_FIRST),
    _row("LOWER", "LOWER", (_C,), Result.VARCHAR_OF_FIRST),
    # TRIM is (text, characters, side literal 'BOTH' | 'LEADING' | 'TRAILING').
    _row("TRIM", "TRIM", (_C, _C, _C), Result.VARCHAR_OF_FIRST),
    _row("LTRIM", "LTRIM", (_C, _C), Result.STRING, optional=1),
    _row("RTRIM", "RTRIM", (_C, _C), Result.STRING, optional=1),
    _row("SUBSTRING", "SUBSTRING", (_C, _I, _I), Result.VARCHAR_OF_FIRST, _ALWAYS, optional=1),
    _row("SUBSTR", "SUBSTR", (_C, _I, _I), Result.VARCHAR_OF_FIRST, _ALWAYS, optional=1),
    # POSITION(needle IN text) is (needle, text).
    _row("POSITION", "POSITION", (_C, _C), Result.INT),
    _row("REPLACE", "REPLACE", (_C, _C, _C), Result.STRING),
    _row("CONCAT", "CONCAT", (_C,), Result.STRING, variadic=True),
    _row("CONCAT_WS", "CONCAT_WS", (_C, _C), Result.STRING, variadic=True),
    _row("SPLIT_INDEX", "SPLIT_INDEX", (_C, _A, _I), Result.STRING, _ALWAYS, road=Road.DICTIONARY),
    _row(
        "REGEXP_EXTRACT",
        "REGEXP_EXTRACT",
        (_C, _C, _I),
        Result.STRING,
        _ALWAYS,
        optional=1,
        can_raise=True,
        road=Road.DICTIONARY,
    ),
    _row("REGEXP_REPLACE", "REGEXP_REPLACE", (_C, _C, _C), Result.STRING, can_raise=True, road=Road.DICTIONARY),
    _row("LPAD", "LPAD", (_C, _I, _C), Result.STRING),
    _row("RPAD", "RPAD", (_C, _I, _C), Result.STRING),
    _row("MD5", "MD5", (_C,), Result.SPECIAL, road=Road.DUCKDB),
    _row("SHA256", "SHA256", (_C,), Result.SPECIAL, road=Road.DUCKDB),
    # JSON_VALUE: (text, path, returning type is the call's type, on-empty, default, on-error, default): the
    # behaviours are the literals 'NULL' | 'ERROR' | 'DEFAULT', defaults are expressions of the result type.
    _row(
        "JSON_VALUE",
        "JSON_VALUE",
        (_C, _C, _C, _A, _C, _A),
        Result.SPECIAL,
        _ALWAYS,
        can_raise=True,
        road=Road.DICTIONARY,
    ),
    _row("UUID", "UUID", (), Result.CHAR_36, _NEVER, deterministic=False, road=Road.DICTIONARY),
)

CONDITIONALS = (
    _row("COALESCE", "COALESCE", (_A,), Result.COMMON, Nullability.ALL_ARGUMENTS, variadic=True, lazy=True),
    _row("NULLIF", "NULLIF", (_A, _A), Result.FIRST, _ALWAYS),
    _row("IF", "IF", (_B, _A, _A), Result.SPECIAL, _ALWAYS, lazy=True),
    _row("IFNULL", "IFNULL", (_A, _A), Result.COMMON, Nullability.ALL_ARGUMENTS, lazy=True),
    _row("GREATEST", "GREATEST", (_CMP,), Result.COMMON, variadic=True),
    _row("LEAST", "LEAST", (_CMP,), Result.COMMON, variadic=True),
)

TIME = (
    _row("DATE_FORMAT", "DATE_FORMAT", (_TS, _C), Result.STRING, road=Road.DICTIONARY, can_raise=True),
    _row("DATE_FORMAT_TEXT", "DATE_FORMAT", (_C, _C), Result.STRING, _ALWAYS, road=Road.DICTIONARY, can_raise=True),
    _row(
        "TO_TIMESTAMP",
        "TO_TIMESTAMP",
        (_C, _C),
        Result.TIMESTAMP_3,
        _ALWAYS,
        optional=1,
        road=Road.DICTIONARY,
    ),
    _row("TO_DATE", "TO_DATE", (_C, _C), Result.SPECIAL, _ALWAYS, optional=1, road=Road.DICTIONARY),
    # TO_TIMESTAMP_LTZ(number, precision 0 | 3) and TO_TIMESTAMP_LTZ(text[, format[, zone]]).
    _row("TO_TIMESTAMP_LTZ", "TO_TIMESTAMP_LTZ", (_N, _I), Result.TIMESTAMP_LTZ_3, _ALWAYS, optional=1),
    _row(
        "TO_TIMESTAMP_LTZ_TEXT",
        "TO_TIMESTAMP_LTZ",
        (_C, _C, _C),
        Result.TIMESTAMP_LTZ_3,
        _ALWAYS,
        optional=2,
        road=Road.DICTIONARY,
    ),
    # EXTRACT(unit FROM x), FLOOR/CEIL(x TO unit), TIMESTAMPADD/DIFF(unit, …): the unit is a literal, first.
    _row("EXTRACT", "EXTRACT", (_C, _DT), Result.BIGINT),
    _row("EXTRACT_INTERVAL", "EXTRACT", (_C, _IV), Result.BIGINT),
    _row("FLOOR_TIME", "FLOOR", (_C, _DT), Result.SECOND),
    _row("CEIL_TIME", "CEIL", (_C, _DT), Result.SECOND),
    _row("TIMESTAMPADD", "TIMESTAMPADD", (_C, _I, _DT), Result.SPECIAL),
    _row("TIMESTAMPDIFF", "TIMESTAMPDIFF", (_C, _DT, _DT), Result.INT),
    _row("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", (), Result.TIMESTAMP_LTZ_3, _NEVER, deterministic=False),
    _row("NOW", "NOW", (), Result.TIMESTAMP_LTZ_3, _NEVER, deterministic=False),
    _row("LOCALTIMESTAMP", "LOCALTIMESTAMP", (), Result.TIMESTAMP_3, _NEVER, deterministic=False),
    _row("CURRENT_DATE", "CURRENT_DATE", (), Result.SPECIAL, _NEVER, deterministic=False),
    _row("PROCTIME", "PROCTIME", (), Result.PROCTIME, _NEVER, deterministic=False),
    _row("UNIX_TIMESTAMP", "UNIX_TIMESTAMP", (), Result.BIGINT, _NEVER, deterministic=False),
    _row("UNIX_TIMESTAMP_TEXT", "UNIX_TIMESTAMP", (_C, _C), Result.BIGINT, optional=1, road=Road.DICTIONARY),
    _row("FROM_UNIXTIME", "FROM_UNIXTIME", (_N, _C), Result.STRING, optional=1, road=Road.DICTIONARY, can_raise=True),
)

ROWS: tuple[FunctionRow, ...] = (*OPERATORS, *NUMBERS, *TEXT, *CONDITIONALS, *TIME)
BY_ID: dict[str, FunctionRow] = {r.id: r for r in ROWS}
BY_NAME: dict[str, tuple[FunctionRow, ...]] = {
    name: tuple(r for r in ROWS if r.name == name) for name in {r.name for r in ROWS}
}

_FIXED_WIDTH = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INTEGER,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
        TypeRoot.BOOLEAN,
    }
)


def cast_can_raise(source: DataType, target: DataType) -> bool:
    """Whether a strict CAST between the types can fail on a value. Numbers wrap or become NULL as in Java/Flink;
    only text (and bytes) parsed into something else can be malformed."""
    if source.is_character:
        return not (target.is_character or target.is_binary)
    return source.root is TypeRoot.TIMESTAMP and target.root in _FIXED_WIDTH
