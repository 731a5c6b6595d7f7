"""The launcher with small real children: ready line, restarts, clean end, and no orphan after kill -9."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 20.0

# A child that writes its pid to a file of its own, answers HTTP when it got a port, and lives until it is ended.
CHILD = """
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from runtime.lifeline import end_with_parent
end_with_parent(int(sys.argv[sys.argv.index("--lifeline-fd") + 1]))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
open(f"{sys.argv[1]}.{os.getpid()}", "w").close()
HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""

LAUNCHER = """
import asyncio, sys
from runtime.launcher import ChildCommand, Launcher, StartFailedError
children = [ChildCommand(f"child {i}", tuple(argv.split("|"))) for i, argv in enumerate(sys.argv[2:])]
async def main():
    await Launcher(children, sys.argv[1], "ready now").run()
try:
    asyncio.run(main())
except StartFailedError as error:
    sys.exit(str(error))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(url: str, *children: list[str], messages: str = os.devnull) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LAUNCHER, url, *("|".join(child) for child in children)]
    with open(messages, "w") as target:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=target, text=True)


def child(marker: Path, port: int) -> list[str]:
    return [sys.executable, "-c", CHILD, str(marker), str(port)]


def pids(marker: Path) -> list[int]:
    return sorted(int(path.suffix[1:]) for path in marker.parent.glob(marker.name + ".*"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def until(what: str, condition: object) -> None:
    deadline = time.monotonic() + DEADLINE_S
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    launcher = start(f"http://127.0.0.1:{port}/", child(tmp_path / "a", port), child(tmp_path / "b", free_port()))
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "ready now\n"
    until("both children", lambda: len(pids(tmp_path / "a")) == len(pids(tmp_path / "b")) == 1)
    launcher.send_signal(number)
    assert launcher.wait(DEADLINE_S) == 0
    assert launcher.stdout.read() == ""
    assert not any(alive(pid) for pid in pids(tmp_path / "a") + pids(tmp_path / "b"))
    launcher.stdout.close()


@pytest.mark.parametrize("messages", [os.devnull, "/dev/full"])
def test_what_dies_is_started_again(tmp_path: Path, messages: str) -> None:
    """Also where nobody can be told."""
    port = free_port()
    launcher = start(f"http://127.0.0.1:{port}/", child(tmp_path / "a", port), messages=messages)
    assert launcher.stdout is not None
    launcher.stdout.readline()
    (first,) = pids(tmp_path / "a")
    os.kill(first, signal.SIGKILL)
    until("a second process", lambda: len(pids(tmp_path / "a")) == 2)
    launcher.terminate()
    assert launcher.wait(DEADLINE_S) == 0
    launcher.stdout.close()


def test_no_child_outlives_a_killed_launcher(tmp_path: Path) -> None:
    port = free_port()
    launcher = start(f"http://127.0.0.1:{port}/", child(tmp_path / "a", port))
    assert launcher.stdout is not None
    launcher.stdout.readline()
    launcher.kill()
    launcher.wait()
    (pid,) = pids(tmp_path / "a")
    until("the orphan's end", lambda: not alive(pid))
    launcher.stdout.close()


def test_a_child_that_never_starts_ends_the_launcher(tmp_path: Path) -> None:
    port = free_port()
    launcher = start(
        f"http://127.0.0.1:{port}/", [sys.executable, "-c", "raise SystemExit(3)"], child(tmp_path / "a", free_port())
    )
    assert launcher.wait(DEADLINE_S) == 1
    assert not any(alive(pid) for pid in pids(tmp_path / "a"))
    assert launcher.stdout is not None
    launcher.stdout.close()
