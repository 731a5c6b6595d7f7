"""A slot process: `python -m runtime.taskmanager.slot`, started by its supervisor, serves one job once.

It is offered to the JobManager from its start on: the supervisor has bound its data port, and messages wait in the
control channel. What it needs to run tasks (half a second of CPU to load) comes when the first message does, or when
the machine had time for whoever had to start first. A daemon thread ends the process when the supervisor is gone; it
stays when its tasks have ended (a query's rows may still be read) until the supervisor ends it.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence

from runtime.lifeline import end_with_parent

NETWORK_BYTES = 64_000_000


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headrace-slot", description="One slot of a TaskManager.")
    parser.add_argument("--slot-id", required=True)
    parser.add_argument("--host", default="127.0.0.1", help="address the data port binds to")
    parser.add_argument("--control-fd", type=int, required=True, help="inherited socket to the supervisor")
    parser.add_argument("--lifeline-fd", type=int, required=True, help="inherited pipe; its end ends the process")
    parser.add_argument("--data-fd", type=int, help="inherited listening socket of the data port")
    parser.add_argument("--load-delay-ms", type=int, default=0, help="load what tasks need so late, or when asked")
    parser.add_argument("--managed-bytes", type=int, default=0, help="memory for state; 0 = unlimited")
    parser.add_argument("--network-bytes", type=int, default=NETWORK_BYTES, help="memory for input channels")
    parser.add_argument("--local-state-directory", default="", help="where copies of checkpoint files may be kept")
    parser.add_argument("--check-operators", action="store_true", help="assert the invariants of every operator")
    parser.add_argument("--log-level", default="INFO")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    if not __debug__:
        sys.exit("Headrace does not run without assertions: leave out -O.")
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    end_with_parent(options.lifeline_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getsid(0) != os.getpid():
        try:
            os.setsid()
        except PermissionError:
            pass  # Already the leader of its group: the supervisor gave it one.
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    )
    # Polars is loaded at deployment and reads this then.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    select.select([options.control_fd], [], [], options.load_delay_ms / 1000)
    from runtime.ids import SlotId
    from runtime.taskmanager.slot_runtime import SlotSettings, serve

    settings = SlotSettings(
        slot_id=SlotId(options.slot_id),
        host=options.host,
        managed_bytes=options.managed_bytes,
        network_bytes=options.network_bytes,
        check_operators=options.check_operators,
        local_state_directory=options.local_state_directory,
    )
    serve(settings, options.control_fd, None if options.data_fd is None else socket.socket(fileno=options.data_fd))
    # Without a supervisor nothing here is of use; native threads must not hold up the exit.
    os._exit(0)


if __name__ == "__main__":
    main()
