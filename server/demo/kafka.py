"""The second demo: Kafka to Kafka, exactly once, while a TaskManager is killed with -9.

A first job fills a topic from the `nexmark` source. A second one reads it, counts bids per auction and window, and
writes exactly once to another topic; half way a TaskManager is killed. Then a plain consumer reads both topics and
plain Python counts (`outside`): the committed output must be exactly what the input demands.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from pathlib import Path

from server.demo.cluster import ClusterError, LocalCluster, Session
from server.demo.nexmark import indented, say
from server.demo.outside import Window, create_topics, expected_windows, written_windows

JOB_TIMEOUT_S = 300.0
EVENTS_PER_SECOND = 5_000
BIDS_PER_FIFTY_EVENTS = 46
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)"
WATERMARK = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND"
INSERT = """\
INSERT INTO counts
SELECT auction, window_start, COUNT(*) AS bids, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
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
    run_id = secrets.token_hex(3)
    source_topic, target_topic = f"demo-bids-{run_id}", f"demo-counts-{run_id}"
    create_topics(servers, source_topic, target_topic)
    bids = events // 50 * BIDS_PER_FIFTY_EVENTS
    with LocalCluster(taskmanagers=2, slots=2, settings=settings) as cluster:
        session = Session(cluster)
        for statement in tables(servers, events, source_topic, target_topic):
            session.run(statement)
        say(f"3. Filling a topic with {bids:,} bids, by SQL from the built-in nexmark source.")
        session.wait(session.insert("INSERT INTO bids SELECT * FROM generated"), JOB_TIMEOUT_S)
        say("4. The job, exactly once, a checkpoint every second:", indented(INSERT))
        job_id = session.insert(INSERT)
        _kill_half_way(cluster, job_id, bids)
        session.wait(job_id, JOB_TIMEOUT_S)
        restarts = cluster.get(f"/jobs/{job_id}").get("restarts", 0)
        say(f"   The job has finished, after {restarts} restart(s).")
        session.close()
    say("5. Reading both topics with a plain consumer and counting again in plain Python.")
    return _report(written_windows(servers, target_topic), expected_windows(servers, source_topic), bids)


def tables(servers: str, events: int, source_topic: str, target_topic: str) -> list[str]:
    """A deterministic source, and a table for each topic."""
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
    read = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    generated = f"""CREATE TABLE generated ({BIDS}, {WATERMARK}) WITH (
          'connector' = 'nexmark', 'table.type' = 'bid', 'events.num' = '{events // 50 * 50}',
          'tps' = '{EVENTS_PER_SECOND}', 'rate.limited' = 'false')"""
    # One generator per partition: rows stay in order within it, and none is late.
    bids = f"""CREATE TABLE bids ({BIDS}, {WATERMARK}) WITH ({kafka}, {read}, 'topic' = '{source_topic}',
          'sink.partitioner' = 'fixed')"""
    counts = f"""CREATE TABLE counts (auction BIGINT, window_start TIMESTAMP(3), bids BIGINT, total BIGINT) WITH (
          {kafka}, {read}, 'topic' = '{target_topic}', 'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = '{target_topic}')"""
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


def _report(found: Counter[Window], wanted: Counter[Window], bids: int) -> bool:
    """Say what was found, and whether it is exact."""
    counted = sum(window[2] * times for window, times in found.items())
    missing, extra = wanted - found, found - wanted
    say(
        f"   windows in the output topic {found.total():>12,}",
        f"   windows expected            {wanted.total():>12,}",
        f"   missing                     {missing.total():>12,}",
        f"   duplicated or wrong         {extra.total():>12,}",
        f"   bids counted                {counted:>12,} of {bids:,}",
    )
    exact = found == wanted and counted == bids
    say("", "Exact: every bid was counted once, through the kill." if exact else "NOT EXACT: please report this.")
    return exact
