"""The metrics page of a loaded, replicating cluster beside the figures of its clients.

    python bench/metrics_agreement.py --connections 20 --requests 200

Three brokers, three replicas, acks=all. Each connection has one request in flight. A client's time runs from
its `send` to the arrival of the response in the kernel, so a client that waits for a core does not count.
The broker's time runs to the moment when the response is given to the socket: the difference is the send.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ports import free_ports
from tests.support.wire import FETCH, PRODUCE, PRODUCE_VERSION, batch, fetch_body, produce_body

from barnabas.network.transport.arrivals import ANCILLARY_BYTES, stamp_arrivals, waited_ms

TOPIC = "measured"
PARTITIONS = 6
RECORDS = 10
"""Records of a batch."""
FETCH_VERSION = 4
WAIT_MS = 50
"""Wait of a fetch at the end of a log."""
GROUP = "measured-readers"
TOLERANCE = 0.1
Samples = Counter[tuple[str, str]]


class Cluster:
    def __init__(self, directory: Path) -> None:
        first, self._metrics = free_ports(3), free_ports(3)
        self.ports = range(first, first + 3)
        words = ["start", "--brokers", "3", "--data-dir", str(directory)]
        words += ["--listener", f"PLAINTEXT://127.0.0.1:{first}", "--metrics", f"127.0.0.1:{self._metrics}"]
        words += ["--set", "metrics.group.lag.interval.ms=1000"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"barnabas ready")
        self.bootstrap = f"127.0.0.1:{first}"

    def samples(self) -> Samples:
        """The samples of all brokers, added up."""
        found: Samples = Counter()
        for number in range(3):
            page = urllib.request.urlopen(f"http://127.0.0.1:{self._metrics + number}/metrics").read()
            for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", page.decode(), re.MULTILINE):
                found[name, labels] += float(value)
        return found

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Connection:
    """A connection with one request in flight. `requests` yields API, version and body of each."""

    def __init__(self, port: int, requests: Iterator[tuple[int, int, bytes]]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamp_arrivals(self.socket)
        self._requests = requests
        self._sent_at = 0.0
        self._received = b""
        self.times_ms: list[float] = []

    def send(self) -> bool:
        """Send the next request; False if there is none."""
        asked = next(self._requests, None)
        if asked is None:
            return False
        api_key, version, body = asked
        header = struct.pack(">hhih", api_key, version, 7, -1)
        frame = struct.pack(">i", len(header) + len(body)) + header + body
        self._sent_at = time.perf_counter()
        self.socket.sendall(frame)
        return True

    def receive(self) -> bool:
        """Whether the response is there."""
        data, ancillary, _, _ = self.socket.recvmsg(1 << 20, ANCILLARY_BYTES)
        assert data, "the broker closed the connection"
        now = time.perf_counter()
        self._received += data
        (size,) = struct.unpack_from(">i", self._received)
        if len(self._received) < 4 + size:
            return False
        waited = max(0.0, waited_ms(ancillary))
        self.times_ms.append((now - self._sent_at) * 1_000 - waited)
        self._answered(self._received)
        self._received = b""
        return True

    def _answered(self, response: bytes) -> None:
        raise NotImplementedError


class Writer(Connection):
    """Produces to one partition."""

    def __init__(self, port: int, partition: int, sizes: list[int]) -> None:
        super().__init__(port, self._batches(partition, sizes))
        self.records = self.bytes = 0

    def _batches(self, partition: int, sizes: list[int]) -> Iterator[tuple[int, int, bytes]]:
        for size in sizes:
            records = batch([b"x" * size] * RECORDS, timestamp_ms=round(time.time() * 1_000))
            self.records += RECORDS
            self.bytes += len(records)
            yield PRODUCE, PRODUCE_VERSION, produce_body(TOPIC, records, partition=partition)

    def _answered(self, response: bytes) -> None:
        (error,) = struct.unpack_from(">h", response, 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4)
        assert error == 0, error


class Reader(Connection):
    """Fetches from partition 0 at these offsets, which are those of batches. At the end of the log a fetch
    waits for `wait_ms`.
    """

    def __init__(self, port: int, offsets: list[int], wait_ms: int) -> None:
        super().__init__(
            port,
            (
                (FETCH, FETCH_VERSION, fetch_body(TOPIC, offset, max_bytes=100_000, max_wait_ms=wait_ms))
                for offset in offsets
            ),
        )
        self.bytes = 0

    def _answered(self, response: bytes) -> None:
        at = 4 + 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
        error, _, _, aborted, size = struct.unpack_from(">hqqii", response, at)
        assert error == 0, error
        assert aborted <= 0, aborted
        self.bytes += max(size, 0)


def converse(connections: Sequence[Connection]) -> None:
    """Let all connections send their requests, each one after the other."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.send()
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while selector.get_map():
            for key, _ in selector.select(30):
                connection = key.data
                if connection.receive() and not connection.send():
                    selector.unregister(connection.socket)


