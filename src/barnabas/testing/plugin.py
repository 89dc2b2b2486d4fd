"""pytest fixtures, found by pytest once Barnabas is installed: no import, no conftest needed.

def test_orders(barnabas_bootstrap):
    producer = Producer({"bootstrap.servers": barnabas_bootstrap})
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.broker import RunningBroker, run_broker


@pytest.fixture(scope="session")
def barnabas_broker() -> Iterator[RunningBroker]:
    """One broker for the whole test session; topics are created when first used."""
    with run_broker() as broker:
        yield broker


@pytest.fixture
def barnabas_bootstrap(barnabas_broker: RunningBroker) -> str:
    """The address to put into `bootstrap.servers`."""
    return barnabas_broker.bootstrap
