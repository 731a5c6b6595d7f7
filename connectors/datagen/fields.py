"""One vectorised generator per column of a `datagen` table, with Flink's options and defaults.

A generator maps row numbers to values: `random` ones mix the number with the split's seed, so a row is the same
whenever it is made again. DATE and TIME are those of the row's own moment (Flink: of the machine's clock).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.arrow import Array, list_offsets, text_array
from connectors.durations import duration_ms
from connectors.errors import OptionError
from connectors.generated import UInt64Array, below, letters, mix, unit
from connectors.options import Options
from planner.ir.types import INTEGER_BITS, STRING_LENGTH, DataType, Field, TypeRoot, to_arrow

LENGTH_DEFAULT = 100
COLLECTION_LENGTH_DEFAULT = 3
HEXADECIMAL = b"0123456789abcdef"
DAY_MS = 86_400_000

Ints = npt.NDArray[np.int64]


class Rows:
    """Row numbers of a batch, as generators need them."""

    def __init__(self, numbers: Ints, seed: int, time_ms: Ints) -> None:
        self.numbers = numbers
        self.keys: UInt64Array = numbers.astype(np.uint64)
        self.seed = seed
        self.time_ms = time_ms

    def bits(self, stream: int) -> UInt64Array:
        return mix(self.keys, self.seed, stream)


Generator = Callable[[Rows], Array]


class FieldPlan:
    """How to fill a table: a generator per column, and how many rows sequences have at most (None: no sequence)."""

    def __init__(self, columns: tuple[Field, ...], options: Options) -> None:
        self._options = options
        self._streams = 0
        self.option_names: set[str] = set()
        self.sequence_rows: int | None = None
        self.generators = [self._field(f"fields.{column.name}", column.type) for column in columns]

    def _name(self, prefix: str, option: str) -> str:
        name = f"{prefix}.{option}"
        self.option_names.add(name)
        return name

    def _stream(self) -> int:
        self._streams += 1
        return self._streams

    def _field(self, prefix: str, t: DataType) -> Generator:
        kind = self._options.choice(self._name(prefix, "kind"), "random", ("random", "sequence"))
        if kind == "sequence":
            return self._sequence(prefix, t)
        generator = self._random(prefix, t)
        name = self._name(prefix, "null-rate")
        try:
            rate = float(self._options.text(name, "0"))
        except ValueError as problem:
            raise self._options.bad(name, "a number from 0 to 1") from problem
        if not 0 <= rate <= 1:
            raise self._options.bad(name, "a number from 0 to 1")
        return _with_nulls(generator, rate, self._stream()) if rate else generator

    # ------------------------------------------------------------------------------------------- sequences

    def _sequence(self, prefix: str, t: DataType) -> Generator:
        start_name, end_name = self._name(prefix, "start"), self._name(prefix, "end")
        start, end = self._options.optional_integer(start_name), self._options.optional_integer(end_name)
        if start is None or end is None:
            missing = start_name if start is None else end_name
            raise OptionError(f"a sequence needs the option '{missing}'", option=missing)
        if end < start:
            raise self._options.bad(end_name, f"at least {start}")
        if t.root not in (*INTEGER_BITS, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL) and not t.is_character:
            raise OptionError(f"datagen has no sequence of {t.summary()}", option=f"{prefix}.kind")
        rows = end - start + 1
        self.sequence_rows = rows if self.sequence_rows is None else min(self.sequence_rows, rows)
        target = to_arrow(t)
        if t.root is TypeRoot.DECIMAL:
            return lambda batch: pa.array(start + batch.numbers).cast(pa.decimal128(38, 0)).cast(target)
        return lambda batch: pa.array(start + batch.numbers).cast(target)

    # ---------------------------------------------------------------------------------------------- random

    def _random(self, prefix: str, t: DataType) -> Generator:
        match t.root:
            case TypeRoot.BOOLEAN:
                stream = self._stream()
                return lambda rows: pa.array((rows.bits(stream) & np.uint64(1)).astype(np.bool_))
            case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INTEGER | TypeRoot.BIGINT:
                limit = 1 << (INTEGER_BITS[t.root] - 1)
                return self._integers(prefix, t, -limit, limit - 1)
            case TypeRoot.INTERVAL_YEAR_MONTH:
                return self._integers(prefix, t, 0, 120_000)
            case TypeRoot.INTERVAL_DAY_TIME:
                return self._integers(prefix, t, 0, 10_000 * DAY_MS)
            case TypeRoot.FLOAT | TypeRoot.DOUBLE:
                info = np.finfo(np.float32 if t.root is TypeRoot.FLOAT else np.float64)
                return self._reals(prefix, t, float(info.tiny), float(info.max))
            case TypeRoot.DECIMAL:
                return self._decimals(prefix, t)
            case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
                return self._texts(prefix, t)
            case TypeRoot.DATE:
                return lambda rows: pa.array((rows.time_ms // DAY_MS).astype(np.int32)).view(pa.date32())
            case TypeRoot.TIME:
                return _times_of_day
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                return self._timestamps(prefix, t)
            case TypeRoot.ARRAY | TypeRoot.MAP | TypeRoot.MULTISET:
                return self._collections(prefix, t)
            case TypeRoot.ROW:
                members = [self._field(f"{prefix}.{field.name}", field.type) for field in t.fields]
                fields: Any = list(to_arrow(t))  # type: ignore[call-overload]
                return lambda rows: pa.StructArray.from_arrays([member(rows) for member in members], fields=fields)
            case _:
                raise OptionError(f"datagen cannot make a {t.summary()}", option=f"{prefix}.kind")

    def _integers(self, prefix: str, t: DataType, smallest: int, largest: int) -> Generator:
        low_name, high_name = self._name(prefix, "min"), self._name(prefix, "max")
        low = self._options.integer(low_name, smallest, smallest)
        high = self._options.integer(high_name, largest)
        if not low <= high <= largest:
            raise self._options.bad(high_name, f"from {low} to {largest}")
        stream, target, span = self._stream(), to_arrow(t), high - low + 1

        def generate(rows: Rows) -> Array:
            bits = rows.bits(stream)
            if span <= 1 << 31:
                offsets = below(bits, span)
            elif span < 1 << 63:
                offsets = (bits % np.uint64(span)).astype(np.int64)
            else:  # The whole range of BIGINT, or nearly so.
                wide = bits if span == 1 << 64 else bits % np.uint64(span)
                return pa.array((wide + np.uint64(low % (1 << 64))).view(np.int64)).cast(target)
            return pa.array(low + offsets).cast(target)

        return generate

    def _bounds(self, prefix: str, smallest: float, largest: float) -> tuple[float, float]:
        found = []
        for option, default in (("min", smallest), ("max", largest)):
            name = self._name(prefix, option)
            try:
                found.append(float(self._options.text(name, repr(default))))
            except ValueError as problem:
                raise self._options.bad(name, "a number") from problem
        if found[0] > found[1]:
            raise self._options.bad(f"{prefix}.max", f"at least {found[0]}")
        return found[0], found[1]

    def _reals(self, prefix: str, t: DataType, smallest: float, largest: float) -> Generator:
        low, high = self._bounds(prefix, smallest, largest)
        stream, target = self._stream(), to_arrow(t)
        # Scaled before it is subtracted: high − low may be larger than the largest double.
        return lambda rows: pa.array(low * (1 - unit(rows.bits(stream))) + high * unit(rows.bits(stream))).cast(target)

    def _decimals(self, prefix: str, t: DataType) -> Generator:
        precision, scale = t.precision or 10, t.scale or 0
        largest = 10.0 ** (precision - scale)
        low, high = self._bounds(prefix, 0.0, largest)
        unscaled_low = int(Decimal(repr(low)).scaleb(scale))
        unscaled_high = min(int(Decimal(repr(high)).scaleb(scale)), 10**precision - 1)
        stream, target = self._stream(), to_arrow(t)
        span = float(unscaled_high - unscaled_low)

        def generate(rows: Rows) -> Array:
            """Unscaled 128-bit integers, put together from their two words."""
            offsets = unit(rows.bits(stream)) * span
            values = [unscaled_low + int(offset) for offset in offsets.tolist()]
            data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
            buffers: Any = [None, pa.py_buffer(data)]
            from_buffers: Any = pa.Array.from_buffers
            return from_buffers(target, len(values), buffers)

        return generate

    def _texts(self, prefix: str, t: DataType) -> Generator:
        """Hexadecimal digits. CHAR and BINARY have the length of their type."""
        declared = t.length or 1
        default = min(declared, LENGTH_DEFAULT)
        if t.root in (TypeRoot.CHAR, TypeRoot.BINARY):
            length = declared
        else:
            name = self._name(prefix, "length")
            length = self._options.integer(name, default, 1)
            if declared != STRING_LENGTH and length > declared:
                raise self._options.bad(name, f"at most {declared}, the length of the type")
        variable = self._options.boolean(self._name(prefix, "var-len"), False)
        stream, length_stream, binary = self._stream(), self._stream(), t.is_binary

        def generate(rows: Rows) -> Array:
            texts = letters(rows.keys, rows.seed, stream, length, HEXADECIMAL)
            lengths = np.full(len(texts), length)
            if variable:
                lengths = 1 + below(rows.bits(length_stream), length)
                texts = texts[np.arange(length) < lengths[:, None]]
            offsets = np.zeros(len(lengths) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            return text_array(offsets, np.ascontiguousarray(texts).reshape(-1), binary=binary)

        return generate

    def _timestamps(self, prefix: str, t: DataType) -> Generator:
        """The row's moment, or up to `max-past` before it."""
        name = self._name(prefix, "max-past")
        try:
            past_ms = duration_ms(self._options.text(name, "0"))
        except ValueError as problem:
            raise self._options.bad(name, "a duration") from problem
        stream = self._stream()
        target = to_arrow(t)
        assert isinstance(target, pa.TimestampType)
        plain = pa.timestamp(target.unit)

        def generate(rows: Rows) -> Array:
            back = np.floor(unit(rows.bits(stream)) * (past_ms + 1)).astype(np.int64)
            moments: Array = pa.array(rows.time_ms - back).view(pa.timestamp("ms"))
            return moments.cast(plain).view(target)

        return generate

    def _collections(self, prefix: str, t: DataType) -> Generator:
        """`length` entries each; a key whose values are few may stand twice in a MAP or MULTISET."""
        assert t.element is not None
        length = self._options.integer(self._name(prefix, "length"), COLLECTION_LENGTH_DEFAULT, 0)
        target = to_arrow(t)
        if t.root is TypeRoot.ARRAY:
            element = self._field(f"{prefix}.element", t.element)
            return lambda rows: _lists(element(_repeated(rows, length)), rows, length).cast(target)
        key_type = t.key if t.root is TypeRoot.MAP else t.element
        assert key_type is not None
        key = self._field(f"{prefix}.key" if t.root is TypeRoot.MAP else f"{prefix}.element", key_type)
        value = self._field(f"{prefix}.value", t.element) if t.root is TypeRoot.MAP else None
        from_arrays: Any = pa.MapArray.from_arrays

        def generate(rows: Rows) -> Array:
            inner = _repeated(rows, length)
            offsets = list_offsets(np.full(len(rows.numbers), length))
            items = value(inner) if value is not None else pa.array(np.ones(len(inner.numbers), np.int32))
            return from_arrays(offsets, key(inner), items, type=target)

        return generate


def _times_of_day(rows: Rows) -> Array:
    return pa.array((rows.time_ms % DAY_MS // 1000 * 1000).astype(np.int32)).view(pa.time32("ms"))


def _repeated(rows: Rows, length: int) -> Rows:
    """Numbers for the members of collections: `length` per row."""
    numbers = (rows.numbers[:, None] * max(length, 1) + np.arange(length)).reshape(-1)
    return Rows(numbers, rows.seed, np.repeat(rows.time_ms, length))


def _lists(values: Array, rows: Rows, length: int) -> Array:
    return pa.ListArray.from_arrays(list_offsets(np.full(len(rows.numbers), length)), values)


def _with_nulls(generator: Generator, rate: float, stream: int) -> Generator:
    def generate(rows: Rows) -> Array:
        values = generator(rows)
        absent = pa.array(unit(rows.bits(stream)) < rate)
        indices = pa.array(np.arange(len(rows.numbers)), mask=absent.to_numpy(zero_copy_only=False))
        return values.take(indices)

    return generate
