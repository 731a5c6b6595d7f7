"""A JobManager without HTTP as a process of its own, so that a test can kill it with -9.

`python -m tests.support.job_manager_process DATA PORT GRAPH`: submits the encoded graph if the store knows no job, and
writes the first job's status to DATA/status.json whenever it has changed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import msgspec

from planner.ir import codec
from runtime.api import JobStatus
from runtime.config import JobManagerSettings
from runtime.jobmanager.process import JobManager

STATUS_FILE = "status.json"
POLL_S = 0.05


async def serve(data: Path, port: int, graph: Path) -> None:
    job_manager = await JobManager.start(JobManagerSettings(str(data), rpc_port=port))
    if not await job_manager.jobs():
        await job_manager.submit(codec.decode(graph.read_bytes()))
    while True:
        status = (await job_manager.jobs())[-1]
        temporary = data / (STATUS_FILE + ".new")
        temporary.write_bytes(msgspec.json.encode(status))
        temporary.rename(data / STATUS_FILE)
        await asyncio.sleep(POLL_S)


def read_status(data: Path) -> JobStatus | None:
    """What was written last; None before that."""
    try:
        return msgspec.json.decode((data / STATUS_FILE).read_bytes(), type=JobStatus)
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
