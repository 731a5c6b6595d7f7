"""Cases of windows in many shapes: order, boundaries, negative times, gaps, late rows, and a kill between rows."""

from __future__ import annotations

from pathlib import Path

from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally


def readings(delay: str = "", columns: str = "k STRING, ts TIMESTAMP(3), v INT") -> str:
    table = plain("readings", f"{columns}, WATERMARK FOR ts AS ts{delay}")
    return table.replace("'json'", "'json'{watermark}")


def reading(at: str, value: int | str, key: str | None = "a") -> str:
    name = "null" if key is None else f'"{key}"'
    return f'{{"k": {name}, "ts": "{at}", "v": {value}}}'


def at(second: str) -> str:
    return f"2025-06-01 00:{second}"


def totals(window: str, keys: str = "") -> str:
    return (
        f"SELECT {keys}window_start, window_end, COUNT(*) AS n, SUM(v) AS total "
        f"FROM TABLE({window}) GROUP BY {keys}window_start, window_end"
    )


TUMBLE = "TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
HOP = "HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)"
CUMULATE = "CUMULATE(TABLE readings, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)"

CASES = (
    Case(
        name="no-row-no-window",
        why="a stretch of time without rows gives no windows at all, however long it is",
        inputs={"readings.jsonl": (reading("1970-01-01 00:00:01", 1), reading("2999-12-31 23:59:59.999", 2))},
        sql=(readings(), totals(TUMBLE)),
        rows=(
            ("1970-01-01 00:00:00", "1970-01-01 00:00:10", 1, 1),
            ("2999-12-31 23:59:50", "3000-01-01 00:00:00", 1, 2),
        ),
    ),
    Case(
        name="before-the-epoch",
        why="windows are cut by the floor of a negative time, not toward zero",
        inputs={
            "readings.jsonl": (
                reading("1969-12-31 23:59:49.999", 1),
                reading("1969-12-31 23:59:50", 2),
                reading("1969-12-31 23:59:59.999", 4),
                reading("1970-01-01 00:00:00", 8),
            )
        },
        sql=(readings(), totals(TUMBLE)),
        rows=(
            ("1969-12-31 23:59:40", "1969-12-31 23:59:50", 1, 1),
            ("1969-12-31 23:59:50", "1970-01-01 00:00:00", 2, 6),
            ("1970-01-01 00:00:00", "1970-01-01 00:00:10", 1, 8),
        ),
    ),
    Case(
        name="hops-before-the-epoch",
        why="a row is in size / slide windows on both sides of 1970",
        inputs={"readings.jsonl": (reading("1969-12-31 23:59:58", 1), reading("1970-01-01 00:00:03", 2))},
        sql=(readings(), totals(HOP)),
        rows=(
            ("1969-12-31 23:59:45", "1970-01-01 00:00:00", 1, 1),
            ("1969-12-31 23:59:50", "1970-01-01 00:00:05", 2, 3),
            ("1969-12-31 23:59:55", "1970-01-01 00:00:10", 2, 3),
            ("1970-01-01 00:00:00", "1970-01-01 00:00:15", 1, 2),
        ),
    ),
    Case(
        name="hops-are-aligned-to-the-epoch",
        why="not to the first row that comes",
        inputs={"readings.jsonl": (reading(at("00:07"), 1), reading(at("00:13"), 2))},
        sql=(readings(), totals("HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)")),
        rows=(
            (at("00:00"), at("00:10"), 1, 1),
            (at("00:05"), at("00:15"), 2, 3),
            (at("00:10"), at("00:20"), 1, 2),
        ),
    ),
    Case(
        name="hop-with-an-offset",
        why="all boundaries move by it; a negative one moves them back",
        inputs={"readings.jsonl": (reading(at("00:07"), 1),)},
        sql=(
            readings(),
            totals(
                "HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-1' SECOND)"
            ),
        ),
        rows=((at("00:04"), at("00:14"), 1, 1), ("2025-05-31 23:59:59", at("00:09"), 1, 1)),
    ),
    Case(
        name="a-slide-as-long-as-the-window",
        why="is a tumbling window",
        inputs={"readings.jsonl": (reading(at("00:07"), 1), reading(at("00:10"), 2))},
        sql=(readings(), totals("HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '10' SECOND)")),
        rows=((at("00:00"), at("00:10"), 1, 1), (at("00:10"), at("00:20"), 1, 2)),
    ),
    Case(
        name="out-of-order-within-the-delay",
        why="what comes late by no more than the delay counts, also when it opens an earlier window",
        inputs={
            "readings.jsonl": tuple(
                reading(at(f"00:{second}"), 1 << i) for i, second in enumerate(("12", "03", "21", "11", "19.999", "30"))
            )
        },
        sql=(readings(" - INTERVAL '10' SECOND"), totals(TUMBLE)),
        on_event=True,
        rows=(
            (at("00:00"), at("00:10"), 1, 2),
            (at("00:10"), at("00:20"), 3, 25),
            (at("00:20"), at("00:30"), 1, 4),
            (at("00:30"), at("00:40"), 1, 32),
        ),
    ),
    Case(
        name="late-for-one-hop-not-for-the-next",
        why="a late row is missing from hops that have fired and counts in those that have not",
        inputs={
            "readings.jsonl": (
                reading(at("00:12"), 1),
                reading(at("00:17"), 2),
                reading(at("00:09"), 4),
                reading(at("00:01"), 8),
                reading(at("00:40"), 16),
            )
        },
        sql=(readings(), totals(HOP)),
        on_event=True,
        rows=(
            (at("00:00"), at("00:15"), 1, 1),
            (at("00:05"), at("00:20"), 3, 7),
            (at("00:10"), at("00:25"), 2, 3),
            (at("00:15"), at("00:30"), 1, 2),
            (at("00:30"), at("00:45"), 1, 16),
            (at("00:35"), at("00:50"), 1, 16),
            (at("00:40"), at("00:55"), 1, 16),
        ),
    ),
    Case(
        name="steps-are-published-without-new-rows",
        why="each later step of a CUMULATE window repeats the total; a window starts from nothing",
        inputs={"readings.jsonl": (reading(at("00:00"), 1), reading(at("00:07"), 2), reading(at("00:05.999"), 4))},
        sql=(readings(" - INTERVAL '1' MINUTE"), totals(CUMULATE)),
        rows=(
            (at("00:00"), at("00:02"), 1, 1),
            (at("00:00"), at("00:04"), 1, 1),
            (at("00:00"), at("00:06"), 2, 5),
            (at("00:06"), at("00:08"), 1, 2),
            (at("00:06"), at("00:10"), 1, 2),
            (at("00:06"), at("00:12"), 1, 2),
        ),
    ),
    Case(
        name="null-is-a-key-of-its-own",
        why="beside the empty text, in each window",
        inputs={
            "readings.jsonl": (
                reading(at("00:01"), 1, None),
                reading(at("00:02"), 2, ""),
                reading(at("00:03"), 4, None),
                reading(at("00:11"), 8, None),
            )
        },
        sql=(readings(), totals(TUMBLE, "k, ")),
        rows=(
            (None, at("00:00"), at("00:10"), 2, 5),
            ("", at("00:00"), at("00:10"), 1, 2),
            (None, at("00:10"), at("00:20"), 1, 8),
        ),
    ),
    Case(
        name="subtotals-in-windows",
        why="GROUPING tells the NULL of a subtotal from the NULL of a row",
        inputs={
            "readings.jsonl": (reading(at("00:01"), 1, None), reading(at("00:02"), 2), reading(at("00:03"), "null"))
        },
        sql=(
            readings(),
            f"""SELECT window_start, k, GROUPING(k), COUNT(v), SUM(v) FROM TABLE({TUMBLE})
                GROUP BY window_start, window_end, ROLLUP (k)""",
        ),
        rows=(
            (at("00:00"), None, 0, 1, 1),
            (at("00:00"), "a", 0, 1, 2),
            (at("00:00"), None, 1, 2, 3),
        ),
    ),
    Case(
        name="windows-of-windows-by-window-time",
        why="ten-second totals make minutes; a row at a window's last millisecond stays in the right minute",
        inputs={
            "readings.jsonl": tuple(
                reading(at(second), 1) for second in ("00:59.999", "00:00", "01:00", "00:51", "02:59.999")
            )
        },
        sql=(
            readings(" - INTERVAL '2' MINUTE"),
            """CREATE VIEW tens AS SELECT window_time AS rt, COUNT(*) AS n FROM
               TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND))
               GROUP BY window_start, window_end, window_time""",
            """SELECT window_start, COUNT(*), SUM(n) FROM TABLE(
               TUMBLE(TABLE tens, DESCRIPTOR(rt), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end""",
        ),
        rows=((at("00:00"), 2, 3), (at("01:00"), 1, 1), (at("02:00"), 1, 1)),
    ),
    Case(
        name="a-window-keeps-its-rows-over-files",
        why="each file has its own order and watermark; a slow one holds the windows of all back",
        inputs={
            "a.jsonl": tuple(reading(at(f"{minute:02}:05"), 1) for minute in range(20)),
            "b.jsonl": tuple(reading(at(f"{minute:02}:06"), 10) for minute in range(20)),
            "c.jsonl": (),
        },
        sql=(
            readings().replace("/readings.jsonl", ""),
            "SELECT COUNT(*), MIN(n), MAX(n), SUM(total) FROM (" + totals(TUMBLE) + ")",
        ),
        rows=((20, 2, 2, 220),),
    ),
)


