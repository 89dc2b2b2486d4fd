"""One broker for all tests of the command line, ours or Apache Kafka (`--broker`)."""

from __future__ import annotations

import pytest

from tests.scenario.cli.command import Barnabas
from tests.support.fixtures import bootstrap, broker, new_topic, topic

__all__ = ["bootstrap", "broker", "new_topic", "topic"]


@pytest.fixture
def barnabas(bootstrap: str) -> Barnabas:
    return Barnabas(bootstrap)
