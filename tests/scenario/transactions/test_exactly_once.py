"""Fifteen kills under a consume-transform-produce loop: every input is in the output, once and in order.

Sometimes the broker is killed, sometimes the loop, sometimes both, at no particular moment.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.test_confluent_transactions import read_all
from tests.scenario.transactions.transform_loop import PARTITIONS
from tests.support.broker import REPOSITORY, BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 15
RECORDS_PER_CYCLE = 200
RUN_ON_S_MAX = 0.1
PROGRESS_TIMEOUT_S = 120.0
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


class Siege:
    def __init__(self, broker: BarnabasBroker, notes: Path, seed: int) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.sent = 0
        self._notes = notes
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
        self.start_loop()

    def start_loop(self) -> None:
        command = [sys.executable, "-m", "tests.scenario.transactions.transform_loop"]
        self.loop = ServerProcess(
            [*command, self.broker.bootstrap, "source", "sink", str(self._notes)],
            working_directory=REPOSITORY,
        )

    def feed(self) -> None:
        for _ in range(RECORDS_PER_CYCLE):
            self._feeder.produce("source", str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1
        assert self._feeder.flush(PROGRESS_TIMEOUT_S) == 0

    def transactions(self) -> int:
        return self._notes.read_text().count("\n") if self._notes.exists() else 0

    def await_progress(self, transactions: int) -> None:
        goal = self.transactions() + transactions
        self.await_loop(lambda: self.transactions() >= goal)

    def await_loop(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not is_done():
            assert time.monotonic() < deadline, self.loop.output_text() + self.broker.output_text()
            if not self.loop.is_running:
                self.start_loop()
            time.sleep(0.01)

    def cycle(self) -> None:
        self.feed()
        self.await_progress(self.chance.randint(1, 3))
        time.sleep(self.chance.uniform(0, RUN_ON_S_MAX))
        victims = self.chance.choice(["broker", "broker", "loop", "both"])
        if victims != "broker":
            self.loop.kill()
        if victims != "loop":
            self.broker.kill()
            self.broker.start()


def test_every_input_is_in_the_output_once_whatever_is_killed(tmp_path: Path) -> None:
    broker = BarnabasBroker(tmp_path / "data", settings=SETTINGS)
    with running(broker):
        create_topic(broker, "source", PARTITIONS)
        create_topic(broker, "sink", PARTITIONS)
        siege = Siege(broker, tmp_path / "notes", seed=20_261_115)
        for _ in range(KILLS):
            siege.cycle()
        expected = [[str(n) for n in range(siege.sent) if n % PARTITIONS == p] for p in range(PARTITIONS)]
        found: list[list[str]] = []

        def is_complete() -> bool:
            nonlocal found
            found = read_all(broker.bootstrap, "sink", partitions=PARTITIONS)
            return sum(map(len, found)) >= siege.sent

        siege.await_loop(is_complete)
        siege.loop.kill()
        for partition in range(PARTITIONS):
            counts = Counter(found[partition])
            assert {value: count for value, count in counts.items() if count > 1} == {}, "more than once"
            assert set(expected[partition]) - set(found[partition]) == set(), "lost"
        assert found == expected
        assert read_all(broker.bootstrap, "sink", partitions=PARTITIONS) == expected
