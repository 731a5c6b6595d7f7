"""The filesystem source: which files are found, order, positions, and errors that name file and line."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.api import LookupContext, MetadataField, SplitState, TableDefinition
from connectors.errors import ConnectorError, OptionError, RecordError
from connectors.filesystem.connector import CONNECTOR
from planner.ir.types import BIGINT, DATE, INT, STRING, timestamp_ltz
from tests.unit.connectors.source_support import read_all, reader, rows_of, source, splits, table


def options(path: Path | str, **given: str) -> dict[str, str]:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in given.items()}
    return {"connector": "filesystem", "path": str(path), "format": "json", **named}


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + end)
    return path


def test_a_file_is_read_in_order_at_any_batch_size(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", *(f'{{"id": {i}, "pad": "{"x" * (i % 50)}"}}' for i in range(500)))
    definition = table(options(file), id=INT)
    expected = [{"c0": i} for i in range(500)]
    assert rows_of(definition) == expected
    assert rows_of(definition, rows_max=1) == expected
    assert rows_of(definition, bytes_max=10) == expected
    assert rows_of(table(options(f"file://{file}"), id=INT)) == expected


def test_the_last_line_need_not_end_and_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", '{"id": 1}', '{"id": 2}\r', '{"id": 3}', end="")
    assert rows_of(table(options(file), id=INT), bytes_max=3) == [{"c0": 1}, {"c0": 2}, {"c0": 3}]
    (tmp_path / "empty.jsonl").touch()
    assert rows_of(table(options(tmp_path / "empty.jsonl"), id=INT)) == []


def test_a_directory_is_read_with_what_is_below_it_and_a_pattern_too(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b/c.jsonl", ".hidden", "_temporary", "b/_x/d.jsonl", "e.txt"):
        write(tmp_path / name, f'{{"name": "{name}"}}')
    found = [split.id.removeprefix(f"{tmp_path}/") for split in splits(table(options(tmp_path), name=STRING))]
    assert found == ["a.jsonl", "b/c.jsonl", "e.txt"]
    assert rows_of(table(options(tmp_path / "*.jsonl"), name=STRING)) == [{"c0": "a.jsonl"}]
    assert [s.id for s in splits(table(options(tmp_path / "**/*.jsonl"), name=STRING))] == [
        str(tmp_path / name) for name in ("a.jsonl", "b/_x/d.jsonl", "b/c.jsonl")
    ]


def test_a_bad_line_is_named_by_table_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", '{"id": 1}', '{"id":2,', '{"id": 3}')
    with pytest.raises(RecordError, match=r"table t, file .*in\.jsonl, line 2: .*begins: \{\"id\":2,"):
        rows_of(table(options(file), id=INT))
    definition = table(options(file, json__ignore_parse_errors="true"), id=INT)
    made = reader(definition)
    batches = read_all(made, [SplitState(split) for split in splits(definition)])
    assert [b.to_pylist() for parts in batches.values() for b in parts] == [[{"c0": 1}, {"c0": 3}]]
    (state,) = made.snapshot()
    assert (state.done, state.counters) == (True, {"numRecordsSkipped": 1})


def test_a_restored_reader_goes_on_at_the_line_and_keeps_its_count(tmp_path: Path) -> None:
    lines = [f'{{"id": {i}}}' for i in range(10)]
    lines[1] = "nonsense"
    lines[8] = '{"id": "eight"}'
    file = write(tmp_path / "in.jsonl", *lines)
    lenient = table(options(file, json__ignore_parse_errors="true"), id=INT)
    made = reader(lenient, rows_max=4)
    begun = read_all(made, [SplitState(split) for split in splits(lenient)], rows_wanted=3)
    states = made.snapshot()
    assert [state.counters for state in states] == [{"numRecordsSkipped": 1}]
    write(tmp_path / "in.jsonl", *lines, '{"id": 99}')  # What is appended later is not part of the split.
    rest = read_all(reader(lenient), states)
    assert [found["c0"] for parts in (begun, rest) for batch in parts[str(file)] for found in batch.to_pylist()] == [
        0,
        2,
        3,
        4,
        5,
        6,
        7,
        None,
        9,
    ]
    with pytest.raises(RecordError, match="line 9: field 'id': 'eight' is not an INT"):
        read_all(reader(table(options(file), id=INT)), states)


def test_metadata_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", '{"id": 1}', '{"id": 2}')
    wanted = (
        MetadataField("p", "file.path", STRING),
        MetadataField("n", "file.name", STRING),
        MetadataField("s", "file.size", BIGINT),
        MetadataField("m", "file.modification-time", timestamp_ltz(3)),
    )
    definition = table(options(file), id=INT)
    batches = read_all(reader(definition, metadata=wanted), [SplitState(split) for split in splits(definition)])
    rows = batches[str(file)][0].to_pylist()
    assert [list(found.values())[:4] for found in rows] == [[i, str(file), "in.jsonl", 20] for i in (1, 2)]
    assert abs(rows[0]["c4"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="there is no file at"):
        splits(table(options(tmp_path / "absent.jsonl"), id=INT))
    with pytest.raises(OptionError, match="needs the option 'path'"):
        source(table({"connector": "filesystem", "format": "json"}, id=INT))
    with pytest.raises(OptionError, match="only local files"):
        source(table(options("s3://bucket/key"), id=INT))
    with pytest.raises(OptionError, match=r"no option 'json\.ignore-errors'"):
        source(table(options(tmp_path, json__ignore_errors="true"), id=INT))
    with pytest.raises(OptionError, match=r"'source\.monitor-interval'.*duration"):
        source(table({**options(tmp_path), "source.monitor-interval": "soon"}, id=INT))


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", '{"id": 1}', '{"id": 2}')
    definition = table(options(file), id=INT)
    found = splits(definition)
    write(file, '{"id": 1}')
    with pytest.raises(ConnectorError, match="shorter than when it was found"):
        read_all(reader(definition), [SplitState(split) for split in found])


def watched(path: Path, **given: str) -> TableDefinition:
    return table({**options(path, **given), "source.monitor-interval": "10 ms"}, id=INT)


def test_a_watched_directory_gives_each_new_file_once_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", '{"id": 2}')
    definition = watched(tmp_path)
    assert not source(definition).bounded
    assert source(table(options(tmp_path), id=INT)).bounded
    enumerator = source(definition).enumerator()
    assert enumerator.discovery_interval_ms == 10
    known = [split.id for split in enumerator.discover(frozenset())]
    assert known == [str(tmp_path / "b.jsonl")]
    for name in ("d.jsonl", "c.jsonl", ".e.jsonl", "a/x.jsonl"):
        write(tmp_path / name, '{"id": 3}')
    found = [split.id for split in enumerator.discover(frozenset(known))]
    assert found == [str(tmp_path / name) for name in ("a/x.jsonl", "c.jsonl", "d.jsonl")]
    assert enumerator.discover(frozenset([*known, *found])) == []


def test_records_of_csv_may_hold_line_ends(tmp_path: Path) -> None:
    file = write(tmp_path / "in.csv", '1,"a', 'b"', "2,c", '3,"d ""', '"', "4,e", end="")
    definition = table({"connector": "filesystem", "path": str(file), "format": "csv"}, id=INT, v=STRING)
    expected = ["a\nb", "c", 'd "\n', "e"]
    for arguments in ({}, {"rows_max": 1}, {"bytes_max": 3}):
        assert [row["c1"] for row in rows_of(definition, **arguments)] == expected
    made = reader(definition, rows_max=1)
    read_all(made, [SplitState(split) for split in splits(definition)], rows_wanted=3)
    rest = read_all(reader(definition), made.snapshot())
    assert [row["c1"] for parts in rest.values() for batch in parts for row in batch.to_pylist()] == ["e"]
    only = reader(definition, scan=(1,))
    batches = read_all(only, [SplitState(split) for split in splits(definition)])
    assert [row for batch in batches[str(file)] for row in batch.to_pylist()] == [{"c0": v} for v in expected]


def parquet_file(path: Path, rows: int, row_group_size: int) -> Path:
    columns: Any = {"id": pa.array(range(rows), pa.int32()), "at": pa.array([0] * rows, pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("rows_wanted", [0, 1, 4, 7, 10])
def test_parquet_goes_on_at_the_row(tmp_path: Path, rows_wanted: int) -> None:
    file = parquet_file(tmp_path / "in.parquet", 10, 4)
    definition = table(
        {"connector": "filesystem", "path": str(file), "format": "parquet"},
        absent=STRING,
        id=BIGINT,
        at=timestamp_ltz(3),
    )
    made = reader(definition, rows_max=1)
    begun = read_all(made, [SplitState(split) for split in splits(definition)], rows_wanted=rows_wanted)
    rest = read_all(reader(definition, rows_max=3), made.snapshot())
    rows = [row for parts in (begun, rest) for batch in parts[str(file)] for row in batch.to_pylist()]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert rows == [{"c0": None, "c1": i, "c2": epoch} for i in range(10)]


def test_parquet_without_columns_counts_and_bad_files_are_named(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "in.parquet", 10, 4)
    given = {"connector": "filesystem", "path": str(file), "format": "parquet"}
    made = reader(table(given, id=INT), scan=())
    batches = read_all(made, [SplitState(split) for split in splits(table(given, id=INT))])
    assert sum(batch.num_rows for batch in batches[str(file)]) == 10
    with pytest.raises(ConnectorError, match="column 'id' holds int32, which is not DATE"):
        rows_of(table(given, id=DATE))
    file.write_text("no parquet")
    with pytest.raises(ConnectorError, match=r"cannot read .*in\.parquet"):
        rows_of(table(given, id=INT))


def test_a_table_that_is_looked_up_is_read_as_it_is_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "items"
    write(folder / "1.jsonl", '{"id": 1, "name": "one"}')
    definition = table(options(folder), id=INT, name=STRING)
    asked = CONNECTOR.lookup(definition).reader(LookupContext(keys=(0,), columns=(1,), local_time_zone="UTC"))
    assert asked.load().to_pydict() == {"c0": ["one"], "c1": [1]}
    folder.rename(tmp_path / "old")
    with pytest.raises(ConnectorError, match="there is no file at"):
        asked.load()
    write(folder / "1.jsonl", '{"id": 2,')
    with pytest.raises(RecordError):
        asked.load()

    def refused(_: Path) -> bool:
        """Between two steps of finding the files."""
        raise PermissionError(13, "not yours")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", refused)
        with pytest.raises(ConnectorError, match=r"cannot be read: .*not yours") as caught:
            asked.load()
    assert caught.value.retry
    write(folder / "1.jsonl", '{"id": 2, "name": "two"}')
    assert asked.load().to_pydict() == {"c0": ["two"], "c1": [2]}
    asked.close()
