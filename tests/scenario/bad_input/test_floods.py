"""Too many connections, and readers that do not read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.broker import Broker, resident_bytes, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.wire import WireConnection, batch

GREEDY_GROWTH_BYTES_MAX = 192 << 20
DEADLINE_S = 60.0


@contextlib.contextmanager
def limited_broker(config: pytest.Config, directory: Path, **settings: object) -> Iterator[Broker]:
    with running(chosen_broker(config, directory, **settings)) as broker:
        yield broker


def is_served(connection: WireConnection) -> bool:
    try:
        return connection.ask(wire.METADATA, 1, wire.array([])).number("i") >= 1
    except (OSError, EOFError):
        return False


def test_connections_of_one_address_are_capped(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    with limited_broker(pytestconfig, tmp_path, max_connections_per_ip=10) as broker:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(WireConnection(broker.host, broker.port)) for _ in range(25)]
            served = sum(is_served(connection) for connection in opened)
            assert 1 <= served <= 10
        assert_served_again(broker)


def test_connections_in_total_are_capped(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Past the cap a newcomer is closed or kept waiting, but not served, until another leaves."""
    with limited_broker(pytestconfig, tmp_path, max_connections=10) as broker:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(WireConnection(broker.host, broker.port))
            served = int(is_served(first))
            for _ in range(14):
                newcomer = stack.enter_context(WireConnection(broker.host, broker.port, timeout_s=0.5))
                served += is_served(newcomer)
            assert 1 <= served <= 10
        assert_served_again(broker)


def assert_served_again(broker: Broker) -> None:
    """The places of those who left are free; the broker may take a moment to notice that they left."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), WireConnection(broker.host, broker.port) as connection:
            if is_served(connection):
                return
        time.sleep(0.05)
    pytest.fail("nobody is served after the flood")


def test_a_thousand_connections_that_come_and_go_leave_nothing_behind(
    broker: Broker, bystander: WireConnection
) -> None:
    for _ in range(20):
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(WireConnection(broker.host, broker.port))
    with WireConnection(broker.host, broker.port) as connection:
        assert is_served(connection)


@pytest.mark.parametrize("kind", ["fetch", "metadata"])
def test_a_reader_that_never_reads_costs_bounded_memory(
    pytestconfig: pytest.Config, broker: Broker, bystander: WireConnection, topic: str, kind: str
) -> None:
    """It sends requests until nothing more is taken from it, and reads none of the answers."""
    payload = batch([bytes(500_000)])
    for _ in range(8):
        assert bystander.produce(topic, payload)[0] == 0
    if kind == "fetch":
        body = wire.fetch_body(topic, 0, max_bytes=8 << 20, max_wait_ms=0)
        request = wire.framed(wire.request_header(wire.FETCH, 4, 1) + body)
    else:
        request = wire.framed(wire.request_header(wire.METADATA, 1, 1) + wire.array(None))
    before_bytes = resident_bytes(broker)
    with WireConnection(broker.host, broker.port) as greedy:
        greedy.socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(200_000):
                greedy.socket.send(request)
        assert bystander.produce(topic, batch([b"meanwhile"]))[0] == 0
        if broker.name == "barnabas":
            assert resident_bytes(broker) - before_bytes < GREEDY_GROWTH_BYTES_MAX
    create_topic(broker, f"after-{kind}-{topic}"[:200])