def compare(rows: list[tuple[str, float, float]]) -> bool:
    agrees = True
    print(f"{'':34}{'clients':>14}{'page':>14}")
    for name, client, page in rows:
        share = abs(page - client) / client if client else float(page != client)
        agrees = agrees and share <= TOLERANCE
        print(f"{name:34}{client:14,.2f}{page:14,.2f}{page / client - 1 if client else 0:+9.1%}")
    return agrees


def fetches(
    cluster: Cluster, port: int, connections: int, requests: int, end: int
) -> list[tuple[str, float, float]]:
    """Figures of fetches that find records, and of those that wait at the end of the log."""
    rows = []
    for name, offsets, wait_ms in (
        ("fetch", [each * RECORDS % end for each in range(requests)], 0),
        ("fetch that waits", [end] * (requests // 5), WAIT_MS),
    ):
        before = cluster.samples()
        readers = [Reader(port, offsets, wait_ms) for _ in range(connections)]
        converse(readers)
        after = cluster.samples()
        times = [each for reader in readers for each in reader.times_ms]
        api = 'api="FetchConsumer"'
        total = "kafka_request_total_time_ms"
        count, total_ms = (
            after[f"{total}_{each}", api] - before[f"{total}_{each}", api] for each in ("count", "sum")
        )
        out = "kafka_bytes_out_total", f'topic="{TOPIC}"'
        rows += [
            (f"{name}: requests", len(times), count),
            (f"{name}: time, mean ms", statistics.mean(times), total_ms / count),
            (f"{name}: bytes out", sum(each.bytes for each in readers), after[out] - before[out]),
        ]
    return rows


def measure(cluster: Cluster, connections: int, requests: int) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    while True:
        partitions = admin.list_topics(TOPIC).topics[TOPIC].partitions
        if len(partitions) == PARTITIONS and all(each.leader > 0 for each in partitions.values()):
            break
        time.sleep(0.1)
    leader = {number: cluster.ports[each.leader - 1] for number, each in partitions.items()}

    def writers(count: int) -> list[Writer]:
        sizes = [100 if number % 2 else 5_000 for number in range(count)]
        return [
            Writer(leader[each % PARTITIONS], each % PARTITIONS, list(sizes)) for each in range(connections)
        ]

    converse(writers(5))
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), cached=False)[1]
        for number in range(PARTITIONS)
    }
    consumer.commit(
        offsets=[TopicPartition(TOPIC, number, end) for number, end in ends.items()], asynchronous=False
    )
    time.sleep(2)
    before = cluster.samples()
    began = time.time()
    measured = writers(requests)
    converse(measured)
    time.sleep(2)
    asked_at = time.time()
    after = cluster.samples()

    def grown(name: str, labels: str) -> float:
        return after[name, labels] - before[name, labels]

    api, topic = 'api="Produce"', f'topic="{TOPIC}"'
    times = [each for writer in measured for each in writer.times_ms]
    sent, records = sum(each.bytes for each in measured), sum(each.records for each in measured)
    count = grown("kafka_request_total_time_ms_count", api)
    total_ms = grown("kafka_request_total_time_ms_sum", api)
    lags = {
        labels: value
        for (name, labels), value in after.items()
        if name == "kafka_consumergroup_lag" and GROUP in labels
    }
    ages = [
        value
        for (name, labels), value in after.items()
        if name == "kafka_consumergroup_lag_ms" and GROUP in labels
    ]
    rows = [
        ("requests", len(times), count),
        ("time of a request, mean ms", statistics.mean(times), total_ms / count),
        ("bytes in", sent, grown("kafka_bytes_in_total", topic)),
        ("records in", records, grown("kafka_messages_in_total", topic)),
        ("replication bytes in", 2 * sent, grown("kafka_replication_bytes_in_total", "")),
        ("replication bytes out", 2 * sent, grown("kafka_replication_bytes_out_total", "")),
        ("lag of the group, records", records, sum(lags.values())),
        ("lag of the group, oldest, s", asked_at - began, max(ages, default=0.0) / 1_000),
    ]  # fmt: skip
    _, log_end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), cached=False)
    rows += fetches(cluster, leader[0], connections, requests, log_end)
    after = cluster.samples()
    consumer.assign([TopicPartition(TOPIC, number, end) for number, end in ends.items()])
    read = read_bytes = 0
    while read < records:
        for message in consumer.consume(1_000, 10):
            assert message.error() is None
            read += 1
            read_bytes += len(message.value() or b"")
    consumer.commit(
        offsets=[
            TopicPartition(TOPIC, number, end + records // PARTITIONS // 2) for number, end in ends.items()
        ],
        asynchronous=False,
    )
    committed = records // PARTITIONS // 2 * PARTITIONS
    time.sleep(2)
    last = cluster.samples()
    consumed = last["kafka_bytes_out_total", topic] - after["kafka_bytes_out_total", topic]
    lag = sum(
        value
        for (name, labels), value in last.items()
        if name == "kafka_consumergroup_lag" and GROUP in labels
    )
    rows.append(("bytes out to consumers (values)", read_bytes, consumed))
    rows.append(("lag after a commit, records", records - committed, lag))
    consumer.close()
    return compare(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--requests", type=int, default=200, help="per connection")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        try:
            agrees = measure(cluster, arguments.connections, arguments.requests)
        finally:
            cluster.stop()
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
