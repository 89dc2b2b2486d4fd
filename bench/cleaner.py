"""Cost of compaction for producers: their p99 while a log is compacted, against idle.

Starts a broker of this working tree, fills a compacted topic (by default 1 GB in records of
1 KB, a tenth of the keys alive), then produces one record a request to another topic before,
during and after the run. The goal: p99 at most three times that of an idle broker, and memory
that does not grow with the log.

    python bench/cleaner.py --megabytes 1024 --rate 500
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.request_path import TOPIC, create_topic, produce_frame
from tests.support.broker import BarnabasBroker

COMPACTED = "compacted"
BACKOFF_MS = 10_000
CHECKPOINT = "cleaner-offset-checkpoint"
PHASES = ("idle", "compacting", "after")


def fill(broker: BarnabasBroker, arguments: argparse.Namespace) -> int:
    records = arguments.megabytes * 1024 * 1024 // arguments.record_bytes
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(100 * 1024 * 1024),
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(COMPACTED, 1, 1, config=config)])[COMPACTED].result(30)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 20,
            "compression.type": arguments.codec,
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    value = b"v" * (arguments.record_bytes - 20)
    for number in range(records):
        key = b"key-%010d" % (number % (records // 10))
        while True:
            try:
                producer.produce(COMPACTED, value, key)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    return records


class Watch(threading.Thread):
    """Knows from the files what the cleaner is doing, and how much memory the broker has."""

    def __init__(self, broker: BarnabasBroker) -> None:
        super().__init__(daemon=True)
        self.phase = "idle"
        self.began = self.ended = 0.0
        self.rss_peak = self.rss_idle = 0
        self._directory = broker.data_directory
        self._process = psutil.Process(broker.pid)

    def run(self) -> None:
        while self.phase != "after":
            rss = self._process.memory_info().rss
            self.rss_peak = max(self.rss_peak, rss)
            if self.phase == "idle":
                self.rss_idle = rss
                if any((self._directory / f"{COMPACTED}-0").glob("*.cleaned")) or self._reads():
                    self.began, self.phase = time.perf_counter(), "compacting"
            elif (self._directory / CHECKPOINT).exists() and COMPACTED in (
                self._directory / CHECKPOINT
            ).read_text():
                self.ended, self.phase = time.perf_counter(), "after"
            time.sleep(0.05)

    def _reads(self) -> bool:
        """The first pass writes nothing: it shows in the processor time of an idle broker."""
        path = f"{COMPACTED}-0"
        return (
            sum(path in file.path and file.path.endswith("0.log") for file in self._process.open_files()) > 1
        )


def measure(broker: BarnabasBroker, watch: Watch, rate: float) -> dict[str, list[float]]:
    frame = produce_frame(1, 100)
    latencies: dict[str, list[float]] = {phase: [] for phase in PHASES}
    until = None
    with socket.create_connection((broker.host, broker.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = time.perf_counter()
        while until is None or time.perf_counter() < until:
            began = time.perf_counter()
            sock.sendall(frame)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
            sock.recv(size, socket.MSG_WAITALL)
            latencies[watch.phase].append(time.perf_counter() - began)
            if watch.phase == "after" and until is None:
                until = time.perf_counter() + 5
            if rate:
                due = max(due + 1 / rate, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second; 0: as fast as it goes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        broker = BarnabasBroker(directory, settings={"log.cleaner.enable": "false"})
        broker.start()
        records = fill(broker, arguments)
        create_topic(broker.port)
        broker.stop()
        broker = BarnabasBroker(directory, settings={"log.cleaner.backoff.ms": BACKOFF_MS})
        broker.start()
        log_bytes = sum(path.stat().st_size for path in (directory / f"{COMPACTED}-0").glob("*.log"))
        watch = Watch(broker)
        watch.start()
        latencies = measure(broker, watch, arguments.rate)
        left_bytes = sum(path.stat().st_size for path in (directory / f"{COMPACTED}-0").glob("*.log"))
        broker.stop()
    seconds = watch.ended - watch.began
    print(f"{records:,} records, {log_bytes / 1e6:,.0f} MB -> {left_bytes / 1e6:,.0f} MB in {seconds:.1f} s")
    print(f"resident: idle {watch.rss_idle / 1e6:.0f} MB, at most {watch.rss_peak / 1e6:.0f} MB")
    p99 = {}
    for phase in PHASES:
        found = sorted(latencies[phase])
        p99[phase] = found[int(len(found) * 0.99)] * 1e6
        print(
            f"{phase:10} {len(found):7,} to {TOPIC!r}: p50 {statistics.median(found) * 1e6:6.0f} us  "
            f"p99 {p99[phase]:6.0f} us  max {found[-1] * 1e6:8.0f} us"
        )
    print(f"p99 compacting / idle: {p99['compacting'] / p99['idle']:.2f}")


if __name__ == "__main__":
    main()
