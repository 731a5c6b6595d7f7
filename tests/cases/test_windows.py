"""Cases of windows and event time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import Case, Shape, on_cluster, run_case
from tests.support.local_cases import local_cases, run_locally
from tests.support.standalone import Standalone, late_rows

EVENTS = """
CREATE TABLE events (id INT, kind STRING, ts TIMESTAMP(3), amount INT, WATERMARK FOR ts AS ts{delay})
WITH ('connector' = 'filesystem', 'path' = '{dir}/events.jsonl', 'format' = 'json'{watermark})
"""


def events(delay: str = "") -> str:
    return EVENTS.replace("{delay}", f" - INTERVAL {delay}" if delay else "")


def row(number: int, time: str | None, amount: int, kind: str = "a") -> str:
    stamp = "null" if time is None else f'"2025-06-01 {time}"'
    return f'{{"id": {number}, "kind": "{kind}", "ts": {stamp}, "amount": {amount}}}'


def day(time: str) -> str:
    return f"2025-06-01 {time}"


TOTALS = """
SELECT window_start, window_end, COUNT(*) AS n, SUM(amount) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end
"""

ZONED = """
CREATE TABLE visits (id INT, at_ms BIGINT, ts AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '2' HOUR)
WITH ('connector' = 'filesystem', 'path' = '{dir}/visits.jsonl', 'format' = 'json')
"""

DAILY = """
SELECT window_start, window_end, COUNT(*) AS n
FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '1' DAY)
GROUP BY window_start, window_end
"""


def hourly(first_ms: int, count: int) -> tuple[str, ...]:
    return tuple(f'{{"id": {i}, "at_ms": {first_ms + i * 3_600_000}}}' for i in range(count))


CASES = (
    Case(
        name="end-belongs-to-the-next-window",
        why="a window holds its start and not its end",
        inputs={
            "events.jsonl": (
                row(1, "08:00:00", 1),
                row(2, "08:00:04.999", 10),
                row(3, "08:00:05", 100),
                row(4, "08:00:09.999", 1000),
                row(5, "08:00:10", 10000),
            )
        },
        sql=(events(), TOTALS),
        rows=(
            (day("08:00:00"), day("08:00:05"), 2, 11),
            (day("08:00:05"), day("08:00:10"), 2, 1100),
            (day("08:00:10"), day("08:00:15"), 1, 10000),
        ),
        on_event=True,
    ),
    Case(
        name="watermark-equal-to-the-last-millisecond-fires",
        why="a window fires when the watermark reaches end - 1 ms: the next row of it is late",
        inputs={
            "events.jsonl": (
                row(1, "08:00:01", 1),
                row(2, "08:00:06.998", 10),
                row(3, "08:00:02", 100),
                row(4, "08:00:06.999", 1000),
                row(5, "08:00:03", 10000),
            )
        },
        sql=(events("'2' SECOND"), TOTALS),
        rows=((day("08:00:00"), day("08:00:05"), 2, 101), (day("08:00:05"), day("08:00:10"), 2, 1010)),
        on_event=True,
    ),
    Case(
        name="offset-moves-the-boundaries",
        why="with an offset of 8 hours the day starts at 08:00",
        inputs={
            "events.jsonl": (
                row(1, "07:59:59.999", 1),
                row(2, "08:00:00", 10),
                row(3, "23:30:00", 100),
            )
        },
        sql=(
            events(),
            """
            SELECT window_start, window_end, SUM(amount) AS total
            FROM TABLE(TUMBLE(DATA => TABLE events, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' DAY,
                              `OFFSET` => INTERVAL '8' HOUR))
            GROUP BY window_start, window_end
            """,
        ),
        rows=(
            ("2025-05-31 08:00:00", "2025-06-01 08:00:00", 1),
            ("2025-06-01 08:00:00", "2025-06-02 08:00:00", 110),
        ),
    ),
    Case(
        name="filtered-rows-still-move-time",
        why="the watermark is taken before WHERE: a row behind one that WHERE removes is late all the same",
        inputs={
            "events.jsonl": (
                row(1, "08:00:01", 1, "keep"),
                row(2, "08:00:20", 10, "drop"),
                row(3, "08:00:03", 100, "keep"),
                row(4, "08:00:21", 1000, "keep"),
            )
        },
        sql=(
            events(),
            """
            SELECT window_start, window_end, COUNT(*) AS n, SUM(amount) AS total
            FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND))
            WHERE kind = 'keep'
            GROUP BY window_start, window_end
            """,
        ),
        rows=((day("08:00:00"), day("08:00:05"), 1, 1), (day("08:00:20"), day("08:00:25"), 1, 1000)),
        on_event=True,
    ),
    Case(
        name="null-event-time-is-refused",
        why="a row without event time belongs to no window; it may not open one without bounds",
        inputs={
            "events.jsonl": (
                row(1, "08:00:01", 1),
                row(2, None, 10),
                '{"id": 3, "kind": "a", "amount": 100}',
            )
        },
        sql=(events(), TOTALS),
        error=r"events.*\bts\b.*null|null.*\bts\b.*events|\bts\b.*events.*null",
    ),
    Case(
        name="local-days-of-an-eastern-zone",
        why="days over TIMESTAMP_LTZ begin at midnight of the session's zone, not of UTC",
        inputs={
            "visits.jsonl": (
                '{"id": 1, "at_ms": 1735657199999}',
                '{"id": 2, "at_ms": 1735657200000}',
                '{"id": 3, "at_ms": 1735743599999}',
            )
        },
        sql=("SET 'table.local-time-zone' = 'Asia/Tokyo'", ZONED, DAILY),
        rows=(
            ("2024-12-31 00:00:00", "2025-01-01 00:00:00", 1),
            ("2025-01-01 00:00:00", "2025-01-02 00:00:00", 2),
        ),
    ),
    Case(
        name="the-autumn-day-has-25-hours",
        why="the repeated hour belongs to its day, once",
        inputs={"visits.jsonl": hourly(1729976400000, 27)},
        sql=("SET 'table.local-time-zone' = 'Europe/Berlin'", ZONED, DAILY),
        rows=(
            ("2024-10-26 00:00:00", "2024-10-27 00:00:00", 1),
            ("2024-10-27 00:00:00", "2024-10-28 00:00:00", 25),
            ("2024-10-28 00:00:00", "2024-10-29 00:00:00", 1),
        ),
    ),
    Case(
        name="the-spring-day-has-23-hours",
        why="the missing hour is missing, and nothing else moves",
        inputs={"visits.jsonl": hourly(1743285600000, 25)},
        sql=("SET 'table.local-time-zone' = 'Europe/Berlin'", ZONED, DAILY),
        rows=(
            ("2025-03-29 00:00:00", "2025-03-30 00:00:00", 1),
            ("2025-03-30 00:00:00", "2025-03-31 00:00:00", 23),
            ("2025-03-31 00:00:00", "2025-04-01 00:00:00", 1),
        ),
    ),
    Case(
        name="aggregates-skip-nulls-and-filter",
        why="NULL counts for COUNT(*) only, FILTER counts TRUE only, NULLs alone sum to NULL, AVG of INT truncates",
        inputs={
            "events.jsonl": (
                row(1, "08:00:00", 7),
                row(2, "08:00:01", -8),
                '{"id": 3, "kind": "a", "ts": "2025-06-01 08:00:02"}',
                '{"id": 4, "kind": null, "ts": "2025-06-01 08:00:03", "amount": null}',
                row(5, "08:00:03", 2147483647, "b"),
                row(6, "08:00:04", 1, "b"),
            )
        },
        sql=(
            events(),
            """
            SELECT kind, COUNT(*) AS n, COUNT(amount) AS known, SUM(amount) AS total, MIN(amount) AS least,
                   MAX(amount) AS most, AVG(amount) AS mean, COUNT(*) FILTER (WHERE amount > 0) AS positive
            FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND))
            GROUP BY kind, window_start, window_end
            """,
        ),
        rows=(
            ("a", 3, 2, -1, -8, 7, 0, 1),
            (None, 1, 0, None, None, None, None, 0),
            ("b", 2, 2, -2147483648, 1, 2147483647, 1073741824, 2),
        ),
    ),
    Case(
        name="having-and-a-view",
        why="HAVING filters windows; a view keeps the time attribute",
        inputs={
            "events.jsonl": (
                row(1, "08:00:00", 1, "a"),
                row(2, "08:00:01", 2, "b"),
                row(3, "08:00:02", 3, "b"),
                row(4, "08:00:07", 4, "b"),
            )
        },
        sql=(
            events(),
            "CREATE VIEW doubled AS SELECT kind, ts, amount * 2 AS amount FROM events WHERE id > 0",
            """
            SELECT kind, window_start, total FROM (
              SELECT kind, window_start, window_end, SUM(amount) AS total, COUNT(*) AS n
              FROM TABLE(TUMBLE(TABLE doubled, DESCRIPTOR(ts), INTERVAL '5' SECOND))
              GROUP BY kind, window_start, window_end
              HAVING COUNT(*) > 1
            )
            """,
        ),
        rows=(("b", day("08:00:00"), 10),),
    ),
    Case(
        name="a-window-of-windows",
        why="window_time carries event time on: windows of windows",
        inputs={
            "events.jsonl": (
                row(1, "08:00:00", 1),
                row(2, "08:00:06", 2),
                row(3, "08:00:09", 3),
                row(4, "08:00:11", 4),
            )
        },
        sql=(
            events(),
            """
            WITH fine AS (
              SELECT window_time AS ft, COUNT(*) AS n
              FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND))
              GROUP BY window_start, window_end, window_time
            )
            SELECT window_start, window_end, COUNT(*) AS parts, SUM(n) AS n
            FROM TABLE(TUMBLE(TABLE fine, DESCRIPTOR(ft), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
            """,
        ),
        rows=((day("08:00:00"), day("08:00:10"), 2, 3), (day("08:00:10"), day("08:00:20"), 1, 1)),
    ),
    Case(
        name="a-late-row-counts-in-steps-to-come",
        why="a row behind a published step of CUMULATE is missing there and present in every later step",
        inputs={
            "events.jsonl": (
                row(1, "08:00:02", 1),
                row(2, "08:00:11", 10),
                row(3, "08:00:07", 100),
                row(4, "08:00:21", 1000),
            )
        },
        sql=(
            events(),
            """
            SELECT window_start, window_end, COUNT(*) AS n, SUM(amount) AS total
            FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))
            GROUP BY window_start, window_end
            """,
        ),
        rows=(
            (day("08:00:00"), day("08:00:05"), 1, 1),
            (day("08:00:00"), day("08:00:10"), 1, 1),
            (day("08:00:00"), day("08:00:15"), 3, 111),
            (day("08:00:00"), day("08:00:20"), 3, 111),
            *((day("08:00:20"), day(f"08:00:{second}"), 1, 1000) for second in (25, 30, 35, 40)),
        ),
        on_event=True,
    ),
    Case(
        name="hops-overlap-and-start-before-the-epoch",
        why="a row is in size / slide windows, counted from the epoch also before it",
        inputs={
            "events.jsonl": (
                '{"id": 1, "kind": "a", "ts": "1969-12-31 23:59:57", "amount": 1}',
                '{"id": 2, "kind": "a", "ts": "1970-01-01 00:00:01", "amount": 10}',
            )
        },
        sql=(
            events(),
            """
            SELECT window_end, COUNT(DISTINCT amount) AS n, SUM(amount) AS total
            FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
            """,
        ),
        rows=(
            ("1970-01-01 00:00:00", 1, 1),
            ("1970-01-01 00:00:05", 2, 11),
            ("1970-01-01 00:00:10", 1, 10),
        ),
    ),
)


@on_cluster(CASES)
def test_windows(case: Case, shape: Shape, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, shape, cluster, tmp_path)


@local_cases(*CASES)
def test_windows_in_all_shapes(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


FAR_AHEAD = Case(
    name="one-row-far-ahead",
    why="a row stamped a day ahead closes the windows of honest rows: they are dropped, and counted",
    inputs={
        "events.jsonl": (
            row(1, "08:00:01", 1),
            '{"id": 2, "kind": "a", "ts": "2025-06-02 08:00:00", "amount": 10}',
            row(3, "08:00:02", 100),
            row(4, "08:00:07", 1000),
            row(5, "08:00:08", 10000),
        )
    },
    sql=(events("'10' SECOND"), TOTALS),
    rows=((day("08:00:00"), day("08:00:05"), 1, 1), ("2025-06-02 08:00:00", "2025-06-02 08:00:05", 1, 10)),
    on_event=True,
)


@pytest.mark.parametrize("batch_rows", [1, 8192])
def test_one_row_far_ahead(batch_rows: int, cluster: Standalone, tmp_path: Path) -> None:
    result = run_case(FAR_AHEAD, Shape(1, batch_rows), cluster, tmp_path)
    assert result is not None
    assert result.job_id is not None
    # The last rows are there before the job has ended and its figures are final.
    job = cluster.wait_for_job(result.job_id, "FINISHED", timeout_s=30)
    assert late_rows(job) == 3
    assert sum(row[2] for row in result.rows) + 3 == len(FAR_AHEAD.inputs["events.jsonl"])


REFUSED = (
    Case(
        name="zero-size",
        why="a window needs a positive size",
        sql=(events(), TOTALS.replace("'5' SECOND", "'0' SECOND")),
        error=r"positive|greater than|> 0|must be",
    ),
    Case(
        name="hop-whose-size-is-no-multiple-of-the-slide",
        why="refused when planned, by name",
        sql=(
            events(),
            """
            SELECT window_start, window_end, COUNT(*) AS n
            FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
            """,
        ),
        error=r"HOP",
    ),
    Case(
        name="time-column-without-watermark",
        why="windows demand a time attribute, and the message names the column",
        sql=(
            (
                "CREATE TABLE plain (ts TIMESTAMP(3), v INT) WITH "
                "('connector' = 'filesystem', 'path' = '{dir}/plain.jsonl', 'format' = 'json')"
            ),
            """
            SELECT window_start, window_end, COUNT(*) AS n
            FROM TABLE(TUMBLE(TABLE plain, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
            """,
        ),
        error=r"\bts\b.*time attribute|time attribute.*\bts\b",
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_when_planned(case: Case, cluster: Standalone, tmp_path: Path) -> None:
    run_case(case, Shape(1, 8192), cluster, tmp_path)
