"""Rows to CSV records in the form Flink writes, column by column.

Texts are quoted by the rule of Jackson's CSV generator, which Flink uses: when they are longer than 24 characters,
or hold a backslash or a character not above the delimiter, the quote and ','. Numbers and BOOLEAN never are.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from connectors.arrow import Array, list_offsets, pc
from connectors.formats.csv.options import CsvOptions
from connectors.formats.json.encode import base64_texts, float_texts, respelled, without_trailing_zeros
from planner.ir.types import DataType, Field, TypeRoot

UNQUOTED_LENGTH_MAX = 24
_EMPTY = pa.scalar("", pa.string())
_NUMBERS = frozenset(
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


class CsvEncoder:
    """Encodes rows of the given columns. Used by one thread."""

    def __init__(self, columns: tuple[Field, ...], options: CsvOptions) -> None:
        self._columns = columns
        self._options = options
        self._null = pa.scalar(options.null_literal or "", pa.string())
        self._delimiter = pa.scalar(options.delimiter, pa.string())
        highest = max(ord(character) for character in (options.delimiter, options.quote or "\0", ","))
        self._unsafe = f"[\\x00-{_class_member(highest)}\\\\]"

    def encode(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None = None) -> pa.BinaryArray:
        """One record per row, without a line end; all rows are inserts."""
        parts = [self._field(batch.column(i), c.type) for i, c in enumerate(self._columns)]
        encoded = pc.binary_join_element_wise(*parts, self._delimiter).cast(pa.binary())
        assert isinstance(encoded, pa.BinaryArray)
        return encoded

    def _field(self, array: Array, t: DataType) -> Array:
        texts = self._texts(array, t)
        if t.root not in _NUMBERS and self._options.quote:
            texts = self._quoted(texts)
        return texts.fill_null(self._null)

    def _quoted(self, texts: Array) -> Array:
        options, quote = self._options, self._options.quote
        unsafe = pc.match_substring_regex(texts, self._unsafe)
        long = pc.greater(pc.utf8_length(texts), pa.scalar(UNQUOTED_LENGTH_MAX, pa.int32()))
        needed = pc.or_(unsafe, long).fill_null(False)
        if not pc.any(needed, min_count=0).as_py():
            return texts
        inner = texts.filter(needed)
        if options.escape and options.escape != quote:
            inner = pc.replace_substring(inner, options.escape, options.escape * 2)
        inner = pc.replace_substring(inner, quote, quote * 2)
        mark = pa.scalar(quote, pa.string())
        return pc.replace_with_mask(texts, needed, pc.binary_join_element_wise(mark, inner, mark, _EMPTY))

    def _texts(self, array: Array, t: DataType) -> Array:
        """Texts of a column before quoting; NULL stays NULL."""
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        match t.root:
            case TypeRoot.BINARY | TypeRoot.VARBINARY:
                return base64_texts(array)
            case TypeRoot.FLOAT | TypeRoot.DOUBLE:
                return pc.replace_substring(float_texts(array), '"', "")
            case TypeRoot.DECIMAL:
                return self._decimals(array)
            case TypeRoot.TIME:
                return without_trailing_zeros(array.cast(pa.string()))
            case TypeRoot.TIMESTAMP:
                return _timestamps(array)
            case TypeRoot.TIMESTAMP_LTZ:
                return pc.binary_join_element_wise(_timestamps(array), pa.scalar("Z", pa.string()), _EMPTY)
            case TypeRoot.ARRAY:
                assert t.element is not None
                lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
                elements = self._texts(array.flatten(), t.element).fill_null(self._null)
                lists = pa.ListArray.from_arrays(list_offsets(lengths), elements)
                return _null_where(pc.binary_join(lists, self._options.element_delimiter), array)
            case TypeRoot.ROW:
                members = [
                    self._texts(member, field.type).fill_null(self._null)
                    for member, field in zip(array.flatten(), t.fields, strict=True)
                ]
                mark = pa.scalar(self._options.element_delimiter, pa.string())
                return _null_where(pc.binary_join_element_wise(*members, mark), array)
            case _:
                return array.cast(pa.string())

    def _decimals(self, array: Array) -> Array:
        """Arrow writes a tiny DECIMAL with an exponent by the same rule as Java's BigDecimal."""
        texts = array.cast(pa.string())
        if self._options.scientific_decimals:
            return texts
        return respelled(texts, pc.match_substring(texts, "E"), lambda text: f"{Decimal(text):f}")


def _class_member(code: int) -> str:
    """A character inside the brackets of a regular expression."""
    return re.escape(chr(code)) if code >= 0x20 else f"\\x{code:02x}"


def _timestamps(array: Array) -> Array:
    texts = array.view(pa.timestamp(array.type.unit)).cast(pa.string())
    return texts if array.type.unit == "s" else without_trailing_zeros(texts)


def _null_where(texts: Array, array: Array) -> Array:
    if array.null_count == 0:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))
