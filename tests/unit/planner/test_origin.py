"""A job can be compiled again from what it was compiled from, whatever has become of its tables."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import codec
from planner.ir.job_graph import JobGraph
from planner.origin import OriginFormatError
from planner.sql import statements as st
from tests.unit.planner.catalog import Script

GOLDEN = Path(__file__).parents[2] / "golden" / "planner"


def compiled(path: Path, parallelism: str) -> JobGraph | None:
    """The job that the golden case explains; None for a SELECT."""
    script = Script()
    script.run((GOLDEN / "tables.inc").read_text())
    job: JobGraph | None = None
    for statement in api.parse(path.read_text()):
        inner = statement.statement if isinstance(statement, st.Explain) else statement
        if not isinstance(inner, st.Insert | st.StatementSet):
            script.execute(inner) if not isinstance(inner, st.Select) else None
            continue
        script.settings["parallelism.default"] = parallelism
        try:
            result = script.execute(inner)
        except SqlError:  # Not every one can run at every parallelism.
            return None
        assert isinstance(result, api.CompiledJob)
        job = result.job_graph
    return job


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sql")), ids=lambda p: p.stem)
def test_a_job_compiled_again_is_the_job_compiled_at_that_parallelism(path: Path) -> None:
    graphs = {p: graph for p in ("1", "3", "8") if (graph := compiled(path, p)) is not None}
    for graph in graphs.values():
        moved = codec.decode(codec.encode(graph))  # As it comes from the metadata store.
        for parallelism, expected in graphs.items():
            again = api.recompile(moved, {"parallelism.default": parallelism})
            assert msgspec.structs.replace(again, origin=b"") == msgspec.structs.replace(expected, origin=b"")
            assert again.fingerprints == graph.fingerprints


def test_the_definitions_are_those_of_then() -> None:
    script = Script()
    script.run("CREATE TABLE s (k STRING, v INT) WITH ('connector' = 'kafka', 'topic' = 'a')")
    script.run("CREATE VIEW w AS SELECT k, SUM(v) AS n FROM s GROUP BY k")
    script.run("CREATE TABLE o (k STRING, n INT) WITH ('connector' = 'print')")
    graph = script.job("INSERT INTO o SELECT * FROM w WHERE n > 1").job_graph
    script.run("DROP VIEW w; DROP TABLE s; CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    again = api.recompile(msgspec.structs.replace(graph, name="mine"), {"parallelism.default": "4"})
    assert (again.name, again.origin) == ("mine", graph.origin)
    assert {vertex.parallelism for vertex in again.vertices} == {4}
    assert again.settings["parallelism.default"] == "4"


def test_what_cannot_be_compiled_again_is_refused() -> None:
    script = Script()
    script.run("CREATE TABLE s (k STRING) WITH ('connector' = 'kafka', 'topic' = 'a')")
    script.run("CREATE TABLE o (k STRING) WITH ('connector' = 'print')")
    graph = script.job("INSERT INTO o SELECT * FROM s").job_graph
    with pytest.raises(SqlError, match=r"'129'.*128"):
        api.recompile(graph, {"parallelism.default": "129"})
    query = script.job("SELECT * FROM s").job_graph
    assert query.origin == b""
    for origin in (b"", b"\x81\xa1", codec.encode(query)):
        with pytest.raises(OriginFormatError):
            api.recompile(msgspec.structs.replace(graph, origin=origin), {})
