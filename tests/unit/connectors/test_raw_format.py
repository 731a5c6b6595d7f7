"""The raw format: one column, the message itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import Messages
from connectors.errors import OptionError, RecordError
from planner.ir.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, DataType, Field


def messages(*values: bytes) -> Messages:
    offsets = np.cumsum([0, *(len(value) + 1 for value in values)], dtype=np.int64)
    return Messages(memoryview(b"".join(value + b"\n" for value in values)), offsets, lambda i: f"message {i}")


def decode(t: DataType, *values: bytes, **options: str) -> list[Any]:
    decoder = registry.format("raw").decoder((Field("a", t),), options, "UTC")
    return decoder.decode(messages(*values)).batch.column(0).to_pylist()


def encode(t: DataType, array: pa.Array[Any], **options: str) -> list[Any]:
    encoder = registry.format("raw").encoder((Field("a", t),), options, "UTC")
    return encoder.encode(pa.RecordBatch.from_arrays([array], names=["c0"])).to_pylist()


def test_strings_and_bytes() -> None:
    assert decode(STRING, b"a", b"", "ü\nx".encode()) == ["a", "", "ü\nx"]
    assert decode(STRING, b"\xff", b"ok") == ["\ufffd", "ok"]
    assert decode(BYTES, b"\xff\n", b"") == [b"\xff\n", b""]
    assert decode(STRING) == []
    assert encode(STRING, pa.array(["ü", None, ""])) == ["ü".encode(), None, b""]


def test_numbers() -> None:
    assert decode(INT, b"\x00\x00\x01\x00", b"\xff\xff\xff\xff") == [256, -1]
    assert decode(INT, b"\x00\x01\x00\x00", endianness="little-endian") == [256]
    assert decode(BOOLEAN, b"\x01", b"\x00") == [True, False]
    assert encode(BIGINT, pa.array([256, None])) == [b"\x00\x00\x00\x00\x00\x00\x01\x00", None]
    assert encode(BOOLEAN, pa.array([True, False])) == [b"\x01", b"\x00"]
    assert decode(DOUBLE, *encode(DOUBLE, pa.array([1.5, -0.25]))) == [1.5, -0.25]


def test_a_wrong_length_names_the_message() -> None:
    with pytest.raises(RecordError, match="message 1: INT needs 4 bytes, the message has 3"):
        decode(INT, b"abcd", b"abc")


def test_what_it_cannot_hold() -> None:
    with pytest.raises(OptionError, match="exactly one column"):
        registry.format("raw").decoder((Field("a", INT), Field("b", INT)), {}, "UTC")
    with pytest.raises(OptionError, match="cannot hold DATE"):
        registry.format("raw").encoder((Field("a", DATE),), {}, "UTC")
    with pytest.raises(OptionError, match="endianness"):
        registry.format("raw").validate({"endianness": "middle"})
