"""The exact road: one message at a time, with every rule of Flink's JSON converters and the field of each error.

Only messages the fast road refused come here. Numbers keep their text until the column's type is known, so DECIMAL
is exact and a number read into STRING looks as it did in the message.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from connectors.formats.json.options import JsonOptions
from planner.ir.types import INTEGER_BITS, DataType, Field, TypeRoot, second_fraction_unit

Converter = Callable[[Any], Any]

JAVA_TRIMMED = "".join(map(chr, range(33)))  # What java.lang.String.trim removes.
TEXT_IN_ERROR_MAX = 200

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_JAVA_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
_SQL_TIME = re.compile(_TIME, re.ASCII)
_SQL_TIMESTAMP = re.compile(rf"(\d{{4}}-\d\d-\d\d) {_TIME}", re.ASCII)
_ISO_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_EPOCH = datetime.date(1970, 1, 1)
_UNITS_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DECIMAL_CONTEXT = decimal.Context(prec=10_000, rounding=decimal.ROUND_HALF_UP)


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class FieldError(Exception):
    """A value does not fit its field; `path` names the field from the row down."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


class MalformedError(Exception):
    """The message does not begin with a JSON object."""


def _not_json(text: str) -> NoReturn:
    raise MalformedError(f"{text} is not JSON")


# Raw control characters in strings are accepted, of equal keys the last one counts: as Jackson does under Flink.
_JSON = json.JSONDecoder(strict=False, parse_float=Number, parse_int=Number, parse_constant=_not_json)


def parse_object(message: bytes) -> dict[str, Any]:
    """The JSON object a message begins with; what follows it is not looked at. Raises MalformedError,
    RecursionError."""
    try:
        text = message.decode("utf-8-sig").lstrip(" \t\r\n")
        value, _ = _JSON.raw_decode(text)
    except UnicodeDecodeError as problem:
        raise MalformedError(f"invalid UTF-8 at byte {problem.start}") from problem
    except json.JSONDecodeError as problem:
        raise MalformedError(f"{problem.msg} at character {problem.pos}") from problem
    if not isinstance(value, dict):
        raise MalformedError("not a JSON object")
    return cast("dict[str, Any]", value)


def shown(message: bytes) -> str:
    """The start of a message, for errors."""
    text = message[: TEXT_IN_ERROR_MAX + 1].decode("utf-8", "replace")
    return text if len(text) <= TEXT_IN_ERROR_MAX else text[:TEXT_IN_ERROR_MAX] + "…"


class RecordConverter:
    """Messages to column values (in the forms `pyarrow.array` takes) for a fixed set of columns."""

    def __init__(self, columns: tuple[Field, ...], options: JsonOptions) -> None:
        self._options = options
        self._fields = [(column.name, self._nullable(column.type)) for column in columns]

    def convert(self, message: bytes) -> list[Any]:
        """One value per column. Raises MalformedError, or FieldError unless parse errors are ignored: then a field
        that does not fit is NULL."""
        try:
            return self._members(parse_object(message), self._fields)
        except RecursionError as problem:
            raise MalformedError("nested too deeply") from problem

    def _members(self, value: Mapping[str, Any], fields: list[tuple[str, Converter]]) -> list[Any]:
        found = []
        for name, converter in fields:
            try:
                if name not in value and self._options.fail_on_missing_field:
                    raise FieldError("the field is missing")
                found.append(converter(value.get(name)))
            except FieldError as problem:
                raise FieldError(problem.reason, (name, *problem.path)) from problem
        return found

    def _nullable(self, t: DataType) -> Converter:
        converter = self._converter(t)
        ignore = self._options.ignore_parse_errors

        def convert(value: Any) -> Any:
            if value is None:
                return None
            try:
                return converter(value)
            except FieldError:
                if ignore:
                    return None
                raise

        return convert

    def _converter(self, t: DataType) -> Converter:
        match t.root:
            case TypeRoot.ARRAY:
                assert t.element is not None
                return _array_converter(self._nullable(t.element))
            case TypeRoot.MAP | TypeRoot.MULTISET:
                assert t.element is not None
                of_value = t.element if t.root is TypeRoot.MAP else DataType(TypeRoot.INTEGER)
                return _map_converter(self._nullable(of_value))
            case TypeRoot.ROW:
                return self._row_converter(t)
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                unit = second_fraction_unit(t.precision if t.precision is not None else 6)
                zone = "Z" if t.root is TypeRoot.TIMESTAMP_LTZ else ""
                return _timestamp_converter(_UNITS_PER_SECOND[unit], self._options.iso_timestamps, zone)
            case TypeRoot.DECIMAL:
                assert t.precision is not None
                return _decimal_converter(t.precision, t.scale or 0)
            case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INTEGER | TypeRoot.BIGINT:
                return _integer_converter(t.root, INTEGER_BITS[t.root])
            case TypeRoot.INTERVAL_YEAR_MONTH:
                return _integer_converter(t.root, 32)
            case TypeRoot.INTERVAL_DAY_TIME:
                return _integer_converter(t.root, 64)
            case _:
                return _PLAIN[t.root]

    def _row_converter(self, t: DataType) -> Converter:
        fields = [(field.name, self._nullable(field.type)) for field in t.fields]
        names = [field.name for field in t.fields]

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                _misfit(value, "a ROW")
            return dict(zip(names, self._members(value, fields), strict=True))

        return convert


def _misfit(value: Any, wanted: str) -> NoReturn:
    text = text_of(value)
    if len(text) > TEXT_IN_ERROR_MAX:
        text = text[:TEXT_IN_ERROR_MAX] + "…"
    if isinstance(value, str) and not isinstance(value, Number):
        text = repr(text)
    raise FieldError(f"{text} is not {wanted}")


