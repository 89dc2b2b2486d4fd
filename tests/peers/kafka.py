"""Apache Kafka itself, from Maven, as the peer that says what is right.

The jars are fetched once into a cache outside the repository and used as a class path; nothing
is unpacked or built. A node runs in KRaft combined mode with Kafka's default settings, except
where one node cannot satisfy them (replication factors of internal topics), and with the heap
and collector that Kafka's own scripts set.

`python -m tests.peers.kafka` starts one and prints its address.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.peers.maven import PeerUnavailable, fetched_jars
from tests.support import wire
from tests.support.ports import free_port
from tests.support.process import ServerProcess

POM = Path(__file__).with_name("pom.xml")
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
STORAGE_TOOL = "kafka.tools.StorageTool"
SERVER = "kafka.Kafka"
HEAP = ("-Xmx1G", "-Xms1G")
TOOL_HEAP = ("-Xmx256M",)
COLLECTOR = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
START_TIMEOUT_S = 120.0
ONE_NODE_SETTINGS: Mapping[str, object] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


def kafka_version() -> str:
    namespace = {"m": "http://maven.apache.org/POM/4.0.0"}
    version = ET.parse(POM).getroot().findtext("m:properties/m:kafka.version", namespaces=namespace)
    assert version, f"{POM} names no kafka.version"
    return version


def java_executable() -> str:
    java = shutil.which("java")
    if java is None:
        raise PeerUnavailable("Java 17 is not installed")
    return java


def class_path() -> str:
    """Kafka's jars, fetched on the first call."""
    jars = fetched_jars(f"kafka-{kafka_version()}", POM.read_text(), "-DincludeScope=runtime")
    return str(jars / "*")


def require_kafka() -> None:
    """Skips the test, saying why, where Apache Kafka cannot be run."""
    try:
        java_executable()
        class_path()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")


def run_kafka_tool(
    main_class: str, *arguments: str, given: str = "", timeout_s: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """One of Kafka's command-line tools, run to its end; the caller judges exit code and output."""
    command = [java_executable(), *TOOL_HEAP, "-XX:TieredStopAtLevel=1", "-cp", class_path(), main_class]
    return subprocess.run(
        [*command, *arguments], input=given, capture_output=True, text=True, timeout=timeout_s, check=False
    )


class KafkaBroker:
    """One node, broker and controller in one; may be started again after its end."""

    name = "kafka"
    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        node_id: int = 1,
        port: int | None = None,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        settings: Mapping[str, object] | None = None,
        heap: Sequence[str] = HEAP,
    ) -> None:
        """`voters` maps node ids to controller ports; one node is its own quorum."""
        self.data_directory = directory / "data"
        self.port = free_port() if port is None else port
        self._directory = directory
        self._node_id = node_id
        self._voters = dict(voters or {node_id: free_port()})
        self._cluster_id = cluster_id or new_cluster_id()
        self._settings = dict(settings or {})
        self._heap = tuple(heap)
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    @property
    def properties(self) -> dict[str, object]:
        controllers = [f"{node}@{self.host}:{port}" for node, port in self._voters.items()]
        return {
            "process.roles": "broker,controller",
            "node.id": self._node_id,
            "controller.quorum.voters": ",".join(controllers),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.host}:{self._voters[self._node_id]}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data_directory,
            **(ONE_NODE_SETTINGS if len(self._voters) == 1 else {}),
            **self._settings,
        }

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """The process is on its way; it may not serve yet."""
        assert self._process is None or not self._process.is_running, "already running"
        properties = str(self.prepare())
        command = [java_executable(), *self._heap, *COLLECTOR, "-cp", class_path(), SERVER, properties]
        self._process = ServerProcess(command, working_directory=self._directory)

    def prepare(self) -> Path:
        """Settings written and storage formatted: what an operator does once, before the first start."""
        properties = self._directory / "server.properties"
        self._directory.mkdir(parents=True, exist_ok=True)
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        if not (self.data_directory / "meta.properties").exists():
            self._format(properties)
        return properties

    def wait_ready(self) -> None:
        """Until it names itself in a metadata answer: before that it is not registered."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.is_running and time.monotonic() < deadline:
            with contextlib.suppress(OSError, EOFError):
                if wire.broker_count(self.host, self.port) >= 1:
                    return
            time.sleep(0.02)
        self._process.kill()
        raise RuntimeError(f"Apache Kafka did not become ready:\n{self.output_text()}")

    def stop(self) -> None:
        assert self._process is not None
        self._process.stop()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def output_text(self) -> str:
        return self._process.output_text() if self._process is not None else ""

    def _format(self, properties: Path) -> None:
        done = run_kafka_tool(STORAGE_TOOL, "format", "-t", self._cluster_id, "-c", str(properties))
        if done.returncode != 0:
            raise RuntimeError(f"storage could not be formatted:\n{done.stdout}{done.stderr}")


def new_cluster_id() -> str:
    """A random UUID as Kafka writes it: URL-safe base64 with no padding and no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


@contextlib.contextmanager
def kafka_broker(directory: Path, **settings: object) -> Iterator[KafkaBroker]:
    """A running single node; keyword `log_segment_bytes=…` becomes `log.segment.bytes=…`."""
    broker = KafkaBroker(
        directory, settings={key.replace("_", "."): value for key, value in settings.items()}
    )
    with contextlib.ExitStack() as stack:
        broker.start()
        stack.callback(broker.stop)
        yield broker


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kafka-peer-") as directory:
        try:
            with kafka_broker(Path(directory)) as broker:
                print(f"Apache Kafka {kafka_version()} is at {broker.bootstrap} (Ctrl-C ends it)", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(3_600)
        except PeerUnavailable as reason:
            print(f"Apache Kafka cannot be run here: {reason}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
