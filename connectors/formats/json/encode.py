"""Rows to JSON texts in the form Flink writes, column by column.

Every column becomes an array of JSON texts; one native join per ROW type puts them together. Nested arrays, maps
and rows are joined the same way from the inside out. Only floating-point values that Java writes with an
exponent, and DECIMALs below a millionth when plain numbers are wanted, are spelled per distinct value.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.arrow import Array, list_offsets, pc, text_buffers
from connectors.formats.json.options import JsonOptions
from planner.ir.types import DataType, Field, TypeRoot

_NULL_TEXTS = pc.JoinOptions(null_handling="replace", null_replacement="null")
_TO_STRING, _TO_BINARY = pc.CastOptions(pa.string()), pc.CastOptions(pa.binary())
_INTEGERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT})
_SHORT_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


class JsonEncoder:
    """Encodes rows of the given columns. Used by one thread."""

    def __init__(self, columns: tuple[Field, ...], options: JsonOptions) -> None:
        self._columns = columns
        self._options = options

    def encode(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None = None) -> pa.BinaryArray:
        """One JSON object per row; all rows are inserts."""
        texts = self._objects(list(batch.columns), self._columns, batch.num_rows)
        encoded = pc.call_function("cast", [texts], _TO_BINARY)
        assert isinstance(encoded, pa.BinaryArray)
        return encoded

    def _objects(self, members: list[Array], fields: tuple[Field, ...], count: int) -> Array:
        """Rows as JSON objects, from one array per field."""
        if not members:
            return pa.array(["{}"] * count, pa.string())
        parts: list[Any] = []
        if self._options.ignore_null_fields:
            for member, field in zip(members, fields, strict=True):
                text = _surround(_quoted(field.name) + ":", self._texts(member, field.type), ",")
                parts.append(text.fill_null(_text("")))
            return _surround("{", pc.ascii_rtrim(_join(*parts), ","), "}")
        before = "{"
        for member, field in zip(members, fields, strict=True):
            opening, inside, closing = self._pieces(member, field.type)
            if opening and inside.null_count:
                opening, inside, closing = "", _surround(opening, inside, closing), ""
            parts += [_text(before + _quoted(field.name) + ":" + opening), inside]
            before = closing + ","
        return _join(*parts, _text(before[:-1] + "}"))

    def _texts(self, array: Array, t: DataType) -> Array:
        """JSON texts of a column; NULL stays NULL."""
        opening, inside, closing = self._pieces(array, t)
        return _surround(opening, inside, closing) if opening else inside

    def _pieces(self, array: Array, t: DataType) -> tuple[str, Array, str]:
        """JSON texts of a column without the quotes that surround each of them; NULL stays NULL."""
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        if t.root in _INTEGERS:
            return "", pc.call_function("cast", [array], _TO_STRING), ""
        match t.root:
            case TypeRoot.CHAR | TypeRoot.VARCHAR:
                return '"', _escape(array), '"'
            case TypeRoot.BINARY | TypeRoot.VARBINARY:
                return '"', base64_texts(array), '"'
            case TypeRoot.DATE:
                return '"', array.cast(pa.string()), '"'
            case TypeRoot.TIME:
                return '"', without_trailing_zeros(array.cast(pa.string())), '"'
            case TypeRoot.TIMESTAMP:
                return '"', self._timestamps(array), '"'
            case TypeRoot.TIMESTAMP_LTZ:
                return '"', self._timestamps(array), 'Z"'
            case _:
                return "", self._unquoted(array, t), ""

    def _unquoted(self, array: Array, t: DataType) -> Array:
        match t.root:
            case TypeRoot.FLOAT | TypeRoot.DOUBLE:
                return float_texts(array)
            case TypeRoot.DECIMAL:
                return self._decimals(array)
            case TypeRoot.ARRAY:
                assert t.element is not None
                return self._arrays(array, t.element)
            case TypeRoot.MAP:
                assert t.element is not None
                return self._maps(array, t.element)
            case TypeRoot.MULTISET:
                return self._maps(array, DataType(TypeRoot.INTEGER))
            case TypeRoot.ROW:
                assert isinstance(array, pa.StructArray)
                return _keep_nulls(array, self._objects(array.flatten(), t.fields, len(array)))
            case _:
                return array.cast(pa.string())

    def _timestamps(self, array: Array) -> Array:
        assert isinstance(array.type, pa.TimestampType)
        texts = array.view(pa.timestamp(array.type.unit)).cast(pa.string())
        if array.type.unit != "s":
            texts = without_trailing_zeros(texts)
        if self._options.iso_timestamps:
            texts = pc.replace_substring(texts, " ", "T")
        return texts

    def _decimals(self, array: Array) -> Array:
        """Arrow writes a tiny DECIMAL with an exponent by the same rule as Java's BigDecimal."""
        texts = array.cast(pa.string())
        if not self._options.decimal_as_plain_number:
            return texts
        return respelled(texts, pc.match_substring(texts, "E"), lambda text: f"{Decimal(text):f}")

    def _arrays(self, array: Array, element: DataType) -> Array:
        assert isinstance(array, pa.ListArray)
        elements = self._texts(array.flatten(), element).fill_null(_text("null"))
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        lists = pa.ListArray.from_arrays(list_offsets(lengths), elements)
        return _keep_nulls(array, _surround("[", pc.binary_join(lists, ","), "]"))

    def _maps(self, array: Array, item: DataType) -> Array:
        assert isinstance(array, pa.MapArray)
        bounds = array.offsets.to_numpy()
        first, last = int(bounds[0]), int(bounds[-1])
        keys, items = array.keys[first:last], array.items[first:last]
        names = _surround('"', _escape(keys), '":')
        entries = _join(names, self._texts(items, item))
        lists = pa.ListArray.from_arrays(list_offsets(np.diff(bounds)), entries)
        return _keep_nulls(array, _surround("{", pc.binary_join(lists, ","), "}"))


