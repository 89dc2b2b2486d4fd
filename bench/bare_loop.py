"""The physical limit: what this machine does with sockets and files when nothing else is in the way.

Two loops with no broker in them. `write` receives size-prefixed frames into one buffer
(`recv_into`), appends each to a file (`writev`) and answers 20 bytes; `send` answers each
frame with a piece of a file (`sendfile`). Blocking sockets, one connection at a time, no
event loop, no checks: nothing in Python can be faster, so a broker's figures are given as
ratios to these.

    python bench/bare_loop.py               # measures both, and the network layer beside them
    python bench/bare_loop.py serve write   # prints a port and serves, for other load generators

The network layer is measured with a dispatch that does the same work (and with one that only
answers 20 bytes), so its ratio is the price of everything `barnabas.network` adds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe

from raw_load import LoadResult, opaque_frame, run_load

ANSWER = struct.pack(">i", 20) + bytes(20)
FILE_BYTES_MAX = 4 << 30
REGION_BYTES = 1 << 20


def serve_bare_write(listening: socket.socket) -> None:
    buffer = memoryview(bytearray(8 << 20))
    with tempfile.TemporaryFile() as file:
        descriptor, position = file.fileno(), 0
        while True:
            sock, _ = listening.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sock:
                have = 0
                while count := sock.recv_into(buffer[have:]):
                    have += count
                    start = answers = 0
                    while have - start >= 4:
                        size = struct.unpack_from(">i", buffer, start)[0] + 4
                        if have - start < size:
                            break
                        position += os.pwritev(descriptor, [buffer[start : start + size]], position)
                        if position > FILE_BYTES_MAX:
                            # A log does not write over itself: its pages are always new to the cache.
                            os.ftruncate(descriptor, position := 0)
                        start += size
                        answers += 1
                    if answers:
                        sock.sendall(ANSWER * answers)
                    if start:
                        buffer[: have - start] = buffer[start:have]
                        have -= start


def serve_bare_send(listening: socket.socket) -> None:
    buffer = memoryview(bytearray(1 << 20))
    with tempfile.TemporaryFile() as file:
        file.write(bytes(REGION_BYTES))
        file.flush()
        header = struct.pack(">i", REGION_BYTES)
        while True:
            sock, _ = listening.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sock:
                have = 0
                while count := sock.recv_into(buffer):
                    have += count
                    while have >= 100:
                        have -= 100
                        sock.send(header, socket.MSG_MORE)
                        sent = 0
                        while sent < REGION_BYTES:
                            sent += os.sendfile(sock.fileno(), file.fileno(), sent, REGION_BYTES - sent)


def _serve_network(listening: socket.socket, dispatch_of: Callable[[int], Callable[..., None]]) -> None:
    import uvloop
    from tests.support.manual_time import ManualClock, ManualScheduler

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
    from barnabas.core.clock import SystemClock
    from barnabas.core.reporting.metrics import Metrics
    from barnabas.core.scheduler import InlineBackground
    from barnabas.network.listener import Listener
    from barnabas.network.server import Server

    async def serve() -> None:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(REGION_BYTES))
            file.flush()
            server = Server(
                clock=SystemClock(),
                scheduler=ManualScheduler(ManualClock()),
                metrics=Metrics(),
                config=BrokerConfig.load({}),
                background=InlineBackground(),
            )
            listening.setblocking(False)
            server.listeners.append(Listener(ListenerEndpoint("BENCH", Endpoint("", 0)), [listening]))
            server.start(asyncio.get_running_loop(), dispatch_of(file.fileno()))
            await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def serve_network_answer(listening: socket.socket) -> None:
    answer = (bytes(20),)
    _serve_network(listening, lambda _: lambda exchange, _frame: exchange.respond(answer))


def serve_network_write(listening: socket.socket) -> None:
    def dispatch_of(descriptor: int) -> Callable[..., None]:
        answer = (bytes(20),)
        position = 0

        def dispatch(exchange, frame) -> None:  # type: ignore[no-untyped-def]
            nonlocal position
            position += os.pwritev(descriptor, [frame], position)
            if position > FILE_BYTES_MAX:
                os.ftruncate(descriptor, position := 0)
            exchange.respond(answer)

        return dispatch

    _serve_network(listening, dispatch_of)


def serve_network_send(listening: socket.socket) -> None:
    from barnabas.core.regions import FileRegion

    class File:
        def __init__(self, descriptor: int) -> None:
            self._descriptor = descriptor

        def fileno(self) -> int:
            return self._descriptor

        def read_at(self, position: int, length: int) -> bytes:
            return os.pread(self._descriptor, length, position)

        def read_now(self, position: int, length: int) -> bytes:
            return self.read_at(position, length)

    def dispatch_of(descriptor: int) -> Callable[..., None]:
        file = File(descriptor)
        return lambda exchange, _frame: exchange.respond((FileRegion(file, 0, REGION_BYTES),))

    _serve_network(listening, dispatch_of)


SERVERS: dict[str, Callable[[socket.socket], None]] = {
    "bare write": serve_bare_write,
    "bare send": serve_bare_send,
    "network answer": serve_network_answer,
    "network write": serve_network_write,
    "network send": serve_network_send,
}


def _child(name: str, listening: socket.socket, pipe: Pipe) -> None:
    """Serves in a thread's stead: the main thread answers questions about this process's CPU time."""
    import threading

    def answer_questions() -> None:
        while pipe.recv() == "usage":
            usage = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send((usage.ru_utime, usage.ru_stime))

    threading.Thread(target=answer_questions, daemon=True).start()
    SERVERS[name](listening)


class Subject:
    """One of the servers in a process of its own, with its CPU time."""

    def __init__(self, name: str) -> None:
        context = get_context("spawn")
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(name, listening, theirs), daemon=True)
        self._process.start()
        listening.close()

    def usage(self) -> tuple[float, float]:
        self._pipe.send("usage")
        user_s, system_s = self._pipe.recv()
        return user_s, system_s

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def measure(
    names: list[str], frame_bytes: int, depth: int, seconds: float, rounds: int, connections: int = 1
) -> None:
    """The subjects in turn, again and again; medians."""
    frame = opaque_frame(frame_bytes)
    subjects = {name: Subject(name) for name in names}
    rows: dict[str, list[tuple[LoadResult, float, float]]] = {name: [] for name in names}
    try:
        for subject in subjects.values():
            run_load(subject.port, frame, depth=depth, connections=connections, seconds=0.2)
        for _ in range(rounds):
            for name, subject in subjects.items():
                user_s, system_s = subject.usage()
                result = run_load(subject.port, frame, depth=depth, connections=connections, seconds=seconds)
                user_after_s, system_after_s = subject.usage()
                rows[name].append((result, user_after_s - user_s, system_after_s - system_s))
    finally:
        for subject in subjects.values():
            subject.stop()
    print(f"\n{frame_bytes} byte frames, depth {depth}, {connections} connection(s), {rounds} × {seconds} s")
    rate_of: dict[str, float] = {}
    for name, runs in rows.items():
        rate_of[name] = statistics.median(result.requests_per_s for result, _, _ in runs)
        user_us = statistics.median(user / result.requests * 1e6 for result, user, _ in runs)
        system_us = statistics.median(system / result.requests * 1e6 for result, _, system in runs)
        moved = statistics.median(
            (result.sent_bytes + result.received_bytes) / result.seconds / 1e6 for result, _, _ in runs
        )
        p50 = statistics.median(result.latency.percentile_us(50) for result, _, _ in runs)
        p99 = statistics.median(result.latency.percentile_us(99) for result, _, _ in runs)
        ratio = rate_of[names[0]] / rate_of[name]
        print(
            f"  {name:15} {rate_of[name]:10,.0f} req/s {moved:9,.1f} MB/s  user {user_us:7.2f} µs  "
            f"sys {system_us:7.2f} µs  p50 {p50:8,.0f} µs  p99 {p99:8,.0f} µs  bare/this {ratio:5.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    commands = parser.add_subparsers(dest="command")
    serve = commands.add_parser("serve", help="serve one loop on a free port")
    serve.add_argument("which", choices=["write", "send"])
    options = parser.parse_args()
    if options.command == "serve":
        with socket.create_server(("127.0.0.1", 0)) as listening:
            print(listening.getsockname()[1], flush=True)
            SERVERS[f"bare {options.which}"](listening)
        return
    taken = options.seconds, options.rounds
    measure(["bare write", "network write", "network answer"], 100, 1, *taken)
    measure(["bare write", "network write", "network answer"], 100, 32, *taken)
    measure(["bare write", "network write"], 16_384, 5, *taken)
    measure(["bare write", "network write"], 1_048_700, 1, *taken)
    measure(["bare write", "network write"], 1_048_700, 5, *taken)
    measure(["bare send", "network send"], 100, 1, *taken)
    measure(["bare send", "network send"], 100, 5, *taken)


if __name__ == "__main__":
    sys.exit(main())
