"""One exactly-once sink subtask in a process of its own, that can be told where to die.

`SinkProcess` is the parent's end: it sends calls, the child answers. `kill_at` names a point of the protocol at which
the process ends itself with SIGKILL, after having passed it `kill_skip` times.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from connectors import registry
from connectors.api import Committable, OwnerState, SinkContext, TableDefinition
from planner.ir.types import BIGINT, STRING, Field
from runtime.checkpoint.files import LocalFiles

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
        files=LocalFiles(str(directory)),
        restored_checkpoint_id=0,
        metadata_columns=(),
        local_time_zone="UTC",
    )
    return msgspec.structs.replace(base, **changes)


# Workers are forked from a server process that has loaded the libraries and opened no client: a client would not
# survive the fork, and loading takes longer than the whole test.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.support.sink_worker", "connectors.kafka.sink", "connectors.formats.json.format"])


class SinkProcess:
    """The parent's end. Every call returns None when the process died instead of answering."""

    def __init__(
        self, definition: TableDefinition, where: SinkContext, kill_at: str | None, kill_skip: int = 0
    ) -> None:
        self._connection, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=serve, args=(theirs, definition, where, kill_at, kill_skip))
        self._process.start()
        theirs.close()

    def recover(self, owners: list[OwnerState]) -> dict[int, int] | None:
        found: dict[int, int] | None = self._ask("recover", owners)
        return found

    def write(self, start: int, count: int) -> bool:
        return self._ask("write", start, count) is not None

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...] | None:
        sealed: tuple[Committable, ...] | None = self._ask("prepare_commit", checkpoint_id)
        return sealed

    def commit(self, checkpoint_id: int) -> bool:
        return self._ask("commit", checkpoint_id) is not None

    def end(self) -> int | None:
        """Close and return the exit status (-9 after a kill)."""
        self._connection.close()
        self._process.join(30)
        return self._process.exitcode

    def _ask(self, *command: Any) -> Any:
        try:
            self._connection.send(command)
            return self._connection.recv()
        except (EOFError, ConnectionError):
            return None


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


def serve(
    connection: Connection, definition: TableDefinition, where: SinkContext, kill_at: str | None, kill_skip: int
) -> None:
    """The child's main loop, until the parent hangs up."""
    killer = _Killer(kill_at, kill_skip)
    _install(killer)
    writer = registry.connector("kafka").sink(definition).writer(where)
    while True:
        try:
            command, *arguments = connection.recv()
        except EOFError:
            writer.close()
            return
        answer: Any = True
        match command:
            case "recover":
                answer = writer.recover(*arguments)
                killer.reached("recovered")
            case "write":
                writer.write(rows(where.subtask_index, *arguments), None)
                killer.reached("written")
            case "prepare_commit":
                answer = writer.prepare_commit(*arguments)
            case "commit":
                writer.commit(*arguments)
                killer.reached("acknowledged")
        connection.send(answer)
