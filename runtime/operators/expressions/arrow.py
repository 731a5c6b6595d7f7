"""pyarrow without its stubs: they type a vector by its element, which kernels over any type cannot name.

What leaves this package (calcs, batches) is typed by pyarrow's own stubs again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

import pyarrow
import pyarrow.compute


class _Functions(Protocol):
    def __getattr__(self, name: str) -> Callable[..., Any]: ...


pa: Any = pyarrow
pc = cast(_Functions, pyarrow.compute)

ArrowType: TypeAlias = Any
"""A `pyarrow.DataType` whose parameters (precision, scale, unit, …) are read without asking its class."""

ArrowSchema = pyarrow.Schema
RecordBatch = pyarrow.RecordBatch
