"""Direct calls of librdkafka: foreign memory as columns, and what is proven before the library is used."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pyarrow as pa
import pytest

from connectors.kafka.native import library
from connectors.kafka.native.memory import joined_lines, words
from connectors.kafka.native.producer import _point_to


@pytest.mark.parametrize("seed", range(20))
def test_texts_anywhere_become_lines(seed: int) -> None:
    """Short ones stand in their views, long ones are reached through windows; empty ones are lines, too."""
    rng = random.Random(seed)
    longest = rng.choice((3, 12, 13, 40, 5_000))
    texts = [rng.randbytes(rng.randint(0, longest)) for _ in range(rng.randint(1, 300))]
    sizes = np.array([len(text) for text in texts], np.int64)
    # At every alignment, and in an order of its own.
    shift = rng.randint(0, 7)
    blocks = [ctypes.create_string_buffer(b"x" * shift + text, len(text) + 16) for text in texts]
    starts = np.array([ctypes.addressof(each) + shift for each in blocks], np.int64)
    order = np.array(rng.sample(range(len(texts)), len(texts)))
    data, offsets = joined_lines(starts[order], sizes[order])
    expected = [texts[i] for i in order]
    assert bytes(data)[: int(offsets[-1])] == b"".join(text + b"\n" for text in expected)
    assert (np.diff(offsets) - 1).tolist() == [len(text) for text in expected]


def test_memory_far_apart_is_reached() -> None:
    """Texts on the heap and in a mapping lie more than one window apart."""
    near = ctypes.create_string_buffer(b"on the heap, long enough")
    far = np.frombuffer(b"in a large array of its own" * 1_000_000, np.uint8).copy()
    starts = np.array([ctypes.addressof(near), far.ctypes.data, ctypes.addressof(near)], np.int64)
    data, offsets = joined_lines(starts, np.array([24, 27, 5], np.int64))
    assert bytes(data)[: int(offsets[-1])] == b"on the heap, long enough\nin a large array of its own\non th\n"


def test_nothing_is_no_line() -> None:
    data, offsets = joined_lines(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert (bytes(data), offsets.tolist()) == (b"", [0])


def test_words_at_addresses() -> None:
    block = (ctypes.c_int64 * 4)(1, 2, 3, 4)
    start = ctypes.addressof(block)
    assert words(np.array([start + 24, start, start + 8])).tolist() == [4, 1, 2]


def test_messages_point_into_arrow_buffers() -> None:
    """An empty text has an address, a NULL has none; slices begin where they say."""
    texts = pa.array([b"skipped", b"abc", None, b"", b"de"], pa.binary()).slice(1)
    messages = np.zeros((4, library.MESSAGE_WORDS), np.int64)
    _point_to(messages, library.PAYLOAD, library.PAYLOAD_BYTES, texts)
    found = [
        ctypes.string_at(address, size) if address else None
        for address, size in messages[:, [library.PAYLOAD, library.PAYLOAD_BYTES]].tolist()
    ]
    assert found == [b"abc", None, b"", b"de"]


def test_the_locked_library_is_taken() -> None:
    assert library.load.__wrapped__() is not None


def test_another_version_is_not_called(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(library, "TESTED_VERSIONS", frozenset({"1.0.0"}))
    assert library.load.__wrapped__() is None
    assert "is not one of the tested 1.0.0" in caplog.text


def test_the_other_road_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "python")
    assert library.load.__wrapped__() is None
