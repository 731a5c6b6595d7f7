"""Cases of Debezium events in files: what they carry beside the row, changed keys, repetitions, and damage."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cases.test_changelogs import event, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally

ITEMS = source("items", "id INT, name STRING, n INT")
TWICE = "SET 'table.exec.source.cdc-events-duplicate' = 'true'"


def item(number: int | None, name: str | None, n: int | None = 1) -> dict[str, object]:
    return {"id": number, "name": name, "n": n}


def with_options(options: str) -> str:
    return ITEMS.replace("'debezium-json'", f"'debezium-json', {options}")


A, B, C = item(1, "a"), item(2, "b"), item(3, "c")
LENIENT = with_options("'debezium-json.ignore-parse-errors' = 'true'")

CASES = (
    Case(
        name="envelopes-carry-more-than-the-row",
        why="source, time and transaction are passed over; a snapshot's read is an insert; missing columns are NULL",
        inputs={
            "items.jsonl": (
                json.dumps({"before": None, "after": A, "op": "r", "ts_ms": 1, "source": {"lsn": 7, "table": "items"}}),
                json.dumps({"op": "c", "after": {"id": 2, "name": "b", "extra": [1]}, "transaction": None}),
                json.dumps({"op": "u", "before": A, "after": item(1, "A", None), "source": {"snapshot": "false"}}),
            )
        },
        sql=(ITEMS, "SELECT id, name, n FROM items"),
        rows=((1, "A", None), (2, "b", None)),
    ),
    Case(
        name="an-update-that-changes-nothing",
        why="the row stays as it is, once",
        inputs={"items.jsonl": (event(None, A), event(A, A), event(A, A))},
        sql=(ITEMS, "SELECT name, COUNT(*), SUM(n) FROM items GROUP BY name"),
        rows=(("a", 1, 1),),
    ),
    Case(
        name="an-update-that-changes-the-key",
        why="the row of the old key goes, in groups and in keyed results",
        inputs={"items.jsonl": (event(None, A), event(None, B), event(A, item(9, "a", 5)))},
        sql=(ITEMS, "SELECT id, MAX(name), SUM(n) FROM items GROUP BY id"),
        rows=((2, "b", 1), (9, "a", 5)),
    ),
    Case(
        name="a-changed-key-among-repetitions",
        why="told that events may repeat, each key still has one row at most",
        inputs={
            "items.jsonl": (
                *[event(None, A)] * 2,
                *[event(A, None)] * 2,
                *[event(None, item(9, "a", 5))] * 2,
                event(None, B),
                *[event(B, None)] * 3,
                event(None, item(2, "b again", 2)),
            )
        },
        sql=(ITEMS, TWICE, "SELECT id, name, n FROM items"),
        rows=((9, "a", 5), (2, "b again", 2)),
    ),
    Case(
        name="a-batch-is-sent-again-from-its-middle",
        why="the connector starts again behind its last commit: older images come once more, then the newer ones",
        inputs={
            "items.jsonl": (
                event(None, A),
                event(A, item(1, "a2", 2)),
                event(item(1, "a2", 2), item(1, "a3", 3)),
                event(A, item(1, "a2", 2)),
                event(item(1, "a2", 2), item(1, "a3", 3)),
                event(None, C),
            )
        },
        sql=(ITEMS, TWICE, "SELECT COUNT(*), SUM(n), MAX(name) FROM items"),
        rows=((2, 4, "c"),),
    ),
    Case(
        name="a-delete-for-an-unknown-key-among-repetitions",
        why="nothing is taken back that never was",
        inputs={"items.jsonl": (event(B, None), event(None, A), event(B, None))},
        sql=(ITEMS, TWICE, "SELECT COUNT(*), SUM(n) FROM items"),
        rows=((1, 1),),
    ),
    Case(
        name="null-in-the-old-image",
        why="NULL is a value: the row with it is the one that goes",
        inputs={"items.jsonl": (event(None, item(1, None, None)), event(None, B), event(item(1, None, None), A))},
        sql=(ITEMS, "SELECT name, n, COUNT(*) FROM items GROUP BY name, n"),
        rows=(("a", 1, 1), ("b", 1, 1)),
    ),
    Case(
        name="a-delete-without-its-row",
        why="the message says what is missing, file and line",
        inputs={"items.jsonl": (event(None, A), '{"before": null, "after": null, "op": "d"}')},
        sql=(ITEMS, "SELECT id FROM items"),
        error="'before' of an event with op 'd' is null",
    ),
    Case(
        name="an-unknown-operation",
        why="it is no insert, and no row is lost in silence; file and line are named",
        inputs={"items.jsonl": (event(None, A), '{"before": null, "after": {"id": 2}, "op": "x"}')},
        sql=(ITEMS, "SELECT id FROM items"),
        error=r"items\.jsonl.*\b2\b",
    ),
    Case(
        name="a-row-that-is-no-envelope",
        why="a plain row in a topic of changes is refused, not read as NULLs",
        inputs={"items.jsonl": (json.dumps(A),)},
        sql=(ITEMS, "SELECT id FROM items"),
        error=r"items\.jsonl",
    ),
    Case(
        name="damaged-events-are-skipped-alone",
        why="with ignore-parse-errors what cannot be read goes, and only it",
        inputs={
            "items.jsonl": (
                event(None, A),
                "{",
                '{"before": null, "after": {"id": 2}, "op": "x"}',
                '{"before": null, "after": null, "op": "d"}',
                "17",
                event(A, item(1, "A")),
                event(None, C),
            )
        },
        sql=(LENIENT, "SELECT id, name FROM items"),
        rows=((1, "A"), (3, "c")),
    ),
    Case(
        name="a-null-primary-key",
        why="a key column is NOT NULL: its absence is an error where the key is used",
        inputs={"items.jsonl": (event(None, item(None, "a")), event(None, B))},
        sql=(ITEMS, TWICE, "SELECT COUNT(*) FROM items WHERE name <> 'b'"),
        rows=((1,),),
    ),
)


@local_cases(*CASES)
def test_events(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
