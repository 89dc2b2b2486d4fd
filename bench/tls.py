"""What TLS costs the broker: its own CPU for produce and fetch, in the clear and encrypted, side by side.

Starts one broker of this working tree with both listeners, so that nothing but the listener differs, and
alternates between them. The load is bytes made before, sent by threads of this process.

    python bench/tls.py --seconds 3 --rounds 3
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
from pathlib import Path

import psutil
import trustme

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.request_path import create_topic, fetch_frame, produce_frame
from tests.support.broker import BarnabasBroker
from tests.support.ports import free_port

SIZE = struct.Struct(">i")


def connect(port: int, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock, server_hostname="127.0.0.1")


def load(sock: socket.socket, frame: bytes, depth: int, seconds: float) -> tuple[int, int, float]:
    """Requests answered, bytes moved and seconds taken, with `depth` requests in flight."""
    stream = sock.makefile("rb", buffering=1 << 20)
    requests = moved = 0
    begun = time.perf_counter()
    for _ in range(depth):
        sock.sendall(frame)
    while True:
        (size,) = SIZE.unpack(stream.read(4))
        stream.read(size)
        requests += 1
        moved += size + len(frame)
        if (took := time.perf_counter() - begun) > seconds:
            break
        sock.sendall(frame)
    for _ in range(depth - 1):
        (size,) = SIZE.unpack(stream.read(4))
        stream.read(size)
    stream.close()
    return requests, moved, took


def handshakes(port: int, context: ssl.SSLContext, seconds: float) -> int:
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        connect(port, context).close()
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        authority = trustme.CA()
        key_store = Path(scratch) / "broker.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(key_store))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(context)
        plain, encrypted = free_port(), free_port()
        broker = BarnabasBroker(
            Path(scratch) / "data",
            port=plain,
            settings={"ssl.keystore.location": key_store},
            arguments=["--listener", f"SSL://127.0.0.1:{encrypted}"],
        )
        broker.start()
        try:
            measure(broker, {"PLAINTEXT": (plain, None), "SSL": (encrypted, context)}, arguments)
        finally:
            broker.stop()


def measure(
    broker: BarnabasBroker,
    listeners: dict[str, tuple[int, ssl.SSLContext | None]],
    arguments: argparse.Namespace,
) -> None:
    process = psutil.Process(broker.pid)
    create_topic(broker.port)
    rows = {
        "produce 1 x 100 B": (produce_frame(1, 100), 1),
        "produce 1000 x 1 KB": (produce_frame(1000, 1_000), 2),
        "fetch 1 x 100 B": (fetch_frame(0, 150), 1),
        "fetch 1 MB": (fetch_frame(0, 1 << 20), 2),
    }
    results = defaultdict(list)
    for _ in range(arguments.rounds):
        for row, (frame, depth) in rows.items():
            for listener, (port, context) in listeners.items():
                sock = connect(port, context)
                before = process.cpu_times()
                requests, moved, took = load(sock, frame, depth, arguments.seconds)
                after = process.cpu_times()
                sock.close()
                user, system = after.user - before.user, after.system - before.system
                cost = user * 1e6 / requests, system * 1e6 / requests, (user + system) * 1e9 / moved
                results[row, listener].append((*cost, moved / took / 1e6))
    for (row, listener), rounds in results.items():
        user, system, per_gb, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
        shown = f"user {user:8.1f} us  sys {system:8.1f} us  {per_gb:6.2f} CPU s/GB"
        print(f"{row:20} {listener:10} {shown}  {rate:8.1f} MB/s")
    port, context = listeners["SSL"]
    assert context is not None
    before = process.cpu_times()
    count = handshakes(port, context, arguments.seconds)
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    print(f"handshakes: {count / arguments.seconds:.0f} a second, {spent * 1e6 / count:.0f} us of CPU each")


if __name__ == "__main__":
    main()
