from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.sql.splitter import Unfinished, split_statements

SET = """EXECUTE STATEMENT SET BEGIN
  INSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t;
  INSERT INTO b SELECT 1;
END"""


def texts(sql: str) -> list[str]:
    return [s.text for s in split_statements(sql).statements]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        ("  -- nothing\n /* at all */ ; ;", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS a; SELECT 2", ["SELECT ';' AS a", "SELECT 2"]),
        ("SELECT 'it''s;'; SELECT 2", ["SELECT 'it''s;'", "SELECT 2"]),
        ("SELECT `a;``b`; SELECT 2", ["SELECT `a;``b`", "SELECT 2"]),
        ("-- it's; a comment\nSELECT 1 /* ; ' */; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1 /* a /* b */; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT a /*+ OPTIONS('x;'='y') */ ; S", ["SELECT a /*+ OPTIONS('x;'='y') */", "S"]),
        ("SELECT 1 -- ; not here", ["SELECT 1"]),
        (f"{SET}; SELECT 2", [SET, "SELECT 2"]),
        (
            "EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
            ["EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END"],
        ),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", ["BEGIN STATEMENT SET", "INSERT INTO a SELECT 1", "END"]),
        ("execute statement set begin end; SELECT 2", ["execute statement set begin end", "SELECT 2"]),
    ],
)
def test_statements(sql: str, expected: list[str]) -> None:
    assert texts(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", None),
        ("SELECT 1;", None),
        ("SELECT 1; -- done", None),
        ("SELECT 1", Unfinished.STATEMENT),
        ("SELECT 'abc", Unfinished.STRING),
        ("SELECT 'abc''", Unfinished.STRING),
        ("SELECT `abc", Unfinished.IDENTIFIER),
        ("SELECT 1 /* abc", Unfinished.COMMENT),
        ("SELECT a /*+ OPTIONS(", Unfinished.COMMENT),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", Unfinished.STATEMENT_SET),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END", Unfinished.STATEMENT),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;", None),
    ],
)
def test_unfinished(sql: str, expected: Unfinished | None) -> None:
    assert split_statements(sql).unfinished is expected


@given(st.text(alphabet="ab'`;-/*+\n $ÄEND", max_size=60))
def test_never_raises_and_spans_point_at_the_text(sql: str) -> None:
    result = split_statements(sql)
    end = 0
    for statement in result.statements:
        assert sql[statement.span.start : statement.span.end] == statement.text
        assert statement.text == statement.text.lstrip()
        assert statement.span.start >= end
        end = statement.span.end


@given(st.lists(st.text(alphabet="ab ';`", max_size=10), min_size=1, max_size=5))
def test_joined_string_literals_come_apart_again(values: list[str]) -> None:
    statements = ["SELECT '" + v.replace("'", "''") + "'" for v in values]
    assert texts(";\n".join(statements)) == statements
