"""`headrace`: one command, four roles. Each role loads only what it needs: a TaskManager neither SQL nor HTTP."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from server.config import CONFIG_VARIABLE, Config, ConfigError, changed, load, s3_environment

if TYPE_CHECKING:
    from runtime.config import HighAvailabilitySettings, JobManagerSettings, TaskManagerSettings
    from runtime.jobmanager.candidate import Candidate

EXIT_OK = 0
EXIT_FAILURE = 1

_EPILOG = """\
examples:
  headrace standalone                                   a whole cluster: JobManager, gateway, one TaskManager
  headrace standalone --http-port 8083 --data-dir DIR --taskmanagers 2 --slots 2
  headrace jobmanager --data-dir DIR                    JobManager with the gateway in one process
  headrace jobmanager --metadata-url postgresql://headrace@db/headrace --checkpoint-dir /mnt/shared
                                                        one of several JobManagers: one leads, others take over
  headrace taskmanager --job-managers 10.0.0.1:6123     a worker
  headrace sql                                          the SQL shell (headrace sql --help)

Settings come from the defaults (server/default.toml lists them all), a file (--config, or HEADRACE_CONFIG),
HEADRACE_… variables and flags, each above the one before it. `-D key=value` sets a default of what sessions may SET.
"""

_FLAGS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "http": (
        ("--http-host", "http.host", "address to listen on; loopback unless you say otherwise"),
        ("--http-port", "http.port", "port of the gateway and the REST API (8083)"),
    ),
    "jobmanager": (
        ("--data-dir", "jobmanager.data-directory", "catalog, sessions, jobs and checkpoints (./headrace-data)"),
        ("--checkpoint-dir", "jobmanager.checkpoint-directory", "checkpoints, if elsewhere"),
        ("--rpc-host", "jobmanager.rpc-host", "address TaskManagers register at"),
        ("--rpc-port", "jobmanager.rpc-port", "port TaskManagers register at (6123; standalone: any free one)"),
        ("--slots-expected", "jobmanager.slots-expected", "/readyz waits for so many slots"),
    ),
    "availability": (
        ("--metadata-url", "high-availability.metadata-url", "PostgreSQL database that several JobManagers share"),
    ),
    "taskmanager": (
        ("--slots", "taskmanager.slots", "slots of a TaskManager: processes, each for one job (2)"),
        ("--memory", "taskmanager.process-bytes", "bytes of memory of a TaskManager"),
        ("--work-dir", "taskmanager.work-directory", "scratch files"),
    ),
    "address": (
        ("--job-managers", "taskmanager.job-managers", "addresses host:port,host:port (127.0.0.1:6123)"),
        ("--host", "taskmanager.host", "address other TaskManagers reach this one under"),
    ),
    "standalone": (("--taskmanagers", "standalone.taskmanagers", "TaskManagers to start (1)"),),
}
_ROLES = {
    "standalone": ("a whole cluster on this machine", ("http", "jobmanager", "taskmanager", "standalone")),
    "jobmanager": ("JobManager and gateway", ("http", "jobmanager", "availability")),
    "taskmanager": ("a worker with slots", ("taskmanager", "address")),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILURE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="headrace",
        description="A SQL-first streaming database: Flink SQL from Kafka to Kafka, exactly once.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    roles = parser.add_subparsers(dest="role", metavar="ROLE", required=True)
    for role, (summary, groups) in _ROLES.items():
        sub = roles.add_parser(role, help=summary, description=summary, formatter_class=raw, allow_abbrev=False)
        sub.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
        sub.add_argument("--log-level", dest="log.level", metavar="LEVEL", help="debug, info, warning or error")
        sub.add_argument(
            "--set", dest="any", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any setting"
        )
        sub.add_argument("-D", dest="job", action="append", default=[], metavar="KEY=VALUE", help="a job default")
        sub.add_argument("--lifeline-fd", type=int, help=argparse.SUPPRESS)
        for group in groups:
            for flag, key, text in _FLAGS[group]:
                sub.add_argument(flag, dest=key, metavar=flag.rsplit("-", 1)[-1].upper(), help=text)
    roles.add_parser("sql", help="the SQL shell", add_help=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the role named in the arguments; returns the exit code."""
    if not __debug__:
        print("headrace: does not run under python -O: its assertions guard your data", file=sys.stderr)
        return EXIT_FAILURE
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["sql"]:
        from server.cli.main import main as run_shell

        return run_shell(given[1:])
    flags = _parser().parse_args(given)
    if flags.lifeline_fd is not None:
        from runtime.lifeline import end_with_parent

        end_with_parent(flags.lifeline_fd)
    try:
        config = _config(flags)
        os.environ.update(s3_environment(config.s3))
        logging.basicConfig(
            level=config.log.level.upper(),
            format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        match flags.role:
            case "standalone":
                return asyncio.run(_standalone(config, _is_rpc_port_chosen(config, flags)))
            case "jobmanager":
                return asyncio.run(_job_manager(config))
            case _:
                return asyncio.run(_task_manager(config))
    except ConfigError as error:
        print(f"headrace: {error.message}", *([error.hint] if error.hint else []), sep="\n  ", file=sys.stderr)
        return EXIT_FAILURE


def _config(flags: argparse.Namespace) -> Config:
    path = flags.config or (Path(p) if (p := os.environ.get(CONFIG_VARIABLE)) else None)
    given = dict(_pair(text, "--set") for text in flags.any)
    given |= {f"job.{key}": value for key, value in (_pair(text, "-D") for text in flags.job)}
    given |= {key: value for key, value in vars(flags).items() if "." in key and value is not None}
    return load(path, os.environ, given)


def _pair(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{flag} takes KEY=VALUE, not '{text}'")
    return key.strip(), value


def _is_rpc_port_chosen(config: Config, flags: argparse.Namespace) -> bool:
    """The user named the port TaskManagers register at, because others shall join from outside."""
    by_flag = getattr(flags, "jobmanager.rpc-port") is not None
    by_variable = "HEADRACE_JOBMANAGER_RPC_PORT" in os.environ
    return by_flag or by_variable or config.jobmanager.rpc_port != load(None, {}, {}).jobmanager.rpc_port


async def _standalone(config: Config, is_rpc_port_chosen: bool) -> int:
    """Keeps a JobManager and TaskManagers alive as children; is none of them itself."""
    from runtime.launcher import ChildCommand, Launcher, StartFailedError
    from server.data_directory import held

    if config.high_availability.metadata_url:
        raise ConfigError(
            "high-availability.metadata-url is not for standalone, which is one JobManager on one machine",
            hint="Start `headrace jobmanager` twice, and `headrace taskmanager` with both addresses.",
        )
    with held(Path(config.jobmanager.data_directory)):
        pass  # Only a look: the JobManager holds it, this process is none.
    http_port = _free_port(config.http.host, config.http.port)
    # Its own TaskManagers are told the port; any free one lets several clusters start on a machine at once.
    rpc_port = _free_port(config.jobmanager.rpc_host, config.jobmanager.rpc_port if is_rpc_port_chosen else 0)
    slots = config.standalone.taskmanagers * config.taskmanager.slots
    common = (sys.executable, "-P", "-m", "server")
    settings = [argument for pair in changed(config) for argument in ("--set", pair)]
    jobs = [argument for key, value in config.job.items() for argument in ("-D", f"{key}={value}")]
    ports = ["--http-port", str(http_port), "--rpc-port", str(rpc_port), "--slots-expected", str(slots)]
    job_managers = ["--job-managers", f"{config.jobmanager.rpc_host}:{rpc_port}"]
    children = [ChildCommand("jobmanager", (*common, "jobmanager", *settings, *jobs, *ports))]
    for number in range(config.standalone.taskmanagers):
        children.append(ChildCommand(f"taskmanager-{number + 1}", (*common, "taskmanager", *settings, *job_managers)))
    url = f"http://{config.http.host}:{http_port}"
    launcher = Launcher(
        children,
        ready_url=f"{url}/readyz",
        ready_line=f"headrace is ready: {url} ({slots} slots); open the shell with: headrace sql --url {url}",
    )
    try:
        await launcher.run()
    except StartFailedError as error:
        raise ConfigError(str(error)) from error
    return EXIT_OK


def _free_port(host: str, port: int) -> int:
    """`port`, or any free one for 0. Raises ConfigError."""
    from server.http.listener import bind

    with bind(host, port) as listener:
        return int(listener.getsockname()[1])


async def _job_manager(config: Config) -> int:
    """JobManager and gateway on one event loop, until a signal or until another JobManager leads."""
    from server.data_directory import held
    from server.http.listener import bind
    from server.settings import check_server_defaults

    check_server_defaults(config.job)
    if config.high_availability.metadata_url:
        return await _stand_for_election(config, bind(config.http.host, config.http.port))
    with held(Path(config.jobmanager.data_directory)):
        return await _lead(config, bind(config.http.host, config.http.port))


async def _lead(config: Config, listener: socket.socket) -> int:
    from runtime.jobmanager.process import JobManager
    from server.http.serve import serve

    stopped = _stop_signal()
    job_manager = await JobManager.start(_job_manager_settings(config))
    lost = asyncio.create_task(job_manager.lost_leadership())
    signalled = asyncio.create_task(stopped.wait())

    async def ended() -> None:
        await asyncio.wait({lost, signalled}, return_when=asyncio.FIRST_COMPLETED)

    try:
        await serve(config, job_manager, job_manager.metadata, listener, ended())
    finally:
        await job_manager.stop()
    was_lost = lost.done()
    for task in (lost, signalled):
        task.cancel()
    return EXIT_FAILURE if was_lost else EXIT_OK


async def _stand_for_election(config: Config, listener: socket.socket) -> int:
    """One of several JobManagers: until a signal, or until it has led and does so no more; then it begins anew."""
    from runtime.api import JobClient, MetadataStore, StaleLeaderError
    from runtime.jobmanager.process import JobManager
    from runtime.metadata.postgresql import MetadataUrlError
    from server.http.serve_candidate import serve_candidate

    if not config.jobmanager.checkpoint_directory:
        raise ConfigError(
            "jobmanager.checkpoint-directory is not set",
            hint="With high-availability.metadata-url all processes need one that they share.",
        )
    stopped = asyncio.create_task(_stop_signal().wait())
    job_manager: JobManager | None = None
    try:
        candidate = _candidate(config)
        election = asyncio.create_task(candidate.run())

        async def elected() -> tuple[JobClient, MetadataStore]:
            nonlocal job_manager
            job_manager = await candidate.elected()
            return job_manager, job_manager.metadata

        async def over() -> None:
            await asyncio.wait({election, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if election.done():
                _begin_anew(election.result())

        await serve_candidate(config, candidate, elected(), listener, over())
        if job_manager is not None:
            await job_manager.stop()
        await candidate.resign()
        await election
    except MetadataUrlError as error:
        raise ConfigError(f"high-availability.metadata-url: {error}") from error
    except StaleLeaderError as error:
        _begin_anew(str(error))
    return EXIT_OK


def _candidate(config: Config) -> Candidate:
    from runtime.jobmanager.candidate import Candidate

    try:
        return Candidate(_job_manager_settings(config), _availability(config), _rest_url(config))
    except OSError as error:
        address = f"{config.jobmanager.rpc_host}:{config.jobmanager.rpc_port}"
        raise ConfigError(f"cannot listen on {address}: {error.strerror}", hint="Choose another --rpc-port.") from error


def _begin_anew(reason: str) -> NoReturn:
    """Becomes a standby in the same process id, with a memory that knows nothing of having led: whatever was under
    way (jobs, connections, threads) is gone at once, as with kill -9."""
    logging.getLogger(__name__).error("%s: beginning anew as a standby", reason)
    logging.shutdown()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


async def _task_manager(config: Config) -> int:
    from runtime.taskmanager.process import TaskManager

    task_manager = TaskManager(_task_manager_settings(config))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task_manager.stop)
    await task_manager.run()
    return EXIT_OK


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def _job_manager_settings(config: Config) -> JobManagerSettings:
    from runtime.config import JobManagerSettings

    section = config.jobmanager
    return JobManagerSettings(
        data_directory=section.data_directory,
        checkpoint_directory=section.checkpoint_directory,
        rpc_host=section.rpc_host,
        rpc_port=section.rpc_port,
        heartbeat_interval_ms=section.heartbeat_interval_ms,
        heartbeat_timeout_ms=section.heartbeat_timeout_ms,
        job_defaults=dict(config.job),
    )


def _availability(config: Config) -> HighAvailabilitySettings:
    from runtime.config import HighAvailabilitySettings

    section = config.high_availability
    return HighAvailabilitySettings(section.metadata_url, section.cluster_id, section.lease_duration_ms)


def _rest_url(config: Config) -> str:
    """Where the other JobManagers find this one's HTTP."""
    host = config.http.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return config.http.advertised_url or f"http://{f'[{host}]' if ':' in host else host}:{config.http.port}"


def _task_manager_settings(config: Config) -> TaskManagerSettings:
    from runtime.config import TaskManagerSettings

    section = config.taskmanager
    return TaskManagerSettings(
        job_manager_addresses=tuple(_address(text) for text in section.job_managers),
        host=section.host,
        slot_count=section.slots,
        process_bytes=section.process_bytes,
        work_directory=section.work_directory,
        slot_timeout_ms=section.slot_timeout_ms,
        cancellation_timeout_ms=section.cancellation_timeout_ms,
        job_manager_loss_timeout_ms=section.job_manager_loss_timeout_ms,
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"taskmanager.job-managers: '{text}' is not host:port")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
