"""pytest fixtures that pytest finds once Barnabas is installed: no import, no conftest needed.

def test_orders(barnabas_bootstrap):
    producer = Producer({"bootstrap.servers": barnabas_bootstrap})

pytest loads this module in every project that has Barnabas installed, so only the fixture imports the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import RunningBroker


@pytest.fixture(scope="session")
def barnabas_broker() -> Iterator[RunningBroker]:
    """One broker for the whole test session; topics are created at first use."""
    from barnabas.testing.broker import run_broker  # noqa: PLC0415 - only users of the fixture pay for it

    with run_broker() as broker:
        yield broker


@pytest.fixture
def barnabas_bootstrap(barnabas_broker: RunningBroker) -> str:
    """The address to put into `bootstrap.servers`."""
    return barnabas_broker.bootstrap
