from __future__ import annotations

import msgspec
import pytest

from planner import api
from planner.catalog import CatalogEntry, ObjectPath, TableEntry, ViewEntry
from planner.ir.types import TimeAttribute
from tests.unit.planner.catalog import Script

DDL = """CREATE TABLE orders (
  id BIGINT,
  amount DECIMAL(10, 2) COMMENT 'in EUR',
  ts TIMESTAMP(3),
  doubled AS amount * 2,
  `offset` BIGINT METADATA VIRTUAL,
  sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  proc AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'demo' WITH ('connector' = 'kafka', 'topic' = 'it''s')"""

PATH = ObjectPath("default_catalog", "default_database", "orders")


@pytest.fixture
def script() -> Script:
    script = Script()
    script.run(DDL)
    return script


def table(script: Script) -> TableEntry:
    entry = script.catalog.entries[PATH]
    assert isinstance(entry, TableEntry)
    return entry


def test_show_create_table_is_flinks_text(script: Script) -> None:
    assert api.show_create_table(PATH, table(script)) == (
        "CREATE TABLE `default_catalog`.`default_database`.`orders` (\n"
        "  `id` BIGINT NOT NULL,\n"
        "  `amount` DECIMAL(10, 2) COMMENT 'in EUR',\n"
        "  `ts` TIMESTAMP(3),\n"
        "  `doubled` AS amount * 2,\n"
        "  `offset` BIGINT METADATA VIRTUAL,\n"
        "  `sent` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',\n"
        "  `proc` AS PROCTIME(),\n"
        "  WATERMARK FOR `ts` AS ts - INTERVAL '5' SECOND,\n"
        "  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED\n"
        ")\n"
        "COMMENT 'demo'\n"
        "WITH (\n"
        "  'connector' = 'kafka',\n"
        "  'topic' = 'it''s'\n"
        ")\n"
    )


def test_show_create_table_makes_the_same_table_again(script: Script) -> None:
    other = Script()
    other.run(api.show_create_table(PATH, table(script)))
    assert other.catalog.entries[PATH] == table(script)


def test_describe(script: Script) -> None:
    assert api.describe(table(script)) == [
        ("id", "BIGINT", False, "PRI(id)", None, None),
        ("amount", "DECIMAL(10, 2)", True, None, None, None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, None, "ts - INTERVAL '5' SECOND"),
        ("doubled", "DECIMAL(21, 2)", True, None, "AS amount * 2", None),
        ("offset", "BIGINT", True, None, "METADATA VIRTUAL", None),
        ("sent", "TIMESTAMP_LTZ(3)", True, None, "METADATA FROM 'timestamp'", None),
        ("proc", "TIMESTAMP_LTZ(3) *PROCTIME*", False, None, "AS PROCTIME()", None),
    ]


def test_entries_are_plain_data(script: Script) -> None:
    script.run("CREATE VIEW v AS SELECT id, ts FROM orders")
    for entry in script.catalog.entries.values():
        assert msgspec.json.decode(msgspec.json.encode(entry), type=CatalogEntry) == entry


def test_a_view_keeps_its_text_and_its_time_attribute(script: Script) -> None:
    script.run("CREATE VIEW v (a, b) COMMENT 'c' AS SELECT id, ts FROM orders WHERE amount > 1")
    entry = script.catalog.entries[ObjectPath("default_catalog", "default_database", "v")]
    assert isinstance(entry, ViewEntry)
    assert entry.query == "SELECT id, ts FROM orders WHERE amount > 1"
    assert [c.name for c in entry.columns] == ["a", "b"]
    assert entry.columns[1].type.time_attribute is TimeAttribute.ROWTIME
    assert api.show_create_view(PATH, entry).endswith(
        "(\n  `a`,\n  `b`\n)\nCOMMENT 'c'\nAS SELECT id, ts FROM orders WHERE amount > 1\n"
    )
    job = script.job("SELECT a FROM TUMBLE(TABLE v, DESCRIPTOR(b), INTERVAL '1' SECOND)")
    assert job.result is not None
    assert job.result.names == ("a",)


def test_views_of_views_and_a_view_that_reads_itself(script: Script) -> None:
    script.run("CREATE VIEW a AS SELECT id AS x FROM orders; CREATE VIEW b AS SELECT x + 1 AS y FROM a")
    assert script.job("SELECT y FROM b").result is not None
    script.run("CREATE VIEW a AS SELECT y AS x FROM b")
    with pytest.raises(Exception, match="reads itself"):
        script.run("SELECT * FROM a")


def test_names_resolve_against_the_current_database(script: Script) -> None:
    (statement,) = api.parse("DESCRIBE orders")
    assert api.resolve(statement.name, script.catalog) == PATH  # type: ignore[union-attr]


def test_options_of_a_hint_win_and_stay_out_of_the_definition(script: Script) -> None:
    job = script.job("SELECT id FROM orders /*+ OPTIONS('topic' = 'other', 'scan.startup.mode' = 'earliest-offset') */")
    source = job.job_graph.vertices[0].operators[0]
    assert source.table.options["topic"] == "other"  # type: ignore[union-attr]
    assert table(script).options["topic"] == "it's"


def test_like_copies_what_is_not_excluded(script: Script) -> None:
    script.run("CREATE TABLE copy (extra INT, more AS extra + id) WITH ('topic' = 'c', 'format' = 'json') LIKE orders")
    entry = script.catalog.entries[ObjectPath("default_catalog", "default_database", "copy")]
    assert isinstance(entry, TableEntry)
    base = table(script)
    assert [c.name for c in entry.columns] == [*[c.name for c in base.columns], "extra", "more"]
    assert entry.options == {"connector": "kafka", "topic": "c", "format": "json"}
    assert entry.primary_key == base.primary_key
    assert entry.watermark == base.watermark
    job = script.job("SELECT doubled, `offset`, more FROM TUMBLE(TABLE copy, DESCRIPTOR(ts), INTERVAL '1' SECOND)")
    assert job.result is not None
    assert [t.sql() for t in job.result.types] == ["DECIMAL(21, 2)", "BIGINT", "BIGINT"]


def test_like_with_exclusions_and_another_watermark(script: Script) -> None:
    script.run(
        """CREATE TABLE copy (WATERMARK FOR ts AS ts) WITH ('connector' = 'print')
        LIKE orders (EXCLUDING ALL INCLUDING GENERATED OVERWRITING WATERMARKS)"""
    )
    entry = script.catalog.entries[ObjectPath("default_catalog", "default_database", "copy")]
    assert isinstance(entry, TableEntry)
    assert [c.name for c in entry.columns] == ["id", "amount", "ts", "doubled", "proc"]
    assert entry.options == {"connector": "print"}
    assert entry.primary_key is None
    assert entry.watermark is not None
    assert entry.watermark.text == "ts"


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE c (amount INT) LIKE orders", "declared twice"),
        ("CREATE TABLE c (PRIMARY KEY (id) NOT ENFORCED) LIKE orders", "has a primary key already"),
        ("CREATE TABLE c (WATERMARK FOR ts AS ts) LIKE orders", "has a watermark already"),
        ("CREATE TABLE c WITH ('topic' = 'x') LIKE orders (INCLUDING OPTIONS)", "has the option 'topic' already"),
        ("CREATE TABLE c LIKE orderz", "no table or view"),
        ("CREATE TABLE c LIKE v", "is a view"),
    ],
)
def test_like_is_refused(script: Script, ddl: str, message: str) -> None:
    script.run("CREATE VIEW v AS SELECT id FROM orders")
    with pytest.raises(Exception, match=message):
        script.run(ddl)
