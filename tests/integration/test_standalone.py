"""`headrace standalone` as a user runs it: one line when ready, a clean end, a clear word when it cannot start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.support.standalone import GatewayError, free_port, standalone

COMMAND = [sys.executable, "-P", "-m", "server", "standalone"]
DEADLINE_S = 90.0


def below(pid: int) -> set[int]:
    """All processes that descend from `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, before = {pid}, 0
    while len(found) != before:
        before = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_says_when_it_is_ready_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    arguments = ["--http-port", str(port), "--data-dir", str(tmp_path / "data"), "--taskmanagers", "2", "--slots", "1"]
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.search(rf"ready.*http://127\.0\.0\.1:{port}", line), (tmp_path / "log").read_text()
        overview = httpx2.get(f"http://127.0.0.1:{port}/overview", timeout=30).json()
        assert (overview["taskmanagers"], overview["slots-total"]) == (2, 2)
        children = below(process.pid)
        assert len(children) >= 5  # JobManager, two TaskManagers and their slots.
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
        assert process.stdout.read() == ""
        deadline_s = time.monotonic() + DEADLINE_S
        while any(is_alive(child) for child in children):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert (tmp_path / "data").is_dir()
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
        log.close()


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--http-port", str(port), "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--http-port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_cluster_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with standalone(tmp_path / "data", taskmanagers=1, slots=1) as first:
        second = subprocess.run(
            [*COMMAND, "--http-port", str(free_port()), "--data-dir", str(first.data)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert second.returncode == 1
        assert f"the data directory {first.data} is in use by another JobManager" in second.stderr
        assert "Traceback" not in second.stderr
        assert first.session().execute("SHOW TABLES").rows == []


def test_a_missing_topic_ends_in_a_clear_message(kafka: str, tmp_path: Path) -> None:
    with standalone(tmp_path / "data", taskmanagers=1, slots=1) as cluster:
        session = cluster.session()
        options = "'connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
        session.execute(
            f"CREATE TABLE t (id INT) WITH ({options}, 'topic' = 'never-made', "
            f"'properties.bootstrap.servers' = '{kafka}')"
        )
        job_id = session.execute("INSERT INTO t VALUES (1)").job_id
        assert job_id is not None
        failure = cluster.wait_for_job(job_id, "FAILED", timeout_s=60)["failure"]
        assert failure["message"] == "topic never-made does not exist"
        assert failure["hint"].startswith("Create it first")
        with pytest.raises(GatewayError, match="topic never-made does not exist"):
            session.execute("SELECT id FROM t")
