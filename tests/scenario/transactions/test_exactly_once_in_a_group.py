"""Workers of one group are killed, and the broker, while partitions move between them: every input is in the
output, once and in order."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.test_confluent_transactions import read_all
from tests.support.broker import REPOSITORY, Broker, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4
WORKERS = 3
CYCLES = int(os.environ.get("BARNABAS_SIEGE_CYCLES", "6"))
SEED = int(os.environ.get("BARNABAS_SIEGE_SEED", "20261116"))
"""A longer or another siege can be asked for."""
RECORDS_PER_CYCLE = 200
RUN_ON_S_MAX = 0.3
PROGRESS_TIMEOUT_S = 120.0
SETTINGS = {
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1_000,
}


class Siege:
    def __init__(self, broker: Broker, notes: Path) -> None:
        self.broker = broker
        self.chance = random.Random(SEED)
        self.sent = 0
        self.workers: dict[str, ServerProcess] = {}
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
        for number in range(WORKERS):
            self.start_worker(f"worker-{number}")

    def start_worker(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.scenario.transactions.group_loop"]
        self.workers[name] = ServerProcess(
            [*command, self.broker.bootstrap, "source", "sink", str(self._notes), name],
            working_directory=REPOSITORY,
        )

    def feed(self) -> None:
        for _ in range(RECORDS_PER_CYCLE):
            self._feeder.produce("source", str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1
        assert self._feeder.flush(PROGRESS_TIMEOUT_S) == 0

    def transactions(self) -> int:
        return self._notes.read_text().count("\n") if self._notes.exists() else 0

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Workers that have ended, killed or by themselves, are started again meanwhile."""
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not is_done():
            assert time.monotonic() < deadline, self.output_text()
            for name, worker in self.workers.items():
                if not worker.is_running:
                    self.start_worker(name)
            time.sleep(0.01)

    def cycle(self) -> None:
        self.feed()
        goal = self.transactions() + self.chance.randint(1, 3)
        self.wait(lambda: self.transactions() >= goal)
        time.sleep(self.chance.uniform(0, RUN_ON_S_MAX))
        kinds = self.chance.choice(["broker", "worker", "worker", "both"])
        if kinds != "broker":
            for name in self.chance.sample(sorted(self.workers), self.chance.randint(1, 2)):
                self.workers[name].kill()
        if kinds != "worker":
            self.broker.kill()
            self.broker.start()

    def kill_workers(self) -> None:
        for worker in self.workers.values():
            worker.kill()

    def output_text(self) -> str:
        texts = [f"{name}: {worker.output_text()[-2_000:]}" for name, worker in self.workers.items()]
        return "\n".join([*texts, self.broker.output_text()[-4_000:]])


def test_every_input_is_in_the_output_once_whoever_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker = chosen_broker(request.config, tmp_path / "data", **SETTINGS)
    with running(broker):
        create_topic(broker, "source", PARTITIONS)
        create_topic(broker, "sink", PARTITIONS)
        siege = Siege(broker, tmp_path / "notes")
        try:
            for _ in range(CYCLES):
                siege.cycle()
            expected = [[str(n) for n in range(p, siege.sent, PARTITIONS)] for p in range(PARTITIONS)]
            found: list[list[str]] = []

            def is_complete() -> bool:
                nonlocal found
                found = read_all(broker.bootstrap, "sink", partitions=PARTITIONS)
                return sum(map(len, found)) >= siege.sent

            siege.wait(is_complete)
        finally:
            siege.kill_workers()
        for partition in range(PARTITIONS):
            counts = Counter(found[partition])
            assert {value: count for value, count in counts.items() if count > 1} == {}, "more than once"
            assert set(expected[partition]) - set(found[partition]) == set(), "lost"
        assert found == expected
        assert read_all(broker.bootstrap, "sink", partitions=PARTITIONS) == expected
