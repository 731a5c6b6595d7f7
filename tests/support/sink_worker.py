"""One exactly-once sink subtask in a process of its own, that can be told where to die.

Commands come as JSON lines on stdin, answers go as JSON lines to stdout; see `SinkProcess`. `kill_at` names a point
of the protocol at which the process ends itself with SIGKILL, the `kill_skip`-th time it gets there.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from connectors import registry
from connectors.api import OwnerState, SinkContext, SinkWriter, TableDefinition
from planner.ir.types import BIGINT, STRING, Field

ROOT = Path(__file__).resolve().parents[2]

KILL_POINTS = ("written", "sealed", "begun", "produced", "marked", "committed", "acknowledged")
RECOVERY_KILL_POINTS = ("opened", "fenced", "read", "begun", "produced", "marked", "committed", "recovered")
COLUMNS = (Field("subtask", BIGINT), Field("seq", BIGINT), Field("name", STRING))


def table(bootstrap_servers: str, topic: str, **options: str) -> TableDefinition:
    given = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap_servers,
        "format": "json",
        "sink.delivery-guarantee": "exactly-once",
    }
    given |= {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return TableDefinition("out", given, COLUMNS)


def rows(subtask: int, start: int, count: int) -> pa.RecordBatch:
    """Rows `start` … of a subtask's endless deterministic input."""
    numbers = list(range(start, start + count))
    arrays: list[pa.Array[Any]] = [
        pa.array([subtask] * count, pa.int64()),
        pa.array(numbers, pa.int64()),
        pa.array([f"row {n}" for n in numbers]),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "c2"])


def context(namespace: str, directory: Path, **changes: Any) -> SinkContext:
    base = SinkContext(
        subtask_index=0,
        parallelism=1,
        namespace=namespace,
        incarnation="g1",
        attempt="a1",
        epoch_directory=str(directory),
        restored_checkpoint_id=0,
        metadata_columns=(),
        local_time_zone="UTC",
    )
    return msgspec.structs.replace(base, **changes)


class SinkProcess:
    """The parent's end. Every call returns None when the process died instead of answering."""

    def __init__(
        self, definition: TableDefinition, where: SinkContext, kill_at: str | None, kill_skip: int = 0
    ) -> None:
        setup = {
            "table": msgspec.to_builtins(definition),
            "context": msgspec.to_builtins(where),
            "kill_at": kill_at,
            "kill_skip": kill_skip,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.sink_worker", json.dumps(setup)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def recover(self, owners: list[OwnerState]) -> Any:
        return self._ask({"do": "recover", "owners": base64.b64encode(msgspec.json.encode(owners)).decode()})

    def write(self, start: int, count: int) -> Any:
        return self._ask({"do": "write", "start": start, "count": count})

    def prepare_commit(self, checkpoint_id: int) -> Any:
        return self._ask({"do": "prepare", "id": checkpoint_id})

    def commit(self, checkpoint_id: int) -> Any:
        return self._ask({"do": "commit", "id": checkpoint_id})

    def end(self) -> int:
        """Close and return the exit status (-9 after a kill)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # It is dead already, which is the point.
        status = self._process.wait(30)
        self._process.stdout.close()
        return status

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


# ------------------------------------------------------------------------------------------ the child's end


class _Killer:
    def __init__(self, point: str | None, skip: int) -> None:
        self._point = point
        self._left = skip

    def reached(self, point: str) -> None:
        if point != self._point:
            return
        if self._left:
            self._left -= 1
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _install(killer: _Killer) -> None:
    """Wrap the steps of the protocol so that the process can die behind each of them."""
    from connectors.kafka import sink
    from connectors.kafka.epoch_file import EpochFileWriter
    from connectors.kafka.transactions import OwnerTransactions

    def after(owner: Any, name: str, point: str, also: Callable[[Any], object] | None = None) -> None:
        original = getattr(owner, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if also is not None:
                also(arguments[0])
            killer.reached(point)
            return result

        setattr(owner, name, wrapped)

    def delivered(transactions: Any) -> None:
        transactions._producer.flush(30)  # what was produced really is on the broker when we die

    after(EpochFileWriter, "seal", "sealed")
    after(OwnerTransactions, "__init__", "opened")
    after(OwnerTransactions, "fence", "fenced")
    after(OwnerTransactions, "_begin", "begun")
    after(OwnerTransactions, "_send", "produced", delivered)
    after(OwnerTransactions, "_offer", "marked", delivered)
    after(OwnerTransactions, "_commit", "committed")
    after(sink, "read_markers", "read")


def _serve(writer: SinkWriter, killer: _Killer, subtask: int) -> None:
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = {}
        match command["do"]:
            case "recover":
                owners = msgspec.json.decode(base64.b64decode(command["owners"]), type=list[OwnerState])
                answer = writer.recover(owners)
                killer.reached("recovered")
            case "write":
                writer.write(rows(subtask, command["start"], command["count"]), None)
                killer.reached("written")
            case "prepare":
                sealed = msgspec.json.encode(writer.prepare_commit(command["id"]))
                answer = base64.b64encode(sealed).decode()
            case "commit":
                writer.commit(command["id"])
                killer.reached("acknowledged")
        print(json.dumps(answer), flush=True)
    writer.close()


def main() -> None:
    setup = json.loads(sys.argv[1])
    definition = msgspec.convert(setup["table"], TableDefinition)
    where = msgspec.convert(setup["context"], SinkContext)
    killer = _Killer(setup["kill_at"], setup["kill_skip"])
    _install(killer)
    writer = registry.connector("kafka").sink(definition).writer(where)
    _serve(writer, killer, where.subtask_index)


if __name__ == "__main__":
    main()
