"""A real slot process under a small supervisor: from deployment to the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, InputRef, Literal
from runtime.api import ResultLostError, ResultPage
from runtime.exchange.fetch import fetch
from runtime.ids import AttemptId
from runtime.lifeline import ORPHANED_EXIT_CODE
from runtime.protocol.messages import (
    CancelTasks,
    CheckpointAcknowledged,
    CheckpointCommitted,
    DeployTasks,
    EndSources,
    InputsEnded,
    Ping,
    Pong,
    SlotReport,
    TaskState,
    TaskStateChanged,
)
from tests.support.slots import JOB, SlotProcess, attempt, task

NUMBERS = ir.Schema((ir.Column("n", t.INT),))


def values(*numbers: int) -> ir.Values:
    return ir.Values("values", "values", tuple((Literal(n, t.INT),) for n in numbers), NUMBERS)


def greater(limit: int) -> ir.Calc:
    condition = Call("GT", (InputRef(0, t.INT), Literal(limit, t.INT)), t.BOOLEAN)
    return ir.Calc("calc", "calc", condition, (InputRef(0, t.INT),), NUMBERS)


COLLECT = ir.Collect("collect", "collect", NUMBERS)


def page(slot: SlotProcess, who: AttemptId, sequence: int, rows_max: int = 100, wait_ms: int = 10_000) -> ResultPage:
    return asyncio.run(fetch(("127.0.0.1", slot.port), who, sequence, rows_max, wait_ms))


def test_a_query_runs_from_deployment_to_its_end(tmp_path: Path) -> None:
    who = attempt(1)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1, 2, 3, 4, 5), greater(2), COLLECT), str(tmp_path)))
        slot.start()
        slot.wait_state(who, TaskState.RUNNING)
        first = page(slot, who, 0, rows_max=2)
        assert first.rows.to_pydict() == {"c0": [3, 4]}
        assert (first.next_sequence, first.ended) == (2, False)
        assert page(slot, who, 0, rows_max=2).rows.equals(first.rows)
        slot.wait(InputsEnded)
        slot.trigger(1, who)
        acknowledged = slot.acknowledged(1, who)
        assert acknowledged.snapshot.finished
        assert [s.uid for s in acknowledged.snapshot.operators] == ["values", "calc", "collect"]
        slot.commit(1)
        slot.wait(CheckpointCommitted)
        slot.trigger(2, who)
        slot.acknowledged(2, who)
        assert not slot.find(TaskStateChanged, lambda m: m.state is TaskState.FINISHED)
        last = page(slot, who, 2)
        assert last.rows.to_pydict() == {"c0": [5]}
        assert last.ended
        finished = slot.wait_state(who, TaskState.FINISHED)
        before = slot.messages[: slot.messages.index(finished)]
        reports = [m for report in before if isinstance(report, SlotReport) for m in report.tasks]
        assert reports[-1].records_in == 5
        assert reports[-1].operators["calc"] == {"numRecordsFiltered": 2}
        assert page(slot, who, 2).rows.equals(last.rows)


def test_a_repeated_trigger_is_one_checkpoint(tmp_path: Path) -> None:
    who = attempt(1)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1), COLLECT), str(tmp_path)))
        slot.start()
        slot.wait(InputsEnded)
        slot.trigger(1, who)
        slot.trigger(1, who)
        slot.trigger(2, who)
        slot.acknowledged(2, who)
        assert len(slot.find(CheckpointAcknowledged, lambda m: m.checkpoint_id == 1)) == 1


def test_an_unknown_result_is_lost(tmp_path: Path) -> None:
    with SlotProcess() as slot, pytest.raises(ResultLostError):
        page(slot, attempt(7), 0)


def test_ping_is_answered_with_progress(tmp_path: Path) -> None:
    who = attempt(1)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1), COLLECT), str(tmp_path)))
        slot.send(Ping(3))
        assert slot.wait(Pong) == Pong(3, {str(who): 0})


def test_the_lifeline_ends_the_process() -> None:
    with SlotProcess() as slot:
        assert slot.cut_lifeline() == ORPHANED_EXIT_CODE


def test_tasks_are_cancelled(tmp_path: Path) -> None:
    who = attempt(1)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1), COLLECT), str(tmp_path)))
        slot.start()
        slot.wait(InputsEnded)
        slot.cancel()
        slot.wait_state(who, TaskState.CANCELED)


def test_an_interrupt_of_the_terminal_does_not_reach_a_slot() -> None:
    with SlotProcess() as slot:
        slot.interrupt()
        slot.send(Ping(1))
        slot.wait(Pong)


def test_stale_messages_change_nothing(tmp_path: Path) -> None:
    who = attempt(1, generation=2)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1), COLLECT), str(tmp_path)), generation=2)
        slot.start(generation=1)
        slot.cancel(generation=1)
        slot.send(DeployTasks(slot.slot_id, JOB, 1, (task(attempt(1), (values(1), COLLECT), str(tmp_path)),)))
        slot.start(generation=2)
        slot.wait(InputsEnded, lambda m: m.attempt == who)
        assert not slot.find(TaskStateChanged, lambda m: m.attempt != who)


def test_a_newer_generation_ends_the_older_one(tmp_path: Path) -> None:
    old, new = attempt(1), attempt(1, number=2, generation=2)
    with SlotProcess() as slot:
        slot.deploy(task(old, (values(1), COLLECT), str(tmp_path)))
        slot.start()
        slot.deploy(task(new, (values(2), COLLECT), str(tmp_path)), generation=2)
        slot.wait_state(old, TaskState.CANCELED)
        slot.start(generation=2)
        assert page(slot, new, 0).rows.to_pydict() == {"c0": [2]}


def test_a_setting_that_cannot_be_used_fails_the_deployment(tmp_path: Path) -> None:
    who = attempt(1)
    table = ir.TableRef("t", "datagen", {"connector": "datagen"}, NUMBERS)
    source = ir.Source("source", "source", table, NUMBERS, (), (InputRef(0, t.INT),), NUMBERS)
    settings = {"table.exec.batch.max-rows": "many"}
    with SlotProcess() as slot:
        slot.send(DeployTasks(slot.slot_id, JOB, 1, (task(who, (source, COLLECT), str(tmp_path), settings=settings),)))
        failure = slot.wait_state(who, TaskState.FAILED).failure
        assert failure is not None
        assert failure.domain == "user"
        assert "table.exec.batch.max-rows" in failure.message


def test_a_failing_expression_is_a_users_failure(tmp_path: Path) -> None:
    who = attempt(1)
    divide = Call("DIVIDE", (Literal(1, t.INT), InputRef(0, t.INT)), t.INT, "1 / n")
    calc = ir.Calc("calc", "calc", None, (divide,), NUMBERS)
    with SlotProcess() as slot:
        slot.deploy(task(who, (values(1, 0), calc, COLLECT), str(tmp_path)))
        slot.start()
        failed = slot.wait_state(who, TaskState.FAILED)
        assert failed.failure is not None
        assert (failed.failure.domain, failed.failure.retry) == ("user", False)
        assert "1 / n" in failed.failure.message
        assert "Traceback" not in failed.failure.message


def test_what_is_said_to_all_is_not_for_a_task_that_still_restores(tmp_path: Path) -> None:
    """Two regions in a slot: one runs, the other starts again. The commit is for the first only."""
    runs, restores = attempt(1), attempt(2)
    with SlotProcess() as slot:
        slot.deploy(task(runs, (values(1), greater(0), COLLECT), str(tmp_path)))
        slot.start()
        slot.wait_state(runs, TaskState.RUNNING)
        slot.deploy(task(restores, (values(2), greater(0), COLLECT), str(tmp_path)))
        slot.commit(1)
        slot.wait(CheckpointCommitted, lambda m: m.attempt == runs)
        slot.send(EndSources(slot.slot_id, JOB, 1), Ping(7))
        slot.wait(Pong, lambda m: m.number == 7)
        assert not slot.find(CheckpointCommitted, lambda m: m.attempt == restores)
        # One is cancelled, the other goes on.
        slot.send(CancelTasks(slot.slot_id, JOB, 1, (restores,)))
        slot.wait_state(restores, TaskState.CANCELED)
        slot.commit(2)
        slot.wait(CheckpointCommitted, lambda m: m.attempt == runs and m.checkpoint_id == 2)
