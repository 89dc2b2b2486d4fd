"""One broker for the tests of a module: ours, and Apache Kafka beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.peers import kafka
from tests.support.broker import BarnabasBroker, Broker, running

_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])],
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    broker: Broker
    if request.param == "kafka":
        kafka.require_kafka()
        broker = kafka.KafkaBroker(directory)
    else:
        broker = BarnabasBroker(directory / "data")
    with running(broker) as started:
        yield started.bootstrap


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """`new_name("orders")`: a name that no other test has."""
    return lambda stem: f"{stem}-{next(_numbers)}"
