"""A real PostgreSQL for tests, from Debian's packages: one server per test session, started at first use.

    with PostgresServer.start(Path("/tmp/somewhere")) as server:
        print(server.url)

On loopback and a free port, with a data directory of its own, under another user when we are root (it refuses to run
as root); it ends with the process that started it. Whoever needs it and can get none fails: a skipped test proves
nothing.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psycopg

from tests.support.kafka import die_with_parent
from tests.support.standalone import free_port

PACKAGES = ("postgresql",)
START_TIMEOUT_S = 60.0
USERS = ("postgres", "nobody")
_INSTALL_LOCK = Path(tempfile.gettempdir()) / "headrace-postgresql-install.lock"
_SETTINGS = {
    # Tests kill processes, never the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "50",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "listen_addresses": "127.0.0.1",
    "jit": "off",
    "logging_collector": "off",
}


class PostgresUnavailable(RuntimeError):
    """No server could be had; the message says what to install."""


def binaries() -> Path:
    """The newest installation's folder of programs; as root, Debian's package is installed when there is none."""
    found = _installed()
    if found is None and os.geteuid() == 0:
        with _INSTALL_LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers must not install at once
            if _installed() is None:
                _install()
        found = _installed()
    if found is None:
        raise PostgresUnavailable(f"these tests need PostgreSQL's server: apt-get install {' '.join(PACKAGES)}")
    return found


def _installed() -> Path | None:
    roots = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if roots:
        return max(roots, key=lambda path: float(path.parent.name))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", *PACKAGES]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PostgresUnavailable(f"apt-get {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


class PostgresServer:
    """One server with one superuser `headrace` and one database `headrace`. Owns its folder, port and process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._binaries = binaries()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path) -> PostgresServer:
        """Creates and starts one; returns when it answers."""
        server = cls(folder)
        folder.mkdir(parents=True, exist_ok=True)
        user = _other_user()
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        server._run("initdb", "-D", str(server._data), "-U", "headrace", "-A", "trust", "-N", "--no-instructions")
        server.restart()
        with psycopg.connect(server._url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE headrace")
        return server

    @property
    def url(self) -> str:
        return self._url("headrace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def restart(self) -> None:
        """Start it (again) on the same port with the same data. It lives as long as the calling thread."""
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", ""]
        for name, value in _SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=_become_other_user,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise PostgresUnavailable(f"PostgreSQL does not start:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.02)

    def stop(self, immediately: bool = True) -> None:
        """End it; `immediately` as a crash would (its clients lose their connections at once)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _url(self, database: str) -> str:
        return f"postgresql://headrace@127.0.0.1:{self.port}/{database}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd="/", capture_output=True, text=True, check=False, preexec_fn=_become_other_user,
        )  # fmt: skip
        if done.returncode != 0:
            raise PostgresUnavailable(f"{program} failed:\n{done.stdout}{done.stderr}")


def _other_user() -> pwd.struct_passwd | None:
    """Who the server runs as; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresUnavailable(f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}")


def _become_other_user() -> None:
    user = _other_user()
    if user is not None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    # Not before: a change of user takes the wish away.
    die_with_parent()


@contextmanager
def server_for_tests() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
    try:
        folder.chmod(0o755)
        with PostgresServer.start(folder / "server") as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
