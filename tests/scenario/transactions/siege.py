"""A source that is fed, workers that carry it to a sink exactly once, and a hand that kills them all.

Workers that have ended, killed or by themselves, are started again. Feeding, killing and waiting go on until
every input must have got through; then the sink has each of them once, and in order.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Producer

from tests.clients.test_confluent_transactions import read_all
from tests.support.broker import REPOSITORY, Broker
from tests.support.fixtures import create_topic
from tests.support.process import ServerProcess

RECORDS_PER_CYCLE = 200
PROGRESS_TIMEOUT_S = 120.0
LOOP = "tests.scenario.transactions.transform_loop"
BROKER, WORKERS, BOTH = "broker", "workers", "both"


class Siege:
    """`worker_arguments` are those of `transform_loop` after the notes, by the name of a worker."""

    def __init__(
        self,
        broker: Broker,
        notes: Path,
        worker_arguments: Mapping[str, Sequence[str]],
        *,
        partitions: int,
        seed: int,
    ) -> None:
        self._broker = broker
        self._notes = notes
        self._worker_arguments = worker_arguments
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._sent = 0
        self._workers: dict[str, ServerProcess] = {}
        self._feeder = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 300_000,
                "metadata.recovery.strategy": "none",
                "log_level": 2,
            }
        )

    def lay(self, kills: int, victims: Sequence[str], *, workers_max: int, run_on_s_max: float) -> None:
        """From the first worker to the last input in the sink; no worker is left."""
        try:
            self._start()
            for _ in range(kills):
                self._cycle(victims, workers_max, run_on_s_max)
            self._check()
        finally:
            self._kill_workers()

    def _start(self) -> None:
        for topic in ("source", "sink"):
            create_topic(self._broker, topic, self._partitions)
        for name in self._worker_arguments:
            self._start_worker(name)

    def _start_worker(self, name: str) -> None:
        command = [sys.executable, "-m", LOOP, self._broker.bootstrap, "source", "sink", str(self._notes)]
        self._workers[name] = ServerProcess(
            [*command, *self._worker_arguments[name]], working_directory=REPOSITORY
        )

    def _cycle(self, victims: Sequence[str], workers_max: int, run_on_s_max: float) -> None:
        """Feed, wait for transactions to end, and kill random `victims` at random moments."""
        self._feed()
        goal = self._transactions() + self._chance.randint(1, 3)
        self._wait(lambda: self._transactions() >= goal)
        time.sleep(self._chance.uniform(0, run_on_s_max))
        chosen = self._chance.choice(victims)
        if chosen != BROKER:
            for name in self._chance.sample(sorted(self._workers), self._chance.randint(1, workers_max)):
                self._workers[name].kill()
        if chosen != WORKERS:
            self._broker.kill()
            self._broker.start()

    def _check(self) -> None:
        """Wait until the sink has as much as was fed, and read it when all writers have ended."""
        expected = [
            [str(number) for number in range(partition, self._sent, self._partitions)]
            for partition in range(self._partitions)
        ]
        self._wait(lambda: sum(map(len, self._sink())) >= self._sent)
        self._kill_workers()
        found = self._sink()
        for values, wanted in zip(found, expected, strict=True):
            assert [value for value, count in Counter(values).items() if count > 1] == [], "more than once"
            assert set(wanted) - set(values) == set(), "lost"
        assert found == expected

    def _kill_workers(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    def _feed(self) -> None:
        for _ in range(RECORDS_PER_CYCLE):
            self._feeder.produce("source", str(self._sent), partition=self._sent % self._partitions)
            self._sent += 1
        assert self._feeder.flush(PROGRESS_TIMEOUT_S) == 0

    def _transactions(self) -> int:
        return self._notes.read_text().count("\n") if self._notes.exists() else 0

    def _sink(self) -> list[list[str]]:
        return read_all(self._broker.bootstrap, "sink", partitions=self._partitions)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not is_done():
            assert time.monotonic() < deadline, self._output_text()
            for name, worker in self._workers.items():
                if not worker.is_running:
                    self._start_worker(name)
            time.sleep(0.01)

    def _output_text(self) -> str:
        texts = [f"{name}: {worker.output_text()[-2_000:]}" for name, worker in self._workers.items()]
        return "\n".join([*texts, self._broker.output_text()[-4_000:]])
