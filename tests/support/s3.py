"""A real server of the S3 protocol for tests: S3Proxy over a directory, on Java 17.

It honours conditional puts, multipart uploads and ranges, and checks signatures. The jar comes from Maven Central once,
into a cache folder. A bucket is a folder of `data_dir`, an object a file in it, so tests can damage objects.

    with S3Server.start(Path("/tmp/somewhere")) as server:
        bucket = server.create_bucket()
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka import die_with_parent

S3PROXY_VERSION = "4.1.0"
ACCESS_KEY = "tests"
SECRET_KEY = "tests-secret"
START_TIMEOUT_S = 60.0

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>s3-server</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.gaul</groupId><artifactId>s3proxy</artifactId><version>{S3PROXY_VERSION}</version>
      <classifier>jar-with-dependencies</classifier>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
  </dependencies>
</project>
"""


class S3ServerUnavailable(RuntimeError):
    """No server could be had; the message says what to install."""


class S3Server:
    """One process; dies with the process that started it."""

    def __init__(self, data_dir: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.data_dir = data_dir
        self.endpoint = f"http://127.0.0.1:{port}"
        self._process = process

    @classmethod
    def start(cls, data_dir: Path) -> S3Server:
        """Returns when it answers. Raises S3ServerUnavailable."""
        java = shutil.which("java")
        if java is None:
            raise S3ServerUnavailable("tests of object stores need Java 17 (no `java` on PATH)")
        jar = _jar()
        for attempt in range(3):
            port = _free_port()
            (data_dir / "objects").mkdir(parents=True, exist_ok=True)
            (data_dir / "s3proxy.conf").write_text(
                f"s3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.authorization=aws-v2-or-v4\n"
                f"s3proxy.identity={ACCESS_KEY}\ns3proxy.credential={SECRET_KEY}\n"
                "jclouds.provider=filesystem-nio2\njclouds.identity=x\njclouds.credential=x\n"
                f"jclouds.filesystem.basedir={(data_dir / 'objects').resolve()}\n"
            )
            server = cls(data_dir, port, _launch(java, jar, data_dir))
            if server._comes_up():
                return server
            server.stop()
            if attempt == 2:
                break  # The port was free each time: it is not a race for it.
        raise S3ServerUnavailable(f"the S3 server does not start:\n{(data_dir / 'server.log').read_text()[-3000:]}")

    def restart(self) -> None:
        """Start again at the same endpoint with the same objects, after `stop`."""
        self._process = _launch(shutil.which("java") or "java", _jar(), self.data_dir)
        if not self._comes_up():
            raise S3ServerUnavailable(f"the S3 server does not start again:\n{self.data_dir / 'server.log'}")

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to know."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def create_bucket(self) -> str:
        """Its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        (self.data_dir / "objects" / name).mkdir()
        return name

    def object_path(self, bucket: str, key: str) -> Path:
        """Where the object's bytes are."""
        return self.data_dir / "objects" / bucket / key

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _comes_up(self) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.endpoint, timeout=1):
                    return True
            except urllib.error.HTTPError:
                return True  # It wants a signature: it is there.
            except OSError:
                time.sleep(0.05)
        return False


@contextmanager
def server_for_tests() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(prefix="headrace-s3-") as folder:
        server = S3Server.start(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def _launch(java: str, jar: Path, data_dir: Path) -> subprocess.Popen[bytes]:
    command = [java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]
    with (data_dir / "server.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--properties", "s3proxy.conf"], cwd=data_dir, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip


def _jar() -> Path:
    """From the cache, filled by Maven at the first call (55 MB)."""
    default = Path.home() / ".cache" / "headrace" / f"s3proxy-{S3PROXY_VERSION}"
    root = Path(os.environ.get("HEADRACE_S3_CACHE") or default)
    jar = root / f"s3proxy-{S3PROXY_VERSION}-jar-with-dependencies.jar"
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two test workers must not fill the folder at once.
        if not jar.exists():
            _resolve(root, jar)
    return jar


def _resolve(root: Path, jar: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise S3ServerUnavailable(f"tests of object stores need {jar.name} in {root}, or Maven (mvn) to fetch it")
    (root / "pom.xml").write_text(_POM)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    partial = root / f"partial-{os.getpid()}"
    command = [maven, "-q", "-B", "-f", "pom.xml", goal, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise S3ServerUnavailable(f"Maven could not resolve S3Proxy {S3PROXY_VERSION}:\n{done.stdout}{done.stderr}")
    (partial / jar.name).replace(jar)
    shutil.rmtree(partial)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
