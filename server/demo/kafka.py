"""The second demo: Kafka to Kafka, exactly once, while a TaskManager is killed with -9.

A plain producer sends bids for some seconds. Meanwhile a job reads them, counts bids per auction and window, and writes
exactly once to another topic; half way a TaskManager is killed. At the end a plain consumer reads the output: it must
be exactly what the producer counted (`outside`).
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
from server.demo.outside import PARTITIONS, Sender, Window, create_topics, written_windows

JOB_TIMEOUT_S = 300.0
SETTINGS = {
    "parallelism.default": "4",
    "execution.checkpointing.interval": "1 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "200 ms",
}
INSERT = """\
INSERT INTO counts
SELECT auction, window_start, COUNT(*) AS bids, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`time`), INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end"""


def run(bids: int, seconds: float) -> bool:
    """Whether the output was exact."""
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if not servers:
        raise ClusterError("set KAFKA_BOOTSTRAP_SERVERS to a Kafka broker, or use `make demo-kafka`, which starts one")
    say(
        f"1. Kafka answers at {servers}.",
        "2. Starting a cluster: a JobManager with the SQL gateway, two TaskManagers of two slots each.",
    )
    run_id = secrets.token_hex(3)
    source_topic, target_topic = f"demo-bids-{run_id}", f"demo-counts-{run_id}"
    create_topics(servers, source_topic, target_topic)
    sender = Sender(servers, source_topic, bids, seconds)
    with LocalCluster(taskmanagers=2, slots=2, settings=SETTINGS) as cluster:
        session = Session(cluster)
        for statement in tables(servers, source_topic, target_topic, sender.bids_per_partition):
            session.run(statement)
        say(f"3. A producer sends {sender.bids:,} bids over {seconds:.0f} s, up to 0.9 s out of order.")
        say("   The job that reads them meanwhile, exactly once, a checkpoint every second:", indented(INSERT))
        job_id = session.insert(INSERT)
        sender.start()
        _kill_half_way(cluster, job_id, sender)
        expected = sender.expected()
        say(f"   All {sender.sent:,} bids are sent.")
        session.wait(job_id, JOB_TIMEOUT_S)
        restarts = cluster.get(f"/jobs/{job_id}").get("restarts", 0)
        say(f"   The job has read them all and is FINISHED, after {restarts} restart(s).")
        session.close()
    say("4. Reading the output with a plain consumer and comparing it with what the producer counted:")
    return _report(written_windows(servers, target_topic), expected, sender.bids)


def tables(servers: str, source_topic: str, target_topic: str, bids_per_partition: int) -> list[str]:
    """The input, which ends where the producer will stop, and the output."""
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
    ends = ";".join(f"partition:{partition},offset:{bids_per_partition}" for partition in range(PARTITIONS))
    bids = f"""CREATE TABLE bids (auction BIGINT, price BIGINT, `time` TIMESTAMP(3),
          WATERMARK FOR `time` AS `time` - INTERVAL '1' SECOND) WITH (
          {kafka}, 'topic' = '{source_topic}', 'scan.startup.mode' = 'earliest-offset',
          'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = '{ends}')"""
    counts = f"""CREATE TABLE counts (auction BIGINT, window_start TIMESTAMP(3), bids BIGINT, total BIGINT) WITH (
          {kafka}, 'topic' = '{target_topic}', 'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = '{target_topic}')"""
    return [bids, counts]


def _kill_half_way(cluster: LocalCluster, job_id: str, sender: Sender) -> None:
    """When half of the bids are sent and a checkpoint is committed, kill a TaskManager."""
    deadline_s = time.monotonic() + JOB_TIMEOUT_S
    while time.monotonic() < deadline_s:
        completed = int(cluster.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"])
        if completed >= 1 and sender.sent >= sender.bids // 2:
            victim = taskmanager_pids(cluster.pid)[0]
            os.kill(victim, signal.SIGKILL)
            say(
                f"   {sender.sent:,} bids are sent, {completed} checkpoints committed: kill -9 {victim}, a TaskManager."
            )
            return
        if cluster.get(f"/jobs/{job_id}")["state"] in ("FINISHED", "FAILED", "CANCELED"):
            break
        time.sleep(0.05)
    raise ClusterError(f"the job did not commit a checkpoint: {cluster.last_failure(job_id)}")


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