def base64_texts(array: Array) -> Array:
    import polars as pl  # Half a second of CPU to load: only for those who have BYTES.

    return pl.Series(pl.from_arrow(array)).bin.encode("base64").to_arrow().cast(pa.string())


@functools.cache
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _join(*parts: Any) -> Array:
    """Concatenate texts element by element; a NULL text is written `null`."""
    for part in parts:
        if isinstance(part, pa.Array) and part.null_count:
            return pc.call_function("binary_join_element_wise", [*parts, _text("")], _NULL_TEXTS)
    return pc.call_function("binary_join_element_wise", [*parts, _text("")])  # A fifth cheaper.


def _surround(before: str, texts: Array, after: str) -> Array:
    """Every text between the two given ones; NULL stays NULL."""
    return pc.binary_join_element_wise(_text(before), texts, _text(after), _text(""))


@functools.cache
def _text(text: str) -> pa.StringScalar:
    """An Arrow scalar: made once, because finding out the type of a Python value costs 50 µs each time."""
    return pa.scalar(text, pa.string())


def _keep_nulls(array: Array, texts: Array) -> Array:
    """`texts`, NULL where `array` is."""
    if array.null_count == 0:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def without_trailing_zeros(texts: Array) -> Array:
    """`12:00:00.500` → `12:00:00.5`, `12:00:00.000` → `12:00:00`. Every text must have a fraction."""
    trimmed: Array = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return trimmed


def _escape(array: Array) -> Array:
    """The inside of a JSON string: quote, backslash and control characters escaped as Jackson does."""
    present = _bytes_present(array)
    if present is None:
        return array
    if present[0x5C]:
        array = pc.replace_substring(array, "\\", "\\\\")
    if present[0x22]:
        array = pc.replace_substring(array, '"', '\\"')
    for code in np.flatnonzero(present[:32]).tolist():
        array = pc.replace_substring(array, chr(code), _SHORT_ESCAPES.get(code, f"\\u{code:04X}"))
    return array


def _bytes_present(array: Array) -> npt.NDArray[np.bool_] | None:
    """Which byte values occur in the texts, or None when none needs an escape."""
    offsets, data = text_buffers(array)
    found = data[offsets[0] : offsets[-1]]
    if not bool(((found < 0x20) | (found == 0x22) | (found == 0x5C)).any()):
        return None
    present = np.zeros(256, np.bool_)
    present[found] = True
    return present


def float_texts(array: Array) -> Array:
    """Java's notation: always a fraction, an exponent outside 1e-3 … 1e7, "NaN" and "Infinity" in quotes."""
    texts = array.cast(pa.string())
    plain_integer = pc.invert(pc.match_substring(texts, "."))
    texts = pc.if_else(plain_integer, _surround("", texts, ".0"), texts)
    size = pc.abs(array)
    low, high, zero = (pa.scalar(bound, array.type) for bound in (1e-3, 1e7, 0.0))
    usual = pc.or_(pc.and_(pc.greater_equal(size, low), pc.less(size, high)), pc.equal(size, zero))
    unusual = pc.invert(usual)
    if not pc.any(unusual).as_py():
        return texts
    spelled = array.filter(unusual).dictionary_encode()
    single = pa.types.is_float32(array.type)
    words = pa.array([_java_float(value, single) for value in spelled.dictionary.to_numpy()], pa.string())
    return pc.replace_with_mask(texts, unusual.fill_null(False), words.take(spelled.indices.drop_null()))


def _java_float(value: np.floating[Any], single: bool) -> str:
    """One number as java.lang.Double.toString (or Float.toString) writes it; not-finite ones as JSON strings."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    shortest = np.format_float_scientific(np.float32(value) if single else np.float64(value), unique=True, trim="0")
    mantissa, exponent = shortest.split("e")
    return f"{mantissa}E{int(exponent)}"


def respelled(texts: Array, mask: Array, spell: Callable[[str], str]) -> Array:
    """Texts under the mask respelled, each distinct one once."""
    if not pc.any(mask).as_py():
        return texts
    distinct = texts.filter(mask).dictionary_encode()
    words = pa.array([spell(str(text)) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, mask.fill_null(False), words.take(distinct.indices))
