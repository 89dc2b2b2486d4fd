"""Subjects of measurements: Barnabas, as source and compiled, and Apache Kafka, one at a time.

Both come from the fixtures of the test suite, so a measurement runs the same command line as a
test. A subject lives for one round in a directory of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scratch import scratch_directory
from tests.peers.kafka import KafkaBroker
from tests.support import wire
from tests.support.broker import REPOSITORY, BarnabasBroker, Broker

FIRST_RECORD_TIMEOUT_S = 120.0
FIRST_TOPIC = "first"
TOPIC_EXISTS = 36
WHEEL = REPOSITORY / "build" / "wheel"
"""Where `make bench` unpacks the compiled one."""


def new_subject(name: str, directory: Path) -> Broker:
    if name == "kafka":
        kafka = KafkaBroker(directory)
        kafka.prepare()
        return kafka
    return BarnabasBroker(directory / "data", code=WHEEL if name == "compiled" else None)


@contextmanager
def started(name: str) -> Iterator[tuple[Broker, float]]:
    """A running subject and the seconds from its launch to its first acknowledged record."""
    with scratch_directory(name) as directory:
        broker = new_subject(name, directory)
        begun = time.perf_counter()
        broker.launch()
        try:
            _await_first_record(broker)
            seconds = time.perf_counter() - begun
            broker.wait_ready()
            yield broker, seconds
        finally:
            broker.kill()


def _await_first_record(broker: Broker) -> None:
    """Asks for a topic and writes to it, again and again, as an impatient client would."""
    deadline = time.perf_counter() + FIRST_RECORD_TIMEOUT_S
    record = wire.batch([b"first"])
    while time.perf_counter() < deadline:
        with suppress(OSError, EOFError), wire.WireConnection(broker.host, broker.port) as connection:
            if connection.create_topic(FIRST_TOPIC) in {0, TOPIC_EXISTS}:
                while time.perf_counter() < deadline:
                    if connection.produce(FIRST_TOPIC, record)[0] == 0:
                        return
                    time.sleep(0.002)
        time.sleep(0.005)
    raise RuntimeError(f"{broker.name} acknowledged nothing:\n{broker.output_text()}")
