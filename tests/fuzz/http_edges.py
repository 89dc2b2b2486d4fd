"""HTTP servers of Barnabas under the sweep, and requests at the edges of HTTP and of their bodies."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import barnabas
from tests.fuzz import odd_values
from tests.support.ports import free_port

TOKEN = "sweep-token"
START_S_MAX = 300.0
ANSWER_S_MAX = 20.0
BODY_BYTES = 4 << 20
ROUTES = (
    *("/", "/metrics", "/faults", "/openapi.json", "/connectors", "/connectors/a/config"),
    *("/connectors/a/offsets", "/connector-plugins/Pipeline/config/validate", "/admin/loggers/root"),
    *("/topics", "/topics/a", "/sign-in", "/clients", "/cluster", "/api/openapi.json", "/api/topics"),
    *("/mcp", "/time", "/disk"),
)


@cache
def bodies() -> dict[str, bytes]:
    """JSON of some megabytes: made once, and only for a run that sends it."""
    return {
        "deep arrays": b"[" * 200_000 + b"]" * 200_000,
        "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "a large number": b"[" + b"9" * 2_000_000 + b"]",
        "many small values": b"[" + b"0," * 1_900_000 + b"0]",
        "many keys": json.dumps({f"k{number}": number for number in range(200_000)}).encode(),
        "many settings": json.dumps(
            {"name": "a", "config": {f"k{number}": "v" for number in range(150_000)}}
        ).encode(),
        "many offsets": json.dumps(
            {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": None}] * 40_000}
        ).encode(),
        "a long text": json.dumps({"name": "x" * 3_000_000}).encode(),
        "no text": b"\xff" * 1_000_000,
        "a spec of many transforms": json.dumps(
            {"pipeline.spec": json.dumps({"name": "p", "transforms": [{"filter": "a = 1"}] * 20_000})}
        ).encode(),
        "wide SQL": json.dumps(
            {"connector.class": "Pipeline", "pipeline.spec": json.dumps(
                {"name": "a", "source": {"type": "topic", "topics": "s", "schema": "a BIGINT"},
                 "transforms": [{"sql": "SELECT " + "b, " * 5_000 + "a FROM input"}],
                 "sink": {"type": "topic", "topic": "o"}})}
        ).encode(),
        "long SQL": json.dumps(
            {"pipeline.spec": json.dumps(
                {"name": "p", "source": {"type": "topic", "topics": "s", "schema": "a BIGINT"},
                 "transforms": [{"sql": "SELECT " + "(" * 20_000 + "a" + ")" * 20_000 + " FROM input"}],
                 "sink": {"type": "topic", "topic": "o"}})}
        ).encode(),
    }  # fmt: skip


class Service(NamedTuple):
    name: str
    pid: int
    port: int
    token: str | None
    turns_path: Path
    kafka_port: int
    """Of its broker."""
    home: Path
    """With its log, and its data."""

    def log_text(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def send(self, raw: bytes) -> bytes:
        """One connection and its answer, as far as it comes."""
        received = bytearray()
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_S_MAX) as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                while some := connection.recv(1 << 16):
                    received += some
        return bytes(received)


def services(directory: Path) -> Iterator[AbstractContextManager[Service]]:
    """Metrics page, console and control interface of a broker; pipeline service; console with tools for
    agents."""
    directory.mkdir(parents=True)
    for name in ("metrics", "console", "control"):
        yield _opened(name, directory, None)
    yield _beside_a_broker("pipelines", directory, TOKEN)
    yield _beside_a_broker("mcp", directory, None)


@contextlib.contextmanager
def _beside_a_broker(name: str, directory: Path, token: str | None) -> Iterator[Service]:
    with (
        _opened("metrics", directory / f"broker-of-{name}", None) as broker,
        _opened(name, directory, token, broker.kafka_port) as service,
    ):
        yield service


@contextlib.contextmanager
def _opened(name: str, directory: Path, token: str | None, broker_port: int = 0) -> Iterator[Service]:
    port = free_port()
    broker_port = broker_port or free_port()
    home = directory / name
    home.mkdir(parents=True)
    turns = home / "turns"
    arguments = [
        "start",
        "--listener",
        f"PLAINTEXT://127.0.0.1:{broker_port}",
        "--data-dir",
        str(home / "data"),
    ]
    arguments += [f"--{name}", f"127.0.0.1:{port}"]
    if name != "console":
        arguments += ["--console", "off"]
    if name == "pipelines":
        arguments = ["pipeline", "serve", "--listen", f"127.0.0.1:{port}", "--state", str(home / "state")]
        arguments += ["--bootstrap", f"127.0.0.1:{broker_port}"]
    if name == "mcp":
        arguments = ["console", "--listen", f"127.0.0.1:{port}", "--mcp", "all"]
        arguments += ["--bootstrap", f"127.0.0.1:{broker_port}"]
    repository = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join((str(Path(barnabas.__file__).parents[1]), repository))
    environment = {**os.environ, "PYTHONPATH": paths, "HOME": str(home), "BARNABAS_PIPELINES_TOKEN": TOKEN}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.turns", str(turns), "", "--", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home, env=environment,
            start_new_session=True,
        )  # fmt: skip
    service = Service(name, process.pid, port, token, turns, broker_port, home)
    try:
        deadline_s = time.monotonic() + START_S_MAX
        while not service.send(_request("GET", "/", token)):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} does not start:\n{service.log_text()[-2_000:]}")
            time.sleep(0.1)
        yield service
        if process.poll() is not None:
            raise RuntimeError(f"{name} has ended:\n{service.log_text()[-2_000:]}")
    finally:
        process.kill()
        process.wait()


def hostile_requests(service: Service) -> Iterator[tuple[str, bytes]]:
    """By name. Bodies are as large as the servers read, and larger."""
    token = service.token
    yield from odd_requests(service)
    for path in ROUTES:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            yield f"{method} {path}", _request(method, path, token)
            yield f"{method} {path}, no object", _request(method, path, token, b"[1]")
        for name, body in bodies().items():
            for method in ("POST", "PUT", "PATCH"):
                yield f"{method} {path}, {name}", _request(method, path, token, body)
    yield "a long path", _request("GET", "/" + "a" * 15_000, token)
    yield "a path of escapes", _request("GET", "/" + "%2e%2e%2f" * 1_500, token)
    level = b'{"level": "DEBUG"}'
    yield "a logger of many parts", _request("PUT", "/admin/loggers/" + "a." * 7_000, token, level)
    yield "a long query", _request("GET", "/metrics?" + "a=b&" * 3_500, token)
    yield "many headers", _request("GET", "/", token, more="".join(f"x{n}: y\r\n" for n in range(1_500)))
    yield "a head that is too large", _request("GET", "/", token, more=f"x: {'y' * 1_000_000}\r\n")
    yield (
        "a body of chunks of one byte",
        _chunked("/connectors", token, b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"),
    )
    yield "a chunk that claims much", _chunked("/connectors", token, b"7fffffffffffffff\r\nx")
    yield "a length that is no number", b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n"
    yield (
        "a length that claims much",
        _request("POST", "/connectors", token, more="content-length: 99999999999\r\n"),
    )
    yield "a body that is too large", _request("POST", "/connectors", token, b"x" * (2 * BODY_BYTES))
    yield "zeros", bytes(1_000_000)
    yield "requests one after the other", _request("GET", "/", token) * 2_000


def odd_requests(service: Service) -> Iterator[tuple[str, bytes]]:
    """By name, for the interfaces that read JSON."""
    found: Iterator[odd_values.Odd] = iter(())
    if service.name == "pipelines":
        found = odd_values.to_pipelines()
    elif service.name == "mcp":
        found = odd_values.to_mcp()
    elif service.name == "control":
        described = service.send(_request("GET", "/openapi.json", None))
        found = odd_values.to_control(described.partition(b"\r\n\r\n")[2])
    for method, path, body in found:
        yield f"{method} {path[:60]}, {(body or b'')[:100]!r}", _request(method, path, service.token, body)


def _request(method: str, path: str, token: str | None, body: bytes | None = None, more: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}"
    if token is not None:
        head += f"authorization: Bearer {token}\r\n"
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


def _chunked(path: str, token: str | None, chunks: bytes) -> bytes:
    return _request("POST", path, token, more="transfer-encoding: chunked\r\n") + chunks
