"""Checkpoints under backpressure, on real processes: a sink that takes its rows slowly holds up everything before it.
Barriers that wait their turn do not arrive in time; barriers that overtake do, and what they overtook is restored."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import CheckpointState, JobStatus
from tests.support import graphs
from tests.support.local_session import LocalSession
from tests.support.runtime_cluster import RuntimeCluster, TaskManagerProcess, finished

SETTINGS = {
    "execution.checkpointing.interval": "500 ms",
    "execution.checkpointing.timeout": "3 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "50 ms",
}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
BYTES_PER_SECOND = 1_000_000
PIECE_BYTES = 50_000
STORY_TIMEOUT_S = 150.0


class SlowReader(threading.Thread):
    """Reads what TaskManagers print, slowly until it is let go."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._source, self.target = os.pipe()
        self._let_go = threading.Event()

    def run(self) -> None:
        while os.read(self._source, PIECE_BYTES):
            self._let_go.wait(PIECE_BYTES / BYTES_PER_SECOND)
        os.close(self._source)

    def let_go(self) -> None:
        self._let_go.set()

    def close(self) -> None:
        self.let_go()
        os.close(self.target)


@asynccontextmanager
async def crowded_cluster(data: Path) -> AsyncIterator[tuple[RuntimeCluster, SlowReader]]:
    """Two slots whose printed rows go to the reader."""
    reader = SlowReader()
    reader.start()
    async with RuntimeCluster(data, task_managers=0) as cluster:
        port = cluster.job_manager.rpc_port
        cluster.task_managers.append(TaskManagerProcess(port, 2, cluster.log, printed=reader.target))
        await cluster.slots_registered(2)
        try:
            yield cluster, reader
        finally:
            reader.close()


def endless(settings: dict[str, str]) -> JobGraph:
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None)),
        graphs.vertex(1, graphs.sink(connector="print"), parallelism=2),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings=SETTINGS | settings,
        bounded=False,
    )


def persisted(status: JobStatus) -> dict[int, int]:
    """Bytes in flight by id of the checkpoints that were completed."""
    records = [r for r in status.checkpoints.history if r.state is CheckpointState.COMPLETED]
    return {r.checkpoint_id: sum(subtask.persisted_bytes for subtask in r.subtasks) for r in records}


@pytest.mark.timeout(200)
def test_barriers_that_overtake_arrive_in_time_and_others_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded_cluster(tmp_path) as (cluster, _):
            aligned = await cluster.job_manager.submit(endless({}))
            # The first may come before the channels are full.
            status = await cluster.until(aligned, "time-outs", lambda s: s.checkpoints.failed >= 2)
            assert status.checkpoints.completed <= 2
            await cluster.job_manager.cancel(aligned)
            await cluster.slots_registered(2)
            timeout = {"execution.checkpointing.aligned-checkpoint-timeout": "100 ms"}
            unaligned = await cluster.job_manager.submit(endless(UNALIGNED | timeout))
            status = await cluster.until(
                unaligned,
                "checkpoints that overtook",
                lambda s: len([size for size in persisted(s).values() if size]) >= 4,
            )
            assert status.checkpoints.failed == 0

    asyncio.run(asyncio.wait_for(story(), STORY_TIMEOUT_S))


ROWS = 60_000


def windows(directory: Path) -> JobGraph:
    """Every number is a key and a window's only row of it; wide keys fill the channels."""
    return LocalSession({"parallelism.default": "2", **SETTINGS, **UNALIGNED}).graph(f"""
        CREATE TABLE src (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts) WITH (
          'connector' = 'datagen', 'rows-per-second' = '1000000',
          'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{ROWS - 1}');
        CREATE VIEW totals AS SELECT window_start, k, COUNT(*) AS c, SUM(n) AS s FROM (
            SELECT window_start, window_end, n, LPAD(CAST(n AS STRING), 400, 'x') AS k
            FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' SECOND))
          GROUP BY window_start, window_end, k;
        CREATE TABLE files (c BIGINT, s BIGINT) WITH (
          'connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json');
        CREATE TABLE printed (k STRING) WITH ('connector' = 'print');
        EXECUTE STATEMENT SET BEGIN
        INSERT INTO files SELECT c, s FROM totals;
        INSERT INTO printed SELECT k FROM totals;
        END""")


@pytest.mark.timeout(200)
def test_windows_are_exact_after_kill_9_and_a_restore_of_what_was_overtaken(tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded_cluster(tmp_path / "data") as (cluster, reader):
            job_id = await cluster.job_manager.submit(windows(tmp_path / "out"))
            sizes: dict[int, int] = {}

            def has_overtaken(status: JobStatus) -> bool:
                sizes.update(persisted(status))
                return len([size for size in sizes.values() if size]) >= 2

            await cluster.until(job_id, "checkpoints that overtook", has_overtaken)
            await cluster.kill_slot()
            status = await cluster.until(job_id, "a restore", lambda s: s.checkpoints.restored_id > 0)
            has_overtaken(status)
            assert sizes[status.checkpoints.restored_id] > 0
            reader.let_go()
            await finished(cluster, job_id)

    asyncio.run(asyncio.wait_for(story(), STORY_TIMEOUT_S))
    files = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith((".", "_"))]
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert Counter((row["c"], row["s"]) for row in rows) == Counter((1, n) for n in range(ROWS))
