"""Fixed-width text of dates and times, written column by column into one byte matrix (no Python per row)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.operators.expressions.arrow import pa
from runtime.operators.expressions.civil import Int64s
from runtime.operators.expressions.vectors import Mask, bitmap

Part = bytes | tuple[Int64s, int]
"""A literal, or integers with the number of digits to write (they must fit)."""


def fixed_width_text(parts: Sequence[Part], valid: Mask | None, length: int) -> Any:
    """A string array whose rows are the parts side by side."""
    width = sum(len(part) if isinstance(part, bytes) else part[1] for part in parts)
    matrix: npt.NDArray[np.uint8] = np.empty((length, width), np.uint8)
    column = 0
    for part in parts:
        if isinstance(part, bytes):
            matrix[:, column : column + len(part)] = np.frombuffer(part, np.uint8)
            column += len(part)
            continue
        values, digits = part
        rest = np.broadcast_to(values, length)
        for position in range(column + digits - 1, column - 1, -1):
            rest, digit = np.divmod(rest, 10)
            matrix[:, position] = digit + 48
        column += digits
    offsets = np.arange(length + 1, dtype=np.int32) * width
    buffers = [bitmap(valid, length), pa.py_buffer(offsets), pa.py_buffer(matrix)]
    return pa.Array.from_buffers(pa.string(), length, buffers)
