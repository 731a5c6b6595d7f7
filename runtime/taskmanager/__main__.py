"""A TaskManager as a process of its own: `python -m runtime.taskmanager --job-manager HOST:PORT …`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

from runtime.config import TaskManagerSettings
from runtime.lifeline import end_with_parent
from runtime.taskmanager.process import TaskManager


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT")
    return host, int(port)


async def serve(settings: TaskManagerSettings) -> None:
    """Run a TaskManager until SIGTERM or SIGINT."""
    task_manager = TaskManager(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task_manager.stop)
    await task_manager.run()


def main(arguments: list[str]) -> None:
    default = TaskManagerSettings(())
    parser = argparse.ArgumentParser(prog="runtime.taskmanager")
    parser.add_argument("--job-manager", type=_address, action="append", required=True, metavar="HOST:PORT")
    parser.add_argument("--host", default=default.host)
    parser.add_argument("--slots", type=int, default=default.slot_count)
    parser.add_argument("--process-bytes", type=int, default=default.process_bytes)
    parser.add_argument("--work-directory", default="")
    parser.add_argument("--slot-timeout-ms", type=int, default=default.slot_timeout_ms)
    parser.add_argument("--loss-timeout-ms", type=int, default=default.job_manager_loss_timeout_ms)
    parser.add_argument("--lifeline-fd", type=int, help="inherited pipe; its end ends the process")
    options = parser.parse_args(arguments)
    if options.lifeline_fd is not None:
        end_with_parent(options.lifeline_fd)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = TaskManagerSettings(
        tuple(options.job_manager),
        host=options.host,
        slot_count=options.slots,
        process_bytes=options.process_bytes,
        work_directory=options.work_directory,
        slot_timeout_ms=options.slot_timeout_ms,
        job_manager_loss_timeout_ms=options.loss_timeout_ms,
    )
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
