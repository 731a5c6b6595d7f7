"""A real Apache Kafka 4.x broker for tests, demos and benchmarks.

The jars come from Maven Central (resolved once into a cache folder), the broker runs on Java 17 in KRaft mode
with its own controller, on free loopback ports, and ends with the process that started it:

    with KafkaBroker.start(Path("/tmp/somewhere")) as broker:
        print(broker.bootstrap_servers)

`python -m tests.support.kafka` runs one in the foreground. `KAFKA_BOOTSTRAP_SERVERS` names an existing
plaintext broker to use instead (see `broker_for_tests`). Whoever needs Kafka and can get neither fails:
a skipped exactly-once test proves nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

KAFKA_VERSION = "4.1.2"
# Kafka's logging facade (slf4j 1.7) needs a back end: without log4j-core the broker cannot load its logging.
LOG4J_VERSION = "2.25.1"
JAVA_VERSION_MIN = 17

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0

_PR_SET_PDEATHSIG = 1
_CLASS_ARCHIVE = "classes.jsa"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>kafka-broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId>
      <version>{LOG4J_VERSION}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""

_LOG4J_PROPERTIES = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""


class BrokerUnavailable(RuntimeError):
    """No broker could be had; the message says what to install or set."""


# ---------------------------------------------------------------------------------------------------- jars


def jars_dir() -> Path:
    """The folder with all jars of the broker, filled by Maven at the first call (about 45 MB)."""
    default = Path.home() / ".cache" / "headrace" / f"kafka-{KAFKA_VERSION}"
    root = Path(os.environ.get("HEADRACE_KAFKA_CACHE") or default)
    libs, complete = root / "libs", root / "COMPLETE"
    if complete.exists():
        return libs
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers must not fill the folder at once
        if not complete.exists():
            _resolve(root, libs)
            complete.write_text(KAFKA_VERSION + "\n")
    return libs


def _resolve(root: Path, libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailable(
            f"Kafka tests need a broker: no jars in {root} and no Maven (mvn) to fetch them. "
            f"Install Maven and Java {JAVA_VERSION_MIN}, or name a broker in KAFKA_BOOTSTRAP_SERVERS."
        )
    shutil.rmtree(libs, ignore_errors=True)
    (root / "pom.xml").write_text(_POM)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        "pom.xml",
        goal,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={libs}",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerUnavailable(f"Maven could not resolve Kafka {KAFKA_VERSION}:\n{done.stdout}{done.stderr}")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise BrokerUnavailable(
            f"Kafka tests need Java {JAVA_VERSION_MIN} or newer (no `java` on PATH nor in JAVA_HOME), "
            "or KAFKA_BOOTSTRAP_SERVERS set to a running plaintext broker."
        )
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = text.split('"')[1] if '"' in text else "0"
    if int(version.split(".")[0]) < JAVA_VERSION_MIN:
        raise BrokerUnavailable(f"Kafka {KAFKA_VERSION} needs Java {JAVA_VERSION_MIN} or newer, {java} is {version}.")
    return java


# -------------------------------------------------------------------------------------------------- broker


class KafkaBroker:
    """One process with broker and controller. Owns its folder's data, its ports and the process."""

    def __init__(self, data_dir: Path, *, heap_mb: int = 512, peak_speed: bool = False) -> None:
        self.data_dir = data_dir
        self.heap_mb = heap_mb
        # The optimising compiler costs more than all tests gain from it; a benchmark wants it.
        self._jvm_options = ["-XX:+UseSerialGC"] if peak_speed else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, data_dir: Path, *, heap_mb: int = 512, peak_speed: bool = False) -> KafkaBroker:
        """Format `data_dir` if it is new, start the broker and return when it answers.

        Raises BrokerUnavailable with the end of the broker's log when it does not come up.
        """
        broker = cls(data_dir, heap_mb=heap_mb, peak_speed=peak_speed)
        data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(3):
            try:
                broker._launch()
                return broker
            except BrokerUnavailable:
                # Somebody else may have taken a port between our choosing and the broker's binding it.
                if attempt == 2 or "in use" not in broker.log_tail():
                    raise
        raise AssertionError("unreachable")

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the JVM; raises if the broker was stopped."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def stop(self) -> None:
        """End the broker in order (its topics stay in `data_dir`); kill it when that takes too long."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
        self._keep_class_archive()

    def kill(self) -> None:
        """kill -9, as a crash of the broker's process would be."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Start again on the same port with the same data, after `stop` or `kill`."""
        if self._process is not None:
            raise RuntimeError("the broker is still running")
        self._run(_java(), str(jars_dir() / "*"))

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def log_tail(self, bytes_max: int = 4000) -> str:
        path = self.data_dir / "broker.log"
        return path.read_bytes()[-bytes_max:].decode(errors="replace") if path.exists() else "(no log)"

    def _launch(self) -> None:
        java, classpath = _java(), str(jars_dir() / "*")
        self._port, controller_port = _free_ports(2)
        (self.data_dir / "log4j2.properties").write_text(_LOG4J_PROPERTIES)
        (self.data_dir / "server.properties").write_text(self._properties(controller_port))
        format_storage = [
            java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._class_archive_options(dump=False),
            "-cp", classpath,
            "kafka.tools.StorageTool", "format", "--cluster-id=MkU3OEVBNTcwNTJENDM2Qg",
            "--ignore-formatted", "-c", "server.properties",
        ]  # fmt: skip
        done = subprocess.run(format_storage, cwd=self.data_dir, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BrokerUnavailable(f"Kafka's storage tool failed:\n{done.stdout}{done.stderr}")
        self._run(java, classpath)

    def _run(self, java: str, classpath: str) -> None:
        command = [
            java, f"-Xmx{self.heap_mb}m", f"-Xms{min(256, self.heap_mb)}m", *self._jvm_options,
            *self._class_archive_options(dump=True),
            "-Dlog4j2.configurationFile=log4j2.properties", "-Djava.awt.headless=true",
            "-cp", classpath, "kafka.Kafka", "server.properties",
        ]  # fmt: skip
        with (self.data_dir / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.data_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def _class_archive_options(self, *, dump: bool) -> list[str]:
        """A dynamic class archive (JEP 350), written when a broker first ends in order, halves the start of all later
        ones. The JVM ignores an archive that does not fit it."""
        archive = jars_dir().parent / _CLASS_ARCHIVE
        if archive.exists():
            return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:class+path=off"]
        return [f"-XX:ArchiveClassesAtExit={_CLASS_ARCHIVE}", "-Xlog:cds=off"] if dump else []

    def _keep_class_archive(self) -> None:
        written, kept = self.data_dir / _CLASS_ARCHIVE, jars_dir().parent / _CLASS_ARCHIVE
        if written.exists() and not kept.exists():
            partial = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(written, partial)
            partial.replace(kept)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise BrokerUnavailable(f"the Kafka broker ended at once:\n{self.log_tail()}")
            if _answers(self.bootstrap_servers, timeout_s=1.0):
                return
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"the Kafka broker did not answer in {START_TIMEOUT_S} s:\n{self.log_tail()}")

    def _properties(self, controller_port: int) -> str:
        broker, controller = f"127.0.0.1:{self._port}", f"127.0.0.1:{controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_dir.resolve() / "logs"),
            # Tests write records of years ago; the broker would take them for expired, some time after it began.
            "log.retention.ms": "-1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Timed-out transactions are aborted soon: tests need not wait for the default's ten seconds.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            # A broker that was killed may come back under its own id after this long.
            "broker.session.timeout.ms": "6000",
            # Hundreds of small topics in one session: index files are pre-allocated at this size.
            "log.index.size.max.bytes": "1048576",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "num.recovery.threads.per.data.dir": "2",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    # A test run that is killed must not leave a JVM behind. Linux only; elsewhere `stop` has to be reached.
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _answers(bootstrap_servers: str, timeout_s: float) -> bool:
    host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
    try:
        # The client backs off for long after a refused connection; knock first.
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
    except OSError:
        time.sleep(0.05)
        return False
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "enable.metrics.push": False})
    try:
        return len(admin.list_topics(timeout=timeout_s).brokers) > 0
    except KafkaException:
        return False


