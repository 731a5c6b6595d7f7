"""Cases of NULL in joins, sub-queries, set operations and aggregates over nothing, each in all local shapes."""

from __future__ import annotations

from pathlib import Path

from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally

PETS = tuple(f'{{"id": {number}, "owner": {owner}}}' for number, owner in ((1, 5), (2, 6), (3, "null")))
OWNERS = tuple(f'{{"id": {number}, "name": "{name}"}}' for number, name in ((5, "Eve"), ("null", "Nemo"), (7, "Gus")))
PETS_TABLE = plain("pets", "id INT, owner INT")
OWNERS_TABLE = plain("owners", "id INT, name STRING")
PAIRS = {
    "l.jsonl": tuple(
        f'{{"a": {a}, "b": {b}}}' for a, b in ((1, "null"), (1, "null"), (2, 3), ("null", "null"), ("null", 4))
    ),
    "r.jsonl": tuple(f'{{"a": {a}, "b": {b}}}' for a, b in ((1, "null"), ("null", "null"), (2, 3), (9, "null"))),
}
PAIR_TABLES = (plain("l", "a INT, b INT"), plain("r", "a INT, b INT"))
ROW_1, ROW_2, ROW_3 = ({"id": number, "word": word} for number, word in ((1, "ox"), (2, "ox"), (3, None)))

CASES = (
    Case(
        name="null-finds-no-partner",
        why="NULL equals nothing, not even NULL, in each join of a chain",
        inputs={"pets.jsonl": PETS, "owners.jsonl": OWNERS},
        sql=(
            PETS_TABLE,
            OWNERS_TABLE,
            (
                "SELECT p.id, p.owner, x.name, y.name FROM pets p "
                "LEFT JOIN owners x ON p.owner = x.id LEFT JOIN owners y ON p.owner = y.id"
            ),
        ),
        rows=((1, 5, "Eve", "Eve"), (2, 6, None, None), (3, None, None, None)),
    ),
    Case(
        name="null-finds-null-when-asked",
        why="IS NOT DISTINCT FROM says that NULL is NULL; a full join shows what is left of both sides",
        inputs={"pets.jsonl": PETS, "owners.jsonl": OWNERS},
        sql=(
            PETS_TABLE,
            OWNERS_TABLE,
            "SELECT p.id, x.name FROM pets p FULL JOIN owners x ON p.owner IS NOT DISTINCT FROM x.id",
        ),
        rows=((1, "Eve"), (2, None), (3, "Nemo"), (None, "Gus")),
    ),
    Case(
        name="a-count-over-a-join-that-never-matches",
        why="rows that are padded only are there, and COUNT of a column sees none of them",
        inputs={"pets.jsonl": ('{"id": 0}', '{"id": 3}', '{"id": 1}')},
        sql=(
            PETS_TABLE,
            (
                "SELECT pets.id, s.n, s.all_rows FROM (SELECT one, COUNT(other) AS n, COUNT(*) AS all_rows FROM ("
                "SELECT 1 AS one, r.id AS other FROM pets AS l LEFT JOIN pets AS r ON FALSE) GROUP BY one) AS s, pets "
                "WHERE pets.id = s.n OR pets.id = s.all_rows"
            ),
        ),
        rows=((0, 0, 3), (3, 0, 3)),
    ),
    Case(
        name="not-in-with-a-null-in-the-list",
        why="a NULL in the list leaves NOT IN nothing; NOT EXISTS does not mind; an empty list excludes nobody",
        inputs={"pets.jsonl": PETS, "owners.jsonl": OWNERS},
        sql=(
            PETS_TABLE,
            OWNERS_TABLE,
            (
                "SELECT 'in' AS q, id FROM pets WHERE owner IN (SELECT id FROM owners) "
                "UNION ALL SELECT 'not in', id FROM pets WHERE owner NOT IN (SELECT id FROM owners) "
                "UNION ALL SELECT 'without', id FROM pets "
                "WHERE owner NOT IN (SELECT id FROM owners WHERE id IS NOT NULL) "
                "UNION ALL SELECT 'empty', id FROM pets WHERE owner NOT IN (SELECT id FROM owners WHERE id > 100) "
                "UNION ALL SELECT 'not exists', id FROM pets p "
                "WHERE NOT EXISTS (SELECT 1 FROM owners o WHERE o.id = p.owner)"
            ),
        ),
        rows=(
            ("in", 1),
            ("without", 2),
            *(("empty", number) for number in (1, 2, 3)),
            ("not exists", 2),
            ("not exists", 3),
        ),
    ),
    Case(
        name="null-is-null-in-set-operations",
        why="set operations compare rows as DISTINCT does; ALL counts them",
        inputs=PAIRS,
        sql=(
            *PAIR_TABLES,
            " UNION ALL ".join(
                f"SELECT '{operation}' AS q, a, b FROM (SELECT a, b FROM l {operation} SELECT a, b FROM r)"
                for operation in ("EXCEPT", "EXCEPT ALL", "INTERSECT", "UNION")
            ),
        ),
        rows=(
            ("EXCEPT", None, 4),
            ("EXCEPT ALL", 1, None),
            ("EXCEPT ALL", None, 4),
            *(("INTERSECT", *row) for row in ((1, None), (2, 3), (None, None))),
            *(("UNION", *row) for row in ((1, None), (2, 3), (None, None), (None, 4), (9, None))),
        ),
    ),
    Case(
        name="a-row-comes-back-when-its-counterpart-goes",
        why="EXCEPT counts the rows of the other side, and takes NULL for NULL",
        inputs={
            "stock.jsonl": tuple(event(None, row) for row in (ROW_1, ROW_2, ROW_3, {"id": 4, "word": "yak"})),
            "sold.jsonl": (
                *(event(None, row) for row in (ROW_1, ROW_2, ROW_3, {"id": 4, "word": "yak"})),
                event(ROW_1, None),
                event(ROW_3, {"id": 3, "word": "emu"}),
                event(ROW_2, {"id": 2, "word": "emu"}),
            ),
        },
        sql=(
            source("stock", "id INT, word STRING"),
            source("sold", "id INT, word STRING"),
            "SELECT word FROM stock EXCEPT SELECT word FROM sold",
        ),
        rows=(("ox",), (None,)),
    ),
    Case(
        name="aggregates-over-nothing",
        why="without GROUP BY there is one row, whether there was no row or none was kept; with it there is none",
        inputs={"pets.jsonl": PETS, "owners.jsonl": ()},
        sql=(
            PETS_TABLE,
            OWNERS_TABLE,
            (
                "SELECT 'file' AS q, COUNT(*), SUM(id), MAX(name), COUNT(DISTINCT id) FROM owners "
                "UNION ALL SELECT 'filter', COUNT(*), SUM(id), MAX('x'), COUNT(DISTINCT id) FROM pets WHERE id > 9 "
                "UNION ALL SELECT 'group', COUNT(*), SUM(id), MAX('x'), COUNT(DISTINCT id) FROM owners GROUP BY name"
            ),
        ),
        rows=(("file", 0, None, None, 0), ("filter", 0, None, None, 0)),
    ),
)


@local_cases(*CASES)
def test_nulls(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
