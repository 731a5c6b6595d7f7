"""The sink operator over a writer that records."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors import registry
from connectors.api import OwnerState
from planner.ir import operators as ir
from planner.ir import types as t
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.errors import TaskError
from runtime.operators.sink import SinkOperator
from runtime.protocol.messages import CheckpointRequested
from tests.support.operators import ATTEMPT, HandConnector, HandWriter, Surroundings, batch_of, ints

COLUMNS = ir.Schema((ir.Column("a", t.INT), ir.Column("b", t.INT)))
TABLE = ir.TableRef("db.out", "hand", {}, COLUMNS)


class Bench:
    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        directory: Path,
        node: ir.Sink,
        restore: OperatorRestore | None = None,
    ) -> None:
        connector = HandConnector()
        monkeypatch.setattr(registry, "connector", lambda name: connector)
        self.writer: HandWriter = connector.sink_writer
        self.surroundings = Surroundings(str(directory), restore=restore)
        self.sink = SinkOperator(node, self.surroundings.context, self.surroundings.environment)
        self.sink.open()

    def written(self) -> list[dict[str, list[int]]]:
        return [batch.to_pydict() for batch in self.writer.written]


def node(**fields: object) -> ir.Sink:
    return ir.Sink("sink", "sink", TABLE, COLUMNS, **fields)  # type: ignore[arg-type]


def test_open_recovers_its_owners_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    owners = (OwnerState(0, floor=3), OwnerState(4))
    bench = Bench(monkeypatch, tmp_path, node(), OperatorRestore("sink", owners=owners))
    assert bench.writer.owners == list(owners)
    assert bench.sink.markers == {0: 7, 4: 7}
    context = bench.writer.context
    assert context is not None
    assert context.files.locate("x") == str(tmp_path / "x")
    assert (context.attempt, context.incarnation) == (str(ATTEMPT), "inc")


def test_a_fresh_start_recovers_the_subtask_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Bench(monkeypatch, tmp_path, node()).writer.owners == [OwnerState(0)]


def test_the_selection_orders_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, node(selection=(2, 0)))
    assert list(bench.sink.process(batch_of(ints(1), ints(2), ints(3)))) == []
    assert bench.written() == [{"c0": [3], "c1": [1]}]


def test_null_in_a_not_null_column_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, node(not_null_columns=(1,)))
    bench.sink.process(batch_of(ints(None), ints(1)))
    with pytest.raises(TaskError, match=r"column 'b' of table db\.out is NOT NULL") as caught:
        bench.sink.process(batch_of(ints(1, 2), ints(1, None)))
    assert (caught.value.domain, caught.value.retry) == ("user", False)
    assert "not-null-enforcer" in caught.value.hint


def test_or_the_row_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drop = node(not_null_columns=(0, 1), not_null_enforcement=ir.NotNullEnforcement.DROP)
    bench = Bench(monkeypatch, tmp_path, drop)
    bench.sink.process(batch_of(ints(1, None, 3, 4), ints(1, 2, None, 4), kinds=[0, 1, 2, 3]))
    assert bench.written() == [{"c0": [1, 4], "c1": [1, 4]}]
    [kinds] = bench.writer.kinds
    assert kinds is not None
    assert kinds.to_pylist() == [0, 3]
    assert bench.sink.counters() == {"numRecordsSend": 2, "numRecordsDroppedNotNull": 2}


def test_a_checkpoint_is_asked_for_once_per_epoch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, node())
    bench.writer.wanted = True
    for _ in range(3):
        bench.sink.process(batch_of(ints(1), ints(1)))
    assert bench.surroundings.sent == [CheckpointRequested(ATTEMPT)]
    assert [c.checkpoint_id for c in bench.sink.snapshot(5)().committables] == [5]
    bench.sink.process(batch_of(ints(1), ints(1)))
    assert len(bench.surroundings.sent) == 2
