from __future__ import annotations

import pytest
from sqlglot import exp

from planner.errors import SqlError, SqlState
from planner.sql import nodes
from planner.sql import statements as st
from planner.sql.parser import parse_script


def one(sql: str) -> st.Statement:
    (statement,) = parse_script(sql)
    return statement


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", st.Select),
        ("(SELECT 1)", st.Select),
        ("VALUES (1), (2)", st.Select),
        ("WITH a AS (SELECT 1 AS x) SELECT x FROM a", st.Select),
        ("INSERT INTO t SELECT 1", st.Insert),
        ("EXECUTE INSERT INTO t SELECT 1", st.Insert),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1; END", st.StatementSet),
        ("BEGIN STATEMENT SET", st.BeginStatementSet),
        ("END", st.EndStatementSet),
        ("EXPLAIN SELECT 1", st.Explain),
        ("EXPLAIN PLAN FOR SELECT 1", st.Explain),
        ("EXPLAIN ESTIMATED_COST, CHANGELOG_MODE INSERT INTO t SELECT 1", st.Explain),
        ("CREATE TABLE t (a INT)", st.CreateTable),
        ("CREATE TEMPORARY TABLE IF NOT EXISTS a.b.t (a INT)", st.CreateTable),
        ("DROP TABLE IF EXISTS t", st.DropTable),
        ("DROP TEMPORARY VIEW v", st.DropView),
        ("CREATE VIEW v (a) COMMENT 'c' AS SELECT 1", st.CreateView),
        ("SHOW TABLES", st.ShowTables),
        ("SHOW TABLES FROM db NOT LIKE 'a%'", st.ShowTables),
        ("SHOW VIEWS", st.ShowViews),
        ("SHOW JOBS", st.ShowJobs),
        ("SHOW CATALOGS", st.ShowCatalogs),
        ("SHOW DATABASES", st.ShowDatabases),
        ("SHOW CURRENT CATALOG", st.ShowCurrentCatalog),
        ("SHOW CURRENT DATABASE", st.ShowCurrentDatabase),
        ("SHOW FUNCTIONS", st.ShowFunctions),
        ("SHOW USER FUNCTIONS", st.ShowFunctions),
        ("SHOW CREATE TABLE t", st.ShowCreateTable),
        ("SHOW CREATE VIEW v", st.ShowCreateTable),
        ("SHOW COLUMNS FROM t", st.ShowColumns),
        ("USE CATALOG c", st.UseCatalog),
        ("USE c.d", st.UseDatabase),
        ("USE `catalog`", st.UseDatabase),
        ("DESCRIBE t", st.Describe),
        ("DESC EXTENDED t", st.Describe),
        ("DESCRIBE JOB 'x'", st.DescribeJob),
        ("SET", st.Set),
        ("SET 'a' = 'b'", st.Set),
        ("RESET", st.Reset),
        ("RESET 'a'", st.Reset),
        ("STOP JOB 'x'", st.StopJob),
        ("ALTER JOB 'x' SET ('parallelism' = '4')", st.AlterJob),
        ("ALTER JOB 'x' RESET ('parallelism')", st.AlterJob),
        ("SHOW SAVEPOINTS FOR JOB 'x'", st.ShowSavepoints),
        ("DROP SAVEPOINT '/s/savepoint-1'", st.DropSavepoint),
        ("STOP JOB 'x' WITH SAVEPOINT WITH DRAIN", st.StopJob),
    ],
)
def test_kinds(sql: str, kind: type[st.StatementBase]) -> None:
    statement = one(sql)
    assert type(statement) is kind
    assert statement.text == sql.removeprefix("EXECUTE ") if kind is st.Insert else statement.text == sql


