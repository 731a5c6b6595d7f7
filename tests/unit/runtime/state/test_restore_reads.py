"""A restore at another parallelism reads each state file at most once per new owner, and only the rows it owns."""

from __future__ import annotations

import copy
import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.segment_order import merged
from runtime.checkpoint.snapshot import SegmentHandle
from runtime.key_groups import key_group_range
from tests.support.table_model import ModelTable
from tests.support.window_harness import MAX_PARALLELISM
from tests.unit.runtime.state.tables import BACKENDS, DEFAULTS, Pair, contents
from tests.unit.runtime.state.test_chains import small_limits
from tests.unit.runtime.state.test_keyed_table import random_shape

Chains = list[tuple[SegmentHandle, ...]]


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 32))
def test_each_file_is_opened_once_by_each_new_owner(backend: str, seed: int) -> None:
    choice = random.Random(seed)
    shape = random_shape(choice, backend, ttl=False)
    opened: Counter[str] = Counter()
    read = LocalFiles.open

    def counted(files: LocalFiles, path: str) -> pa.NativeFile:
        opened[path] += 1
        return read(files, path)

    with tempfile.TemporaryDirectory() as directory, small_limits(choice), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(LocalFiles, "open", counted)
        pairs = [Pair(Path(directory), shape, (), subtask, 4) for subtask in range(4)]
        checkpoint_id = 0
        for parallelism in (8, 3, choice.choice((1, 2, 5))):
            chains: Chains = []
            for _ in range(choice.randrange(1, 4)):
                for pair in pairs:
                    pair.batch(choice, 20, 12)
                checkpoint_id += 1
                chains = [pair.backend.capture(checkpoint_id)() for pair in pairs]
                for pair in pairs:
                    pair.notices.committed(checkpoint_id)
            models = [copy.deepcopy(pair.model) for pair in pairs]
            for pair in pairs:
                pair.close()
            pairs = []
            for subtask in range(parallelism):
                first, last = key_group_range(subtask, parallelism, MAX_PARALLELISM)
                segments = merged(
                    [[h for h in c if h.key_group_first <= last and first <= h.key_group_last] for c in chains]
                )
                opened.clear()
                pair = Pair(Path(directory), shape, segments, subtask, parallelism)
                assert set(opened) == {segment.path for segment in segments}
                assert set(opened.values()) <= {1}
                pair.model = ModelTable(DEFAULTS)
                for model in models:
                    pair.model.rows.update({n: row for n, row in model.rows.items() if pair.owns(row[0])})
                pair.table.settle()
                assert contents(pair.table) == pair.expected()
                pairs.append(pair)
        for pair in pairs:
            pair.close()


def handle(path: str, first: int, last: int) -> SegmentHandle:
    return SegmentHandle(path, "s", first, last, 1, 1, "")


def test_files_of_all_chains_in_an_order_that_agrees_with_each() -> None:
    chains = [
        [handle("base", 0, 15), handle("b", 0, 15), handle("d", 0, 15)],
        [handle("base", 16, 31), handle("a", 16, 31), handle("b", 16, 31)],
        [handle("other", 32, 40)],
    ]
    order = merged(chains)
    paths = [segment.path for segment in order]
    assert sorted(paths) == ["a", "b", "base", "d", "other"]
    for chain in chains:
        positions = [paths.index(each.path) for each in chain]
        assert positions == sorted(positions)
    assert order[paths.index("base")] == handle("base", 0, 31)
    assert order[paths.index("d")] == handle("d", 0, 15)


def test_what_lies_between_is_not_read() -> None:
    """Its rows were written anew elsewhere."""
    assert merged([[handle("f", 0, 9)], [handle("f", 12, 15)]]) == (handle("f", 0, 9), handle("f", 12, 15))
