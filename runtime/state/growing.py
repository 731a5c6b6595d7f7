"""Arrays that grow without being copied: a large one has address space reserved behind it, and memory is taken page by
page when it is first written."""

from __future__ import annotations

import mmap
from typing import Any, cast

import numpy as np
import numpy.typing as npt

RESERVED_FROM_BYTES = 1 << 20
"""Smaller arrays are copied: that takes less than a millisecond."""
RESERVED_BYTES_MIN = 1 << 30
RESERVED_FACTOR = 16
HUGE_PAGE_BYTES = 2 << 20
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)

NumpyArray = npt.NDArray[Any]


def grown(array: NumpyArray, capacity: int) -> NumpyArray:
    """The array with room for `capacity` items (more than it has); what is new is undefined. The old one must not be
    used any more: both may be the same memory."""
    words = int(np.prod(array.shape[1:]))
    flat = _reserved(array)
    if flat is None or len(flat) < capacity * words:
        flat = _allocated(capacity * words, array.dtype)
        flat[: array.size] = array.reshape(-1)
    else:
        _join_pages(flat, array.nbytes)
    return flat[: capacity * words].reshape((capacity, *array.shape[1:]))


def _reserved(array: NumpyArray) -> NumpyArray | None:
    """The flat array over all the address space that was reserved for one of this module's arrays."""
    root: Any = array.base
    owner: Any = root.base if isinstance(root, np.ndarray) else None
    is_reserved = isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)
    return root if is_reserved else None


def _join_pages(flat: NumpyArray, used_bytes: int) -> None:
    """The kernel may join pages that are in use to huge ones, in its own time. It may not do so with those to come:
    the first touch of a huge page takes as long as a batch."""
    owner: Any = flat.base
    length = used_bytes - used_bytes % HUGE_PAGE_BYTES
    if length:
        owner.obj.madvise(mmap.MADV_HUGEPAGE, 0, length)


def _allocated(count: int, dtype: np.dtype[Any]) -> NumpyArray:
    wanted = count * dtype.itemsize
    if wanted >= RESERVED_FROM_BYTES:
        size = max(RESERVED_BYTES_MIN, RESERVED_FACTOR * wanted)
        try:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        except OSError:  # The address space of the process is limited.
            return np.empty(count, dtype)
        flat: NumpyArray = np.frombuffer(cast(Any, memory), dtype, size // dtype.itemsize)
        return flat
    return np.empty(count, dtype)