def test_create_table() -> None:
    statement = one(
        """CREATE TABLE db.t (
          id BIGINT NOT NULL COMMENT 'the id',
          `a b` STRING,
          r ROW<x INT, `y` ARRAY<STRING NOT NULL>>,
          m MAP<STRING, DECIMAL(10, 2)>,
          ts TIMESTAMP(3) WITH LOCAL TIME ZONE,
          c AS UPPER(`a b`) COMMENT 'computed',
          off BIGINT METADATA FROM 'offset' VIRTUAL,
          `timestamp` TIMESTAMP(3) METADATA,
          WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
          CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED
        ) COMMENT 'a table' WITH ('connector' = 'kafka', 'topic' = 't''s')"""
    )
    assert isinstance(statement, st.CreateTable)
    assert statement.name.parts == ("db", "t")
    assert [c.name for c in statement.columns] == ["id", "a b", "r", "m", "ts", "c", "off", "timestamp"]
    assert statement.comment == "a table"
    assert [(o.key, o.value) for o in statement.options] == [("connector", "kafka"), ("topic", "t's")]
    assert statement.watermark is not None
    assert statement.watermark.expression.text == "ts - INTERVAL '5' SECOND"
    assert statement.primary_key is not None
    assert (statement.primary_key.name, statement.primary_key.columns) == ("pk", ("id",))
    assert not statement.primary_key.is_enforced
    computed = statement.columns[5]
    assert isinstance(computed, st.ComputedColumnSyntax)
    assert (computed.expression.text, computed.comment) == ("UPPER(`a b`)", "computed")
    virtual, written = statement.columns[6:]
    assert isinstance(virtual, st.MetadataColumnSyntax)
    assert (virtual.key, virtual.is_virtual) == ("offset", True)
    assert isinstance(written, st.MetadataColumnSyntax)
    assert (written.key, written.is_virtual) == ("timestamp", False)


def test_insert_with_columns_and_hint() -> None:
    statement = one("INSERT INTO c.d.t /*+ OPTIONS('sink.parallelism' = '2') */ (a, `b`) SELECT 1, 2")
    assert isinstance(statement, st.Insert)
    assert statement.target.parts == ("c", "d", "t")
    assert [c.parts for c in statement.columns] == [("a",), ("b",)]
    assert [(o.key, o.value) for o in statement.options] == [("sink.parallelism", "2")]
    assert statement.query.text == "SELECT 1, 2"


def test_positions_are_of_the_script() -> None:
    script = "SELECT 1;\n\n  INSERT INTO t\nSELECT a,\n  b c FROM s;"
    _, insert = parse_script(script)
    assert isinstance(insert, st.Insert)
    span = insert.query.span
    assert script[span.start : span.end] == "SELECT a,\n  b c FROM s"
    items = insert.query.tree.this.args["expressions"]
    spans = [nodes.span_of(i) for i in items]
    assert [script[s.start : s.end] for s in spans] == ["a", "b c"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a + b * c AS x, t.*, COUNT(*) FILTER (WHERE a > 1) FROM t AS t (a, b)",
        "SELECT CASE WHEN a THEN b ELSE NULL END, (r).x, - a, NOT b IN (1, 2), a[1] FROM t",
        "SELECT JSON_VALUE(a, '$.x' RETURNING INT NULL ON EMPTY DEFAULT -1 ON ERROR) FROM (SELECT 1)",
        "SELECT EXTRACT(DAY FROM a), FLOOR(a TO HOUR), CAST(a AS ROW<x INT>), TRIM(BOTH 'x' FROM b) FROM t",
        "SELECT * FROM TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' DAY))",
        "SELECT 1 UNION ALL VALUES (1) UNION ALL (SELECT 2)",
        "WITH a (x) AS (SELECT 1) SELECT x FROM a /*+ OPTIONS('k' = 'v') */ b WHERE b.x BETWEEN 1 AND 2 LIMIT 3",
    ],
)
def test_every_node_has_a_span_inside_its_parent(sql: str) -> None:
    statement = one(sql)
    assert isinstance(statement, st.Select)
    for node in statement.query.tree.walk():
        assert isinstance(node, exp.Expr)
        span = nodes.span_of(node)
        assert 0 <= span.start < span.end <= len(sql), node
        parent = node.parent
        if parent is not None:
            outer = nodes.span_of(parent)
            assert outer.start <= span.start, node
            assert span.end <= outer.end, node


