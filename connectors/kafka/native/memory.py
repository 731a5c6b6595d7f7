"""Foreign memory as columns: fields of structures and texts at addresses, gathered without Python per record."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Addresses = npt.NDArray[np.int64]
Int64Array = npt.NDArray[np.int64]

_FIRST = 4096
"""The lowest address a process can have something at."""
_WORDS = ((1 << 47) - _FIRST) // 8
# All of user memory as one array of words. Nothing is read but what is indexed.
_MEMORY: npt.NDArray[np.int64] = np.frombuffer(cast(Any, (ctypes.c_int64 * _WORDS).from_address(_FIRST)), np.int64)

_WINDOW_BYTES = 1 << 31
"""What the 32-bit offset of a view reaches."""
_INLINE_BYTES = 12
"""Shorter texts stand in the view itself."""
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])
_NEWLINE_VIEW = np.array((1, 10, 0, 0), _VIEW)
_LOW_MASKS = np.array([(1 << (8 * min(n, 8))) - 1 for n in range(_INLINE_BYTES + 1)], np.uint64)
_HIGH_MASKS = np.array([(1 << (8 * max(n - 8, 0))) - 1 for n in range(_INLINE_BYTES + 1)], np.uint64)


def words(addresses: Addresses) -> Int64Array:
    """The aligned 8-byte word at each address."""
    found: Int64Array = _MEMORY[(addresses - _FIRST) >> 3]
    return found


def joined_lines(addresses: Addresses, sizes: Int64Array) -> tuple[pa.Buffer, Int64Array]:
    """One buffer of the texts at the addresses, each followed by a newline, and where each begins (one entry more than
    texts). Copies: the memory may be freed afterwards."""
    count = len(addresses)
    if count == 0:
        return pa.py_buffer(b""), np.zeros(1, np.int64)
    views = np.empty((count, 2), _VIEW)
    views[:, 1] = _NEWLINE_VIEW
    windows = _fill_views(views[:, 0], addresses, sizes)
    # The prefixes that a view of a long text should have are left out: nothing compares these views.
    buffers = [None, pa.py_buffer(cast(Any, views)), *windows]
    lines = pa.Array.from_buffers(cast(Any, pa.binary_view()), 2 * count, cast(Any, buffers)).cast(pa.binary())
    _, offsets, data = lines.buffers()
    starts = np.frombuffer(cast(Any, offsets), np.int32, 2 * count + 1)[::2].astype(np.int64)
    return cast(pa.Buffer, data), starts


def _fill_views(views: npt.NDArray[Any], addresses: Addresses, sizes: Int64Array) -> list[pa.Buffer]:
    """Views of the texts; returns the windows of memory they lie in."""
    views["length"] = sizes
    short = (sizes <= _INLINE_BYTES).nonzero()[0]
    windows: list[pa.Buffer] = []
    rest = addresses if len(short) == 0 else addresses[sizes > _INLINE_BYTES]
    places = None if len(short) == 0 else np.flatnonzero(sizes > _INLINE_BYTES)
    while len(rest):
        base = int(rest.min())
        inside = rest < base + _WINDOW_BYTES
        if bool(inside.all()):
            chosen, offsets = (slice(None) if places is None else places), rest - base
            rest = rest[:0]
        else:
            places = np.arange(len(rest)) if places is None else places
            chosen, offsets = places[inside], rest[inside] - base
            places, rest = places[~inside], rest[~inside]
        views["buffer"][chosen] = len(windows)
        views["offset"][chosen] = offsets
        # Twice the reach: the last text begins, but need not end, within it.
        windows.append(cast(Any, pa.foreign_buffer)(base, 2 * _WINDOW_BYTES))
    if len(short):
        _fill_short(views, short, addresses[short], sizes[short])
    return windows


def _fill_short(views: npt.NDArray[Any], places: Int64Array, addresses: Addresses, sizes: Int64Array) -> None:
    """Texts of at most 12 bytes, read by whole aligned words that hold at least one of their bytes."""
    present = sizes > 0
    low, high = np.zeros(len(places), np.uint64), np.zeros(len(places), np.uint64)
    at, size = addresses[present], sizes[present]
    first, last = at & ~7, (at + size - 1) & ~7
    one, two, three = (words(np.minimum(first + step, last)).view(np.uint64) for step in (0, 8, 16))
    shift = ((at & 7) << 3).astype(np.uint64)
    # Two shifts: one by 64 is undefined.
    back, half = np.uint64(63) - shift, np.uint64(1)
    low[present] = ((one >> shift) | ((two << back) << half)) & _LOW_MASKS[size]
    high[present] = ((two >> shift) | ((three << back) << half)) & _HIGH_MASKS[size]
    views["prefix"][places] = (low & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    views["buffer"][places] = (low >> np.uint64(32)).astype(np.uint32).view(np.int32)
    views["offset"][places] = high.astype(np.uint32).view(np.int32)
