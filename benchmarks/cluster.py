"""What a cluster costs before and beside the rows: time until it is ready, memory, and CPU of a job without input."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import Meter, descendants
from benchmarks.topics import create
from server.demo.cluster import LocalCluster, Session

TASKMANAGERS, SLOTS = 2, 2
READY_S_MAX, PSS_MB_MAX, IDLE_SHARE_MAX = 3.0, 600, 0.03
WARM_S = 8.0
"""After this long slot processes have loaded what they need, and an idle job has nothing left to start."""
IDLE_S = 20.0

_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Costs:
    """`ready_s`: from the start of the launcher until HTTP answers and every slot is registered; `ready_cpu_s`: the CPU
    of all processes until then."""

    ready_s: float
    ready_cpu_s: float
    pss_mb: float
    idle_share: float


def pss_mb(root_pid: int) -> float:
    """Memory of a process and all below it, shared pages counted once."""
    total = 0
    for pid in descendants(root_pid):
        try:
            found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
        except OSError:
            continue  # It has just ended.
        total += int(found[1]) if found else 0
    return total / 1000


def measure(bootstrap_servers: str) -> Costs:
    """A cluster of its own, with one job over an empty topic and a checkpoint every 10 s."""
    create(bootstrap_servers, "nothing")
    began_s = time.perf_counter()
    with LocalCluster(taskmanagers=TASKMANAGERS, slots=SLOTS) as cluster:
        ready_s = time.perf_counter() - began_s
        ready_cpu_s = Meter(cluster.pid).stop().cpu_before_s
        time.sleep(WARM_S)
        memory = pss_mb(cluster.pid)
        session = Session(cluster)
        kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap_servers}', 'topic' = 'nothing'"
        session.run("SET 'execution.checkpointing.interval' = '10 s'")
        session.run("SET 'parallelism.default' = '2'")
        session.run(
            "CREATE TEMPORARY TABLE nothing (k BIGINT, t TIMESTAMP(3), WATERMARK FOR t AS t) "
            f"WITH ({kafka}, 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
        )
        session.run("CREATE TEMPORARY TABLE nowhere (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
        session.insert(
            "INSERT INTO nowhere SELECT k, COUNT(*) "
            "FROM TABLE(TUMBLE(TABLE nothing, DESCRIPTOR(t), INTERVAL '1' MINUTE)) "
            "GROUP BY k, window_start, window_end"
        )
        time.sleep(WARM_S)
        meter = Meter(cluster.pid)
        time.sleep(IDLE_S)
        idle_share = meter.stop().total_cpu_s / IDLE_S
        session.close()
    return Costs(ready_s, ready_cpu_s, memory, idle_share)


def report(costs: Costs) -> None:
    """Each figure beside what it must not exceed."""
    print(f"\nA cluster of {TASKMANAGERS} x {SLOTS} slots")
    for text, found, most in (
        (f"ready after (s; {costs.ready_cpu_s:.1f} CPU s by then)", costs.ready_s, READY_S_MAX),
        ("memory of all processes (PSS, MB)", costs.pss_mb, PSS_MB_MAX),
        ("an idle job, checkpoints every 10 s (share of a core)", costs.idle_share, IDLE_SHARE_MAX),
    ):
        judged = "reached" if found <= most else "missed"
        print(f"  {text:<58} {found:>8.3g}, at most {most:g}: {judged}", flush=True)