def test_names_literals_and_comments() -> None:
    statement = one("SELECT `a``b`.`c;d` /* x */, 'it''s -- no comment', U&'\\00e9\\\\', X'0aFF' -- end\n FROM `a``b`")
    assert isinstance(statement, st.Select)
    items = [i.this for i in statement.query.tree.this.args["expressions"]]
    assert [i.this for i in items[0].args["expressions"]] == ["a`b", "c;d"]
    assert [i.this for i in items[1:]] == ["it's -- no comment", "é\\", "0aFF"]


def test_a_line_comment_cannot_turn_into_sql() -> None:
    statement = one("-- note */ SELECT v FROM hidden --\nSELECT v FROM shown")
    assert isinstance(statement, st.Select)
    assert statement.query.text == "SELECT v FROM shown"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 2000 + "1" + ")" * 2000,
        "SELECT " + "CASE WHEN TRUE THEN " * 500 + "1" + " END" * 500,
        "SELECT " + "ABS(" * 500 + "1" + ")" * 500,
        "SELECT " + "a[" * 500 + "1" + "]" * 500,
        "SELECT x FROM " + "(SELECT 1 AS x FROM " * 300 + "t" + ")" * 300,
        "CREATE TABLE t (a " + "ARRAY<" * 3000 + "INT" + ">" * 3000 + ")",
    ],
)
def test_absurd_nesting_is_refused(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_script(sql)
    assert caught.value.sqlstate == SqlState.TOO_COMPLEX


@pytest.mark.parametrize(
    ("arm", "operator", "count"), [("1", "+", 300), ("v", "||", 300), ("NOT", "", 300), ("SELECT 1", "UNION", 110)]
)
def test_a_chain_of_too_many_is_marked_where_it_becomes_too_long(arm: str, operator: str, count: int) -> None:
    chain = f" {operator} ".join([arm] * count)
    with pytest.raises(SqlError) as caught:
        parse_script(chain if operator == "UNION" else f"SELECT {chain} TRUE")
    bound = 100 if operator == "UNION" else 256
    assert f"more than {bound} " in caught.value.message
    assert "brackets" in caught.value.hint
    width = len(f"{arm} {operator} ")
    marked = bound * width + len(f"{arm} ") if operator else bound * width
    assert caught.value.column == 1 + marked + (0 if operator == "UNION" else len("SELECT "))


def test_chains_in_brackets_and_of_and_or_and_union_all_have_no_such_bound() -> None:
    part = f"({' + '.join(['1'] * 200)})"
    conditions = " OR ".join(["a = 1 AND b = 2"] * 1_000)
    arms = " UNION ALL ".join(["SELECT 1"] * 1_000)
    for sql in (f"SELECT {part} + {part}", f"SELECT a FROM t WHERE {conditions}", arms):
        assert len(parse_script(sql)) == 1


def test_sensible_nesting_and_long_lists_are_fine() -> None:
    parse_script("SELECT " + "(" * 100 + "1" + ")" * 100)
    parse_script("SELECT a FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(3000)))
    parse_script("SELECT a FROM t WHERE a IN (" + ", ".join(map(str, range(5000))) + ")")
    parse_script(" UNION ALL ".join(["SELECT 1"] * 500))
    parse_script("SELECT " + "NOT " * 200 + "TRUE")
    parse_script("SELECT " + "- " * 200 + "1")


@pytest.mark.parametrize("digits", [20, 10_000])
def test_a_count_beyond_64_bits_is_refused(digits: int) -> None:
    with pytest.raises(SqlError, match=f"a number of {digits} digits") as caught:
        parse_script("SELECT a FROM t LIMIT " + "9" * digits)
    assert caught.value.sqlstate == SqlState.NUMERIC_OUT_OF_RANGE
    assert (caught.value.line, caught.value.column) == (1, 23)
