"""What TLS costs the broker: its own CPU for produce and fetch, in the clear and encrypted, side by side.

Starts one broker of this working tree with both listeners, so that nothing but the listener differs, and
alternates between them; with `--kafka` one of Apache Kafka's, too, in the same rounds. The load is bytes made
before, sent by this process. On a machine that does other things only the CPU times can be compared.

    python bench/tls.py --seconds 3 --rounds 3 --kafka
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.request_path import create_topic, fetch_frame, produce_frame
from tests.peers.kafka import KafkaBroker
from tests.support.broker import BarnabasBroker, Broker
from tests.support.ports import free_port

SIZE = struct.Struct(">i")


def connect(port: int, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock, server_hostname="127.0.0.1")


class Load(NamedTuple):
    requests: int
    moved_bytes: int
    took_s: float
    median_s: float
    """Of the answers, from one to the next."""


def load(sock: socket.socket, frame: bytes, depth: int, seconds: float) -> Load:
    """With `depth` requests in flight."""
    stream = sock.makefile("rb", buffering=1 << 20)
    requests = moved = 0
    begun = last = time.perf_counter()
    gaps: list[float] = []
    for _ in range(depth):
        sock.sendall(frame)
    while True:
        (size,) = SIZE.unpack(stream.read(4))
        stream.read(size)
        requests += 1
        moved += size + len(frame)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
        if (took := now - begun) > seconds:
            break
        sock.sendall(frame)
    for _ in range(depth - 1):
        (size,) = SIZE.unpack(stream.read(4))
        stream.read(size)
    stream.close()
    return Load(requests, moved, took, statistics.median(gaps))


def handshakes(port: int, context: ssl.SSLContext, seconds: float) -> int:
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        connect(port, context).close()
        count += 1
    return count


class Subject(NamedTuple):
    broker: Broker
    listeners: dict[str, tuple[int, ssl.SSLContext | None]]


def barnabas(scratch: Path, key_store: Path, context: ssl.SSLContext) -> Subject:
    plain, encrypted = free_port(), free_port()
    broker = BarnabasBroker(
        scratch / "barnabas",
        port=plain,
        settings={"ssl.keystore.location": key_store},
        arguments=["--listener", f"SSL://127.0.0.1:{encrypted}"],
    )
    return Subject(broker, {"PLAINTEXT": (plain, None), "SSL": (encrypted, context)})


def apache_kafka(scratch: Path, key_store: Path, context: ssl.SSLContext) -> Subject:
    plain, encrypted, controller = free_port(), free_port(), free_port()
    clients = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"
    settings = {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
    }
    broker = KafkaBroker(scratch / "kafka", port=plain, voters={1: controller}, settings=settings)
    return Subject(broker, {"PLAINTEXT": (plain, None), "SSL": (encrypted, context)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka, too (needs Java and Maven)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        scratch = Path(text)
        authority = trustme.CA()
        key_store = scratch / "broker.pem"
        issued = authority.issue_cert("127.0.0.1")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        in_pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # all that Java reads
        key_store.write_bytes(in_pkcs8 + b"".join(each.bytes() for each in issued.cert_chain_pems))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(context)
        makers = (barnabas, apache_kafka) if arguments.kafka else (barnabas,)
        subjects = [make(scratch, key_store, context) for make in makers]
        for each in subjects:
            each.broker.start()
            stack.callback(each.broker.kill)
            create_topic(each.broker.port)
        measure(subjects, arguments)


def measure(subjects: Sequence[Subject], arguments: argparse.Namespace) -> None:
    rows = {
        "produce 1 x 100 B": (produce_frame(1, 100), 1),
        "produce 1000 x 1 KB": (produce_frame(1000, 1_000), 2),
        "fetch 1 x 100 B": (fetch_frame(0, 150), 1),
        "fetch 1 MB": (fetch_frame(0, 1 << 20), 2),
    }
    results = defaultdict(list)
    for turn in range(arguments.rounds + 1):
        for row, (frame, depth) in rows.items():
            for broker, listeners in subjects:
                for listener, (port, context) in listeners.items():
                    sock = connect(port, context)
                    before = cpu_s(broker)
                    found = load(sock, frame, depth, arguments.seconds)
                    spent_s = cpu_s(broker) - before
                    sock.close()
                    cost = spent_s * 1e6 / found.requests, spent_s * 1e9 / found.moved_bytes
                    rate = found.moved_bytes / found.took_s / 1e6
                    if turn:  # the first does not count
                        results[row, listener, broker.name].append((*cost, rate, found.median_s * 1e6))
    for (row, listener, name), rounds in results.items():
        per_request, per_gb, rate, median = (
            statistics.median(column) for column in zip(*rounds, strict=True)
        )
        shown = f"{per_request:8.1f} us of CPU  {per_gb:6.2f} CPU s/GB"
        print(f"{row:20} {listener:10} {name:9} {shown}  {rate:8.1f} MB/s  p50 {median:8.0f} us")
    for broker, listeners in subjects:
        port, context = listeners["SSL"]
        assert context is not None
        handshakes(port, context, arguments.seconds)
        before = cpu_s(broker)
        count = handshakes(port, context, arguments.seconds)
        each_us = (cpu_s(broker) - before) * 1e6 / count
        rate = count / arguments.seconds
        print(f"handshakes {broker.name}: {rate:.0f} a second, {each_us:.0f} us of CPU each")


def cpu_s(broker: Broker) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
