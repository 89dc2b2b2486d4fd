"""Four clients, and one broker of each kind for all behaviours."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.clients.behaviour.driver import Absent, Driver
from tests.peers import kafka
from tests.support.broker import BarnabasBroker, Broker
from tests.support.fixtures import create_topic

OURS = "Barnabas"
DRIVERS = {
    OURS: ("ours", "Ours"),
    "aiokafka": ("with_aiokafka", "Aiokafka"),
    "kafka-python": ("with_kafka_python", "KafkaPython"),
    "confluent-kafka": ("with_confluent", "Confluent"),
}
"""Module and class of each driver, imported when it is first needed."""
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other clients are compared by `make test-clients` alone: what they do is not ours to keep right."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("behaviour"):
            if item.callspec.params["driver"] != OURS:
                item.add_marker(pytest.mark.compatibility)
            if item.callspec.params["peer"] == "kafka":
                item.add_marker(pytest.mark.java)


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Brokers by name, started when they are first asked for."""
    started: dict[str, Broker] = {}
    yield started
    for broker in started.values():
        broker.stop()


@pytest.fixture(params=["barnabas", "kafka"])
def peer(
    request: pytest.FixtureRequest, peers: dict[str, Broker], tmp_path_factory: pytest.TempPathFactory
) -> Broker:
    name: str = request.param
    if name not in peers:
        directory = tmp_path_factory.mktemp(name)
        settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
        broker: Broker
        if name == "kafka":
            kafka.require_kafka()
            broker = kafka.KafkaBroker(directory, settings=settings)
        else:
            broker = BarnabasBroker(directory / "data", settings=settings)
        broker.start()
        peers[name] = broker
    return peers[name]


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> Driver:
    module, name = DRIVERS[request.param]
    made: Driver = getattr(importlib.import_module(f"tests.clients.behaviour.{module}"), name)()
    return made


@pytest.fixture
def new_topic(peer: Broker) -> Callable[..., str]:
    def make(partitions: int = 1, stem: str = "behaviour") -> str:
        name = f"{stem}-{next(_numbers)}"
        create_topic(peer, name, partitions)
        return name

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """`Absent` is an answer: the client has no such thing. Another client gets a second attempt: on a busy
    machine cooperative groups of kafka-python 3.0 stall at times, on either broker.
    """
    try:
        return (yield)
    except Absent as reason:
        item.user_properties.append(("absent", True))
        pytest.skip(str(reason))
    except AssertionError:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("behaviour") is None:
            raise
        if item.callspec.params["driver"] == OURS:
            raise
        return item.runtest()
