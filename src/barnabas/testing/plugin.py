"""pytest fixtures that pytest finds once Barnabas is installed: no import, no conftest needed.

def test_orders(barnabas_bootstrap):
    producer = Producer({"bootstrap.servers": barnabas_bootstrap})

pytest loads this module in every project that has Barnabas installed, so only the fixtures import the broker.
Each worker of pytest-xdist has a broker of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import RunningBroker
    from barnabas.testing.fault_rules import Faults

SHOWN_REQUESTS_MAX: Final = 20


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


@pytest.fixture
def barnabas_topic(barnabas_broker: RunningBroker) -> str:
    """Name of a new topic with one partition, for this test alone."""
    return barnabas_broker.create_topic()


@pytest.fixture
def barnabas_faults(barnabas_broker: RunningBroker) -> Iterator[Faults]:
    """Fault rules of the session's broker; they end with the test."""
    yield barnabas_broker.faults
    barnabas_broker.faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test the last requests that clients sent to its broker."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("barnabas_broker")
    if report.when == "call" and report.failed and broker is not None:
        last = broker.requests()[-SHOWN_REQUESTS_MAX:]
        lines = [
            f"{each.api} v{each.version} of {each.client_id}: {str(each.message)[:200]}" for each in last
        ]
        report.sections.append(("last requests to barnabas_broker", "\n".join(lines) or "none"))
    return report
