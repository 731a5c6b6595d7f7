"""Which checkpoint ends a task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.taskmanager.task_checkpoints import TaskCheckpoints
from tests.support.slots import attempt, task


@pytest.fixture
def checkpoints() -> Any:
    """Of a task without operators: nothing is written, every commit is the checkpoint's."""
    descriptor = task(attempt(1), (), "")
    operators = SimpleNamespace(source=None, links=[], sinks=[], collect=None)
    made = TaskCheckpoints(descriptor, cast(Any, operators), cast(Any, None), cast(Any, None), lambda _: None)
    yield made
    made.close(finishing=False)


def test_a_checkpoint_after_the_end_is_the_last_one(checkpoints: TaskCheckpoints) -> None:
    checkpoints.capture(1, ended=False, last=False)
    checkpoints.on_committed(1, by_sinks=False)
    assert not checkpoints.final_committed
    checkpoints.capture(2, ended=True, last=False)
    checkpoints.on_committed(2, by_sinks=False)
    assert checkpoints.final_committed


def test_a_stop_that_was_given_up_ends_nothing(checkpoints: Any) -> None:
    checkpoints.capture(1, ended=False, last=True)
    assert checkpoints.stop_id == 1
    checkpoints.aborted(1)
    assert checkpoints.stop_id is None
    checkpoints.on_committed(2, by_sinks=False)
    assert not checkpoints.final_committed


def test_the_next_barrier_may_come_before_the_word_that_the_stop_was_given_up(checkpoints: TaskCheckpoints) -> None:
    checkpoints.capture(1, ended=False, last=True)
    checkpoints.capture(2, ended=True, last=False)
    assert checkpoints.stop_id is None
    checkpoints.aborted(1)
    checkpoints.on_committed(2, by_sinks=False)
    assert checkpoints.final_committed
