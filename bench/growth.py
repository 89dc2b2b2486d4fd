"""Costs that should not grow with size, measured at two sizes: the last column is the growth of a row.

    make bench-growth                                   # ours beside Apache Kafka, writes bench/RESULTS.md
    python bench/growth.py --quick --subjects barnabas  # small sizes, in a minute, printed only

A run may come in pieces: with `--keep`, rows that `--only` does not name stay as the last run left them.

Each row is the broker's CPU for one of something (user and system, from the operating system), at a small and
at a large size of what lies around it: a fetch by offset from the middle of a log, a start, a commit among
other groups, a produce beside idle connections, the delivery of a record to one of many consumers.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import report
from confluent_kafka import Consumer, KafkaException, TopicPartition
from raw_load import run_load
from run import compile_sources
from scratch import scratch_directory
from subjects import new_subject, started
from tests.support import wire
from tests.support.broker import REPOSITORY, Broker, cpu_seconds
from tests.support.fixtures import create_topic
from works import produce_frame

OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 2
HERE = Path(__file__).parent
PIPELINED = 200
UNACCEPTED_MAX = 40
"""Fewer than wait to be accepted at a time (`socket.listen.backlog.size`, 50 on both)."""
TIMEOUT_S = 120.0
WARM_UP_TIMES = 3
"""As long as what is measured: a JVM compiles what runs often, and the small size comes first."""


@dataclass(frozen=True, slots=True)
class Sizes:
    log_bytes: tuple[int, int]
    segments: tuple[int, int]
    groups: tuple[int, int]
    connections: tuple[int, int]
    consumers: tuple[int, int]
    seconds: float


FULL = Sizes((10**7, 10**10), (10, 10_000), (10**3, 10**6), (10, 10_000), (1, 1_000), 5.0)
QUICK = Sizes((10**6, 10**8), (10, 300), (100, 10_000), (10, 500), (1, 100), 1.0)

Measured = Callable[[str, Sizes, int], float]
"""The figure of a subject, at the small (0) or at the large (1) size."""


def fetch_cpu_us(name: str, sizes: Sizes, at: int) -> float:
    with started(name) as (broker, _):
        create_topic(broker, "log")
        value = bytes(9_000)
        count = sizes.log_bytes[at] // 90_000
        run_load(broker.port, produce_frame("log", [value] * 10), depth=5, requests=count)
        body = wire.fetch_body("log", count * 5, max_bytes=1, max_wait_ms=0)
        ask = wire.framed(wire.request_header(wire.FETCH, 4, 1, "bench") + body)
        run_load(broker.port, ask, seconds=WARM_UP_TIMES * sizes.seconds)
        before = cpu_seconds(broker)
        load = run_load(broker.port, ask, seconds=sizes.seconds)
        return (cpu_seconds(broker) - before) / load.requests * 1e6


def start_s(name: str, sizes: Sizes, at: int) -> float:
    """CPU of a start after a clean stop, until the ready line."""
    with scratch_directory(name) as directory:
        broker = new_subject(name, directory)
        broker.start()
        try:
            create_topic(broker, "segments", configs={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
            frame = produce_frame("segments", [bytes(600_000)])
            run_load(broker.port, frame, depth=2, requests=sizes.segments[at])
            broker.stop()
            broker.start()
            return cpu_seconds(broker)
        finally:
            broker.kill()


def commit_cpu_us(name: str, sizes: Sizes, at: int) -> float:
    with started(name) as (broker, _):
        create_topic(broker, "commits")
        _await_coordinator(broker)
        _ask_each(broker, (_commit(f"group-{number}") for number in range(sizes.groups[at])))
        again = max(1_000, int(2_000 * sizes.seconds))
        for _ in range(1 + WARM_UP_TIMES):
            before = cpu_seconds(broker)
            _ask_each(broker, (_commit(f"group-{number % sizes.groups[0]}") for number in range(again)))
        return (cpu_seconds(broker) - before) / again * 1e6


def _await_coordinator(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group-0"})
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            consumer.commit(offsets=[TopicPartition("commits", 0, 1)], asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < deadline, "there is no coordinator"
            time.sleep(0.1)
    consumer.close()


def _commit(group: str) -> bytes:
    partition = struct.pack(">iq", 0, 1) + wire.string("")
    topic = wire.string("commits") + wire.array([partition])
    body = wire.string(group) + struct.pack(">i", -1) + wire.string("") + struct.pack(">q", -1)
    header = wire.request_header(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, 1, "bench")
    return wire.framed(header + body + wire.array([topic]))


def _ask_each(broker: Broker, frames: Iterator[bytes]) -> None:
    """Different requests, so many at a time; answers are counted and not looked at."""
    address = (broker.host, broker.port)
    with socket.create_connection(address, TIMEOUT_S) as sock, sock.makefile("rb") as answers:
        while some := [frame for frame, _ in zip(frames, range(PIPELINED), strict=False)]:
            sock.sendall(b"".join(some))
            for _ in some:
                (size,) = struct.unpack(">i", answers.read(4))
                assert len(answers.read(size)) == size


def produce_cpu_us(name: str, sizes: Sizes, at: int) -> float:
    with started(name) as (broker, _), ExitStack() as held:
        create_topic(broker, "connections")
        _hold_open(held, broker, sizes.connections[at] - 2)  # two more work, in turn
        frame = produce_frame("connections", [bytes(100)])
        run_load(broker.port, frame, seconds=WARM_UP_TIMES * sizes.seconds)
        before = cpu_seconds(broker)
        load = run_load(broker.port, frame, seconds=sizes.seconds)
        return (cpu_seconds(broker) - before) / load.requests * 1e6


def _hold_open(held: ExitStack, broker: Broker, connections: int) -> list[socket.socket]:
    """They are accepted in order, so an answer to one says that all before it were."""
    opened: list[socket.socket] = []
    for number in range(connections):
        connection = held.enter_context(wire.WireConnection(broker.host, broker.port, timeout_s=TIMEOUT_S))
        if number % UNACCEPTED_MAX == 0:
            connection.ask(wire.API_VERSIONS, 0, b"")
        opened.append(connection.socket)
    return opened


def delivery_cpu_us(name: str, sizes: Sizes, at: int) -> float:
    """For one record to one consumer; all of them wait at the end of one partition."""
    consumers = sizes.consumers[at]
    records = max(20, int(2_000 * sizes.seconds) // consumers)
    with started(name) as (broker, _), ExitStack() as held, selectors.DefaultSelector() as selector:
        create_topic(broker, "delivery")
        socks = _hold_open(held, broker, consumers)
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ, bytearray())
        producer = held.enter_context(wire.WireConnection(broker.host, broker.port))
        before = 0.0
        for number in range(records):
            if number == records // 5:
                before = cpu_seconds(broker)
            body = wire.fetch_body("delivery", number, max_bytes=10_000, max_wait_ms=30_000)
            ask = wire.framed(wire.request_header(wire.FETCH, 4, 1, "bench") + body)
            for sock in socks:
                sock.sendall(ask)
            assert producer.produce("delivery", wire.batch([bytes(100)]))[0] == 0
            _await_answers(selector, consumers)
        return (cpu_seconds(broker) - before) / (consumers * (records - records // 5)) * 1e6


def _await_answers(selector: selectors.DefaultSelector, count: int) -> None:
    while count:
        for key, _ in selector.select(TIMEOUT_S):
            buffered: bytearray = key.data
            buffered += key.fileobj.recv(65_536)  # type: ignore[union-attr]
            if len(buffered) >= 4 and len(buffered) == 4 + struct.unpack_from(">i", buffered)[0]:
                buffered.clear()
                count -= 1


ROWS: dict[str, tuple[str, str, str, Measured]] = {
    "fetch": ("fetch by offset from the middle of a log of so many bytes", "µs", "log_bytes", fetch_cpu_us),
    "start": ("start after a clean stop, so many segments", "s", "segments", start_s),
    "commit": ("offset commit among so many groups", "µs", "groups", commit_cpu_us),
    "connections": ("small produce beside so many connections", "µs", "connections", produce_cpu_us),
    "consumers": ("a record delivered to one of so many consumers", "µs", "consumers", delivery_cpu_us),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--subjects", default="barnabas,kafka", help="comma-separated")
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(ROWS)}")
    parser.add_argument("--keep", action="store_true", help="leave the figures of other rows as they are")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sizes = QUICK if options.quick else FULL
    compile_sources()
    grown: list[report.Grown] = []
    for row in options.only.split(",") if options.only else ROWS:
        title, unit, field, measure = ROWS[row]
        for subject in options.subjects.split(","):
            small, large = (measure(subject, sizes, at) for at in (0, 1))
            grown.append(report.Grown(title, unit, subject, getattr(sizes, field), (small, large)))
            print(grown[-1], file=sys.stderr, flush=True)
    about = report.versions(REPOSITORY)
    print(report.rendered_growth(grown, about))
    if not options.quick:
        report.write_growth(HERE, grown, about, is_kept=options.keep)


if __name__ == "__main__":
    main()
