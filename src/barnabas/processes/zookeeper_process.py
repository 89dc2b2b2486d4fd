"""Command line and files of a local ZooKeeper, which runs from the jars of PySpark.

PySpark ships ZooKeeper's jars with those of Spark, so a machine that can run the pipelines has a complete
ZooKeeper and needs only Java. A server takes a handful of some three hundred jars. With those alone it starts
in a third of a second instead of two. The logging library is not among them: it would cost a second of every
start. So this module itself checks what can fail before the first connection: no Java, no jars, a taken port,
a read-only directory.

The server is standalone, and bound to the loopback interface by default. For an ensemble, run ZooKeeper's own
and name it in `zookeeper.connect`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.optional_dependencies import install_command

MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
LOOPBACK = "127.0.0.1"
TICK_MS = 500
"""ZooKeeper's unit of time: sessions expire on its multiples, so a short tick detects dead brokers sooner."""
SESSION_TIMEOUT_MS_MAX = 120_000
HEAP_MB = 256
PROBE_TIMEOUT_S = 1.0

_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-common-*.jar",
    "netty-buffer-*.jar",
    "netty-transport-[0-9]*.jar",
    "netty-handler-[0-9]*.jar",
)
_QUIET = ("SLF4J(W):",)
"""Beginnings of the lines in which the server reports its missing logging library."""


class CannotRunZooKeeper(Exception):
    """A requirement is missing; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A standalone server on a directory and a port; `prepare`, then run `command`."""

    data_directory: Path
    port: int
    host: str = LOOPBACK
    tick_ms: int = TICK_MS
    heap_mb: int = HEAP_MB
    syncs: bool = True
    """Whether a write is on disk before its answer; only tests disable it."""

    @property
    def connect(self) -> str:
        return str(Endpoint(self.host, self.port))

    @property
    def config_file(self) -> Path:
        return self.data_directory / "zoo.cfg"

    def prepare(self) -> list[str]:
        """Write the configuration; returns the command that runs the server."""
        java, jars = find_java(), find_jars()
        try:
            self.data_directory.mkdir(parents=True, exist_ok=True)
            self.config_file.write_text(self.config(), encoding="utf-8")
        except OSError as error:
            raise CannotRunZooKeeper(f"cannot write to {self.data_directory}: {error.strerror}") from error
        return [
            java,
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            "-Dzookeeper.preAllocSize=4096",
            f"-Dzookeeper.forceSync={'yes' if self.syncs else 'no'}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            MAIN_CLASS,
            str(self.config_file),
        ]

    def config(self) -> str:
        settings = {
            "dataDir": self.data_directory,
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": self.tick_ms,
            "maxSessionTimeout": SESSION_TIMEOUT_MS_MAX,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr,stat",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def is_serving(self) -> bool:
        """Whether the server accepts sessions; blocks for at most `PROBE_TIMEOUT_S`.

        The server answers `ruok` earlier, when it would still lose a new session."""
        try:
            with socket.create_connection((self.host, self.port), PROBE_TIMEOUT_S) as probe:
                probe.sendall(b"srvr")
                return probe.recv(9).lower() == b"zookeeper"
        except OSError:
            return False


def is_noise(line: str) -> bool:
    """Whether a line of the server's output is about its missing logging library."""
    return line.startswith(_QUIET)


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise CannotRunZooKeeper(
            "ZooKeeper needs Java 17 and there is no `java` on the PATH nor in JAVA_HOME; install it (for"
            " example the package openjdk-17-jre-headless), or name a ZooKeeper that runs elsewhere"
        )
    return found


def find_jars() -> list[Path]:
    """Jars of ZooKeeper and its dependencies in the installed PySpark, which is not imported."""
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [sorted(Path(place, "jars").glob(pattern)) for place in places for pattern in _JARS]
    if not places or not found[0] or not found[1]:
        raise CannotRunZooKeeper(
            "a local ZooKeeper runs from the jars that PySpark ships, and PySpark is not installed; run"
            f" `{install_command('zookeeper', 'spark')}`, or name a ZooKeeper that runs elsewhere"
        )
    return [jar for jars in found for jar in jars]


def check_port_is_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotRunZooKeeper(
                f"cannot listen on {host}:{port}: {error.strerror}; stop what uses it, or choose another port"
            ) from error


def beside(data_directory: Path) -> ZooKeeperServer:
    """Server of a broker or a cluster, with its data beside theirs, on a free port."""
    return ZooKeeperServer(data_directory.absolute() / "zookeeper", free_port())


def free_port(host: str = LOOPBACK) -> int:
    """A port that is free now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
