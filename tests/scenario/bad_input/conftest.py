"""Bad input comes through real sockets; a bystander on another connection must never notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import Broker, resident_bytes
from tests.support.fixtures import bootstrap, broker, new_topic, topic
from tests.support.wire import WireConnection, batch

__all__ = ["bootstrap", "broker", "new_topic", "topic"]

RESIDENT_GROWTH_BYTES_MAX = 64 << 20
"""Permanent cost of garbage for a broker; the inputs claim gigabytes."""


@pytest.fixture
def connection(broker: Broker) -> Iterator[WireConnection]:
    """The connection that misbehaves."""
    with WireConnection(broker.host, broker.port) as opened:
        yield opened


@pytest.fixture
def bystander(broker: Broker, topic: str) -> Iterator[WireConnection]:
    """Produces before and after the test, on one connection that stays open."""
    with WireConnection(broker.host, broker.port) as opened:
        assert opened.produce(topic, batch([b"before"])) == (0, 0)
        before_bytes = resident_bytes(broker)
        yield opened
        error, offset = opened.produce(topic, batch([b"after"]))
        assert error == 0, "another connection was affected"
        assert opened.latest_offset(topic) == offset + 1
        if broker.name == "barnabas":
            assert resident_bytes(broker) - before_bytes < RESIDENT_GROWTH_BYTES_MAX
