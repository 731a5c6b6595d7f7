"""The shell: scripts and pipes by subprocess, the prompt through a pseudo-terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from planner.ir import types as t
from runtime.api import Failure, JobState
from tests.unit.server.fakes import FakeQuery, FakeServer
from tests.unit.server.terminal import Terminal

COMMAND = [sys.executable, "-P", "-m", "server", "sql"]
QUERY = "SELECT a FROM (VALUES (1)) AS v(a)"


def shell(url: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--url", url, *arguments],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=60,
    )


def eventually_canceled(server: FakeServer) -> None:
    deadline_s = time.monotonic() + 20
    while JobState.CANCELED not in server.jobs.states.values():
        assert time.monotonic() < deadline_s, server.jobs.states
        time.sleep(0.02)


# -- scripts and pipes


def test_rows_go_to_standard_output_and_the_rest_aside(server: FakeServer) -> None:
    done = shell(server.url, "-c", "CREATE VIEW v AS SELECT 1 AS a; SHOW VIEWS", "-c", "SHOW CURRENT CATALOG")
    assert done.returncode == 0
    assert done.stdout == '{"view name":"v"}\n{"current catalog name":"headrace"}\n'
    assert done.stderr == "OK\n"


def test_the_session_can_stay_in_its_own_catalog(server: FakeServer) -> None:
    done = shell(server.url, "--catalog", "default_catalog", "-c", "SHOW CURRENT CATALOG")
    assert done.stdout == '{"current catalog name":"default_catalog"}\n'


def test_a_script_stops_at_its_first_error(server: FakeServer, tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text("SHOW VIEWS;\nSELECT *\n  FROM nope;\nSHOW CURRENT CATALOG;\n")
    done = shell(server.url, "-f", str(script))
    assert done.returncode == 3
    assert done.stdout == ""
    first, source, carets, *_ = done.stderr.splitlines()
    assert first.startswith(f"{script}:3:8: ERROR 42P01: ")
    assert source == "line 2:   FROM nope"
    assert carets == " " * source.index("nope") + "^^^^"
    went_on = shell(server.url, "--keep-going", "-f", str(script))
    assert went_on.returncode == 3
    assert went_on.stdout == '{"current catalog name":"headrace"}\n'


def test_standard_input_is_a_script(server: FakeServer) -> None:
    assert shell(server.url, text="SHOW CURRENT CATALOG").stdout == '{"current catalog name":"headrace"}\n'
    failed = shell(server.url, text="SELEC 1")
    assert failed.returncode == 3
    assert failed.stderr.startswith("stdin:1:1: ERROR 42601")


def test_exit_codes_of_usage_and_connection(server: FakeServer, tmp_path: Path) -> None:
    assert shell(server.url, "--nonsense").returncode == 1
    assert shell(server.url, "--limit", "0").returncode == 1
    missing = shell(server.url, "-f", str(tmp_path / "missing.sql"))
    assert missing.returncode == 3
    unreachable = shell("http://127.0.0.1:1", "-c", "SHOW TABLES")
    assert unreachable.returncode == 2
    assert "cannot reach http://127.0.0.1:1" in unreachable.stderr
    assert "headrace standalone" in unreachable.stderr
    assert "Traceback" not in unreachable.stderr


def test_variables_are_filled_in(server: FakeServer) -> None:
    done = shell(
        server.url,
        "-v",
        "name=it's",
        "-v",
        "word=views",
        "-c",
        "SHOW :word; CREATE VIEW :\"name\" AS SELECT :'name' AS a",
    )
    assert done.returncode == 0, done.stderr
    shown = shell(server.url, "-c", "SHOW CREATE VIEW `it's`")
    assert "SELECT 'it''s' AS a" in json.loads(shown.stdout)["result"]


def test_null_is_neither_empty_nor_the_word(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.STRING,), [(None,), ("",), ("NULL",), ('a,"b"\n',)])
    query = "SELECT CAST(a AS STRING) AS a FROM (VALUES (1)) AS v(a)"
    assert shell(server.url, "-c", query, "--csv").stdout == 'a\n\n""\nNULL\n"a,""b""\n"\n'
    lines = shell(server.url, "-c", query).stdout.splitlines()
    assert [json.loads(line)["a"] for line in lines] == [None, "", "NULL", 'a,"b"\n']
    table = shell(server.url, "-c", query, "--format", "table").stdout
    assert table.splitlines()[2:] == ["<NULL>", "", "NULL", 'a,"b"\\n']
    assert "\x1b" not in table


def test_plans_are_texts_and_no_tables(server: FakeServer) -> None:
    done = shell(server.url, "--format", "table", "-c", f"EXPLAIN {QUERY}")
    assert done.stdout.startswith("== Abstract Syntax Tree ==\n")
    assert "\\n" not in done.stdout


def test_numbers_keep_their_digits(server: FakeServer) -> None:
    query = "SELECT CAST(1 AS DECIMAL(38, 2)) AS d FROM (VALUES (1)) AS v(a)"
    server.jobs.query = FakeQuery.of((t.decimal(38, 2),), [(None,)])
    assert server.jobs.query.rows is not None
    column = server.jobs.query.rows.schema.field(0).type
    server.jobs.query.rows = pa.table({"c0": pa.array(["123456789012345678901234567890.10"]).cast(column)})
    assert shell(server.url, "-c", query).stdout == '{"d":123456789012345678901234567890.10}\n'


def test_whole_numbers_beyond_64_bits_keep_their_digits(server: FakeServer) -> None:
    query = "SELECT CAST(1 AS DECIMAL(38, 0)) AS d FROM (VALUES (1)) AS v(a)"
    server.jobs.query = FakeQuery.of((t.decimal(38, 0),), [(10**37,)])
    assert shell(server.url, "-c", query).stdout == f'{{"d":{10**37}}}\n'


def test_columns_of_one_name_stay_apart_in_ndjson(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.INT, t.INT, t.INT), [(1, 2, 3)])
    done = shell(server.url, "-c", "SELECT 1 AS a, 2 AS a, 3 AS a_1")
    assert json.loads(done.stdout) == {"a": 1, "a0": 2, "a_1": 3}


def test_jobs_are_listed_with_what_they_wait_for(server: FakeServer) -> None:
    server.jobs.query = FakeQuery(ended=False)
    server.jobs.slots_missing = 2
    shell(server.url, "-c", QUERY, "--duration", "0.5")
    done = shell(server.url, text="\\jobs\n")
    assert done.returncode == 0, done.stderr
    assert "waits for 2 more slots" in done.stdout


def test_a_query_that_fails_while_running(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,)], ended=False)
    server.jobs.query.failure = Failure("cannot cast 'x' to INT", "user", False, "Use TRY_CAST.")
    done = shell(server.url, "-c", QUERY)
    assert done.returncode == 3
    assert done.stdout == '{"a":1}\n'
    assert done.stderr == "ERROR 22000: cannot cast 'x' to INT\nHINT: Use TRY_CAST.\n"


@pytest.mark.parametrize("flags", [["--limit", "2"], ["--duration", "0.5"]])
def test_limits_end_a_query_and_its_job(server: FakeServer, flags: list[str]) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,), (2,), (3,)], ended=False)
    done = shell(server.url, "-c", QUERY, *flags)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == (2 if "--limit" in flags else 3)
    assert list(server.jobs.states.values()) == [JobState.CANCELED]


def test_a_closed_pipe_ends_the_query_quietly(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,)], ended=False)
    process = subprocess.Popen(
        [*COMMAND, "--url", server.url, "-c", QUERY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == '{"a":1}\n'
    process.stdout.close()  # No further row comes: the shell must notice by itself.
    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
    eventually_canceled(server)


def test_sigterm_ends_the_query_too(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,)], ended=False)
    process = subprocess.Popen(
        [*COMMAND, "--url", server.url, "-c", QUERY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(30) == 143
    process.stdout.close()
    process.stderr.close()
    eventually_canceled(server)


def test_changes_have_an_op_and_inserts_have_none(server: FakeServer) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(1,)])
    assert shell(server.url, "-c", QUERY).stdout == '{"a":1}\n'


# -- the prompt


@pytest.fixture
def terminal(server: FakeServer, tmp_path: Path) -> Iterator[Terminal]:
    running = Terminal(server.url, tmp_path)
    yield running
    running.close()


def test_statements_of_several_lines_and_commands(terminal: Terminal) -> None:
    terminal.expect("headrace.default_database=>")
    terminal.type("SHOW\r")
    terminal.expect("->")
    terminal.type("CATALOGS;\r")
    assert "default_catalog" in terminal.expect("(2 rows")
    terminal.expect("=>")
    terminal.type("USE CATALOG default_catalog;\r")
    terminal.expect("OK")
    terminal.expect("default_catalog.default_database=>")
    terminal.type("SELECT nope;\r")
    terminal.expect("ERROR 42703")
    terminal.expect("^^^^")
    terminal.expect("=>")
    terminal.type("\\conninfo\r")
    terminal.expect("Headrace")
    terminal.expect("=>")
    terminal.type("\\nonsense\r")
    terminal.expect("unknown command")
    terminal.expect("=>")
    terminal.type("\\q\r")
    assert terminal.wait() == 0


def test_ctrl_c_ends_the_query_and_not_the_shell(server: FakeServer, terminal: Terminal) -> None:
    server.jobs.query = FakeQuery.of((t.INT,), [(41,), (42,)], ended=False)
    terminal.expect("=>")
    terminal.type(f"{QUERY};\r")
    assert "rows" in terminal.expect("Ctrl-C ends the query")
    terminal.expect("42")
    terminal.interrupt()
    terminal.expect("(2 rows")
    terminal.expect("Query ended.")
    terminal.expect("=>")
    eventually_canceled(server)
    terminal.type("SHOW CURRENT DATABASE;\r")
    terminal.expect("(1 row")
    terminal.expect("=>")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_ctrl_c_at_the_prompt_drops_the_line(terminal: Terminal) -> None:
    terminal.expect("=>")
    terminal.type("SELECT half a sta\x03")
    terminal.expect("=>")
    terminal.type("SHOW CURRENT CATALOG;\r")
    terminal.expect("(1 row")
    terminal.expect("=>")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_history_is_kept(server: FakeServer, terminal: Terminal, tmp_path: Path) -> None:
    terminal.expect("=>")
    terminal.type("SHOW CURRENT CATALOG;\r")
    terminal.expect("(1 row")
    terminal.expect("=>")
    terminal.type("\x04")
    terminal.wait()
    assert "SHOW CURRENT CATALOG;" in (tmp_path / ".local/state/headrace/history").read_text()
    again = Terminal(server.url, tmp_path)
    try:
        again.expect("=>")
        again.type("\x1b[A\r")
        again.expect("(1 row")
    finally:
        again.close()


def test_the_shell_outlives_a_restart_of_the_server(server: FakeServer, terminal: Terminal) -> None:
    terminal.expect("=>")
    terminal.type("CREATE TEMPORARY VIEW v AS SELECT 1 AS a;\r")
    terminal.expect("OK")
    terminal.expect("=>")
    server.restart()
    terminal.type("SHOW VIEWS;\r")
    terminal.expect("(1 row")


def test_output_can_go_to_a_file(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    terminal.expect("=>")
    terminal.type(f"\\o {path}\r")
    terminal.type("SHOW CURRENT CATALOG;\r")
    terminal.type("\\o\r")
    terminal.type("\\echo 'a'b'c'\r")
    terminal.expect("abc")
    assert path.read_text() == '{"current catalog name":"headrace"}\n'


def test_a_query_that_waits_for_slots_says_so(server: FakeServer) -> None:
    server.jobs.query = FakeQuery(ended=False)
    server.jobs.slots_missing = 3
    done = shell(server.url, "-c", QUERY, "--duration", "4.5")
    assert done.returncode == 0
    assert done.stderr.count("waits for 3 more slots") == 1


def test_the_editor_writes_the_next_statement(server: FakeServer, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho 'SHOW CURRENT DATABASE;' > \"$1\"\n")
    editor.chmod(0o755)
    terminal = Terminal(server.url, tmp_path, environment={"EDITOR": str(editor), "VISUAL": ""})
    try:
        terminal.expect("=>")
        terminal.type("\\e\r")
        terminal.expect("(1 row")
        terminal.type("\\watch 0.1\r")
        for _ in range(3):
            terminal.expect("(1 row")
        terminal.interrupt()
        terminal.expect("Query ended.")
        terminal.type("\\q\r")
        assert terminal.wait() == 0
    finally:
        terminal.close()
