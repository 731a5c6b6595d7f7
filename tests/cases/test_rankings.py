"""Cases of Top-N, deduplication and LIMIT, each in all local shapes."""

from __future__ import annotations

from pathlib import Path

from tests.cases.test_changelogs import event, source
from tests.support.cases import Case, json_table
from tests.support.local_cases import local_cases, run_locally


def lines(names: tuple[str, str], *pairs: tuple[int, int]) -> tuple[str, ...]:
    return tuple(f'{{"{names[0]}": {first}, "{names[1]}": {second}}}' for first, second in pairs)


SCORES = lines(("game", "points"), (4, 90), (4, 70), (4, 80), (5, 10))
PRICES = lines(("id", "price"), (0, 30), (1, 50), (2, 10), (3, 40), (4, 20))
READINGS = tuple(
    f'{{"id": {id_}, "device": {device}, "ts": "2024-03-01 00:00:0{second}"}}'
    for id_, device, second in ((11, 0, 2), (12, 0, 8), (13, 1, 4), (14, 1, 4))
)
TIMED = "id INT, device INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"


def runner(number: int, club: str, ms: int) -> dict[str, object]:
    return {"id": number, "club": club, "ms": ms}


CASES = (
    Case(
        name="only-the-second",
        why="a rank is counted over all rows of its partition, whatever ranks are asked for",
        inputs={"scores.jsonl": SCORES},
        sql=(
            json_table("scores", "game INT, points INT"),
            (
                "SELECT game, points, rn FROM (SELECT game, points, "
                "ROW_NUMBER() OVER (PARTITION BY game ORDER BY points) AS rn FROM scores) WHERE rn = 2"
            ),
        ),
        rows=((4, 80, 2),),
    ),
    Case(
        name="limit-and-offset",
        why="the offset counts once, and from the first row on",
        inputs={"prices.jsonl": PRICES},
        sql=(
            json_table("prices", "id INT, price INT"),
            "SELECT price FROM prices ORDER BY price DESC LIMIT 2 OFFSET 2",
        ),
        rows=((30,), (20,)),
    ),
    Case(
        name="offset-behind-the-end",
        why="where there are no rows any more there is no result",
        inputs={"prices.jsonl": PRICES},
        sql=(
            json_table("prices", "id INT, price INT"),
            "SELECT price FROM prices ORDER BY price DESC LIMIT 2 OFFSET 5",
        ),
        rows=(),
    ),
    Case(
        name="no-rows-in-order",
        why="LIMIT 0 has no rows to order, so that a stream can have it whatever it orders by",
        inputs={"prices.jsonl": PRICES},
        sql=(
            json_table("prices", "id INT, price INT"),
            "SELECT price FROM prices ORDER BY price LIMIT 0",
        ),
        rows=(),
    ),
    Case(
        name="counts-that-grow",
        why="a group that overtakes another is shown at its new rank alone, and the one it pushed out not at all",
        inputs={"words.jsonl": tuple(f'{{"word": "{word}"}}' for word in "abcbccdddd")},
        sql=(
            json_table("words", "word STRING"),
            (
                "SELECT rn, word, n FROM (SELECT word, n, ROW_NUMBER() OVER (ORDER BY n DESC) AS rn "
                "FROM (SELECT word, COUNT(*) AS n FROM words GROUP BY word)) WHERE rn <= 2"
            ),
        ),
        rows=((1, "d", 4), (2, "c", 3)),
    ),
    Case(
        name="peers",
        why="RANK and DENSE_RANK show every peer of the last rank",
        inputs={"scores.jsonl": lines(("game", "points"), (1, 5), (1, 7), (1, 5), (1, 6), (1, 6), (2, 1))},
        sql=(
            json_table("scores", "game INT, points INT"),
            (
                "SELECT 'rank' AS f, points, r FROM (SELECT points, RANK() OVER (PARTITION BY game ORDER BY points) "
                "AS r FROM scores WHERE game = 1) WHERE r <= 3 UNION ALL "
                "SELECT 'dense' AS f, points, r FROM (SELECT points, DENSE_RANK() OVER (PARTITION BY game "
                "ORDER BY points) AS r FROM scores WHERE game = 1) WHERE r <= 2"
            ),
        ),
        rows=tuple(
            (f, *row) for f in ("rank", "dense") for row in ((5, 1), (5, 1), *[(6, 3 if f == "rank" else 2)] * 2)
        ),
    ),
    Case(
        name="last-of-each-device",
        why="the row with the latest time is kept",
        inputs={"readings.jsonl": READINGS[:3]},
        sql=(
            json_table("readings", TIMED),
            (
                "SELECT device, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts DESC) AS rn "
                "FROM readings) WHERE rn = 1"
            ),
        ),
        rows=((0, 12), (1, 13)),
    ),
    *(
        Case(
            name=f"of-equal-times-the-later-{how}",
            why="keep-last takes the row that came last of those with one time, also in a window",
            inputs={"readings.jsonl": READINGS},
            sql=(json_table("readings", TIMED, "{watermark}"), query),
            rows=((0, 12), (1, 14)),
            on_event=True,
        )
        for how, query in (
            (
                "arrival",
                (
                    "SELECT device, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts DESC) AS rn "
                    "FROM readings) WHERE rn = 1"
                ),
            ),
            (
                "arrival-of-its-window",
                (
                    "SELECT device, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, "
                    "device ORDER BY ts DESC) AS rn FROM TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
                    "WHERE rn = 1"
                ),
            ),
        )
    ),
    Case(
        name="who-leaves-makes-room",
        why="an updated row changes its place, and behind a deleted one the others move up",
        inputs={
            "runners.jsonl": (
                *(event(None, runner(*row)) for row in ((1, "a", 50), (2, "a", 40), (3, "a", 60), (4, "b", 10))),
                event(runner(2, "a", 40), runner(2, "a", 70)),
                event(runner(1, "a", 50), None),
                event(None, runner(5, "a", 65)),
                event(runner(4, "b", 10), runner(4, "c", 10)),
            )
        },
        sql=(
            source("runners", "id INT, club STRING, ms INT"),
            (
                "SELECT club, place, id FROM (SELECT club, id, ROW_NUMBER() OVER (PARTITION BY club ORDER BY ms) "
                "AS place FROM runners) WHERE place <= 2"
            ),
        ),
        rows=(("a", 1, 3), ("a", 2, 5), ("c", 1, 4)),
    ),
)


@local_cases(*CASES)
def test_rankings(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
