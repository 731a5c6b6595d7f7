"""The first demo: a standalone cluster, a table by SQL, a continuous windowed query, its results as they come."""

from __future__ import annotations

import datetime as dt
import os
import textwrap
import time
from typing import Any

from server.cli.client import Page
from server.demo.cluster import LocalCluster, Session

CREATE_BIDS = """\
CREATE TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND
) WITH (
  'connector' = 'nexmark', 'table.type' = 'bid', 'tps' = '{rate}', 'base-time' = 'now'
)"""

TOP_CHANNELS = """\
SELECT window_start, channel, COUNT(*) AS bids, MAX(price) AS highest, AVG(price) AS average
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '1' SECOND))
WHERE channel IN ('Google', 'Facebook', 'Baidu', 'Apple')
GROUP BY window_start, window_end, channel"""

HEADING = f"{'window_start':<14}{'channel':<10}{'bids':>8}{'highest':>14}{'average':>14}"


def run(seconds: float, rate: int) -> None:
    """Show the query's results for some seconds, then how to go on."""
    say("1. Starting a cluster: a JobManager with the SQL gateway, two TaskManagers of two slots each.")
    with LocalCluster(taskmanagers=2, slots=2, settings={"parallelism.default": "2"}) as cluster:
        session = Session(cluster)
        say(f"   It is ready at {cluster.url}.")
        create = CREATE_BIDS.format(rate=rate)
        say("2. Creating a table over the built-in nexmark source, an auction site:", indented(create))
        session.run(create)
        say("3. A continuous query, one row per channel for each second of event time:", indented(TOP_CHANNELS))
        _watch(cluster, session, seconds)
        session.close()
        say("4. The query has ended with its reader; the cluster stops now.")
    say(
        "",
        "To go on from here:",
        "  a cluster that stays    .venv/bin/headrace standalone --data-dir data --taskmanagers 2 --slots 2",
        "  the SQL shell           .venv/bin/headrace sql               (\\? shows what it can do)",
        "  the HTTP API            curl http://127.0.0.1:8083/overview  (/openapi.json has all of it)",
        "  a Kafka pipeline        make demo-kafka                      (exactly once, through a kill -9)",
    )


def _watch(cluster: LocalCluster, session: Session, seconds: float) -> None:
    """Print rows as they arrive, and every second what the source has read and where the watermark is."""
    say("", HEADING)
    began_s = told_s = time.monotonic()
    records_told = 0
    for page in session.pages(TOP_CHANNELS):
        now_s = time.monotonic()
        if page is not None:
            _print_rows(page)
            if page.job_id is not None and now_s - told_s >= 1.0:
                source = cluster.get(f"/jobs/{page.job_id}")["vertices"][0]["metrics"]
                records = int(source["read-records"])
                if records > records_told:
                    _print_progress(records, (records - records_told) / (now_s - told_s), source.get("watermark-ms"))
                    records_told, told_s = records, now_s
        if now_s - began_s >= seconds:
            return


def _print_rows(page: Page) -> None:
    for row in page.rows:
        start, channel, bids, highest, average = row.fields
        say(f"{str(start)[11:19]:<14}{channel:<10}{bids:>8,}{highest:>14,}{average:>14,}")


def _print_progress(records: int, rate: float, watermark_ms: Any) -> None:
    text = "none yet"
    if watermark_ms is not None:
        text = dt.datetime.fromtimestamp(int(watermark_ms) / 1000, dt.UTC).strftime("%H:%M:%S.%f")[:-3]
    dim, plain = ("\x1b[2m", "\x1b[0m") if os.isatty(1) else ("", "")
    say(f"{dim}    {records:,} bids read, {rate:,.0f} per second; watermark {text}{plain}")


def indented(sql: str) -> str:
    return textwrap.indent(sql, "     ")


def say(*lines: str) -> None:
    """Lines for the reader, shown at once."""
    for line in lines:
        print(line, flush=True)
