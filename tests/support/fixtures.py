"""Fixtures for tests that talk to one long-lived broker, ours or Apache Kafka (`--broker`).

A conftest imports the ones it wants to offer.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.peers import kafka
from tests.support import wire
from tests.support.broker import BarnabasBroker, Broker, running
from tests.support.waiting import PATIENCE_S

TopicFactory = Callable[..., str]
_topic_numbers = itertools.count()
RETRIABLE = frozenset({3, 5, 6})
"""A topic that was just created may be unknown or without a leader here for a moment."""


def chosen_broker(config: pytest.Config, directory: Path, **settings: object) -> Broker:
    """A broker of the kind that `--broker` names, not yet started."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    if config.getoption("--broker") == "kafka":
        kafka.require_kafka()
        return kafka.KafkaBroker(directory, settings=named)
    return BarnabasBroker(directory / "data", settings=named)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(chosen_broker(request.config, tmp_path_factory.mktemp("broker"))) as started:
        yield started


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, broker: Broker) -> TopicFactory:
    """`new_topic(partitions=1, **configs)` makes one and waits until its partitions are led."""
    stem = "-".join(re.findall(r"[A-Za-z0-9]+", f"{request.module.__name__} {request.node.name}"))[:200]

    def make(partitions: int = 1, **configs: object) -> str:
        name = f"{stem}-{next(_topic_numbers)}"
        create_topic(broker, name, partitions, {k.replace("_", "."): str(v) for k, v in configs.items()})
        return name

    return make


@pytest.fixture
def topic(new_topic: TopicFactory) -> str:
    return new_topic()


def create_topic(
    broker: Broker, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    with wire.WireConnection(broker.host, broker.port) as connection:
        error = connection.create_topic(name, partitions=partitions, configs=configs)
        assert error == 0, f"error {error} creating {name}"
        for partition in range(partitions):
            wait_until_led(connection, name, partition)


def wait_until_led(connection: wire.WireConnection, topic: str, partition: int = 0) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (error := connection.list_offset(topic, wire.LATEST, partition)[0]) in RETRIABLE:
        assert time.monotonic() < deadline, f"{topic}-{partition} has no leader (error {error})"
        time.sleep(0.01)
    assert error == 0, f"error {error} asking for the offsets of {topic}-{partition}"
