"""Cases of INSERT INTO: keyed targets, keys that are not the query's, conflicts, NOT NULL and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally

SEATS = source("seats", "who STRING, seat INT, floor INT", key="who")


def seat(who: str, number: int | None, floor: int | None = 1) -> dict[str, object]:
    return {"who": who, "seat": number, "floor": floor}


def target(columns: str, key: str | None = None, mode: str = "upsert") -> str:
    with_key = "" if key is None else f", PRIMARY KEY ({key}) NOT ENFORCED"
    return f"CREATE TABLE target ({columns}{with_key}) WITH ({{{mode}}})"


MOVES = (
    event(None, seat("eve", 7)),
    event(None, seat("bob", 9)),
    event(seat("eve", 7), seat("eve", 8)),
    event(seat("bob", 9), seat("bob", 7)),
    event(None, seat("joe", 9)),
    event(seat("joe", 9), None),
)

KEYS = (
    Case(
        name="the-key-of-the-target-is-another",
        why="a seat passes from one to another; the one who left cannot take it away",
        inputs={"seats.jsonl": MOVES},
        sql=(SEATS, target("seat INT, who STRING", "seat"), "INSERT INTO target SELECT seat, who FROM seats"),
        rows=((8, "eve"), (7, "bob")),
    ),
    Case(
        name="the-key-of-the-target-is-wider",
        why="an update that changes the added column leaves no row of the old one",
        inputs={
            "seats.jsonl": (*MOVES, event(seat("eve", 8), seat("eve", 8, 2)), event(seat("bob", 7), seat("bob", 3, 1)))
        },
        sql=(
            SEATS,
            target("who STRING, floor INT, seat INT", "who, floor"),
            "INSERT INTO target SELECT who, floor, seat FROM seats",
        ),
        rows=(("eve", 2, 8), ("bob", 1, 3)),
    ),
    Case(
        name="a-count-by-another-key",
        why="groups meet in one key of the target; the latest stays, and goes only with its own removal",
        inputs={"seats.jsonl": (*MOVES, event(None, seat("dan", 5, 2)), event(seat("dan", 5, 2), None))},
        sql=(
            SEATS,
            target("n BIGINT, floor INT", "n"),
            "INSERT INTO target SELECT COUNT(*), floor FROM seats GROUP BY floor",
        ),
        rows=((2, 1),),
    ),
    Case(
        name="having-deletes-from-the-target",
        why="a group below HAVING goes from the target, and one never shown is not deleted there",
        inputs={"seats.jsonl": (*MOVES, event(None, seat("dan", 5, 2)), event(seat("eve", 8), seat("eve", 8, 3)))},
        sql=(
            SEATS,
            target("floor INT, n BIGINT", "floor"),
            "INSERT INTO target SELECT floor, COUNT(*) FROM seats GROUP BY floor HAVING COUNT(*) > 1",
        ),
        rows=(),
    ),
    Case(
        name="a-filter-on-a-changing-column",
        why="a row that no longer satisfies WHERE goes from the target, and comes back when it does again",
        inputs={
            "seats.jsonl": (
                *MOVES,
                event(seat("eve", 8), seat("eve", 80)),
                event(seat("bob", 7), seat("bob", 70)),
                event(seat("bob", 70), seat("bob", 6)),
            )
        },
        sql=(
            SEATS,
            target("who STRING, seat INT", "who"),
            "INSERT INTO target SELECT who, seat FROM seats WHERE seat < 10",
        ),
        rows=(("bob", 6),),
    ),
    Case(
        name="inserts-by-key-keep-the-last",
        why="a plain stream into a keyed target: the last row of a key in a file stays",
        inputs={"t.jsonl": ('{"k": 1, "v": "a"}', '{"k": 2, "v": "b"}', '{"k": 1, "v": "c"}', '{"k": 1, "v": "d"}')},
        sql=(
            plain("t", "k INT, v STRING"),
            target("k INT, v STRING", "k"),
            "INSERT INTO target SELECT k, v FROM t",
        ),
        rows=((1, "d"), (2, "b")),
    ),
    Case(
        name="a-changelog-into-a-target-that-takes-inserts",
        why="it is refused when planned, and says what it would need",
        inputs={"seats.jsonl": MOVES},
        sql=(
            SEATS,
            target("floor INT, n BIGINT", mode="insert-only"),
            "INSERT INTO target SELECT floor, COUNT(*) FROM seats GROUP BY floor",
        ),
        error="target.*(update|delete|change)",
    ),
)

SHARED = (event(None, seat("eve", 7)), event(None, seat("bob", 7)), event(None, seat("dan", 8)))


def shared(name: str, action: str, *more: str, **answer: Any) -> Case:
    """Two claim seat 7."""
    return Case(
        name=name,
        why=f"ON CONFLICT DO {action}",
        inputs={"seats.jsonl": (*SHARED, *more)},
        sql=(
            SEATS,
            target("seat INT, who STRING", "seat"),
            f"INSERT INTO target SELECT seat, who FROM seats ON CONFLICT DO {action}",
        ),
        **answer,
    )


EVE_LEAVES = event(seat("eve", 7), None)
CONFLICTS = (
    shared("the-first-of-a-key-stays", "NOTHING", rows=((7, "eve"), (8, "dan"))),
    shared("the-second-follows-when-the-first-has-gone", "NOTHING", EVE_LEAVES, rows=((7, "bob"), (8, "dan"))),
    shared("the-last-of-a-key-stays", "DEDUPLICATE", rows=((7, "bob"), (8, "dan"))),
    shared(
        "the-one-before-comes-back",
        "DEDUPLICATE",
        event(seat("bob", 7), seat("bob", 9)),
        rows=((7, "eve"), (8, "dan"), (9, "bob")),
    ),
    shared("two-of-a-key-are-an-error", "ERROR", error="different upsert keys meet at one primary key.*seat = 7"),
)

NUMBERS = plain("t", "id INT, s STRING, n INT")
LINES = (
    '{"id": 1, "s": "abcdef", "n": 1}',
    '{"id": 2, "s": "é", "n": null}',
    '{"id": 3, "s": null, "n": 3}',
    '{"id": 4, "s": "", "n": 4}',
    '{"id": 5, "s": "😀😀😀😀", "n": 5}',
)

CONSTRAINTS = (
    Case(
        name="null-into-not-null-fails",
        why="the job fails and names the column",
        inputs={"t.jsonl": LINES},
        sql=(NUMBERS, target("id INT, n INT NOT NULL", mode="insert-only"), "INSERT INTO target SELECT id, n FROM t"),
        error=r"\bn\b.*NOT NULL",
    ),
    Case(
        name="null-into-not-null-is-dropped",
        why="with the setting the row is dropped, and only it",
        inputs={"t.jsonl": LINES},
        sql=(
            NUMBERS,
            "SET 'table.exec.sink.not-null-enforcer' = 'DROP'",
            target("id INT, n INT NOT NULL", mode="insert-only"),
            "INSERT INTO target SELECT id, n FROM t",
        ),
        rows=((1, 1), (3, 3), (4, 4), (5, 5)),
    ),
    Case(
        name="a-dropped-row-of-a-key-is-not-deleted-twice",
        why="an update to NULL is dropped: what the target has stays until the key is deleted",
        inputs={
            "seats.jsonl": (
                event(None, seat("eve", 7)),
                event(None, seat("bob", None)),
                event(seat("eve", 7), seat("eve", None)),
                event(seat("bob", None), None),
                event(None, seat("dan", 1)),
                event(seat("dan", 1), None),
            )
        },
        sql=(
            SEATS,
            "SET 'table.exec.sink.not-null-enforcer' = 'DROP'",
            target("who STRING, seat INT NOT NULL", "who"),
            "INSERT INTO target SELECT who, seat FROM seats",
        ),
        rows=(("eve", 7),),
    ),
    Case(
        name="lengths-are-not-enforced-unless-asked",
        why="the default leaves texts as they are",
        inputs={"t.jsonl": LINES},
        sql=(NUMBERS, target("id INT, s VARCHAR(3)", mode="insert-only"), "INSERT INTO target SELECT id, s FROM t"),
        rows=((1, "abcdef"), (2, "é"), (3, None), (4, ""), (5, "😀😀😀😀")),
    ),
    Case(
        name="texts-are-cut-to-the-targets-length",
        why="characters are counted, not bytes; CHAR is filled up with blanks",
        inputs={"t.jsonl": tuple(line.replace('"n": ', '"c": "xy", "n": ') for line in LINES)},
        sql=(
            plain("t", "id INT, s STRING, c CHAR(2)"),
            "SET 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD'",
            target("id INT, s VARCHAR(3), c CHAR(4)", mode="insert-only"),
            "INSERT INTO target SELECT id, s, c FROM t",
        ),
        rows=((1, "abc", "xy  "), (2, "é", "xy  "), (3, None, "xy  "), (4, "", "xy  "), (5, "😀😀😀", "xy  ")),
    ),
    Case(
        name="a-text-too-long-is-an-error-when-asked",
        why="the message names column and length",
        inputs={"t.jsonl": LINES},
        sql=(
            NUMBERS,
            "SET 'table.exec.sink.type-length-enforcer' = 'ERROR'",
            target("id INT, s VARCHAR(3)", mode="insert-only"),
            "INSERT INTO target SELECT id, s FROM t",
        ),
        error=r"\bs\b.*\b3\b",
    ),
)


@local_cases(*KEYS)
def test_keys(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


@local_cases(*CONFLICTS)
def test_conflicts(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


@local_cases(*CONSTRAINTS)
def test_constraints(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
