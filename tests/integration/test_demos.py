"""`make demo`, `make demo-kafka` and `make bench`, small: what a new user runs first must work."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT

TIMEOUT_S = 240


def run(*arguments: str, bootstrap_servers: str | None = None) -> str:
    """The output of a module run as a program; it must succeed."""
    environment = dict(os.environ)
    environment.pop("KAFKA_BOOTSTRAP_SERVERS", None)
    if bootstrap_servers is not None:
        environment["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap_servers
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_demo_shows_results_rates_and_the_watermark_and_says_how_to_go_on() -> None:
    output = run("server.demo", "nexmark", "--seconds", "8", "--rate", "4000")
    assert len(re.findall(r"^\d\d:\d\d:\d\d +(?:Google|Facebook|Baidu|Apple) +\d", output, re.MULTILINE)) >= 4
    assert re.search(r"[\d,]+ bids read, [\d,]+ per second; watermark \d\d:\d\d:\d\d", output)
    assert "headrace sql" in output


@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_demo_kafka_is_exact_through_a_kill(kafka: str) -> None:
    output = run("server.demo", "kafka", "--bids", "40000", "--seconds", "6", bootstrap_servers=kafka)
    assert "kill -9" in output
    assert "Exact: every bid was counted once, through the kill." in output


@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_bench_prints_rates_shares_memory_and_the_ratio(kafka: str) -> None:
    pipeline = "filter, project"  # Of all stages.
    output = run("benchmarks.bench", "--rows", "30000", "--runs", "1", "--pipeline", pipeline, bootstrap_servers=kafka)
    section = output.partition(f"Kafka -> {pipeline} -> Kafka")[2]
    for line in ("pipeline ", "raw libraries ", "ratio ", "consume ", "engine", "peak memory"):
        assert line in section, f"no line '{line}'"
