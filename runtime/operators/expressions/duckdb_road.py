"""The DuckDB road: calls that Arrow has no kernel for, as one prepared statement over the batch.

One DuckDB instance per process, loaded when the first such calc is compiled; one cursor per statement, used by its
task's thread alone. User SQL never reaches files or the network through it: external access is off and the
configuration is locked. Registered once and prepared once; DuckDB asks for a new Arrow stream at each execution.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.ir.expressions import Call
from planner.ir.types import to_arrow
from runtime.operators.expressions.arrow import ArrowSchema, ArrowType, RecordBatch, pa
from runtime.operators.expressions.context import Kernel, Vector
from runtime.operators.expressions.vectors import as_array, length_of

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "128MB"
"""DuckDB's share of a slot's memory: a statement holds one batch and its answer, nothing else."""

SQL = {"MD5": "md5({0})", "SHA256": "sha256({0})"}
"""Function id → DuckDB expression over its arguments. Held against Flink's answers like every other kernel."""

_instance: duckdb.DuckDBPyConnection | None = None
_lock = threading.Lock()


def _cursor() -> duckdb.DuckDBPyConnection:
    """A cursor of the process's one instance."""
    global _instance
    with _lock:
        if _instance is None:
            import duckdb

            instance = duckdb.connect(":memory:")
            for setting in (
                # Nothing to optimise in a projection: planning it would double the fixed cost of a batch.
                "GLOBAL enable_optimizer = false",
                "threads = 1",
                "async_threads = 0",
                f"memory_limit = '{MEMORY_LIMIT}'",
                "temp_directory = ''",
                "TimeZone = 'UTC'",
                "enable_external_access = false",
                "autoinstall_known_extensions = false",
                "autoload_known_extensions = false",
                "lock_configuration = true",
            ):
                instance.execute(f"SET {setting}")
            _instance = instance
        return _instance.cursor()


class _Batch:
    """What the cursor has registered: gives DuckDB a stream over the current batch at each execution."""

    def __init__(self, schema: ArrowSchema) -> None:
        self.schema = schema
        self.batch: RecordBatch | None = None

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self.batch is not None
        return pa.RecordBatchReader.from_batches(self.schema, [self.batch]).__arrow_c_stream__(requested_schema)


class Statement:
    """The calls as columns of one prepared SELECT; called with their arguments, in order, one after the other."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        arguments = [argument for call in calls for argument in call.args]
        names = [f"a{index}" for index in range(len(arguments))]
        self._schema = pa.schema([pa.field(n, to_arrow(a.type)) for n, a in zip(names, arguments, strict=True)])
        self._types = [to_arrow(call.type) for call in calls]
        self._holder = _Batch(self._schema)
        self._cursor = _cursor()
        self._cursor.register("rows", self._holder)
        selected: list[str] = []
        for call in calls:
            taken, names = names[: len(call.args)], names[len(call.args) :]
            selected.append(f"{SQL[call.function].format(*taken)} AS r{len(selected)}")
        self._cursor.execute(f"PREPARE calls AS SELECT {', '.join(selected)} FROM rows")
        self._execute = self._cursor.extract_statements("EXECUTE calls")[0]

    def __call__(self, n: int, *arguments: Vector) -> list[Any]:
        vectors = [as_array(argument, n) for argument in arguments]
        # DuckDB re-types silently when a column's type drifts: refuse that here.
        assert [vector.type for vector in vectors] == self._schema.types
        self._holder.batch = pa.RecordBatch.from_arrays(vectors, schema=self._schema)
        columns = self._cursor.execute(self._execute).fetchnumpy()
        self._holder.batch = None
        return [_to_array(column, t) for column, t in zip(columns.values(), self._types, strict=True)]


def _to_array(column: Any, t: ArrowType) -> Any:
    """A numpy column of a result; it is masked where there are NULLs."""
    mask = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None
    return pa.array(np.ma.getdata(column), t, mask=mask)


def statement(calls: tuple[Call, ...]) -> Kernel:
    """The kernel (row count, arguments of all calls…) → list of their answers."""
    return Statement(calls)


def single(call: Call) -> Kernel:
    """The kernel of one call on its own."""
    prepared = Statement((call,))

    def kernel(*arguments: Vector) -> Vector:
        return prepared(length_of(*arguments), *arguments)[0]

    return kernel
