"""The second demo: Kafka to Kafka, exactly once, while a TaskManager is killed with -9.

Everything is SQL. A first job fills a topic from the deterministic `nexmark` source. A second one reads it, counts bids
per auction and window, and writes exactly once to another topic; half way its TaskManager is killed. Then the
committed rows of that topic are compared with the same query over the same events straight from the source.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from server.demo.cluster import ClusterError, LocalCluster, Session
from server.demo.nexmark import indented, say

JOB_TIMEOUT_S = 300.0
EVENTS_PER_SECOND = 5_000
BIDS_PER_FIFTY_EVENTS = 46
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)"
WATERMARK = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND"
COUNTS = "auction BIGINT, window_start TIMESTAMP(3), bids BIGINT, total BIGINT"
QUERY = """\
SELECT auction, window_start, COUNT(*) AS bids, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end"""


def run(events: int) -> bool:
    """Whether the output was exact."""
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if not servers:
        raise ClusterError("set KAFKA_BOOTSTRAP_SERVERS to a Kafka broker, or use `make demo-kafka`, which starts one")
    say(
        f"1. Kafka answers at {servers}.",
        "2. Starting a cluster: a JobManager with the SQL gateway, two TaskManagers of two slots each.",
    )
    settings = {
        "parallelism.default": "4",
        "execution.checkpointing.interval": "1 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "200 ms",
    }
    with LocalCluster(taskmanagers=2, slots=2, settings=settings) as cluster:
        session = Session(cluster)
        for statement in tables(servers, events):
            session.run(statement)
        bids = events // 50 * BIDS_PER_FIFTY_EVENTS
        say(f"3. Filling a topic with {bids:,} bids, by SQL from the built-in nexmark source.")
        session.wait(session.insert("INSERT INTO bids SELECT * FROM generated"), JOB_TIMEOUT_S)
        insert = f"INSERT INTO counts\n{QUERY.format(table='bids')}"
        say("4. The job, exactly once, a checkpoint every second:", indented(insert))
        job_id = session.insert(insert)
        _kill_half_way(cluster, job_id, bids)
        session.wait(job_id, JOB_TIMEOUT_S)
        details = cluster.get(f"/jobs/{job_id}")
        say(f"   The job has finished, after {details.get('restarts', 0)} restart(s).")
        say("5. Comparing the committed rows with the same query over the same events, without Kafka.")
        found = Counter(_row(row.fields) for row in session.run("SELECT * FROM counts"))
        wanted = Counter(_row(row.fields) for row in session.run(QUERY.format(table="generated")))
        session.close()
    return _report(found, wanted, bids)


def tables(servers: str, events: int) -> list[str]:
    """The tables, on topics of this run's own."""
    run_id = secrets.token_hex(3)
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
    read = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    generated = f"""CREATE TABLE generated ({BIDS}, {WATERMARK}) WITH (
          'connector' = 'nexmark', 'table.type' = 'bid', 'events.num' = '{events // 50 * 50}',
          'tps' = '{EVENTS_PER_SECOND}', 'rate.limited' = 'false')"""
    bids = f"CREATE TABLE bids ({BIDS}, {WATERMARK}) WITH ({kafka}, {read}, 'topic' = 'demo-bids-{run_id}')"
    counts = f"""CREATE TABLE counts ({COUNTS}) WITH ({kafka}, {read}, 'topic' = 'demo-counts-{run_id}',
          'properties.isolation.level' = 'read_committed', 'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = 'demo-{run_id}')"""
    return [generated, bids, counts]


def _kill_half_way(cluster: LocalCluster, job_id: str, bids: int) -> None:
    """Wait until about half of the input was read and a checkpoint is committed, then kill a TaskManager."""
    deadline_s = time.monotonic() + JOB_TIMEOUT_S
    while time.monotonic() < deadline_s:
        details = cluster.get(f"/jobs/{job_id}")
        if details["state"] in ("FINISHED", "FAILED", "CANCELED"):
            raise ClusterError(f"the job was {details['state']} before its TaskManager could be killed")
        read = int(details["vertices"][0]["metrics"]["read-records"])
        completed = int(cluster.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"])
        if completed >= 1 and read >= bids // 3:
            victim = taskmanager_pids(cluster.pid)[0]
            os.kill(victim, signal.SIGKILL)
            say(f"   {read:,} bids read, {completed} checkpoint(s) committed: kill -9 {victim}, a TaskManager.")
            return
        time.sleep(0.02)
    raise ClusterError("the job made no progress")


def taskmanager_pids(launcher_pid: int) -> list[int]:
    """The TaskManager processes a launcher has started."""
    found = []
    for children in Path(f"/proc/{launcher_pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            if "taskmanager" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                found.append(int(pid))
    return sorted(found)


def _row(fields: list[Any]) -> tuple[str, ...]:
    return tuple(map(str, fields))


def _report(found: Counter[tuple[str, ...]], wanted: Counter[tuple[str, ...]], bids: int) -> bool:
    """Say what was found, and whether it is exact."""
    counted = sum(int(row[2]) * times for row, times in found.items())
    missing, extra = wanted - found, found - wanted
    say(
        f"   rows in the output topic  {found.total():>12,}",
        f"   rows expected             {wanted.total():>12,}",
        f"   missing                   {missing.total():>12,}",
        f"   duplicated or wrong       {extra.total():>12,}",
        f"   bids counted              {counted:>12,} of {bids:,}",
    )
    exact = found == wanted and counted == bids
    say("", "Exact: every bid was counted once, through the kill." if exact else "NOT EXACT: please report this.")
    return exact
