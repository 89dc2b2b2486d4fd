"""Memory of a pipeline from a topic into a Delta table, by kind of process, while records keep coming.

    PYTHONPATH=src:. python bench/table_memory.py --seconds 1800 --rate 2000

A producer writes JSON records of about 1 KB at a steady rate. `barnabas pipeline run` commits them every few
seconds, and compacts and expires within that time. Resident memory is read from /proc: of the driver in
Python, of the JVM, and of the Python processes that Spark starts. Prints a line for each interval, and at the
end the medians of the second sixth of the time and of the last; the first sixth is the start. A pipeline that
is behind or a row that is missing is an error. Writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil
from confluent_kafka import Producer
from deltalake import DeltaTable
from tests.support.broker import REPOSITORY, BarnabasBroker, running
from tests.support.fixtures import create_topic

TOPIC = "orders"
KINDS = (("java", "JVM"), ("pyspark", "workers"), ("python_streaming_source_runner", "workers"))
MB = 1 << 20
SPEC = """
name: memory
source: {{type: topic, topics: orders, schema: "id BIGINT, customer STRING, cents BIGINT, note STRING"}}
sink: {{type: table, format: delta, path: {table}, maintenance: 20, keep: 1 hour}}
trigger: {trigger} seconds
"""


class Load:
    """A steady producer; `sent` counts acknowledged records."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.sent = 0
        self._rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _send(self) -> None:
        note = os.urandom(440).hex()
        began, sent = time.monotonic(), 0
        while not self._over.wait(0.05):
            due = int((time.monotonic() - began) * self._rate)
            for at in range(sent, due):
                value = {"id": at, "customer": f"customer-{at % 1_000}", "cents": at % 10_000}
                self._producer.produce(
                    TOPIC, json.dumps({**value, "note": f"{at}{note}"}), on_delivery=self._acknowledged
                )
            sent = max(sent, due)
            self._producer.poll(0)

    def _acknowledged(self, error: object, message: object) -> None:  # noqa: ARG002
        assert error is None, error
        self.sent += 1


def resident_mb(pid: int) -> dict[str, float]:
    """Resident memory of a driver and its children, by kind. Pages that workers share count for each."""
    found: dict[str, float] = defaultdict(float)
    own = psutil.Process(pid)
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            kind = next((kind for word, kind in KINDS if word in command), "driver")
            kind = kind if process.pid != pid else "driver"
            found[kind] += process.memory_info().rss / MB
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1_800)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--trigger", type=int, default=3)
    parser.add_argument("--interval", type=float, default=30)
    parser.add_argument("--directory", help="where to put everything; by default a temporary directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-table-memory-", dir=given.directory) as directory:
        path = Path(directory)
        with running(BarnabasBroker(path / "data")) as broker:
            create_topic(
                broker, TOPIC, 2, {"retention.bytes": str(200 << 20), "segment.bytes": str(16 << 20)}
            )
            samples, rows, sent = follow(given, broker, path)
    assert rows == sent, f"{rows:,} rows of {sent:,} records"
    sixth = given.seconds / 6
    print(f"{rows:,} records of 1 KB in {given.seconds / 60:.0f} minutes, every one a row\n")
    print("| process | minute 5 to 10, MB | last 5 minutes, MB | largest, MB |\n|---|---|---|---|")
    for kind in ("driver", "JVM", "workers"):
        early = [each.get(kind, 0) for at, each in samples if sixth <= at < 2 * sixth]
        late = [each.get(kind, 0) for at, each in samples if at >= given.seconds - sixth]
        largest = max(each.get(kind, 0) for _, each in samples)
        print(f"| {kind} | {statistics.median(early):.0f} | {statistics.median(late):.0f} | {largest:.0f} |")


def follow(
    given: argparse.Namespace, broker: BarnabasBroker, path: Path
) -> tuple[list[tuple[float, dict[str, float]]], int, int]:
    """Samples with their seconds; rows in the table; records that were sent."""
    spec, table = path / "memory.yaml", path / "lake"
    spec.write_text(SPEC.format(table=table, trigger=given.trigger))
    words = [sys.executable, "-m", "barnabas", "--bootstrap", broker.bootstrap, "pipeline", "run", str(spec)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "SPARK_MASTER": "local[2]"}
    samples: list[tuple[float, dict[str, float]]] = []
    load = Load(broker.bootstrap, given.rate)
    with (path / "log").open("w") as log:
        driver = subprocess.Popen(
            [*words, "--state", str(path / "state")], env=environment, stdout=log, stderr=log
        )
        began = time.monotonic()
        try:
            while (spent := time.monotonic() - began) < given.seconds:
                time.sleep(given.interval)
                assert driver.poll() is None, (path / "log").read_text()[-2_000:]
                samples.append((spent + given.interval, resident_mb(driver.pid)))
                parts = "  ".join(f"{kind} {mb:6.0f} MB" for kind, mb in sorted(samples[-1][1].items()))
                print(f"{samples[-1][0]:6.0f} s  {load.sent:10,} sent  {parts}", file=sys.stderr, flush=True)
            load.stop()
            ends = time.monotonic() + 120
            while (rows := rows_of(table)) < load.sent and time.monotonic() < ends:
                time.sleep(2)
        finally:
            driver.send_signal(signal.SIGINT)
            driver.wait(120)
    return samples, rows, load.sent


def rows_of(table: Path) -> int:
    if not DeltaTable.is_deltatable(str(table)):
        return 0
    return sum(DeltaTable(table).get_add_actions().column("num_records").to_pylist())


if __name__ == "__main__":
    main()
