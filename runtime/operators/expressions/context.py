"""What expressions know of their surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from planner.ir.expressions import Call

Vector = Any
"""A `pyarrow.Array` or `pyarrow.Scalar`; pyarrow's stubs cannot name the union of all of them usefully."""

Kernel = Callable[..., Vector]


class EvaluationContext(msgspec.Struct, frozen=True):
    """`local_time_zone` is `table.local-time-zone` (an IANA name or an offset like `GMT+08:00`); `clock` gives the wall
    clock in ms since the epoch and is read once per batch."""

    local_time_zone: str
    clock: Callable[[], int]


Builder = Callable[[Call, EvaluationContext], Kernel]
"""Makes the kernel of a call once, at compilation: types, literals and the time zone are known by then."""


class UnsupportedExpression(Exception):
    """No kernel for these types or literals: said at compilation, before a row is read. `text` is the SQL of the call.
    Jobs are checked when they are submitted, so it never surprises a running one."""

    domain = "user"
    retry = False

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text
