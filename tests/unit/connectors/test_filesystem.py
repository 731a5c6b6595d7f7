"""The filesystem source: which files are found, order, positions, and errors that name file and line."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from connectors.api import MetadataField, SplitState
from connectors.errors import ConnectorError, OptionError, RecordError
from planner.ir.types import BIGINT, INT, STRING, timestamp_ltz
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