@contextmanager
def broker_for_tests(data_dir: Path | None = None, *, peak_speed: bool = False) -> Iterator[str]:
    """Yields bootstrap servers: `KAFKA_BOOTSTRAP_SERVERS` if set (it must answer), else our own broker's."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        if not _answers(given, timeout_s=10.0):
            raise BrokerUnavailable(f"KAFKA_BOOTSTRAP_SERVERS={given} does not answer.")
        yield given
        return
    with _temporary_dir() as own, KafkaBroker.start(data_dir or own, peak_speed=peak_speed) as broker:
        yield broker.bootstrap_servers


@contextmanager
def _temporary_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-kafka-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def main() -> int:
    """Without a command: run a broker in the foreground until SIGINT or SIGTERM and print its bootstrap servers.
    With `-- COMMAND`: run the command with KAFKA_BOOTSTRAP_SERVERS set (to a given broker, or to one of our own
    that ends with the command) and return its exit status."""
    parser = argparse.ArgumentParser(description="Run an Apache Kafka broker on loopback, in the foreground.")
    parser.add_argument("--data-dir", type=Path, help="keep topics here (default: a temporary folder)")
    parser.add_argument("--heap-mb", type=int, default=512)
    parser.add_argument("command", nargs="*", help="run this with KAFKA_BOOTSTRAP_SERVERS set, then stop")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.command:
            with broker_for_tests(arguments.data_dir) as bootstrap_servers:
                environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
                return subprocess.run(arguments.command, env=environment, check=False).returncode
        with (
            _temporary_dir() as own,
            KafkaBroker.start(arguments.data_dir or own, heap_mb=arguments.heap_mb) as broker,
        ):
            print(broker.bootstrap_servers, flush=True)
            os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
            print(f"the broker ended by itself:\n{broker.log_tail()}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except BrokerUnavailable as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
