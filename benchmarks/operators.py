"""One operator by itself: CPU per input row, without source, exchange and sink.

`make bench-operators [BENCH_ARGS="--rows N --only TEXT"]` measures them all: `joins` (regular joins and set
operations), `timed_joins` (interval, temporal and window joins), `lookups`, `ranks` (Top-N, deduplication, window
Top-N, ORDER BY) and `unnest`; each is a module of its own as well (`python -m benchmarks.joins`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from planner.ir import types as t
from runtime.checkpoint.files import LocalFiles
from runtime.elements import Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.protocol import KeyGroupRange, OperatorContext

ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
ROWS_PER_MS = 20
"""Event time: rows of one input per millisecond."""
LAG_MS = 1_000
"""How far watermarks are behind."""
STATE_EVERY_STEPS = 16

Make = Callable[[OperatorContext], Any]
"""The operator of a context."""
Step = tuple[int, Batch] | int
"""A batch of an input, or a watermark in ms."""


class NamedCase(Protocol):
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=NamedCase)


class Measured(msgspec.Struct, frozen=True):
    """`cpu_s` and `rows` per input; a watermark's work counts for input 0. `state_bytes`: the most that was seen."""

    cpu_s: tuple[float, ...]
    rows: tuple[int, ...]
    put_out: int
    state_bytes: int

    @property
    def ns_per_row(self) -> float:
        return sum(self.cpu_s) / sum(self.rows) * 1e9

    def __str__(self) -> str:
        per_row, size = self.put_out / sum(self.rows), self.state_bytes / 1e6
        return f"{self.ns_per_row:7,.0f} ns per row  {per_row:7.3f} rows put out per row  {size:7.1f} MB of state"


@contextmanager
def operator_context(backend: str = "hashmap", managed_bytes: int = 0) -> Iterator[OperatorContext]:
    """Of the only subtask, with a folder that goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield OperatorContext(
            attempt=AttemptId(JobId("0" * 32), 1, 1, 0, 1),
            parallelism=1,
            max_parallelism=128,
            key_groups=KeyGroupRange(0, 127),
            settings={"state.backend.type": backend},
            files=LocalFiles(folder),
            restore=None,
            managed_bytes=managed_bytes,
            wall_clock_ms=lambda: 0,
        )


def measure(make: Make, steps: Iterable[Step], *, backend: str = "hashmap", input_count: int = 1) -> Measured:
    """Feed the operator; what makes the steps is not measured."""
    with operator_context(backend) as context:
        operator = make(context)
        operator.open()
        cpu_s, rows, put_out, state_bytes = [0.0] * input_count, [0] * input_count, 0, 0.0
        for number, step in enumerate(steps):
            index = 0
            begin = time.thread_time()
            if isinstance(step, int):
                pieces = operator.advance(step)
            else:
                index, batch = step
                pieces = operator.process(batch) if input_count == 1 else operator.process_input(index, batch)
                rows[index] += batch.row_count
            put_out += sum(piece.row_count for piece in pieces)
            cpu_s[index] += time.thread_time() - begin
            if number % STATE_EVERY_STEPS == 0:
                state_bytes = max(state_bytes, operator.counters().get("stateBytes", 0))
        state_bytes = max(state_bytes, operator.counters().get("stateBytes", 0))
        operator.close()
    return Measured(tuple(cpu_s), tuple(rows), put_out, int(state_bytes))


def run(title: str | None, cases: Iterable[C], measured: Callable[[C, int], object]) -> None:
    """The command line of a module of cases: `measured` says what is printed of one, with that many rows."""
    parser = argparse.ArgumentParser(description=title, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    for case in cases:
        if arguments.only in case.name:
            print(f"{case.name:46} {measured(case, arguments.rows)}", flush=True)