STAYS = source("stays", "id INT, ts TIMESTAMP(3), v INT").replace(
    ", PRIMARY KEY", ", WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE, PRIMARY KEY"
)


def stay(number: int, second: str, value: int) -> dict[str, object]:
    return {"id": number, "ts": at(second), "v": value}


def changing(name: str, window: str, *rows: tuple[object, ...]) -> Case:
    """A value changes, a row moves to an earlier window, one goes, and one comes and goes: its window never was."""
    first, second, third, fourth = stay(1, "00:01", 5), stay(2, "00:02", 7), stay(3, "00:12", 9), stay(4, "00:25", 1)
    changes = (
        (None, first),
        (None, second),
        (None, third),
        (first, stay(1, "00:01", 6)),
        (third, stay(3, "00:03", 9)),
        (second, None),
        (None, fourth),
        (fourth, None),
    )
    return Case(
        name=name,
        why="windows over a table that changes hold what is left when they fire",
        inputs={"stays.jsonl": tuple(event(before, after) for before, after in changes)},
        sql=(
            STAYS,
            f"""SELECT window_start, window_end, COUNT(*), SUM(v), MAX(v), MIN(v), COUNT(DISTINCT v)
                FROM TABLE({window.replace("readings", "stays")}) GROUP BY window_start, window_end""",
        ),
        rows=rows,
    )


HELD = (2, 15, 9, 6, 2)
CHANGES = (
    changing("tumbling-over-changes", TUMBLE, (at("00:00"), at("00:10"), *HELD)),
    changing(
        "hops-over-changes",
        HOP,
        ("2025-05-31 23:59:50", at("00:05"), *HELD),
        ("2025-05-31 23:59:55", at("00:10"), *HELD),
        (at("00:00"), at("00:15"), *HELD),
    ),
    changing(
        "steps-over-changes",
        CUMULATE,
        (at("00:00"), at("00:02"), 1, 6, 6, 6, 1),
        (at("00:00"), at("00:04"), *HELD),
        (at("00:00"), at("00:06"), *HELD),
    ),
)


@local_cases(*CHANGES)
def test_windows_over_changes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


@local_cases(*CASES)
def test_windows(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)
