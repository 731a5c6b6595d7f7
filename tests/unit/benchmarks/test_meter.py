"""The meter of the benchmarks: CPU of a whole tree, ended processes included, nothing counted twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.meter import Meter, descendants, role_of

# Starts a child that burns half a second of CPU, waits for it, tells, and waits to be ended.
PARENT = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.run([sys.executable, "-c", burn], check=True)
print("done", flush=True)
sys.stdin.read()
"""


def test_cpu_of_children_counts_once_even_after_they_have_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        meter = Meter(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert descendants(process.pid) == [process.pid]
        usage = meter.stop()
        assert process.stdin is not None
        process.stdin.close()
    # The interpreters' own starts come on top; a second count of the child would make it more than a second.
    assert 0.2 <= usage.total_cpu_s <= 0.95
    assert usage.peak_bytes > 5_000_000
    assert usage.kafka_client_cpu_s == 0


def test_what_was_used_before_does_not_count() -> None:
    until_s = time.process_time() + 0.2
    while time.process_time() < until_s:
        pass
    assert Meter(os.getpid()).stop().total_cpu_s < 0.15


def test_roles_are_told_by_whole_words_of_the_command_line() -> None:
    assert role_of(b"python\0-m\0server\0taskmanager\0--set\0taskmanager.slots=2\0") == "TaskManager"
    assert role_of(b"python\0-m\0server\0jobmanager\0--set\0taskmanager.slots=2\0") == "JobManager"
    assert role_of(b"python\0-m\0runtime.taskmanager.slot\0--slot-id\x001\0") == "slot"
    assert role_of(b"python\0headrace\0standalone\0--slots\x002\0") == "launcher"
