"""The broker under the fuzzer: a process of its own with users, rights and a hidden corner.

`alice` may do everything with names that begin as hers do; `mallory` may do nothing; `admin` prepares.
Topics, groups and transactions called `hidden-…` belong to the administrator alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import barnabas
from tests.fuzz.connection import Connection
from tests.fuzz.pool import GROUPS, TRANSACTIONS, USERS
from tests.support import wire
from tests.support.ports import free_port

READY = "barnabas ready"
START_S_MAX = 300.0
STOP_S_MAX = 30.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PREFIXED, LITERAL = 4, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, DESCRIBE, IDEMPOTENT_WRITE = 2, 8, 12
OWN_TOPICS = ("fuzz-a", "fuzz-b", "fuzz.c")
WITH_RECORDS = ("fuzz-a", "hidden-t")
OWN_NAMES = ((TOPIC, "fuzz"), (GROUP, "group"), (TRANSACTIONAL_ID, "txn"))


class World:
    """One data directory, and the broker that runs on it."""

    def __init__(
        self,
        directory: Path,
        bug: str | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Iterable[str] = (),
        *,
        is_measured: bool = False,
    ) -> None:
        """More arguments of its command, and whether the turns of its loop are measured (`turns`)."""
        self.directory = directory
        self.port = free_port()
        self.bug = bug
        self.turns_path = directory / "turns"
        self._arguments = tuple(arguments)
        self._is_measured = is_measured
        self._settings = {**self._own_settings(), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / "broker.log"

    def _own_settings(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{name}"' for name in (*USERS, "reader", "prober"))
        return {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "logs"),
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{MODULE} username="admin" password="admin" {users};'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "delegation.token.secret.key": "secret",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "group.min.session.timeout.ms": "1",
            "socket.request.max.bytes": str(10 << 20),
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        begin = ["-m", "barnabas"]
        if self._is_measured:
            begin = ["-m", "tests.fuzz.turns", str(self.turns_path), self.bug or "", "--"]
        elif self.bug is not None:
            begin = ["-m", "tests.support.planting", "tests.fuzz.planted", self.bug, "--"]
        repository = str(Path(__file__).resolve().parents[2])
        source = str(Path(barnabas.__file__).parents[1])
        seen = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *begin, "start", "--config", str(config), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join((source, repository)),
                    "PYTHONUNBUFFERED": "1",
                },
                cwd=self.directory,
                start_new_session=True,
            )
        deadline_s = time.monotonic() + START_S_MAX
        while READY.encode() not in self._log_bytes()[seen:]:
            if not self.is_running or time.monotonic() > deadline_s:
                raise RuntimeError(f"the broker does not start:\n{self.log_text()[-3_000:]}")
            time.sleep(0.02)

    def stop(self) -> str | None:
        """SIGTERM; a complaint if the broker does not end as it should."""
        assert self._process is not None
        if self._process.poll() is not None:
            return f"the broker has ended by itself with {self._process.returncode}"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"no end {STOP_S_MAX:.0f} s after SIGTERM"
        return f"exit code {code} after SIGTERM" if code else None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def connect(self, user: str, timeout_s: float = 10.0) -> Connection:
        return Connection(self.port, user, timeout_s)

    def log_text(self) -> str:
        return self._log_bytes().decode("utf-8", "replace")

    def _log_bytes(self) -> bytes:
        return self.log_path.read_bytes() if self.log_path.exists() else b""

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def grant(world: World) -> None:
    """Alice's rights, restored after any change by a sequence."""
    rules = [(kind, name, PREFIXED, ALL) for kind, name in OWN_NAMES]
    rules.append((CLUSTER, "kafka-cluster", LITERAL, IDEMPOTENT_WRITE))
    with world.connect("admin") as admin:
        admin.ask_raw(30, 1, _creations("alice", rules))


def _creations(user: str, rules: list[tuple[int, str, int, int]]) -> bytes:
    rows = [
        bytes((kind,)) + wire.string(name) + bytes((pattern,)) + wire.string(f"User:{user}")
        + wire.string("*") + bytes((operation, 3))
        for kind, name, pattern, operation in rules
    ]  # fmt: skip
    return wire.array(rows)


def restrict(world: World, user: str) -> None:
    """Let the user describe what is not hidden, and nothing else."""
    rules = [(kind, name, PREFIXED, DESCRIBE) for kind, name in OWN_NAMES]
    with world.connect("admin") as admin:
        admin.ask_raw(30, 1, _creations(user, rules))


def make_topics(world: World, topics: Iterable[str]) -> None:
    """Some of them with records."""
    with world.connect("admin", 30.0) as admin:
        for topic in topics:
            admin.ask_raw(wire.CREATE_TOPICS, 2, wire.create_topics_body(topic, partitions=2))
            for _ in range(3 if topic in WITH_RECORDS else 0):
                admin.ask_raw(wire.PRODUCE, 7, wire.produce_body(topic, wire.batch([b"v" * 100])))


def prepare(world: World, topics: Iterable[str] = (*OWN_TOPICS, "hidden-t")) -> None:
    make_topics(world, topics)
    with world.connect("admin", 30.0) as admin:
        for group in GROUPS:  # the first question makes the topic of the offsets
            admin.ask_raw(10, 0, wire.string(group))
        for transaction in TRANSACTIONS:
            admin.ask_raw(10, 1, wire.string(transaction) + b"\1")
    grant(world)
