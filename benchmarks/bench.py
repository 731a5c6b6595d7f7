"""`make bench`: rows per CPU second of whole pipelines, beside the bare cost of the libraries they stand on.

Each pipeline reads bids from a topic and writes to another one exactly once, checkpoint interval 1 s, on a cluster
started by `headrace standalone`. CPU is that of all processes of the cluster, threads of the Kafka client
included, from the submission of the job until it is FINISHED and the processes for the next job are ready. Starting
a job costs about the same however many rows it reads, so a run over few rows is taken off for the second figure.
Broker and generator are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import cluster as cluster_costs
from benchmarks.latency import Load, latencies_ms
from benchmarks.meter import Meter, Usage
from benchmarks.raw import STAGES
from benchmarks.topics import COLUMNS, PARTITIONS, count_committed, create, fill, fill_auctions
from server.demo.cluster import LocalCluster, Session
from tests.support.kafka import broker_for_tests

ROWS_OF_START_RUN = 4_000
KEYS = 1_000_000
INTERVAL_MS = 1_000
"""Of checkpoints."""
LATENCY_SHARE = 0.3
"""Of the rate of a pipeline, under which its latency is measured."""
LATENCY_WARM_S, LATENCY_S = 8.0, 12.0
LATENCY_ABOVE_INTERVAL_MS_MAX = 200
JOB_TIMEOUT_S = 600.0
DECLARED = (
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING"
)

AUCTIONS = "id BIGINT, seller BIGINT, category INT, reserve BIGINT"


@dataclass(frozen=True)
class Pipeline:
    """`columns`: those of the input that it reads. `raw_stages`: what even the barest program must do for it.
    `target`: the least share of the raw rate that it must reach while running."""

    name: str
    sink_columns: str
    query: str
    columns: tuple[str, ...]
    raw_stages: tuple[str, ...]
    rows_out: Callable[[int], int] | None
    target: float
    topic: str = "bids"
    sink_connector: str = "kafka"
    watermark: bool = True
    auction_columns: tuple[str, ...] = ()
    """Those that it reads of a topic of as many auctions as there are keys. The rates are those of bids: consuming and
    decoding auctions counts for the pipeline and for the raw libraries, both as part of what a bid costs."""


PIPELINES = (
    Pipeline(
        "filter, project",
        DECLARED,
        "SELECT auction, bidder, price * 2 AS price, channel, url, `dateTime`, extra FROM bids WHERE price >= 100",
        tuple(column.name for column in COLUMNS),
        STAGES,
        lambda rows: rows,
        0.60,
    ),
    Pipeline(
        "tumbling window",
        "auction BIGINT, window_start TIMESTAMP(3), bids BIGINT, total BIGINT",
        "SELECT auction, window_start, COUNT(*) AS bids, SUM(price) AS total "
        "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) "
        "GROUP BY auction, window_start, window_end",
        ("auction", "price", "dateTime"),
        STAGES[:2],
        None,
        0.60,
    ),
    Pipeline(
        "group by, a million keys",
        "auction BIGINT, bids BIGINT, total BIGINT, highest BIGINT, PRIMARY KEY (auction) NOT ENFORCED",
        "SELECT auction, COUNT(*) AS bids, SUM(price) AS total, MAX(price) AS highest FROM bids GROUP BY auction",
        ("auction", "price"),
        STAGES[:2],
        None,
        0.40,
        topic="bids-of-a-million",
        sink_connector="upsert-kafka",
        watermark=False,
    ),
    Pipeline(
        "regular join, a million auctions",
        "auction BIGINT, price BIGINT, seller BIGINT, category INT",
        "SELECT auction, price, seller, category FROM bids JOIN auctions ON auction = id",
        ("auction", "price"),
        STAGES[:2],
        None,
        0.30,
        topic="bids-of-a-million",
        watermark=False,
        auction_columns=("id", "seller", "category"),
    ),
)


@dataclass(frozen=True)
class Run:
    rows: int
    usage: Usage
    wall_s: float


class Bench:
    """One broker, one cluster, several runs of each pipeline."""

    def __init__(self, bootstrap_servers: str, cluster: LocalCluster, rows: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._cluster = cluster
        self._rows = rows
        self._made = 0
        create(bootstrap_servers, "few-bids", "few-auctions")
        fill_auctions(bootstrap_servers, "few-auctions", ROWS_OF_START_RUN)
        fill(bootstrap_servers, "few-bids", ROWS_OF_START_RUN)
        self.bytes_per_row = 0.0

    def fill(self, pipelines: Sequence[Pipeline]) -> None:
        """Make the topics that these read."""
        for topic in sorted({pipeline.topic for pipeline in pipelines}):
            create(self._bootstrap_servers, topic)
            written = fill(self._bootstrap_servers, topic, self._rows, KEYS if topic != "bids" else 0)
            self.bytes_per_row = written / self._rows
        if any(pipeline.auction_columns for pipeline in pipelines):
            create(self._bootstrap_servers, "auctions")
            fill_auctions(self._bootstrap_servers, "auctions", KEYS)

    def run(self, pipeline: Pipeline, topic: str, rows: int) -> Run:
        """One job over one topic, from submission to FINISHED."""
        self._made += 1
        target = f"out-{self._made}"
        create(self._bootstrap_servers, target)
        session = Session(self._cluster)
        try:
            for statement in self._tables(pipeline, topic, target):
                session.run(statement)
            meter, began_s = Meter(self._cluster.pid), time.perf_counter()
            session.wait(session.insert(f"INSERT INTO sink {pipeline.query}"), JOB_TIMEOUT_S)
            wall_s = time.perf_counter() - began_s
            run = Run(rows, meter.stop(settled=True), wall_s)
        finally:
            session.close()
        written = count_committed(self._bootstrap_servers, target)
        if pipeline.rows_out is not None and written != pipeline.rows_out(rows):
            raise RuntimeError(f"{pipeline.name}: {written} rows in {target}, expected {pipeline.rows_out(rows)}")
        return run

    def _tables(self, pipeline: Pipeline, topic: str, target: str, *, bounded: bool = True) -> list[str]:
        where = f"'properties.bootstrap.servers' = '{self._bootstrap_servers}'"
        watermark = ", WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND" if pipeline.watermark else ""
        reading = f"""'connector' = 'kafka', 'format' = 'json', {where}, 'scan.startup.mode' = 'earliest-offset'
              {", 'scan.bounded.mode' = 'latest-offset'" if bounded else ""}"""
        sources = [f"CREATE TEMPORARY TABLE bids ({DECLARED}{watermark}) WITH ({reading}, 'topic' = '{topic}')"]
        if pipeline.auction_columns:
            few = "few-auctions" if topic == "few-bids" else "auctions"
            sources.append(f"CREATE TEMPORARY TABLE auctions ({AUCTIONS}) WITH ({reading}, 'topic' = '{few}')")
        formats = "'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
        if pipeline.sink_connector == "upsert-kafka":
            formats = "'key.format' = 'json', 'value.format' = 'json'"
        sink = f"""CREATE TEMPORARY TABLE sink ({pipeline.sink_columns}) WITH (
              'connector' = '{pipeline.sink_connector}',
              {formats}, {where}, 'topic' = '{target}',
              'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'bench-{target}')"""
        return [f"SET 'execution.checkpointing.interval' = '{INTERVAL_MS} ms'", *sources, sink]

    def latency_ms(self, pipeline: Pipeline, rows_per_s: float) -> tuple[float, float]:
        """Median and 99th percentile of a pipeline that never ends, at a steady rate."""
        self._made += 1
        topic, target = f"steady-{self._made}", f"out-{self._made}"
        create(self._bootstrap_servers, topic, target)
        session = Session(self._cluster)
        try:
            for statement in self._tables(pipeline, topic, target, bounded=False):
                session.run(statement)
            job_id = session.insert(f"INSERT INTO sink {pipeline.query}")
            load = Load(self._bootstrap_servers, topic, rows_per_s, KEYS)
            try:
                ages = latencies_ms(self._bootstrap_servers, target, LATENCY_WARM_S, LATENCY_S)
            finally:
                load.stop()
            session.run(f"STOP JOB '{job_id}'")
        finally:
            session.close()
        return float(np.percentile(ages, 50)), float(np.percentile(ages, 99))

    def raw_cpu_s(self, pipeline: Pipeline, stage: str, parallelism: int) -> float:
        """CPU seconds of the libraries alone, up to and including a stage, in as many processes as there are slots."""
        self._made += 1
        target = f"raw-{self._made}"
        create(self._bootstrap_servers, target)
        cpu_s = self._raw_cpu_s(pipeline.topic, pipeline.columns, target, stage, parallelism)
        if pipeline.auction_columns:
            cpu_s += self._raw_cpu_s("auctions", pipeline.auction_columns, target, stage, parallelism)
        return cpu_s

    def _raw_cpu_s(self, topic: str, columns: Sequence[str], target: str, stage: str, parallelism: int) -> float:
        command = [sys.executable, "-m", "benchmarks.raw", "--bootstrap-servers", self._bootstrap_servers]
        command += ["--topic", topic, "--target", target, "--stage", stage, "--columns", ",".join(columns)]
        shares = [",".join(map(str, range(first, PARTITIONS, parallelism))) for first in range(parallelism)]
        running = [
            subprocess.Popen([*command, "--partitions", share], stdout=subprocess.PIPE) for share in shares if share
        ]
        return sum(float(json.loads(process.communicate()[0])["cpu_s"]) for process in running)


def measure(bench: Bench, pipeline: Pipeline, rows: int, runs: int, parallelism: int) -> None:
    """Run a pipeline between two runs of its floor, in turns, and print the medians. What the machine is like changes
    from minute to minute: each run is compared with the floor of its own minute."""
    bench.run(pipeline, "few-bids", ROWS_OF_START_RUN)  # The first job of a cluster also loads libraries.
    starts, whole, around = [], [], []
    raw: dict[str, list[float]] = {stage: [] for stage in pipeline.raw_stages}
    last_stage = pipeline.raw_stages[-1]
    for _ in range(runs):
        starts.append(bench.run(pipeline, "few-bids", ROWS_OF_START_RUN))
        before_s = bench.raw_cpu_s(pipeline, last_stage, parallelism)
        whole.append(bench.run(pipeline, pipeline.topic, rows))
        for stage in pipeline.raw_stages:
            raw[stage].append(bench.raw_cpu_s(pipeline, stage, parallelism))
        around.append((before_s + raw[last_stage][-1]) / 2)
    start_cpu_s = statistics.median(run.usage.total_cpu_s for run in starts)
    cpu_s = statistics.median(run.usage.total_cpu_s for run in whole)
    middle = min(whole, key=lambda run: abs(run.usage.total_cpu_s - cpu_s))
    floors = {stage: statistics.median(found) for stage, found in raw.items()}
    floors[last_stage] = floor_s = statistics.median(around)
    steady_s = cpu_s - start_cpu_s
    print(f"\nKafka -> {pipeline.name} -> Kafka")
    beside = f", beside {KEYS:,} auctions" if pipeline.auction_columns else ""
    size = f"{rows:,} rows of {bench.bytes_per_row:.0f} bytes{beside}"
    print(f"  {size}, parallelism {parallelism}, median of {runs} runs")
    running = (rows - ROWS_OF_START_RUN) / steady_s
    print(f"  pipeline          {rows / cpu_s:>11,.0f} rows per CPU second, start and stop of the job included")
    print(f"  pipeline, running {running:>11,.0f} rows per CPU second")
    print(f"  raw libraries     {rows / floor_s:>11,.0f} rows per CPU second, {' + '.join(pipeline.raw_stages)}")
    _print_ratio(pipeline, around, [run.usage.total_cpu_s - start_cpu_s for run in whole], ROWS_OF_START_RUN / rows)
    print(f"  wall clock        {rows / middle.wall_s:>11,.0f} rows per second")
    _print_shares(pipeline, floors, cpu_s, start_cpu_s, middle.usage)
    if pipeline.sink_connector == "upsert-kafka":
        _print_latency(bench, pipeline, running * LATENCY_SHARE)


def _print_ratio(pipeline: Pipeline, floors: list[float], steady: list[float], started: float) -> None:
    """`floors` and `steady`: CPU seconds, run by run; `started`: the share of the rows that the start is taken for."""
    ratios = [(1 - started) * floor_s / steady_s for floor_s, steady_s in zip(floors, steady, strict=True)]
    ratio = statistics.median(ratios)
    judged = "reached" if ratio >= pipeline.target else "missed"
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    print(f"  ratio             {ratio:>11.2f}{spread} of the raw libraries' rate while running: ", end="")
    print(f"{pipeline.target:.2f} is {judged}")


def _print_latency(bench: Bench, pipeline: Pipeline, rows_per_s: float) -> None:
    median, high = bench.latency_ms(pipeline, rows_per_s)
    most = INTERVAL_MS + LATENCY_ABOVE_INTERVAL_MS_MAX
    judged = "reached" if median <= most else "missed"
    print(f"  at {rows_per_s:,.0f} rows per second, from produce to read-committed visibility, checkpoints every 1 s:")
    print(f"    median {median:,.0f} ms (99 %: {high:,.0f} ms): {judged} {most} ms", flush=True)


def _print_shares(pipeline: Pipeline, floors: dict[str, float], cpu_s: float, start_cpu_s: float, usage: Usage) -> None:
    """What each stage takes of the pipeline's CPU: the libraries' stages as measured alone, the rest by difference."""
    shares, before = {}, 0.0
    for stage in pipeline.raw_stages:
        shares[stage] = max(floors[stage] - before, 0.0)
        before = floors[stage]
    shares["start and stop of the job"] = start_cpu_s
    shares["engine: operators, exchange, checkpoints, write-ahead"] = max(cpu_s - sum(shares.values()), 0.0)
    for stage, used in shares.items():
        print(f"    {stage:<54} {used:6.2f} CPU s {used / cpu_s:6.1%}")
    roles = ", ".join(f"{role} {used:.2f}" for role, used in sorted(usage.cpu_s.items()))
    print(f"  by process (CPU s): {roles}; Kafka client threads {usage.kafka_client_cpu_s:.2f}")
    peak, slot = usage.peak_bytes / 1e6, usage.peak_slot_bytes / 1e6
    print(f"  peak memory: {peak:,.0f} MB in all processes, {slot:,.0f} MB in the largest slot", flush=True)


def run(bench: Bench, arguments: argparse.Namespace) -> None:
    """The chosen pipelines one after the other."""
    print(f"\nfilling topics with {arguments.rows:,} bids", flush=True)
    chosen = [each for each in PIPELINES if not arguments.pipeline or each.name in arguments.pipeline]
    bench.fill(chosen)
    for pipeline in chosen:
        measure(bench, pipeline, arguments.rows, arguments.runs, arguments.parallelism)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--pipeline", choices=[pipeline.name for pipeline in PIPELINES], action="append")
    arguments = parser.parse_args()
    settings = {"parallelism.default": str(arguments.parallelism)}
    with broker_for_tests(peak_speed=True) as bootstrap_servers:
        if not arguments.pipeline:
            cluster_costs.report(cluster_costs.measure(bootstrap_servers))
        with LocalCluster(taskmanagers=1, slots=arguments.parallelism, settings=settings) as cluster:
            run(Bench(bootstrap_servers, cluster, arguments.rows), arguments)


if __name__ == "__main__":
    main()
