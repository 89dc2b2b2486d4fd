"""One broker for the tests of a module: ours, and Apache Kafka beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.peers import kafka
from tests.support.broker import running

from barnabas.testing.broker import run_broker

_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])],
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "kafka":
        kafka.require_kafka()
        with running(kafka.KafkaBroker(tmp_path_factory.mktemp("broker"))) as started:
            yield started.bootstrap
    else:
        with run_broker() as ours:
            yield ours.bootstrap


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """`new_name("orders")`: a name that no other test has."""
    return lambda stem: f"{stem}-{next(_numbers)}"