def _scalar_text(value: Any, wanted: str) -> str:
    """The text Jackson gives for a scalar token."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    _misfit(value, wanted)


def text_of(value: Any) -> str:
    """A value read into a STRING column: scalars as written, objects and arrays as compact JSON text."""
    if isinstance(value, str):
        return _SURROGATE.sub("?", value)
    return _SURROGATE.sub("?", _compact(value))


def _compact(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        members = (f"{json.dumps(key, ensure_ascii=False)}:{_compact(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    return "[" + ",".join(map(_compact, value)) + "]"


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return _scalar_text(value, "a BOOLEAN").strip(JAVA_TRIMMED).lower() == "true"


def _integer_converter(root: TypeRoot, bits: int) -> Converter:
    limit = 1 << (bits - 1)
    wanted = "an INT" if root is TypeRoot.INTEGER else f"a {root.value}"
    cuts_fractions = bits >= 32  # Flink reads INT and BIGINT from a number token, the small ones from its text.

    def convert(value: Any) -> int:
        text = _scalar_text(value, wanted).strip(JAVA_TRIMMED)
        if _INTEGER.fullmatch(text):
            number = int(text) if len(text) <= 40 else limit
        elif cuts_fractions and isinstance(value, Number):
            real = float(text)
            number = int(real) if abs(real) <= limit else limit
        else:
            _misfit(value, wanted)
        if not -limit <= number < limit:
            _misfit(value, f"{wanted} (out of range)")
        return number

    return convert


def _real(value: Any) -> float:
    text = _scalar_text(value, "a number").strip(JAVA_TRIMMED)
    if isinstance(value, bool) or not _JAVA_DOUBLE.fullmatch(text):
        _misfit(value, "a number")
    return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))


def _decimal_converter(precision: int, scale: int) -> Converter:
    quantum = decimal.Decimal(1).scaleb(-scale)
    limit = decimal.Decimal(10) ** (precision - scale)

    def convert(value: Any) -> decimal.Decimal | None:
        """HALF_UP to the scale; NULL when the precision does not hold it (Flink's rule, not an error)."""
        text = _scalar_text(value, "a DECIMAL").strip(JAVA_TRIMMED)
        if isinstance(value, bool) or not _DECIMAL.fullmatch(text):
            _misfit(value, f"a DECIMAL({precision}, {scale})")
        number = decimal.Decimal(text)
        if abs(number) >= limit:
            return None
        rounded = number.quantize(quantum, context=_DECIMAL_CONTEXT)
        return rounded if abs(rounded) < limit else None

    return convert


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, Number):
        _misfit(value, "base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _misfit(value, "base64 text")


def _date(value: Any) -> int:
    text = _scalar_text(value, "a DATE")
    if not _DATE.fullmatch(text):
        _misfit(value, "a DATE 'yyyy-MM-dd'")
    return _days(text, value)


def _days(text: str, value: Any) -> int:
    try:
        return (datetime.date.fromisoformat(text) - _EPOCH).days
    except ValueError:
        _misfit(value, "a date of the calendar")


def _time(value: Any) -> int:
    """Milliseconds of the day, whole seconds: Flink's converter drops a fraction."""
    match = _SQL_TIME.fullmatch(_scalar_text(value, "a TIME"))
    if match is None:
        _misfit(value, "a TIME 'HH:mm:ss'")
    return _seconds(match[1], match[2], match[3], value) * 1000


def _seconds(hours: str, minutes: str, seconds: str | None, value: Any) -> int:
    h, m, s = int(hours), int(minutes), int(seconds or 0)
    if h > 23 or m > 59 or s > 59:
        _misfit(value, "a time of day")
    return (h * 60 + m) * 60 + s


def _timestamp_converter(units_per_second: int, iso: bool, zone: str) -> Converter:
    pattern = _ISO_TIMESTAMP if iso else _SQL_TIMESTAMP
    shape = ("yyyy-MM-ddTHH:mm:ss[.f]" if iso else "yyyy-MM-dd HH:mm:ss[.f]") + zone
    wanted = f"a {'TIMESTAMP_LTZ' if zone else 'TIMESTAMP'} '{shape}'"

    def convert(value: Any) -> int:
        text = _scalar_text(value, wanted)
        if not text.endswith(zone):
            _misfit(value, wanted)
        match = pattern.fullmatch(text[: len(text) - len(zone)])
        if match is None:
            _misfit(value, wanted)
        seconds = _days(match[1], value) * 86_400 + _seconds(match[2], match[3], match[4], value)
        nanoseconds = int((match[5] or "").ljust(9, "0"))
        units = seconds * units_per_second + nanoseconds * units_per_second // 1_000_000_000
        if not -(1 << 63) <= units < 1 << 63:
            _misfit(value, f"{wanted} (out of range)")
        return units

    return convert


def _array_converter(element: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            _misfit(value, "an ARRAY")
        found = []
        for index, member in enumerate(value):
            try:
                found.append(element(member))
            except FieldError as problem:
                raise FieldError(problem.reason, (f"[{index}]", *problem.path)) from problem
        return found

    return convert


def _map_converter(member: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            _misfit(value, "a MAP")
        found = []
        for key, item in value.items():
            try:
                found.append((_SURROGATE.sub("?", key), member(item)))
            except FieldError as problem:
                raise FieldError(problem.reason, (f"['{key}']", *problem.path)) from problem
        return found

    return convert


_PLAIN: dict[TypeRoot, Converter] = {
    TypeRoot.NULL: lambda _value: None,
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.FLOAT: _real,
    TypeRoot.DOUBLE: _real,
    TypeRoot.CHAR: text_of,
    TypeRoot.VARCHAR: text_of,
    TypeRoot.BINARY: _binary,
    TypeRoot.VARBINARY: _binary,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
}
