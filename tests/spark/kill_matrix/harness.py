"""A pipeline whose driver is a process, and the question that every test of it ends with.

A driver is all processes of one session: the script, its JVM, the Python workers, and with
`local-cluster` the executors. To kill it is to lose the machine: all are stopped first, so that none
sees another die.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.spark.kill_matrix import hooks
from tests.support.broker import REPOSITORY
from tests.support.process import ServerProcess

PATIENCE_S = 300.0
BATCH_RECORDS = 400
BATCH_BYTES_MAX = 12_000_000
ATTEMPTS = 4
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Driver:
    """One run of the script, which may stop at a named point."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        point: str = "",
        dies: str = "",
        master: str = "local[2]",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._signals = pipeline.directory / f"run-{uuid.uuid4()}"
        self._signals.mkdir()
        given = {
            "bootstrap": pipeline.bootstrap,
            "source": pipeline.source,
            "sink": pipeline.sink,
            "pipeline_id": pipeline.pipeline_id,
            "checkpoint": str(pipeline.directory / "checkpoint"),
            "batch_records": pipeline.batch_records,
            "settings": {
                # Executors on other hosts do not inherit the driver's environment.
                f"spark.executorEnv.{hooks.POINT}": point,
                f"spark.executorEnv.{hooks.DIES}": dies,
                f"spark.executorEnv.{hooks.DIRECTORY}": str(self._signals),
                **(settings or {}),
            },
            "directory": str(self._signals),
            "master": master,
        }
        path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
        self._process = ServerProcess(
            [sys.executable, "-m", "tests.spark.kill_matrix.driver", json.dumps(given)],
            environment={
                "PYTHONPATH": path,
                "PYSPARK_PYTHON": sys.executable,
                hooks.POINT: point,
                hooks.DIES: dies,
                hooks.DIRECTORY: str(self._signals),
            },
            working_directory=self._signals,
        )

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def output(self) -> str:
        return self._process.output_text()

    def wait_reached(self) -> int | None:
        """The process that stands at the point; None when the driver came to its end without."""
        reached = self._signals / hooks.REACHED
        deadline = time.monotonic() + PATIENCE_S
        while not reached.exists():
            if self.exit_code is not None:
                return None
            assert time.monotonic() < deadline, f"the point was not reached:\n{self.output}"
            time.sleep(0.05)
        return int(reached.read_text())

    def release(self) -> None:
        (self._signals / hooks.RELEASED).touch()

    def wait_end(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.exit_code is None:
            assert time.monotonic() < deadline, f"the driver does not end:\n{self.output}"
            time.sleep(0.05)
        return self.exit_code

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) == self._process.pid:
                    found.append(process)
        return found

    def suspend(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        self.suspend()
        while self._signal_all(signal.SIGKILL):
            time.sleep(0.02)
        self._process.kill()

    def kill_executor_of(self, pid: int) -> None:
        """The JVM that the worker `pid` works for; another executor is left."""
        (executor,) = [each for each in psutil.Process(pid).parents() if EXECUTOR in each.cmdline()]
        executor.kill()

    def _signal_all(self, number: signal.Signals) -> int:
        """Number of processes that received the signal; processes may end meanwhile."""
        signalled = 0
        for process in self.processes():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.send_signal(number)
                    signalled += 1
        return signalled


def digest(value: bytes) -> bytes:
    """The value, or the start and the hash of a large one."""
    return value if len(value) < 100 else value[:20] + hashlib.sha256(value).digest()


class Pipeline:
    """Input, output and group of one pipeline, seen through a client that is not ours."""

    def __init__(
        self, bootstrap: str, source: str, sink: str, directory: Path, *, row_bytes: int = 0
    ) -> None:
        """Values are padded to `row_bytes`; of large ones, fewer make a batch."""
        self.row_bytes = row_bytes
        self.batch_records = max(BATCH_BYTES_MAX // max(row_bytes, 1), 24)
        self.batch_records = min(self.batch_records, BATCH_RECORDS)
        self.bootstrap = bootstrap
        self.source, self.sink = source, sink
        self.directory = directory
        self.pipeline_id = f"kill-matrix-{uuid.uuid4()}"
        self._drivers: list[Driver] = []
        self._expected: Counter[bytes] = Counter()

    def produce(self, records: int) -> None:
        first = self._expected.total()
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.max.bytes": 4_000_000})
        for number in range(first, first + records):
            value = f"value-{number}".ljust(self.row_bytes, ".")
            producer.produce(self.source, value.encode(), key=str(number).encode())
            producer.poll(0)
            self._expected[digest(f"seen-{value}".encode())] += 1
        assert producer.flush(60.0) == 0

    def start(self, **options: Any) -> Driver:
        driver = Driver(self, **options)
        self._drivers.append(driver)
        return driver

    def start_until(self, point: str, **options: Any) -> tuple[Driver, int]:
        """A driver that stands at the point, and which of its processes does."""
        for _ in range(ATTEMPTS):
            driver = self.start(point=point, **options)
            pid = driver.wait_reached()
            if pid is not None:
                return driver, pid
            # Spark gives its Python workers ten seconds to start, which a busy machine may exceed.
            assert "failed to connect back" in driver.output, f"it never came to {point}:\n{driver.output}"
        raise AssertionError("Spark's Python workers do not start")

    def run_through(self, **options: Any) -> None:
        """One run of the driver reaches its end, even if its tasks fail."""
        for _ in range(ATTEMPTS):
            driver = self.start(**options)
            if driver.wait_end() == 0:
                return
            assert "failed to connect back" in driver.output, f"the query failed:\n{driver.output}"
        raise AssertionError("Spark's Python workers do not start")

    def run_until_caught_up(self, *, master: str = "local[2]") -> None:
        for _ in range(ATTEMPTS):
            driver = self.start(master=master)
            if driver.wait_end() == 0:
                return
        raise AssertionError(f"the pipeline does not recover:\n{driver.output}")

    def kill_all(self) -> None:
        for driver in self._drivers:
            driver.kill()

    def check_nothing_half_done(self) -> None:
        """As many results are visible as the group's offsets say were read: both or neither."""
        deadline = time.monotonic() + 60.0
        while (seen := self.committed().total()) != (read := self.group_position()):
            # Markers reach the partitions one by one after the decision.
            assert time.monotonic() < deadline, f"{seen} results are visible for {read} records read"
            time.sleep(0.1)

    def check_exactly_once(self) -> None:
        seen = self.committed()
        assert not seen - self._expected, f"too often: {(seen - self._expected).most_common(5)}"
        assert not self._expected - seen, f"missing: {(self._expected - seen).most_common(5)}"
        assert self.group_position() == self._expected.total()

    def committed(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        with self._consumer() as consumer:
            partitions = self._partitions(consumer, self.sink)
            consumer.assign([TopicPartition(self.sink, number, 0) for number in partitions])
            ended: set[int] = set()
            while len(ended) < len(partitions):
                message = consumer.poll(60.0)
                assert message is not None, f"{self.sink} neither ends nor goes on"
                if message.error() is not None:
                    number = message.partition()
                    assert number is not None
                    ended.add(number)
                else:
                    found[digest(message.value() or b"")] += 1
        return found

    def group_position(self) -> int:
        # A reader of committed data would wait for the decision on offsets that are in a transaction.
        with self._consumer("read_uncommitted") as consumer:
            partitions = self._partitions(consumer, self.source)
            found = consumer.committed([TopicPartition(self.source, number) for number in partitions], 60.0)
        return sum(max(place.offset, 0) for place in found)

    @contextmanager
    def _consumer(self, isolation: str = "read_committed") -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.pipeline_id,
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 4_000_000,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(self, consumer: Consumer, topic: str) -> list[int]:
        return sorted(consumer.list_topics(topic, 60.0).topics[topic].partitions)
