"""Part files: what is visible when, what survives a failure, and what is removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from connectors.api import Committable, FinishingWriter, OwnerState, SinkContext, TableDefinition
from connectors.errors import ConnectorError, OptionError
from connectors.filesystem.options import RollingPolicy
from connectors.filesystem.sink import FileWriter, RollClock
from connectors.registry import connector
from planner.ir import types as t
from planner.ir.types import Field
from runtime.checkpoint.files import LocalFiles
from tests.support.operators import ManualClock
from tests.unit.connectors.source_support import rows_of, table

EVERY_CHECK = {"sink.rolling-policy.check-interval": "0 s", "sink.rolling-policy.rollover-interval": "0 s"}
FIELDS = (Field("id", t.INT), Field("name", t.STRING))


def definition(path: Path, format_name: str = "json", **options: str) -> TableDefinition:
    return TableDefinition(
        "t", {"connector": "filesystem", "path": str(path), "format": format_name, **options}, FIELDS
    )


def context(subtask: int = 0, attempt: str = "a1", namespace: str = "job-0", restored: int = 0) -> SinkContext:
    return SinkContext(subtask, 1, namespace, "inc", attempt, LocalFiles("/nowhere"), restored, (), "UTC")


def writer(
    path: Path,
    attempt: str = "a1",
    *,
    subtask: int = 0,
    pending: tuple[Committable, ...] = (),
    owners: list[OwnerState] | None = None,
    format_name: str = "json",
    namespace: str = "job-0",
    options: dict[str, str] | None = None,
) -> FileWriter:
    sink = connector("filesystem").sink(definition(path, format_name, **options or {}))
    assert (sink.committing, sink.delivery_guarantee) == (True, "exactly-once")
    sink.prepare(namespace)
    made = sink.writer(context(subtask, attempt, namespace))
    assert isinstance(made, FileWriter)
    assert isinstance(made, FinishingWriter)
    resolved = owners or [OwnerState(subtask, pending)]
    assert set(made.recover(resolved)) == {state.owner for state in resolved}
    return made


def die(made: FileWriter) -> None:
    """The process is gone: nothing is finished, nothing tidied up."""
    if made._file is not None:
        made._file.abandon()


def rows(*ids: int) -> pa.RecordBatch:
    columns: Any = [pa.array(ids, pa.int32()), pa.array([f"n{i}" for i in ids], pa.string())]
    return pa.RecordBatch.from_arrays(columns, ["c0", "c1"])


def visible(path: Path) -> list[int]:
    """Ids in visible files, sorted."""
    files = [file for file in path.iterdir() if not file.name.startswith(".")]
    return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())


def hidden(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.name.endswith(".inprogress"))


def test_rows_show_when_their_checkpoint_is_committed(tmp_path: Path) -> None:
    made = writer(tmp_path, options=EVERY_CHECK)
    made.write(rows(1, 2), None)
    first = made.prepare_commit(1)
    made.write(rows(3), None)
    second = made.prepare_commit(2)
    assert [c.checkpoint_id for c in second] == [1, 2]
    assert [(c.record_count, c.owner) for c in second] == [(2, 0), (1, 0)]
    assert visible(tmp_path) == []
    made.commit(1)
    assert visible(tmp_path) == [1, 2]
    made.commit(1)
    made.commit(2)
    assert visible(tmp_path) == [1, 2, 3]
    assert made.prepare_commit(3) == ()
    assert made.gauges() == {"pendingEpochs": 0.0, "numFilesCommitted": 2.0}
    assert first[0] == second[0]


def test_a_file_stays_open_over_checkpoints_until_it_is_complete(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(rows(1), None)
    for checkpoint_id in (1, 2):
        assert [c.checkpoint_id for c in made.prepare_commit(checkpoint_id)] == [checkpoint_id]
        made.commit(checkpoint_id)
        made.write(rows(1 + checkpoint_id), None)
    assert visible(tmp_path) == []
    assert len(hidden(tmp_path)) == 1
    made.finish()
    made.prepare_commit(3)
    made.commit(3)
    assert visible(tmp_path) == [1, 2, 3]
    assert hidden(tmp_path) == []


def test_a_file_is_complete_at_its_size(tmp_path: Path) -> None:
    made = writer(tmp_path, options={"sink.rolling-policy.file-size": "60 b"})
    for i in range(6):
        made.write(rows(i), None)
    made.prepare_commit(1)
    made.commit(1)
    assert visible(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert len(list(tmp_path.glob("part-*"))) == 2


def test_times_of_the_policy_are_looked_at_once_per_check_interval() -> None:
    clock = ManualClock()
    roll = RollClock(RollingPolicy(1000, 100, 50, 30), clock)
    for ms, due in ((0, False), (29, False), (49, False), (50, False), (79, True)):
        clock.ms = 1000.0 + ms
        assert roll.is_due(10) is due, ms
    roll.on_begin()
    for ms in range(0, 121, 20):
        clock.ms = 1079.0 + ms
        assert roll.is_due(10) is (ms == 120), ms
        roll.on_rows()
    assert roll.is_due(1000)


def test_after_a_failure_each_row_of_the_checkpoint_shows_once(tmp_path: Path) -> None:
    made = writer(tmp_path, options=EVERY_CHECK)
    made.write(rows(1), None)
    pending = made.prepare_commit(1)
    made.write(rows(2), None)
    die(made)  # Nothing is committed; row 2 will come again.
    again = writer(tmp_path, "a2", pending=pending, options=EVERY_CHECK)
    assert visible(tmp_path) == [1]
    assert hidden(tmp_path) == []
    again.write(rows(2), None)
    pending = again.prepare_commit(2)
    again.commit(2)
    writer(tmp_path, "a3", pending=pending)
    assert visible(tmp_path) == [1, 2]


@pytest.mark.parametrize("lost_at", ["never", "copy"])
def test_a_file_that_was_open_is_cut_where_the_checkpoint_was(tmp_path: Path, lost_at: str) -> None:
    made = writer(tmp_path)
    made.write(rows(1, 2), None)
    pending = made.prepare_commit(1)
    made.commit(1)
    made.write(rows(3), None)
    made._file.sync()  # type: ignore[union-attr]
    if lost_at == "copy":
        # An attempt to recover that died before its rename.
        (name,) = hidden(tmp_path)
        part_copy = name.removesuffix(".inprogress") + ".a2.inprogress"
        tmp_path.joinpath(part_copy).write_bytes(b"half")
    writer(tmp_path, "a3", pending=pending)
    made.write(rows(4), None)  # The old attempt was cut off, but not dead.
    made._file.sync()  # type: ignore[union-attr]
    assert visible(tmp_path) == [1, 2]
    assert hidden(tmp_path) == []
    writer(tmp_path, "a4", pending=pending)
    assert visible(tmp_path) == [1, 2]
    die(made)


def test_only_hidden_files_of_its_own_are_removed(tmp_path: Path) -> None:
    foreign = [
        ".part-job-0-1-a1-0.json.inprogress",
        ".part-job-1-0-a1-0.json.inprogress",
        ".part-job-00-0-a1-0.json.inprogress",
        ".hidden",
        "part-job-0-0-a0-0.json",
        ".part-job-0-0-a0-0.json",
    ]
    for name in foreign:
        tmp_path.joinpath(name).write_text("")
    tmp_path.joinpath(".part-job-0-0-a0-0.json.inprogress").write_text("")
    tmp_path.joinpath(".part-job-0-2-a0-0.json.inprogress").write_text("")
    writer(tmp_path, owners=[OwnerState(0), OwnerState(2)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_a_file_that_the_checkpoint_lists_but_is_gone_stops_the_job(tmp_path: Path) -> None:
    made = writer(tmp_path, options=EVERY_CHECK)
    made.write(rows(1), None)
    pending = made.prepare_commit(1)
    tmp_path.joinpath(hidden(tmp_path)[0]).unlink()
    with pytest.raises(ConnectorError, match="are not there any more") as caught:
        writer(tmp_path, "a2", pending=pending)
    assert not caught.value.retry


def take_away(path: Path) -> int:
    """What a reader does that moves files when it has seen them; how many there were."""
    taken = list(path.glob("part-*"))
    for file in taken:
        file.unlink()
    return len(taken)


def test_a_file_that_was_visible_may_be_taken_away(tmp_path: Path) -> None:
    made = writer(tmp_path, options=EVERY_CHECK)
    made.write(rows(1), None)
    pending = made.prepare_commit(3)
    made.commit(3)
    assert take_away(tmp_path) == 1
    # The failure came before anybody heard of the commit.
    again = writer(tmp_path, "a2", pending=pending)
    again.write(rows(2), None)
    pending = again.prepare_commit(4)
    die(again)
    writer(tmp_path, "a3", pending=pending)
    assert visible(tmp_path) == [2]
    assert take_away(tmp_path) == 1
    last = writer(tmp_path, "a4", pending=pending)
    assert visible(tmp_path) == []
    last.finish()
    last.prepare_commit(5)
    last.commit(5)
    assert list(tmp_path.iterdir()) == []


def test_an_open_file_shorter_than_the_checkpoint_says_stops_the_job(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(rows(1), None)
    pending = made.prepare_commit(1)
    die(made)
    tmp_path.joinpath(hidden(tmp_path)[0]).write_bytes(b"{")
    with pytest.raises(ConnectorError, match="are not there any more"):
        writer(tmp_path, "a2", pending=pending)
    assert visible(tmp_path) == []


def test_closing_removes_what_no_checkpoint_lists(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(rows(1), None)
    made.close()
    assert hidden(tmp_path) == []
    listed = writer(tmp_path)
    listed.write(rows(1), None)
    listed.prepare_commit(1)
    listed.close()
    assert len(hidden(tmp_path)) == 1


def test_parquet_files_are_complete_at_each_checkpoint_and_read_again(tmp_path: Path) -> None:
    made = writer(tmp_path, format_name="parquet", options={"parquet.compression": "zstd"})
    made.write(rows(1, 2), None)
    made.write(rows(3), None)
    made.prepare_commit(1)
    made.commit(1)
    made.write(rows(4), None)
    made.prepare_commit(2)
    assert len(hidden(tmp_path)) == 1
    made.commit(2)
    read = table({"connector": "filesystem", "path": str(tmp_path), "format": "parquet"}, name=t.STRING, id=t.BIGINT)
    expected = [{"c0": f"n{i}", "c1": i} for i in (1, 2, 3, 4)]
    assert sorted(rows_of(read), key=lambda row: row["c1"]) == expected  # type: ignore[arg-type, return-value]
    assert len(rows_of(read, rows_max=1)) == 4


def test_csv_lines(tmp_path: Path) -> None:
    made = writer(tmp_path / "csv", format_name="csv", options=EVERY_CHECK)
    made.write(rows(1, 2), None)
    made.prepare_commit(1)
    made.commit(1)
    (file,) = (tmp_path / "csv").glob("part-*")
    assert file.read_text() == "1,n1\n2,n2\n"
    assert file.suffix == ".csv"


def test_raw_lines_where_null_is_empty(tmp_path: Path) -> None:
    given = {"connector": "filesystem", "path": str(tmp_path), "format": "raw", **EVERY_CHECK}
    sink = connector("filesystem").sink(TableDefinition("t", given, (Field("line", t.STRING),)))
    made = sink.writer(context())
    made.recover([OwnerState(0)])
    lines: Any = pa.array(["a", None, "b"], pa.string())
    made.write(pa.RecordBatch.from_arrays([lines], ["c0"]), None)
    made.prepare_commit(1)
    made.commit(1)
    (file,) = tmp_path.glob("part-*")
    assert file.read_text() == "a\n\nb\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink.rolling-policy.file-size": "big"}, "'sink.rolling-policy.file-size': 'big' is not a memory size"),
        ({"sink.rolling-policy.size": "1 mb"}, "no option 'sink.rolling-policy.size'"),
        ({"format": "parquet", "parquet.compression": "rar"}, "'parquet.compression' cannot be 'rar'"),
        ({"format": "parquet", "json.ignore-parse-errors": "true"}, "no option 'json.ignore-parse-errors'"),
        ({"source.monitor-interval": "0 s"}, "must be longer than 0"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, str], message: str) -> None:
    given = msgspec.structs.replace(definition(tmp_path), options={**definition(tmp_path).options, **options})
    with pytest.raises(OptionError, match=message):
        connector("filesystem").sink(given)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match="is a file"):
        connector("filesystem").sink(definition(tmp_path / "file")).prepare("job-0")
    # Waiting does not help: the job fails at once instead of starting again and again.
    with pytest.raises(ConnectorError, match="cannot be made: Not a directory") as caught:
        connector("filesystem").sink(definition(tmp_path / "file" / "below")).prepare("job-0")
    assert not caught.value.retry


def test_a_commit_leaves_a_marker_that_recovery_answers_with(tmp_path: Path) -> None:
    """So a start from an older checkpoint is known to repeat output. What was never committed leaves none."""
    every_checkpoint = {"sink.rolling-policy.file-size": "1b"}
    first = writer(tmp_path, "a1", options=every_checkpoint)
    first.write(rows(1), None)
    first.prepare_commit(7)
    first.commit(7)
    first.write(rows(2), None)
    first.prepare_commit(8)
    die(first)
    sink = connector("filesystem").sink(definition(tmp_path, "json"))
    assert sink.writer(context(0, "a2", "job-0")).recover([OwnerState(0), OwnerState(1)]) == {0: 7, 1: 0}
