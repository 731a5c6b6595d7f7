"""Part files under any sequence of writes, checkpoints, half-done commits, crashes and rescaling, with a reader that
takes visible files away: in all it has seen each row that was part of a durable checkpoint exactly once."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import Committable, OwnerState, SinkContext, TableDefinition
from connectors.filesystem.sink import FileWriter
from connectors.registry import connector
from planner.ir import types as t
from planner.ir.types import Field
from runtime.checkpoint.files import LocalFiles


class Job:
    """The subtasks of one sink, and what the coordinator keeps of them."""

    def __init__(self, directory: Path, form: str, options: dict[str, str]) -> None:
        given = {"connector": "filesystem", "path": str(directory), "format": form, **options}
        self._sink = connector("filesystem").sink(TableDefinition("t", given, (Field("id", t.INT),)))
        self._generation = 0
        self._checkpoint_id = 0
        self._next_id = 0
        self._manifest: list[Committable] = []
        self._floors: dict[int, int] = {}
        self._unsafe: list[int] = []
        self.durable: list[int] = []
        self._owner_count = 0
        self.writers: list[FileWriter] = []
        self.start(1)

    def start(self, parallelism: int) -> None:
        """From the last durable checkpoint: rows behind it are gone."""
        self._generation += 1
        self._unsafe = []
        self._owner_count = max(self._owner_count, parallelism)
        self.writers = []
        for subtask in range(parallelism):
            attempt = f"g{self._generation}"
            context = SinkContext(subtask, parallelism, "job-0", "inc", attempt, LocalFiles("/nowhere"), 0, (), "UTC")
            writer = self._sink.writer(context)
            assert isinstance(writer, FileWriter)
            writer.recover([self._state(owner) for owner in range(subtask, self._owner_count, parallelism)])
            self.writers.append(writer)

    def _state(self, owner: int) -> OwnerState:
        pending = tuple(each for each in self._manifest if each.owner == owner)
        return OwnerState(owner, pending, self._floors.get(owner, 0))

    def write(self, which: int, count: int) -> None:
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        self._unsafe += ids
        rows: Any = pa.array(ids, pa.int32())
        self.writers[which % len(self.writers)].write(pa.RecordBatch.from_arrays([rows], ["c0"]), None)

    def checkpoint(self, commits: int, *, durable: bool = True) -> None:
        """`commits` subtasks get to commit it, and say so."""
        self._checkpoint_id += 1
        prepared = [each for writer in self.writers for each in writer.prepare_commit(self._checkpoint_id)]
        if not durable:
            return
        self._manifest = prepared
        self.durable += self._unsafe
        self._unsafe = []
        for subtask, writer in enumerate(self.writers[:commits]):
            writer.commit(self._checkpoint_id)
            acknowledged = [each.checkpoint_id for each in prepared if each.owner == subtask]
            self._floors[subtask] = max([self._floors.get(subtask, 0), *acknowledged])

    def crash(self, parallelism: int) -> None:
        for writer in self.writers:
            if writer._file is not None:
                writer._file.abandon()
        self.start(parallelism)

    def end(self) -> None:
        for writer in self.writers:
            writer.finish()
        self.checkpoint(len(self.writers))


def ids_of(path: Path) -> list[int]:
    if path.suffix == ".parquet":
        column: Any = pq.read_table(path).column(0)
        return list(column.to_pylist())
    return [int(json.loads(line)["id"]) for line in path.read_text().splitlines()]


def take(directory: Path) -> list[int]:
    """A reader that moves away what it has seen."""
    found = []
    for path in directory.glob("part-*"):
        found += ids_of(path)
        path.unlink()
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("checkpoint"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("crash"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("json", {}),
        ("json", {"sink.rolling-policy.file-size": "40 b"}),
        ("json", {"sink.rolling-policy.check-interval": "0 s", "sink.rolling-policy.rollover-interval": "0 s"}),
        ("parquet", {}),
    ],
    ids=["open", "by size", "each checkpoint", "parquet"],
)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_each_row_is_in_one_visible_file(form: str, options: dict[str, str], steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        job = Job(directory, form, options)
        taken: list[int] = []
        for kind, first, second in steps:
            if kind == "write":
                job.write(first, second)
            elif kind == "checkpoint":
                job.checkpoint(first, durable=bool(second))
            elif kind == "crash":
                job.crash(first)
            else:
                taken += take(directory)
        job.end()
        taken += take(directory)
        assert Counter(taken) == Counter(job.durable)
        assert list(directory.iterdir()) == []
