"""Cases of lookup joins with a table of files, each in all local shapes."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import Case, json_table
from tests.support.local_cases import local_cases, run_locally

ORDERS = (
    '{"id": 1, "item": 10, "kind": "book"}',
    '{"id": 2, "item": 11, "kind": "book"}',
    '{"id": 3, "item": null, "kind": "book"}',
    '{"id": 4, "item": 10, "kind": "toy"}',
    '{"id": 5, "item": 99, "kind": "toy"}',
    '{"id": 6, "item": 10, "kind": "book"}',
    '{"id": 7, "item": 4294967306, "kind": "book"}',
)
ITEMS = (
    '{"item": 10, "kind": "book", "price": 5, "name": "Moby Dick"}',
    '{"item": 10, "kind": "toy", "price": 7, "name": "Ball"}',
    '{"item": 11, "kind": "book", "price": 9, "name": null}',
    '{"item": null, "kind": "book", "price": 1, "name": "nobody"}',
    '{"item": 10, "kind": "book", "price": 6, "name": "Emma"}',
)
TABLES = (
    json_table("orders", "id INT, item BIGINT, kind STRING, p AS PROCTIME()"),
    json_table("items", "item INT, kind STRING, price INT, name STRING"),
    "CREATE VIEW books AS SELECT item AS book, COALESCE(name, '?') AS title, price FROM items WHERE kind = 'book'",
)
INPUTS = {"orders.jsonl": ORDERS, "items.jsonl": ITEMS}

CASES = (
    Case(
        name="composite-key",
        why="all rows of both keys are found; NULL matches nothing, nor does a number too large for the table's type",
        inputs=INPUTS,
        sql=(
            *TABLES,
            (
                "SELECT id, name, price FROM orders AS o JOIN items FOR SYSTEM_TIME AS OF o.p AS i "
                "ON o.item = i.item AND o.kind = i.kind"
            ),
        ),
        rows=(
            (1, "Moby Dick", 5),
            (1, "Emma", 6),
            (2, None, 9),
            (4, "Ball", 7),
            (6, "Moby Dick", 5),
            (6, "Emma", 6),
        ),
    ),
    Case(
        name="left-with-condition",
        why="what the rest of the condition turns away is padded, and a constant is a key",
        inputs=INPUTS,
        sql=(
            *TABLES,
            (
                "SELECT id, name FROM orders AS o LEFT JOIN items FOR SYSTEM_TIME AS OF o.p AS i "
                "ON i.item = 10 AND o.kind = i.kind AND i.price > 5 AND o.id < 6"
            ),
        ),
        rows=(
            (1, "Emma"),
            (2, "Emma"),
            (3, "Emma"),
            (4, "Ball"),
            (5, "Ball"),
            (6, None),
            (7, None),
        ),
    ),
    Case(
        name="view",
        why="filters and computed columns of a view belong to the rows found: a padded row has no title",
        inputs=INPUTS,
        sql=(
            *TABLES,
            (
                "SELECT id, title FROM orders LEFT JOIN books FOR SYSTEM_TIME AS OF PROCTIME() AS b "
                "ON item = book AND price > 5 WHERE id <= 5"
            ),
        ),
        rows=((1, "Emma"), (2, "?"), (3, None), (4, "Emma"), (5, None)),
    ),
    Case(
        name="nothing-read",
        why="a table of which only the key counts multiplies rows",
        inputs=INPUTS,
        sql=(
            *TABLES,
            "SELECT id FROM orders AS o JOIN items FOR SYSTEM_TIME AS OF p AS i ON o.kind = i.kind WHERE id IN (1, 4)",
        ),
        rows=((1,), (1,), (1,), (1,), (4,)),
    ),
    Case(
        name="grouped-above",
        why="aggregates above a lookup join of inserts",
        inputs=INPUTS,
        sql=(
            *TABLES,
            (
                "SELECT name, COUNT(*) FROM orders AS o LEFT JOIN items FOR SYSTEM_TIME AS OF o.p AS i "
                "ON o.item = i.item AND i.kind = 'book' GROUP BY name"
            ),
        ),
        rows=(("Moby Dick", 3), ("Emma", 3), (None, 4)),
    ),
    Case(
        name="changes",
        why="row kinds pass through: what an aggregate takes back is taken back with the row that was found",
        inputs=INPUTS,
        sql=(
            *TABLES,
            (
                "SELECT o.kind, c, name FROM (SELECT kind, COUNT(*) AS c, MIN(item) AS m, PROCTIME() AS p FROM orders "
                "GROUP BY kind) AS o LEFT JOIN items FOR SYSTEM_TIME AS OF o.p AS i ON o.m = i.item AND i.price > 5 "
                "AND o.kind = i.kind"
            ),
        ),
        rows=(("book", 5, "Emma"), ("toy", 2, "Ball")),
    ),
    Case(
        name="metadata",
        why="what is no column of the table itself is not there when rows are found",
        inputs=INPUTS,
        sql=(
            TABLES[0],
            json_table("files", "item INT, f STRING METADATA FROM 'file.name'"),
            "SELECT id, f FROM orders AS o JOIN files FOR SYSTEM_TIME AS OF o.p AS i ON o.item = i.item",
        ),
        error="metadata columns of `files`",
    ),
    Case(
        name="watched",
        why="a folder that is watched has no moment at which it is whole",
        inputs=INPUTS,
        sql=(
            TABLES[0],
            json_table("files", "item INT", ", 'source.monitor-interval' = '1 s'"),
            "SELECT id FROM orders AS o JOIN files FOR SYSTEM_TIME AS OF o.p AS i ON o.item = i.item",
        ),
        error="`files` cannot be joined as of processing time: files that are watched",
    ),
)


@local_cases(*CASES)
def test_lookup_joins(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
